"""Autocast, dtypes, sizes that depend on data, other batch sizes than the planned one, layouts."""

import contextlib

import pytest
import scenarios_a_to_e as scenarios
import scenarios_f_to_j as more
import torch
import torch.nn.functional as F
from cases import ROWS, case, mlp, of
from harness import (
    BUDGETS,
    EXECUTORS,
    OWN_FORMULAS,
    assert_same,
    backward,
    check,
    executor,
    optimize,
    optimize_once,
    testing,
    train_alike,
    train_step,
)
from torch import nn


def under(dtype, enabled=True, cache=True):
    def forward(module, *inputs):
        with torch.autocast("cpu", dtype, enabled, cache):
            return module(*inputs)

    return forward


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("budget", BUDGETS)
def test_f1_forward_under_autocast_backward_outside(budget, dtype, cache):
    given = more.f1()
    remat = optimize_once(more.f1, budget).load()
    # Four gradients of one weight are summed in another order than in eager.
    train_alike(given.eager, remat, given.inputs, 1e-2, forward=under(dtype, cache=cache))


@pytest.mark.parametrize("mode", EXECUTORS)
def test_f1_without_autocast(mode):
    given = more.f1()
    remat = optimize_once(more.f1).load()
    with executor(mode):
        train_alike(given.eager, remat, given.inputs, OWN_FORMULAS)


@pytest.mark.parametrize("mode", EXECUTORS)
def test_f1_error_against_float32_is_no_larger_than_eagers(mode):
    given = more.f1()
    remat = optimize_once(more.f1).load()
    exact = train_step(given.eager.double(), [x.double() for x in given.inputs])
    given.eager.float()
    with executor(mode):
        for _ in range(4):
            eager = train_step(given.eager, given.inputs, forward=under(torch.bfloat16))
            actual = train_step(remat, given.inputs, forward=under(torch.bfloat16))
            for name in ("grad lin.weight", "grad lin.bias"):
                error, allowed = ((step[name].double() - exact[name]).norm() for step in (actual, eager))
                assert allowed > 1e-4 * exact[name].norm()  # there is a difference to be seen
                assert error <= 1.05 * allowed, name


@pytest.mark.parametrize("where", ["inside", "outside", "off inside of on"])
def test_autocast_and_the_place_of_the_backward(where):
    torch.manual_seed(0)
    given = case(mlp(32, 5), torch.randn(ROWS, 32))
    remat = optimize(given.script, given.inputs).load()

    def run_backward(outputs):
        with torch.autocast("cpu", torch.bfloat16) if where != "outside" else contextlib.nullcontext():
            backward(outputs)

    forward = under(torch.bfloat16, where != "off inside of on")
    train_alike(given.eager, remat, given.inputs, forward=forward, run_backward=run_backward)


def test_autocast_switched_from_call_to_call():
    torch.manual_seed(0)
    given = case(mlp(32, 5), torch.randn(ROWS, 32))
    remat = optimize(given.script, given.inputs).load()
    for dtype, enabled in ((torch.bfloat16, True), (torch.bfloat16, False), (torch.float16, True), (None, False)):
        train_alike(given.eager, remat, given.inputs, calls=2, forward=under(dtype, enabled))


def test_autocast_inside_of_the_model():
    class Casts(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = mlp(32, 3), mlp(32, 3)

        def forward(self, x):
            h = self.a(x).to(torch.bfloat16)
            return self.b(torch.sigmoid(h).float() * torch.tanh(h.to(torch.float)))

    torch.manual_seed(0)
    check(case(Casts(), torch.randn(ROWS, 32)))


def test_an_autocast_block_in_the_scripted_model():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = mlp(16, 3), mlp(16, 3)

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                h = self.a(x)
            return self.b(h.float())

    torch.manual_seed(0)
    given = case(Block(), torch.randn(ROWS, 16))
    optimized = optimize(given.script, given.inputs)
    assert optimized.reasons("prim::Enter") == {"side-effect"}
    # TorchScript casts such a block in a way of its own: the scripted model is what stays.
    train_alike(optimized.plain(), optimized.load(), given.inputs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_converted_after_loading(dtype):
    given = scenarios.d1()
    remat = optimize_once(scenarios.d1).load().to(dtype)
    train_alike(given.eager.to(dtype), remat, (given.inputs[0].to(dtype),))


def test_device_after_loading():
    given = scenarios.b1()
    path = optimize(given.script, given.inputs).path
    remat = torch.jit.load(path, map_location="cpu").to("cpu")
    train_alike(given.eager, remat, given.inputs)
    meta = torch.jit.load(path, map_location="meta")
    assert meta(given.inputs[0].to("meta")).shape == remat(*given.inputs).shape


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_device_after_loading_on_cuda():
    given = scenarios.b1()
    remat = optimize_once(scenarios.b1).load().cuda()
    train_alike(given.eager.cuda(), remat, (given.inputs[0].cuda(),), 1e-4)


def test_the_default_dtype_changes_before_the_backward():
    class Makes(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp(16, 4)

        def forward(self, x):
            return self.body(torch.tanh(x) * torch.linspace(0.0, 1.0, 16) + torch.full([16], 0.5))

    torch.manual_seed(0)
    given = case(Makes(), torch.randn(ROWS, 16))
    remat = optimize(given.script, given.inputs).load()

    def in_double(outputs):
        torch.set_default_dtype(torch.float64)
        try:
            backward(outputs)
        finally:
            torch.set_default_dtype(torch.float32)

    train_alike(given.eager, remat, given.inputs, run_backward=in_double)


@pytest.mark.parametrize("mode", ["plain", "optimising"])
def test_other_batch_sizes_than_the_planned_one(mode):
    torch.manual_seed(0)
    x = torch.randn(2 * ROWS, 3, 8, 8)
    body = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.GELU(), nn.Flatten()]
    given = case(nn.Sequential(*body), x[:16])
    remat = optimize(given.script, given.inputs).load()
    sizes = [16, 1, 7, 33, 16, 3, 0]
    with executor(mode):
        train_alike(given.eager, remat, lambda call: (x[: sizes[call - 1]],), calls=5)
        given.eager.eval(), remat.eval()
        train_alike(given.eager, remat, lambda call: (x[: sizes[call + 4]],), calls=2, replays=None)


def test_other_ranks_than_the_planned_one():
    given = scenarios.d1()
    remat = optimize_once(scenarios.d1).load()
    shapes = [(8,), (3, 8), (2, 3, 8), (2, 3, 4, 8)]
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in shapes]
    train_alike(given.eager, remat, lambda call: (inputs[call - 1],))


class DataDependent(nn.Module):
    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind
        self.a, self.b = mlp(16, 3), mlp(16, 3)

    def forward(self, x):
        h = self.a(x)
        if self.kind == "nonzero":
            h = h[torch.nonzero(x[:, 0] > 0).squeeze(1)]
        elif self.kind == "masked_select":
            h = torch.masked_select(h, x > 0)[:512].view(32, 16)
        elif self.kind == "boolean index":
            h = h[x[:, 0] > 0]
        elif self.kind == "unique":
            h = h[torch.unique((x[:, 0] * 10).to(torch.long)).abs()]
        elif self.kind == "item":
            h = h[: int((x[:, 0] > 0).sum().item())]
        elif self.kind == "topk":
            h = torch.topk(h, 5, 0)[0]
        elif self.kind == "where":
            h = torch.where(h > 0, h, h.square())
        elif self.kind == "repeat_interleave":
            h = torch.repeat_interleave(h, (x[:, 0] > 0).to(torch.long), 0)
        elif self.kind == "branch":
            if bool(x.sum() > 0):
                h = torch.tanh(self.b(h))
        elif self.kind == "while":
            while bool(h.detach().abs().max() > 1e-3):
                h = torch.tanh(h) * 0.1
        return self.b(h)


DEPENDENT = ["nonzero", "masked_select", "boolean index", "unique", "item", "topk", "where", "repeat_interleave"]


@pytest.mark.parametrize("mode", ["plain", "optimising"])
@pytest.mark.parametrize("kind", [*DEPENDENT, "branch", "while"])
def test_sizes_and_paths_that_depend_on_data(kind, mode):
    build = of(DataDependent, kind)
    given, optimized = build(), optimize_once(build)
    inputs = [torch.randn(ROWS, 16) for _ in range(4)]
    with executor(mode):
        tolerance = 1e-5 if mode == "optimising" else 0.0
        train_alike(given.eager, optimized.load(), lambda call: (inputs[call - 1],), tolerance)
    dependent = {"nonzero": "aten::nonzero", "masked_select": "aten::masked_select", "unique": "aten::_unique2"}
    if kind in dependent:
        assert "data-dependent-shape" in optimized.reasons(dependent[kind]), optimized.reasons()


def test_channels_last():
    torch.manual_seed(0)
    body = [nn.Conv2d(3, 8, 3, padding=1, bias=False)]  # in front of a norm a bias's gradient is noise
    for _ in range(3):
        body += [nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, bias=False)]
    model = nn.Sequential(*body).to(memory_format=torch.channels_last)
    x = torch.randn(8, 3, 16, 16).to(memory_format=torch.channels_last)
    given = case(model, x)
    optimized = check(given)
    plain, remat = given.eager(x), optimized.load()(x)
    assert plain.stride() == remat.stride() and remat.is_contiguous(memory_format=torch.channels_last)
    # Planned for one layout, trained in the other.
    remat = optimized.load()
    given.eager.load_state_dict(remat.state_dict())
    given.eager.to(memory_format=torch.contiguous_format)
    train_alike(given.eager, remat, (x.contiguous(),), 1e-4)


def test_complex_numbers():
    class Spectral(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(17, dtype=torch.complex64))
            self.body = mlp(32, 3)

        def forward(self, x):
            spectrum = torch.fft.rfft(self.body(x)) * self.w
            spectrum = spectrum * spectrum.conj().abs()
            return torch.fft.irfft(torch.tanh(spectrum * 0.01), 32)

    torch.manual_seed(0)
    check(case(Spectral(), torch.randn(ROWS, 32)))


def test_double_precision_and_integers():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(30, 16).double()
            self.body = mlp(16, 3).double()

        def forward(self, index, scale):
            return self.body(self.table(index) * scale.to(torch.double).unsqueeze(1)), index + 1

    torch.manual_seed(0)
    check(case(Mixed(), torch.randint(30, (ROWS,)), torch.randint(1, 4, (ROWS,))))


def test_empty_tensors():
    given = scenarios.d1()
    remat = optimize_once(scenarios.d1).load()
    train_alike(given.eager, remat, (torch.zeros(0, 8, requires_grad=True),), replays=None)


@pytest.mark.parametrize("deterministic", [True, False])
def test_deterministic_algorithms_as_in_the_forward(deterministic):
    torch.manual_seed(0)
    given = case(mlp(16, 4), torch.randn(ROWS, 16))
    remat = optimize(given.script, given.inputs).load()

    def forward(module, x):
        torch.use_deterministic_algorithms(deterministic)
        try:
            return module(x)
        finally:
            torch.use_deterministic_algorithms(False)

    train_alike(given.eager, remat, given.inputs, forward=forward)


def test_two_threads_round_as_one_forward():
    torch.manual_seed(0)
    given = case(mlp(64, 4), torch.randn(2 * ROWS, 64))
    remat = optimize(given.script, given.inputs).load()
    testing.replayed_nodes()
    torch.set_num_threads(2)
    try:
        assert_same(train_step(given.eager, given.inputs), train_step(remat, given.inputs))
        assert testing.replayed_nodes() > 0
    finally:
        torch.set_num_threads(1)


def test_upsampling_pooling_and_padding():
    class Resizes(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")

        def forward(self, x):
            h = F.max_pool2d(torch.relu(self.a(x)), 2)
            h = F.interpolate(F.gelu(self.b(h)), scale_factor=2.0, mode="bilinear")
            return F.adaptive_avg_pool2d(F.pad(h, [1, 1, 0, 2]), [5, 5])

    torch.manual_seed(0)
    check(case(Resizes(), torch.randn(8, 3, 16, 16)))
