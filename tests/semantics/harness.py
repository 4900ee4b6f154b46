"""Optimises models in this process and trains them beside their eager originals.

An eager module is the oracle, never a scripted one: plain TorchScript rounds differently from the second call on.
"""

import contextlib
import functools
import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

torch.ops.load_library(os.environ["REMAT_TESTING"])
torch.ops.load_library(os.environ["CUSTOM_OPS"])
testing = torch.ops.remat_testing

BUDGETS = ("min", "midway")  # midway between the lowest reachable peak and the original's
# TorchScript's optimisation and its profiling executor. With the first off, everything is bit for bit as in eager.
EXECUTORS = {
    "plain": (False, True),
    "optimising": (True, True),
    "legacy": (True, False),
    "legacy plain": (False, False),
}
# With optimisation on TorchScript differentiates tanh, sigmoid, silu and layer_norm by formulas of its own.
OWN_FORMULAS = 1e-5

_folder = tempfile.TemporaryDirectory(prefix="semantics")
_count = 0


@contextlib.contextmanager
def executor(name):
    optimize, profiling = EXECUTORS[name]
    before = (
        torch._C._get_graph_executor_optimize(),
        torch._C._jit_set_profiling_executor(profiling),
        torch._C._jit_set_profiling_mode(profiling),
    )
    torch._C._set_graph_executor_optimize(optimize)
    try:
        yield
    finally:
        torch._C._set_graph_executor_optimize(before[0])
        torch._C._jit_set_profiling_executor(before[1])
        torch._C._jit_set_profiling_mode(before[2])


@dataclass
class Optimized:
    path: str
    source: str  # the plain model's file
    report: dict  # of `remat-opt optimize --json`, and before_ir and after_ir

    def load(self):
        return torch.jit.load(self.path)

    def plain(self):
        return torch.jit.load(self.source)

    @property
    def changed(self):
        return self.report["changed"]

    @property
    def graph(self):
        """The rewritten graph, or the original where nothing was to be gained."""
        return self.report["after_ir"] if self.changed else self.report["before_ir"]

    def reasons(self, op=None):
        """Why nodes are kept, of `op` only where it is given."""
        return {remark["reason"] for remark in self.report["remarks"] if op in (None, remark["op"])}

    def recomputed_ops(self):
        """The kinds of the nodes whose values a backward makes again, once for each value."""
        return re.findall(r"# recomputed, [^:]+: (\S+) takes", self.graph)


def optimize(script, inputs, budget="min", allow_ops=(), method="forward"):
    global _count
    if budget == "midway":
        lowest = optimize(script, inputs, "min", allow_ops, method)
        peaks = lowest.report["peak_bytes"]
        budget = f"{(peaks['original'] + peaks['predicted']) // 2}B" if lowest.changed else "min"
    _count += 1
    source, target = (str(Path(_folder.name) / f"{kind}{_count}.pt") for kind in ("plain", "remat"))
    script.save(source)
    with executor("optimising"):  # as the tool has it
        report = testing.optimize(source, target, tuple(inputs), budget, list(allow_ops), method)
    return Optimized(target, source, json.loads(report))


@functools.lru_cache(maxsize=None)
def optimize_once(build, budget="min"):
    """Of a scenario, which has the same weights and inputs whenever it is built."""
    given = build()
    return optimize(given.script, given.inputs, budget)


def tensors_in(value):
    """All tensors in a result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for entry in value.values() for t in tensors_in(entry)]
    if isinstance(value, (tuple, list)):
        return [t for entry in value for t in tensors_in(entry)]
    return []


def fresh(value):
    """The same bytes in other storages; leaves that require grad where the given ones do."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: fresh(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [fresh(entry) for entry in value]
    if isinstance(value, tuple):
        entries = [fresh(entry) for entry in value]
        return type(value)(*entries) if hasattr(value, "_fields") else tuple(entries)
    return value


def root_gradient(output):
    """Numbers that depend on the shape alone."""
    steps = torch.arange(output.numel(), dtype=torch.float64)
    return steps.mul(0.7).sin().reshape(output.shape).to(output.dtype).to(output.device)


def backward(outputs):
    roots = [t for t in tensors_in(outputs) if t.requires_grad]
    if roots:
        torch.autograd.backward(roots, [root_gradient(t) for t in roots])


def snapshot(tensor):
    return None if tensor is None else tensor.detach().clone()


def left_behind(module, inputs, outputs):
    """Everything that a step leaves, by name; None for a gradient that is not defined."""
    found = {f"output {i}": snapshot(t) for i, t in enumerate(tensors_in(outputs))}
    found |= {f"grad {name}": snapshot(p.grad) for name, p in module.named_parameters()}
    for i, tensor in enumerate(tensors_in(inputs)):
        found |= {f"input {i}": snapshot(tensor), f"input grad {i}": snapshot(tensor.grad)}
    found |= {f"buffer {name}": snapshot(b) for name, b in module.named_buffers()}
    return found | {"next draw": torch.rand(8)}


def train_step(module, inputs, seed=1, forward=None, run_backward=backward):
    """One step from `seed`, and what it leaves. `forward` takes module and inputs; `run_backward` the outputs."""
    module.zero_grad(set_to_none=True)
    inputs = fresh(tuple(inputs))
    torch.manual_seed(seed)
    outputs = forward(module, *inputs) if forward else module(*inputs)
    run_backward(outputs)
    return left_behind(module, inputs, outputs)


def dense(tensor):
    tensor = tensor.to_dense() if tensor.is_sparse else tensor
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def same_bits(a, b):
    a, b = (t.resolve_neg().contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return torch.equal(a, b)


def assert_same(expected, actual, tolerance=0.0, where=""):
    """Bit for bit, or within `tolerance` of each tensor's largest value."""
    assert expected.keys() == actual.keys(), where
    for name, a in expected.items():
        b = actual[name]
        what = f"{where} {name}"
        assert (a is None) == (b is None), f"{what}: defined or not"
        if a is None:
            continue
        assert (a.dtype, a.shape, a.layout) == (b.dtype, b.shape, b.layout), what
        a, b = dense(a), dense(b)
        assert not a.isnan().any(), f"{what}: compares nothing"
        if tolerance == 0:
            assert same_bits(a, b), f"{what}: off by {(a.double() - b.double()).abs().max()}"
        elif a.numel():
            difference, largest = (a.double() - b.double()).abs().max(), a.double().abs().max()
            assert difference <= tolerance * largest, f"{what}: off by {difference} of {largest}"


def update(module):
    """Weights move between calls, a little: a stale one would show."""
    with torch.no_grad():
        for p in module.parameters():
            if p.grad is not None:
                grad = p.grad.to_dense() if p.grad.is_sparse else p.grad
                p.sub_(grad / grad.abs().max().clamp(min=1), alpha=1e-3)


def train_alike(eager, remat, inputs, tolerance=0.0, calls=4, replays=True, step=train_step, **options):
    """Trains both for calls 1 to `calls` and compares; `replays`: whether each call must (not) recompute.

    `inputs` may be a function from the call's number to the inputs.
    """
    for call in range(1, calls + 1):
        given = inputs(call) if callable(inputs) else inputs
        expected = step(eager, given, call, **options)
        testing.replayed_nodes()
        actual = step(remat, given, call, **options)
        replayed = testing.replayed_nodes()
        if replays is not None:
            assert (replayed > 0) == replays, f"call {call} replayed {replayed} nodes"
        assert_same(expected, actual, tolerance, f"call {call}")
        update(eager)
        update(remat)


def check(given, budget="min", mode="plain", own_formulas=False, rewritten=True, allow_ops=(), **options):
    """Optimises a case, or what a scenario builds, and trains it beside its eager module; returns the Optimized.

    Bit for bit, but for models of `own_formulas` while TorchScript optimises. `rewritten`: True: something is
    recomputed; False: nothing may be; None: either.
    """
    if callable(given):
        optimized, given = optimize_once(given, budget), given()
    else:
        optimized = optimize(given.script, given.inputs, budget, allow_ops)
    if rewritten is not None:
        assert optimized.changed == rewritten, optimized.report.get("reason_unchanged", "was rewritten")
        assert optimized.report["recomputed"] > 0 or not rewritten
    tolerance = OWN_FORMULAS if own_formulas and EXECUTORS[mode][0] else 0.0
    with executor(mode):
        train_alike(given.eager, optimized.load(), given.inputs, tolerance, replays=rewritten, **options)
    return optimized
