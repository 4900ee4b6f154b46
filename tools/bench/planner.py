#!/usr/bin/env python3
"""Time, gap and memory of the planner against the number of nodes.

Each case (graph, nodes, budget) is one process of planner_bench with a planner of its own. The gap is what a plan
recomputes above the bound that is proved for its budget, as a share of one forward."""

import argparse
import json
import os
import subprocess
import sys

import main_models

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.path.join(HERE, "../../bazel-bin/tools/bench/planner_bench")
GRAPHS = ("chain", "residual", "transformer")
SIZES = (500, 2500, 20000)
BUDGETS = ("80", "60", "40", "min")
LIMITS = ((1000, 2.0), (2500, 10.0), (20000, 60.0))  # up to so many nodes, seconds for one budget
MEMORY_LIMIT = 1e9  # bytes


def measure(graph: str, nodes: int, budget: str, timeout: float) -> dict:
    case = {"graph": graph, "asked_nodes": nodes, "asked_budget": budget}
    try:
        command = [BINARY, graph, str(nodes), budget]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {**case, "error": f"took more than {timeout:.0f} s"}
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["no message"])[-1]
        return {**case, "error": f"ended with {result.returncode}: {reason}"}
    return {**case, **json.loads(result.stdout)}


def seconds_limit(nodes: int) -> float:
    return next((seconds for most, seconds in LIMITS if nodes <= most), LIMITS[-1][1])


def bound_and_gap(case: dict) -> str:
    """Of the lowest peak nobody proves a bound: its budget is nothing."""
    if case["asked_budget"] == "min":
        return f"{'–':>7} {'–':>7}"
    return f"{case['lower_bound_share']:7.1%} {case['recompute_share'] - case['lower_bound_share']:7.1%}"


def reached(case: dict) -> bool:
    return case["asked_budget"] == "min" or case["predicted_peak"] <= case["budget"]


def problems(case: dict) -> list[str]:
    if "error" in case:
        return [case["error"]]
    found = []
    if case["seconds"] > seconds_limit(case["asked_nodes"]):
        found.append(f"{case['seconds']:.1f} s, at most {seconds_limit(case['asked_nodes']):.0f} s")
    if case["peak_memory"] >= MEMORY_LIMIT:
        found.append(f"{case['peak_memory'] / 1e6:.0f} MB of memory, less than {MEMORY_LIMIT / 1e6:.0f} MB")
    return found


HEADER = (
    f"{'graph':12} {'nodes':>6} {'storages':>8} {'budget':>6} {'peak':>7} {'recomputed':>10} {'bound':>7} {'gap':>7} "
    f"{'seconds':>8} {'set-up':>7} {'memory':>8}  result"
)


def line(case: dict) -> str:
    start = f"{case['graph']:12} {case.get('nodes', case['asked_nodes']):6}"
    bad = problems(case)
    verdict = f"FAIL: {'; '.join(bad)}" if bad else "pass"
    if "error" in case:
        return f"{start} {'':8} {case['asked_budget']:>6}  {verdict}"
    if case["asked_budget"] == "min":
        verdict += f", no peak is below {case['peak_bound'] / case['original_peak']:.1%}"
    if not reached(case):
        verdict += f", out of reach: nothing below {case['predicted_peak'] / case['original_peak']:.1%} was found"
    peak = case["predicted_peak"] / case["original_peak"]
    return (
        f"{start} {case['decisions']:8} {case['asked_budget']:>6} {peak:7.1%} "
        f"{case['recompute_share']:10.1%} {bound_and_gap(case)} {case['seconds']:8.2f} "
        f"{case['setup_seconds']:7.2f} {case['peak_memory'] / 1e6:5.0f} MB  {verdict}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without 20,000 nodes; writes planner.quick.json")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="per case (default: 600)")
    arguments = parser.parse_args()
    if not os.path.exists(BINARY):
        sys.exit("planner: planner_bench is not built; run tools/bench/planner.sh")
    context = main_models.run_context()
    cases = []
    print(HEADER)
    for nodes in SIZES[:2] if arguments.quick else SIZES:
        for graph in GRAPHS:
            for budget in BUDGETS:
                cases.append(measure(graph, nodes, budget, arguments.timeout))
                cases[-1]["problems"] = problems(cases[-1])
                print(line(cases[-1]), flush=True)
    os.makedirs(main_models.RESULTS, exist_ok=True)
    path = os.path.join(main_models.RESULTS, f"planner{'.quick' if arguments.quick else ''}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"context": context, "cases": cases}, file, indent=2)
        file.write("\n")
    failed = sum(bool(case["problems"]) for case in cases)
    print(f"{failed} of {len(cases)} cases failed" if failed else f"all {len(cases)} cases passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
