"""The optimiser of TorchUncertainty, as probmetrics carries it."""

from benchmarks.contestants import Fit, Task
from benchmarks.contestants._probmetrics import prepare_method

NAME = "probmetrics, TorchUncertainty"


def prepare(task: Task) -> Fit:
    """Return up to 100 steps of L-BFGS on the temperature."""
    return prepare_method(task, "torchunc-ts", lambda fitted: fitted.invtemp_)
