"""Runs remat-opt for benchmarks."""

import json
import os
import pty
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REMAT_OPT = os.path.join(ROOT, "bazel-bin/tools/remat-opt")
RUNTIME = os.path.join(ROOT, "bazel-bin/runtime/libremat_runtime.so")

ERASE_LINE = "\r\033[K"
# What optimize says while it runs the model; all else that it does is planning and rewriting.
RUNS_THE_MODEL = ("loading", "measuring", "recording")


class ToolFailed(RuntimeError):
    pass


def error_line(stderr):
    text = stderr.replace(ERASE_LINE, "\n").replace(ROOT + "/", "")
    lines = [line for line in text.splitlines() if "error:" in line]
    return lines[-1].strip() if lines else text.strip()[-300:]


def run(*arguments, accept=(0,)):
    """What the tool printed; `accept` are the exit codes that are no failure here."""
    command = [REMAT_OPT, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode not in accept:
        raise ToolFailed(f"remat-opt {arguments[0]} ended with {result.returncode}: {error_line(result.stderr)}")
    return result.stdout


def run_timed(*arguments):
    """What the tool printed, and the seconds of each phase that it announced: it does so on a terminal only."""
    master, slave = pty.openpty()
    phases, current, since, stderr = {}, None, time.monotonic(), ""
    with tempfile.TemporaryFile(mode="w+") as stdout:
        process = subprocess.Popen([REMAT_OPT, *map(str, arguments)], stdout=stdout, stderr=slave)
        os.close(slave)
        while True:
            try:
                chunk = os.read(master, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                chunk = ""
            now = time.monotonic()
            if current is not None:
                phases[current] = phases.get(current, 0.0) + now - since
            since = now
            if not chunk:
                break
            stderr += chunk
            current = stderr.rpartition(ERASE_LINE)[2].partition(" …")[0]
        os.close(master)
        code = process.wait()
        stdout.seek(0)
        if code != 0:
            raise ToolFailed(f"remat-opt {arguments[0]} ended with {code}: {error_line(stderr)}")
        return stdout.read(), phases


def optimize(model, out, spec, budget):
    """The tool's JSON, with the seconds of the whole run and of what isn't running the model."""
    start = time.monotonic()
    stdout, phases = run_timed("optimize", model, "-o", out, "--input", spec, "--budget", budget, "--json")
    result = json.loads(stdout)
    result["seconds"] = time.monotonic() - start
    planning = [seconds for phase, seconds in phases.items() if phase and not phase.startswith(RUNS_THE_MODEL)]
    result["planning_and_rewriting_seconds"] = sum(planning) if planning else None
    return result


def verify(model, out, spec):
    # 3: measured above the budget, 4: a difference; both print the result.
    return json.loads(run("verify", model, out, "--input", spec, "--json", accept=(0, 3, 4)))
