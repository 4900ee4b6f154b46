"""`verify`, and `optimize --verify`: what they find, print and refuse."""

import json
import os
import zipfile

import models
import pytest
import remat_opt
import torch


def optimize(tmp_path, name, how="script", budget="75%", *options):
    model = models.save(name, tmp_path / "model.pt", how)
    out = tmp_path / "out.pt"
    arguments = ("--input", models.spec(name), "--budget", budget, *options)
    return model, out, remat_opt.succeed_json("optimize", model, "-o", out, *arguments)


def edited(path, change):
    """Changes the one record of an archive of which `change` makes another."""
    with zipfile.ZipFile(path) as old:
        records = {record: old.read(record) for record in old.namelist()}
    changed = 0
    with zipfile.ZipFile(path, "w") as new:
        for record, data in records.items():
            if record.endswith((".py", ".json")):
                before, data = data, change(data.decode()).encode()
                changed += data != before
            new.writestr(record, data)
    assert changed == 1


def test_verify_json_has_the_promised_keys(tmp_path):
    model, out, _ = optimize(tmp_path, "mlp")
    report = remat_opt.succeed_json("verify", model, out, "--input", models.ROWS)
    assert list(map(sorted, ([*report], report["parity"], report["peak_bytes"], report["step_seconds"]))) == [
        ["parity", "peak_bytes", "recompute_share_of_forward", "step_seconds"],
        [
            "buffers",
            "deterministic",
            "first_difference",
            "gradients",
            "max_difference",
            "outputs",
            "random_state",
            "steps",
        ],
        ["optimized", "original", "predicted"],
        ["optimized", "original"],
    ]
    assert all(isinstance(value, int) for value in report["peak_bytes"].values())


def test_verify_of_a_model_with_itself(tmp_path):
    model = models.save("mlp", tmp_path / "model.pt")
    report = remat_opt.succeed_json("verify", model, model, "--input", models.ROWS)
    assert report["parity"]["gradients"] == "bitwise"
    assert report["recompute_share_of_forward"] == 0
    assert report["peak_bytes"]["predicted"] is None


def test_verify_finds_a_difference(tmp_path):
    model, out, _ = optimize(tmp_path, "linear", "script", "min")
    changed = torch.jit.load(str(out))
    with torch.no_grad():
        changed.bias.add_(1)
    changed.save(str(out))
    error = remat_opt.fail(4, "verify", model, out, "--input", models.ROWS)
    assert str(out) in error and "different parameter values" in error


def test_verify_refuses_another_model(tmp_path):
    model = models.save("mlp", tmp_path / "model.pt")
    other = models.save("linear", tmp_path / "other.pt")
    assert "is no version of" in remat_opt.fail(1, "verify", model, other, "--input", models.ROWS)


def test_verify_above_the_budget(tmp_path):
    model, out, result = optimize(tmp_path, "mlp")
    # As if the file had been planned for less.
    edited(out, lambda text: text.replace(f'"budget": {result["budget"]}', '"budget": 1000'))
    error = remat_opt.fail(3, "verify", model, out, "--input", models.ROWS)
    assert str(out) in error and "above its budget" in error
    # Of other inputs it says nothing.
    remat_opt.succeed("verify", model, out, "--input", "2048x128")


def test_verify_prints_a_table(tmp_path):
    model, out, _ = optimize(tmp_path, "mlp")
    text = remat_opt.succeed("verify", model, out, "--input", models.ROWS)
    for word in ("parity", "step peak", "predicted", "step time", "recomputed"):
        assert word in text


def test_verify_says_what_a_file_was_planned_for(tmp_path):
    model, out, _ = optimize(tmp_path, "mlp", "script", "75%", "--loss", "cross_entropy")
    note = "planned for loss cross_entropy and not random gradients"
    assert note in remat_opt.run("verify", model, out, "--input", models.ROWS, "--rounds", "1").stderr
    same = remat_opt.run("verify", model, out, "--input", models.ROWS, "--rounds", "1", "--loss", "cross_entropy")
    assert same.returncode == 0 and "planned for" not in same.stderr


class Chain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = (torch.nn.Linear(128, 128) for _ in range(3))

    def forward(self, x):
        a = torch.tanh(self.one(x))
        b = torch.sigmoid(self.two(a))
        return torch.sin(self.three(b))


CHAIN = ("--input", "1024x128")


@pytest.fixture
def chain(tmp_path):
    torch.manual_seed(0)
    torch.jit.script(Chain()).save(str(tmp_path / "model.pt"))
    remat_opt.succeed("optimize", tmp_path / "model.pt", "-o", tmp_path / "out.pt", *CHAIN, "--budget", "min")
    return tmp_path / "model.pt", tmp_path / "out.pt"


def in_region(before, after):
    """Changes the code of the region, not of the original that stands beside it."""

    def change(text):
        begin = text.find("def remat_region_forward_0")
        return text if begin < 0 else text[:begin] + text[begin:].replace(before, after, 1)

    return change


def line_of(text):
    """`verify_test.py:N`, as remarks give it."""
    with open(__file__, encoding="utf-8") as source:
        number = next(i for i, line in enumerate(source, 1) if text in line)
    return f"verify_test.py:{number}"


def test_the_first_other_value_is_named_with_its_place(chain):
    edited(chain[1], in_region("torch.sigmoid(", "torch.tanh("))
    error = remat_opt.fail(4, "verify", *chain, *CHAIN, "--rounds", "1")
    # The sigmoid is gone: what is made of it by the same operator at the same place differs first.
    assert "first in the value that aten::linear makes at three" in error
    assert line_of("torch.sin(self.three(b))") in error


def test_the_first_other_gradient_is_named_with_its_place(chain):
    edited(chain[1], in_region("torch.sigmoid(two)", "torch.sigmoid(torch.detach(two))"))
    error = remat_opt.fail(4, "verify", *chain, *CHAIN, "--rounds", "1")
    # Behind the detach nothing requires grad: what the sigmoid makes has no gradient there.
    assert "first in the gradient of what aten::sigmoid makes at" in error
    assert line_of("torch.sigmoid(self.two(a))") in error


def test_bits_count_unless_a_tolerance_is_given(chain):
    edited(chain[1], in_region("torch.sigmoid(two)", "torch.sigmoid(torch.mul(two, 1.000001))"))
    error = remat_opt.fail(4, "verify", *chain, *CHAIN, "--rounds", "1")
    assert "differs from" in error
    report = remat_opt.succeed_json("verify", *chain, *CHAIN, "--rounds", "1", "--tolerance", "1e-5", "--steps", "2")
    assert report["parity"]["outputs"] == "close" and report["parity"]["steps"] == 2
    assert report["parity"]["deterministic"] and report["parity"]["first_difference"]
    remat_opt.fail(4, "verify", *chain, *CHAIN, "--rounds", "1", "--tolerance", "1e-12")


@pytest.mark.parametrize("tolerance", ["-1", "nan", "x", "1e-5x"])
def test_a_tolerance_is_a_share(chain, tolerance):
    assert "--tolerance" in remat_opt.fail(2, "verify", *chain, *CHAIN, f"--tolerance={tolerance}")


def test_optimize_verifies_what_it_writes(tmp_path):
    _, _, report = optimize(tmp_path, "conv_net", "script", "min", "--verify", "--steps", "2")
    assert report["parity"] == "bitwise"
    _, _, report = optimize(tmp_path, "conv_net", "script", "min")
    assert "parity" not in report
    text = remat_opt.succeed(
        "optimize",
        *(tmp_path / "model.pt", "-o", tmp_path / "out.pt"),
        *("--input", models.spec("conv_net"), "--budget", "min", "--verify"),
    )
    assert "trains               bitwise  with the original, 4 steps" in text


class Forget(torch.nn.Module):
    def forward(self, x):
        return torch.ops.verify_test.forgetful(x)


class Forgetful(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = (torch.nn.Linear(128, 128) for _ in range(2))
        self.forget = Forget()

    def forward(self, x):
        return torch.sin(self.two(torch.sin(self.forget(torch.tanh(self.one(x))))))


def test_nothing_is_written_where_the_result_trains_otherwise(tmp_path):
    library = os.path.abspath("tests/tools/libforgetful.so")
    torch.ops.load_library(str(library))
    model, out = tmp_path / "model.pt", tmp_path / "out.pt"
    torch.jit.script(Forgetful()).save(str(model))
    out.write_bytes(b"as it was")
    options = ("--library", library, "--allow-op", "verify_test::forgetful", *CHAIN, "--recompute", "forget")
    options += ("--keep", "two")
    error = remat_opt.fail(4, "optimize", model, "-o", out, *options, "--budget", "min", "--verify")
    # The sine of what the replay got wrong has the first wrong gradient.
    assert "trains otherwise once it is optimised, first in the gradient of what" in error
    assert "verify_test::forgetful makes at forget" in error and line_of("verify_test.forgetful(x)") in error
    assert out.read_bytes() == b"as it was"


class Unsteady(torch.nn.Module):
    def __init__(self, by: float):
        super().__init__()
        self.by = by
        self.layer = torch.nn.Linear(128, 128)

    def forward(self, x):
        return torch.ops.verify_test.unsteady(torch.tanh(self.layer(x)), self.by)


def test_an_original_that_differs_from_itself(tmp_path):
    library = os.path.abspath("tests/tools/libforgetful.so")
    torch.ops.load_library(str(library))
    model = tmp_path / "model.pt"
    arguments = ("verify", model, model, "--library", library, "--input", models.ROWS)
    torch.jit.script(Unsteady(1e-7)).save(str(model))
    result = remat_opt.run(*arguments, "--json")
    assert result.returncode == 0 and "not deterministic" in result.stderr
    assert not json.loads(result.stdout)["parity"]["deterministic"]
    torch.jit.script(Unsteady(0.1)).save(str(model))
    error = remat_opt.fail(4, *arguments)
    assert "the original differs from itself, too" in error and "report" not in error
    assert remat_opt.run(*arguments, "--tolerance", "1e3").returncode == 0
