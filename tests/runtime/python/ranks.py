"""Trains in several processes: ranks.py FOLDER SCENARIO, started once per rank with RANK and WORLD_SIZE set.

What a rank finds is left in FOLDER/RANK.pt.
"""

import datetime
import os
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["REMAT_PACKAGE"]).parents[1]))

import remat
import torch
import torch.distributed as dist
import training
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


class Partly(training.Net):
    """A parameter that no step uses, and one that every second step does."""

    def __init__(self):
        super().__init__()
        self.never = torch.nn.Linear(64, 64)
        self.sometimes = torch.nn.Linear(64, 64)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long), persistent=False)

    def forward(self, x, extra: bool = False):
        h = self.blocks(self.stem(x)).flatten(1)
        h = self.dropout(torch.tanh(self.first(h)))
        h = torch.sigmoid(self.second(h)) + torch.tanh(self.third(h))
        if extra:
            h = torch.tanh(self.sometimes(h))
        return self.head(h)


def model_of(kind):
    torch.manual_seed(7)
    return Partly() if kind == "partly" else training.Net()


def data(rank, call, micro=0):
    return training.batch(1000 * rank + 10 * call + micro)


def optimized(kind, **options):
    inputs = data(dist.get_rank(), 0)[0]
    return remat.optimize(model_of(kind), inputs, "min", process_group=dist.group.WORLD, **options)


def count_hooks(module, calls):
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda _, name=name: calls.update([name]))


def train(module, kind, accumulate=1, **ddp):
    """Four steps; of each the gradients, parameters, buffers, and how often each parameter's hook was called."""
    rank, calls = dist.get_rank(), Counter()
    count_hooks(module, calls)
    wrapped = DistributedDataParallel(module, **ddp)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05, momentum=0.9)
    left = []
    for call in range(STEPS):
        optimizer.zero_grad()
        calls.clear()
        torch.manual_seed(100 * rank + call)
        for micro in range(accumulate):
            x, y = data(rank, call, micro)
            arguments = (x, call % 2 == 1) if kind == "partly" else (x,)
            if micro + 1 < accumulate:
                with wrapped.no_sync():
                    functional.cross_entropy(wrapped(*arguments), y).backward()
            else:
                functional.cross_entropy(wrapped(*arguments), y).backward()
        grads = {f"grad {name}": p.grad for name, p in module.named_parameters() if p.grad is not None}
        found = {name: grad.clone() for name, grad in grads.items()}
        optimizer.step()
        tensors = (*module.named_parameters(), *module.named_buffers())
        found |= {name: tensor.detach().clone() for name, tensor in tensors}
        left.append({"tensors": found, "hooks": dict(calls)})
    return left


def gradients(kind="net", **options):
    """Beside a run without Remat."""
    module = optimized(kind)
    result = remat.result_of(module)
    return {
        "expected": train(model_of(kind), kind, **options),
        "actual": train(module, kind, **options),
        "hash": result.plan_hash,
        "recomputed": result.recomputed,
        "ir": result.after_ir,
        "code": str(module.inlined_graph) + str(module._c._get_method("remat_region_forward_0").graph),
    }


def result_of_the_wrapped():
    wrapped = DistributedDataParallel(optimized("net"))
    return {"hash": remat.result_of(wrapped).plan_hash}


def unchanged():
    module = remat.optimize(model_of("net"), data(0, 0)[0], "900GB", process_group=dist.group.WORLD)
    train(module, "net")
    return {"changed": remat.result_of(module).changed, "methods": module._c._method_names()}


def subgroup():
    """Ranks 1 and 2 train together, rank 0 is none of them."""
    group = dist.new_group([1, 2])
    try:
        module = remat.optimize(model_of("net"), data(dist.get_rank(), 0)[0], "min", process_group=group)
        return {"hash": remat.result_of(module).plan_hash}
    except ValueError as error:
        return {"error": str(error)}


def raising(make):
    """What `make` raises, as text, its kind and what a budget's error says."""
    try:
        make()
        return {"error": None}
    except Exception as error:
        return {"error": str(error), "kind": type(error).__name__, "minimum": getattr(error, "minimum_peak", None)}


def unused_unasked():
    module = optimized("partly")
    return {
        "expected": raising(lambda: train(model_of("partly"), "partly")),
        "actual": raising(lambda: train(module, "partly")),
    }


def another_model():
    def make():
        odd = torch.nn.Sequential(model_of("net"), torch.nn.Tanh()) if dist.get_rank() == 1 else model_of("net")
        remat.optimize(odd, data(0, 0)[0], "min", process_group=dist.group.WORLD)

    return raising(make)


def another_model_unchanged():
    def make():
        odd = torch.nn.Sequential(model_of("net"), torch.nn.Tanh()) if dist.get_rank() == 1 else model_of("net")
        remat.optimize(odd, data(0, 0)[0], "900GB", process_group=dist.group.WORLD)

    return raising(make)


def another_batch():
    def make():
        x = data(0, 0)[0]
        inputs = x[:32] if dist.get_rank() == 1 else x
        remat.optimize(model_of("net"), inputs, "min", process_group=dist.group.WORLD)

    return raising(make)


def first_fails():
    class Failing(torch.nn.Module):
        def forward(self, x, **options):
            raise NotImplementedError("nothing here")

    def make():
        model = Failing() if dist.get_rank() == 0 else model_of("net")
        remat.optimize(model, data(0, 0)[0], "min", process_group=dist.group.WORLD)

    return raising(make)


def other_fails():
    def make():
        inputs = {"z": data(0, 0)[0]} if dist.get_rank() == 1 else data(0, 0)[0]
        remat.optimize(model_of("net"), inputs, "min", process_group=dist.group.WORLD)

    return raising(make)


def wrong_argument(ranks, **wrong):
    def make():
        options = wrong if dist.get_rank() in ranks else {}
        remat.optimize(model_of("net"), data(0, 0)[0], **options, process_group=dist.group.WORLD)

    return raising(make)


def out_of_reach():
    return raising(lambda: remat.optimize(model_of("net"), data(0, 0)[0], "1%", process_group=dist.group.WORLD))


SCENARIOS = {
    "plain": gradients,
    "accumulation": lambda: gradients(accumulate=3),
    "finds unused": lambda: gradients("net", find_unused_parameters=True),
    "unused parameter": lambda: gradients("partly", find_unused_parameters=True),
    "unused parameter, accumulation": lambda: gradients("partly", find_unused_parameters=True, accumulate=2),
    "bucket views": lambda: gradients(gradient_as_bucket_view=True),
    "wrapped": result_of_the_wrapped,
    "unchanged": unchanged,
    "subgroup": subgroup,
    "another model": another_model,
    "another model unchanged": another_model_unchanged,
    "another batch": another_batch,
    "first fails": first_fails,
    "other fails": other_fails,
    "first's argument": lambda: wrong_argument([0], budget="50"),
    "other's argument": lambda: wrong_argument([1], loss="mse"),
    "everyone's argument": lambda: wrong_argument([0, 1], plan="none.json"),
    "out of reach": out_of_reach,
    "unasked": unused_unasked,
}


def main(folder, *scenarios):
    torch.set_num_threads(1)
    torch._C._set_graph_executor_optimize(False)
    store = f"file://{folder}/store"
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store, datetime.timedelta(seconds=120), rank=rank, world_size=size)
    torch.save({scenario: SCENARIOS[scenario]() for scenario in scenarios}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
