"""An installed prefix: what is in it, and that programs outside of Bazel build, optimise and train with it."""

import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu

BUILT = [os.environ[name] for name in ("REMAT_OPT", "LIBREMAT", "REMAT_RUNTIME")]
INSTALL = pathlib.Path("tools/install.sh").resolve()
CONSUMER = pathlib.Path("tests/consumers/cmake").resolve()


def run(*command, code=0, **options):
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert ran.returncode == code, f"{command}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran.stdout + ran.stderr


def libtorch():
    """The folder of the LibTorch that the libraries were linked with."""
    folders = run("patchelf", "--print-rpath", BUILT[0]).strip().split(":")
    return next(pathlib.Path(folder).parent for folder in folders if os.path.exists(folder + "/libtorch.so"))


def install(prefix, code=0):
    return run(INSTALL, prefix, "--files", *BUILT, code=code)


def configure(source, build, *packages, code=0):
    """CMake's output with line breaks as spaces: it breaks lines of messages."""
    path = ";".join(str(package) for package in packages)
    text = run("cmake", "-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={path}", code=code)
    return " ".join(text.split())


@pytest.fixture(scope="module", name="prefix")
def fixture_prefix(tmp_path_factory):
    """Installed, and moved afterwards: nothing in it knows where it was."""
    folder = tmp_path_factory.mktemp("install")
    install(folder / "first place")
    return (folder / "first place").rename(folder / "moved here")


@pytest.fixture(scope="module", name="build")
def fixture_build(prefix, tmp_path_factory):
    build = tmp_path_factory.mktemp("consumer")
    configure(CONSUMER, build, prefix, libtorch())
    run("cmake", "--build", build, "--parallel", "2")
    return build


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w = nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x):
        x = gelu(x @ self.w)
        x = gelu(x @ self.w)
        return x @ self.w


@pytest.fixture(scope="module", name="model")
def fixture_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "mlp.pt"
    torch.manual_seed(0)
    torch.jit.script(Mlp(256)).save(path)
    return path


@pytest.fixture(scope="module", name="optimized")
def fixture_optimized(build, model):
    """Written by the program that optimises in memory; it compares gradients and ends with 1 if anything is wrong."""
    path = model.with_name("optimized.pt")
    said = run(build / "optimize_and_train", model, path)
    assert re.search(r"a budget of one byte: .* can't be met: the lowest reachable peak", said)
    return path


def test_a_program_optimises_in_memory_trains_and_catches_errors(optimized):
    assert optimized.exists()


def test_a_program_that_names_nothing_of_remat_trains_an_optimised_file(build, optimized):
    assert "loss" in run(build / "train_optimized", optimized)


def test_the_installed_tool(prefix, model):
    out = model.with_name("by_tool.pt")
    command = [prefix / "bin/remat-opt", "optimize", model, "-o", out, "--input", "2048x256", "--budget", "75%"]
    assert "measured peak" in run(*command) and out.exists()


def snippets(language):
    """Of README.md's section for C++."""
    text = pathlib.Path("README.md").read_text(encoding="utf-8").split("\n## Using it from C++\n")[1].split("\n## ")[0]
    blocks = re.findall(rf"^ *```{language}\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in blocks]


def test_the_newcomers_path(prefix, tmp_path):
    """README's commands behind the installation, and as where LibTorch has CUDA and there is no CUDA toolkit, which
    LibTorch's own CMake files would ask for."""
    install_line, script = snippets("sh")[0].split("\n", maxsplit=1)
    assert install_line.startswith("tools/install.sh ~/remat ")
    for shown, here in {
        ".venv/bin/python3": sys.executable,
        "$HOME/remat": str(prefix),
        "scratch/train": f"{tmp_path}/train",
        "cmake -S": "cmake -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON -S",
    }.items():
        assert shown in script
        script = script.replace(shown, here)
    said = run("bash", "-euc", script)
    peaks = re.search(r"peak of a step: ([\d.]+) MB before, ([\d.]+) MB after", said)
    before, after = (float(peak) for peak in peaks.groups())
    assert after <= 0.5 * before + 0.1  # one decimal is printed
    losses = [float(loss) for loss in re.findall(r"^step \d+: loss ([\d.]+)$", said, re.MULTILINE)]
    assert len(losses) == 20 and losses[-1] < losses[0]


@pytest.fixture(name="mine")
def fixture_mine(tmp_path):
    """README's program and the model that it reads."""
    (tmp_path / "mine.cpp").write_text(snippets("cpp")[0], encoding="utf-8")
    torch.jit.script(Mlp(512)).save(tmp_path / "mlp.pt")
    return tmp_path


def test_readme_with_cmake(mine, prefix):
    (mine / "CMakeLists.txt").write_text(snippets("cmake")[0], encoding="utf-8")
    configure(mine, mine / "build", prefix, libtorch())
    run("cmake", "--build", mine / "build")
    run("build/mine", cwd=mine)
    assert (mine / "mlp.remat.pt").exists()


def test_readme_with_a_registered_pass(mine, prefix):
    (mine / "mine.cpp").write_text(snippets("cpp")[1], encoding="utf-8")
    (mine / "CMakeLists.txt").write_text(snippets("cmake")[0], encoding="utf-8")
    configure(mine, mine / "build", prefix, libtorch())
    run("cmake", "--build", mine / "build")
    again = re.search(r"^(\d+) operators ran again$", run("build/mine", cwd=mine), re.MULTILINE)
    assert int(again.group(1)) > 0


def test_readme_with_pkg_config(mine, prefix):
    # pkg-config can't quote spaces within flags.
    (mine / "prefix").symlink_to(prefix)
    script = snippets("sh")[1].replace("~/remat", f"{mine}/prefix")
    run("bash", "-euc", script, cwd=mine, env={**os.environ, "TORCH": str(libtorch())})
    run("./mine", cwd=mine)
    assert (mine / "mlp.remat.pt").exists()
    for name in ("remat", "remat_runtime"):
        assert "built for LibTorch" in (prefix / f"lib/pkgconfig/{name}.pc").read_text(encoding="utf-8")


def test_what_is_installed(prefix):
    found = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()}
    headers = {path for path in found if path.endswith(".h")}
    assert found - headers == {
        "bin/remat-opt",
        "lib/libremat.so",
        "lib/libremat_runtime.so",
        "lib/cmake/Remat/RematConfig.cmake",
        "lib/cmake/Remat/RematConfigVersion.cmake",
        "lib/cmake/Remat/RematLibTorch.cmake",
        "lib/pkgconfig/remat.pc",
        "lib/pkgconfig/remat_runtime.pc",
    }
    assert {"include/remat/remat.h", "include/remat/passes/remat.h", "include/remat/runtime/runtime.h"} <= headers
    assert "include/remat/passes/planner.h" not in headers  # the project's own
    for header in headers:
        for included in re.findall(r'#include "(.*)"', (prefix / header).read_text(encoding="utf-8")):
            assert (prefix / "include" / included).exists(), f"{header} includes {included}"


def test_the_library_has_every_function_that_headers_declare(prefix):
    symbols = run("nm", "-D", "--defined-only", "-C", prefix / "lib/libremat.so")
    declared = set()
    for header in (prefix / "include/remat").rglob("*.h"):
        text = header.read_text(encoding="utf-8")
        declared |= set(re.findall(r"^(?!inline|using|return)[A-Za-z][\w:<>,&* ]*[ &*](\w+)\(", text, re.MULTILINE))
    assert {"optimize", "formatBytes", "registerPass", "takeStatistics"} <= declared
    assert [name for name in sorted(declared) if not re.search(rf"remat::.*\b{name}(\[abi:cxx11\])?\(", symbols)] == []


@pytest.mark.parametrize("library", ["libremat.so", "libremat_runtime.so"])
def test_the_libraries_show_nothing_of_llvm_and_lead_nowhere(prefix, library):
    path = prefix / "lib" / library
    symbols = run("nm", "-D", "--defined-only", "-C", path)
    assert "remat::runtime::" in symbols
    assert not re.search(r"llvm|CLI::|boost::", symbols)
    undefined = run("nm", "-D", "--undefined-only", "-C", path)
    assert not re.search(r"remat::|llvm::", undefined)
    dynamic = run("readelf", "-d", path)
    assert f"Library soname: [{library}]" in dynamic
    assert not re.search(r"RPATH|RUNPATH|libcudart", dynamic)
    assert b"llvm::cl::opt" not in path.read_bytes() and b"--help-hidden" not in path.read_bytes()


FAKE_TORCH = """
foreach(name {targets})
  add_library(${{name}} SHARED IMPORTED)
  set_target_properties(${{name}} PROPERTIES IMPORTED_LOCATION /nowhere/lib${{name}}.so)
endforeach()
"""
BOTH = """
cmake_minimum_required(VERSION 3.18)
project(both CXX)
find_package(Remat REQUIRED)
file(WRITE ${CMAKE_BINARY_DIR}/main.cpp "int main() {}")
add_executable(both ${CMAKE_BINARY_DIR}/main.cpp)
target_link_libraries(both PRIVATE Remat::remat Remat::runtime)
"""


def fake_torch(folder, version, targets="torch torch_cpu torch_cuda c10 c10_cuda"):
    package = folder / "lib/cmake/Torch"
    package.mkdir(parents=True)
    (package / "TorchConfig.cmake").write_text(FAKE_TORCH.format(targets=targets), encoding="utf-8")
    text = f"set(PACKAGE_VERSION {version})\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n"
    (package / "TorchConfigVersion.cmake").write_text(text, encoding="utf-8")
    return folder


def test_cmake_refuses_another_libtorch(prefix, tmp_path):
    said = configure(CONSUMER, tmp_path / "build", prefix, fake_torch(tmp_path / "torch", "2.99.0"), code=1)
    built = ".".join(torch.__version__.split(".")[:2])
    assert f"This Remat was built for LibTorch {built}, and this project has LibTorch 2.99.0" in said


def test_cmake_refuses_a_libtorch_that_lacks_libraries(prefix, tmp_path):
    fake = fake_torch(tmp_path / "torch", torch.__version__.split("+", maxsplit=1)[0], "torch c10")
    said = configure(CONSUMER, tmp_path / "build", prefix, fake, code=1)
    assert "doesn't have" in said and "--config=cpu" in said


def test_cmake_refuses_both_libraries_in_one_program(prefix, tmp_path):
    fake = fake_torch(tmp_path / "torch", torch.__version__.split("+", maxsplit=1)[0])
    (tmp_path / "CMakeLists.txt").write_text(BOTH, encoding="utf-8")
    said = configure(tmp_path, tmp_path / "build", prefix, fake, code=1)
    assert "REMAT_LINK_ONE_OF_remat_AND_runtime" in said


def test_installing_again_replaces_and_takes_away_what_is_old(tmp_path):
    install(tmp_path)
    old = tmp_path / "include/remat/passes/of_an_older_version.h"
    old.write_text("", encoding="utf-8")
    tool = tmp_path / "bin/remat-opt"
    before = tool.stat().st_ino
    install(tmp_path)
    assert not old.exists() and tool.stat().st_ino != before
    assert run(tool, "--version").startswith("remat-opt ")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/remat-opt").write_text("old", encoding="utf-8")
    # As a full disk: no file may grow above 64 kB.
    limited = 'ulimit -f 64; trap "" XFSZ; exec "$@"'
    said = run("bash", "-c", limited, "-", INSTALL, tmp_path, "--files", *BUILT, code=1)
    assert f"install: can't write {tmp_path}/bin/remat-opt" in said
    assert [path.name for path in (tmp_path / "bin").iterdir()] == ["remat-opt"]
    assert (tmp_path / "bin/remat-opt").read_text(encoding="utf-8") == "old"


def test_wrong_calls_say_what_is_wrong(tmp_path):
    assert "PREFIX is missing; usage: tools/install.sh PREFIX" in run(INSTALL, code=2)
    assert "PREFIX is missing" in run(INSTALL, "--config=cpu", code=2)
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert f"install: can't make the folder {tmp_path}/file" in install(tmp_path / "file", code=1)
    nowhere = tmp_path / "nowhere"
    said = run(INSTALL, tmp_path / "prefix", "--files", nowhere, nowhere, nowhere, code=1)
    assert f"{nowhere}: no such file" in said and not (tmp_path / "prefix").exists()
