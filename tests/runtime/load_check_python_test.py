"""What loading the libraries says of another LibTorch, and of a second runtime in the process."""

import importlib.metadata
import os
import subprocess
import sys

import pytest

RUNTIME = os.environ["REMAT_RUNTIME"]
REMAT = os.environ["LIBREMAT"]


def load(*libraries, **environment):
    program = "import sys, torch\nfor library in sys.argv[1:]: torch.ops.load_library(library)\nprint('loaded')"
    return subprocess.run(
        [sys.executable, "-c", program, *libraries],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("library", [RUNTIME, REMAT])
def test_one_library_loads_also_when_asked_for_twice(library):
    result = load(library, library)
    assert (result.returncode, result.stdout) == (0, "loaded\n"), result.stderr


@pytest.mark.parametrize("first, second", [(RUNTIME, REMAT), (REMAT, RUNTIME)])
def test_the_other_one_on_top_is_refused_and_both_are_named(first, second):
    result = load(first, second)
    assert result.returncode != 0 and "loaded" not in result.stdout
    said = next(line for line in result.stderr.splitlines() if line.startswith("remat: "))
    holder = os.path.realpath(first), os.path.realpath(second)
    assert f"{holder[1]} brings Remat's runtime into a process that has it already, from {holder[0]}." in said


@pytest.mark.parametrize("library", [RUNTIME, REMAT])
def test_another_libtorch_is_refused_and_named(library):
    result = load(library, LD_PRELOAD=os.environ["OTHER_LIBTORCH"])
    assert result.returncode != 0 and "loaded" not in result.stdout
    said = next(line for line in result.stderr.splitlines() if line.startswith("remat: "))
    built = ".".join(importlib.metadata.version("torch").split(".")[:2])
    assert f"was built for LibTorch {built}, and this process has LibTorch 2.99.0." in said
