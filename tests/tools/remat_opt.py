"""Runs the tool for the end-to-end tests."""

import json
import os
import subprocess

REMAT_OPT = os.environ["REMAT_OPT"]
REMAT_RUNTIME = os.environ["REMAT_RUNTIME"]


def run(*arguments, **kwargs):
    """The finished process; `arguments` may hold paths."""
    command = [REMAT_OPT, *[str(argument) for argument in arguments]]
    return subprocess.run(command, capture_output=True, text=True, check=False, **kwargs)


def succeed(*arguments):
    """What a successful run printed."""
    result = run(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def succeed_json(*arguments):
    return json.loads(succeed(*arguments, "--json"))


def fail(code, *arguments, **kwargs):
    """The error line of a run that ends with `code`."""
    result = run(*arguments, **kwargs)
    assert result.returncode == code, (result.returncode, result.stdout, result.stderr)
    lines = [line for line in result.stderr.splitlines() if not line.startswith(("note: ", "remark: "))]
    assert len(lines) == 1 and lines[0].startswith("remat-opt: error: "), result.stderr
    return lines[0]
