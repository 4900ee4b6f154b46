"""Shared libraries that show nothing of LLVM, and name themselves and what is wrong with LibTorch."""

def remat_shared_library(name, deps = [], linkopts = [], **kwargs):
    """A cc_binary(linkshared = 1) whose LLVM symbols are hidden.

    --exclude-libs hides what comes from LLVM's archives; the version script hides LLVM's templates, which are
    instantiated in our own objects. Functions are bound at their first call, so that a LibTorch that lacks some is
    told by runtime/load_check and not by the loader.

    Args:
      name: file name, "libNAME.so"; a folder may stand before it.
      deps: libraries to link; those that register operators want alwayslink.
      linkopts: more linker flags.
      **kwargs: passed to cc_binary.
    """
    script = "//tools/bazel:hide_llvm.lds"
    native.cc_binary(
        name = name,
        linkshared = 1,
        linkopts = [
            "-Wl,--exclude-libs,ALL",
            "-Wl,--version-script=$(location %s)" % script,
            "-Wl,-soname,%s" % name.split("/")[-1],
            "-Wl,-z,lazy",
        ] + linkopts,
        deps = deps + [script],
        **kwargs
    )
