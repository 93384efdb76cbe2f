"""netcal's TemperatureScaling with its default method, maximum likelihood."""

import numpy as np
from netcal.scaling import TemperatureScaling
from scipy.special import softmax

from benchmarks.contestants import Fit, Task

NAME = "netcal"


def prepare(task: Task) -> Fit:
    """Return a fit on float64 probabilities, of which it takes the logarithm itself.

    It accepts no logits. In float32 its difference quotients, of step 1.5e-8, round to
    zero and it returns its starting point; float64 is the type with which it works.
    """
    probs = softmax(task.logits.astype(np.float64), axis=1)

    def fit() -> float:
        fitted = TemperatureScaling().fit(probs, task.labels)
        return float(fitted.temperature.item())  # it multiplies logits, so it is beta

    return fit
