"""What a linear map of logits starts from: finite gaps, whatever the logits."""

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.arrays import Array
from refinecal._core.sample import Sample, row_slices
from refinecal.temperature.fit import fit_sample

ROUNDED = -float(np.log(np.finfo(np.float64).eps))  # 36.04: beyond, probabilities round to 0 and 1
ROUNDING = 1e-13  # scores closer than this, relative to their size, are one score
LARGEST = 1e100  # so that squares do not overflow
NOTHING = np.empty(0)


def finite_gaps(logits: Array, limit: float = ROUNDED) -> NDArray[np.float64]:
    """Return each logit minus the largest of its row, but no less than -limit."""
    with np.errstate(over="ignore"):
        gaps = np.subtract(logits, logits.max(axis=1, keepdims=True), dtype=np.float64)
    return np.asarray(np.maximum(gaps, -limit, out=gaps))


def log_odds(logits: Array, limit: float = ROUNDED) -> NDArray[np.float64]:
    """Return the log-odds of class 1 of two, within -limit..limit."""
    with np.errstate(over="ignore"):
        odds = np.subtract(logits[:, 1], logits[:, 0], dtype=np.float64)
    return np.asarray(np.clip(odds, -limit, limit, out=odds))


def settled(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores of which those that rounding alone tells apart are equal: to the lowest of them.

    The rule is that of isotonic regression: a score is the same as the lowest of its like if it is no
    further above than ROUNDING, relative to its size, or to 1 (or to the largest score, if that is below 1).
    """
    ranked = np.sort(odds)
    largest = max(abs(ranked[0]), abs(ranked[-1]))
    with np.errstate(invalid="ignore"):  # infinite scores are equal already
        gaps = np.diff(ranked)
        if gaps.min(where=gaps > 0, initial=np.inf) > ROUNDING * largest:
            return odds
        reach = ranked + ROUNDING * np.maximum(np.abs(ranked), min(1.0, largest))
        near = (ranked[1:] <= reach[:-1]) & np.isfinite(gaps)
    first = np.flatnonzero(np.concatenate([[True], ~near]))
    lowest = np.repeat(first, np.diff(np.append(first, len(ranked))))
    for i in np.flatnonzero(ranked > reach[lowest]):  # in a run longer than rounding
        below = lowest[i - 1]
        lowest[i] = below if below > lowest[i] and ranked[i] <= reach[below] else i
    return np.asarray(ranked[lowest][np.searchsorted(ranked, odds)])


def gap_limit(sample: Sample) -> float:
    """Return how far below the largest a logit may lie: what -inf will stand for.

    No finite gap of the sample is cut. A probability of 0 that never was wrong stays below rounding; if a
    label is in a class of probability 0, then 0 means half the smallest positive probability seen.
    """
    largest, wrong = 0.0, False
    for rows in row_slices(sample.n, sample.k):
        part = sample.logits[rows]
        with np.errstate(over="ignore"):
            low = float(np.subtract(part.min(), part.max(), dtype=np.float64))
        if -low <= ROUNDED:  # no gap can be larger: the usual case, without a temporary
            largest = max(largest, -low)
            continue
        gaps = finite_gaps(part, np.inf)
        finite = np.isfinite(gaps)
        largest = max(largest, -float(gaps.min(where=finite, initial=0.0)))
        wrong = wrong or _blames(sample.labels[rows], _rows_of(sample.soft, rows), ~finite)
    limit = largest + np.log(2) if wrong else max(largest, ROUNDED)
    return float(min(limit, LARGEST))


def _blames(
    labels: NDArray[np.int64], soft: NDArray[np.float64] | None, impossible: NDArray[np.bool_]
) -> bool:
    """Tell whether a label is in an impossible class."""
    if soft is not None:
        return bool((impossible & (soft > 0)).any())
    return bool(impossible[np.arange(len(labels)), labels].any())


def _rows_of(array: NDArray[Any] | None, rows: slice) -> NDArray[Any] | None:
    return None if array is None else array[rows]


def even_weights(weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return weights with the mean 1, so that no sum overflows; nothing if there are none."""
    if weights is None:
        return NOTHING
    shares = weights / weights.max()
    return np.asarray(shares / shares.mean())


def best_beta(sample: Sample, limit: float, threads: int, start: float) -> float:
    """Return the inverse temperature with the smallest log loss, of logits cut at the limit."""
    weights = None if sample.weights is None else even_weights(sample.weights)
    gaps = finite_gaps(sample.logits, limit)
    return fit_sample(sample.replace(logits=gaps, weights=weights), start, threads).beta


def check_strength(name: str, value: Any) -> float:
    """Return the strength of a penalty."""
    if not (isinstance(value, numbers.Real) and 0 <= float(value) < np.inf):
        raise ValueError(f"{name} is {value!r}: it must be a finite number of at least 0")
    return float(value)
