"""CUDA parts: compiled where the toolkit and a LibTorch with CUDA are there, left out otherwise or by --config=cpu."""

load("@cuda//:cuda.bzl", "HAS_TOOLKIT", "ROOT")
load("@libtorch//:torch.bzl", "HAS_CUDA")

ENABLED = HAS_TOOLKIT and HAS_CUDA

def if_cuda(with_cuda, without):
    """Chooses an attribute's value: `srcs = if_cuda(["stats.cpp"], ["no_cuda.cpp"])`."""
    if not ENABLED:
        return without
    return select({
        "//tools/bazel:cpu_only": without,
        "//conditions:default": with_cuda,
    })

def cuda_library(name, srcs, archs = ["80", "90"], hdrs = [], deps = [], **kwargs):
    """Compiles .cu files with nvcc into a cc_library, which is empty where CUDA is left out.

    Args:
      name: of the library.
      srcs: .cu files; they may include `hdrs` by their path from the workspace's root, and the CUDA headers.
      archs: compute capabilities, without the dot.
      hdrs: headers of the library.
      deps: C++ libraries for those who link it; they are not on nvcc's include path.
      **kwargs: passed to cc_library.
    """
    objects = []
    gencode = " ".join(["-gencode arch=compute_%s,code=sm_%s" % (a, a) for a in archs])
    for src in srcs if ENABLED else []:
        object = src.replace(".cu", ".cu.pic.o")
        native.genrule(
            name = name + "_" + src.replace(".", "_").replace("/", "_"),
            srcs = [src] + hdrs,
            outs = [object],
            cmd = "%s/bin/nvcc -std=c++17 -O2 -I. -Xcompiler -fPIC %s -c $(location %s) -o $@" % (ROOT, gencode, src),
            local = 1,
            tags = ["manual"],
        )
        objects.append(object)
    native.cc_library(
        name = name,
        srcs = if_cuda(objects, []),
        hdrs = hdrs,
        deps = deps + if_cuda(["@cuda//:cudart"], []),
        **kwargs
    )
