"""Areas under one-vs-rest ROC curves, of probabilities and of logits.

Equal probabilities are ties, as in scikit-learn. Log-odds of logits are sums of exponentials, so those that
differ only by rounding are ties too.
"""

import math

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.arrays import map_threads
from refinecal._core.sample import NOTHING, Sample, readonly

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
FEW = 2**12  # rows whose log-odds are computed together: a multiple of a tile of the loop


def mean_area(areas: Floats) -> float:
    """Return the mean over classes with an area; NaN if there is none."""
    if len(areas) == 2:
        return float(areas[1])
    known = areas[~np.isnan(areas)]
    return float(known.mean()) if known.size else math.nan


def areas_of_probs(
    columns: Floats, rest: Floats, labels: Integers, weights: Floats | None = None, threads: int = 1
) -> Floats:
    """Return the area of each class; NaN for a class without rows, or with all rows.

    ``columns`` are probabilities (k, n), ``rest`` is one minus the largest of each row; all are read-only.
    """
    return _areas(columns, rest, 0.0, Sample(labels, columns.T, weights), threads)


def areas_of_logits(sample: Sample, threads: int = 1) -> Floats:
    """Return the area of each class by its log-odds, as in :func:`areas_of_probs`; labels may be soft."""
    room = -(-sample.n // FEW) * FEW
    odds, rounding = np.empty((sample.k, room)), np.empty(room)
    logits = readonly(np.ascontiguousarray(sample.logits))

    def fill(start: int) -> None:
        end = min(start + FEW, sample.n)
        _kernels.ranking.fill_log_odds(logits, start, end, odds, rounding)

    map_threads(fill, range(0, sample.n, FEW), odds.size, threads)
    odds, rounding, unit = readonly(odds[:, : sample.n]), readonly(rounding[: sample.n]), 1.0
    if sample.k == 2:  # keys must be finer than the rounding of the smallest log-odds
        sizes = np.abs(odds[1])
        least = sizes[sizes > 0].min(initial=np.inf)
        unit = 1.0 if least == np.inf else 64 * least if least < 1e300 else least
    return _areas(odds, rounding, unit, sample, threads)


def _areas(columns: Floats, rest: Floats, unit: float, sample: Sample, threads: int) -> Floats:
    r"""Return :math:`1 - \sum_{i \in -} w_i (\text{mass of + below i} + \frac12 \text{equal}) / W_+ W_-`."""
    labels, weights, soft = readonly(sample.labels), sample.weights, sample.soft
    farthest = float(rest.max()) if unit else 0.0
    rows, begin = _kernels.ranking.group_rows(labels, sample.k)

    def area(j: int) -> float:
        own, share, others, hidden = rows[begin[j] : begin[j + 1]], NOTHING, NOTHING, j
        if soft is not None:  # a row may belong to several classes
            mass = np.ones(sample.n) if weights is None else weights
            share, others = mass * soft[:, j], mass * (1 - soft[:, j])
            own, hidden = np.flatnonzero(soft[:, j]), -1
        elif weights is not None:
            share, others = weights, weights.copy()
            others[own] = 0.0
        pairs = float(len(own)) * (sample.n - len(own))
        if share.size:
            pairs = float(share[own].sum()) * float(others.sum())
        if not pairs > 0:
            return math.nan
        masses = readonly(own), readonly(share), readonly(others)
        scores = columns[j], rest, unit, farthest
        twice = _kernels.ranking.twice_below(*scores, labels, hidden, *masses)
        return float(1 - twice / (2 * pairs))

    if sample.k == 2:
        return np.full(2, area(1))  # the other class's score is 1 - p: the same pairs
    return np.array(map_threads(area, range(sample.k), columns.size, threads))
