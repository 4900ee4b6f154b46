"""What can be asked of a plan, and what is said of it."""

import json

import models
import pytest
import remat_opt

INPUT = ("--input", models.ROWS)


def model_file(tmp_path, name="mlp"):
    return models.save(name, tmp_path / "model.pt")


def notes(text):
    """By value: `kept` or `recomputed`, and the module."""
    found = {}
    for line in text.splitlines():
        if " # kept, " in line or " # recomputed, " in line:
            code, note = line.split(" # ")
            name = code.split(" : ")[0].strip().lstrip("%").split(".")[0]
            found[name] = (note.split(",")[0], note.split("; ")[-1].split(" ")[0])
    return found


def test_the_gap_is_said(tmp_path):
    model, out = model_file(tmp_path), tmp_path / "out.pt"
    options = (model, "-o", out, *INPUT, "--budget", "60%")
    result = remat_opt.succeed_json("optimize", *options)
    assert 0 < result["lower_bound_share"] <= result["recompute_share"]
    assert result["gap"] == pytest.approx(result["recompute_share"] - result["lower_bound_share"])
    assert "% more than the least possible;" in remat_opt.succeed("optimize", *options)
    assert "more than the least possible" in remat_opt.succeed(
        "optimize", *options, "--report", tmp_path / "report.html"
    ) + (tmp_path / "report.html").read_text(encoding="utf-8")
    text = remat_opt.succeed("plan", model, *INPUT, "--budget", "60%")
    assert "at least" in text and "gap" in text


def test_the_minimum_has_a_bound(tmp_path):
    curve = remat_opt.succeed_json("plan", model_file(tmp_path), *INPUT, "--budget", "min")
    assert curve["points"][0]["lower_bound_share"] > 0


def test_what_blocks_a_budget_is_named(tmp_path):
    model = model_file(tmp_path, "looping")
    for options in [("plan", model), ("optimize", model, "-o", tmp_path / "out.pt")]:
        error = remat_opt.fail(3, *options, *INPUT, "--budget", "5%")
        assert "; kept at its peak: " in error and "prim::Loop" in error and "[unknown-op]" in error
    error = remat_opt.fail(3, "optimize", model, "-o", tmp_path / "out.pt", *INPUT, "--device-memory", "3MB")
    assert "needs --device-memory of at least" in error and "; kept at its peak: " in error


def test_decisions_by_module(tmp_path):
    model, out = model_file(tmp_path, "residual"), tmp_path / "out.pt"
    options = ("optimize", model, "-o", out, "--input", models.IMAGES)
    remat_opt.succeed(*options, "--budget", "min", "--keep", "blocks.0", "--keep", "*.conv2")
    decided = notes(remat_opt.succeed("dump", out))
    mine = [word for word, path in decided.values() if path.startswith("blocks.0.") or path.endswith(".conv2")]
    assert len(mine) > 4 and set(mine) == {"kept"}
    assert "recomputed" in {word for word, _ in decided.values()}
    # Even with memory to spare.
    remat_opt.succeed(*options, "--budget", "100%", "--recompute", "blocks.[12].conv1")
    decided = notes(remat_opt.succeed("dump", out))
    assert {word for word, path in decided.values() if path in ("blocks.1.conv1", "blocks.2.conv1")} == {"recomputed"}
    report = remat_opt.succeed_json("verify", model, out, "--input", models.IMAGES, "--rounds", "1")
    assert report["parity"]["gradients"] == "bitwise"
    assert "as was asked for" in remat_opt.succeed("dump", out)
    # One pattern, no list.
    assert "'blocks.[9]'" in remat_opt.fail(2, "plan", model, "--input", models.IMAGES, "--budget", "80%", "--keep", "blocks.[9]")
    assert "'[1]'" in remat_opt.fail(2, "plan", model, "--input", models.IMAGES, "--budget", "80%", "--keep", "[1]")


def test_modules_that_are_none(tmp_path):
    model = model_file(tmp_path, "residual")
    options = ("plan", model, "--input", models.IMAGES, "--budget", "80%")
    error = remat_opt.fail(2, *options, "--keep", "layer9.*")
    assert "keep 'layer9.*' matches no module of forward; its modules are blocks, blocks.0" in error
    error = remat_opt.fail(2, *options, "--recompute", "blocks.*", "--keep", "*.bn1")
    assert "both match module blocks.0.bn1" in error


def test_a_plan_is_saved_and_taken(tmp_path):
    model, out, again = model_file(tmp_path), tmp_path / "out.pt", tmp_path / "again.pt"
    saved, second = tmp_path / "plan.json", tmp_path / "second.json"
    made = remat_opt.succeed_json("optimize", model, "-o", out, *INPUT, "--budget", "60%", "--save-plan", saved)
    plan = json.loads(saved.read_text(encoding="utf-8"))
    assert plan["budget"] == made["budget"] and plan["method"] == "forward" and plan["tool_version"]
    assert {"keep", "recompute"} <= set(plan["values"].values())
    taken = remat_opt.succeed_json("optimize", model, "-o", again, *INPUT, "--plan", saved, "--save-plan", second)
    assert taken["peak_bytes"]["predicted"] == made["peak_bytes"]["predicted"]
    assert [taken[key] for key in ("kept", "recomputed")] == [made[key] for key in ("kept", "recomputed")]
    assert taken["planning_seconds"] == 0
    graphs = [[line for line in remat_opt.succeed("dump", path).splitlines() if "remat" in line] for path in (out, again)]
    assert [line.split("#")[0] for line in graphs[0]] == [line.split("#")[0] for line in graphs[1]]
    headers = [remat_opt.succeed("dump", path).splitlines()[0] for path in (out, again)]
    assert headers[0].startswith("# remat-opt ") and ", profile " in headers[0]
    hashes = [header.split(", plan ")[1].split(",")[0] for header in headers]
    assert hashes[0] == hashes[1] and len(hashes[0]) == 16
    report = remat_opt.succeed_json("verify", model, again, *INPUT, "--rounds", "1")
    assert report["parity"]["gradients"] == "bitwise"


def test_a_plan_from_plan(tmp_path):
    model, out, saved = model_file(tmp_path), tmp_path / "out.pt", tmp_path / "plan.json"
    remat_opt.succeed("plan", model, *INPUT, "--budget", "min", "--save-plan", saved)
    assert json.loads(saved.read_text(encoding="utf-8"))["budget"] == 0
    result = remat_opt.succeed_json("optimize", model, "-o", out, *INPUT, "--plan", saved)
    assert result["changed"] and result["recomputed"] > 0


def test_the_gap_of_a_plan_is_of_the_profile_here(tmp_path):
    model, saved, profile = model_file(tmp_path), tmp_path / "plan.json", tmp_path / "slow.json"
    remat_opt.succeed("plan", model, *INPUT, "--budget", "60%", "--save-plan", saved, "--save-profile", profile)
    plan = json.loads(saved.read_text(encoding="utf-8"))
    slow = json.loads(profile.read_text(encoding="utf-8"))
    for index, node in enumerate(slow["nodes"]):
        node["seconds"] *= 1 + 9 * (index % 2)
    profile.write_text(json.dumps(slow), encoding="utf-8")
    plan["lower_bound_share"] = 1e9
    saved.write_text(json.dumps(plan), encoding="utf-8")
    options = (model, *INPUT, "--profile", profile)
    taken = remat_opt.succeed_json("optimize", *options, "-o", tmp_path / "out.pt", "--plan", saved)
    best = remat_opt.succeed_json("plan", *options, "--budget", f"{plan['budget']}B")["points"][0]
    assert taken["recompute_share"] >= best["recompute_share"] >= taken["lower_bound_share"] > 0
    # As the same bytes, only small storages may be dropped as well.
    assert taken["lower_bound_share"] == pytest.approx(best["lower_bound_share"], rel=0.05)


def test_plans_that_do_not_fit(tmp_path):
    model, out, saved = model_file(tmp_path), tmp_path / "out.pt", tmp_path / "plan.json"
    assert "exactly one --budget" in remat_opt.fail(2, "plan", model, *INPUT, "--save-plan", saved)
    remat_opt.succeed("plan", model, *INPUT, "--budget", "70%", "--save-plan", saved)
    other = models.save("dict", tmp_path / "other.pt")
    options = ("-o", out, *INPUT, "--plan", saved)
    assert "made for another model" in remat_opt.fail(1, "optimize", other, *options)
    assert "above its budget" in remat_opt.fail(3, "optimize", model, "-o", out, "--input", "4096x128", "--plan", saved)
    assert "--plan" in remat_opt.fail(2, "optimize", model, *options, "--budget", "50%")
    assert "--keep" in remat_opt.fail(2, "optimize", model, *options, "--keep", "0")
    good = json.loads(saved.read_text(encoding="utf-8"))
    for wrong, word in [({"regenerated": ["none"]}, "no value none"), ({"method": "other"}, "for the method other")]:
        saved.write_text(json.dumps({**good, **wrong}), encoding="utf-8")
        assert word in remat_opt.fail(1, "optimize", model, *options)
    saved.write_text("{}", encoding="utf-8")
    assert "is no plan" in remat_opt.fail(1, "optimize", model, *options)
    assert "can't be read" in remat_opt.fail(1, "optimize", model, "-o", out, *INPUT, "--plan", tmp_path / "none")
    assert not out.exists()


@pytest.mark.parametrize("batches", ["2,4", "4,2", "64,16"])
def test_small_batches_foretell_the_original(tmp_path, batches):
    """Also where the peak of small ones is the weights' gradients, and that of large ones activations. What only the
    original saves (dropout's mask in four bytes) can hide in the former."""
    model = model_file(tmp_path)
    options = ("plan", model, *INPUT, "--budget", "100%")
    measured = remat_opt.succeed_json(*options)["original_peak"]
    foretold = remat_opt.succeed_json(*options, "--profile-batches", batches)
    assert foretold["original_peak"] == pytest.approx(measured, rel=0.2)


def test_the_largest_batch(tmp_path):
    model = model_file(tmp_path)
    options = ("plan", model, *INPUT, "--max-batch", "--profile-batches", "128,256")
    found = remat_opt.succeed_json(*options, "--budget", "10MB")
    assert found["max_batch"] > found["max_batch_without_remat"] > 256
    assert found["predicted_peak"] <= found["budget"] == 10_000_000
    assert found["predicted_from_batches"] == [128, 256]
    # What is recorded at the batch without Remat agrees; as for the other, how deep a search gets depends on times.
    there = f"{found['max_batch_without_remat']}x128"
    curve = remat_opt.succeed_json("plan", model, "--input", there, "--budget", "min")
    assert curve["original_peak"] == pytest.approx(10_000_000, rel=0.05)
    text = remat_opt.succeed(*options, "--device-memory", "10MB", "--optimizer", "adam")
    for word in ("- inputs", "(adam)", "= left for a step", "predicted, from batches 128 and 256", "without Remat"):
        assert word in text


def test_the_largest_batch_needs_bytes(tmp_path):
    model = model_file(tmp_path)
    options = ("plan", model, *INPUT)
    assert "in bytes" in remat_opt.fail(2, *options, "--max-batch", "--budget", "50%")
    assert "in bytes" in remat_opt.fail(2, *options, "--max-batch")
    assert "--max-batch" in remat_opt.fail(2, *options, "--device-memory", "1GB")
    assert "not even a batch of 1" in remat_opt.fail(3, *options, "--max-batch", "--budget", "10kB")


GPU = ("--plan-for", "cuda", "--roofline", "67T,4.8T")


def test_a_gpu_that_is_not_here_is_planned_for(tmp_path):
    model, out = model_file(tmp_path), tmp_path / "out.pt"
    profile, plan, report = tmp_path / "profile.json", tmp_path / "plan.json", tmp_path / "report.html"
    options = ("optimize", model, "-o", out, *INPUT, "--budget", "60%", *GPU)
    files = ("--save-profile", profile, "--save-plan", plan, "--report", report)
    result = remat_opt.succeed_json(*options, *files)
    assert result["device"] == "cuda:0" and result["recorded_on"] == "cpu" and result["rounding"] == 512
    assert result["times"] == "roofline" and result["roofline"] == [67e12, 4.8e12]
    assert result["peak_bytes"]["measured"] == 0 and 0 < result["peak_bytes"]["predicted"] <= result["budget"]
    recorded = json.loads(profile.read_text(encoding="utf-8"))
    assert recorded["device"] == "cuda:0" and all(storage[0] % 512 == 0 for storage in recorded["storages"])
    saved = json.loads(plan.read_text(encoding="utf-8"))
    assert saved["device"] == "cuda:0" and "roofline of 67.0 TFLOP/s" in saved["times"]
    page = report.read_text(encoding="utf-8")
    assert "times by a roofline of 67.0 TFLOP/s" in page and "cuda:0" in page
    text = remat_opt.succeed(*options)
    assert "taken over from cpu for cuda:0" in text and "nothing was measured there" in text
    assert remat_opt.succeed("dump", out).splitlines()[0].endswith(", for cuda:0")
    # It trains here as well.
    parity = remat_opt.succeed_json("verify", model, out, *INPUT, "--rounds", "1")["parity"]
    assert parity["gradients"] == "bitwise"
    # The profile serves again, as it is.
    again = remat_opt.succeed_json("plan", model, *INPUT, "--budget", "60%", *GPU, "--profile", profile)
    assert again["points"][0]["predicted_peak"] == result["peak_bytes"]["predicted"]


def test_a_cuda_profile_gives_the_plan_of_a_cpu_profile(tmp_path):
    model, cpu, cuda = model_file(tmp_path), tmp_path / "cpu.json", tmp_path / "cuda.json"
    ask = ("plan", model, *INPUT, "--budget", "70%", "--budget", "60%")
    remat_opt.succeed(*ask, "--save-profile", cpu)
    stub = json.loads(cpu.read_text(encoding="utf-8"))
    stub.update(device="cuda:0", rounding=512)
    stub["storages"] = [[-(-size // 512) * 512, role] for size, role in stub["storages"]]
    cuda.write_text(json.dumps(stub), encoding="utf-8")
    left = remat_opt.succeed_json(*ask, "--profile", cpu)
    right = remat_opt.succeed_json(*ask, *GPU, "--profile", cuda)
    assert (left["device"], right["device"]) == ("cpu", "cuda:0") and right["times"] == "measured"
    for mine, other in zip(left["points"], right["points"], strict=True):
        assert [mine[key] for key in ("kept", "recomputed")] == [other[key] for key in ("kept", "recomputed")]
        assert mine["recompute_seconds"] == pytest.approx(other["recompute_seconds"])
        assert 0 <= other["predicted_peak"] - mine["predicted_peak"] < 512 * len(stub["storages"])


def test_a_batch_for_a_gpu_that_is_not_here(tmp_path):
    ask = ("plan", model_file(tmp_path), *INPUT, "--max-batch", *GPU, "--device-memory")
    text = remat_opt.succeed(*ask, "2GiB")
    assert "- context (assumed)" in text and "- fragmentation (5 %)" in text and "cuda:0" in text
    found = remat_opt.succeed_json(*ask, "2GiB")
    assert found["max_batch"] > 1 and found["device"] == "cuda:0" and found["times"] == "roofline"
    assert "is not here to read its memory from" in remat_opt.fail(1, *ask, "90%")


def test_what_a_gpu_is_asked_for_wrongly(tmp_path):
    ask = ("plan", model_file(tmp_path), *INPUT, "--budget", "60%")
    assert "give --roofline FLOPS,BYTES_PER_S" in remat_opt.fail(1, *ask, "--plan-for", "cuda:7")
    assert "--roofline needs --plan-for" in remat_opt.fail(2, *ask, "--roofline", "67T,4.8T")
    assert "'67T' is no roofline" in remat_opt.fail(2, *ask, "--plan-for", "cuda", "--roofline", "67T")
    assert "--plan-for cpu" in remat_opt.fail(2, *ask, "--plan-for", "cpu")
    assert "--plan-for 'tpu'" in remat_opt.fail(2, *ask, "--plan-for", "tpu")
    memory = ("plan", model_file(tmp_path), *INPUT, "--max-batch", "--device-memory", "90%")
    assert "in percent is of a GPU's memory" in remat_opt.fail(2, *memory)


def test_deterministic_algorithms_are_said(tmp_path):
    model, out, plan = model_file(tmp_path), tmp_path / "out.pt", tmp_path / "plan.json"
    remat_opt.succeed("optimize", model, "-o", out, *INPUT, "--budget", "60%", "--deterministic", "--save-plan", plan)
    assert json.loads(plan.read_text(encoding="utf-8"))["loss"] == "random gradients by deterministic algorithms"
    result = remat_opt.run("verify", model, out, *INPUT, "--rounds", "1")
    assert result.returncode == 0 and "by deterministic algorithms and not random gradients" in result.stderr
    assert "was planned for" not in remat_opt.run("verify", model, out, *INPUT, "--rounds", "1", "--deterministic").stderr
