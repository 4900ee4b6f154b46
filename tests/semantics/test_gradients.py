"""Where gradients enter and leave: frozen parameters, inputs with and without grad, no_grad, unused results."""

import gc
from typing import List, Tuple

import pytest
import scenarios_a_to_e as scenarios
import scenarios_f_to_j as more
import torch
import torch.nn.functional as F
from cases import ROWS, case, mlp, of
from harness import BUDGETS, EXECUTORS, backward, check, executor, optimize, optimize_once, testing, train_alike
from torch import Tensor, nn


@pytest.mark.parametrize("mode", EXECUTORS)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.filterwarnings("error::UserWarning")  # torch.utils.checkpoint warns here, and gives no gradients
def test_d1_the_input_needs_no_grad(budget, mode):
    given = scenarios.d1()
    check(given, budget, mode)
    assert sum(p.grad is not None for p in given.eager.parameters()) == 8


@pytest.mark.parametrize("budget", BUDGETS)
def test_d1_frozen_layers_get_no_gradients(budget):
    given = scenarios.d1(frozen=2)
    check(given, budget)
    assert [p.grad is None for p in given.eager.parameters()] == [True] * 4 + [False] * 4


def test_d1_frozen_layers_run_once():
    given = scenarios.d1(frozen=2)
    optimized = optimize(given.script, given.inputs)
    recomputed = [line for line in optimized.graph.splitlines() if "# recomputed" in line]
    assert recomputed
    for layer in range(4):  # Linear and GELU of both
        assert not any(line.strip().startswith(f"%m{layer} ") for line in recomputed)


@pytest.mark.parametrize("mode", EXECUTORS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_d2_parameters_that_a_region_captures(budget, mode):
    given = scenarios.d2()
    optimized = check(given, budget, mode, own_formulas=True)
    for layer in range(0, 12, 2):
        assert f'%m{layer}_weight : Tensor = prim::GetAttr[name="weight"](%self_m{layer})' in optimized.graph
    assert all(p.grad is not None for p in given.eager.parameters())


@pytest.mark.parametrize("mode", EXECUTORS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_d3_a_no_grad_block(budget, mode):
    given = scenarios.d3()
    optimized = check(given, budget, mode)
    remat = optimized.load()
    y = remat(*given.inputs)
    assert y.requires_grad
    y.sum().backward()
    assert remat.a.weight.grad is None and remat.b.weight.grad is not None
    lines = optimized.graph.splitlines()
    inside = False
    for line in lines:
        inside = (inside or "prim::Enter" in line) and "prim::Exit" not in line
        assert not (inside and ("# kept" in line or "# recomputed" in line)), line


def partly_frozen(which):
    layers = []
    for _ in range(4):
        layers += [nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU()]
    model = nn.Sequential(*layers)
    frozen = {
        "none": [],
        "first": model[:3].parameters(),
        "last": model[9:].parameters(),
        "odd": list(model.parameters())[1::2],
        "biases": [p for name, p in model.named_parameters() if name.endswith("bias")],
        "norms": [p for layer in model if isinstance(layer, nn.LayerNorm) for p in layer.parameters()],
    }[which]
    for p in frozen:
        p.requires_grad_(False)
    return model


@pytest.mark.parametrize("mode", ["plain", "optimising"])
@pytest.mark.parametrize("which", ["none", "first", "last", "odd", "biases", "norms"])
def test_frozen_parameters(which, mode):
    check(of(partly_frozen, which), mode=mode, own_formulas=True)


def test_frozen_and_thawed_after_loading():
    given = scenarios.d1()
    remat = optimize_once(scenarios.d1).load()
    for frozen in ([0, 1, 2, 3], [], [6, 7], range(8), [2]):
        for module in (given.eager, remat):
            for i, p in enumerate(module.parameters()):
                p.requires_grad_(i not in frozen)
        if len(frozen) == 8:
            assert not remat(*given.inputs).requires_grad
        else:
            train_alike(given.eager, remat, given.inputs, calls=2, replays=None)


@pytest.mark.parametrize("planned", [False, True])
def test_input_gradients_planned_with_and_without(planned):
    torch.manual_seed(0)
    x = torch.randn(ROWS, 16, requires_grad=planned)
    given = case(mlp(16, 4), x)
    remat = optimize(given.script, given.inputs).load()
    with_grad, without = (x.detach().requires_grad_(),), (x.detach(),)
    train_alike(given.eager, remat, lambda call: with_grad if call % 2 else without)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.left, self.right = mlp(16, 3), mlp(16, 2), mlp(16, 2)

    def forward(self, x):
        h = self.trunk(x)
        return self.left(h), self.right(h), h.detach().sum(), torch.argmax(h, 1)


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1), (1, 0)])
@pytest.mark.parametrize("mode", ["plain", "optimising"])
def test_results_that_get_no_gradient(used, mode):
    torch.manual_seed(0)
    given = case(Heads(), torch.randn(ROWS, 16))
    remat = optimize(given.script, given.inputs).load()

    def some(outputs):
        backward([outputs[i] for i in used])

    with executor(mode):
        train_alike(given.eager, remat, given.inputs, run_backward=some)
    assert (given.eager.left[0].weight.grad is None) == (0 not in used)


class Undefined(torch.autograd.Function):
    """Passes x on and sends back no gradient at all."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return None


def test_undefined_gradients_reach_a_region():
    torch.manual_seed(0)
    given = case(Heads(), torch.randn(ROWS, 16, requires_grad=True))
    remat = optimize(given.script, given.inputs).load()

    def forward(module, x):
        left, right, *_ = module(x)
        return left, Undefined.apply(right)

    train_alike(given.eager, remat, given.inputs, forward=forward)


def test_nothing_but_undefined_gradients():
    torch.manual_seed(0)
    given = case(mlp(16, 4), torch.randn(ROWS, 16, requires_grad=True))
    remat = optimize(given.script, given.inputs).load()
    train_alike(
        given.eager, remat, given.inputs, forward=lambda module, x: Undefined.apply(module(x)), replays=None
    )


class Grads(nn.Module):
    """Switches gradients off and on again in different ways."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind
        self.a, self.b = mlp(16, 3), mlp(16, 3)

    def forward(self, x):
        h = self.a(x)
        if self.kind == "detach":
            h = h.detach()
        elif self.kind == "no_grad":
            with torch.no_grad():
                h = h * torch.tanh(self.b(h))
        elif self.kind == "no_grad in the middle":
            with torch.no_grad():
                scale = torch.tanh(self.b(h)).mean()
            h = h * scale
        elif self.kind == "detached branch":
            h = h * torch.sigmoid(self.b(h).detach())
        elif self.kind == "stopped loss":
            h = h + (torch.round(h) - h).detach()  # straight through
        return self.b(h)


@pytest.mark.parametrize("mode", ["plain", "optimising"])
@pytest.mark.parametrize(
    "kind", ["detach", "no_grad", "no_grad in the middle", "detached branch", "stopped loss"]
)
def test_gradients_stopped_in_the_middle(kind, mode):
    check(of(Grads, kind), mode=mode, rewritten=None)


def test_called_with_gradients_off():
    given = scenarios.d2()
    remat = optimize_once(scenarios.d2).load()
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            remat(*given.inputs)
            gc.collect()
            before = testing.live_bytes()
            y = remat(*given.inputs)
            assert torch.equal(y, given.eager(*given.inputs)) and not y.requires_grad
            del y
            assert testing.live_bytes() == before
    train_alike(given.eager, remat, given.inputs)


def test_a_leaf_inside_of_no_grad_trains_afterwards():
    given = scenarios.d2()
    remat = optimize_once(scenarios.d2).load()
    with torch.no_grad():
        for _ in range(3):
            remat(*given.inputs)
    train_alike(given.eager, remat, given.inputs)


@pytest.mark.parametrize("mode", EXECUTORS)
def test_j1_a_shared_weight_is_ready_once(mode):
    given = more.j1()
    optimized = optimize_once(more.j1)
    remat = optimized.load()
    fired = {id(given.eager): 0, id(remat): 0}
    for module in (given.eager, remat):

        def count(_, key=id(module)):
            fired[key] += 1

        module.w.weight.register_post_accumulate_grad_hook(count)
    tolerance = 1e-5 if EXECUTORS[mode][0] else 0.0
    with executor(mode):
        train_alike(given.eager, remat, given.inputs, tolerance, calls=4)
    assert list(fired.values()) == [4, 4]


def test_tied_embedding_and_output_layer():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(40, 16)
            self.body = mlp(16, 4)
            self.out = nn.Linear(16, 40, bias=False)
            self.out.weight = self.table.weight

        def forward(self, index):
            return self.out(self.body(self.table(index)))

    torch.manual_seed(0)
    optimized = check(case(Tied(), torch.randint(40, (ROWS,))))
    remat = optimized.load()
    assert remat.out.weight.data_ptr() == remat.table.weight.data_ptr()


def test_sparse_embedding_gradients():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(40, 16, sparse=True)
            self.body = mlp(16, 4)

        def forward(self, index):
            return self.body(self.table(index))

    torch.manual_seed(0)
    given = case(Bag(), torch.randint(40, (ROWS,)))
    check(given)
    assert given.eager.table.weight.grad.is_sparse


def test_hooks_on_parameters_inputs_and_results():
    given = scenarios.d1()
    remat = optimize_once(scenarios.d1).load()
    for module in (given.eager, remat):
        for p in module.parameters():
            p.register_hook(lambda g: g * 2)

    def hooked(module, x):
        y = module(x)
        y.register_hook(lambda g: g + 1)
        return y

    train_alike(given.eager, remat, given.inputs, forward=hooked)


class Pieces(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(4)])

    def forward(self, x) -> Tuple[Tensor, List[Tensor]]:
        seen: List[Tensor] = []
        for layer in self.layers:
            x = F.gelu(layer(x))
            seen.append(x)
        return x, seen


@pytest.mark.parametrize("last", [True, False])
def test_every_layers_result_given_out(last):
    torch.manual_seed(0)
    given = case(Pieces(), torch.randn(ROWS, 16))
    optimized = optimize(given.script, given.inputs)
    train_alike(
        given.eager,
        optimized.load(),
        given.inputs,
        replays=None,
        run_backward=lambda outputs: backward(outputs[0] if last else outputs[1][:2]),
    )
