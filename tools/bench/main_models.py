#!/usr/bin/env python3
"""Optimises the main models, trains original and optimised side by side, and writes tables of what was measured.

Per model and budget: `remat-opt optimize`; four training steps of original and optimised, each in a process of its own
that knows nothing but torch (and the runtime library), with TorchScript's optimisation off and on; `remat-opt verify`;
`remat-opt strip`. One model at a time, each step in its own process. A failure does not stop the rest."""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import subprocess
import sys
import time

import models
import parity
import remat_opt
import report
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.join(HERE, "cache")
RESULTS = os.path.join(HERE, "results")
QUICK_BATCH = 2


@dataclasses.dataclass(frozen=True)
class Case:
    model: str
    budget: str
    limits: report.Limits = report.Limits()
    quick_budget: str = None  # where the gradients of the parameters alone leave no room for `budget`


RESNET_HALF = report.Limits(measured=0.51, share=0.30, prediction=0.03, planning=20)
CASES = (
    Case("resnet50_scripted", "50%", RESNET_HALF, quick_budget="75%"),
    Case("resnet50_scripted", "80%", report.Limits(share=0.08)),
    Case("resnet50_traced", "50%", RESNET_HALF, quick_budget="75%"),
    Case("vit_small_patch16_224", "50%", report.Limits(share=0.25), quick_budget="85%"),
    Case("gpt2_eager_attention", "50%", report.Limits(share=0.25)),
    Case("gpt2_sdpa", "min"),
    Case("mobilenet_v2", "50%"),
)


def python(script, *arguments):
    """Runs one of the files beside this one in a process of its own."""
    command = [sys.executable, os.path.join(HERE, script), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{script} ended with {result.returncode}: {last[:300]}")


def cached(name, batch):
    """Paths of the saved model and its inputs, made where they are missing or older than their recipe."""
    stem = os.path.join(CACHE, f"{name}.batch{batch}")
    paths = f"{stem}.pt", f"{stem}.inputs.pt"
    recipe = os.path.getmtime(os.path.join(HERE, "models.py"))
    if not all(os.path.exists(path) and os.path.getmtime(path) > recipe for path in paths):
        python("models.py", name, batch, *paths)
    return paths


def train_both(model, optimized, inputs, optimisation, draws):
    """Compares four training steps of both sides, which start from equal seeds. TorchScript's optimisation changes what
    the original draws (a dropout of probability 0 takes numbers): `draws` keeps what it draws without."""
    paths = [os.path.join(CACHE, f"{side}.steps.pt") for side in ("original", "optimized")]
    try:
        python("train_side.py", model, inputs, paths[0], "--optimisation", optimisation)
        python("train_side.py", optimized, inputs, paths[1], "--optimisation", optimisation, "--runtime", remat_opt.RUNTIME)
        original, changed = (torch.load(path) for path in paths)
        if optimisation == "off":
            draws[:] = [step["next_draw"] for step in original]
        for step, draw in zip(original, draws):
            step["next_draw"] = draw
        return parity.compare_steps(original, changed)
    finally:
        for path in paths:
            if os.path.exists(path):
                os.remove(path)


def strips_back(model, optimized):
    """Whether the stripped file's dump is the original's."""
    stripped = f"{optimized}.stripped.pt"
    remat_opt.run("strip", optimized, "-o", stripped)
    try:
        return remat_opt.run("dump", stripped) == remat_opt.run("dump", model)
    finally:
        os.remove(stripped)


def quick(case):
    return dataclasses.replace(case, budget=case.quick_budget or case.budget, limits=report.Limits())


def measure(case, batch, say):
    """Everything there is to know of one case; what failed is in `errors`."""
    result = {"model": case.model, "budget": case.budget, "batch": batch, "errors": []}

    def stage(key, text, action):
        say(text)
        start = time.monotonic()
        try:
            result[key] = action()
        except Exception as error:  # the next stage, or the next model, goes on
            result["errors"].append(f"{text}: {error}")
            say(f"FAILED: {error}")
        result.setdefault("stage_seconds", {})[key] = round(time.monotonic() - start, 1)
        return result.get(key)

    paths = stage("files", "making the model", lambda: cached(case.model, batch))
    result.pop("files", None)
    if paths is None:
        return result
    model, inputs = paths
    spec = models.MODELS[case.model].spec(batch)
    optimized = os.path.join(CACHE, f"{case.model}.batch{batch}.{case.budget.rstrip('%')}.remat.pt")
    if stage("optimize", "optimising", lambda: remat_opt.optimize(model, optimized, spec, case.budget)) is None:
        return result
    for name in ("model", "output"):
        result["optimize"].pop(name, None)
    if not result["optimize"]["changed"]:
        result["errors"].append(f"not rewritten: {result['optimize']['reason_unchanged']}")
    draws = []
    for mode in ("off", "on"):
        stage(
            f"parity_{mode}",
            f"training both, optimisation {mode}",
            lambda mode=mode: train_both(model, optimized, inputs, mode, draws),
        )
    stage("verify", "verifying", lambda: remat_opt.verify(model, optimized, spec))
    stage("strip", "stripping", lambda: strips_back(model, optimized))
    return result


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.machine()


def commit():
    git = ["git", "-C", HERE]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    # Results that another benchmark wrote just before change nothing.
    status = [*git, "status", "--porcelain", "--", ":/", f":(exclude,top){os.path.relpath(RESULTS, os.path.join(HERE, '../..'))}"]
    changed = subprocess.run(status, capture_output=True, text=True, check=False).stdout.strip()
    return f"{head} with uncommitted changes" if changed else head


def run_context():
    """What results depend on. Taken before they are written: they are files of the repository."""
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "torch": torch.__version__.partition("+")[0],
        "processor": f"{cpu_name()}, {torch.get_num_threads()} threads",
    }


def write(results, context, suffix):
    os.makedirs(RESULTS, exist_ok=True)
    stem = os.path.join(RESULTS, f"main_models{suffix}")
    with open(f"{stem}.json", "w", encoding="utf-8") as file:
        json.dump({"context": context, "results": results}, file, indent=2)
        file.write("\n")
    with open(f"{stem}.md", "w", encoding="utf-8") as file:
        file.write("# Main models\n\n")
        file.write("Made by `tools/bench/main_models.sh`. Peaks are of one training step, above what was alive before it;\n")
        file.write("recomputed shares are of one forward's time.\n\n")
        file.write(report.context_lines(context))
        file.write("\n" + report.markdown(results) + "\n" + report.check_list(results))
    return stem


def merged(results, suffix):
    """The results, and of an earlier run those of other cases, in the order of CASES."""
    try:
        with open(os.path.join(RESULTS, f"main_models{suffix}.json"), encoding="utf-8") as file:
            known = {(result["model"], result["budget"]): result for result in json.load(file)["results"]}
    except (OSError, ValueError, KeyError):
        known = {}
    known.update(((result["model"], result["budget"]), result) for result in results)
    order = [(case.model, budget) for case in CASES for budget in (case.budget, case.quick_budget)]
    return [known[key] for key in order if key in known]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"batch {QUICK_BATCH} and no limits on peaks and times")
    parser.add_argument("--only", metavar="TEXT", default="", help="only models whose name holds TEXT; other results stay")
    arguments = parser.parse_args()
    cases = [quick(case) if arguments.quick else case for case in CASES if arguments.only in case.model]
    if not cases:
        parser.error(f"no model's name holds '{arguments.only}'; there are: {', '.join(models.MODELS)}")
    os.makedirs(CACHE, exist_ok=True)
    context = run_context()
    results = []
    for number, case in enumerate(cases, 1):
        batch = QUICK_BATCH if arguments.quick else models.MODELS[case.model].batch

        def say(text, number=number, case=case):
            print(f"[{number}/{len(cases)}] {case.model}, {case.budget}: {text}", flush=True)

        result = measure(case, batch, say)
        result["checks"] = [{"text": text, "passed": passed} for text, passed in report.checks(result, case.limits)]
        result["commit"] = context["commit"]
        results.append(result)
        suffix = ".quick" if arguments.quick else ""
        write(merged(results, suffix) if arguments.only else results, context, suffix)
    print("\n" + report.markdown(results) + "\n" + report.check_list(results))
    failed = sum(not check["passed"] for result in results for check in result["checks"])
    print(f"{failed} checks failed" if failed else "every check passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
