"""The optimiser of AutoGluon, as probmetrics carries it."""

from benchmarks.contestants import Fit, Task
from benchmarks.contestants._probmetrics import prepare_method

NAME = "probmetrics, AutoGluon"


def prepare(task: Task) -> Fit:
    """Return up to 200 steps of L-BFGS on the temperature, with a decaying rate."""
    return prepare_method(task, "autogluon-ts", lambda fitted: 1 / fitted.temp_)
