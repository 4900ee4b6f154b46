"""The least recompute time within a budget, as a mixed-integer linear program solved to proven optimality.

As in Checkmate (Jain et al., MLSys 2020) the program says what is computed and what is alive by stage, here by
unpacking of a saved tensor, and memory is a row per point in time. What differs: autograd's nodes keep their order and
run once, so the only free variables are "kept" per storage, and a value is replayed at most once, at the first
unpacking that asks for it; bytes are the simulator's, with gradients, scratch, views and boundaries that a live handle
still needs. All other variables are formulas over the decisions (step_formulas.py), continuous: once the decisions are
integers, rows hold each at its value, on the side on which more or less would help. Memory rows are added as solutions
violate them: a solution that violates none is optimal, since each round's program is a relaxation.
"""

import functools
import math

import highspy
from step_formulas import TRUE

#: Of the instants that exceed the budget, so many worst ones get rows each round.
ROWS_A_ROUND = 6
#: A proof that takes the solver longer is an UnprovenError.
SECONDS_LIMIT = 60


class UnprovenError(RuntimeError):
    """The solver stopped without a proof."""


class PlanMilp:
    """One step (step_formulas.Step) under one budget in bytes."""

    def __init__(self, step, budget):
        self._step, self._budget, self._formulas = step, budget, step.formulas
        self._limited = set()  # instants that have a row
        self._column_of = {}  # by variable
        self._bounded = set()  # (variable, from above)
        self._highs = highspy.Highs()
        options = {"output_flag": False, "threads": 1, "random_seed": 1, "time_limit": float(SECONDS_LIMIT)}
        options |= {"mip_rel_gap": 0.0, "mip_abs_gap": 1e-7, "mip_feasibility_tolerance": 1e-7}
        for name, value in options.items():
            if self._highs.setOptionValue(name, value) != highspy.HighsStatus.kOk:
                raise ValueError(f"HiGHS takes no {name}={value}")
        for decision in step.formulas.decisions:
            self._highs.changeColIntegrality(self._column(decision), highspy.HighsVarType.kInteger)
        self._minimise_seconds()

    def _minimise_seconds(self):
        """The unit of the objective is a thousandth of the forward, so that tolerances mean something."""
        unit = sum(row["seconds"] for row in self._step.nodes) / 1000
        costs = {}
        for row, literal in zip(self._step.nodes, self._step.replayed_at_all()):
            if abs(literal) == TRUE:
                continue
            self._bound(literal)
            cost = row["seconds"] / unit
            costs[abs(literal)] = costs.get(abs(literal), 0.0) + (cost if literal > 0 else -cost)
        for variable, cost in costs.items():
            self._highs.changeColCost(self._column(variable), cost)

    def _column(self, variable):
        if variable not in self._column_of:
            self._column_of[variable] = self._highs.getNumCol()
            self._highs.addCol(0.0, 0.0, 1.0, 0, [], [])
        return self._column_of[variable]

    def _add_row(self, terms, most):
        """The sum of (factor, literal) is at most `most`. A negated literal is 1 less its variable."""
        factors = {}
        for factor, literal in terms:
            column = self._column(abs(literal))
            factors[column] = factors.get(column, 0.0) + (factor if literal > 0 else -factor)
            most -= factor if literal < 0 else 0
        self._highs.addRow(-math.inf, float(most), len(factors), list(factors), list(factors.values()))

    def _bound(self, literal, above=False):
        """Rows that keep a literal from being less than its formula says, or, with `above`, from being more.

        A literal that the program wants small needs the former only, one that it wants large the latter.
        """
        waiting = [(literal, above)]
        while waiting:
            literal, above = waiting.pop()
            variable, above = abs(literal), above == (literal > 0)
            if variable in self._formulas.decisions or (variable, above) in self._bounded:
                continue
            self._bounded.add((variable, above))
            terms = self._formulas.terms[variable]
            if above and len(terms) > 1:
                alternatives = [self._formulas.any_of([term]) for term in terms]
                self._add_row([(1, variable)] + [(-1, part) for part in alternatives], 0)
                waiting += [(part, True) for part in alternatives]
                continue
            for term in terms:
                if above:
                    for part in term:
                        self._add_row([(1, variable), (-1, part)], 0)
                else:
                    self._add_row([(1, part) for part in term] + [(-1, variable)], len(term) - 1)
                waiting += [(part, above) for part in term]

    def _limit(self, instant):
        self._limited.add(instant)
        constant, terms = self._step.memory(instant)
        for _, literal in terms:
            self._bound(literal)
        # In the sizes' common unit the right side can be rounded down.
        unit = functools.reduce(math.gcd, (size for size, _ in terms), 0) or 1
        self._add_row([(size // unit, literal) for size, literal in terms], (self._budget - constant) // unit)

    def solve(self):
        """The best plan, one bool for each candidate: whether it is kept; None where no plan is within the budget."""
        while True:
            self._highs.run()
            status = self._highs.getModelStatus()
            if status == highspy.HighsModelStatus.kInfeasible:
                return None
            if status != highspy.HighsModelStatus.kOptimal:
                raise UnprovenError(self._highs.modelStatusToString(status))
            values = self._highs.getSolution().col_value
            keep = [values[self._column(decision)] > 0.5 for decision in self._formulas.decisions]
            over = {at: size for at, size in self._step.bytes_by_instant(keep).items() if size > self._budget}
            if not over:
                return keep
            new = sorted(over.keys() - self._limited, key=lambda at: (over[at], at))[-ROWS_A_ROUND:]
            if not new:
                raise UnprovenError(f"the rows of {sorted(over)} do not say what they should")
            for instant in new:
                self._limit(instant)
