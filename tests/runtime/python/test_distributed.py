"""Under DistributedDataParallel optimised modules train as the unoptimised ones do, by one plan for all processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

RANKS = Path(__file__).with_name("ranks.py")
SECONDS = 240


def run_ranks(folder, size, *scenarios):
    """What each rank found, by rank. A rank that hangs is killed, which fails the test."""
    common = os.environ | {"WORLD_SIZE": str(size), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", RANKS, folder, *scenarios],
            env=common | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        printed = [process.communicate(timeout=SECONDS)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(process.returncode == 0 for process in processes), "\n".join(printed)
    return [torch.load(folder / f"{rank}.pt") for rank in range(size)]


TRAINING = [
    "plain",
    "accumulation",
    "finds unused",
    "unused parameter",
    "unused parameter, accumulation",
    "bucket views",
]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """One start of two processes serves all: importing torch takes most of the time."""
    scenarios = [*TRAINING, "wrapped", "unchanged", "out of reach"]
    return run_ranks(tmp_path_factory.mktemp("two"), 2, *scenarios)


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    scenarios = ["another model", "another model unchanged", "another batch", "first fails", "other fails", "unasked"]
    scenarios += ["first's argument", "other's argument", "everyone's argument"]
    return run_ranks(tmp_path_factory.mktemp("refused"), 2, *scenarios)


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    return run_ranks(tmp_path_factory.mktemp("four"), 4, "plain", "unused parameter, accumulation")


def assert_same_training(found, accumulate=1, unused=()):
    assert len({rank["hash"] for rank in found}) == 1 and len({rank["ir"] for rank in found}) == 1
    for rank in found:
        assert rank["recomputed"] > 0 and "remat::checkpoint" in rank["code"]
        for call, (expected, actual) in enumerate(zip(rank["expected"], rank["actual"], strict=True), start=1):
            assert expected["tensors"].keys() == actual["tensors"].keys()
            for name, tensor in expected["tensors"].items():
                assert torch.equal(tensor, actual["tensors"][name]), f"step {call}: {name}"
            assert expected["hooks"] == actual["hooks"], f"step {call}"
            used = {name: count for name, count in actual["hooks"].items() if not name.startswith(unused)}
            assert set(used.values()) == {accumulate}, used
    # All ranks have the same gradients: they were exchanged.
    for name, tensor in found[0]["actual"][-1]["tensors"].items():
        if name.startswith("grad "):
            assert all(torch.equal(tensor, rank["actual"][-1]["tensors"][name]) for rank in found), name


ACCUMULATED = {"accumulation": 3, "unused parameter, accumulation": 2}


@pytest.mark.parametrize("scenario", TRAINING)
def test_two_processes(two, scenario):
    unused = ("never", "sometimes") if scenario.startswith("unused") else ()
    assert_same_training([rank[scenario] for rank in two], ACCUMULATED.get(scenario, 1), unused)


@pytest.mark.parametrize("scenario", ["plain", "unused parameter, accumulation"])
def test_four_processes(four, scenario):
    unused = ("never", "sometimes") if scenario.startswith("unused") else ()
    assert_same_training([rank[scenario] for rank in four], ACCUMULATED.get(scenario, 1), unused)


def test_ranks_saw_other_data(two):
    # Else equal gradients would show nothing of their exchange. Statistics of norms are each rank's own after a step.
    left, right = (rank["plain"]["actual"][-1]["tensors"]["blocks.0.1.running_mean"] for rank in two)
    assert not torch.equal(left, right)


def test_the_result_of_a_wrapped_module(two):
    assert len({rank["wrapped"]["hash"] for rank in two}) == 1


def test_nothing_to_gain(two):
    for rank in two:
        assert not rank["unchanged"]["changed"]
        assert not any(name.startswith("remat_") for name in rank["unchanged"]["methods"])


def test_a_budget_out_of_reach_is_so_on_all_ranks(two):
    first, second = (rank["out of reach"] for rank in two)
    assert first["kind"] == second["kind"] == "BudgetError"
    assert first["minimum"] == second["minimum"] > 0
    assert second["error"].endswith(first["error"]) and second["error"].startswith("rank 0 of the process group")


@pytest.mark.parametrize("scenario", ["another model", "another model unchanged", "another batch", "other fails"])
def test_a_rank_that_does_not_fit_is_named_on_all(refused, scenario):
    errors = [rank[scenario] for rank in refused]
    assert {error["kind"] for error in errors} == {"RematError"}
    assert len({error["error"] for error in errors}) == 1
    message = errors[0]["error"]
    assert "the processes don't have the same model and plan" in message and "rank 1: " in message
    assert "rank 0: " not in message


def test_an_unused_parameter_that_nobody_looks_for(refused):
    # DistributedDataParallel's own error, with and without Remat.
    for rank in refused:
        expected, actual = rank["unasked"]["expected"], rank["unasked"]["actual"]
        assert expected["kind"] == actual["kind"] == "RuntimeError"
        assert "find_unused_parameters=True" in expected["error"] and "find_unused_parameters=True" in actual["error"]


def test_an_error_of_the_first_rank_is_one_of_all(refused):
    first, second = (rank["first fails"] for rank in refused)
    assert "NotImplementedError: nothing here" in first["error"] and "rank" not in first["error"]
    assert second["kind"] == "RematError" and first["error"] in second["error"]


def test_a_wrong_argument_of_one_rank_is_an_error_of_all(refused):
    first, second = (rank["first's argument"] for rank in refused)
    assert first["kind"] == "ValueError" and "budget '50' has no unit" in first["error"]
    assert second["kind"] == "RematError" and first["error"] in second["error"]
    for rank in refused:
        assert rank["other's argument"]["kind"] == "RematError"
        assert "rank 1: ValueError: loss 'mse' is unknown" in rank["other's argument"]["error"]
    first, second = (rank["everyone's argument"] for rank in refused)
    assert first["kind"] == "FileNotFoundError" and second["kind"] == "RematError"


def test_a_part_of_the_processes(tmp_path):
    found = [rank["subgroup"] for rank in run_ranks(tmp_path, 3, "subgroup")]
    assert "no member of process_group" in found[0]["error"]
    assert found[1]["hash"] == found[2]["hash"]
