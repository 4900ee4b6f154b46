"""The package as users get it: its wheel, its types, and what an import says where it can't work."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

PACKAGE = Path(os.environ["REMAT_PACKAGE"]).parent

TRAIN = """
import remat, torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Sigmoid(), torch.nn.Tanh())
optimized = remat.optimize(model, torch.randn(256, 64), "min")
optimized(torch.randn(256, 64)).sum().backward()
assert model[0].weight.grad is not None and remat.result_of(optimized).changed
print(remat.__file__, remat.__version__)
"""


def python(program, path, **options):
    environment = os.environ | {"PYTHONPATH": str(path)}
    command = [sys.executable, "-W", "ignore", "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, **options)


def other_build(tmp_path, **changes):
    """A copy of the package that says that it was built otherwise."""
    folder = tmp_path / "other"
    shutil.copytree(PACKAGE, folder / "remat", ignore=shutil.ignore_patterns("__pycache__"))
    with open(folder / "remat" / "_build.py", encoding="utf-8") as file:
        lines = file.read()
    build = folder / "remat" / "_build.py"
    build.unlink()
    build.write_text(lines + "".join(f"{name} = {value!r}\n" for name, value in changes.items()), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    script = PACKAGE.parent / "make_wheel.sh"
    library, build = PACKAGE / "libremat_python.so", PACKAGE / "_build.py"
    subprocess.run([script, sys.executable, folder, library, build], check=True)
    (made,) = folder.iterdir()
    return made


def test_the_wheel(wheel, tmp_path):
    minor = ".".join(torch.__version__.split(".")[:2])
    assert wheel.name.startswith("remat-") and f"+torch{minor}-py3-none-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [archive.read(name).decode() for name in names if name.endswith("/METADATA")]
    assert {"remat/py.typed", "remat/libremat_python.so", "remat/_build.py"} <= set(names)
    assert f"Requires-Dist: torch=={minor}.*" in metadata
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"]
    subprocess.run([*pip, tmp_path / "target", wheel], check=True)
    result = python(TRAIN, tmp_path / "target", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(str(tmp_path / "target" / "remat"))
    # Nothing of the machine that built it.
    command = ["readelf", "-d", tmp_path / "target" / "remat" / "libremat_python.so"]
    dynamic = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (path,) = [line for line in dynamic.splitlines() if "runpath" in line or "rpath" in line]
    assert path.endswith("[$ORIGIN/../torch/lib]")


def test_another_torch(tmp_path):
    result = python("import remat", other_build(tmp_path, TORCH="2.99.1"))
    assert result.returncode != 0
    message = result.stderr.strip().splitlines()[-1]
    assert message.startswith("ImportError: ")
    assert "built with torch 2.99.1" in message and f"torch {torch.__version__} is installed" in message
    assert "torch==2.99.*" in message
    patch = ".".join([*torch.__version__.split(".")[:2], "99"])
    assert python("import remat", other_build(tmp_path / "patch", TORCH=patch)).returncode == 0


def test_a_torch_without_cuda(tmp_path):
    folder = other_build(tmp_path, CUDA=True)
    result = python("import torch; torch.version.cuda = None; import remat", folder)
    assert "ImportError" in result.stderr and "has none. Install" in result.stderr
    without = other_build(tmp_path / "cpu", CUDA=False)
    assert python("import torch; torch.version.cuda = None; import remat", without).returncode == 0


def test_a_library_that_is_missing_or_broken(tmp_path):
    folder = other_build(tmp_path)
    library = folder / "remat" / "libremat_python.so"
    library.unlink()
    assert "libremat_python.so is missing: install remat from its wheel" in python("import remat", folder).stderr
    library.write_text("no library")
    assert "can't be loaded here" in python("import remat", folder).stderr


def test_operators_that_are_there_already():
    runtime = os.environ["REMAT_RUNTIME"]
    program = f"import torch; torch.ops.load_library({runtime!r}); import remat"
    result = python(program, PACKAGE.parent)
    assert "ImportError" in result.stderr and "import remat in place of loading that library" in result.stderr


def test_imported_once_more(tmp_path):
    program = "import sys, remat; del sys.modules['remat']; import remat; print(remat.optimize.__name__)"
    assert python(program, PACKAGE.parent).stdout == "optimize\n"


TYPED = """
import torch
import remat

model: remat.OptimizedModule = remat.optimize(torch.nn.Linear(8, 8), torch.randn(4, 8), budget="50%", keep=["a.*"])
result: remat.Result = remat.result_of(model)
peak: int = result.predicted_peak
remarks: tuple[remat.Remark, ...] = result.remarks
line: int = remarks[0].line
curve: remat.PlanCurve = remat.plan(model, (torch.randn(4, 8),), ["50%", 0.3, 1000])
try:
    remat.save(remat.optimize(model, {"input": torch.randn(4, 8)}, process_group=None), "model.pt")
except remat.BudgetError as error:
    minimum: int = error.minimum_peak
loaded: torch.jit.ScriptModule = remat.load("model.pt", map_location="cpu")
"""

UNTYPED = {
    'remat.optimize(torch.nn.Linear(8, 8), torch.randn(4, 8), "50%", loss=3)\n': "arg-type",
    'remat.optimize(torch.nn.Linear(8, 8), torch.randn(4, 8), budgets="50%")\n': "call-arg",
    "text: str = remat.result_of(torch.nn.Linear(8, 8)).predicted_peak\n": "assignment",
}


def mypy(path, *arguments):
    # Not in the package's folder: there mypy would take its sources for the user's.
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", path / "cache", "--python-version", "3.10"]
    search = os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"MYPYPATH": str(PACKAGE.parent), "PYTHONPATH": search}
    command += arguments
    return subprocess.run(command, cwd=path, env=environment, capture_output=True, text=True, check=False)


def test_types(tmp_path):
    result = mypy(tmp_path, "-p", "remat")
    assert result.returncode == 0, result.stdout + result.stderr
    (tmp_path / "program.py").write_text(TYPED, encoding="utf-8")
    result = mypy(tmp_path, "program.py")
    assert result.returncode == 0, result.stdout + result.stderr
    for number, (line, kind) in enumerate(UNTYPED.items()):
        (tmp_path / f"wrong{number}.py").write_text(f"import remat\nimport torch\n\n{line}", encoding="utf-8")
        result = mypy(tmp_path, f"wrong{number}.py")
        assert f"[{kind}]" in result.stdout and "1 error" in result.stdout, result.stdout + result.stderr
