"""probmetrics' own temperature scaling, by the authors of the paper."""

from benchmarks.contestants import Fit, Task
from benchmarks.contestants._probmetrics import prepare_method

NAME = "probmetrics"


def prepare(task: Task) -> Fit:
    """Return 30 steps of bisection on the slope."""
    return prepare_method(task, "temp-scaling", lambda fitted: float(fitted.invtemp_))
