"""The scenarios about randomness, hidden state, writes, where gradients enter and leave, containers."""

from typing import Dict, Optional

import torch
import torch.nn.functional as F
from cases import ROWS, case, mlp, seeded
from torch import Tensor, nn


@seeded
def a1():
    """Dropout between two Linears."""
    return case(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 16)), torch.randn(ROWS, 16))


class ThreeDropouts(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Parameter(torch.rand(64) + 0.5)
        self.w2 = nn.Parameter(torch.rand(64) + 0.5)
        self.w3 = nn.Parameter(torch.rand(64) + 0.5)

    def forward(self, x):
        x = F.dropout(x * self.w1, 0.5, self.training)
        x = F.dropout(x * self.w2, 0.5, self.training)
        return F.dropout(x * self.w3, 0.5, self.training)


@seeded
def a2():
    """The mask shows in the output and in x.grad, at every budget."""
    return case(ThreeDropouts(), torch.ones(16, 64, requires_grad=True))


class TwoGenerators(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = mlp(16, 3), mlp(16, 2)

    def forward(self, x):
        h = self.a(x)
        h = h * (torch.rand_like(h) > 0.3)
        h = h * torch.rand([1], device=torch.device("cpu")).to(h.device)
        return self.b(h)


@seeded
def a5():
    """Draws from the generator of the input's device and from the CPU's."""
    return case(TwoGenerators(), torch.randn(ROWS, 16))


class RandomGate(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = mlp(16, 3), mlp(16, 2)

    def forward(self, x):
        h = self.a(x)
        return self.b(h * torch.sigmoid(torch.randn_like(h)))


@seeded
def a6():
    """A random gate, to be captured in a CUDA graph."""
    return case(RandomGate(), torch.randn(ROWS, 16))


class Recurrent(nn.Module):
    def __init__(self, rnn: nn.Module):
        super().__init__()
        self.rnn = rnn
        self.head = nn.Sequential(nn.Linear(8, 64), mlp(64, 4))

    def forward(self, x):
        return self.head(self.rnn(x)[0])


@seeded
def a7(dropout=0.5, kind=nn.LSTM):
    """A recurrent net with its own dropout; twin: dropout 0."""
    return case(Recurrent(kind(8, 8, 2, dropout=dropout)), torch.randn(5, 64, 8))


@seeded
def b1():
    """BatchNorm moves its statistics in every forward."""

    def block(n):
        return nn.Sequential(nn.Conv2d(n, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())

    return case(nn.Sequential(block(3), block(8), block(8), block(8)), torch.randn(4, 3, 16, 16))


class GrowingCache(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Sequential(nn.Linear(8, 64), mlp(64, 4), nn.Linear(64, 8))
        self.k = nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(0, 8))

    def forward(self, x):
        self.cache = torch.cat([self.cache, self.k(x).detach()])
        return self.q(x) @ self.cache.t()


@seeded
def b3():
    """A buffer that grows in the forward."""
    return case(GrowingCache(), torch.randn(64, 8))


class AddInPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        h = self.a(x)
        h.add_(x)
        return self.b(F.gelu(h))


@seeded
def c2():
    """An in-place add on what the segment made."""
    return case(AddInPlace(), torch.randn(ROWS, 8))


class WrittenScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        y = torch.tanh(self.a(x) * self.scale.clone())
        self.scale.mul_(0.5)
        return y


@seeded
def c3():
    """A buffer is read by the segment and written after it."""
    return case(WrittenScale(), torch.randn(ROWS, 8))


class ConditionalAppend(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.body = nn.Linear(4, 4), mlp(4, 3)

    def forward(self, x):
        outs = [x]
        if bool(x.sum() > 0):
            outs.append(self.a(x))
        return self.body(torch.cat(outs))


@seeded
def c4():
    """A list append in an `if`, then a plain body."""
    return case(ConditionalAppend(), torch.ones(ROWS, 4))


@seeded
def d1(frozen=0):
    """The input needs no grad; twin: the first `frozen` Linears are frozen."""
    m = mlp(8, 4)
    for p in list(m.parameters())[: 2 * frozen]:
        p.requires_grad_(False)
    return case(m, torch.randn(ROWS, 8))


@seeded
def d2():
    """Parameters are read inside the segment, not handed in."""
    return case(mlp(8, 6, nn.Tanh), torch.randn(ROWS, 8))


class NoGradBranch(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.body = mlp(8, 3)

    def forward(self, x):
        with torch.no_grad():
            t = self.a(x).amax(1, keepdim=True)
        return self.body(self.b(x) / (t.abs() + 1))


@seeded
def d3():
    """A no_grad block beside a branch that learns."""
    return case(NoGradBranch(), torch.randn(ROWS, 8))


class DictBlock(nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.lin = nn.Linear(n, k)

    def forward(self, d: Dict[str, Tensor]):
        d["h"] = torch.relu(self.lin(d["h"]))
        return d


class DictBlocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = DictBlock(4, 8), DictBlock(8, 2)

    def forward(self, x):
        d = {"h": x}
        return self.two(self.one(d))["h"]


@seeded
def e2():
    """Blocks overwrite an entry of the dict they are given."""
    return case(DictBlocks(), torch.randn(5, 4))


class OptionalMask(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = mlp(8, 3), mlp(8, 3)

    def forward(self, x, mask: Optional[Tensor] = None):
        h = self.a(x)
        if mask is not None:
            h = h.masked_fill(mask, 0.0)
        return self.b(h)


@seeded
def e3():
    """An optional mask."""
    return case(OptionalMask(), torch.randn(ROWS, 8), torch.randn(ROWS, 8) > 0)
