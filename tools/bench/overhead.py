#!/usr/bin/env python3
"""What the runtime costs where it does nothing: a model whose graph is one region with every value kept, against the
model as it was. Both are trained in turns in one process; of each the fastest step counts. With times of the plain
model's TorchScript with optimisation on and off, of which the faster one is what is compared with."""

import argparse
import json
import os
import sys
import time

import torch

import models
import remat_opt

CACHE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cache")
WARM_UPS = 4
BATCHES = {"tiny_ops": 1, "vit_small_patch16_224": 8, "resnet50_scripted": 8}
TINY_OPS = 2000


class TinyOps(torch.nn.Module):
    """A chain of 2,000 operators on 64 numbers."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.full((64,), 0.5))

    def forward(self, x):
        for _ in range(TINY_OPS // 2):
            x = torch.tanh(x * self.w)
        return x


def save(name, batch, model_file, inputs_file):
    if name != "tiny_ops":
        models.save(name, batch, model_file, inputs_file)
        return
    x = torch.rand(batch, 64)
    torch.jit.trace(TinyOps(), x).save(model_file)
    torch.save(x, inputs_file)


def optimize(model_file, inputs_file, out):
    plan = f"{out}.plan.json"
    remat_opt.run("plan", model_file, "--inputs", inputs_file, "--budget", "100%", "--save-plan", plan)
    result = json.loads(
        remat_opt.run("optimize", model_file, "-o", out, "--inputs", inputs_file, "--plan", plan, "--json")
    )
    if result["recomputed"] != 0:
        sys.exit(f"{out}: {result['recomputed']} storages are recomputed; this measures what a region costs with none")


def step_seconds(model, x, optimized):
    for parameter in model.parameters():
        parameter.grad = None
    with torch.jit.optimized_execution(optimized):
        start = time.perf_counter()
        out = model(x)
        out.backward(torch.ones_like(out))
        return time.perf_counter() - start


def measure(name, batch, rounds):
    files = (os.path.join(CACHE, f"{name}.overhead.{kind}") for kind in ("pt", "inputs.pt", "remat.pt"))
    model_file, inputs_file, out = files
    save(name, batch, model_file, inputs_file)
    optimize(model_file, inputs_file, out)
    x = torch.load(inputs_file)
    sides = {
        "plain": (torch.jit.load(model_file), False),
        "plain, optimised": (torch.jit.load(model_file), True),
        "region": (torch.jit.load(out), True),
    }
    best = dict.fromkeys(sides, float("inf"))
    for i in range(WARM_UPS + rounds):
        # There and back: what ran before leaves its blocks in the allocator.
        turns = list(sides.items())[:: 1 if i % 2 == 0 else -1]
        for side, (model, optimized) in turns:
            seconds = step_seconds(model, x, optimized)
            if i >= WARM_UPS:
                best[side] = min(best[side], seconds)
    baseline = min(best["plain"], best["plain, optimised"])
    return {"model": name, "batch": batch, "rounds": rounds, "seconds": best, "ratio": best["region"] / baseline}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("models", nargs="*", help=f"of {', '.join(BATCHES)}: all")
    arguments = parser.parse_args()
    torch.ops.load_library(remat_opt.RUNTIME)
    os.makedirs(CACHE, exist_ok=True)
    results = []
    for name in arguments.models or BATCHES:
        result = measure(name, BATCHES[name], arguments.rounds)
        results.append(result)
        times = ", ".join(f"{side} {1e3 * seconds:.1f} ms" for side, seconds in result["seconds"].items())
        print(f"{name}, batch {result['batch']}: {result['ratio']:.3f} x the plain step ({times})", flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            file.write(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
