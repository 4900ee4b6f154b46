"""tools/quickstart_table.py on the report of `remat-opt verify --json`."""

import copy
import json
import subprocess
import sys

REPORT = {
    "parity": {
        "outputs": "bitwise",
        "gradients": "close",
        "buffers": "bitwise",
        "random_state": "bitwise",
        "max_difference": 2e-7,
    },
    "peak_bytes": {"original": 1411000000, "optimized": 705500000, "predicted": 700000000},
    "step_seconds": {"original": 3.0, "optimized": 3.3},
    "recompute_share_of_forward": 0.234,
}


def run(tmp_path, text):
    file = tmp_path / "verify.json"
    file.write_text(text)
    return subprocess.run(
        [sys.executable, "tools/quickstart_table.py", str(file)], capture_output=True, text=True, check=False
    )


def test_shows_every_measurement(tmp_path):
    done = run(tmp_path, json.dumps(REPORT))
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert "step peak, measured 1411.0 MB 705.5 MB 50.0%".split() in rows
    assert "step peak, predicted 700.0 MB 49.6%".split() in rows
    assert "step time 3.00 s 3.30 s 1.10x".split() in rows
    assert "recomputed share of a forward 23.4%".split() in rows
    assert "parity of gradients close".split() in rows
    assert "largest relative difference 2.0e-07".split() in rows


def test_no_difference_no_row(tmp_path):
    report = copy.deepcopy(REPORT)
    report["parity"]["max_difference"] = 0
    assert "difference" not in run(tmp_path, json.dumps(report)).stdout


def test_bad_reports_are_one_line(tmp_path):
    for text, cause in (("", "verify.json"), ("{}", "peak_bytes")):
        done = run(tmp_path, text)
        assert done.returncode == 1
        assert cause in done.stderr and len(done.stderr.splitlines()) == 1
