"""Lists, tuples, dicts, NamedTuples and None: as arguments, as results, and in between."""

from typing import Dict, List, NamedTuple, Optional, Tuple

import pytest
import scenarios_a_to_e as scenarios
import torch
import torch.nn.functional as F
from cases import ROWS, case, mlp, of
from harness import BUDGETS, EXECUTORS, check, executor, optimize, testing, train_alike
from torch import Tensor, nn


@pytest.mark.parametrize("mode", EXECUTORS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_e2_a_dict_entry_is_overwritten(budget, mode):
    optimized = check(scenarios.e2, budget, mode, rewritten=None)
    assert optimized.reasons("aten::_set_item") == {"hidden-write"}


@pytest.mark.parametrize("mode", EXECUTORS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_e3_a_mask_and_none_in_any_order(budget, mode):
    given = scenarios.e3()
    x, mask = given.inputs
    for planned in (given.inputs, (x, None)):
        optimized = optimize(given.script, planned, budget)
        for order in ([mask, None, mask, None], [None, None, mask, mask]):
            remat = optimized.load()
            given.eager.load_state_dict(remat.state_dict())
            with executor(mode):
                train_alike(given.eager, remat, lambda call, order=order: (x, order[call - 1]))


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = mlp(16, 3), mlp(16, 3)


class FromList(Trunk):
    def forward(self, xs: List[Tensor]):
        return self.b(torch.cat(xs) * torch.sigmoid(self.a(xs[0])).mean())


class FromDict(Trunk):
    def forward(self, entries: Dict[str, Tensor]):
        return self.b(torch.tanh(self.a(entries["x"])) * entries["scale"])


class FromTuple(Trunk):
    def forward(self, pair: Tuple[Tensor, Tensor]):
        x, y = pair
        return self.b(torch.tanh(self.a(x)) * y)


class FromNamedTuple(Trunk):
    def forward(self, pair: Pair):
        return self.b(torch.tanh(self.a(pair.first)) * pair.second)


class FromNamedTuples(Trunk):
    def forward(self, pairs: List[Pair], named: Dict[str, Pair]):
        h = torch.tanh(self.a(pairs[0].first)) * pairs[1].second
        return self.b(h * named["a"].first)


class ToNested(Trunk):
    def forward(self, x):
        h = self.a(x)
        y = self.b(h)
        return {"y": [y, y * 2.0], "h": [torch.sigmoid(h)]}, (x, 3, None)


class ToNamedTuple(Trunk):
    def forward(self, x):
        h = self.a(x)
        return Pair(self.b(h), h)


class WithNumbers(Trunk):
    def forward(self, x, scale: float, times: int, flag: bool, name: str, sizes: Optional[List[int]] = None):
        h = self.a(x) * scale
        for _ in range(times):
            h = torch.tanh(h)
        if flag and name == "b":
            h = self.b(h)
        if sizes is not None:
            h = h.view(sizes)
        return h


class ThroughList(Trunk):
    def forward(self, x):
        parts: List[Tensor] = []
        for i in range(4):
            parts.append(torch.tanh(self.a(x) * float(i + 1)))
        return self.b(torch.stack(parts).sum(0))


class ThroughPop(Trunk):
    def forward(self, x):
        parts = [torch.sigmoid(x), self.a(x), torch.cos(x)]
        last = parts.pop()
        parts[0] = parts[0] * last
        parts.reverse()
        return self.b(torch.cat(parts))


class ThroughDict(Trunk):
    def forward(self, x):
        found: Dict[str, Tensor] = {}
        found["a"] = self.a(x)
        if "b" not in found:
            found["b"] = torch.tanh(found["a"])
        return self.b(found["b"]) + found["a"]


class ThroughTuple(Trunk):
    def forward(self, x):
        pair = (self.a(x), torch.sigmoid(x))
        pair = (pair[1], pair[0])
        return self.b(pair[0] * pair[1])


class ThroughChunks(Trunk):
    def forward(self, x):
        first, second = self.a(x).chunk(2, 0)
        parts = torch.split(first * torch.sigmoid(second), [32, 64, 32])
        return self.b(torch.cat([parts[1], parts[0].tanh(), parts[2]]))


class ThroughComprehension(Trunk):
    def forward(self, x):
        rows = [F.gelu(row) for row in self.a(x).chunk(4)]
        return self.b(torch.cat(rows[1:] + rows[:1]))


class OptionalInside(Trunk):
    def __init__(self):
        super().__init__()
        self.bias: Optional[Tensor] = None

    def forward(self, x):
        h = self.a(x)
        kept: Optional[Tensor] = None
        if h.size(0) > 10:
            kept = torch.sigmoid(h)
        bias = self.bias
        if bias is not None:
            h = h + bias
        if kept is not None:
            h = h * kept
        return self.b(h)


class MixedOutputs(Trunk):
    def forward(self, x):
        h = self.a(x)
        y = self.b(h)
        kept: Optional[Tensor] = None
        if bool(y.sum() > 1e9):
            kept = y
        return y, kept, h.size(0), [h.argmax(1)], "name"


class NestedAndGivenOut(Trunk):
    def forward(self, x):
        h = self.a(x)
        nested = (h, [h, torch.tanh(h)])
        nested[1].append(torch.sigmoid(nested[0]))
        return self.b(torch.stack(nested[1]).sum(0)), nested


class DictOfLists(Trunk):
    def forward(self, x):
        outs: Dict[int, List[Tensor]] = {}
        h = self.a(x)
        for i in range(3):
            outs[i] = [torch.tanh(h * float(i)), torch.sigmoid(h)]
        total = h
        for pair in outs.values():
            total = total + pair[0] * pair[1]
        return self.b(total)


def x():
    return torch.randn(ROWS, 16)


MODELS = {
    FromList: lambda: ([x(), x().requires_grad_()],),
    FromDict: lambda: ({"x": x().requires_grad_(), "scale": x()},),
    FromTuple: lambda: ((x(), x()),),
    FromNamedTuple: lambda: (Pair(x(), x().requires_grad_()),),
    FromNamedTuples: lambda: ([Pair(x(), x()), Pair(x(), x())], {"a": Pair(x(), x())}),
    ToNested: lambda: (x(),),
    ToNamedTuple: lambda: (x(),),
    WithNumbers: lambda: (x(), 0.5, 3, True, "b", [ROWS * 4, 4]),
    ThroughList: lambda: (x(),),
    ThroughPop: lambda: (x(),),
    ThroughDict: lambda: (x(),),
    ThroughTuple: lambda: (x(),),
    ThroughChunks: lambda: (x(),),
    ThroughComprehension: lambda: (x(),),
    OptionalInside: lambda: (x(),),
    MixedOutputs: lambda: (x(),),
    NestedAndGivenOut: lambda: (x(),),
    DictOfLists: lambda: (x(),),
}


@pytest.mark.parametrize("mode", ["plain", "optimising"])
@pytest.mark.parametrize("model", MODELS)
def test_every_kind_of_container(model, mode):
    check(of(model, inputs=MODELS[model]), mode=mode, own_formulas=True)


def test_other_numbers_than_the_planned_ones():
    torch.manual_seed(0)
    given = case(WithNumbers(), *MODELS[WithNumbers]())
    remat = optimize(given.script, given.inputs).load()
    tensor = given.inputs[0]
    others = [
        (tensor, 2.0, 0, True, "b", None),
        (tensor, 0.1, 7, True, "a", [ROWS * 16]),
        (tensor, 0.5, 1, False, "b", None),
        (tensor, -1.0, 2, True, "b", [16, ROWS]),
    ]
    testing.replayed_nodes()
    train_alike(given.eager, remat, lambda call: others[call - 1], replays=None)


def test_lists_of_other_lengths_than_the_planned_one():
    torch.manual_seed(0)
    given = case(FromList(), [x(), x()])
    remat = optimize(given.script, given.inputs).load()

    def some(call):
        first = given.inputs[0][0]
        return ([first] * call,)

    train_alike(given.eager, remat, some)


def test_results_keep_their_python_types():
    torch.manual_seed(0)
    for model in (ToNested, ToNamedTuple, MixedOutputs):
        given = case(model(), *MODELS[model]())
        optimized = optimize(given.script, given.inputs)
        plain, remat = optimized.plain()(*given.inputs), optimized.load()(*given.inputs)
        assert type(plain) is type(remat) or plain._fields == remat._fields
        assert [type(entry) for entry in plain] == [type(entry) for entry in remat]


def test_the_callers_containers_stay_as_they_are():
    class Changes(Trunk):
        def forward(self, xs: List[Tensor], entries: Dict[str, Tensor]):
            y = self.b(torch.tanh(self.a(xs[0])) * entries["scale"])
            xs.append(y)
            entries["y"] = y
            return y

    torch.manual_seed(0)
    given = case(Changes(), [x()], {"scale": x()})
    remat = optimize(given.script, given.inputs).load()
    for _ in range(3):
        xs, entries = [given.inputs[0][0]], {"scale": given.inputs[1]["scale"]}
        y = remat(xs, entries)
        # TorchScript hands copies of Python's containers to the model: nothing shows outside.
        assert len(xs) == 1 and list(entries) == ["scale"]
        y.sum().backward()
    assert len(given.inputs[0]) == 1 and list(given.inputs[1]) == ["scale"]


def test_a_list_argument_that_the_model_writes():
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = mlp(16, 3), mlp(16, 3)

        def forward(self, x, held: List[Tensor]):
            h = self.a(x) * held[0]
            held[0] = h.exp()
            return self.b(held[0]).sin()

    given = case(Writes(), torch.randn(ROWS, 16), [torch.rand(ROWS, 16)])
    optimized = optimize(given.script, given.inputs)

    def forward(module, x, held):  # TorchScript writes into a copy of Python's list
        return module(x, list(held))

    with executor("plain"):
        train_alike(given.eager, optimized.load(), given.inputs, forward=forward, replays=optimized.changed)
