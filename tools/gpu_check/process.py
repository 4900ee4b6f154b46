"""A program with a time limit, whose children end with it."""

import os
import signal
import subprocess
import time


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:600] if lines else ""


def run(command, seconds, variables, folder=None):
    """Returns stdout, stderr, how long it took, and an error in words; None where it went well."""
    begin = time.monotonic()
    result = {"stdout": "", "stderr": "", "error": None}
    if seconds <= 0:
        result["error"] = "no time was left for it"
    else:
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=dict(variables),
            cwd=folder,
            start_new_session=True,
        ) as program:
            try:
                result["stdout"], result["stderr"] = program.communicate(timeout=seconds)
                if program.returncode != 0:
                    line = last_line(result["stderr"]) or last_line(result["stdout"])
                    result["error"] = f"exit code {program.returncode}: {line}"
            except subprocess.TimeoutExpired:
                os.killpg(program.pid, signal.SIGKILL)
                result["stdout"], result["stderr"] = program.communicate()
                result["error"] = f"not done after {seconds:.0f} s: {last_line(result['stderr'])}"
    result["seconds"] = round(time.monotonic() - begin, 1)
    return result
