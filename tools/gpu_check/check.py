#!/usr/bin/env python3
"""The parts of the GPU check, each with a time limit of its own, and all within one: a part that fails or takes too
long is said and the others go on. Started by gpu_check.sh run; exits with 0 if every part went well."""

import argparse
import json
import os
import pathlib
import re
import sys
import tempfile
import threading
import time
from xml.etree import ElementTree

import process
import table

HERE = pathlib.Path(__file__).resolve().parent
PACK = HERE.parent
BUDGETS = (75, 50, 25)
MODELS = ("resnet50", "gpt2", "vit_small")
SECONDS = 285
# The most that each part may take of these. Their sum is more than the whole may: see Clock.
LIMITS = {"environment": 60, "tests": 80, "models": 80, "optimize": 70, "train": 60}


class Clock:
    """What is left of the whole check's time."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds
        self.scale = seconds / SECONDS

    def limit(self, part):
        return min(LIMITS[part] * self.scale, self.end - time.monotonic())


def environment_of(arguments):
    """Variables with which the packed binaries find the torch of this Python; and what it is."""
    system = PACK / "lib/system"
    command = [sys.executable, str(HERE / "environment.py"), arguments.device]
    command += sorted(library.name for library in system.iterdir())
    probe = process.run(command, arguments.clock.limit("environment"), os.environ)
    if probe["error"]:
        return None, {"error": probe["error"]}
    found = json.loads(probe["stdout"])
    linked = json.loads((PACK / "linked.json").read_text(encoding="utf-8"))
    if (found["torch"], found["git"]) != (linked["torch"], linked["git"]):
        found["error"] = f"torch {found['torch']} ({found['git']}) is here, the binaries were linked with {linked}"
    elif arguments.device.startswith("cuda") and not found["devices"]:
        found["error"] = "torch sees no CUDA device here"
    variables = dict(os.environ)
    folders = found.pop("libraries") + [str(system)] * found.pop("lacks")
    variables["LD_LIBRARY_PATH"] = ":".join(folders + [variables.get("LD_LIBRARY_PATH", "")]).rstrip(":")
    # What deterministic algorithms ask of cuBLAS, for every system alike.
    variables.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    variables["HF_HUB_OFFLINE"] = "1"
    if arguments.tiny:
        # Small tensors gain nothing from threads, and lose much where these wait for a busy machine.
        variables["OMP_NUM_THREADS"] = "1"
    return variables, found


def test_result(path, ran):
    """Counts of one GoogleTest program, and the names of what failed or was skipped."""
    result = {"passed": 0, "failed": [], "skipped": {}, "error": ran["error"]}
    try:
        report = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        result["error"] = result["error"] or "it wrote no report"
        return result
    for case in report.iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None:
            result["failed"].append(name)
        elif case.get("result") == "skipped":
            skip = case.find("skipped")
            # The message begins with the place.
            result["skipped"][name] = "" if skip is None else (skip.get("message") or skip.text or "").strip().split("\n")[-1]
        else:
            result["passed"] += 1
    if result["failed"]:
        # What failed says more than that it did.
        result["error"], result["output"] = None, ran["stdout"][-4000:]
    return result


def wants_more_devices(reason):
    """Whether a test was skipped because some GPUs are here, and not as many as it needs."""
    devices = re.search(r"needs (\d+) CUDA device\(s\), here are (\d+)", reason)
    return devices is not None and int(devices[1]) > int(devices[2]) > 0


def run_tests(arguments, variables):
    """Every packed CUDA test, one after the other. Without a GPU they are skipped, which is a failure on a machine
    that has one; a test of several GPUs may be skipped on a machine that has fewer."""
    results = {}
    end = time.monotonic() + arguments.clock.limit("tests")
    (PACK / "runfiles").mkdir(exist_ok=True)
    for binary in sorted((PACK / "bin").glob("*_cuda_test")):
        report = arguments.work / f"{binary.name}.xml"
        ran = process.run(
            [str(binary), f"--gtest_output=xml:{report}"], end - time.monotonic(), variables, PACK / "runfiles"
        )
        results[binary.name] = test_result(report, ran)
    on_gpu = arguments.device.startswith("cuda")
    passed = sum(result["passed"] for result in results.values())
    failed = sum(len(result["failed"]) + bool(result["error"]) for result in results.values())
    skipped = sum(len(result["skipped"]) for result in results.values())
    reasons = [reason for result in results.values() for reason in result["skipped"].values()]
    missed = not results or not all(map(wants_more_devices, reasons))
    return {
        "passed": passed,
        "failed": failed,
        "skipped": skipped,
        "good": failed == 0 and not (on_gpu and missed),
        "programs": results,
    }


def in_parallel(work, items):
    threads = [threading.Thread(target=work, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def make_models(arguments, variables):
    """Saves every model, all at once: what takes the time is Python's and the processor's."""
    results = {}

    def make(name):
        command = [sys.executable, str(HERE / "models.py"), name, str(arguments.work), "--device", arguments.device]
        ran = process.run(command + ["--tiny"] * arguments.tiny, arguments.clock.limit("models"), variables)
        # Behind whatever the libraries print.
        results[name] = {"error": ran["error"]} if ran["error"] else json.loads(ran["stdout"].splitlines()[-1])

    in_parallel(make, arguments.models)
    return results


def optimize(arguments, variables, name, spec):
    """remat-opt at every budget. The first records the profile that the others reuse."""
    profile = arguments.work / f"{name}.profile.json"
    results = {}

    def ask(budget, wanted):
        out = arguments.work / f"{name}.{budget}.pt"
        command = [str(PACK / "bin/remat-opt"), "optimize", str(arguments.work / f"{name}.pt"), "-o", str(out)]
        command += ["--input", spec, "--loss", "cross_entropy", "--device", arguments.device, "--json"]
        command += ["--budget", wanted]
        command += ["--profile", str(profile)] if profile.exists() else ["--save-profile", str(profile)]
        ran = process.run(command, arguments.clock.limit("optimize"), variables)
        result = {"error": ran["error"]} if ran["error"] else json.loads(ran["stdout"])
        return {**result, "asked": wanted, "seconds": ran["seconds"]}

    def one(budget):
        result = ask(budget, f"{budget}%")
        # No fault of the GPU's: as low as is reachable then.
        if "lowest reachable peak" in (result.get("error") or ""):
            result = {**ask(budget, "min"), "note": result["error"]}
        results[budget] = result

    first, *others = map(str, BUDGETS)
    one(first)
    # They reuse the first's profile, and measure peaks alone, so that they may share the device.
    in_parallel(one, others)
    return {budget: results[budget] for budget in map(str, BUDGETS)}


def check_model(arguments, variables, name, made):
    if made.get("error"):
        return {"error": f"the model was not made: {made['error']}"}
    result = {"input": made["spec"], "optimize": optimize(arguments, variables, name, made["spec"])}
    train = [sys.executable, str(HERE / "train.py"), name, str(arguments.work), "--device", arguments.device]
    train += ["--runtime", str(PACK / "lib/libremat_runtime.so"), "--steps", str(arguments.steps)]
    train += ["--budgets", *(str(budget) for budget in BUDGETS)]
    trained = arguments.work / f"{name}.trained.json"
    ran = process.run(
        train + ["--result", str(trained)] + ["--tiny"] * arguments.tiny, arguments.clock.limit("train"), variables
    )
    # Written after each system: what was measured before a failure counts.
    result["systems"] = json.loads(trained.read_text(encoding="utf-8")) if trained.exists() else {}
    result["error"] = ran["error"]
    return result


def model_is_good(model):
    systems = model.get("systems", {})
    failed = [entry for entry in [*model.get("optimize", {}).values(), *systems.values()] if entry.get("error")]
    # torch.utils.checkpoint moves the running statistics of norms twice, and is not what is checked.
    compared = [entry for system, entry in systems.items() if system != "checkpoint"]
    different = [entry for entry in compared if entry.get("parity", {}).get("worst") == "different"]
    return not model.get("error") and not failed and not different and bool(systems)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path, help="where gpu_check.json and gpu_check.md go")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models: does the check itself work?")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each system")
    parser.add_argument("--limit", type=float, default=SECONDS, help="seconds for all of it; each part's limit scales")
    arguments = parser.parse_args()
    arguments.clock = Clock(arguments.limit)
    arguments.out.mkdir(parents=True, exist_ok=True)
    return arguments


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="gpu_check.") as work:
        arguments.work = pathlib.Path(work)
        check(arguments)


def check(arguments):
    start = time.monotonic()

    def say(text):
        print(f"gpu_check: {time.monotonic() - start:5.0f} s: {text}", flush=True)

    variables, environment = environment_of(arguments)
    result = {"device": arguments.device, "tiny": arguments.tiny, "environment": environment, "models": {}}

    def write():
        result["seconds"] = round(time.monotonic() - start, 1)
        result["good"] = (
            not environment.get("error")
            and result.get("tests", {}).get("good", False)
            and set(result["models"]) == set(arguments.models)
            and all(map(model_is_good, result["models"].values()))
        )
        (arguments.out / "gpu_check.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        (arguments.out / "gpu_check.md").write_text(table.markdown(result), encoding="utf-8")

    write()
    if environment.get("error"):
        sys.exit(f"gpu_check: {environment['error']}")
    say(f"torch {environment['torch']}, {environment['devices'] or 'no GPU'}")
    made = {}
    making = threading.Thread(target=lambda: made.update(make_models(arguments, variables)))
    making.start()
    result["tests"] = run_tests(arguments, variables)
    say("tests: {passed} passed, {failed} failed, {skipped} skipped".format(**result["tests"]))
    making.join()
    say("models are made")
    for name in arguments.models:
        result["models"][name] = check_model(arguments, variables, name, made[name])
        write()
        say(f"{name}: {'good' if model_is_good(result['models'][name]) else 'not as it should be'}")
    write()
    print((arguments.out / "gpu_check.md").read_text(encoding="utf-8"))
    say("good" if result["good"] else "NOT GOOD: see above")
    sys.exit(0 if result["good"] else 1)


if __name__ == "__main__":
    main()
