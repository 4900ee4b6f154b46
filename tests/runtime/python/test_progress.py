"""What remat.optimize says while it works, what ends it, and what other threads do meanwhile."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import remat
import torch
import training


def test_progress():
    lines = []
    remat.optimize(training.net(), training.batch()[0], "min", progress=lines.append)
    assert "planning" in lines and any("recording step" in line for line in lines)
    curve = []
    remat.plan(training.net(), training.batch()[0], "min", progress=curve.append)
    assert any("recording step" in line for line in curve)


@pytest.mark.parametrize(
    "when", ["preparing", "optimisation off", "optimisation on", "recording", "planning", "measuring the result"]
)
@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt])
def test_progress_that_raises_ends_the_work(when, kind):
    model = torch.jit.script(training.net())
    before = training.snapshot(model)
    seen = []

    def progress(line):
        seen.append(line)
        if when in line:
            raise kind("stop")

    with pytest.raises(kind, match="stop"):
        remat.optimize(model, training.batch()[0], "min", progress=progress)
    assert when in seen[-1] and sum(when in line for line in seen) == 1
    training.assert_untouched(model, before)


INTERRUPTED = """
import os, signal, sys, threading, time
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import remat, training

def interrupt():
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)

model, before = training.net(), signal.getsignal(signal.SIGINT)
remat.optimize(model, training.batch()[0], "min")  # what the first call takes of its own is over
state = training.snapshot(model)
threading.Thread(target=interrupt, daemon=True).start()
try:
    while True:
        remat.plan(model, training.batch()[0], ["min"])
except KeyboardInterrupt:
    assert signal.getsignal(signal.SIGINT) is before
    training.assert_untouched(model, state)
    print("interrupted")
"""


def test_an_interrupt_from_the_keyboard():
    folders = [str(Path(remat.__file__).parents[1]), str(Path(training.__file__).parent)]
    command = [sys.executable, "-W", "ignore", "-c", INTERRUPTED, *folders]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (result.stdout, result.stderr) == ("interrupted\n", "")


def test_other_threads_run_meanwhile():
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    phases = []
    remat.optimize(training.net(), training.batch()[0], "min", progress=lambda line: phases.append(time.monotonic()))
    done.set()
    thread.join()
    # Between two lines of progress no Python runs on this thread: others do, if the interpreter isn't locked.
    longest = max(zip(phases, phases[1:], strict=False), key=lambda pair: pair[1] - pair[0])
    assert sum(longest[0] < tick < longest[1] for tick in ticks) > 5


def test_threads_optimize_side_by_side():
    results, failures = [], []

    def work():
        try:
            results.append(remat.result_of(remat.optimize(training.net(), training.batch()[0], "min")))
        except BaseException as error:  # pytest sees only its own thread's
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len({result.original_peak for result in results}) == 1 and len(results) == 3


def test_progress_that_calls_remat_again():
    model, x = training.net(), training.batch()[0]
    with pytest.raises(remat.RematError, match="called from progress"):
        remat.optimize(model, x, "min", progress=lambda line: remat.plan(model, x, ["min"]))
    assert remat.plan(model, x, ["min"]).points


STUCK = """
import os, signal, sys, threading
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import remat, training

model, x = training.net(), training.batch()[0]

def wait_for_another(line):
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    thread = threading.Thread(target=remat.plan, args=(model, x, ["min"]), daemon=True)  # waits for this call
    thread.start()
    thread.join()

try:
    remat.optimize(model, x, "min", progress=wait_for_another)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)  # the other thread works
"""


def test_an_interrupt_while_progress_waits():
    folders = [str(Path(remat.__file__).parents[1]), str(Path(training.__file__).parent)]
    command = [sys.executable, "-W", "ignore", "-c", STUCK, *folders]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (result.stdout, result.stderr) == ("interrupted\n", "")
