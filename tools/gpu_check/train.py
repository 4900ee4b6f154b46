"""Trains one model by every system for some steps: eager, as TorchScript, optimised at each budget, and eager with
torch.utils.checkpoint around every block. Writes peak, step time and parity as JSON, anew after each system.

A step is forward, cross-entropy and backward, gradients None before it. TorchScript's own optimisation is off: with it
on it rounds differently. Parity is of one step by deterministic algorithms, from the same weights and random state: of
the optimised files with the TorchScript original, of the others with eager."""

import argparse
import gc
import json
import os
import pathlib
import statistics
import time

import models
import parity
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

WARM_UPS = 2


class Meter:
    """Time and peak of a step: on a GPU by events and the allocator, on the CPU by the clock alone."""

    def __init__(self, device):
        self.device = torch.device(device)
        self.on_gpu = self.device.type == "cuda"

    def measure(self, step):
        """Seconds, and the most bytes that tensors held above what was there before; None on the CPU."""
        if not self.on_gpu:
            begin = time.perf_counter()
            step()
            return time.perf_counter() - begin, None
        torch.cuda.synchronize(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        step()
        end.record()
        torch.cuda.synchronize(self.device)
        return begin.elapsed_time(end) / 1e3, torch.cuda.max_memory_allocated(self.device) - before

    def totals(self):
        """Bytes that the allocator held at most, tensors and cache."""
        if not self.on_gpu:
            return {}
        return {
            "total_allocated": torch.cuda.max_memory_allocated(self.device),
            "total_reserved": torch.cuda.max_memory_reserved(self.device),
        }

    def forget(self):
        gc.collect()
        if self.on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)


class Loss:
    """Cross-entropy with fixed targets, of [N, classes] or [N, T, classes]. They are drawn by the first step."""

    def __init__(self):
        self.targets = None

    def __call__(self, logits):
        rows = logits.reshape(-1, logits.shape[-1])
        if self.targets is None:
            generator = torch.Generator().manual_seed(2)
            self.targets = torch.randint(0, rows.shape[1], (rows.shape[0],), generator=generator).to(rows.device)
        return F.cross_entropy(rows, self.targets)


def distinct_parameters(module):
    """In order, a tied weight once: by address, since TorchScript names it twice."""
    return list({parameter.data_ptr(): parameter for parameter in module.parameters()}.values())


def one_step(module, inputs, loss_of):
    """What a step by deterministic algorithms gave, on the CPU, and whether all of them were: LibTorch's attention has
    a deterministic backward only where nothing else is allowed, and other operators have none. Buffers stay."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    for strictly in (True, False):
        try:
            return step_by(module, inputs, loss_of, strictly), strictly
        except RuntimeError as error:
            if not strictly or "deterministic" not in str(error):
                raise
        finally:
            with torch.no_grad():
                for name, buffer in module.named_buffers():
                    buffer.copy_(buffers[name])
    raise AssertionError("unreachable")


def step_by(module, inputs, loss_of, strictly):
    torch.use_deterministic_algorithms(True, warn_only=not strictly)
    torch.manual_seed(3)
    try:
        logits = module(inputs)
        loss_of(logits).backward()
        return {
            "outputs": {"logits": logits.detach().cpu()},
            # By position: TorchScript's names may differ.
            "gradients": {
                i: None if p.grad is None else p.grad.cpu() for i, p in enumerate(distinct_parameters(module))
            },
            "buffers": {name: buffer.clone().cpu() for name, buffer in module.named_buffers()},
            "next_draw": {"rand": torch.rand(8, device=inputs.device).cpu()},
        }
    finally:
        torch.use_deterministic_algorithms(False)
        module.zero_grad(set_to_none=True)


def with_checkpoints(module, block):
    """`module` with torch.utils.checkpoint around every module of the class `block`."""
    found = [child for child in module.modules() if type(child).__name__ == block]
    if not found:
        raise RuntimeError(f"the model has no {block}")
    for child in found:
        plain = child.forward
        child.forward = lambda *args, _plain=plain, **kwargs: checkpoint(_plain, *args, use_reentrant=False, **kwargs)
    return module


def measure(module, inputs, loss_of, meter, steps):
    def step():
        loss_of(module(inputs)).backward()

    seconds, peaks = [], []
    for index in range(WARM_UPS + steps):
        module.zero_grad(set_to_none=True)
        took, peak = meter.measure(step)
        if index >= WARM_UPS:
            seconds.append(took)
            peaks.append(peak)
    module.zero_grad(set_to_none=True)
    return {
        "step_seconds": statistics.median(seconds),
        "fastest_step_seconds": min(seconds),
        "peak_bytes": None if peaks[0] is None else max(peaks),
        **meter.totals(),
    }


def systems(arguments):
    """Name, what it is compared with, and how its module is made."""

    def file(name):
        return lambda: torch.jit.load(str(arguments.folder / name), map_location=arguments.device)

    def eager():
        return models.eager(arguments.name, arguments.tiny, arguments.device)

    yield "eager", None, eager
    yield "torchscript", "eager", file(f"{arguments.name}.pt")
    for budget in arguments.budgets:
        yield f"remat_{budget}", "torchscript", file(f"{arguments.name}.{budget}.pt")
    yield "checkpoint", "eager", lambda: with_checkpoints(eager(), models.MODELS[arguments.name].block)


def train(arguments):
    inputs = models.MODELS[arguments.name].inputs(arguments.tiny, arguments.device)
    meter, loss_of = Meter(arguments.device), Loss()
    results, steps = {}, {}
    for name, reference, make in systems(arguments):
        try:
            meter.forget()
            module = make()
            steps[name], strictly = one_step(module, inputs, loss_of)
            again = None if reference == "torchscript" else one_step(module, inputs, loss_of)[0]
            result = measure(module, inputs, loss_of, meter, arguments.steps)
            result["deterministic_algorithms"] = strictly
            if again is not None:
                # What differs by itself says nothing of what is compared with it.
                result["parity_with_itself"] = parity.compare_steps([steps[name]], [again])["worst"]
            if reference in steps:
                result["parity"] = {"with": reference, **parity.compare_steps([steps[reference]], [steps[name]])}
            del module
        except Exception as error:  # pylint: disable=broad-except  # the others go on
            result = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:500] if str(error) else ''}"}
        results[name] = result
        arguments.result.write_text(json.dumps(results), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(models.MODELS))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--runtime", required=True, help="libremat_runtime.so")
    parser.add_argument("--budgets", type=int, nargs="+", required=True)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--result", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    # cuBLAS computes deterministically with one of two workspace sizes; read with the first product.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.ops.load_library(arguments.runtime)
    torch._C._set_graph_executor_optimize(False)  # pylint: disable=protected-access
    train(arguments)


if __name__ == "__main__":
    main()
