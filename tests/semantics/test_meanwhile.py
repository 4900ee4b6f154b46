"""Writes whose dtype or size isn't their target's, and what is written between forward and backward without a trace."""

from typing import List

import pytest
import torch
from cases import ROWS, case, mlp
from harness import assert_same, backward, executor, optimize, root_gradient, testing, train_alike, train_step
from torch import nn


class WritesNarrow(nn.Module):
    """Under autocast `h` is bfloat16 where what is written into it isn't."""

    def __init__(self, op: str):
        super().__init__()
        self.op = op
        self.a, self.b = nn.Linear(16, 16), mlp(16, 3)
        self.other = nn.Parameter(torch.rand(16) + 0.5)

    def forward(self, x):
        h = self.a(x) * 1.0
        if self.op == "add":
            h += self.other
        elif self.op == "sub":
            h -= self.other
        elif self.op == "mul":
            h *= self.other
        elif self.op == "div":
            h /= self.other
        elif self.op == "clamp_max":
            h.clamp_max_(self.other)
        else:
            h.clamp_(min=self.other - 1.0, max=self.other)
        h = torch.sin(h).exp().cos()
        return self.b(h)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "clamp_max", "clamp"])
@pytest.mark.parametrize("narrow", ["autocast", "double"])
def test_a_write_keeps_its_dtype_and_rounding(op, narrow):
    module = WritesNarrow(op)
    if narrow == "double":
        module.other.data = module.other.data.double()
    given = case(module, torch.randn(ROWS, 16), trace=True)  # without the branches
    optimized = optimize(given.script, given.inputs)
    assert optimized.changed or (op, narrow) == ("div", "double")  # there nothing is to be gained

    def forward(module, *inputs):
        with torch.autocast("cpu", torch.bfloat16, narrow == "autocast"):
            return module(*inputs)

    with executor("plain"):
        train_alike(given.eager, optimized.load(), given.inputs, forward=forward, replays=None)


def test_a_write_that_does_not_fit_is_refused_as_ever():
    class Adds(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(16, 16), mlp(16, 3)

        def forward(self, x, y):
            h = self.a(x) * 1.0
            h += y
            return self.b(torch.sin(h).exp())

    given = case(Adds(), torch.randn(ROWS, 16), torch.randn(ROWS, 16))
    remat = optimize(given.script, given.inputs).load()
    for module in (given.eager, remat):
        with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
            module(torch.randn(1, 16), torch.randn(ROWS, 16))


class Turns(nn.Module):
    dims: List[int]

    def __init__(self):
        super().__init__()
        self.a, self.b, self.dims = mlp(16, 2), mlp(16, 2), [0]

    def forward(self, x):
        h = torch.flip(self.a(x).sin(), self.dims).sin().exp().cos()
        return self.b(torch.flip(h, self.dims).sin().exp())

    @torch.jit.export
    def turn(self):
        self.dims[0] = 1 - self.dims[0]


def test_a_list_of_numbers_that_changes_before_the_backward():
    given = case(Turns(), torch.randn(ROWS, 16))
    remat = optimize(given.script, given.inputs).load()

    def turned(module):
        def run(y):
            module.turn()
            backward(y)

        return run

    with executor("plain"):
        for call in range(1, 5):
            expected = train_step(given.eager, given.inputs, call, run_backward=turned(given.eager))
            testing.replayed_nodes()
            actual = train_step(remat, given.inputs, call, run_backward=turned(remat))
            assert testing.replayed_nodes() > 0
            assert_same(expected, actual)


def test_an_inference_tensor_that_is_written_before_the_backward():
    class Adds(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(16, 16)

        def forward(self, x, bias):
            h = (self.a(x) + bias).sin()
            return (h + bias).exp().cos()

    given = case(Adds(), torch.randn(ROWS, 16), torch.randn(ROWS, 16))
    remat = optimize(given.script, given.inputs).load()
    x, bias = given.inputs
    gradients = []
    for module in (given.eager, remat):
        with torch.inference_mode():
            given_bias = bias.clone()
        y = module(x, given_bias)
        with torch.inference_mode():
            given_bias.add_(1.0)
        gradients.append(torch.autograd.grad(y, list(module.parameters()), root_gradient(y)))
    for expected, actual in zip(*gradients, strict=True):
        assert torch.equal(expected, actual)
