"""Unusual backward calls: twice, in parts, by autograd.grad, from other threads, after errors; hooks; anomalies."""

import gc
import threading

import pytest
import scenarios_a_to_e as scenarios
import scenarios_f_to_j as more
import torch
from cases import ROWS, case, mlp
from harness import (
    BUDGETS,
    EXECUTORS,
    OWN_FORMULAS,
    assert_same,
    backward,
    executor,
    optimize,
    optimize_once,
    same_bits,
    testing,
    train_alike,
    train_step,
)
from torch import nn


def tolerance_of(mode):
    return OWN_FORMULAS if EXECUTORS[mode][0] else 0.0


@pytest.mark.parametrize("mode", EXECUTORS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_h1_column_by_column_with_retain_graph(budget, mode):
    given = more.h1()
    remat = optimize_once(more.h1, budget).load()

    def columns(y):
        y[:, 0].sum().backward(retain_graph=True)
        y[:, 1].sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            y[:, 0].sum().backward()

    with executor(mode):
        train_alike(given.eager, remat, given.inputs, tolerance_of(mode), run_backward=columns)
        twice = train_step(remat, given.inputs, run_backward=columns)
        once = train_step(remat, given.inputs, run_backward=lambda y: y.sum().backward())
    for name, tensor in once.items():
        assert tensor is None or torch.allclose(tensor, twice[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", EXECUTORS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_h2_forces_touch_no_parameter(budget, mode):
    given = more.h2()
    remat = optimize_once(more.h2, budget).load()
    with executor(mode):
        for _ in range(4):
            forces, inputs_only = [], []
            for module in (given.eager, remat):
                x = given.inputs[0].detach().clone().requires_grad_()
                forces.append(*torch.autograd.grad(module(x).sum(), x))
                module(x).sum().backward(inputs=[x])
                inputs_only.append(x.grad)
                assert all(p.grad is None for p in module.parameters())
            for pair in (forces, inputs_only):
                assert_same({"forces": pair[0]}, {"forces": pair[1]}, tolerance_of(mode))
    assert testing.replayed_nodes() > 0


def test_forces_trained_on():
    """Energies and forces in one loss: second derivatives of the parameters."""
    given = more.h2()
    remat = optimize_once(more.h2).load()

    def energy_and_forces(module, x):
        energy = module(x).sum()
        (forces,) = torch.autograd.grad(energy, x, create_graph=True)
        return energy, forces

    train_alike(given.eager, remat, given.inputs, forward=energy_and_forces)


@pytest.mark.parametrize("build", [scenarios.a1, scenarios.b1, scenarios.d1, more.h1, more.j1])
def test_second_derivatives(build):
    given = build()
    remat = optimize(given.script, given.inputs).load()

    def twice(module, x):
        x = x.requires_grad_()
        y = module(x)
        leaves = [x, *module.parameters()]
        first = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
        return (sum(g.square().sum() for g in first),)

    train_alike(given.eager, remat, given.inputs, calls=2, forward=twice)


def test_third_derivatives():
    given = case(nn.Sequential(nn.Linear(4, 16), mlp(16, 3, nn.Tanh), nn.Linear(16, 1)), torch.randn(ROWS, 4))
    remat = optimize(given.script, given.inputs).load()

    def thrice(module, x):
        x = x.requires_grad_()
        y = module(x).sum()
        for _ in range(2):
            (gradient,) = torch.autograd.grad(y, x, create_graph=True)
            y = gradient.square().sum()
        return (y,)

    train_alike(given.eager, remat, given.inputs, calls=2, forward=thrice)


@pytest.mark.parametrize("times", [2, 5])
def test_gradients_accumulate_over_several_forwards(times):
    given = scenarios.a1()
    remat = optimize_once(scenarios.a1).load()

    def several(module, x):
        outputs = []
        for i in range(times):
            y = module(x + i)
            y.square().sum().backward()
            outputs.append(y)
        return outputs

    train_alike(given.eager, remat, given.inputs, forward=several, run_backward=lambda outputs: None)


def test_several_forwards_before_one_backward():
    given = scenarios.a1()
    remat = optimize_once(scenarios.a1).load()
    train_alike(given.eager, remat, given.inputs, forward=lambda module, x: module(module(x) + module(x * 2)))


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.left, self.right = mlp(16, 4), mlp(16, 2), mlp(16, 2)

    def forward(self, x):
        h = self.trunk(x)
        return self.left(h), self.right(h)


def branches():
    torch.manual_seed(0)
    given = case(Branches(), torch.randn(ROWS, 16))
    return given, optimize(given.script, given.inputs).load()


@pytest.mark.parametrize("retain", [True, False])
def test_partial_inputs(retain):
    given, remat = branches()

    def partial(module):
        chosen = [p for name, p in module.named_parameters() if name in ("trunk.2.weight", "left.0.bias")]

        def run(outputs):
            left, right = outputs
            left.sum().backward(inputs=chosen, retain_graph=retain)
            if retain:
                right.sum().backward()

        return run

    for call in range(1, 5):
        steps = [train_step(m, given.inputs, call, run_backward=partial(m)) for m in (given.eager, remat)]
        assert_same(*steps)
    assert testing.replayed_nodes() > 0


def test_a_partial_backward_then_the_whole():
    given, remat = branches()

    def run(outputs):
        left, right = outputs
        left.sum().backward(retain_graph=True)
        (left + right).square().sum().backward(retain_graph=True)
        right.sum().backward()

    train_alike(given.eager, remat, given.inputs, run_backward=run)


def test_allow_unused_and_undefined():
    given, remat = branches()
    results = []
    for module in (given.eager, remat):
        left, _ = module(*given.inputs)
        leaves = [getattr(part, "0").weight for part in (module.right, module.trunk)]
        results.append(torch.autograd.grad(left.sum(), leaves, allow_unused=True))
    assert results[0][0] is None and results[1][0] is None
    assert torch.equal(results[0][1], results[1][1])


def test_vector_jacobian_products_in_a_batch():
    """is_grads_batched puts vmap around the backward, which a replay has to bear."""
    given = case(mlp(8, 4), torch.randn(32, 8))
    remat = optimize(given.script, given.inputs).load()
    vectors = torch.randn(5, 32, 8)
    results = []
    for module in (given.eager, remat):
        leaves = list(module.parameters())
        results.append(torch.autograd.grad(module(*given.inputs), leaves, vectors, is_grads_batched=True))
    for a, b in zip(*results, strict=True):
        assert a.shape[0] == 5 and torch.allclose(a, b, atol=1e-6)


def test_jacobian_and_hessian():
    given = case(nn.Sequential(mlp(8, 4), nn.Linear(8, 1)), torch.randn(16, 8))
    remat = optimize(given.script, given.inputs).load()
    x = given.inputs[0]
    for function in (torch.autograd.functional.jacobian, torch.autograd.functional.hessian):
        expected, actual = (function(lambda x, m=module: m(x).sum(), x) for module in (given.eager, remat))
        assert same_bits(expected, actual)
    assert testing.replayed_nodes() > 0


def test_gradcheck():
    given = case(nn.Sequential(nn.Linear(3, 4), mlp(4, 3, nn.Tanh)), torch.randn(64, 3))
    remat = optimize(given.script, given.inputs).load().double()
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(remat, (x,))
    assert torch.autograd.gradgradcheck(remat, (x,))


def in_thread(function):
    errors = []

    def guarded():
        try:
            function()
        except BaseException as error:  # pytest sees only its own thread's
            errors.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def test_backward_in_another_thread():
    given = scenarios.a1()
    remat = optimize_once(scenarios.a1).load()
    train_alike(given.eager, remat, given.inputs, run_backward=lambda y: in_thread(lambda: backward(y)))


def test_forward_in_another_thread():
    given = scenarios.a1()
    remat = optimize_once(scenarios.a1).load()

    def elsewhere(module, x):
        found = []
        in_thread(lambda: found.append(module(x)))
        return found[0]

    train_alike(given.eager, remat, given.inputs, forward=elsewhere)


def test_a_backward_inside_of_a_backward():
    given, remat = branches()

    def nested(module, x):
        left, right = module(x)

        def run_other(gradient):
            with torch.enable_grad():
                right.square().sum().backward(retain_graph=True)
            return gradient

        left.register_hook(run_other)
        return left

    train_alike(given.eager, remat, given.inputs, forward=nested)


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = mlp(16, 2), mlp(16, 2)

    def forward(self, x):
        h = torch.ops.semantics.failing(self.a(x))
        return self.b(torch.sigmoid(h) * 2.0)


@pytest.mark.parametrize("retain", [True, False])
def test_an_exception_in_the_middle_of_a_replay(retain):
    torch.manual_seed(0)
    given = case(Fails(), torch.randn(ROWS, 16))
    optimized = optimize(given.script, given.inputs, allow_ops=["semantics::failing"])
    remat = optimized.load()
    assert "semantics::failing" in optimized.recomputed_ops()
    for call in range(3):
        y = remat(*given.inputs)
        torch.ops.semantics.fail_in(0)
        with pytest.raises(RuntimeError, match="this call fails on demand"):
            y.sum().backward(retain_graph=retain)
        if retain:  # the same graph, once more
            remat.zero_grad(set_to_none=True)
            y.sum().backward()
            expected = train_step(given.eager, given.inputs, run_backward=lambda y: y.sum().backward())
            for name, p in remat.named_parameters():
                assert torch.equal(p.grad, expected[f"grad {name}"]), name
        del y
        train_alike(given.eager, remat, given.inputs, calls=1)


def test_an_exception_in_the_forward():
    torch.manual_seed(0)
    given = case(Fails(), torch.randn(ROWS, 16))
    remat = optimize(given.script, given.inputs, allow_ops=["semantics::failing"]).load()
    remat(*given.inputs)
    gc.collect()
    before = testing.live_bytes()
    torch.ops.semantics.fail_in(0)
    with pytest.raises(RuntimeError, match="this call fails on demand"):
        remat(*given.inputs)
    assert testing.live_bytes() == before
    train_alike(given.eager, remat, given.inputs)


@pytest.mark.parametrize("build", [scenarios.a1, scenarios.b1, more.j1])
@pytest.mark.parametrize("kind", ["identity", "copy", "save_on_cpu", "pinned"])
def test_saved_tensors_hooks_of_the_caller(build, kind):
    if kind == "pinned" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device to pin memory")
    given = build()
    remat = optimize(given.script, given.inputs).load()
    packed = []

    def hooks():
        if kind in ("save_on_cpu", "pinned"):
            packed.append(1)
            return torch.autograd.graph.save_on_cpu(pin_memory=kind == "pinned")

        def pack(tensor):
            packed.append(tensor.nbytes)
            return tensor if kind == "identity" else tensor.clone()

        return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)

    def hooked(module, x):
        with hooks():
            return module(x)

    train_alike(given.eager, remat, given.inputs, forward=hooked)
    assert packed


def test_saved_tensors_hooks_see_less_than_of_the_original():
    given = scenarios.d1()
    remat = optimize_once(scenarios.d1).load()
    seen = {}
    for name, module in (("eager", given.eager), ("remat", remat)):
        sizes = {}

        def pack(tensor, sizes=sizes):
            if not isinstance(tensor, nn.Parameter):
                sizes[tensor.data_ptr()] = tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            y = module(*given.inputs)
        seen[name] = sum(sizes.values())
        backward(y)
    assert seen["remat"] < seen["eager"]


@pytest.mark.parametrize("check_nan", [True, False])
def test_anomaly_mode(check_nan):
    given = scenarios.a1()
    remat = optimize_once(scenarios.a1).load()
    with torch.autograd.set_detect_anomaly(True, check_nan):
        train_alike(given.eager, remat, given.inputs)


def test_anomaly_mode_names_what_went_wrong():
    class Roots(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp(16, 4)

        def forward(self, x):
            return self.body(torch.where(x > 0, torch.sqrt(x), torch.zeros_like(x)))

    torch.manual_seed(0)
    given = case(Roots(), torch.randn(ROWS, 16, requires_grad=True))
    remat = optimize(given.script, given.inputs).load()
    for module in (given.eager, remat):
        x = given.inputs[0].detach().requires_grad_()  # zero times the derivative of a root of less than zero
        with torch.autograd.set_detect_anomaly(True), pytest.warns(UserWarning):
            with pytest.raises(RuntimeError, match="SqrtBackward0' returned nan"):
                module(x).sum().backward()
    train_alike(given.eager, remat, (given.inputs[0].detach().abs(),), calls=1)
