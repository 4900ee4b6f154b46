"""What can be asked of a plan, and what is said of it."""

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


def test_modules_that_are_none(tmp_path):
    model = model_file(tmp_path, "residual")
    options = ("plan", model, "--input", models.IMAGES, "--budget", "80%")
    error = remat_opt.fail(2, *options, "--keep", "layer9.*")
    assert "--keep 'layer9.*' matches no module of forward; its modules are blocks, blocks.0" in error
    error = remat_opt.fail(2, *options, "--recompute", "blocks.*", "--keep", "*.bn1")
    assert "both match module blocks.0.bn1" in error
