"""All verbs on small models: what they print and write."""

import json
import os
import pathlib
import re
import subprocess
import sys

import models
import pytest
import remat_opt
import torch

MODELS = [
    ("mlp", "script"),
    ("mlp", "trace"),
    ("conv_net", "script"),
    ("conv_net", "trace"),
    ("residual", "script"),
    ("residual", "trace"),
    ("dict", "script"),
    ("tuple", "script"),
    ("list", "script"),
    ("named_tuple", "script"),
]
BITWISE = {"outputs": "bitwise", "gradients": "bitwise", "buffers": "bitwise", "random_state": "bitwise"}


def optimize(tmp_path, name, how="script", budget="75%", *options):
    model = models.save(name, tmp_path / "model.pt", how)
    out = tmp_path / "out.pt"
    result = remat_opt.succeed_json(
        "optimize", model, "-o", out, "--input", models.spec(name), "--budget", budget, *options
    )
    return model, out, result


@pytest.mark.parametrize("name,how", MODELS)
def test_optimize_then_verify(tmp_path, name, how):
    model, out, result = optimize(tmp_path, name, how)
    assert result["changed"]
    peaks = result["peak_bytes"]
    assert peaks["measured"] <= result["budget"] <= 0.751 * peaks["original"]
    assert result["recomputed"] > 0 and 0 < result["recompute_share"] < 1

    report = remat_opt.succeed_json("verify", model, out, "--input", models.spec(name))
    parity = report["parity"]
    assert parity["max_difference"] == 0
    assert {key: parity[key] for key in BITWISE} == BITWISE
    assert report["peak_bytes"]["optimized"] <= result["budget"]
    assert report["peak_bytes"]["predicted"] == peaks["predicted"]
    assert report["recompute_share_of_forward"] > 0  # measured: anything, on a busy machine


@pytest.mark.parametrize("how", ["script", "trace"])
def test_attention_that_drops_out_is_recomputed(tmp_path, how):
    model, out, result = optimize(tmp_path, "dropping_attention", how, "60%")
    assert result["peak_bytes"]["measured"] <= result["budget"]
    assert not [remark for remark in result["remarks"] if remark["reason"] == "random"]
    assert "remat::attention_weights" in remat_opt.succeed("dump", out)
    report = remat_opt.succeed_json("verify", model, out, "--input", models.ROWS)
    assert {key: report["parity"][key] for key in BITWISE} == BITWISE


def test_plan_json(tmp_path):
    model = models.save("mlp", tmp_path / "model.pt")
    curve = remat_opt.succeed_json("plan", model, "--input", models.ROWS)
    keys = ["device", "lower_bound_peak", "minimum_peak", "original_peak", "out_of_reach", "points", "rounding", "times"]
    assert sorted(curve) == keys
    assert 0 < curve["lower_bound_peak"] <= curve["minimum_peak"]
    points = curve["points"]
    assert len(points) >= 5 and len(points) + len(curve["out_of_reach"]) == 11
    assert all(budget < curve["minimum_peak"] for budget in curve["out_of_reach"])
    for point in points:
        assert sorted(point) == [
            "budget",
            "gap",
            "kept",
            "lower_bound_share",
            "planning_seconds",
            "predicted_peak",
            "recompute_seconds",
            "recompute_share",
            "recomputed",
        ]
        assert point["gap"] == pytest.approx(point["recompute_share"] - point["lower_bound_share"])
        assert 0 <= point["lower_bound_share"] <= point["recompute_share"]
        assert point["predicted_peak"] <= point["budget"]
    peaks = [point["predicted_peak"] for point in points]
    assert peaks == sorted(peaks, reverse=True), "a lower budget never gives a higher peak"
    assert points[-1]["predicted_peak"] == curve["minimum_peak"] < curve["original_peak"]
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_plan_for_given_budgets(tmp_path):
    model = models.save("mlp", tmp_path / "model.pt")
    curve = remat_opt.succeed_json("plan", model, "--input", models.ROWS, "--budget", "80%", "--budget", "60%")
    assert [round(point["budget"] / curve["original_peak"], 2) for point in curve["points"]] == [0.8, 0.6]
    text = remat_opt.succeed("plan", model, "--input", models.ROWS, "--budget", "80%")
    assert "80.0 %" in text and "lowest reachable" in text


def test_plan_below_the_minimum(tmp_path):
    model = models.save("mlp", tmp_path / "model.pt")
    error = remat_opt.fail(3, "plan", model, "--input", models.ROWS, "--budget", "1%")
    assert "the budget of" in error and "lowest reachable peak of forward" in error and " bytes)" in error
    result = remat_opt.run("plan", model, "--input", models.ROWS, "--budget", "1%", "--budget", "2%", "--budget", "min")
    assert result.returncode == 3 and "the budgets of" in result.stderr
    assert result.stdout.count("out of reach") == 2


def test_plan_shows_every_budget_once(tmp_path):
    model = models.save("mlp", tmp_path / "model.pt")
    rows = remat_opt.succeed("plan", model, "--input", models.ROWS).splitlines()[3:]
    assert len(rows) == 11 and "out of reach" in rows[9] and rows[10].lstrip().startswith("min ")
    text = remat_opt.succeed("plan", model, "--input", models.ROWS, "--budget", "min", "--budget", "min")
    rows = text.splitlines()[3:]
    assert len(rows) == 1 and rows[0].lstrip().startswith("min ")


def test_a_model_that_prints(tmp_path):
    model, out = models.save("printing", tmp_path / "model.pt"), tmp_path / "out.pt"
    options = ("--input", models.ROWS)
    remat_opt.succeed_json("optimize", model, "-o", out, "--budget", "min", *options)
    remat_opt.succeed_json("plan", model, "--budget", "min", *options)
    remat_opt.succeed_json("verify", model, out, "--rounds", "1", *options)
    result = remat_opt.run("optimize", model, "-o", out, "--budget", "min", *options)
    assert "hello from the model" in result.stderr and "hello from the model" not in result.stdout


def test_profile_is_reused(tmp_path):
    model = models.save("mlp", tmp_path / "model.pt")
    profile = tmp_path / "profile.json"
    recorded = remat_opt.succeed_json("plan", model, "--input", models.ROWS, "--save-profile", profile)
    reused = remat_opt.succeed_json("plan", model, "--input", models.ROWS, "--profile", profile)
    assert reused["original_peak"] == recorded["original_peak"]
    assert reused["minimum_peak"] == recorded["minimum_peak"]
    other = models.save("linear", tmp_path / "other.pt")
    assert "profile" in remat_opt.fail(1, "plan", other, "--input", models.ROWS, "--profile", profile)


def test_a_profile_of_another_step_is_refused(tmp_path):
    model, profile = models.save("mlp", tmp_path / "model.pt"), tmp_path / "profile.json"
    remat_opt.succeed("plan", model, "--input", models.ROWS, "--budget", "min", "--save-profile", profile)
    for options, message in [
        (("--input", "512x128"), "inputs Float[1024, 128] and not Float[512, 128]"),
        (("--input", models.ROWS + ":grad"), "inputs Float[1024, 128] and not Float[1024, 128]:grad"),
        (("--input", models.ROWS, "--loss", "cross_entropy"), "loss random gradients and not cross_entropy"),
    ]:
        error = remat_opt.fail(1, "plan", model, *options, "--budget", "min", "--profile", profile)
        assert message in error, error


def test_extra_time(tmp_path):
    model, out, result = optimize(tmp_path, "mlp", "script", "60%")
    assert 0 < result["extra_time_share"] < result["recompute_share"]
    text = remat_opt.succeed("optimize", model, "-o", out, "--input", models.ROWS, "--max-overhead", "20%")
    assert "(limit 20.0 %)" in text and "predicted, of the step" in text


def test_remarks_read_well(tmp_path):
    model = models.save("attention", tmp_path / "model.pt")
    result = remat_opt.run("plan", model, "--input", "8x64x128", "--budget", "min")
    assert result.returncode == 0, result.stderr
    remarks = [line for line in result.stderr.splitlines() if line.startswith("remark: ")]
    assert len(remarks) == len(set(remarks))
    assert "unknown-op" not in result.stderr and "method's output" not in result.stderr


def test_the_note_on_the_loss(tmp_path):
    model = models.save("mlp", tmp_path / "model.pt")
    scalar = models.save("scalar", tmp_path / "scalar.pt")
    options = ("--input", models.ROWS, "--budget", "min")
    assert "the step ends at the model's output" in remat_opt.run("plan", model, *options).stderr
    assert "the step ends at the model's output" not in remat_opt.run("plan", scalar, *options).stderr


def test_nothing_to_gain(tmp_path):
    model, out, result = optimize(tmp_path, "linear", "script", "min")
    assert not result["changed"] and result["reason_unchanged"]
    assert remat_opt.succeed("dump", out) == remat_opt.succeed("dump", model)
    assert pathlib.Path(out).read_bytes() == pathlib.Path(model).read_bytes()
    text = remat_opt.succeed("optimize", model, "-o", out, "--input", models.ROWS, "--budget", "min")
    assert "nothing to gain" in text


def test_dump_shows_what_is_kept_and_why(tmp_path):
    model, out, _ = optimize(tmp_path, "residual")
    text = remat_opt.succeed("dump", out)
    assert "remat::keep" in text and "# kept" in text and "# recomputed" in text
    assert "models.py:" in text and "blocks.0.conv1" in text
    assert remat_opt.succeed("dump", out, "--before") == remat_opt.succeed("dump", model)


def test_strip_gives_the_original_back(tmp_path):
    model, out, _ = optimize(tmp_path, "residual")
    back = tmp_path / "back.pt"
    remat_opt.succeed("strip", out, "-o", back)
    assert remat_opt.succeed("dump", back) == remat_opt.succeed("dump", model)
    stripped, original = torch.jit.load(str(back)), torch.jit.load(model)
    assert stripped.code == original.code
    assert not [name for name in dir(stripped) if name.startswith("remat_")]
    for (name, a), (_, b) in zip(stripped.state_dict().items(), original.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    assert "nothing to strip" in remat_opt.fail(1, "strip", back, "-o", tmp_path / "again.pt")


def test_strip_reaches_the_models_inside(tmp_path):
    _, out, _ = optimize(tmp_path, "residual")
    program = (
        "import sys, torch\n"
        "torch.ops.load_library(sys.argv[1])\n"
        "class Holder(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.held = torch.jit.load(sys.argv[2])\n"
        "    def forward(self, x):\n"
        "        return self.held(x)\n"
        "torch.jit.script(Holder()).save(sys.argv[3])\n"
    )
    holder, back = tmp_path / "holder.pt", tmp_path / "back.pt"
    script = tmp_path / "holder.py"
    script.write_text(program, encoding="utf-8")
    arguments = [sys.executable, "-W", "ignore", script, os.environ["REMAT_RUNTIME"], out, holder]
    subprocess.run(arguments, check=True)
    assert "held.forward has its original graph again" in remat_opt.succeed("strip", holder, "-o", back)
    stripped = torch.jit.load(str(back))  # without the runtime
    assert not [name for name in dir(stripped.held) if name.startswith("remat_")]


@pytest.mark.parametrize(
    "arguments", [("dump",), ("plan", "--input", models.ROWS), ("verify", "--input", models.ROWS, "--rounds", "1")]
)
def test_a_result_that_cannot_be_printed_is_an_error(tmp_path, arguments):
    model, out, _ = optimize(tmp_path, "mlp")
    verb, *rest = arguments
    files = [model, out] if verb == "verify" else [out if verb == "dump" else model]
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run(
            [os.environ["REMAT_OPT"], verb, *files, *rest], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert result.returncode == 1
    assert "standard output: can't be written" in result.stderr


def test_an_optimised_model_is_planned_anew(tmp_path):
    model, out, _ = optimize(tmp_path, "mlp")
    again = tmp_path / "again.pt"
    result = remat_opt.run("optimize", out, "-o", again, "--input", models.ROWS, "--budget", "80%")
    assert result.returncode == 0 and "planned anew" in result.stderr
    assert remat_opt.succeed("dump", again, "--before") == remat_opt.succeed("dump", model)
    # In place.
    remat_opt.succeed("optimize", out, "-o", out, "--input", models.ROWS, "--budget", "80%")
    report = remat_opt.succeed_json("verify", model, out, "--input", models.ROWS)
    assert report["parity"]["gradients"] == "bitwise"


def test_another_method(tmp_path):
    model = models.save("two_methods", tmp_path / "model.pt")
    out = tmp_path / "out.pt"
    options = ("--input", models.ROWS, "--method", "encode")
    remat_opt.succeed("optimize", model, "-o", out, "--budget", "70%", *options)
    assert remat_opt.succeed("dump", out) == remat_opt.succeed("dump", model)
    assert "remat::keep" in remat_opt.succeed("dump", out, "--method", "encode")
    report = remat_opt.succeed_json("verify", model, out, *options)
    assert report["parity"]["gradients"] == "bitwise"


def test_cross_entropy_loss(tmp_path):
    model, out, _ = optimize(tmp_path, "mlp", "script", "75%", "--loss", "cross_entropy")
    report = remat_opt.succeed_json("verify", model, out, "--input", models.ROWS, "--loss", "cross_entropy")
    assert report["parity"]["gradients"] == "bitwise"


def test_saved_inputs(tmp_path):
    model = models.save("mlp", tmp_path / "model.pt")
    torch.save((models.sample("mlp"),), tmp_path / "inputs.pt")
    out = tmp_path / "out.pt"
    remat_opt.succeed("optimize", model, "-o", out, "--inputs", tmp_path / "inputs.pt", "--budget", "75%")
    remat_opt.succeed("verify", model, out, "--inputs", tmp_path / "inputs.pt")


def test_saved_lists_and_dicts(tmp_path):
    model, out = models.save("list_input", tmp_path / "model.pt"), tmp_path / "out.pt"
    half = torch.randn(512, 128)
    torch.save(([half, half + 1], {"a": torch.tensor(2.0)}, [1, 2]), tmp_path / "inputs.pt")
    remat_opt.succeed("optimize", model, "-o", out, "--inputs", tmp_path / "inputs.pt", "--budget", "75%")
    report = remat_opt.succeed_json("verify", model, out, "--inputs", tmp_path / "inputs.pt")
    assert report["parity"]["gradients"] == "bitwise"


@pytest.mark.parametrize("name,sizes", [("mlp", "128,256"), ("conv_net", "2,4")])
def test_two_batches_foretell_a_larger_one(tmp_path, name, sizes):
    _, _, here = optimize(tmp_path, name)
    model, out, result = optimize(
        tmp_path, name, "script", "75%", "--profile-batches", sizes, "--save-profile", tmp_path / "profile"
    )
    assert result["changed"] and result["extrapolated_from"] == [int(size) for size in sizes.split(",")]
    assert result["peak_bytes"]["measured"] == 0
    assert abs(result["peak_bytes"]["original"] / here["peak_bytes"]["original"] - 1) < 0.05
    report = remat_opt.succeed_json("verify", model, out, "--input", models.spec(name))
    assert abs(report["peak_bytes"]["optimized"] / result["peak_bytes"]["predicted"] - 1) < 0.05
    text = remat_opt.succeed(
        "plan", model, "--input", models.spec(name), "--budget", "80%", "--profile", tmp_path / "profile"
    )
    assert "extrapolated from steps at batch" in text
    error = remat_opt.fail(
        1, "plan", model, "--input", models.spec(name), "--budget", "80%", "--profile-batches", "2,9999"
    )
    assert "9999" in error


def test_input_that_requires_grad(tmp_path):
    model, out = models.save("mlp", tmp_path / "model.pt"), tmp_path / "out.pt"
    options = ("--input", models.ROWS + ":grad")
    remat_opt.succeed("optimize", model, "-o", out, "--budget", "75%", *options)
    report = remat_opt.succeed_json("verify", model, out, *options)
    assert report["parity"]["gradients"] == "bitwise"


def test_dumps_and_reports(tmp_path):
    folder = tmp_path / "ir"
    optimize(tmp_path, "mlp", "script", "75%", "--dump-ir", folder, "--report", tmp_path / "report.json")
    mask = os.umask(0)
    os.umask(mask)
    assert folder.stat().st_mode & 0o777 == 0o777 & ~mask
    assert "remat::keep" in (folder / "after.ir").read_text()
    assert "remat::keep" not in (folder / "before.ir").read_text()
    assert json.loads((tmp_path / "report.json").read_text())["changed"]
    optimize(tmp_path, "mlp", "script", "75%", "--report", tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_device_memory_is_added_up(tmp_path):
    model, out = models.save("mlp", tmp_path / "model.pt"), tmp_path / "out.pt"
    text = remat_opt.succeed(
        "optimize", model, "-o", out, "--input", models.ROWS, "--device-memory", "6MB", "--optimizer", "adam"
    )
    for word in ("device memory", "- parameters", "- inputs", "- optimiser state (adam)", "= left for a step"):
        assert word in text
    error = remat_opt.fail(3, "optimize", model, "-o", out, "--input", models.ROWS, "--device-memory", "600kB")
    assert "leaves nothing" in error
    error = remat_opt.fail(3, "optimize", model, "-o", out, "--input", models.ROWS, "--device-memory", "2MB")
    assert "needs --device-memory of at least" in error and "budget" not in error


def test_max_overhead(tmp_path):
    model, out = models.save("mlp", tmp_path / "model.pt"), tmp_path / "out.pt"
    remat_opt.succeed("optimize", model, "-o", out, "--input", models.ROWS, "--max-overhead", "20%")
    assert out.exists()


def test_the_users_extra_files_stay(tmp_path):
    path = tmp_path / "model.pt"
    torch.jit.save(torch.jit.script(models.build("mlp")), str(path), _extra_files={"config.txt": "hello"})
    out, back = tmp_path / "out.pt", tmp_path / "back.pt"
    remat_opt.succeed("optimize", path, "-o", out, "--input", models.ROWS, "--budget", "75%")
    remat_opt.succeed("strip", out, "-o", back)
    extra = {"config.txt": "", "remat.json": ""}
    torch.jit.load(str(back), _extra_files=extra)
    assert extra["config.txt"] == b"hello" and not extra["remat.json"]


def test_help_and_version():
    assert "optimize" in remat_opt.succeed("--help")
    for verb in ("optimize", "plan", "verify", "dump", "strip"):
        text = remat_opt.succeed(verb, "--help")
        assert "--library" in text and "Exit codes: 0" in text
        assert sum(f"remat-opt {other} " in text for other in ("optimize", "plan", "verify", "dump", "strip")) == 1
    assert re.fullmatch(r"remat-opt \d+\.\d+\.\d+, LibTorch \d+\.\d+\.\d+\n", remat_opt.succeed("--version"))
