"""What else LibTorch and Python put around a model: function transforms, forward mode, hooks, DDP, other methods."""

from typing import Tuple

import pytest
import scenarios_a_to_e as scenarios
import scenarios_f_to_j as more
import torch
import torch.autograd.forward_ad as forward_ad
from cases import ROWS, case, mlp
from harness import backward, check, fresh, optimize, optimize_once, testing, train_alike, train_step
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

TRANSFORMS = {
    "grad": lambda m, x: torch.func.grad(lambda x: m(x).square().sum())(x),
    "vmap": lambda m, x: torch.func.vmap(m)(x),
    "vmap of grad": lambda m, x: torch.func.vmap(torch.func.grad(lambda x: m(x).square().sum()))(x),
    "jacrev": lambda m, x: torch.func.jacrev(lambda x: m(x).sum(0))(x),
    "jacfwd": lambda m, x: torch.func.jacfwd(lambda x: m(x).sum(0))(x),
    "hessian": lambda m, x: torch.func.hessian(lambda x: m(x).square().sum())(x[:2]),
    "vjp": lambda m, x: torch.func.vjp(m, x)[1](torch.ones_like(x))[0],
    "jvp": lambda m, x: torch.func.jvp(m, (x,), (torch.ones_like(x),))[1],
    "jvp of grad": lambda m, x: torch.func.jvp(
        torch.func.grad(lambda x: m(x).square().sum()), (x,), (torch.ones_like(x),)
    )[1],
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_function_transforms(transform):
    given = scenarios.d2()
    remat = optimize_once(scenarios.d2).load()
    x = given.inputs[0][:8]
    for _ in range(3):
        expected, actual = (TRANSFORMS[transform](module, x).detach() for module in (given.eager, remat))
        assert expected.abs().sum() > 0
        assert torch.allclose(expected, actual, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("over_reverse", [False, True])
def test_forward_mode(over_reverse):
    given = scenarios.d2()
    remat = optimize_once(scenarios.d2).load()
    tangents = []
    for module in (given.eager, remat):
        x = given.inputs[0].detach().clone().requires_grad_()
        with forward_ad.dual_level():
            y = module(forward_ad.make_dual(x, torch.ones_like(x)))
            if over_reverse:
                (y,) = torch.autograd.grad(y.square().sum(), x)
            tangents.append(forward_ad.unpack_dual(y).tangent)
    assert tangents[0].abs().sum() > 0
    assert torch.allclose(*tangents, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("budget", ["min", "midway"])
@pytest.mark.parametrize("build", [scenarios.d2, scenarios.a1, scenarios.b1, scenarios.e3, more.h1, more.j1])
def test_an_optimiser_inside_of_the_backward(build, budget):
    """Each weight is updated, and its gradient freed, as soon as that is there: later replays read older weights."""
    given = build()
    remat = optimize_once(build, budget).load()

    def step(p):
        with torch.no_grad():
            p.sub_(p.grad, alpha=1e-3)
        p.grad = None

    start = [p.detach().clone() for p in remat.parameters()]
    for module in (given.eager, remat):
        for p in module.parameters():
            p.register_post_accumulate_grad_hook(step)
    for call in range(4):
        for module in (given.eager, remat):
            torch.manual_seed(call)
            backward(module(*fresh(given.inputs)))
    for a, b, before in zip(given.eager.parameters(), remat.parameters(), start, strict=True):
        assert torch.equal(a, b) and not torch.equal(b, before)


def test_mutation_of_what_is_saved_allowed_by_a_mode():
    given = scenarios.d2()
    remat = optimize_once(scenarios.d2).load()
    gradients = []
    for module in (given.eager, remat):
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            x = given.inputs[0].detach().clone().requires_grad_()
            h = x * 2
            y = module(h)
            with torch.no_grad():
                h.zero_()
            y.square().sum().backward()
            gradients.append(x.grad)
    assert torch.equal(*gradients) and gradients[0].abs().sum() > 0


def nodes_of(output):
    names, waiting, seen = [], [output.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            names.append(node.name())
            waiting += [following for following, _ in node.next_functions]
    return sorted(names)


@pytest.mark.parametrize("build", [scenarios.d2, scenarios.b1, more.h1, more.j1])
def test_the_graph_has_the_nodes_of_the_originals(build):
    given = build()
    optimized = optimize_once(build)
    plain, remat = (nodes_of(module(*given.inputs)) for module in (optimized.plain(), optimized.load()))
    assert plain == remat and len(plain) > 20


def test_what_a_node_saved_may_be_looked_at():
    given = scenarios.d2()
    remat = optimize_once(scenarios.d2).load()
    expected, actual = (module(*given.inputs) for module in (given.eager, remat))
    testing.replayed_nodes()
    tanh, recomputed_tanh = expected.grad_fn, actual.grad_fn
    while tanh is not None:  # outside of a backward, as often as one likes
        assert torch.equal(tanh._saved_result, recomputed_tanh._saved_result)
        linear, recomputed_linear = tanh.next_functions[0][0], recomputed_tanh.next_functions[0][0]
        assert torch.equal(linear._saved_mat1, recomputed_linear._saved_mat1)
        tanh, recomputed_tanh = linear.next_functions[1][0], recomputed_linear.next_functions[1][0]
    assert testing.replayed_nodes() > 0
    backward(actual)


@pytest.mark.parametrize("build", [scenarios.a1, scenarios.b1, more.j1])
def test_distributed_data_parallel(build, tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        given = build()
        remat = optimize_once(build).load()
        parallel = [nn.parallel.DistributedDataParallel(module) for module in (given.eager, remat)]
        train_alike(*parallel, given.inputs)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("reentrant", [True, False])
def test_inside_of_torchs_own_checkpoint(reentrant):
    given = scenarios.a1()
    remat = optimize_once(scenarios.a1).load()

    def wrapped(module, x):
        # Early stop ends the recomputation by an exception, which does not pass TorchScript's interpreter.
        return checkpoint(module, x.requires_grad_(), use_reentrant=reentrant)

    def run_backward(outputs):
        with set_checkpoint_early_stop(False):
            backward(outputs)

    with set_checkpoint_early_stop(False):
        train_alike(given.eager, remat, given.inputs, forward=wrapped, run_backward=run_backward)


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = mlp(16, 4), nn.Linear(16, 16)

    def forward(self, x):
        return torch.tanh(self.b(self.a(x)))


def doubling(self, input: Tuple[Tensor], output: Tensor) -> Tensor:
    return output * 2.0


def shifting(self, input: Tuple[Tensor]) -> Tuple[Tensor]:
    return (input[0] + 1.0,)


def test_scripted_hooks_run_once():
    torch.manual_seed(0)
    model = Hooked()
    model.a.register_forward_hook(doubling)
    model.register_forward_pre_hook(shifting)
    model.register_forward_hook(doubling)
    check(case(model, torch.randn(ROWS, 16)))


class Methods(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = mlp(16, 4), mlp(16, 4)

    @torch.jit.export
    def encode(self, x):
        return torch.tanh(self.a(x))

    def forward(self, x):
        return self.b(self.encode(x))


def test_two_methods_optimised_one_after_the_other():
    torch.manual_seed(0)
    given = case(Methods(), torch.randn(ROWS, 16))

    def encode(module, x):
        return module.encode(x)

    one = optimize(given.script, given.inputs, method="encode").load()
    train_alike(given.eager, one, given.inputs, forward=encode)
    train_alike(given.eager, one, given.inputs, replays=None)
    both = optimize(one, given.inputs).load()
    given.eager.load_state_dict(both.state_dict())
    train_alike(given.eager, both, given.inputs, forward=encode)
    train_alike(given.eager, both, given.inputs)


def test_optimised_again_for_another_budget():
    given = scenarios.d2()
    midway = optimize_once(scenarios.d2, "midway")
    again = optimize(midway.load(), given.inputs)
    assert again.report["recomputed"] > midway.report["recomputed"]
    train_alike(given.eager, again.load(), given.inputs)


@torch.jit.script
class Box:
    def __init__(self, x: Tensor):
        self.x = x
        self.pushed = 0

    def push(self, y: Tensor):
        self.x = self.x * y
        self.pushed += 1


class UsesAClass(Methods):
    def forward(self, x):
        box = Box(self.a(x))
        box.push(torch.sigmoid(x))
        box.push(torch.cos(box.x))
        return self.b(box.x) * float(box.pushed)


def test_an_object_of_a_scripted_class():
    torch.manual_seed(0)
    check(case(UsesAClass(), torch.randn(ROWS, 16)))


def test_a_part_of_a_bigger_scripted_model():
    class Outer(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.out = inner, nn.Linear(8, 8)

        def forward(self, x):
            return self.out(self.inner(x))

    given = scenarios.d2()
    remat = optimize_once(scenarios.d2).load()
    torch.manual_seed(0)
    eager = Outer(given.eager)
    scripted = torch.jit.script(Outer(remat))
    scripted.load_state_dict(eager.state_dict())
    train_alike(eager, scripted, given.inputs)


def test_the_profiler_names_replays():
    given = scenarios.a1()
    remat = optimize_once(scenarios.a1).load()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        train_step(remat, given.inputs)
    names = [event.key for event in profile.key_averages()]
    assert any(name.startswith("remat::replay") for name in names), names
