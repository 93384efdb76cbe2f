"""The optimiser of torchcal, as probmetrics carries it."""

from benchmarks.contestants import Fit, Task
from benchmarks.contestants._probmetrics import prepare_method

NAME = "probmetrics, torchcal"


def prepare(task: Task) -> Fit:
    """Return Newton's method with exact second derivatives on the temperature."""
    return prepare_method(task, "torchcal-ts", lambda fitted: 1 / fitted.temp_)
