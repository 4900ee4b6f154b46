"""The module that optimize gives."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from ._results import Result

if TYPE_CHECKING:
    _Base = torch.jit.ScriptModule
else:
    _Base = torch.jit.RecursiveScriptModule


class OptimizedModule(_Base):
    """A ScriptModule that trains in less memory. `remat.result_of` tells what is known of it.

    Unlike other ScriptModules, a deep copy of it has parameters that are leaves, as one of an eager module has.
    """

    _disable_script_meta = True
    _remat_result: Result

    def __deepcopy__(self, memo: dict[int, Any] | None) -> OptimizedModule:
        with torch.no_grad():
            twin = optimized(copy.deepcopy(self._c, memo), self._remat_result)
        copies: dict[int, torch.nn.Parameter] = {}  # by the parameter's id: parameters may be tied
        for mine, other in zip(self.modules(), twin.modules(), strict=True):
            for name, parameter in mine._parameters.items():
                if parameter is None:
                    continue
                if id(parameter) not in copies:
                    made = other._parameters[name].detach()  # type: ignore[union-attr]
                    copies[id(parameter)] = torch.nn.Parameter(made, parameter.requires_grad)
                setattr(other, name, copies[id(parameter)])
        take_buffer_kinds(twin, self)
        return twin


def optimized(cpp_module: Any, result: Result) -> OptimizedModule:
    module: OptimizedModule = torch.jit._recursive.wrap_cpp_module(cpp_module)  # type: ignore[no-untyped-call]
    module.__class__ = OptimizedModule
    module.__dict__["_remat_result"] = result
    return module


def take_buffer_kinds(module: torch.nn.Module, original: torch.nn.Module) -> None:
    """TorchScript forgets which buffers a state_dict leaves out."""
    known = dict(original.named_modules(remove_duplicate=False))
    for path, part in module.named_modules(remove_duplicate=False):
        if path in known:
            part._non_persistent_buffers_set = set(known[path]._non_persistent_buffers_set)


def result_of(module: torch.nn.Module) -> Result:
    """What is known of a module that `optimize` or `load` gave; also of one that DistributedDataParallel wraps."""
    inner = getattr(module, "module", module)
    for candidate in (module, inner):
        if isinstance(candidate, OptimizedModule):
            return candidate._remat_result
    raise TypeError(f"{type(module).__name__} is no module that remat.optimize or remat.load gave")
