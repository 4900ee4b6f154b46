"""Results of main_models.py as a table, and what they are checked against."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Limits:
    """Upper bounds; None: not bounded."""

    measured: float = None  # measured peak / original peak
    share: float = None  # recomputed time / time of one forward, measured
    prediction: float = None  # |predicted peak / measured peak - 1|
    planning: float = None  # seconds


def original_peak(result):
    """The smaller of two measurements: they differ where TorchScript's optimisation changes what the original holds."""
    return min(result[verb]["peak_bytes"]["original"] for verb in ("optimize", "verify"))


def peak_ratio(result):
    return result["verify"]["peak_bytes"]["optimized"] / original_peak(result)


def prediction_ratio(result):
    return result["verify"]["peak_bytes"]["predicted"] / result["verify"]["peak_bytes"]["optimized"]


def time_ratio(result):
    return result["verify"]["step_seconds"]["optimized"] / result["verify"]["step_seconds"]["original"]


def measured_share(result):
    return result["verify"]["recompute_share_of_forward"]


def planning_seconds(result):
    return result["optimize"]["planning_and_rewriting_seconds"]


def bounded(result, name, value, limit, form):
    """One check, or none where nothing is bounded; a value that could not be had is a failure."""
    if limit is None:
        return []
    try:
        number = value(result)
    except KeyError:
        number = None
    text = "not measured" if number is None else form.format(number)
    return [(f"{name} {text}, at most {form.format(limit)}", number is not None and number <= limit)]


def checks(result, limits):
    """(text, passed) for each line that the result is checked against."""
    done = [(error, False) for error in result["errors"]]
    for mode, accepted in (("off", ("bitwise",)), ("on", ("bitwise", "close"))):
        parity = result.get(f"parity_{mode}")
        if parity:
            where = f" ({parity['first']})" if parity["first"] else ""
            passed = parity["worst"] in accepted and parity["next_draw"] == "bitwise"
            done.append((f"4 steps, TorchScript's optimisation {mode}: {parity['worst']}{where}", passed))
    if "strip" in result:
        done.append((f"stripped file dumps as the original: {'yes' if result['strip'] else 'no'}", result["strip"]))
    done += bounded(result, "measured peak", peak_ratio, limits.measured, "{:.1%}")
    done += bounded(result, "recomputed share", measured_share, limits.share, "{:.1%}")
    done += bounded(result, "prediction off by", lambda r: abs(prediction_ratio(r) - 1), limits.prediction, "{:.1%}")
    done += bounded(result, "planning and rewriting", planning_seconds, limits.planning, "{:.1f} s")
    return done


def cell(form, value, result):
    try:
        number = value(result)
    except KeyError:
        return "–"
    return "–" if number is None else form.format(number)


def megabytes(value):
    return lambda result: value(result) / 1e6


COLUMNS = (
    ("model", "{}", lambda r: r["model"]),
    ("budget", "{}", lambda r: r["budget"]),
    ("original, MB", "{:.0f}", megabytes(original_peak)),
    ("predicted, MB", "{:.0f}", megabytes(lambda r: r["verify"]["peak_bytes"]["predicted"])),
    ("measured, MB", "{:.0f}", megabytes(lambda r: r["verify"]["peak_bytes"]["optimized"])),
    ("measured / original", "{:.1%}", peak_ratio),
    ("predicted / measured", "{:.3f}", prediction_ratio),
    ("recomputed, predicted", "{:.1%}", lambda r: r["optimize"]["recompute_share"]),
    ("recomputed, measured", "{:.1%}", measured_share),
    ("step time", "{:.2f}x", time_ratio),
    ("planning, s", "{:.1f}", lambda r: r["optimize"]["planning_seconds"]),
    ("planning and rewriting, s", "{:.1f}", planning_seconds),
    ("parity, optimisation off", "{}", lambda r: r["parity_off"]["worst"]),
    ("parity, optimisation on", "{}", lambda r: r["parity_on"]["worst"]),
    ("commit", "{}", lambda r: r["commit"]),
    ("result", "{}", lambda r: "pass" if all(check["passed"] for check in r["checks"]) else "FAIL"),
)


def markdown(results):
    lines = ["| " + " | ".join(name for name, _, _ in COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for result in results:
        lines.append("| " + " | ".join(cell(form, value, result) for _, form, value in COLUMNS) + " |")
    return "\n".join(lines) + "\n"


def check_list(results):
    lines = []
    for result in results:
        for check in result["checks"]:
            lines.append(f"- {'pass' if check['passed'] else 'FAIL'}: {result['model']}, {result['budget']}: {check['text']}")
    return "\n".join(lines) + "\n"


def context_lines(context):
    # Each row has a commit of its own.
    return "".join(f"- {name}: {value}\n" for name, value in context.items() if name != "commit")
