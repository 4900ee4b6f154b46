"""The functions of the package."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from . import _distributed
from ._errors import RematError
from ._library import call
from ._module import OptimizedModule, optimized, result_of, take_buffer_kinds
from ._results import PlanCurve, Result
from ._scripting import bind_inputs, device_of, script_module_of, split_inputs, warn_of_evaluation_mode

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_ANNOTATIONS = "remat.json"  # the entry of an optimised file
_AUTOCAST = {torch.bfloat16: "bfloat16", torch.float16: "float16"}


def _names(option: str, value: str | Iterable[str]) -> list[str]:
    names = [value] if isinstance(value, str) else list(value)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{option} holds a {type(name).__name__}: give strings")
    return names


def _budget_text(budget: str | int | float) -> str:
    if isinstance(budget, bool) or not isinstance(budget, (str, int, float)):
        raise TypeError(f"budget is a {type(budget).__name__}: give '50%', '900MB', 'min', bytes, or a share as 0.5")
    if isinstance(budget, str):
        if not budget.strip():
            raise ValueError("budget is empty: give '50%', '900MB' or 'min', or leave it out for 50 %")
        return budget
    if isinstance(budget, float):
        if not 0 < budget <= 1:
            raise ValueError(f"budget {budget} is no share of the original's peak: give one above 0, up to 1, or bytes")
        return f"{100 * budget:.10f}%"
    if budget <= 0:
        raise ValueError(f"budget {budget} is no memory at all")
    return f"{budget}B"


def _share(option: str, value: float | str) -> float:
    if isinstance(value, str):
        number = value.strip().removesuffix("%")
        try:
            share = float(number) / 100
        except ValueError:
            share = -1.0
        if not 0 <= share < float("inf") or not value.strip().endswith("%"):
            raise ValueError(f"{option} {value!r} is no percentage: give '20%', or a share as 0.2")
        return share
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{option} is a {type(value).__name__}: give '20%', or a share as 0.2")
    if not 0 <= value < float("inf"):
        raise ValueError(f"{option} {value} is no share: give one as 0.2")
    return float(value)


def _json_text(option: str, value: str | os.PathLike[str]) -> str:
    """The text of a plan or profile, or of the file that holds it."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return value
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{option} is a {type(value).__name__}: give its text, or the path of its file")
    if not Path(value).is_file():
        raise FileNotFoundError(f"{option} {os.fspath(value)!r} is no file")
    return Path(value).read_text(encoding="utf-8")


def _step_options(
    method: str, loss: str | None, autocast: torch.dtype | str | None, deterministic: bool, allow_ops: Iterable[str]
) -> dict[str, Any]:
    if loss not in (None, "cross_entropy"):
        raise ValueError(f"loss {loss!r} is unknown: give 'cross_entropy', or leave it out")
    dtype = _AUTOCAST.get(autocast, "") if isinstance(autocast, torch.dtype) else autocast or ""
    if (autocast is not None and not dtype) or dtype not in ("", *_AUTOCAST.values()):
        raise ValueError(f"autocast {autocast} is unknown: give torch.bfloat16 or torch.float16")
    operators = _names("allow_ops", allow_ops)
    for name in operators:
        if not all(name.partition("::")[::2]):
            raise ValueError(f"allow_ops: {name!r} is no operator's name: say 'my::op'")
    return {
        "method": method,
        "loss": loss or "",
        "autocast": dtype,
        "deterministic": bool(deterministic),
        "allow_ops": operators,
    }


def _planning_options(keep: str | Iterable[str], recompute: str | Iterable[str], reserve: int | str) -> dict[str, Any]:
    if isinstance(reserve, bool) or not isinstance(reserve, (int, str)):
        raise TypeError(f"reserve is a {type(reserve).__name__}: give bytes, or a text as '200MB'")
    if isinstance(reserve, int) and reserve < 0:
        raise ValueError(f"reserve {reserve} is negative")
    return {
        "keep": _names("keep", keep),
        "recompute": _names("recompute", recompute),
        "reserve": reserve if isinstance(reserve, str) else f"{reserve}B",
    }


def _bound(
    budget: str | int | float | None, max_overhead: float | str | None, plan: str | os.PathLike[str] | None
) -> dict[str, Any]:
    """What to plan for."""
    bounds = {"budget": budget, "max_overhead": max_overhead, "plan": plan}
    given = [name for name, value in bounds.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} are given: one of them says what to plan for")
    if plan is not None:
        return {"plan": _json_text("plan", plan)}
    if max_overhead is not None:
        return {"max_overhead": _share("max_overhead", max_overhead)}
    return {"budget": _budget_text("50%" if budget is None else budget)}


def optimize(
    model: torch.nn.Module,
    example_inputs: Any,
    budget: str | int | float | None = None,
    *,
    method: str = "forward",
    loss: str | None = None,
    autocast: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    keep: str | Iterable[str] = (),
    recompute: str | Iterable[str] = (),
    allow_ops: str | Iterable[str] = (),
    reserve: int | str = 0,
    max_overhead: float | str | None = None,
    deterministic: bool = False,
    measure: bool = True,
    progress: Callable[[str], object] | None = None,
    plan: str | os.PathLike[str] | None = None,
    profile: str | os.PathLike[str] | None = None,
    process_group: ProcessGroup | None = None,
) -> OptimizedModule:
    """A module that trains like `model`, in as much memory as `budget` says, with the same gradients.

    It shares the model's parameters and buffers, under the same names. The model stays as it was: its modes, hooks,
    gradients, buffers and the random state, too. Some training steps of it are run on `example_inputs`.

    Args:
        model: a ScriptModule, or an `nn.Module`, which is scripted, or traced with a warning if it can't be.
        example_inputs: the method's argument; a tuple of them; or a dict of them by name. Sizes and dtypes are what is
            planned for.
        budget: of a step's peak: "50%" of the original's (or 0.5), "900MB", "2GiB", a number of bytes, or "min", as
            low as is reachable. 50 % if neither `max_overhead` nor `plan` is given.
        method: the method that is trained.
        loss: "cross_entropy" puts that loss behind the model in the steps that are run. Without it they end at the
            output, and a loss takes memory of its own: see `reserve`.
        autocast: the steps run under autocast of this dtype.
        device: where the model has to be; it is not moved.
        keep: globs of module paths: what these modules make is kept.
        recompute: globs of module paths: what these modules make is recomputed, as far as it may be.
        allow_ops: unknown operators that may be run again.
        reserve: bytes, or a text as "200MB", set aside from the budget.
        max_overhead: in place of a budget: as little memory as this share of predicted extra time of a step allows.
        deterministic: the steps run by deterministic algorithms.
        measure: measure a step of the result, and plan again if it is above the budget.
        progress: called with a line of what is going on, from this thread; what it raises ends the work.
        plan: a plan, or the path of one that `save_plan` or `remat-opt --save-plan` wrote, in place of a budget.
        profile: what was measured of this model before (`Result.profile`), or the path of such a file.
        process_group: the processes that train together, each of which calls this. The first one plans, and all take
            its plan. An error of one of them is an error of all. `dist.group.WORLD` is None, which is no group, until
            `dist.init_process_group`.

    Raises:
        BudgetError: the budget can't be met.
        RematError: the model is refused, or can't be scripted or traced.
        TypeError, ValueError: an argument is wrong.
    """

    # An error of one process is one of all: whatever can be wrong is found in `run`.
    def run(operator: str, changes: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        options = _step_options(method, loss, autocast, deterministic, allow_ops)
        options |= _planning_options(keep, recompute, reserve)
        options |= _bound(budget, max_overhead, plan)
        if plan is not None and (options["keep"] or options["recompute"]):
            raise ValueError("keep and recompute make a plan: leave them out beside plan")
        options["measure"] = bool(measure)
        if profile is not None:
            options["profile"] = _json_text("profile", profile)
        inputs = split_inputs(example_inputs)
        script = script_module_of(model, inputs, method)
        arguments = bind_inputs(script, method, inputs)
        warn_of_evaluation_mode(script)
        options["device"] = str(device_of(script, arguments, device))
        return call(operator, script, arguments, options | dict(changes), progress)

    made, record = run("_optimize", {}) if process_group is None else _distributed.optimize(process_group, run)
    module = optimized(made, Result._from(record))
    take_buffer_kinds(module, model)
    return module


def plan(
    model: torch.nn.Module,
    example_inputs: Any,
    budgets: Iterable[str | int | float] | None = None,
    *,
    method: str = "forward",
    loss: str | None = None,
    autocast: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    keep: str | Iterable[str] = (),
    recompute: str | Iterable[str] = (),
    allow_ops: str | Iterable[str] = (),
    reserve: int | str = 0,
    deterministic: bool = False,
    progress: Callable[[str], object] | None = None,
    profile: str | os.PathLike[str] | None = None,
) -> PlanCurve:
    """What each budget would cost in time; shown as a table. The model stays as it was.

    Args:
        budgets: as `optimize` takes one; without, 100 %, 90 %, … 10 % and the lowest reachable peak.

    The other arguments and the errors are those of `optimize`; budgets that can't be met are in
    `PlanCurve.out_of_reach`.
    """
    options = _step_options(method, loss, autocast, deterministic, allow_ops)
    options |= _planning_options(keep, recompute, reserve)
    if budgets is not None:
        wanted = [budgets] if isinstance(budgets, (str, int, float)) else list(budgets)
        if not wanted:
            raise ValueError("budgets is empty: leave it out for a curve of ten")
        options["budgets"] = [_budget_text(budget) for budget in wanted]
    if profile is not None:
        options["profile"] = _json_text("profile", profile)
    inputs = split_inputs(example_inputs)
    script = script_module_of(model, inputs, method)
    arguments = bind_inputs(script, method, inputs)
    warn_of_evaluation_mode(script)
    options["device"] = str(device_of(script, arguments, device))
    return PlanCurve._from(call("_plan", script, arguments, options, progress)[1])


def load(
    f: str | os.PathLike[str] | BinaryIO, map_location: torch.device | str | None = None
) -> torch.jit.ScriptModule:
    """A module that `save`, `torch.jit.save` or `remat-opt` wrote, as `torch.jit.load` reads it.

    Raises:
        RematError: the file can't be read.
    """
    if isinstance(f, (str, os.PathLike)) and not Path(f).is_file():
        raise FileNotFoundError(f"{os.fspath(f)}: no such file")
    extra = {_ANNOTATIONS: ""}
    try:
        module = torch.jit.load(f, map_location, _extra_files=extra)  # type: ignore[no-untyped-call]
    except (RuntimeError, ValueError) as error:
        name = os.fspath(f) if isinstance(f, (str, os.PathLike)) else "the file"
        raise RematError(f"{name}: can't be loaded: {str(error).strip().splitlines()[0]}") from error
    text = extra[_ANNOTATIONS]
    if not text:
        return module  # type: ignore[no-any-return]
    text = text.decode() if isinstance(text, bytes) else text
    return optimized(module._c, Result._from_annotations(text, json.loads(text)))


def save(module: OptimizedModule, f: str | os.PathLike[str] | BinaryIO) -> None:
    """Writes a module that `optimize` gave, with what is known of it: `load`, `remat-opt` and any program that has the
    runtime library read it. A file of that name is replaced by the whole new one or stays as it was."""
    result = result_of(module)
    extra_files = {_ANNOTATIONS: result.annotations} if result.changed else {}
    if not isinstance(f, (str, os.PathLike)):
        torch.jit.save(module, f, _extra_files=extra_files)
        return
    # Not to the file: where a disk is full, torch's writer ends the process.
    archive = io.BytesIO()
    torch.jit.save(module, archive, _extra_files=extra_files)
    _replace(f, archive.getvalue())


def save_plan(module: torch.nn.Module, path: str | os.PathLike[str]) -> None:
    """Writes the plan of a module that `optimize` gave, for `optimize(plan=path)` and `remat-opt optimize --plan`."""
    text = result_of(module).plan
    if not text:
        raise RematError("the plan of a file is not known: keep it where the model is optimised")
    _replace(path, text.encode())


def _replace(path: str | os.PathLike[str], content: bytes) -> None:
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{os.fspath(path)}: there is no folder {target.parent}")
    if target.exists() and not target.is_file():  # a device or a pipe, or an error
        target.write_bytes(content)
        return
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(content)
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
