"""What one training step holds under a plan, as Boolean formulas over the plan's decisions.

A plan keeps a candidate storage or recomputes it once. Everything else about the step follows from these decisions:
which nodes are replayed by when, what is still needed, which bytes are alive. Here each such fact is a variable, the
least one for which its alternatives hold, so that a plan can be judged by evaluating them and a MILP can be made of
them (planner_milp.py). The semantics are those of passes/simulation_walk.cpp, written down from their definition.

A literal is a variable's number, negative where the variable is negated. Variable 1 is always true; the decisions
follow, in the model's order of candidates: true means kept. Bytes all over.
"""

import math
from dataclasses import dataclass

TRUE = 1
FALSE = -TRUE


class Formulas:
    """Variables in disjunctive normal form: `terms[v]` is a set of terms, a term a set of literals.

    A variable's terms hold only variables of lower numbers. Equal formulas are one variable.
    """

    def __init__(self, decisions):
        self.decisions = range(TRUE + 1, TRUE + 1 + decisions)
        self.terms = [None] * self.decisions.stop
        self._known = {}

    def any_of(self, terms):
        """The literal of "one of the terms holds"; a term is an iterable of literals, all of which hold."""
        clean = set()
        for term in terms:
            literals = frozenset(term) - {TRUE}
            if FALSE not in literals and not any(-literal in literals for literal in literals):
                clean.add(literals)
        least = frozenset(term for term in clean if not any(other < term for other in clean))
        if not least:
            return FALSE
        if frozenset() in least:
            return TRUE
        if len(least) == 1:
            (term,) = least
            if len(term) == 1:
                return next(iter(term))
        if least not in self._known:
            self._known[least] = len(self.terms)
            self.terms.append(least)
        return self._known[least]

    def evaluator(self, keep):
        """A function from literals to bools under the plan `keep`."""
        values = [None, True, *keep]

        def holds(literal):
            while len(values) <= abs(literal):
                values.append(any(all(map(holds, term)) for term in self.terms[len(values)]))
            return values[abs(literal)] == (literal > 0)

        return holds


@dataclass(frozen=True, order=True)
class Instant:
    """A point at which the step's memory is looked at.

    op -1: while `node` runs in the forward. Otherwise before the backward's op, or, with a node, when the unpacking
    that the op is replays that node.
    """

    op: int
    node: int = -1


class Step:
    """The formulas of one step. `model` is what planner_case prints of the simulator's model."""

    def __init__(self, model):
        self.nodes, self.values, self.storages = model["nodes"], model["values"], model["storages"]
        self.slots, self.ops = model["slots"], model["backward"]
        self.formulas = Formulas(len(model["candidates"]))
        self.keep = [TRUE] * len(self.storages)
        for decision, storage in zip(self.formulas.decisions, model["candidates"]):
            self.keep[storage] = decision
        self._tables()
        self._count_backward()
        self._memo = {}

    def _tables(self):
        def lists(count):
            return [[] for _ in range(count)]

        self.consumers, self.value_slots = lists(len(self.values)), lists(len(self.values))
        self.holders, self.storage_slots = lists(len(self.storages)), lists(len(self.storages))
        self.allocated_by = [-1] * len(self.storages)
        for node, row in enumerate(self.nodes):
            for value in row["inputs"]:
                self.consumers[value].append(node)
            for storage in row["allocs"]:
                self.allocated_by[storage] = node
        for value, row in enumerate(self.values):
            for storage in row["storages"]:
                self.holders[storage].append(value)
        for slot, row in enumerate(self.slots):
            self.storage_slots[row["storage"]].append(slot)
            if row["value"] >= 0:
                self.value_slots[row["value"]].append(slot)
        self.recomputed = []
        for row in self.values:
            kept = [-self.keep[storage] for storage in row["roots"]]
            self.recomputed.append(self.formulas.any_of([] if row["at_hand"] else [kept]))

    def _count_backward(self):
        """Positions in the orders of unpackings and releases; bytes that come and go in every plan."""
        self.unpacked_before, self.released_before, self.base = [], [], []
        self.unpacking = [math.inf] * len(self.slots)
        self.releasing = [math.inf] * len(self.slots)
        self.unpacks = []  # slots, in order
        self.in_use = [range(0)] * len(self.slots)  # ops before which an unpacked tensor is held
        open_slots, releases = [], 0
        base = sum(node["forward"]["delta"] for node in self.nodes) - sum(s["bytes"] for s in self.storages)
        for op, row in enumerate(self.ops):
            self.unpacked_before.append(len(self.unpacks))
            self.released_before.append(releases)
            self.base.append(base)
            base += row["before"]["delta"]
            slot = row["slot"]
            if row["kind"] == "unpack":
                if self.unpacking[slot] < math.inf or self.releasing[slot] < math.inf:
                    raise ValueError("a slot is unpacked twice, or after its release")
                self.unpacking[slot] = len(self.unpacks)
                self.unpacks.append(slot)
                self.in_use[slot] = range(op + 1, len(self.ops))
                open_slots.append(slot)
            elif row["kind"] == "apply_end":
                for unpacked in open_slots:
                    self.in_use[unpacked] = range(self.in_use[unpacked].start, op + 1)
                open_slots = []
            elif row["kind"] == "release":
                if slot in open_slots:
                    raise ValueError("a slot is released while it is in use")
                self.releasing[slot] = releases
                releases += 1
        for slot, row in enumerate(self.slots):
            asked_for = self.keep[row["storage"]] != TRUE and row["value"] >= 0
            if asked_for and self.unpacking[slot] == math.inf:
                raise ValueError("a slot that may be a handle is never unpacked")

    def _remember(self, key, make):
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    def _from_consumers(self, alternatives):
        """By node the literal of "a recomputable result has an alternative", from the last node to the first.

        alternatives(value, known): literals; known: by node, the literals of the later nodes.
        """
        known = [False] * len(self.nodes)
        for node in reversed(range(len(self.nodes))):
            known[node] = self.formulas.any_of(
                (self.recomputed[value], literal)
                for value in self.nodes[node]["outputs"]
                for literal in alternatives(value, known)
            )
        return known

    def handle(self, slot):
        return -self.keep[self.slots[slot]["storage"]]

    def needed(self, releases):
        """By node, whether a handle that is alive after so many releases leads to it."""

        def alternatives(value, known):
            live = (slot for slot in self.value_slots[value] if self.releasing[slot] >= releases)
            return [*map(self.handle, live), *(known[node] for node in self.consumers[value])]

        return self._remember(("needed", releases), lambda: self._from_consumers(alternatives))

    def replayed(self, unpacks):
        """By node, whether one of the first `unpacks` unpackings has replayed it."""

        def alternatives(value, known):
            asked = (slot for slot in self.value_slots[value] if self.unpacking[slot] < unpacks)
            return [*map(self.handle, asked), *(known[node] for node in self.consumers[value])]

        return self._remember(("replayed", unpacks), lambda: self._from_consumers(alternatives))

    def replayed_at_all(self):
        return self.replayed(len(self.unpacks))

    def _held_terms(self, storage, releases):
        if self.storages[storage]["escapes"]:
            yield ()
        for slot in self.storage_slots[storage]:
            if self.releasing[slot] >= releases:
                yield (self.keep[storage] if self.slots[slot]["value"] >= 0 else TRUE,)
        # As a boundary, which a live handle's replay starts from.
        needed = self.needed(releases)
        for value in self.holders[storage]:
            for slot in self.value_slots[value]:
                if self.releasing[slot] >= releases:
                    yield (-self.recomputed[value], self.handle(slot))
            for node in self.consumers[value]:
                yield (-self.recomputed[value], needed[node])

    def held(self, storage, releases):
        """Whether the forward's allocation is alive in the backward, after so many releases."""
        return self._remember(
            ("held", storage, releases), lambda: self.formulas.any_of(self._held_terms(storage, releases))
        )

    def _leads_to(self, end):
        """By node, whether recomputable results lead from it to node `end` or a later one."""

        def alternatives(value, known):
            return [TRUE if node >= end else known[node] for node in self.consumers[value]]

        return self._remember(("leads to", end), lambda: self._from_consumers(alternatives))

    def held_in_forward(self, storage, node):
        """Whether the allocation, made before the node, is alive while the node runs."""
        if self.storages[storage]["dies_after"] >= node:
            return TRUE
        # As long as recomputable results lead on, the frame can't know whether a replay will start from it.
        unknown = [
            (-self.recomputed[value], self._leads_to(node)[consumer])
            for value in self.holders[storage]
            for consumer in self.consumers[value]
        ]
        return self.formulas.any_of([*self._held_terms(storage, 0), *unknown])

    def _replica_terms(self, storage, op, node):
        unpacks = self.unpacked_before[op]
        before, after, at_all = self.replayed(unpacks), self.replayed(unpacks + 1), self.replayed_at_all()

        def done(other):
            return after[other] if other < node else before[other]

        comes_back = {-self.keep[storage], self.recomputed[self.storages[storage]["root"]]}
        for value in self.holders[storage]:
            row = self.values[value]
            condition = comes_back | {self.recomputed[value]}
            implied = set()  # by the replay of a node without other results
            if len(self.nodes[row["producer"]]["outputs"]) == 1:
                implied = {self.recomputed[value], *(-self.keep[root] for root in row["roots"])}
            made = done(row["producer"])
            for slot in self.value_slots[value]:
                if self.unpacking[slot] >= unpacks:
                    yield (condition | {self.handle(slot)}) - implied | {made}
            for consumer in self.consumers[value]:
                yield condition - implied | {made, at_all[consumer], -done(consumer)}
        for slot in self.storage_slots[storage]:
            if op in self.in_use[slot] and self.slots[slot]["value"] >= 0:
                yield comes_back | {self.recomputed[self.slots[slot]["value"]]}

    def replica(self, storage, op, node):
        """Whether a replay's allocation of the storage is alive at an instant of the backward."""
        if self.keep[storage] == TRUE:
            return FALSE
        return self.formulas.any_of(self._replica_terms(storage, op, node))

    def memory(self, instant):
        """The step's bytes at the instant: a constant and (bytes, literal) terms.

        At an instant within an unpacking the last term is what the replay itself takes on top, if it is replayed
        there. Where it isn't, the sum is no more than the memory at another instant of the same unpacking, so no plan
        within a budget exceeds it.
        """
        return self._remember(instant, lambda: self._memory(instant.op, instant.node))

    def _memory(self, op, node):
        terms = []
        if op < 0:
            constant = sum(row["forward"]["delta"] for row in self.nodes[:node]) + self.nodes[node]["forward"]["peak"]
            for storage, row in enumerate(self.storages):
                if self.allocated_by[storage] < node:
                    constant -= row["bytes"]
                    terms.append((row["bytes"], self.held_in_forward(storage, node)))
        else:
            before = self.ops[op]["before"]
            constant = self.base[op] + (before["peak"] if node < 0 else before["delta"])
            for storage, row in enumerate(self.storages):
                terms.append((row["bytes"], self.held(storage, self.released_before[op])))
                terms.append((row["bytes"], self.replica(storage, op, node)))
            if node >= 0:
                unpacks = self.unpacked_before[op]
                now = (self.replayed(unpacks + 1)[node], -self.replayed(unpacks)[node])
                terms.append((self.nodes[node]["replay_peak"], self.formulas.any_of([now])))
        constant += sum(size for size, literal in terms if literal == TRUE)
        return constant, [(size, literal) for size, literal in terms if abs(literal) != TRUE and size]

    def instants(self, holds):
        """All instants of the step under the plan that `holds` (Formulas.evaluator) judges."""
        yield from (Instant(-1, node) for node in range(len(self.nodes)))
        yield from (Instant(op) for op in range(len(self.ops)))
        at = [math.inf] * len(self.nodes)
        for node in reversed(range(len(self.nodes))):
            for value in self.nodes[node]["outputs"]:
                if not holds(self.recomputed[value]):
                    continue
                handles = [self.unpacking[slot] for slot in self.value_slots[value] if holds(self.handle(slot))]
                at[node] = min([at[node], *handles, *(at[consumer] for consumer in self.consumers[value])])
        op_of = [op for op, row in enumerate(self.ops) if row["kind"] == "unpack"]
        yield from (Instant(op_of[first], node) for node, first in enumerate(at) if first < math.inf)

    def bytes_by_instant(self, keep):
        """By instant the step's bytes under the plan `keep`, one bool for each candidate."""
        holds = self.formulas.evaluator(keep)
        found = {}
        for instant in self.instants(holds):
            constant, terms = self.memory(instant)
            found[instant] = constant + sum(size for size, literal in terms if holds(literal))
        return found

    def seconds(self, keep):
        """Recompute seconds under the plan."""
        holds = self.formulas.evaluator(keep)
        return sum(row["seconds"] for row, literal in zip(self.nodes, self.replayed_at_all()) if holds(literal))
