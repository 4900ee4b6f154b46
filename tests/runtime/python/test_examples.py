"""The examples run, each in a process of its own, and what they print is so."""

import os
import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(os.environ["REMAT_PACKAGE"]).parents[1]


def run(folder, *command):
    environment = os.environ | {"PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, "-W", "error::UserWarning", *command]
    result = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def check(printed):
    rows = re.findall(r"^  (\w+(?: \w+)?) +[\d.]+ \w+ +([\d.]+) %$", printed, re.MULTILINE)
    shares = {name: float(share) for name, share in rows}
    assert shares["original peak"] == 100 and shares["budget"] == 50
    assert 0 < shares["predicted peak"] <= 50 and 0 < shares["measured peak"] <= 50
    losses = [float(loss) for loss in re.findall(r"^step \d: loss ([\d.]+)$", printed, re.MULTILINE)]
    assert len(losses) == 4 and losses[-1] < losses[0]


def test_train(tmp_path):
    check(run(tmp_path, os.environ["TRAIN"]))


def test_train_in_several_processes(tmp_path):
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    check(run(tmp_path, *torchrun, "--standalone", os.environ["TRAIN_DDP"]))
