"""The planner against the least recompute time that any plan can have, "each value kept, or recomputed once".

Up to 12 decisions all plans are tried, and the MILP must agree: its rows cut off no plan within the budget and let none
above it pass. Up to about 100 the MILP is the reference. Its own plans are judged by the simulator that judges the
planner's. Seconds of recomputation; a gap is a share of one forward.
"""

import functools
import itertools
import json
import os
import random
import subprocess
from dataclasses import dataclass

import pytest
from planner_milp import PlanMilp
from step_formulas import Step

PLANNER_CASE = os.path.abspath("tests/passes/planner_case")
#: Of a forward: sums in another order, and the solver's tolerance.
TOLERANCE = 1e-7

#: Budgets in percent of the peak, by graph.
MODELS = {
    "uniformChain:40": (80, 60, 45, 30),
    "uniformChain:100": (80, 60, 45, 25),
    "convChain:10": (80, 65, 55, 45),
    "convChain:20": (80, 65, 55, 45),
    "convChain:30": (80, 65, 55, 45, 35),
    "bottleneckNet:1,1": (80, 60, 50, 45),
    "bottleneckNet:2,2,1": (80, 60, 50, 45, 40),
    "bottleneckNet:2,2,2": (80, 60, 50, 45, 40),
    "transformer:2": (80, 60, 50, 45),
    "transformer:3": (80, 60, 50, 45),
}
RANDOM = {f"randomProfile:{seed},{30 + seed * 37 % 80}": (90, 80, 70, 60) for seed in range(1, 17)}
# Where the planner is known to miss the optimum by much.
RANDOM |= {"randomProfile:101,72": (70,), "randomProfile:123,76": (56,)}
GRAPHS = MODELS | RANDOM


class Case:
    """A synthetic graph's model and the planner's plans, from a planner_case that stays to judge plans."""

    def __init__(self, graph, *percents):
        command = [PLANNER_CASE, graph, *map(str, percents)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        described = json.loads(self._process.stdout.readline())
        self.step = Step(described["model"])
        self.decisions = len(described["model"]["candidates"])
        self.forward_seconds, self.peak = described["forward_seconds"], described["peak"]
        self.plans = described["plans"]

    def _ask(self, keep, prefix=""):
        self._process.stdin.write(prefix + "".join("01"[kept] for kept in keep) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().split()

    def simulate(self, keep):
        """(peak in bytes, recompute seconds) of a plan."""
        peak, seconds = self._ask(keep)
        return int(peak), float(seconds)

    def trace(self, keep):
        """By instant, first the forward's nodes, then the backward's ops, the most bytes under a plan."""
        return [int(size) for size in self._ask(keep, "trace ")]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.communicate()


@dataclass
class Outcome:
    """One budget: the planner's plan, and the optimum's seconds or None where the budget can't be met."""

    plan: dict
    optimum: float | None
    tolerance: float
    forward_seconds: float

    @property
    def gap(self):
        return max(0.0, self.plan["seconds"] - self.optimum) / self.forward_seconds


@functools.cache
def outcomes(graph):
    with Case(graph, *GRAPHS[graph]) as case:
        assert 20 <= case.decisions <= 100
        found = []
        for plan in case.plans:
            keep = PlanMilp(case.step, plan["budget"]).solve()
            optimum = None
            if keep is not None:
                peak, optimum = case.simulate(keep)
                assert peak <= plan["budget"]
                assert optimum == pytest.approx(case.step.seconds(keep), rel=1e-9)
            found.append(Outcome(plan, optimum, TOLERANCE * case.forward_seconds, case.forward_seconds))
        return found


@pytest.mark.parametrize(
    "graph",
    ["convChain:5", "bottleneckNet:1,1", "transformer:1"] + [f"randomProfile:{ops},{ops}" for ops in range(8, 44, 3)],
)
def test_the_formulas_say_what_the_simulator_says(graph):
    chance = random.Random(1)
    with Case(graph) as case:
        for _ in range(15):
            share = chance.random()
            keep = [chance.random() < share for _ in range(case.decisions)]
            traced = [0] * (len(case.step.nodes) + len(case.step.ops))
            for instant, size in case.step.bytes_by_instant(keep).items():
                index = instant.node if instant.op < 0 else len(case.step.nodes) + instant.op
                traced[index] = max(traced[index], size)
            assert traced == case.trace(keep)
            assert case.step.seconds(keep) == pytest.approx(case.simulate(keep)[1], rel=1e-9)


def check_exhaustively(case):
    plans = [[bool(number >> i & 1) for i in range(case.decisions)] for number in range(1 << case.decisions)]
    results = [case.simulate(keep) for keep in plans]
    lowest = min(peak for peak, _ in results)
    assert PlanMilp(case.step, lowest - 1).solve() is None
    shares = [case.peak * percent // 100 for percent in (60, 70, 80, 90)]
    for budget in [lowest] + [share for share in shares if share > lowest]:
        peak, seconds = case.simulate(PlanMilp(case.step, budget).solve())
        assert peak <= budget
        assert seconds == pytest.approx(min(s for p, s in results if p <= budget), abs=1e-6)


def test_the_milp_finds_the_exhaustive_optimum():
    checked = 0
    for seed in itertools.count(1):
        if checked == 40:
            break
        with Case(f"randomProfile:{seed},{6 + seed % 14}") as case:
            if 4 <= case.decisions <= 12:
                check_exhaustively(case)
                checked += 1


@pytest.mark.parametrize("graph", ["randomProfile:1128,11", "randomProfile:1956,14", "randomProfile:2455,13"])
def test_a_replay_is_not_claimed_too_early(graph):
    """Here it would save memory to say that a replay has been when it has not."""
    with Case(graph) as case:
        check_exhaustively(case)


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_planner_against_the_optimum(graph):
    for outcome in outcomes(graph):
        plan = outcome.plan
        if outcome.optimum is None:
            assert plan["peak"] > plan["budget"], f"{plan}: the MILP cuts off a plan"
            continue
        assert plan["peak"] <= plan["budget"], plan
        assert plan["seconds"] >= outcome.optimum - outcome.tolerance, f"{plan}: the MILP's {outcome.optimum} is none"
        assert plan["bound_seconds"] <= outcome.optimum + outcome.tolerance, plan
        assert outcome.gap <= (0.01 if graph in MODELS else 0.04), plan


@pytest.mark.parametrize(
    ("graphs", "equal_share", "mean_gap"), [(MODELS, 0.97, 0.0005), (RANDOM, 0.8, 0.003)], ids=["models", "random"]
)
def test_most_plans_are_optimal(graphs, equal_share, mean_gap, capsys):
    met = [outcome for graph in graphs for outcome in outcomes(graph) if outcome.optimum is not None]
    equal = sum(outcome.plan["seconds"] <= outcome.optimum + outcome.tolerance for outcome in met)
    gaps = [outcome.gap for outcome in met]
    with capsys.disabled():
        print(f"\n{len(met)} plans, {equal} optimal; gap: mean {sum(gaps) / len(gaps):.4%}, most {max(gaps):.4%}")
    assert len(met) >= 2 * len(graphs)
    assert equal >= equal_share * len(met)
    assert sum(gaps) <= mean_gap * len(gaps)
