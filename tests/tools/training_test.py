"""An optimised file, trained in a fresh Python process that loads the runtime library and nothing else of Remat,
gives bit for bit what the eager original gives."""

import subprocess
import sys

import models
import pytest
import remat_opt
import torch
import train_optimized


def train_in_a_fresh_process(path, name, tmp_path, *runtime):
    result = tmp_path / "result.pt"
    script = train_optimized.__file__
    subprocess.run([sys.executable, script, str(path), name, str(result), *runtime], check=True)
    return torch.load(result)


def assert_equal(expected, actual):
    assert len(expected) == len(actual)
    for step, (left, right) in enumerate(zip(expected, actual, strict=True)):
        for kind in left:
            for i, (a, b) in enumerate(zip(left[kind], right[kind], strict=True)):
                assert a.dtype == b.dtype and torch.equal(a, b), f"step {step + 1}, {kind} {i}"


TRACED = ["mlp", "conv_net", "residual"]  # tracing takes no outputs of other structures
SCRIPTED = [*TRACED, "dict", "tuple", "list", "named_tuple"]


@pytest.mark.parametrize(
    "name,how", [(name, "script") for name in SCRIPTED] + [(name, "trace") for name in TRACED]
)
@pytest.mark.parametrize("budget", ["75%", "min"])
def test_trains_as_the_eager_original(tmp_path, name, how, budget):
    model = models.save(name, tmp_path / "model.pt", how)
    out = tmp_path / "out.pt"
    remat_opt.succeed("optimize", model, "-o", out, "--input", models.spec(name), "--budget", budget)
    actual = train_in_a_fresh_process(out, name, tmp_path, remat_opt.REMAT_RUNTIME)
    assert_equal(train_optimized.train(models.build(name), name), actual)


def test_evaluation_mode_and_no_grad(tmp_path):
    model = models.save("residual", tmp_path / "model.pt")
    out = tmp_path / "out.pt"
    remat_opt.succeed("optimize", model, "-o", out, "--input", models.spec("residual"), "--budget", "min")
    torch.ops.load_library(remat_opt.REMAT_RUNTIME)
    x = models.sample("residual")
    eager, optimized = models.build("residual"), torch.jit.load(str(out))
    with torch.no_grad():
        assert torch.equal(eager(x), optimized(x))
    assert_equal([{"train": [eager(x)]}], [{"train": [optimized(x)]}])
    eager.eval()
    optimized.eval()
    assert torch.equal(eager(x), optimized(x))
    eager(x).sum().backward()
    optimized(x).sum().backward()
    for a, b in zip(eager.parameters(), optimized.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
    for a, b in zip(eager.buffers(), optimized.buffers(), strict=True):
        assert torch.equal(a, b)


def test_stripped_file_needs_no_runtime(tmp_path):
    model = models.save("mlp", tmp_path / "model.pt")
    out, back = tmp_path / "out.pt", tmp_path / "back.pt"
    remat_opt.succeed("optimize", model, "-o", out, "--input", models.ROWS, "--budget", "75%")
    remat_opt.succeed("strip", out, "-o", back)
    assert_equal(train_optimized.train(models.build("mlp"), "mlp"), train_in_a_fresh_process(back, "mlp", tmp_path))
