"""What every test here starts from."""

import harness
import pytest
import torch

torch.set_num_threads(1)  # models are small: threads that wait for each other take most of the time


@pytest.fixture(autouse=True)
def _nothing_left_over():
    """Settings and random numbers are those of a fresh process, and an armed failure is disarmed."""
    with harness.executor("plain"):
        torch.manual_seed(0)
        yield
    torch.ops.semantics.fail_in(-1)
    torch.set_default_dtype(torch.float32)
