"""The GPU check's own logic, on the CPU with small models: packed, run from the pack, and what it says of failures."""

import importlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

CHECK = pathlib.Path("tools/gpu_check.sh").resolve()
REMAT_OPT, REMAT_RUNTIME, CUDA_TEST = (os.environ[name] for name in ("REMAT_OPT", "REMAT_RUNTIME", "CUDA_TEST"))
SYSTEMS = ["eager", "torchscript", "remat_75", "remat_50", "remat_25", "checkpoint"]


@pytest.fixture(scope="module", name="packed")
def fixture_packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pack")
    command = [CHECK, "pack", folder, "--files", REMAT_OPT, REMAT_RUNTIME, sys.executable, CUDA_TEST]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "1 tests" in text and "torch" in text
    return folder


def run(packed, out, *options):
    command = [packed / "gpu_check.sh", "run", out, "--python", sys.executable, "--device", "cpu", "--tiny", *options]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    report = out / "gpu_check.json"
    return ran, json.loads(report.read_text(encoding="utf-8")) if report.exists() else None


def test_everything_runs_from_the_pack(packed, tmp_path):
    assert sum(path.stat().st_size for path in packed.rglob("*") if path.is_file()) < 60 << 20
    ran, report = run(packed, tmp_path, "--steps", "2", "--limit", "700")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert report["good"] and report["environment"]["torch"].startswith("2.11.0")
    # There is no GPU for it: skipped, and that is said.
    assert report["tests"]["skipped"] > 0 and report["tests"]["failed"] == 0
    assert sorted(report["models"]) == ["gpt2", "resnet50", "vit_small"]
    for model in report["models"].values():
        assert list(model["systems"]) == SYSTEMS
        for name, measured in model["systems"].items():
            assert measured["step_seconds"] > 0 and measured["peak_bytes"] is None
            if name.startswith("remat_"):
                assert measured["parity"]["worst"] == "bitwise" and measured["parity"]["with"] == "torchscript"
        peaks = [model["optimize"][budget]["peak_bytes"]["predicted"] for budget in ("75", "50", "25")]
        assert peaks == sorted(peaks, reverse=True)
    table = (tmp_path / "gpu_check.md").read_text(encoding="utf-8")
    assert table in ran.stdout and table.count("| remat_75 (75%) |") == 3 and "skipped: " in table
    # What can't be reached is asked for as low as it can be, and that is said.
    assert "| remat_25 (min) |" in table and "at 25 %, so that min was asked for: " in table


def test_a_part_that_fails_does_not_stop_the_others(packed, tmp_path):
    tool = packed / "bin/remat-opt"
    kept = tool.read_bytes()
    tool.write_text("#!/bin/sh\necho broken here >&2\nexit 1\n", encoding="utf-8")
    try:
        ran, report = run(packed, tmp_path, "--steps", "1", "--models", "gpt2")
    finally:
        tool.write_bytes(kept)
    assert ran.returncode == 1 and not report["good"]
    model = report["models"]["gpt2"]
    assert model["optimize"]["75"]["error"] == "exit code 1: broken here"
    assert model["systems"]["eager"]["step_seconds"] > 0 and model["systems"]["checkpoint"]["step_seconds"] > 0
    assert "error" in model["systems"]["remat_50"]
    assert "remat-opt at 75 %: exit code 1: broken here" in ran.stdout


def test_no_part_outlasts_its_time(packed, tmp_path):
    ran, report = run(packed, tmp_path, "--limit", "1")
    assert ran.returncode == 1 and "not done after" in ran.stderr + json.dumps(report)


def test_another_torch_is_refused(packed, tmp_path):
    linked = packed / "linked.json"
    kept = linked.read_text(encoding="utf-8")
    linked.write_text(json.dumps({"torch": "2.0.0", "git": "0"}), encoding="utf-8")
    try:
        ran, report = run(packed, tmp_path)
    finally:
        linked.write_text(kept, encoding="utf-8")
    assert ran.returncode == 1 and "the binaries were linked with" in report["environment"]["error"]


def test_what_is_asked_for_wrongly():
    for options in ([], ["test"], ["pack"], ["run", "out"]):
        ran = subprocess.run([CHECK, *options], check=False, capture_output=True, text=True)
        assert ran.returncode == 2 and ran.stderr.startswith("gpu_check: ")


def test_only_tests_of_more_gpus_may_be_skipped_where_one_is():
    sys.path.insert(0, str(CHECK.parent / "gpu_check"))
    check = importlib.import_module("check")
    assert check.wants_more_devices("needs 2 CUDA device(s), here are 1")
    assert not check.wants_more_devices("needs 1 CUDA device(s), here are 0")
    assert not check.wants_more_devices("built without CUDA")
