"""Two classes of a softmax map: three numbers at most, found by logistic regression."""

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import Sample
from refinecal.calibrators._logistic import fit_logistic
from refinecal.calibrators._newton import Advice
from refinecal.calibrators._two_classes import shares_of

Array = NDArray[np.float64]


def log_shares(odds: Array) -> Array:
    """Return the log-probabilities of both classes, given the log-odds of class 1."""
    logs = np.empty((len(odds), 2))
    rest = np.log(1 + np.exp(-np.abs(odds)))
    np.subtract(-np.maximum(odds, 0), rest, out=logs[:, 0])
    np.subtract(np.minimum(odds, 0), rest, out=logs[:, 1])
    return logs


def fit_two(
    sample: Sample,
    columns: list[Array],
    ridge: list[float],
    advice: Advice,
    offset: Array | None = None,
) -> tuple[Array, Array]:
    """Return the coefficients of the columns, and the intercepts of both classes.

    ``ridge`` has the strengths of ``ridge * coefficient**2``; the last is that of the difference of the
    two intercepts, which are halved between them.
    """
    features = np.stack([*columns, np.ones(sample.n)]).T
    found = fit_logistic(
        features,
        shares_of(sample),
        sample.weights,
        ridge=2 * np.array(ridge),
        offset=offset,
        advice=advice,
    )
    return found[:-1], found[-1] * np.array([-0.5, 0.5])
