"""From what a user has to a ScriptModule and the arguments of its method."""

from __future__ import annotations

import contextlib
import sys
import warnings
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from ._errors import RematError

_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "FSDPModule", "OptimizedModule")
# TorchScript keeps half of what it failed to compile: the second failure of a class says nothing of the cause.
_why_not_scripted: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()


def _warn(message: str) -> None:
    """At the caller's line, however deep in the package this is."""
    level = 1
    while Path(sys._getframe(level).f_code.co_filename).parent == Path(__file__).parent:
        level += 1
    warnings.warn(message, stacklevel=level + 1)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__


def _refuse_what_would_get_lost(model: torch.nn.Module) -> None:
    """TorchScript leaves out hooks on a module's backward without a word."""
    names = {base.__name__ for base in type(model).__mro__ if base.__module__.startswith("torch.")}
    wrapper = next((name for name in _WRAPPERS if name in names), None)
    if wrapper is not None:
        raise TypeError(f"model is wrapped by {wrapper}: optimize the module inside, then wrap what comes of it")
    for path, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            raise RematError(
                f"module {path or 'model'} has backward hooks, which TorchScript has none of: take them off, and use "
                "hooks on parameters and on the model's output"
            )
        if any(torch.nn.parameter.is_lazy(p) for p in module._parameters.values() if p is not None):
            raise RematError(f"module {path or 'model'} has parameters without a shape yet: call the model once")


@contextlib.contextmanager
def _left_as_it_is(model: torch.nn.Module) -> Iterator[None]:
    """Puts back what a forward leaves: buffers, which may be written or replaced, and random numbers."""
    held = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    devices = {buffer.device for *_, buffer, _ in held} | {parameter.device for parameter in model.parameters()}
    with torch.random.fork_rng(devices=[device for device in devices if device.type == "cuda"]):
        try:
            yield
        finally:
            for module, name, buffer, content in held:
                module._buffers[name] = buffer
                with torch.no_grad():
                    buffer.copy_(content)


def _trace(model: torch.nn.Module, inputs: tuple[Any, ...] | dict[str, Any]) -> torch.jit.ScriptModule:
    by_name = isinstance(inputs, dict)
    with _left_as_it_is(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of which branches were taken: ours says it all
        traced: torch.jit.ScriptModule = torch.jit.trace(  # type: ignore[no-untyped-call]
            model,
            None if by_name else inputs,
            example_kwarg_inputs=inputs if by_name else None,
            check_trace=False,
        )
    return traced


def _refuse_parametrizations(model: torch.nn.Module) -> None:
    """TorchScript compiles them, to something that doesn't run."""
    for path, module in model.named_modules():
        if torch.nn.utils.parametrize.is_parametrized(module):
            raise TypeError(f"module {path or 'model'} has parametrized parameters")


def script_module_of(
    model: torch.nn.Module, inputs: tuple[Any, ...] | dict[str, Any], method: str
) -> torch.jit.ScriptModule:
    """`model` itself where it is one, or scripted, or else traced, with a warning. Shares parameters and buffers."""
    if isinstance(model, torch.jit.ScriptFunction):
        raise TypeError("model is a function: wrap it in a module, so that there are parameters to train")
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is a {type(model).__name__}: give an nn.Module or a ScriptModule")
    if isinstance(model, torch.jit.ScriptModule):
        return model
    _refuse_what_would_get_lost(model)
    try:
        _refuse_parametrizations(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return torch.jit.script(model)
    except Exception as error:  # the compiler raises many kinds
        why = _why_not_scripted.get(type(model), "") if "Can't redefine method" in str(error) else ""
        why = _why_not_scripted[type(model)] = why or _first_line(error)
        not_scripted = error
    if method != "forward":
        raise RematError(
            f"the model can't be scripted ({why}), and of a traced one only forward is known: make the model fit "
            "torch.jit.script"
        ) from not_scripted
    try:
        traced = _trace(model, inputs)
    except Exception as error:
        raise RematError(
            f"the model can be neither scripted ({why}) nor traced ({_first_line(error)}): make it fit torch.jit.script, "
            "or wrap it into a module whose forward takes and gives tensors, which torch.jit.trace takes"
        ) from not_scripted
    _warn(
        f"the model was traced, as it can't be scripted ({why}). A traced model takes the branches, and is in the mode "
        f"({'training' if model.training else 'evaluation'}), that it was traced in: train() and eval() don't change "
        "its dropout and norms"
    )
    return traced


def warn_of_evaluation_mode(module: torch.jit.ScriptModule) -> None:
    if not module.training:
        _warn(
            "the model is in evaluation mode, so dropout is off and norms use their running statistics in the steps "
            "that are planned for: call train() first, unless it is to be trained like this"
        )


def _refuse_arrays(value: Any) -> None:
    if type(value).__module__ == "numpy":
        raise TypeError(f"the example inputs hold a numpy.{type(value).__name__}: give a tensor (torch.from_numpy)")
    if isinstance(value, (Mapping, tuple, list)):
        for entry in value.values() if isinstance(value, Mapping) else value:
            _refuse_arrays(entry)


def split_inputs(example_inputs: Any) -> tuple[Any, ...] | dict[str, Any]:
    """A tuple's elements are arguments, a mapping's entries are so by name, anything else is the only argument."""
    _refuse_arrays(example_inputs)
    if isinstance(example_inputs, tuple) and not hasattr(example_inputs, "_fields"):
        return example_inputs
    if isinstance(example_inputs, Mapping):
        return dict(example_inputs)
    return (example_inputs,)


def bind_inputs(
    module: torch.jit.ScriptModule, method: str, inputs: tuple[Any, ...] | dict[str, Any]
) -> tuple[Any, ...]:
    """The arguments of `method` in order, with its defaults between them."""
    if not module._c._has_method(method):
        known = [name for name in module._c._method_names() if not name.startswith(("remat_", "__"))]
        raise ValueError(f"the model has no method {method}; it has {', '.join(sorted(known)) or 'none'}")
    declared = module._c._get_method(method).schema.arguments[1:]
    takes = f"{method}({', '.join(f'{argument.name}: {argument.type.annotation_str}' for argument in declared)})"
    if isinstance(inputs, tuple):
        if len(inputs) > len(declared):
            raise TypeError(
                f"{takes} takes {len(declared)} arguments, {len(inputs)} example inputs are given; an argument that is "
                "a tuple goes into a tuple of its own: ((a, b),)"
            )
        given = dict(zip([argument.name for argument in declared], inputs, strict=False))
    else:
        given = inputs
        unknown = given.keys() - {argument.name for argument in declared}
        if unknown:
            raise TypeError(
                f"{takes} takes no argument {sorted(map(str, unknown))[0]!r}, which is among the example inputs; an "
                "argument that is a dict goes into a tuple: ({...},)"
            )
    missing = [a.name for a in declared if a.name not in given and not a.has_default_value()]
    if missing:
        raise TypeError(f"{takes}: no example input for {', '.join(missing)}; give a tuple, or a dict by name")
    last = max((i for i, argument in enumerate(declared) if argument.name in given), default=-1)
    return tuple(given.get(a.name, a.default_value if a.has_default_value() else None) for a in declared[: last + 1])


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from _tensors_in(entry)
    elif isinstance(value, (tuple, list)):
        for entry in value:
            yield from _tensors_in(entry)


def device_of(
    module: torch.jit.ScriptModule, inputs: tuple[Any, ...], wanted: torch.device | str | None
) -> torch.device:
    """The one device that parameters and buffers are on, and inputs with them."""
    homes: dict[torch.device, str] = {}
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        homes.setdefault(tensor.device, name)
    if len(homes) > 1:
        places = ", ".join(f"{name} on {device}" for device, name in homes.items())
        raise ValueError(f"the model is on several devices ({places}): move it to one")
    device = next(iter(homes), None)
    tensors = [(i, tensor) for i, value in enumerate(inputs) for tensor in _tensors_in(value)]
    if device is None:
        device = next((tensor.device for _, tensor in tensors), torch.device(wanted or "cpu"))
    if wanted is not None:
        asked = torch.device(wanted)
        if asked.type == "cuda" and asked.index is None:
            asked = torch.device("cuda", torch.cuda.current_device())
        if asked != device:
            raise ValueError(f"device is {asked}, the model is on {device}: move it first, as model.to({str(asked)!r})")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"the model is on {device}: only cpu and cuda are supported")
    for i, tensor in tensors:
        if tensor.device != device and tensor.dim() > 0:
            raise ValueError(f"example input {i} is on {tensor.device}, the model is on {device}: move it there")
    return device
