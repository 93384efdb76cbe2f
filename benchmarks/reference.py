"""The exact optimum, by a bracketing method in float64 that no contestant uses."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax

from benchmarks.data import Sample, accuracy, draw

ENTRIES_AT_A_TIME = 500_000  # float64 copies that fit the cache
LOG_BETA = (-3.0, 3.0)  # far wider than the optima of benchmarks.data; brentq checks


@dataclass(frozen=True)
class Problem:
    """A sample, and the answer that contestants look for."""

    sample: Sample
    accuracy: float
    best_beta: float
    best_loss: float


def pose(n: int, k: int) -> Problem:
    """Draw a sample of this size and solve it."""
    sample = draw(n, k)
    beta = best_beta(sample)
    return Problem(sample, accuracy(sample), beta, log_loss(sample, beta))


def log_loss(sample: Sample, beta: float) -> float:
    """Return the mean log loss of softmax(beta * logits), computed in float64."""
    total = 0.0
    for at_label, logits in _chunks(sample):
        total += float((logsumexp(beta * logits, axis=1) - beta * at_label).sum())
    return total / len(sample.labels)


def best_beta(sample: Sample) -> float:
    """Return the root of the slope of the log loss, by Brent's method on log(beta)."""

    def slope(log_beta: float) -> float:
        beta, total = np.exp(log_beta), 0.0
        for at_label, logits in _chunks(sample):
            expected = (softmax(beta * logits, axis=1) * logits).sum(axis=1)
            total += float((expected - at_label).sum())
        return total / len(sample.labels)

    # Being off by 1e-9 costs about 1e-18 nats: far below the rounding of the loss.
    return float(np.exp(brentq(slope, *LOG_BETA, xtol=1e-9)))


def _chunks(
    sample: Sample,
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield the label's logit and all logits, in float64, of some rows at a time."""
    n, k = sample.logits.shape
    step = max(1, ENTRIES_AT_A_TIME // k)
    for first in range(0, n, step):
        logits = sample.logits[first : first + step].astype(np.float64)
        labels = sample.labels[first : first + step]
        yield logits[np.arange(len(labels)), labels], logits
