"""LibTorch: a LIBTORCH folder, else the torch of the project's .venv, else that of PYTHON_BIN_PATH or python3."""

def _torch_of(ctx, python):
    code = "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0])"
    result = ctx.execute([python, "-c", code])
    return result.stdout.strip() if result.return_code == 0 else None

def _find(ctx):
    folder = ctx.os.environ.get("LIBTORCH", "")
    if folder:
        if not ctx.path(folder + "/include/torch").exists:
            fail("LIBTORCH=%s holds no include/torch: point it at an unpacked LibTorch" % folder)
        return folder
    # The real path: from another workspace this one is seen through a link that may go away.
    venv = str(ctx.path(Label("//:WORKSPACE")).realpath.dirname) + "/.venv/bin/python3"
    pythons = [venv] if ctx.path(venv).exists else []
    pythons.append(ctx.os.environ.get("PYTHON_BIN_PATH", "python3"))
    for python in pythons:
        root = _torch_of(ctx, python)
        if root:
            return root
    fail("LibTorch not found (tried LIBTORCH, then torch in %s): run tools/setup.sh" % ", ".join(pythons))

def _cuda_linkopts(ctx, root):
    """Links libtorch_cuda and the libcudart that it brings: the toolkit's own may be another one."""
    result = ["-ltorch_cuda", "-lc10_cuda"]
    folders = [ctx.path(root + "/lib")]
    wheels = ctx.path(root).dirname.get_child("nvidia")
    if wheels.exists:
        folders += [wheel.get_child("lib") for wheel in wheels.readdir() if wheel.get_child("lib").exists]
    for folder in folders:
        for file in folder.readdir():
            if file.basename.startswith("libcudart") and ".so." in file.basename:
                return result + ["-L%s" % folder, "-Wl,-rpath,%s" % folder, "-l:%s" % file.basename]
    fail("%s has libtorch_cuda.so, but no libcudart.so.* is beside it or in %s/*/lib" % (root, wheels))

def _impl(ctx):
    root = _find(ctx)
    ctx.symlink(root + "/include", "include")
    has_cuda = ctx.path(root + "/lib/libtorch_cuda.so").exists
    if not has_cuda:
        # buildifier: disable=print
        print("%s has no libtorch_cuda.so: the CUDA parts are left out" % root)
    ctx.file("torch.bzl", "ROOT = %r\nHAS_CUDA = %r\n" % (root, has_cuda))

    # The libraries are linked by their real path and not listed as srcs: through Bazel's symlinks their own $ORIGIN
    # run paths (to the nvidia packages) would not resolve. libtorch.so brings libtorch_cuda.so with it.
    ctx.file("BUILD", """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "libtorch",
    hdrs = glob(["include/**/*.h", "include/**/*.hpp", "include/**/*.inc", "include/**/*.cuh"]),
    includes = ["include", "include/torch/csrc/api/include"],
    linkopts = [
        "-L{root}/lib",
        "-Wl,-rpath,{root}/lib",
        "-Wl,--no-as-needed",
        "-ltorch",
        "-ltorch_cpu",
        "-lc10",
    ],
)

cc_library(
    name = "libtorch_cuda",
    deps = [":libtorch", "@cuda//:headers"],
    linkopts = {cuda_linkopts},
)
""".format(root = root, cuda_linkopts = _cuda_linkopts(ctx, root) if has_cuda else []))

libtorch_repository = repository_rule(
    implementation = _impl,
    environ = ["LIBTORCH", "PYTHON_BIN_PATH"],
    local = True,
)
