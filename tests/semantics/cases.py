"""What a scenario is: an eager module, the oracle; the same module for TorchScript; and inputs."""

import functools
import warnings
from typing import NamedTuple

import torch
from torch import nn

warnings.filterwarnings("ignore", category=DeprecationWarning)

ROWS = 256  # enough that activations outweigh weights: the peak can fall


class Case(NamedTuple):
    eager: nn.Module  # shares its parameters with `script`
    script: torch.jit.ScriptModule
    inputs: tuple  # an input that requires grad is to be given so


def case(module, *inputs, trace=False):
    if not trace:
        return Case(module, torch.jit.script(module), inputs)
    examples = tuple(x.detach().clone() for x in inputs)
    return Case(module, torch.jit.trace(module, examples, check_trace=False), inputs)


def seeded(build):
    """Makes `build` start from a fixed seed."""

    def from_seed(*args, **kwargs):
        torch.manual_seed(0)
        return build(*args, **kwargs)

    from_seed.__name__, from_seed.__doc__ = build.__name__, build.__doc__
    return from_seed


def rows():
    return (torch.randn(ROWS, 16),)


@functools.lru_cache(maxsize=None)
def of(make, *arguments, inputs=rows):
    """What builds the case of `make(*arguments)`: one function for one model, which is then optimised once."""

    def build():
        return case(make(*arguments), *inputs())

    return seeded(build)


def mlp(width, depth, act=nn.GELU):
    """`depth` times Linear and activation: legal and worth recomputing."""
    return nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(width, width), act())))
