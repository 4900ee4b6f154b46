"""In-place writes and aliases: inside a region, after it, outside of it, through views and detached aliases."""

import pytest
import scenarios_a_to_e as scenarios
import torch
import torch.nn.functional as F
from cases import ROWS, case, mlp, of
from harness import BUDGETS, EXECUTORS, backward, check, executor, optimize, optimize_once, testing, train_alike
from torch import nn


@pytest.mark.parametrize("mode", EXECUTORS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_c2_an_in_place_add_is_applied_once(budget, mode):
    check(scenarios.c2, budget, mode, rewritten=None)


@pytest.mark.parametrize("mode", EXECUTORS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_c3_a_buffer_written_after_it_was_read(budget, mode):
    optimized = check(scenarios.c3, budget, mode, own_formulas=True, rewritten=None)
    assert optimized.reasons("aten::clone") == {"read-after-write"}


@pytest.mark.parametrize("mode", EXECUTORS)
def test_c4_an_append_in_an_if(mode):
    given = scenarios.c4()
    remat = optimize_once(scenarios.c4).load()
    ones, minus = (torch.ones(ROWS, 4),), (-torch.ones(ROWS, 4),)
    with executor(mode):
        train_alike(given.eager, remat, lambda call: ones if call % 2 else minus, calls=6)
        assert remat(*ones).shape == (2 * ROWS, 4)
        assert remat(*minus).shape == (ROWS, 4)


class Writes(nn.Module):
    """A write of one kind between two bodies; what is written was made inside, or came from outside."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind
        self.a, self.b = mlp(16, 2), mlp(16, 2)
        self.lin = nn.Linear(16, 16)
        self.register_buffer("state", torch.randn(16))

    def forward(self, x):
        h = self.lin(self.a(x))
        if self.kind == "relu_":
            h = h.relu_()
        elif self.kind == "twice":
            h.add_(x).mul_(0.5)
        elif self.kind == "view":
            h.view(-1).add_(1.0)
        elif self.kind == "transpose":
            h.t().mul_(0.5)
        elif self.kind == "row":
            h[3] = h[4] * 2.0
        elif self.kind == "column":
            h[:, 1].mul_(3.0)
        elif self.kind == "mask":
            h.masked_fill_(h < 0, 0.1)
        elif self.kind == "detached":
            h.detach().mul_(0.5)
        elif self.kind == "detached view":
            h.detach()[:, 2].zero_()
        elif self.kind == "data":
            h.data.add_(0.25)
        elif self.kind == "index_add_":
            h.index_add_(0, torch.arange(4), x[:4])
        elif self.kind == "scatter_":
            h.scatter_(1, torch.zeros(h.size(0), 1, dtype=torch.long), 0.5)
        elif self.kind == "copy_":
            h.copy_(torch.tanh(x))
        elif self.kind == "out":
            h = h + torch.mul(x, 2.0, out=torch.empty_like(x))
        elif self.kind == "chunk":
            first, second = h.chunk(2, 1)
            h = torch.cat([first.mul(2.0), second.sigmoid()], 1)
        elif self.kind == "rows in a loop":
            for i in range(4):
                h.select(0, i).mul_(0.5)
        elif self.kind == "buffer before":
            self.state.add_(h.detach().mean(0))
            h = h + self.state
        elif self.kind == "buffer after":
            # Autograd saves nothing of the buffer, a replay reads it.
            g = torch.exp(-(h + self.state).square())
            self.state.mul_(0.5)
            h = g * 1.5
        elif self.kind == "buffer between":
            g = torch.sigmoid(h + self.state)
            self.state.add_(1.0)
            h = g - self.state
        elif self.kind == "buffer view":
            g = torch.exp(-(h + self.state.view(1, 16)).square())
            self.state[3:7].zero_()
            h = g * 1.5
        elif self.kind == "swap":
            kept = h[:8].clone()
            h[:8] = h[8:16]
            h[8:16] = kept
        return self.b(h)


WRITES = [
    "relu_",
    "twice",
    "view",
    "transpose",
    "row",
    "column",
    "mask",
    "detached",
    "detached view",
    "data",
    "index_add_",
    "scatter_",
    "copy_",
    "out",
    "chunk",
    "rows in a loop",
    "buffer before",
    "buffer after",
    "buffer between",
    "buffer view",
    "swap",
]


@pytest.mark.parametrize("mode", ["plain", "optimising"])
@pytest.mark.parametrize("kind", WRITES)
def test_every_kind_of_write(kind, mode):
    check(of(Writes, kind), mode=mode, own_formulas=True)


class WritesItsInput(nn.Module):
    def __init__(self, late: bool):
        super().__init__()
        self.late = late
        self.body = mlp(16, 3)

    def forward(self, x):
        if self.late:
            y = self.body(torch.cos(x))
            x.mul_(0.5)
            return y
        x.mul_(0.5)
        return self.body(torch.cos(x))


@pytest.mark.parametrize("late", [False, True])
def test_an_argument_that_the_model_writes(late):
    # The input needs no grad: after the write autograd asks for none of its old bytes.
    torch.manual_seed(0)
    check(case(WritesItsInput(late), torch.randn(ROWS, 16)))


class Outputs(nn.Module):
    """Gives out a value from the middle, as it is or as an alias, beside the result."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind
        self.a, self.b = mlp(16, 3), mlp(16, 3)

    def forward(self, x):
        h = self.a(x)
        y = self.b(torch.tanh(h))
        if self.kind == "value":
            return y, h
        if self.kind == "view":
            return y, h.view(-1)
        if self.kind == "slice":
            return y, h[3:9]
        if self.kind == "detached":
            return y, h.detach()
        return y, h.t().detach()[2]


ALIASES = ["value", "view", "slice", "detached", "detached view"]


@pytest.mark.parametrize("kind", ALIASES)
def test_values_from_the_middle_given_out(kind):
    torch.manual_seed(0)
    check(case(Outputs(kind), torch.randn(ROWS, 16)))


@pytest.mark.parametrize("kind", ALIASES)
def test_a_given_out_value_written_before_the_backward(kind):
    """Either the write does no harm, and everything is right, or it is an error as in plain autograd."""
    torch.manual_seed(0)
    given = case(Outputs(kind), torch.randn(ROWS, 16))
    remat = optimize(given.script, given.inputs).load()

    def writing(module):
        module.zero_grad(set_to_none=True)
        y, alias = module(*given.inputs)
        with torch.no_grad():
            alias.add_(100.0)
        try:
            backward(y)
        except RuntimeError as error:
            assert "inplace operation" in str(error) or "written in place" in str(error)
            return None
        return [p.grad.clone() for p in module.parameters()]

    for _ in range(3):
        expected, actual = writing(given.eager), writing(remat)
        if actual is not None:
            assert expected is not None, "plain autograd notices the write"
            for a, b in zip(expected, actual, strict=True):
                assert torch.equal(a, b)
        train_alike(given.eager, remat, given.inputs, calls=1)


@pytest.mark.parametrize("what", ["parameter", "input", "buffer"])
def test_written_between_forward_and_backward(what):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp(16, 4)
            self.register_buffer("scale", torch.randn(16))

        def forward(self, x):
            return self.body(x * x * self.scale).square()

    torch.manual_seed(0)
    given = case(Scaled(), torch.randn(ROWS, 16, requires_grad=True))
    remat = optimize(given.script, given.inputs).load()
    for module in (given.eager, remat):
        x = given.inputs[0].detach().clone().requires_grad_()
        y = module(x)
        written = {"parameter": next(module.parameters()), "input": x, "buffer": module.scale}[what]
        with torch.no_grad():
            written.add_(1.0)
        with pytest.raises(RuntimeError, match="inplace operation|written in place"):
            y.sum().backward()
        with torch.no_grad():
            written.sub_(1.0)
    given.eager.load_state_dict(remat.state_dict())
    train_alike(given.eager, remat, given.inputs)


def test_an_input_that_is_a_view_of_a_parameter():
    class Tail(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp(16, 4)

        def forward(self, w):
            return self.body(torch.tanh(w))

    torch.manual_seed(0)
    given = case(Tail(), torch.randn(ROWS, 16))
    remat = optimize(given.script, given.inputs).load()
    table = nn.Parameter(torch.randn(2, ROWS, 16))
    for _ in range(4):
        grads = []
        for module in (given.eager, remat):
            table.grad = None
            backward(module(table[1]))
            grads.append(table.grad)
        assert torch.equal(*grads) and grads[0].abs().sum() > 0
    assert testing.replayed_nodes() > 0


def test_two_inputs_that_share_bytes():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp(16, 3)

        def forward(self, x, y):
            return self.body(torch.sigmoid(x) * torch.cos(y))

    torch.manual_seed(0)
    given = case(Two(), torch.randn(ROWS, 16), torch.randn(ROWS, 16))
    remat = optimize(given.script, given.inputs).load()

    def same_twice(module, x, _):
        return module(x, x)

    def overlapping(module, x, _):
        big = torch.cat([x, x])
        return module(big[:ROWS], big[7 : ROWS + 7])

    for forward in (same_twice, overlapping):
        train_alike(given.eager, remat, (given.inputs[0].requires_grad_(), given.inputs[1]), forward=forward)


def test_the_output_updated_in_place_by_the_caller():
    torch.manual_seed(0)
    given = case(mlp(16, 4), torch.randn(ROWS, 16))
    remat = optimize(given.script, given.inputs).load()

    def adding(module, x):
        y = module(x)
        y += x  # the last gelu saved its input, not its result: allowed
        return y

    train_alike(given.eager, remat, given.inputs, forward=adding)


def test_relu_of_a_residual_sum_written_in_place():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(6)])

        def forward(self, x):
            for layer in self.layers:
                y = layer(x)
                y += x
                x = F.relu(y, inplace=True)
            return x

    torch.manual_seed(0)
    check(case(Residual(), torch.randn(ROWS, 16)))
