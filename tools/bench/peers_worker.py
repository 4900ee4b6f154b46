#!/usr/bin/env python3
"""Trains one model under one system, step by step as peers.py asks for, and measures each step.

peers_worker.py JSON; reads one line per visit from stdin, the number of steps, and answers with one line of JSON. All
systems are measured in such a process, by the same counter, with the same inputs, loss and seeds."""

import ctypes
import gc
import json
import os
import sys
import time
import warnings

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
BINARIES = os.path.join(HERE, "../../bazel-bin")


def load_counter():
    """Before any tensor is made: what is older is not counted."""
    torch.ops.load_library(os.path.join(BINARIES, "runtime/libremat_runtime.so"))
    torch.ops.load_library(os.path.join(BINARIES, "tools/bench/libpeers_counter.so"))
    return torch.ops.remat_bench


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """As remat-opt's --loss cross_entropy: of [N, classes] or [N, T, classes]."""
    return F.cross_entropy(logits.transpose(1, 2) if logits.dim() == 3 else logits, targets)


class Trainer:
    def __init__(self, task: dict):
        self.counter = load_counter()
        # After the counter, whose allocator has to see their tensors.
        import models
        import peers_systems

        recipe = models.MODELS[task["model"]]
        self.inputs = recipe.inputs(task["batch"])
        self.clock = peers_systems.Clock()
        self.is_remat = "file" in task
        self.times_recomputation = self.is_remat or peers_systems.times_recomputation(task["system"])
        if self.is_remat:
            self.counter.enable_statistics(True)
            self.module = torch.jit.load(task["file"])
            self.call = self.module
        else:
            self.module = models.eager(task["model"])
            self.call = peers_systems.apply(task["system"], self.module, tuple(task["stages"]), self.clock)
        rows = (task["batch"], *recipe.shape) if recipe.tokens else (task["batch"],)
        classes = models.VOCABULARY if recipe.tokens else 1000
        self.targets = torch.randint(0, classes, rows, generator=torch.Generator().manual_seed(2))

    def drop_gradients(self) -> None:
        for parameter in self.module.parameters():
            parameter.grad = None

    def step(self) -> dict:
        self.drop_gradients()
        gc.collect()
        torch.manual_seed(3)
        self.clock.take()
        self.counter.take_statistics()
        base = self.counter.live_bytes()
        self.counter.reset_peak()
        start = time.perf_counter()
        outputs = self.call(self.inputs)
        forward = time.perf_counter() - start
        loss = loss_of(outputs, self.targets)
        del outputs
        loss.backward()
        seconds = time.perf_counter() - start
        result = {
            "peak": self.counter.peak_bytes() - base,
            "seconds": seconds,
            "forward": forward,
            "loss": loss.item(),
        }
        regions_forward, replayed = self.counter.take_statistics()
        recomputed = self.clock.take()
        if self.is_remat:
            result["regions_forward"] = regions_forward
        if self.times_recomputation:
            result["recomputed"] = replayed if self.is_remat else recomputed
        return result

    def visit(self, steps: int) -> list[dict]:
        done = [self.step() for _ in range(steps)]
        self.drop_gradients()
        # Other processes wait for this one's memory.
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        return done


def main() -> None:
    # Libraries print; answers go where they can't.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    trainer = Trainer(json.loads(sys.argv[1]))
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(trainer.visit(int(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
