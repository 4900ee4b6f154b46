"""How PyTorch itself saves activation memory: eager models with checkpoints put in, or compiled for a memory budget.

Every function here changes or wraps a fresh eager model. `Clock` says how long forwards took that ran a second time."""

import dataclasses
import functools
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


@dataclasses.dataclass
class Clock:
    """Seconds spent in forwards that the backward asked for."""

    recomputed: float = 0.0

    def take(self) -> float:
        seconds, self.recomputed = self.recomputed, 0.0
        return seconds


class Checkpointed(nn.Module):
    def __init__(self, module: nn.Module, clock: Clock, contexts: Callable | None = None):
        super().__init__()
        self.module, self.clock, self.contexts = module, clock, contexts

    def run(self, *args, **kwargs):
        if torch._C._current_graph_task_id() == -1:  # no backward runs
            return self.module(*args, **kwargs)
        start = time.perf_counter()
        try:
            return self.module(*args, **kwargs)
        finally:  # a recomputation ends by an exception as soon as it has everything
            self.clock.recomputed += time.perf_counter() - start

    def forward(self, *args, **kwargs):
        # DenseNet's blocks append to the list that their layers are given.
        args = [list(arg) if isinstance(arg, list) else arg for arg in args]
        options = {"context_fn": self.contexts} if self.contexts else {}
        return checkpoint(self.run, *args, use_reentrant=False, **options, **kwargs)


ATEN = torch.ops.aten
COSTLY = {
    ATEN.convolution.default,
    ATEN.mm.default,
    ATEN.addmm.default,
    ATEN.bmm.default,
    ATEN._scaled_dot_product_flash_attention_for_cpu.default,
}


def save_costly(_context, op, *_args, **_kwargs) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in COSTLY else CheckpointPolicy.PREFER_RECOMPUTE


def wrap_child(parent: nn.Module, name: str, clock: Clock, contexts: Callable | None = None) -> None:
    parent._modules[name] = Checkpointed(parent._modules[name], clock, contexts)


def wrap_blocks(model: nn.Module, stages: tuple[str, ...], clock: Clock, contexts: Callable | None = None) -> nn.Module:
    for path in stages:
        stage = model.get_submodule(path)
        for name in list(stage._modules):
            wrap_child(stage, name, clock, contexts)
    return model


def wrap_stages(model: nn.Module, stages: tuple[str, ...], clock: Clock) -> nn.Module:
    for path in stages:
        parent, _, name = path.rpartition(".")
        wrap_child(model.get_submodule(parent), name, clock)
    return model


def compiled(model: nn.Module, budget: float, backend: str) -> Callable:
    import torch._functorch.config

    torch._functorch.config.activation_memory_budget = budget
    return torch.compile(model, backend=backend)


def apply(system: str, model: nn.Module, stages: tuple[str, ...], clock: Clock) -> Callable:
    """The model as `system` trains it: eager, block, stage, selective, or BACKEND:BUDGET for torch.compile."""
    if system == "eager":
        return model
    if system == "block":
        return wrap_blocks(model, stages, clock)
    if system == "stage":
        return wrap_stages(model, stages, clock)
    if system == "selective":
        return wrap_blocks(model, stages, clock, functools.partial(create_selective_checkpoint_contexts, save_costly))
    backend, _, budget = system.partition(":")
    return compiled(model, float(budget), backend)


def times_recomputation(system: str) -> bool:
    """Whether the clock sees it. A compiled backward holds what it recomputes among its own operators."""
    return ":" not in system
