"""Areas under ROC curves, one class against the rest: of probabilities as they are, of logits by log-odds.

Probabilities tie where they are equal, as in scikit-learn. Log-odds of logits are sums of exponentials: those
that rounding alone tells apart tie too.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.arrays import NOTHING, readonly
from refinecal._core.sample import Sample
from refinecal._core.softmax import log_odds
from refinecal._core.threads import map_threads

Floats = NDArray[np.float64]
FEW = 2**12  # rows whose log-odds are computed together: they stay in the nearest cache


def mean_area(areas: Floats) -> float:
    """Return the mean over the classes that have an area, NaN if none has."""
    if len(areas) == 2:
        return float(areas[1])
    known = areas[~np.isnan(areas)]
    return float(known.mean()) if known.size else math.nan


# ---- probabilities ---------------------------------------------------------------------------------------


def areas_of_probs(
    columns: Floats,
    rest: Floats,
    labels: NDArray[np.int64],
    weights: Floats | None = None,
    threads: int = 1,
) -> Floats:
    """Return the area of each class; NaN for a class that has no rows, or nothing beside it.

    ``columns`` are probabilities (k, n), ``rest`` what each row leaves beside its likeliest class; all are
    read-only, so that one compiled loop serves.
    """
    k = len(columns)
    rows, begin = _kernels.ranking.by_class(labels, k)
    total = float(len(labels)) if weights is None else float(weights.sum())

    def area(j: int) -> float:
        own = rows[begin[j] : begin[j + 1]]
        if not own.size:
            return math.nan
        return _area(j, columns[j], rest, labels, own, weights, total)

    if k == 2:
        return np.full(2, area(1))  # the other class's score is 1 - p: the same pairs
    return np.array(map_threads(area, range(k), columns.size, threads))


def _area(
    j: int,
    scores: Floats,
    rest: Floats,
    labels: NDArray[np.int64],
    rows: NDArray[np.int64],
    weights: Floats | None,
    total: float,
) -> float:
    r"""Return :math:`1 - \sum_{i \in -} w_i (\text{mass of + below i} + \frac12 \text{equal}) / W_+ W_-`."""
    loops = _kernels.ranking
    keys = loops.keys_of(scores, rest, rows)
    frame = loops.window(keys)
    keys, mass = _sorted(keys, frame, None if weights is None else weights[rows])
    own = float(len(keys)) if mass is NOTHING else float(mass[-1])
    other = total - own if weights is None else float(np.delete(weights, rows).sum())
    if not (own > 0 and other > 0):
        return math.nan
    cut, starts = loops.table_of(keys, frame)
    given = NOTHING if weights is None else weights
    twice = loops.mass_below(scores, rest, given, labels, j, keys, mass, cut, starts, frame)
    return float(1 - twice / (2 * own * other))


def _sorted(
    keys: NDArray[np.int64], frame: Any, weights: Floats | None
) -> tuple[NDArray[np.int64], Floats]:
    """Return the different keys in order, and the mass of the first t of them; nothing if that is t."""
    if weights is None:
        ordered = _kernels.ranking.arranged(keys, frame)
        ordered = np.sort(keys) if not ordered.size else ordered
    else:
        order = np.argsort(keys)
        ordered, weights = keys[order], weights[order]
    new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    if weights is None and new.all():
        return ordered, NOTHING
    first = np.flatnonzero(new)
    if weights is None:
        return ordered[first], readonly(np.r_[first, len(ordered)].astype(np.float64))
    mass = np.r_[0.0, np.cumsum(np.add.reduceat(weights, first))]
    return ordered[first], readonly(mass)


# ---- logits ----------------------------------------------------------------------------------------------


def areas_of_logits(sample: Sample, threads: int = 1) -> Floats:
    """Return the area of each class by its log-odds, as :func:`areas_of_probs` does; labels may be soft."""
    odds, rounding = np.empty((sample.k, sample.n)), np.empty(sample.n)

    def fill(start: int) -> None:
        few = slice(start, start + FEW)
        odds[:, few] = log_odds(sample.logits[few].astype(np.float64)).T
        rounding[few] = _rounding(sample.logits[few])

    map_threads(fill, range(0, sample.n, FEW), odds.size, threads)

    def area(j: int) -> float:
        own, others = _masses(sample, j)
        pairs = float(own.sum()) * float(others.sum())
        if not pairs > 0:
            return math.nan
        order = np.argsort(odds[j])
        return float(_kernels.ranking.area_in_order(odds[j], order, rounding, own, others) / pairs)

    if sample.k == 2:
        return np.full(2, area(1))
    return np.array(map_threads(area, range(sample.k), odds.size, threads))


def _masses(sample: Sample, j: int) -> tuple[Floats, Floats]:
    """Return what each row weighs for class j and what against it."""
    share = sample.labels == j if sample.soft is None else sample.soft[:, j]
    own = share.astype(np.float64)
    if sample.weights is None:
        return own, 1 - own
    return sample.weights * own, sample.weights * (1 - own)


def _rounding(logits: NDArray[Any]) -> Floats:
    """Return how far apart rounding may put equal log-odds of each row: relative to its largest logit."""
    sizes = np.empty(len(logits))
    _kernels.ranking.largest_finite(readonly(np.ascontiguousarray(logits)), sizes)
    if logits.dtype != np.float64:
        sizes *= 1e7  # times the rounding of float64 is 8 units in the last place of float32
    if logits.shape[1] > 2:
        sizes = np.maximum(sizes, 1)  # sums of exponentials are of this size
    return np.asarray(1e-13 * sizes)
