"""One plan for all processes that train together."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist

from ._errors import BudgetError, RematError

_Run = Callable[[str, Mapping[str, Any]], tuple[Any, dict[str, Any]]]


def _without_budget(plan: str) -> str:
    """The first process held it to its budget; the others are not to judge again."""
    decisions = json.loads(plan)
    decisions["budget"] = 0
    return json.dumps(decisions)


def _from_first(record: Mapping[str, Any]) -> dict[str, Any]:
    """Options that make of the same model what the first process made, without running it."""
    return {
        "plan": _without_budget(record["plan"]),
        "profile": record["profile"],
        "device": json.loads(record["profile"])["device"],
        "measure": False,
        "budget": "",
        "max_overhead": -1,
        "keep": [],
        "recompute": [],
        "reserve": "",
    }


def _as_error(what: Mapping[str, Any]) -> Exception:
    message = f"rank 0 of the process group could not optimize the model: {what['message']}"
    return BudgetError(message, what["minimum_peak"]) if "minimum_peak" in what else RematError(message)


def _describe(error: BaseException) -> dict[str, Any]:
    named = str(error) if isinstance(error, RematError) else f"{type(error).__name__}: {error}"
    more = {"minimum_peak": error.minimum_peak} if isinstance(error, BudgetError) else {}
    return {"message": named, **more}


def _follow(record: Mapping[str, Any], run: _Run) -> tuple[Any, str]:
    """This process's module as the first one has made its own, and the hash of what that was made from."""
    if record["changed"]:
        made, own = run("_optimize", _from_first(record))
        return made, own["plan_hash"]
    made, own = run("_leave", {})
    return made, own["graph_hash"]


def _disagreement(answers: list[dict[str, str]]) -> str:
    """What is wrong, by rank; empty: all have the same plan for the same graph."""
    lines = []
    for rank, answer in enumerate(answers):
        if "error" in answer:
            lines.append(f"rank {rank}: {answer['error']}")
        elif answer != answers[0]:
            lines.append(f"rank {rank}: has {answer['hash']} where rank 0 has {answers[0]['hash']}")
    return "; ".join(lines)


def optimize(group: dist.ProcessGroup, run: _Run) -> tuple[Any, dict[str, Any]]:
    """What `run("_optimize", {})` gives on the first process of `group`, and on all others a module by its plan, with
    the first one's record. Every process has to call this.

    Raises on every process what the first one raises, and RematError that names the ranks where the plan doesn't fit.
    """
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError("this process is no member of process_group")
    made: Any = None
    failed: BaseException | None = None
    told: list[Any] = [None]
    if rank == 0:
        try:
            made, record = run("_optimize", {})
            told = [{"record": record}]
        except BaseException as error:  # the others wait
            failed = error
            told = [{"error": _describe(error)}]
    dist.broadcast_object_list(told, src=dist.get_global_rank(group, 0), group=group)
    if failed is not None:
        raise failed
    if "error" in told[0]:
        raise _as_error(told[0]["error"])

    record = told[0]["record"]
    answer = {"hash": record["plan_hash"] if record["changed"] else json.loads(record["plan"])["graph_hash"]}
    if rank != 0:
        try:
            made, found = _follow(record, run)
            answer = {"hash": found}
        except BaseException as error:  # the others wait
            failed = error
            answer = {"error": _describe(error)["message"]}
    answers: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(answers, answer, group=group)
    if failed is not None and not isinstance(failed, Exception):
        raise failed
    if wrong := _disagreement(answers):
        raise RematError(f"the processes don't have the same model and plan: {wrong}") from failed
    return made, record
