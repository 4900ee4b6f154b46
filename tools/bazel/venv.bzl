"""The project's .venv, for tests that run Python."""

def _impl(ctx):
    # The real path: from another workspace this one is seen through a link that may go away.
    root = str(ctx.path(Label("//:WORKSPACE")).realpath.dirname)
    ctx.file("venv.bzl", "PYTHON = %r\n" % (root + "/.venv/bin/python3"))
    ctx.file("BUILD", "")

venv_repository = repository_rule(implementation = _impl, local = True)
