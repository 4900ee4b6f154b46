"""The CUDA toolkit of this machine, or empty stubs where there is none."""

def _find(ctx):
    folder = ctx.os.environ.get("CUDA_HOME", "")
    if folder:
        if not ctx.path(folder + "/bin/nvcc").exists:
            fail("CUDA_HOME=%s holds no bin/nvcc" % folder)
        return folder
    if ctx.path("/usr/local/cuda/bin/nvcc").exists:
        return "/usr/local/cuda"
    nvcc = ctx.which("nvcc")
    return str(nvcc.realpath.dirname.dirname) if nvcc else None

def _impl(ctx):
    root = _find(ctx)
    ctx.file("cuda.bzl", "ROOT = %r\nHAS_TOOLKIT = %r\n" % (root or "", root != None))
    if not root:
        # buildifier: disable=print
        print("no CUDA toolkit (CUDA_HOME, /usr/local/cuda, nvcc on PATH): the CUDA parts are left out")
        ctx.file("BUILD", """
package(default_visibility = ["//visibility:public"])

cc_library(name = "headers")

cc_library(name = "cudart")
""")
        return
    ctx.symlink(root + "/include", "include")
    ctx.file("BUILD", """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    includes = ["include"],
)

# For what doesn't link LibTorch, which brings a libcudart of its own: @libtorch//:libtorch_cuda.
cc_library(
    name = "cudart",
    linkopts = ["-L{root}/lib64", "-Wl,-rpath,{root}/lib64", "-lcudart"],
    deps = [":headers"],
)
""".format(root = root))

cuda_repository = repository_rule(
    implementation = _impl,
    environ = ["CUDA_HOME"],
    local = True,
)
