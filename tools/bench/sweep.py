#!/usr/bin/env python3
"""Plans each main model for twenty budgets at once, then optimises it for every one of them and measures the peak.

Checks: no measured peak above its budget; predicted within 1 % of measured; less memory never takes less time."""

import argparse
import json
import os
import sys

import main_models
import models
import remat_opt

MODELS = ("resnet50_scripted", "vit_small_patch16_224", "gpt2_eager_attention", "densenet121")
BUDGETS = 20
PREDICTION = 0.01


def budgets(curve: dict) -> list[int]:
    low, high = curve["minimum_peak"], curve["original_peak"]
    return [high - (high - low) * i // BUDGETS for i in range(1, BUDGETS + 1)]


def plan(model: str, spec: str, asked: list[int], profile: str) -> dict:
    options = [option for budget in asked for option in ("--budget", f"{budget}B")]
    return json.loads(remat_opt.run("plan", model, "--input", spec, *options, *profile.split(), "--json", accept=(0, 3)))


def optimize(model: str, spec: str, budget: int, profile: str) -> dict:
    out = os.path.join(main_models.CACHE, "sweep.remat.pt")
    options = ("--input", spec, "--budget", f"{budget}B", "--profile", profile, "--json")
    result = json.loads(remat_opt.run("optimize", model, "-o", out, *options))
    return {key: result[key] for key in ("budget", "peak_bytes", "recompute_share", "planning_seconds")}


def problems(curve: dict, points: list[dict]) -> list[str]:
    found = []
    for point in points:
        if "error" in point:
            found.append(point["error"])
            continue
        measured, predicted = (point["peak_bytes"][key] for key in ("measured", "predicted"))
        if measured > point["budget"]:
            found.append(f"{point['budget']}: measured {measured}")
        if abs(predicted / measured - 1) > PREDICTION:
            found.append(f"{point['budget']}: predicted {predicted}, measured {measured}")
    ordered = sorted(curve["points"], key=lambda point: point["budget"])
    for lower, higher in zip(ordered, ordered[1:]):
        if lower["predicted_peak"] > higher["predicted_peak"] or lower["recompute_share"] < higher["recompute_share"]:
            found.append(f"not monotone between {lower['budget']} and {higher['budget']}")
    return found


def measure(name: str, batch: int) -> dict:
    model, _ = main_models.cached(name, batch)
    spec = models.MODELS[name].spec(batch)
    profile = os.path.join(main_models.CACHE, f"{name}.sweep.profile")
    known = plan(model, spec, [10**12], f"--save-profile {profile}")
    asked = budgets(known)
    curve = plan(model, spec, asked, f"--profile {profile}")
    points = []
    for budget in asked:
        try:
            points.append(optimize(model, spec, budget, profile))
        except remat_opt.ToolFailed as error:
            points.append({"budget": budget, "error": str(error)})
        print(f"{name}: {json.dumps(points[-1])}", flush=True)
    return {"model": name, "batch": batch, "curve": curve, "points": points, "problems": problems(curve, points)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="batch 2; writes no results")
    parser.add_argument("--only", metavar="TEXT", default="", help="only models whose name holds TEXT; writes no results")
    arguments = parser.parse_args()
    os.makedirs(main_models.CACHE, exist_ok=True)
    context = main_models.run_context()
    results = []
    for name in (name for name in MODELS if arguments.only in name):
        batch = main_models.QUICK_BATCH if arguments.quick else models.MODELS[name].batch
        results.append(measure(name, batch))
        for problem in results[-1]["problems"]:
            print(f"{name}: FAILED: {problem}", flush=True)
    if not arguments.quick and not arguments.only:
        with open(os.path.join(main_models.RESULTS, "sweep.json"), "w", encoding="utf-8") as file:
            json.dump({"context": context, "results": results}, file, indent=2)
            file.write("\n")
    failed = sum(len(result["problems"]) for result in results)
    print(f"{failed} checks failed" if failed else "every check passed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
