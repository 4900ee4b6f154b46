#!/usr/bin/env python3
"""Prints what `remat-opt verify --json` measured as a table: quickstart_table.py VERIFY.json"""

import json
import sys


def megabytes(count):
    return f"{count / 1e6:.1f} MB"


def rows(report):
    peak, seconds = report["peak_bytes"], report["step_seconds"]
    kinds = ("outputs", "gradients", "buffers", "random_state")
    yield "", "original", "optimised", ""
    yield (
        "step peak, measured",
        megabytes(peak["original"]),
        megabytes(peak["optimized"]),
        f"{peak['optimized'] / peak['original']:.1%}",
    )
    yield "step peak, predicted", "", megabytes(peak["predicted"]), f"{peak['predicted'] / peak['original']:.1%}"
    yield (
        "step time",
        f"{seconds['original']:.2f} s",
        f"{seconds['optimized']:.2f} s",
        f"{seconds['optimized'] / seconds['original']:.2f}x",
    )
    yield "recomputed share of a forward", "", f"{report['recompute_share_of_forward']:.1%}", ""
    for kind in kinds:
        yield f"parity of {kind.replace('_', ' ')}", "", report["parity"][kind], ""
    if report["parity"]["max_difference"]:
        yield "largest relative difference", "", f"{report['parity']['max_difference']:.1e}", ""


def table(report):
    return "\n".join(f"{name:<32}{a:>12}{b:>12}{c:>9}".rstrip() for name, a, b, c in rows(report))


def main(arguments):
    if len(arguments) != 1:
        sys.exit(__doc__)
    try:
        with open(arguments[0], encoding="utf-8") as file:
            print(table(json.load(file)))
    except (OSError, ValueError) as error:
        sys.exit(f"quickstart_table: {arguments[0]}: {error}")
    except KeyError as error:
        sys.exit(f"quickstart_table: {arguments[0]} has no {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
