"""The optimiser of Guo et al. (2017), as probmetrics carries it."""

from benchmarks.contestants import Fit, Task
from benchmarks.contestants._probmetrics import prepare_method

NAME = "probmetrics, Guo"


def prepare(task: Task) -> Fit:
    """Return up to 50 steps of L-BFGS on the temperature."""
    return prepare_method(task, "guo-ts", lambda fitted: 1 / fitted.temp_.item())
