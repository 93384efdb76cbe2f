"""The calibrator inside scikit-learn's CalibratedClassifierCV(method="temperature")."""

# Private, but the public class would add the cost of cloning and asking a classifier.
from sklearn.calibration import _TemperatureScaling

from benchmarks.contestants import Fit, Task

NAME = "scikit-learn"


def prepare(task: Task) -> Fit:
    """Return a fit on the NumPy arrays; two columns are taken as they are."""

    def fit() -> float:
        return float(_TemperatureScaling().fit(task.logits, task.labels).beta_)

    return fit
