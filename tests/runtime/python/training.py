"""Models, and their training beside eager mode."""

import contextlib

import torch
from torch import nn
from torch.nn import functional

BATCH = 64


class Net(nn.Module):
    """Convolution, norm, dropout, tied weights, a buffer that no state_dict has, and branches on the mode."""

    def __init__(self, dropout=0.1):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(
            *[nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU()) for _ in range(4)]
        )
        self.first = nn.Linear(8 * 64, 64)
        self.second = nn.Linear(64, 64)
        self.third = nn.Linear(64, 64)
        self.third.weight = self.second.weight
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(64, 10)
        self.register_buffer("scale", torch.full((1,), 0.5), persistent=False)

    def forward(self, x):
        h = self.blocks(self.stem(x)).flatten(1)
        h = self.dropout(torch.tanh(self.first(h))) * self.scale
        h = torch.sigmoid(self.second(h)) + h
        if self.training:
            h = torch.tanh(self.third(h))
        return self.head(h)


def net(**options):
    """The same weights whenever it is built."""
    torch.manual_seed(7)
    return Net(**options)


def batch(seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(BATCH, 3, 8, 8, generator=generator).to(dtype)
    return x, torch.randint(10, (BATCH,), generator=generator)


def adam(module):
    return torch.optim.AdamW(module.parameters(), lr=1e-2)


def step(module, optimizer, call, context=contextlib.nullcontext, scaler=None, dtype=torch.float32):
    """One step of training, and what it leaves, by name. `context` is around the forward."""
    x, y = batch(call, dtype)
    optimizer.zero_grad()
    torch.manual_seed(call)
    with context():
        loss = functional.cross_entropy(module(x).float(), y)
    if scaler is None:
        loss.backward()
    else:
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
    grads = {f"grad {name}": parameter.grad for name, parameter in module.named_parameters()}
    left = {name: grad.clone() for name, grad in grads.items() if grad is not None}
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()
    left |= {name: value.clone() for name, value in (*module.named_parameters(), *module.named_buffers())}
    return left | {"loss": loss.detach(), "next draw": torch.rand(4)}


def train(module, steps=4, make_optimizer=adam, make_scaler=None, **options):
    optimizer = make_optimizer(module)
    scaler = make_scaler() if make_scaler else None
    return [step(module, optimizer, call, scaler=scaler, **options) for call in range(steps)]


def assert_same(expected, actual):
    """Bit for bit."""
    assert len(expected) == len(actual)
    for call, (left, right) in enumerate(zip(expected, actual, strict=True), start=1):
        assert left.keys() == right.keys()
        for name, value in left.items():
            assert value.dtype == right[name].dtype and torch.equal(value, right[name]), f"step {call}: {name}"
            assert not value.isnan().any(), name


def snapshot(module):
    """Everything that a module is, to compare with later: tensors by identity, version and content."""
    return {
        name: (id(tensor), tensor._version, tensor.detach().clone(), tensor.requires_grad, tensor.grad)
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    } | {f"training {path}": part.training for path, part in module.named_modules()}


def assert_untouched(module, before, versions=True):
    after = snapshot(module)
    assert before.keys() == after.keys()
    for name, value in before.items():
        if isinstance(value, bool):
            assert after[name] == value, name
            continue
        assert value[0] == after[name][0] and value[3] == after[name][3], name
        assert value[1] == after[name][1] or not versions, name
        assert torch.equal(value[2], after[name][2]), name
        assert value[4] is after[name][4], name
