"""Steps under autocast: `--autocast` of every verb, and what casts do to plans and predictions."""

import models
import pytest
import remat_opt
import torch


def optimize(tmp_path, name, how="script", budget="75%", *options):
    model = models.save(name, tmp_path / "model.pt", how)
    out = tmp_path / "out.pt"
    arguments = ("--input", models.spec(name), "--budget", budget, *options)
    return model, out, remat_opt.succeed_json("optimize", model, "-o", out, *arguments)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_step_under_autocast(tmp_path, dtype):
    options = ("--autocast", dtype)
    model, out, report = optimize(tmp_path, "conv_net", "script", "75%", *options, "--verify")
    assert report["parity"] == "bitwise" and report["recomputed"] > 0
    assert report["peak_bytes"]["measured"] <= report["budget"]
    _, _, without = optimize(tmp_path, "conv_net", "script", "75%")
    assert report["peak_bytes"]["original"] < without["peak_bytes"]["original"]
    result = remat_opt.run("verify", model, out, "--input", models.spec("conv_net"), *options)
    note = f"planned for loss random gradients and not random gradients under {dtype} autocast"
    assert result.returncode == 0 and note in result.stderr


class Edges(torch.nn.Module):
    """Attention that drops out, taken apart, and an activation whose form in place has a derivative of its own."""

    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(64, 192)
        self.out = torch.nn.Linear(64, 64)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        h = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
        return torch.sin(torch.nn.functional.elu(self.out(h) * 1.0, inplace=True))


@pytest.mark.parametrize("planned", [(), ("--autocast", "bfloat16"), ("--autocast", "float16")])
def test_a_file_trains_right_under_any_autocast(tmp_path, planned):
    torch.manual_seed(0)
    eager = torch.nn.Sequential(torch.nn.Linear(64, 64), Edges(), Edges())
    model, out = tmp_path / "model.pt", tmp_path / "out.pt"
    torch.jit.script(eager).save(str(model))
    remat_opt.succeed("optimize", model, "-o", out, "--input", "4x128x64", "--budget", "min", *planned, "--verify")
    torch.ops.load_library(remat_opt.REMAT_RUNTIME)
    torch._C._set_graph_executor_optimize(False)
    optimized = torch.jit.load(str(out))
    for dtype in (None, torch.bfloat16, torch.float16):
        results = []
        for trained in (eager, optimized):
            trained.zero_grad()
            torch.manual_seed(1)
            with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
                y = trained(torch.linspace(-1, 1, 4 * 128 * 64).view(4, 128, 64))
            y.float().square().sum().backward()
            results.append([y.detach(), *[p.grad.clone() for p in trained.parameters()], torch.rand(4)])
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True)), dtype


def test_autocast_names_its_dtypes(tmp_path):
    model = models.save("mlp", tmp_path / "model.pt")
    arguments = ("plan", model, "--input", models.ROWS, "--autocast", "int8")
    assert "bfloat16 or float16" in remat_opt.fail(2, *arguments)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("budget", ["min", "65%"])
def test_casts_are_predicted_to_the_byte(tmp_path, dtype, budget):
    _, _, report = optimize(tmp_path, "transformer", "script", budget, "--autocast", dtype, "--verify")
    assert report["parity"] == "bitwise" and report["recomputed"] > 0
    assert report["peak_bytes"]["predicted"] == report["peak_bytes"]["measured"] <= report["budget"]


def test_no_linear_runs_again_for_the_cast_of_its_input(tmp_path):
    arguments = ("--input", models.TOKENS, "--autocast", "bfloat16", "--budget")
    model = models.save("transformer", tmp_path / "model.pt")
    lowest = remat_opt.succeed_json("plan", model, *arguments, "80%")["minimum_peak"]
    out = tmp_path / "out.pt"
    remat_opt.succeed("optimize", model, "-o", out, *arguments, f"{int(1.2 * lowest)}B")
    dump = remat_opt.succeed("dump", out)
    assert "aten::layer_norm takes" in dump
    assert not [line for line in dump.splitlines() if "inside of aten::linear" in line]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_two_batches_foretell_a_third(tmp_path, dtype):
    model = models.save("transformer", tmp_path / "model.pt")
    options = ("plan", model, "--input", "16x64x64", "--budget", "60%", "--autocast", dtype)
    measured = remat_opt.succeed_json(*options)
    foretold = remat_opt.succeed_json(*options, "--profile-batches", "4,8")
    assert foretold["original_peak"] == pytest.approx(measured["original_peak"], rel=0.03)
