"""Forwards and backwards from several threads: TorchScript runs without Python's lock."""

import threading

import pytest
import scenarios_a_to_e as scenarios
import scenarios_f_to_j as more
import torch
from harness import OWN_FORMULAS, assert_same, executor, optimize, optimize_once, testing, train_alike, train_step


def in_threads(functions):
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:  # pytest sees only its own thread's
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("mode", ["plain", "optimising"])
@pytest.mark.parametrize("shared", [True, False])
def test_i9_four_threads_fifty_steps(shared, mode):
    given = more.i9()
    optimized = optimize_once(more.i9)
    one = optimized.load()
    masks = set()

    def work(module):
        for _ in range(50):
            x = torch.ones(8, 32, requires_grad=True)
            y = module(x)
            (gradient,) = torch.autograd.grad(y.sum(), x)
            assert torch.equal(gradient == 0, y == 0)
            masks.add(tuple((y != 0).flatten().tolist()))

    with executor(mode):
        in_threads([lambda m=one if shared else optimized.load(): work(m) for _ in range(4)])
        assert len(masks) == 200, "two forwards drew the same numbers"
        assert testing.replayed_nodes() > 0
        train_alike(given.eager, one, given.inputs, OWN_FORMULAS)


def test_i9_other_draws_in_between_leave_one_stream():
    """What threads draw at the same time is what one after the other would have drawn: no number twice."""
    given = more.i9()
    remat = optimize_once(more.i9).load()
    drawn = []

    def draw():
        for _ in range(200):
            drawn.append(tuple(torch.rand(4).tolist()))

    def train():
        for _ in range(50):
            x = torch.ones(8, 32, requires_grad=True)
            y = remat(x)
            y.sum().backward()
            assert torch.equal(x.grad == 0, y == 0)

    torch.manual_seed(0)
    in_threads([draw, train, train])
    assert len(set(drawn)) == len(drawn)


def test_gradients_of_threads_that_share_parameters():
    given = scenarios.d2()
    remat = optimize_once(scenarios.d2).load()
    leaves = list(remat.parameters())
    expected = torch.autograd.grad(given.eager(*given.inputs).sum(), list(given.eager.parameters()))

    def work():
        for _ in range(20):
            for a, b in zip(expected, torch.autograd.grad(remat(*given.inputs).sum(), leaves), strict=True):
                assert torch.equal(a, b)

    in_threads([work] * 4)


def test_the_first_call_of_a_module_in_several_threads():
    given = scenarios.d1()
    optimized = optimize_once(scenarios.d1)
    expected = given.eager(*given.inputs)
    for _ in range(5):
        fresh = optimized.load()
        barrier = threading.Barrier(4)

        def work(module=fresh, barrier=barrier):
            barrier.wait()
            y = module(*given.inputs)
            assert torch.equal(y, expected)
            torch.autograd.grad(y.sum(), list(module.parameters()))

        in_threads([work] * 4)


def test_optimising_while_another_thread_trains():
    given = scenarios.d2()
    remat = optimize_once(scenarios.d2).load()
    expected = train_step(given.eager, given.inputs)
    done = threading.Event()

    def train():
        while not done.is_set():
            gradients = torch.autograd.grad(remat(*given.inputs).sum(), list(remat.parameters()))
            assert all(g.isfinite().all() for g in gradients)

    def plan():
        try:
            other = scenarios.a1()
            assert optimize(other.script, other.inputs).report["peak_bytes"]["original"] > 0
        finally:
            done.set()

    in_threads([train, plan])
    assert_same(expected, train_step(remat, given.inputs))


@pytest.mark.parametrize("grad", [True, False])
def test_gradient_mode_is_that_of_the_thread(grad):
    given = scenarios.a1()
    remat = optimize_once(scenarios.a1).load()
    seen = []

    def other():
        with torch.set_grad_enabled(grad):
            seen.append(remat(*given.inputs).requires_grad)

    with torch.set_grad_enabled(not grad):
        in_threads([other])
        assert remat(*given.inputs).requires_grad is not grad
    assert seen == [grad]
