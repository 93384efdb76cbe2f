"""Ensemble temperature scaling: a mixture of tempered, given and uniform probabilities."""

from __future__ import annotations  # so that help() shows types by name

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import warn
from refinecal._core.sample import Sample, on_cpu
from refinecal._core.softmax import log_softmax
from refinecal.calibrators._features import (
    best_beta,
    even_weights,
    finite_gaps,
    gap_columns,
    gap_limit,
)
from refinecal.calibrators._newton import newton_step
from refinecal.calibrators.base import Calibrator

Array = NDArray[np.float64]

TOLERANCE = 1e-12  # of the squared decrement, and of the multipliers of weights that are 0
MAX_STEPS = 200


class EnsembleTemperatureScaling(Calibrator):
    r"""Calibrate by a mixture: :math:`w_1 \mathrm{softmax}(\beta z) + w_2 p + w_3 / k`.

    First beta is that of temperature scaling, then the weights, which are positive and sum to 1, have the
    smallest mean log loss. Accuracy stays as it is, since no term changes the order of the classes.

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth, as in :class:`refinecal.TemperatureScaling`.

    Attributes
    ----------
    first_beta_ : float
        The inverse temperature.
    weights_ : ndarray of shape (3,)
        The weights of tempered, given and uniform probabilities.
    limit_ : float
        Logits further than this below the largest are cut in the first term: what a probability of 0
        stands for.

    References
    ----------
    J. Zhang, B. Kailkhura, T. Han, Mix-n-match, ICML 2020.

    Examples
    --------
    Always 88 % sure of class 0, and right three times out of four: the mixture says 3/4.

    >>> import refinecal as rc
    >>> ensemble = rc.make_calibrator("ensemble-temperature", laplace=False)
    >>> ensemble.fit_logits([[2.0, 0.0]] * 4, [0, 0, 0, 1]).predict_proba_logits([[2.0, 0.0]]).round(6)
    array([[0.75, 0.25]])
    """

    first_beta_: float
    weights_: Array
    limit_: float

    def __init__(self, laplace: bool = True) -> None:
        self.laplace = laplace

    @property
    def n_parameters(self) -> int:
        """Three: the temperature, and two of the weights."""
        return 3

    def _summary(self) -> str:
        return f"first_beta_={self.first_beta_:.4g}, weights_={self.weights_.round(4).tolist()}"

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        sample = on_cpu(sample).drop_weightless()
        self.limit_ = gap_limit(sample)
        self.first_beta_ = best_beta(sample, self.limit_, threads, start)
        tempered = self.first_beta_ * finite_gaps(sample.logits, self.limit_)
        parts = [log_softmax(tempered), log_softmax(finite_gaps(sample.logits, np.inf))]
        self.weights_ = mixture_weights(*_find_probs(sample, parts))

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        tempered, given, uniform = self.weights_
        gaps = gap_columns(logits, self.limit_)
        gaps *= self.first_beta_
        mixed = np.exp(gaps, out=gaps)
        mixed *= tempered / mixed.sum(axis=0)
        probs = np.exp(gap_columns(logits, np.inf))
        probs *= given / probs.sum(axis=0)
        mixed += probs
        mixed += uniform / logits.shape[1]
        with np.errstate(divide="ignore"):
            return np.ascontiguousarray(np.log(mixed, out=mixed).T)


def _find_probs(sample: Sample, parts: list[Array]) -> tuple[Array, Array]:
    """Return the probability that each part, and a uniform one, gives each label, and how much it counts."""
    if sample.soft is None:
        rows, labels = np.arange(sample.n), sample.labels
        share = np.ones(sample.n)
    else:
        rows, labels = np.nonzero(sample.soft)
        share = sample.soft[rows, labels]
    if sample.weights is not None:
        share = share * even_weights(sample.weights)[rows]
    uniform = np.full(len(rows), 1 / sample.k)
    found = [np.exp(part[rows, labels].astype(np.float64)) for part in parts]
    return np.stack([*found, uniform]), share / share.sum()


def mixture_weights(parts: Array, shares: Array) -> Array:
    r"""Return the weights w of a mixture of parts (m, n) with the smallest mean log loss.

    Minimises :math:`\sum_j w_j - \sum_i s_i \log (w \cdot q_i)` over :math:`w \ge 0`, whose solution sums
    to 1 by itself, by Newton steps among the weights that are not 0. A weight that a step would make
    negative becomes 0, and comes back by a step of its own if its slope is negative once the others are
    found.
    """
    weights = np.full(len(parts), 1 / len(parts))
    free = np.ones(len(parts), dtype=bool)
    mixed = weights @ parts
    for _ in range(MAX_STEPS):
        ratios = parts / mixed
        slopes = 1 - ratios @ shares
        step = np.zeros_like(weights)
        step[free] = newton_step(slopes[free], (ratios[free] * shares) @ ratios[free].T)
        decrement = -float(slopes @ step)
        if decrement <= TOLERANCE:
            if slopes[~free].min(initial=0) >= -1e-9:
                break
            back = int(np.where(free, np.inf, slopes).argmin())
            free[back] = True
            step[:] = 0
            step[back] = -slopes[back] / (ratios[back] ** 2 @ shares)
            decrement = -float(slopes @ step)
        weights, mixed = _move(parts, shares, weights, mixed, step, decrement)
        free &= weights > 0
    else:
        warn(
            f"the weights of a mixture did not settle in {MAX_STEPS} steps; please report the data"
        )
    return np.asarray(weights / weights.sum())


def _move(
    parts: Array, shares: Array, weights: Array, mixed: Array, step: Array, decrement: float
) -> tuple[Array, Array]:
    """Return weights further along a step, by at most as much as keeps them positive, and the mixture."""
    falling = step < 0
    room = np.where(falling, weights, np.inf) / np.where(falling, -step, 1.0)
    length = min(1.0, float(room.min()))
    value = weights.sum() - shares @ np.log(mixed)
    while True:
        there = np.maximum(weights + length * step, 0)
        there[falling & (room <= length)] = 0
        found = there @ parts
        if found.min() > 0:
            fallen = value - (there.sum() - shares @ np.log(found))
            if fallen >= 1e-4 * length * decrement - 1e-15 or length < 2.0**-40:
                return there, found
        length /= 2
