"""Bad input: exit code, one line that names the file and the cause, and outputs left alone."""

import os
import resource
import signal
import subprocess
import time

import models
import pytest
import remat_opt
import torch

OPTIONS = ("--input", models.ROWS, "--budget", "60%")


@pytest.fixture(name="model")
def _model(tmp_path):
    return models.save("mlp", tmp_path / "model.pt")


@pytest.fixture(name="out")
def _out(tmp_path):
    """An existing output that no failure may touch."""
    path = tmp_path / "out.pt"
    path.write_bytes(b"precious")
    yield path
    assert path.read_bytes() == b"precious"
    assert not list(tmp_path.glob("*.tmp"))


def refuse(code, path, message, out, *options, **kwargs):
    error = remat_opt.fail(code, "optimize", path, "-o", out, *(options or OPTIONS), **kwargs)
    assert message in error, error
    return error


def test_no_such_file(tmp_path, out):
    path = tmp_path / "none.pt"
    assert str(path) in refuse(1, path, "no such file", out)


def test_not_a_zip(tmp_path, out):
    path = tmp_path / "text.pt"
    path.write_text("hello, this is text")
    assert str(path) in refuse(1, path, "is no zip archive", out)


def test_truncated_archive(model, tmp_path, out):
    path = tmp_path / "half.pt"
    path.write_bytes(open(model, "rb").read()[: os.path.getsize(model) // 2])
    assert str(path) in refuse(1, path, "truncated archive", out)


@pytest.mark.parametrize("zipped", [True, False])
def test_state_dict(tmp_path, out, zipped):
    path = tmp_path / "state.pt"
    torch.save(models.build("mlp").state_dict(), path, _use_new_zipfile_serialization=zipped)
    assert str(path) in refuse(1, path, "state_dict", out)


@pytest.mark.parametrize("flatbuffer", [True, False])
def test_lite_interpreter_file(tmp_path, out, flatbuffer):
    path = tmp_path / "lite.ptl"
    torch.jit.script(models.build("mlp"))._save_for_lite_interpreter(str(path), _use_flatbuffer=flatbuffer)
    assert str(path) in refuse(1, path, "lite-interpreter file", out)


def test_missing_method(model, out):
    error = refuse(1, model, "has no method decode", out, *OPTIONS, "--method", "decode")
    assert model in error and "forward" in error


def test_wrong_number_of_inputs(model, out):
    refuse(1, model, "takes 1 input", out, "--budget", "60%")
    refuse(1, model, "takes 1 input", out, *OPTIONS, "--input", "3")


def test_wrong_shape_shows_the_models_own_error_and_the_spec(model, out):
    error = refuse(1, model, "cannot be multiplied", out, "--input", "16x127", "--budget", "60%")
    assert "--input 16x127" in error and model in error


def test_wrong_type(model, out):
    refuse(1, model, "--input int=3", out, "--input", "int=3", "--budget", "60%")


@pytest.mark.parametrize(
    "spec,message", [("16xx3", "position 4"), ("16x3:float31", "'float31' is no dtype"), ("", "expected a shape")]
)
def test_malformed_input(model, out, spec, message):
    assert "--input" in refuse(2, model, message, out, "--input", spec, "--budget", "60%")


@pytest.mark.parametrize("budget,message", [("50", "has no unit"), ("0%", "between"), ("much", "is no budget")])
def test_malformed_budget(model, out, budget, message):
    assert "--budget" in refuse(2, model, message, out, "--input", models.ROWS, "--budget", budget)


@pytest.mark.parametrize(
    "options",
    [
        ("--input", models.ROWS),
        (*OPTIONS, "--max-overhead", "20%"),
        (*OPTIONS, "--optimizer", "adam"),
        ("--input", models.ROWS, "--device-memory", "0B"),
        ("--input", models.ROWS, "--device-memory", "1GB", "--optimizer", "9" * 23),
        (*OPTIONS, "--report", "report.txt"),
        (*OPTIONS, "--loss", "mse"),
        (*OPTIONS, "--device", "tpu9"),
        (*OPTIONS, "--reserve", "lots"),
        (*OPTIONS, "--inputs", "x.pt"),
        (*OPTIONS, "--no-such-option"),
    ],
)
def test_usage(model, out, options):
    refuse(2, model, "", out, *options)


def test_usage_without_a_verb():
    assert "--help" in remat_opt.fail(2)
    assert "--help" in remat_opt.fail(2, "optimise", "m.pt")


def test_budget_below_the_reachable_minimum(model, out):
    error = refuse(3, model, "", out, "--input", models.ROWS, "--budget", "1%")
    assert model in error and "B" in error


def test_a_budget_missed_by_its_reserve(model):
    options = (model, *OPTIONS[:2], "--reserve", "1MB")
    error = remat_opt.fail(3, "plan", *options, "--budget", "1.5MB")
    assert "(500000 bytes), after the reserve," in error
    asked = error.split("; ask for ")[1].split("(")[1].split(" ")[0]
    remat_opt.succeed("plan", *options, "--budget", asked + "B")


def test_no_device_memory_at_all(model):
    assert "no memory at all" in remat_opt.fail(2, "plan", model, *OPTIONS[:2], "--max-batch", "--device-memory", "0B")


def test_reserve_above_the_budget(model, out):
    error = refuse(3, model, "takes the whole budget", out, *OPTIONS, "--reserve", "1GB")
    assert "lower the reserve" in error


def test_typos(model, out):
    assert "'optimise' is no verb; did you mean optimize?" in remat_opt.fail(2, "optimise", model)
    error = refuse(2, model, "--inptu is no option of optimize; did you mean --input?", out, "--inptu", "3x4")
    assert "3x4" not in error
    refuse(2, model, "--budget may be given once", out, *OPTIONS, "--budget", "50%")
    refuse(2, model, "use %", out, "--input", models.ROWS, "--budget", "50percent")
    refuse(2, model, "or float=0.5, bool=true", out, "--input", "0.5", "--budget", "50%")


def test_operators_to_allow(model, out):
    refuse(2, model, "say my::op", out, *OPTIONS, "--allow-op", "relu")
    refuse(1, model, "no operator is registered under the name my::op", out, *OPTIONS, "--allow-op", "my::op")


def test_an_input_beyond_all_memory(model, out):
    error = refuse(1, model, "out of memory", out, "--input", "1000000000x128000", "--budget", "60%")
    assert "alloc_cpu" not in error


def test_output_folder(model, out, tmp_path):
    error = remat_opt.fail(1, "optimize", model, "-o", tmp_path / "none" / "o.pt", *OPTIONS)
    assert "doesn't exist" in error
    assert "is a folder" in remat_opt.fail(1, "optimize", model, "-o", tmp_path, *OPTIONS)
    assert "none" in remat_opt.fail(1, "strip", model, "-o", tmp_path / "none" / "o.pt")


def test_full_disk(model, out):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    refuse(1, model, "larger than allowed", out, preexec_fn=limit)


def test_nothing_to_train(tmp_path, out):
    module = models.build("mlp").requires_grad_(False)
    torch.jit.script(module).save(str(tmp_path / "frozen.pt"))
    refuse(1, tmp_path / "frozen.pt", "requires grad", out)


def test_profile_that_is_none(model, out, tmp_path):
    (tmp_path / "profile.json").write_text("{")
    profile = tmp_path / "profile.json"
    refuse(1, model, f"{profile}: is no profile written by --save-profile", out, *OPTIONS, "--profile", profile)
    refuse(1, model, "can't be read", out, *OPTIONS, "--profile", tmp_path / "none.json")


def test_library_that_is_none(model, out, tmp_path):
    refuse(1, model, "can't be loaded as a library", out, *OPTIONS, "--library", tmp_path / "none.so")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_no_cuda_device(model, out):
    refuse(1, model, "no CUDA device is here", out, *OPTIONS, "--device", "cuda")


def test_interrupted(model, out):
    command = [remat_opt.REMAT_OPT, "optimize", model, "-o", str(out), *OPTIONS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode in (-signal.SIGTERM, 143)
