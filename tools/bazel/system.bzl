"""Libraries from Debian packages."""

def _need(ctx, path, package):
    if not ctx.path(path).exists:
        fail("%s not found: apt-get install %s, or run tools/setup.sh" % (path, package))

_LIBRARY = """
cc_library(
    name = "{name}",
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

def _system_headers_impl(ctx):
    for header in ctx.attr.headers:
        _need(ctx, "/usr/include/" + header, ctx.attr.package)
    ctx.file("BUILD", "".join([
        _LIBRARY.format(name = name, linkopts = [o for o in flags.split(" ") if o])
        for name, flags in ctx.attr.targets.items()
    ]))

# Headers directly in /usr/include are in the compiler's own search path: they are checked for, not listed.
system_headers_repository = repository_rule(
    implementation = _system_headers_impl,
    attrs = {
        "headers": attr.string_list(doc = "below /usr/include; all must exist"),
        "package": attr.string(doc = "Debian packages to name when they do not"),
        "targets": attr.string_dict(doc = "library name to linker flags"),
    },
    local = True,
)

def _llvm_impl(ctx):
    headers = {"llvm": "/usr/include/llvm-14/llvm", "llvm-c": "/usr/include/llvm-c-14/llvm-c"}
    libraries = ["libLLVMSupport.a", "libLLVMDemangle.a"]
    for name, path in headers.items():
        _need(ctx, path, "llvm-14-dev")
        ctx.symlink(path, "include/" + name)
    for name in libraries:
        _need(ctx, "/usr/lib/llvm-14/lib/" + name, "llvm-14-dev")
        ctx.symlink("/usr/lib/llvm-14/lib/" + name, "lib/" + name)
    ctx.file("BUILD", """
cc_library(
    name = "support",
    srcs = ["lib/libLLVMSupport.a", "lib/libLLVMDemangle.a"],
    hdrs = glob([
        "include/llvm/ADT/**",
        "include/llvm/Config/**",
        "include/llvm/Demangle/**",
        "include/llvm/Support/**",
        "include/llvm-c/**",
    ]),
    includes = ["include"],
    linkopts = ["-lz", "-ltinfo", "-lpthread", "-ldl"],
    visibility = ["//visibility:public"],
)
""")

# LLVM's ADT and Support, linked statically. A shared library that links it hides its symbols with
# linkopts = ["-Wl,--exclude-libs,ALL"].
llvm_repository = repository_rule(implementation = _llvm_impl, local = True)
