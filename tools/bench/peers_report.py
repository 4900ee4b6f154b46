"""What peers.py measured: summaries per system, a table per model, and the claims that it is checked against."""

LABELS = {
    "eager": "eager",
    "block": "checkpoint per block",
    "stage": "checkpoint per stage",
    "selective": "selective checkpoint",
}
SAME_LOSS = 1e-4  # relative: kernels may add up in another order
SLACK = 1.001  # of peaks that are to be the same: a loss's scalar, and the like


def label(system: str) -> str:
    if system.startswith("remat at "):
        return f"Remat at {label(system.removeprefix('remat at '))}'s peak"
    if system.startswith("remat "):
        return f"Remat {system.removeprefix('remat ')}"
    backend, separator, budget = system.partition(":")
    return f"{backend}, budget {budget}" if separator else LABELS[system]


def summarize(row: dict, eager: dict | None) -> dict:
    """The row with what its steps say; ratios and shares are to plain eager."""
    steps = row.get("steps")
    if "error" in row or not steps:
        return {**row, "label": label(row["system"]), "error": row.get("error", "not measured")}
    done = {
        **row,
        "label": label(row["system"]),
        "peak": max(step["peak"] for step in steps),
        "seconds": min(step["seconds"] for step in steps),
        "forward": min(step["forward"] for step in steps),
        "loss": steps[-1]["loss"],
    }
    timed = all("recomputed" in step for step in steps)
    if timed:
        done["recomputed"] = min(step["recomputed"] for step in steps)
    if eager is not None:
        done["peak_ratio"] = done["peak"] / eager["peak"]
        done["time_ratio"] = done["seconds"] / eager["seconds"]
        seconds = done["recomputed"] if timed else done["seconds"] - eager["seconds"]
        done["recomputed_share"] = seconds / eager["forward"]
        done["share_is_estimate"] = not timed
        if "plan" in row:
            done["predicted_ratio"] = row["plan"]["peak_bytes"]["predicted"] / eager["peak"]
    return done


def summaries(rows: list[dict]) -> list[dict]:
    first = summarize(rows[0], None)
    eager = None if "error" in first else first
    return [summarize(row, eager) for row in rows]


def lower_bound(row: dict) -> float | None:
    """Of the share that any plan for this budget recomputes."""
    bounds = row.get("bounds", {})
    for key in ("lower_bound_share", "lower_bound"):
        if key in bounds:
            return bounds[key]
    return row["plan"]["recompute_share"] - bounds["gap"] if "gap" in bounds else None


def cell(form: str, value: float | None) -> str:
    return "–" if value is None else form.format(value)


COLUMNS = (
    ("peak, MB", "{:.0f}", lambda row: row["peak"] / 1e6),
    ("peak", "{:.1%}", lambda row: row.get("peak_ratio")),
    ("predicted", "{:.1%}", lambda row: row.get("predicted_ratio")),
    ("step, s", "{:.3f}", lambda row: row["seconds"]),
    ("step", "{:.2f}x", lambda row: row.get("time_ratio")),
    ("recomputed", "{:.1%}", lambda row: row.get("recomputed_share")),
    ("planned", "{:.1%}", lambda row: row.get("plan", {}).get("recompute_share")),
    ("bound", "{:.1%}", lower_bound),
)
WIDTH = 48


def table(result: dict) -> str:
    lines = [f"{result['model']}, batch {result['batch']}"]
    lines.append(f"  {'system':{WIDTH}}" + "".join(f"{name:>12}" for name, _, _ in COLUMNS))
    for row in result["systems"]:
        start = f"  {row['label']:{WIDTH}}"
        if "error" in row:
            lines.append(f"{start}  FAILED: {row['error'].rpartition('error: ')[2]}")
            continue
        cells = [cell(form, value(row)) for _, form, value in COLUMNS]
        if row.get("share_is_estimate"):
            cells[5] = "~" + cells[5]
        lines.append(start + "".join(f"{text:>12}" for text in cells))
    return "\n".join(lines) + "\n"


class Claims:
    def __init__(self, result: dict):
        self.rows = {row["system"]: row for row in result["systems"]}
        self.checks: list[dict] = []

    def measured(self, *systems: str) -> list[dict] | None:
        rows = [self.rows.get(system, {"error": "not there"}) for system in systems]
        return None if any("recomputed_share" not in row or "error" in row for row in rows) else rows

    def check(self, what: str, systems: tuple[str, ...], judge) -> None:
        """`judge` gives (passed, figures) of the systems' rows; what could not be measured has failed."""
        rows = self.measured(*systems)
        passed, figures = judge(*rows) if rows else (False, "not measured")
        self.checks.append({"text": f"{what}: {figures}", "passed": bool(passed)})


def keeps_budget(row: dict) -> bool:
    return row["peak"] <= SLACK * row["plan"]["budget"]


def figures(row: dict) -> str:
    return f"peak {row['peak_ratio']:.1%}, recomputed {row['recomputed_share']:.1%}"


def at_half(row: dict):
    return keeps_budget(row) and row["recomputed_share"] <= 0.25, figures(row)


def reached(row: dict):
    return keeps_budget(row), figures(row)


def lower(mine: dict, peer: dict):
    return mine["peak"] < peer["peak"], f"{mine['peak_ratio']:.1%} against {peer['peak_ratio']:.1%}"


def no_dearer(mine: dict, peer: dict):
    passed = mine["peak"] <= SLACK * peer["peak"] and mine["recomputed_share"] <= peer["recomputed_share"]
    return passed, f"{figures(mine)} against {figures(peer)}"


def cheaper(mine: dict, peer: dict):
    passed = mine["peak"] <= SLACK * peer["peak"] and mine["recomputed_share"] < peer["recomputed_share"]
    return passed, f"{figures(mine)} against {figures(peer)}"


def same_loss(eager: dict, *others: dict):
    def difference(row: dict) -> float:
        return abs(row["loss"] - eager["loss"]) / abs(eager["loss"])

    worst = max(others, key=difference)
    return difference(worst) <= SAME_LOSS, f"differs by {difference(worst):.1e} at most, {worst['label']}"


def is_same_arithmetic(system: str) -> bool:
    """Compiled models draw dropout's numbers in another order."""
    return system.startswith("remat") or ":" not in system


def checks(result: dict) -> list[dict]:
    claims = Claims(result)
    if result["model"].startswith("resnet50"):
        claims.check("Remat 50% recomputes at most 25% of one forward", ("remat 50%",), at_half)
        claims.check("Remat 40% is reached", ("remat 40%",), reached)
        claims.check("Remat min is below checkpoint per block", ("remat min", "block"), lower)
    if result["model"].startswith(("vit", "gpt2")):
        what = "Remat at checkpoint per block's peak recomputes no more"
        claims.check(what, ("remat at block", "block"), no_dearer)
    what = "Remat at selective checkpoint's peak recomputes less"
    claims.check(what, ("remat at selective", "selective"), cheaper)
    others = tuple(name for name, row in claims.rows.items() if is_same_arithmetic(name) and "error" not in row)
    claims.check("loss is eager's", others, same_loss)
    return claims.checks
