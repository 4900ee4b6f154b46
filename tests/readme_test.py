"""What README.md shows is what the tool does."""

import os
import re
import shlex
import subprocess
import sys

import pytest

REMAT_OPT = os.environ["REMAT_OPT"]
REMAT_RUNTIME = os.environ["REMAT_RUNTIME"]
REMAT_PACKAGE = os.environ["REMAT_PACKAGE"]
VERBS = ("optimize", "plan", "verify", "dump", "strip")

with open("README.md", encoding="utf-8") as readme:
    README = readme.read()


def section(title):
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def code_blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def without_measurements(text):
    """Times, peaks and shares are measured, and differ from run to run and from machine to machine."""
    return re.sub(r" +\d+(\.\d+)? (ms|MB|%)", " MEASURED", text)


def run(command, folder, **environment):
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=os.environ | environment
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """A folder where the commands of the example ran, and what the tool printed."""
    folder = tmp_path_factory.mktemp("example")
    text = section("Before and after")
    (folder / "mlp.py").write_text(code_blocks(text, "python")[0], encoding="utf-8")
    python, optimize = code_blocks(text, "sh")[0].splitlines()[1:]
    run([sys.executable, "-W", "ignore", *shlex.split(python)[1:]], folder)
    return folder, run([REMAT_OPT, *shlex.split(optimize)[1:]], folder)


def test_before_and_after(example):
    folder, printed = example
    summary, before, after = code_blocks(section("Before and after"), "text")
    assert without_measurements(printed) == without_measurements(summary)
    assert (folder / "before.ir").read_text(encoding="utf-8") == before
    assert without_measurements((folder / "after.ir").read_text(encoding="utf-8")) == without_measurements(after)


def test_training_in_python(example):
    folder, _ = example
    program = code_blocks(section("Training an optimised model"), "python")[0]
    run([sys.executable, "-c", program.replace("../bazel-bin/runtime/libremat_runtime.so", REMAT_RUNTIME)], folder)


def test_using_it_from_python(tmp_path):
    (program,) = code_blocks(section("Using it from Python"), "python")
    folder = os.path.dirname(os.path.dirname(os.path.abspath(REMAT_PACKAGE)))
    printed = run([sys.executable, "-c", program], tmp_path, PYTHONPATH=folder)
    assert "lowest reachable" in printed
    original, measured = re.findall(r"^(\d+)$", printed, re.MULTILINE)
    assert 0 < int(measured) <= int(original) / 2


def test_the_error_without_the_runtime(example):
    folder, _ = example
    program = "import torch; torch.jit.load('mlp.remat.pt')"
    result = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode != 0 and "Unknown builtin op: remat::checkpoint" in result.stderr
    assert "Unknown builtin op: remat::checkpoint" in README


def options(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


def test_options(tmp_path):
    short = {"--help", "--output"}  # every verb has the one, -o is the other
    shown = options(section("The verbs")) - short
    of_verbs = set().union(*(options(run([REMAT_OPT, verb, "--help"], tmp_path)) for verb in VERBS)) - short
    assert of_verbs - shown == set(), "README.md leaves out"
    assert shown - of_verbs == set(), "README.md shows what is not there"
