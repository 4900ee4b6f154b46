"""The scenarios about precision, memory, unusual backward calls, TorchScript around it, shared weights."""

import torch
import torch.nn.functional as F
from cases import ROWS, case, mlp, seeded
from torch import nn


class SharedTanh(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(64, 64)

    def forward(self, x):
        x = torch.tanh(self.lin(x))
        x = torch.tanh(self.lin(x))
        x = torch.tanh(self.lin(x))
        return torch.tanh(self.lin(x))


@seeded
def f1():
    """For a forward under autocast and a backward outside it."""
    return case(SharedTanh(), torch.randn(ROWS, 64))


@seeded
def g1(rows=1024, width=256):
    """16 layers whose activations outweigh their weights."""
    return case(mlp(width, 16), torch.randn(rows, width))


@seeded
def g2(layers=8, gelu=False):
    """Bare Linears; twins: a single one, and each with a gelu after it."""
    return case(mlp(256, layers, nn.GELU if gelu else nn.Identity), torch.randn(1024, 256))


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.g, self.u, self.d = (nn.Linear(width, width) for _ in "gud")

    def forward(self, x):
        return self.d(F.silu(self.g(x)) * self.u(x))


@seeded
def g3(rows=8192, width=64):
    """Gated blocks, for a sweep of the budget."""
    return case(nn.Sequential(*(Gated(width) for _ in range(8))), torch.randn(rows, width))


@seeded
def h1():
    """Two output columns, for two backward calls on one graph."""
    return case(nn.Sequential(mlp(8, 5, nn.Tanh), nn.Linear(8, 2)), torch.randn(ROWS, 8))


@seeded
def h2():
    """Energy of positions; forces by autograd.grad."""
    m = nn.Sequential(nn.Linear(3, 8), mlp(8, 5, nn.Tanh), nn.Linear(8, 1))
    return case(m, torch.randn(ROWS, 3, requires_grad=True))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.heads = heads

    def forward(self, x):
        b, n, w = x.shape
        qkv = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        weights = (q @ k.transpose(-2, -1) * 0.35).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, w))


class Transformer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.att = Attention(width, 2)
        self.ff = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.att(self.n1(x))
        return x + self.ff(self.n2(x))


@seeded
def i1():
    """Four pre-norm transformer blocks."""
    return case(nn.Sequential(*(Transformer(16) for _ in range(4))), torch.randn(8, 32, 16))


class TiedAndFrozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.body, self.out = nn.Linear(8, 8), mlp(8, 3), nn.Linear(8, 8)
        self.out.weight = self.inp.weight
        self.body[0].weight.requires_grad_(False)
        self.body[2].eval()

    def forward(self, x):
        return self.out(self.body(self.inp(x)))


@seeded
def i3():
    """Tied weights, a frozen layer and a part in eval mode."""
    return case(TiedAndFrozen(), torch.randn(ROWS, 8))


@seeded
def i4():
    """For both executors, and for optimised execution off."""
    return case(mlp(8, 4), torch.randn(ROWS, 8))


@seeded
def i5():
    """For loading with and without the runtime library."""
    return case(mlp(8, 4), torch.randn(ROWS, 8))


class TracedDraw(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = mlp(8, 6)

    def forward(self, x):
        return x + torch.randn([], device=x.device) * self.a(x)


@seeded
def i6():
    """Traced on the CPU: the draw's device is a constant."""
    return case(TracedDraw(), torch.randn(ROWS, 8), trace=True)


class CustomOps(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = mlp(8, 3), mlp(8, 3)

    def forward(self, x):
        h = torch.ops.semantics.doubled(self.a(x))
        return self.b(torch.ops.semantics.counted(h))


@seeded
def i8():
    """Operators that the tool cannot know."""
    return case(CustomOps(), torch.randn(ROWS, 8))


class VisibleMask(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Parameter(torch.rand(32) + 0.5)
        self.w2 = nn.Parameter(torch.rand(32) + 0.5)
        self.w3 = nn.Parameter(torch.rand(32) + 0.5)

    def forward(self, x):
        h = F.dropout(torch.tanh(x * self.w1), 0.5, self.training)
        return torch.tanh(h * self.w2) * self.w3


@seeded
def i9():
    """For several threads: the dropout mask shows in the output."""
    return case(VisibleMask(), torch.ones(8, 32, requires_grad=True))


class OneLinearAtBothEnds(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.m = nn.Linear(8, 8), mlp(8, 5, nn.Tanh)

    def forward(self, x):
        return self.w(self.m(torch.tanh(self.w(x))))


@seeded
def j1():
    """One Linear at both ends."""
    return case(OneLinearAtBothEnds(), torch.randn(ROWS, 8))
