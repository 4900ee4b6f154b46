"""What every test here starts from."""

import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(os.environ["REMAT_PACKAGE"]).parents[1]))
torch.set_num_threads(1)  # models are small


@pytest.fixture(autouse=True)
def _as_eager():
    """TorchScript rounds as eager does where its own optimisation is off."""
    before = torch._C._get_graph_executor_optimize()
    torch._C._set_graph_executor_optimize(False)
    torch.manual_seed(0)
    yield
    torch._C._set_graph_executor_optimize(before)
