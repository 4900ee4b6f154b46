"""A peers_worker.py process: one model under one system, that trains when it is asked to."""

import json
import os
import select
import subprocess
import sys
import tempfile

from remat_opt import ROOT

HERE = os.path.dirname(os.path.abspath(__file__))
# glibc keeps what is freed, as remat-opt makes it do for itself: otherwise the kernel clears a tensor's pages within
# whichever operator touches them first, and times say more of that than of the operators. The same for all systems.
KEEP_FREED_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 35)}


class WorkerFailed(RuntimeError):
    pass


def reason_in(log: str) -> str:
    """The exception's own line of a traceback; PyTorch's hints come after it."""
    lines = [line.strip() for line in log.replace(f"{ROOT}/", "").splitlines() if line.strip()]
    after = [i for i, line in enumerate(lines) if line.startswith("Traceback")]
    for line in lines[after[-1] + 1 :] if after else []:
        name = line.partition(":")[0]
        if name.replace(".", "").replace("_", "").isalnum() and name.endswith(("Error", "Exception", "Unsupported")):
            return line[:200]
    return lines[-1][:200] if lines else "no message"


class Worker:
    def __init__(self, task: dict, timeout: float):
        self.timeout = timeout
        self.log = tempfile.TemporaryFile(mode="w+")
        command = [sys.executable, os.path.join(HERE, "peers_worker.py"), json.dumps(task)]
        self.process = subprocess.Popen(
            command,
            env=os.environ | KEEP_FREED_MEMORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            bufsize=1,
        )
        try:
            self.answer()
        except WorkerFailed:
            self.stop()
            raise

    def answer(self):
        ready, _, _ = select.select([self.process.stdout], [], [], self.timeout)
        if not ready:
            raise WorkerFailed(f"no answer in {self.timeout:.0f} s")
        text = self.process.stdout.readline()
        if text:
            return json.loads(text)
        code = self.process.wait()
        self.log.seek(0)
        raise WorkerFailed(f"ended with {code}: {reason_in(self.log.read())}")

    def visit(self, steps: int) -> list[dict]:
        """What each of so many training steps took."""
        try:
            self.process.stdin.write(f"{steps}\n")
        except BrokenPipeError:
            pass  # the answer says why
        try:
            return self.answer()
        except WorkerFailed:
            self.stop()
            raise

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.log):
            try:
                stream.close()
            except BrokenPipeError:
                pass
