"""Tests in Python, run with pytest of the project's .venv."""

load("@venv//:venv.bzl", "PYTHON")

def remat_py_test(name, srcs, data = [], with_remat = True, paths = {}, **kwargs):
    """Runs pytest on `srcs`; every test function counts as one test case.

    The environment of the tests has REMAT_OPT and REMAT_RUNTIME, the absolute paths of the tool and of the runtime
    library, and their working folder is the root of the runfiles, where `data` lies by its path in the workspace.

    Args:
      name: of the test target.
      srcs: test files, each holding test_* functions.
      data: files and targets that the tests read.
      with_remat: whether the tests use the tool or the runtime.
      paths: more variables of the environment, each with the target whose absolute path it holds.
      **kwargs: passed to sh_test (size, timeout, tags ...).
    """
    binaries = ["//tools:remat-opt", "//runtime:libremat_runtime.so"] if with_remat else []
    native.sh_test(
        name = name,
        srcs = ["//tools/bazel:run_pytest.sh"],
        args = [PYTHON] +
               (["$(rootpath %s)" % b for b in binaries] or ["-", "-"]) +
               ["%s=$(rootpath %s)" % path for path in paths.items()] +
               ["$(rootpath %s)" % s for s in srcs],
        data = srcs + data + binaries + paths.values() + ["//tools:requirements.txt"],
        **kwargs
    )
