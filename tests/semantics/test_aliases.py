"""Writes that reach a value by another name: shared storages, containers, submodules used twice, arguments; and results
that are arguments, parameters or buffers."""

from typing import List

import pytest
import torch
from cases import ROWS, case, mlp, of
from harness import backward, check, optimize, train_alike
from torch import Tensor, nn


class Between(nn.Module):
    """Two bodies that recompute; subclasses write something between them."""

    def __init__(self):
        super().__init__()
        self.a, self.b = mlp(16, 3), mlp(16, 3)
        self.register_buffer("s", torch.ones(16))


class TwoBuffersOfOneStorage(Between):
    def __init__(self):
        super().__init__()
        both = torch.ones(32)
        self.register_buffer("u", both[:16])
        self.register_buffer("v", both[8:24])

    def forward(self, x):
        h = torch.sigmoid((self.a(x) + self.u).square())
        self.v.mul_(0.5)
        return self.b(h)


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(16, 16)
        self.register_buffer("s", torch.ones(16))

    def forward(self, x):
        y = torch.sigmoid((self.lin(x) + self.s).square())
        self.s.mul_(0.9)
        return y


class OneSubmoduleTwice(Between):
    def __init__(self):
        super().__init__()
        self.p = Stateful()
        self.q = self.p

    def forward(self, x):
        return self.b(self.q(self.p(x)))


class AListOfBuffers(Between):
    def forward(self, x):
        tensors = [self.s, self.s.clone()]
        h = torch.sigmoid((self.a(x) + tensors[0]).square())
        for t in tensors:
            t.mul_(0.5)
        return self.b(h)


class AnEntryOfADict(Between):
    def forward(self, x):
        d = {"h": self.a(x)}
        g = torch.cos(d["h"].detach())
        d["h"].add_(1.0)
        return self.b(torch.sigmoid(d["h"]) * g)


class AParameterDetached(Between):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(16))

    def forward(self, x):
        h = self.a(x) + self.w
        y = torch.sigmoid(h * h) + self.w
        self.w.detach().mul_(0.999)
        return self.b(y)


class ATeacherThatFollows(Between):
    def __init__(self):
        super().__init__()
        self.student, self.teacher = nn.Linear(16, 16), nn.Linear(16, 16)
        for p in self.teacher.parameters():
            p.requires_grad_(False)

    def forward(self, x):
        t = torch.sigmoid(self.teacher(x).square())
        with torch.no_grad():
            self.teacher.weight.mul_(0.9).add_(self.student.weight * 0.1)
        return self.b(torch.tanh(self.student(x)) * t)


class StatisticsReadAfterTheNorm(Between):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x):
        h = self.norm(self.a(x))
        mean = self.norm.running_mean
        assert mean is not None
        h = torch.sigmoid((h + mean).square())
        return self.b(self.norm(h))


class APartByStrides(Between):
    def forward(self, x):
        h = self.a(x)
        torch.as_strided(h, [8, 8], [16, 1]).sigmoid_()
        return self.b(torch.tanh(h))


class OneHalfIntoTheOther(Between):
    def forward(self, x):
        h = self.a(x)
        left, right = h[:, :8], h[:, 8:]
        right.copy_(torch.sigmoid(left))
        return self.b(torch.tanh(h))


class SlicesInALoop(Between):
    def forward(self, x):
        h = self.a(x)
        out = torch.zeros_like(h)
        for i in range(4):
            out[:, 4 * i : 4 * i + 4] = torch.sigmoid(h[:, 4 * i : 4 * i + 4]) * float(i + 1)
        return self.b(out)


class AResultAfterItsLastUse(Between):
    def forward(self, x):
        h = self.a(x)
        y = self.b(torch.cos(h + 1.0))
        h.add_(1.0)
        return y, h


class AResultThroughADetachedAlias(Between):
    def forward(self, x):
        h = self.a(x) + 1.0
        y = self.b(torch.sigmoid(h + 1.0))
        d = h.detach()
        d.zero_()
        return y, d


class AnAttributeSetAnew(Between):
    def forward(self, x):
        h = torch.tanh(self.a(x) + self.s)
        self.s = self.s * 0.5
        return self.b(torch.sigmoid(h + self.s))


class AForkedBranch(Between):
    def forward(self, x):
        future = torch.jit.fork(self.a, x)
        y = self.b(x)
        return self.b(torch.jit.wait(future) + y)


WRITES = [
    TwoBuffersOfOneStorage,
    OneSubmoduleTwice,
    AListOfBuffers,
    AnEntryOfADict,
    AParameterDetached,
    ATeacherThatFollows,
    StatisticsReadAfterTheNorm,
    APartByStrides,
    OneHalfIntoTheOther,
    SlicesInALoop,
    AResultAfterItsLastUse,
    AResultThroughADetachedAlias,
    AnAttributeSetAnew,
]


@pytest.mark.parametrize("mode", ["plain", "optimising"])
@pytest.mark.parametrize("model", WRITES)
def test_what_is_written_by_another_name(model, mode):
    check(of(model), mode=mode, own_formulas=True)


def test_a_forked_branch():
    torch.manual_seed(0)
    # How much lives at once is up to the threads, and with it whether there is something to gain.
    optimized = check(case(AForkedBranch(), torch.randn(ROWS, 16)), rewritten=None)
    assert optimized.reasons("prim::fork") == {"unknown-op"}


class WritesAnArgumentLate(Between):
    def forward(self, x, y, more: List[Tensor]):
        h = torch.sigmoid((self.a(x) + y + more[0]).square())
        y[0].zero_()
        more[0].mul_(0.5)
        return self.b(h)


def test_arguments_written_after_they_were_read():
    torch.manual_seed(0)
    x, y, z = (torch.randn(ROWS, 16) for _ in range(3))
    optimized = check(case(WritesAnArgumentLate(), x, y, [z]))
    assert "read-after-write" in optimized.reasons()


class GivesOutEverything(Between):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(16))

    def forward(self, x):
        h = torch.tanh(self.a(x) + self.s)
        return x, self.w, self.b(h), h, h, self.s, h.detach()


@pytest.mark.parametrize("grad", [True, False])
def test_results_that_are_arguments_parameters_and_buffers(grad):
    torch.manual_seed(0)
    check(case(GivesOutEverything(), torch.randn(ROWS, 16, requires_grad=grad)))


LAYOUTS = {
    "transposed": lambda: torch.randn(16, ROWS).t(),
    "expanded": lambda: torch.randn(1, 16).expand(ROWS, 16),
    "every other column": lambda: torch.randn(ROWS, 32)[:, ::2],
    "negative view": lambda: torch._neg_view(torch.randn(ROWS, 16)),
    "overlapping rows": lambda: torch.randn(ROWS + 15).unfold(0, 16, 1),
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_arguments_of_unusual_layout(layout, grad):
    torch.manual_seed(0)
    given = case(nn.Sequential(nn.Linear(16, 16), mlp(16, 4)), torch.randn(ROWS, 16, requires_grad=grad))
    remat = optimize(given.script, given.inputs).load()
    x = LAYOUTS[layout]()

    def as_it_is(module, leaf):
        # Autograd sees a leaf with the strides of `x`, or its view.
        return module(x) if not grad else module(torch.empty_strided((ROWS, 16), x.stride()).copy_(leaf) + leaf * 0)

    if layout in ("expanded", "overlapping rows") and grad:
        results = []
        for module in (given.eager, remat):
            leaf = x.detach().requires_grad_()
            module.zero_grad()
            backward(module(leaf))
            results.append([leaf.grad, *[p.grad for p in module.parameters()]])
        for a, b in zip(*results, strict=True):
            assert torch.equal(a, b)
    else:
        train_alike(given.eager, remat, given.inputs, forward=as_it_is)
