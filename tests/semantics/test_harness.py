"""The comparison notices what it is there for: a test that can't fail shows nothing."""

import pytest
import scenarios_a_to_e as scenarios
import torch
from harness import assert_same, check, optimize_once, train_alike, train_step
from torch import nn


def changed(step, name, change):
    return {key: change(value.clone()) if key == name else value for key, value in step.items()}


CHANGES = {
    "the last bit of an output": ("output 0", lambda t: t.view(torch.int32).bitwise_xor(1).view(torch.float32)),
    "the sign of a zero": ("grad 0.bias", lambda t: t.mul_(0.0).neg_()),
    "another dtype": ("grad 0.weight", lambda t: t.double()),
    "an undefined gradient": ("grad 0.weight", lambda t: None),
    "a buffer": ("buffer 1.num_batches_tracked", lambda t: t + 1),
    "a written input": ("input 0", lambda t: t.add_(1.0)),
    "another draw": ("next draw", lambda t: t.flip(0)),
    "no number": ("output 0", lambda t: t.fill_(float("nan"))),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_difference_is_noticed(what):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
    step = train_step(model, (torch.randn(8, 4),))
    if what == "the sign of a zero":
        step["grad 0.bias"] = torch.zeros(4)
    assert_same(step, dict(step))
    with pytest.raises(AssertionError):
        assert_same(step, changed(step, *CHANGES[what]))


def test_other_weights_another_seed_and_a_missing_replay_are_noticed():
    given = scenarios.a1()
    optimized = optimize_once(scenarios.a1)
    train_alike(given.eager, optimized.load(), given.inputs)
    other = scenarios.a1().eager
    with torch.no_grad():
        other[0].weight[0, 0] += 1e-6
    with pytest.raises(AssertionError, match="output 0"):
        train_alike(other, optimized.load(), given.inputs)
    seeds = iter(range(100))
    with pytest.raises(AssertionError, match="output 0"):
        train_alike(
            scenarios.a1().eager,
            optimized.load(),
            given.inputs,
            step=lambda module, inputs, call: train_step(module, inputs, next(seeds)),
        )
    with pytest.raises(AssertionError, match="replayed 0 nodes"):
        train_alike(scenarios.a1().eager, optimized.plain(), given.inputs)
    with pytest.raises(AssertionError, match="was rewritten"):
        check(scenarios.a1, rewritten=False)
