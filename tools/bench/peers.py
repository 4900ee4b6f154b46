#!/usr/bin/env python3
"""Remat at the peers' own memory points, side by side with them.

Per model: eager PyTorch, plain and with checkpoints per block, per stage, and selective (matrix products, convolutions
and attention saved), and compiled for AOTAutograd's activation_memory_budget; each in a process of its own. Remat is
planned for the peak that each of them was measured at, and for 50 %, 40 % and as low as it gets, from one profile, and
the saved files are trained in the same kind of process. All of them take turns; memory is counted by one allocator,
and glibc keeps freed memory in all of them (peers_process.py says why).

peak        most bytes that tensors of a step held, above what was alive before it: largest of all timed steps
step        forward, cross-entropy loss and backward: fastest
recomputed  seconds of forwards, or of Remat's operators, that ran again during the backward, smallest, over the fastest
            forward of plain eager. Of AOTAutograd an estimate: what the step takes longer than eager's."""

import argparse
import dataclasses
import json
import os
import sys
import time

import main_models
import models
import peers_plot
import peers_report
import remat_opt
from peers_process import Worker, WorkerFailed

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKPOINTS = ("block", "selective")
COMPILED = ("aot_eager:0.5", "aot_eager:0.2")
REMAT_BUDGETS = ("50%", "40%", "min")
WARM_STEPS = 3  # TorchScript and torch.compile are at their best after these


@dataclasses.dataclass(frozen=True)
class Subject:
    model: str
    stages: tuple[str, ...]  # modules whose children are the blocks
    per_stage: bool  # whether the stages themselves are checkpointed, too

    def peers(self) -> tuple[str, ...]:
        return ("eager", *CHECKPOINTS, *(("stage",) if self.per_stage else ()), *COMPILED)


SUBJECTS = (
    Subject("resnet50_scripted", ("layer1", "layer2", "layer3", "layer4"), True),
    Subject("vit_small_patch16_224", ("blocks",), False),
    Subject("gpt2_eager_attention", ("model.transformer.h",), False),
    Subject("densenet121", tuple(f"features.denseblock{i}" for i in range(1, 5)), True),
)


class Comparison:
    """One model under all systems."""

    def __init__(self, subject: Subject, batch: int, arguments: argparse.Namespace, say):
        self.subject, self.batch, self.arguments, self.say = subject, batch, arguments, say
        self.rows: list[dict] = []
        self.workers: dict[str, Worker] = {}
        self.spec = ("--input", models.MODELS[subject.model].spec(batch), "--loss", "cross_entropy")

    def fail(self, row: dict, error: Exception) -> None:
        row["error"] = str(error)
        self.say(f"{row['system']}: FAILED: {error}")
        worker = self.workers.pop(row["system"], None)
        if worker:
            worker.stop()

    def start(self, row: dict, **task) -> None:
        """Starts a worker and warms it up; the row has the peak of that until it is measured."""
        self.say(f"{row['system']}: starting")
        begin = time.monotonic()
        task = {"model": self.subject.model, "batch": self.batch, "system": row["system"], **task}
        try:
            self.workers[row["system"]] = Worker(task, self.arguments.timeout)
            row["warm_steps"] = self.workers[row["system"]].visit(WARM_STEPS)
            row["peak"] = row["warm_steps"][-1]["peak"]
        except WorkerFailed as error:
            self.fail(row, error)
        row["start_seconds"] = round(time.monotonic() - begin, 1)

    def start_peers(self) -> None:
        for system in self.subject.peers():
            row = {"system": system, "kind": "peer", "steps": []}
            self.rows.append(row)
            self.start(row, stages=self.subject.stages)

    def optimize(self, model: str, profile: str, row: dict, budget: str) -> None:
        name = f"{self.subject.model}.batch{self.batch}.peers.{row['system'].replace(':', '_').replace(' ', '_')}.pt"
        out = os.path.join(main_models.CACHE, name)
        reuse = ("--profile", profile) if os.path.exists(profile) else ("--save-profile", profile)
        self.say(f"{row['system']}: optimising for {budget}")
        begin = time.monotonic()
        try:
            command = ("optimize", model, "-o", out, *self.spec, "--budget", budget, *reuse, "--json")
            plan = json.loads(remat_opt.run(*command))
        except (remat_opt.ToolFailed, ValueError) as error:
            row["out_of_reach"] = "ended with 3" in str(error)
            self.fail(row, error)
            return
        row["optimize_seconds"] = round(time.monotonic() - begin, 1)
        row["plan"] = {key: value for key, value in plan.items() if key not in ("model", "output", "remarks")}
        self.start(row, file=out)

    def add_bounds(self, model: str, profile: str) -> None:
        """What `plan` says of these budgets: the proved bound on recomputation, where it tells one."""
        rows = [row for row in self.rows if "plan" in row]
        budgets = [option for row in rows for option in ("--budget", f"{row['plan']['budget']}B")]
        if not rows:
            return
        self.say("bounds")
        try:
            text = remat_opt.run("plan", model, *self.spec, "--profile", profile, *budgets, "--json", accept=(0, 3))
            points = {point["budget"]: point for point in json.loads(text)["points"]}
        except (remat_opt.ToolFailed, ValueError, KeyError) as error:
            self.say(f"no bounds: {error}")
            return
        for row in rows:
            point = points.get(row["plan"]["budget"], {})
            row["bounds"] = {key: point[key] for key in ("gap", "lower_bound", "lower_bound_share") if key in point}

    def start_remat(self) -> None:
        self.say("making the model")
        model, _ = main_models.cached(self.subject.model, self.batch)
        profile = f"{model}.peers.profile.json"
        if os.path.exists(profile):
            os.remove(profile)  # of another build, or of a busier machine
        points = {"remat 50%": "50%"}  # first: it makes the profile
        for row in self.rows:
            if "error" not in row and row["system"] != "eager":
                points[f"remat at {row['system']}"] = f"{row['peak']}B"
        points.update({f"remat {budget}": budget for budget in REMAT_BUDGETS})
        for system, budget in points.items():
            row = {"system": system, "kind": "remat", "steps": []}
            self.rows.append(row)
            self.optimize(model, profile, row, budget)
        if os.path.exists(profile):
            self.add_bounds(model, profile)

    def take_turns(self) -> None:
        for number in range(self.arguments.rounds):
            self.say(f"round {number + 1} of {self.arguments.rounds}")
            # Forth and back: what slows down or speeds up over a round does so for everybody.
            for row in self.rows if number % 2 == 0 else reversed(self.rows):
                worker = self.workers.get(row["system"])
                if worker is None:
                    continue
                try:
                    row["steps"] += worker.visit(self.arguments.steps)
                except WorkerFailed as error:
                    self.fail(row, error)

    def run(self) -> dict:
        try:
            self.start_peers()
            try:
                self.start_remat()
            except RuntimeError as error:  # the peers' figures are there all the same
                self.say(f"Remat: FAILED: {error}")
            self.take_turns()
        finally:
            for worker in self.workers.values():
                worker.stop()
        return {"model": self.subject.model, "batch": self.batch, "systems": peers_report.summaries(self.rows)}


def write(results: list[dict], context: dict, suffix: str) -> None:
    os.makedirs(main_models.RESULTS, exist_ok=True)
    stem = os.path.join(main_models.RESULTS, f"peers{suffix}")
    with open(f"{stem}.json", "w", encoding="utf-8") as file:
        json.dump({"context": context, "results": results}, file, indent=2)
        file.write("\n")
    with open(f"{stem}.svg", "w", encoding="utf-8") as file:
        file.write(peers_plot.svg(results))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="batch 2, one round; claims are shown and not required")
    parser.add_argument("--only", metavar="TEXT", default="", help="models whose name holds TEXT; writes no results")
    parser.add_argument("--rounds", type=int, default=None, help="turns of every system (default: 4)")
    parser.add_argument("--steps", type=int, default=2, help="training steps in a turn (default: 2)")
    parser.add_argument("--timeout", type=float, default=1200, metavar="SECONDS", help="for one turn (default: 1200)")
    arguments = parser.parse_args()
    if arguments.rounds is None:
        arguments.rounds = 1 if arguments.quick else 4
    if arguments.rounds < 1 or arguments.steps < 1:
        parser.error("--rounds and --steps are at least 1")
    return arguments


def main() -> int:
    arguments = parsed()
    subjects = [subject for subject in SUBJECTS if arguments.only in subject.model]
    if not subjects:
        names = ", ".join(subject.model for subject in SUBJECTS)
        sys.exit(f"peers: no model's name holds '{arguments.only}'; there are: {names}")
    os.makedirs(main_models.CACHE, exist_ok=True)
    context = main_models.run_context()
    results = []
    for number, subject in enumerate(subjects, 1):
        batch = main_models.QUICK_BATCH if arguments.quick else models.MODELS[subject.model].batch

        def say(text, number=number, subject=subject):
            print(f"[{number}/{len(subjects)}] {subject.model}: {text}", file=sys.stderr, flush=True)

        result = Comparison(subject, batch, arguments, say).run()
        result["checks"] = peers_report.checks(result)
        results.append(result)
        print("\n" + peers_report.table(result), flush=True)
        if not arguments.only:
            write(results, context, ".quick" if arguments.quick else "")
    failed = 0
    for result in results:
        for check in result["checks"]:
            failed += not check["passed"]
            print(f"{'pass' if check['passed'] else 'FAIL'}: {result['model']}: {check['text']}")
    print(f"{failed} checks failed" if failed else "every check passed")
    return 1 if failed and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
