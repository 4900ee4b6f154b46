"""Shared libraries that show nothing of LLVM."""

def remat_shared_library(name, deps = [], linkopts = [], **kwargs):
    """A cc_binary(linkshared = 1) whose LLVM symbols are hidden.

    --exclude-libs hides what comes from LLVM's archives; the version script hides LLVM's templates, which are
    instantiated in our own objects.

    Args:
      name: file name, "libNAME.so".
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
        ] + linkopts,
        deps = deps + [script],
        **kwargs
    )
