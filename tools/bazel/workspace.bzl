"""What Remat's targets need of a workspace, for its own WORKSPACE and for those that use it from outside."""

load("//tools/bazel:cuda_repository.bzl", "cuda_repository")
load("//tools/bazel:libtorch.bzl", "libtorch_repository")
load("//tools/bazel:system.bzl", "llvm_repository", "system_headers_repository")
load("//tools/bazel:venv.bzl", "venv_repository")

def _shim_impl(ctx):
    folder = ctx.path(Label("//:WORKSPACE")).dirname.get_child("tools").get_child("bazel").get_child(ctx.attr.folder)
    for entry in folder.readdir():
        ctx.symlink(entry, entry.basename)

# A repository that lies in tools/bazel. local_repository would look for it below the workspace that is built.
_shim_repository = repository_rule(
    implementation = _shim_impl,
    attrs = {"folder": attr.string(doc = "its name below tools/bazel")},
    local = True,
)

def _missing(name):
    return name not in native.existing_rules()

def remat_repositories():
    """Declares the repositories that Remat's targets name, but those that the workspace has declared before.

    Everything comes from this machine, no rule below downloads anything: tools/setup.sh installs what they look for.
    LibTorch is that of the environment's LIBTORCH, else the torch of the .venv in Remat's folder, else that of python3.
    """
    for name in ["rules_cc", "remote_coverage_tools"]:
        if _missing(name):
            _shim_repository(name = name, folder = name)
    for name, path in {
        "rules_java": "/usr/share/bazel/rules/java",
        "rules_proto": "/usr/share/bazel/rules/proto",
        "platforms": "/usr/share/bazel/platforms",
    }.items():
        if _missing(name):
            native.local_repository(name = name, path = path)

    for name, rule in {
        "libtorch": libtorch_repository,
        "llvm": llvm_repository,
        "cuda": cuda_repository,
        "venv": venv_repository,
    }.items():
        if _missing(name):
            rule(name = name)

    if _missing("gtest"):
        system_headers_repository(
            name = "gtest",
            headers = ["gtest/gtest.h", "gmock/gmock.h"],
            package = "libgtest-dev libgmock-dev",
            targets = {
                "gtest": "-lgmock -lgtest -lpthread",
                "gtest_main": "-lgtest_main -lgmock -lgtest -lpthread",
            },
        )
    if _missing("cli11"):
        system_headers_repository(
            name = "cli11",
            headers = ["CLI/CLI.hpp"],
            package = "libcli11-dev",
            targets = {"cli11": ""},
        )
