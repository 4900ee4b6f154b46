"""What is known of a model, as Python objects."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


def format_bytes(count: int) -> str:
    """`3.2 MB`, `1.41 GB`: powers of ten."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    if unit == "B":
        return f"{count} B"
    decimals = 2 if unit in ("GB", "TB") and value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f} {unit}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


@dataclass(frozen=True)
class Remark:
    """Why what an operator makes is kept, although recomputing it might save memory."""

    reason: str  #: `in-place-write`, `random`, ...: the README has a table of them
    op: str  #: `aten::relu_`; may be empty
    module_path: str  #: `layer2.0.relu`; may be empty
    file: str  #: of the model's source, as TorchScript knows it; may be empty
    line: int  #: in that file; 0: not known
    text: str  #: `aten::relu_ writes its input`
    remedy: str  #: what can be done about it
    saved_bytes: int  #: what is kept for it; 0: not known, or nothing

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: " if self.file else ""
        where += f"{self.module_path}: " if self.module_path else ""
        saved = f" (saved {format_bytes(self.saved_bytes)})" if self.saved_bytes else ""
        return f"{where}kept [{self.reason}]: {self.text}{saved}"

    @staticmethod
    def _from(record: Mapping[str, Any]) -> Remark:
        file, _, line = record["source"].rpartition(":")
        return Remark(
            reason=record["reason"],
            op=record["op"],
            module_path=record["module_path"],
            file=file,
            line=int(line) if line.isdigit() else 0,
            text=record["explanation"],
            remedy=record["remedy"],
            saved_bytes=record["saved_bytes"],
        )


def _remarks(records: Iterable[Mapping[str, Any]]) -> tuple[Remark, ...]:
    return tuple(sorted((Remark._from(record) for record in records), key=lambda remark: -remark.saved_bytes))


@dataclass(frozen=True)
class Result:
    """What `optimize` did, and what it expects of a training step. Bytes are of the step's peak: the most that tensors
    of one step (forward, loss, backward) hold at once, above what was alive before it."""

    changed: bool  #: False: there was nothing to gain, the module is the model as it was
    reason_unchanged: str
    method: str
    inputs: str  #: `Float[16, 3, 224, 224]`: what was planned for
    device: str
    loss: str
    original_peak: int  #: measured
    budget: int
    predicted_peak: int
    measured_peak: int | None  #: of a step of the result; None: not measured
    recompute_share: float  #: predicted time of recomputation over that of one forward
    lower_bound_share: float  #: no plan within the budget recomputes less
    extra_time_share: float | None  #: predicted time of recomputation over that of a step; None: not known (a file)
    kept: int | None  #: storages that stay for the backward; None: not known (a file)
    recomputed: int | None  #: storages that a backward makes again
    remarks: tuple[Remark, ...] = field(repr=False)  #: the largest first
    plan_hash: str
    plan: str = field(repr=False)  #: JSON, for `optimize(plan=...)`; empty: not known (a file)
    profile: str = field(repr=False)  #: JSON, what was measured of the original
    before_ir: str = field(repr=False)
    after_ir: str = field(repr=False)
    annotations: str = field(repr=False)  #: JSON, what a file says of itself

    def __str__(self) -> str:
        def row(name: str, count: int) -> str:
            share = _percent(count / self.original_peak if self.original_peak else 0)
            return f"  {name:<16}{format_bytes(count):>12}  {share:>8}"

        rows = [f"{self.method}({self.inputs}) on {self.device}", row("original peak", self.original_peak)]
        if not self.changed:
            return "\n".join([*rows, f"nothing to gain: {self.reason_unchanged}"])
        rows += [row("budget", self.budget), row("predicted peak", self.predicted_peak)]
        if self.measured_peak is not None:
            rows.append(row("measured peak", self.measured_peak))
        rows.append(f"  {'recomputed':<16}{_percent(self.recompute_share):>12}  of one forward, predicted")
        if self.extra_time_share is not None:
            rows.append(f"  {'extra time':<16}{_percent(self.extra_time_share):>12}  of the step, predicted")
        return "\n".join(rows)

    @staticmethod
    def _from(record: Mapping[str, Any]) -> Result:
        peaks = record["peak_bytes"]
        return Result(
            changed=record["changed"],
            reason_unchanged=record.get("reason_unchanged", ""),
            method=record["method"],
            inputs=record["inputs"],
            device=record["device"],
            loss=record["loss"],
            original_peak=peaks["original"],
            budget=record["budget"],
            predicted_peak=peaks["predicted"],
            measured_peak=peaks["measured"] or None,
            recompute_share=record["recompute_share"] if record["changed"] else 0.0,
            lower_bound_share=record["lower_bound_share"] if record["changed"] else 0.0,
            extra_time_share=record["extra_time_share"],
            kept=record["kept"],
            recomputed=record["recomputed"] if record["changed"] else 0,
            remarks=_remarks(record["remarks"]),
            plan_hash=record["plan_hash"],
            plan=record["plan"],
            profile=record["profile"],
            before_ir=record["before_ir"],
            after_ir=record["after_ir"],
            annotations=record["annotations"],
        )

    @staticmethod
    def _from_annotations(text: str, record: Mapping[str, Any]) -> Result:
        return Result(
            changed=True,
            reason_unchanged="",
            method=record["method"],
            inputs=record["inputs"],
            device=record["device"],
            loss=record["loss"],
            original_peak=record["original_peak"],
            budget=record["budget"],
            predicted_peak=record["predicted_peak"],
            measured_peak=None,
            recompute_share=record["recompute_share"],
            lower_bound_share=0.0,
            extra_time_share=None,
            kept=None,
            recomputed=None,
            remarks=(),
            plan_hash=record.get("plan_hash", ""),
            plan="",
            profile="",
            before_ir="",
            after_ir="",
            annotations=text,
        )


@dataclass(frozen=True)
class PlanPoint:
    """The plan for one budget, predicted."""

    budget: int  #: bytes
    predicted_peak: int  #: bytes
    recompute_share: float  #: of one forward's time
    recompute_seconds: float
    lower_bound_share: float  #: no plan within the budget recomputes less
    gap: float  #: recompute_share beyond that
    kept: int  #: storages
    recomputed: int  #: storages
    planning_seconds: float


@dataclass(frozen=True, repr=False)
class PlanCurve:
    """What each budget costs in time. Shown as a table."""

    original_peak: int  #: bytes, measured
    minimum_peak: int  #: bytes, the lowest that was found, predicted
    lower_bound_peak: int  #: bytes; no plan's peak is lower
    out_of_reach: tuple[int, ...]  #: budgets in bytes that no plan was found for
    points: tuple[PlanPoint, ...]
    remarks: tuple[Remark, ...]

    _HEAD = ("budget", "", "predicted peak", "", "recomputed", "at least", "kept", "recomputed")

    def _rows(self) -> list[tuple[str, ...]]:
        def share(count: int) -> str:
            return _percent(count / self.original_peak if self.original_peak else 0)

        rows: list[tuple[int, tuple[str, ...]]] = [
            (
                point.budget,
                (
                    ("min " if point.budget == self.minimum_peak else "") + format_bytes(point.budget),
                    share(point.budget),
                    format_bytes(point.predicted_peak),
                    share(point.predicted_peak),
                    _percent(point.recompute_share),
                    _percent(point.lower_bound_share),
                    str(point.kept),
                    str(point.recomputed),
                ),
            )
            for point in self.points
        ]
        rows += [
            (budget, (format_bytes(budget), share(budget), "out of reach", *[""] * 5)) for budget in self.out_of_reach
        ]
        return [row for _, row in sorted(rows, key=lambda entry: -entry[0])]

    def _title(self) -> str:
        return (
            f"original peak {format_bytes(self.original_peak)}, measured; lowest reachable "
            f"{format_bytes(self.minimum_peak)}, predicted; recomputed: of one forward's time, and storages"
        )

    def __repr__(self) -> str:
        table = [self._HEAD, *self._rows()]
        widths = [max(len(row[i]) for row in table) for i in range(len(self._HEAD))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
        return "\n".join([self._title(), *lines])

    def _repr_html_(self) -> str:
        def row(kind: str, cells: Iterable[str]) -> str:
            return "<tr>" + "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in cells) + "</tr>"

        body = "".join(row("td", cells) for cells in self._rows())
        return f"<table><caption>{html.escape(self._title())}</caption>{row('th', self._HEAD)}{body}</table>"

    @staticmethod
    def _from(record: Mapping[str, Any]) -> PlanCurve:
        distinct = {point["budget"]: PlanPoint(**point) for point in record["points"]}
        return PlanCurve(
            original_peak=record["original_peak"],
            minimum_peak=record["minimum_peak"],
            lower_bound_peak=record["lower_bound_peak"],
            out_of_reach=tuple(record["out_of_reach"]),
            points=tuple(distinct.values()),
            remarks=_remarks(record["remarks"]),
        )
