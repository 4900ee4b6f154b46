"""Trains TorchScript models in less memory.

    import remat

    model = remat.optimize(model, example_inputs, budget="50%")

gives a module that trains like the model, with the same gradients, within half of a training step's memory: it keeps
some activations and recomputes others in the backward pass. `remat.plan` shows what each budget costs in time.
"""

from ._build import VERSION as __version__
from ._errors import BudgetError, RematError
from ._module import OptimizedModule, result_of
from ._optimize import load, optimize, plan, save, save_plan
from ._results import PlanCurve, PlanPoint, Remark, Result

__all__ = [
    "BudgetError",
    "OptimizedModule",
    "PlanCurve",
    "PlanPoint",
    "Remark",
    "RematError",
    "Result",
    "__version__",
    "load",
    "optimize",
    "plan",
    "result_of",
    "save",
    "save_plan",
]
