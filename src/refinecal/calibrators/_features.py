"""Features and outputs of calibrators: finite gaps and log-odds, labels, log-probabilities.

Columns (k, n) have the classes first, so that loops run over samples.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.arrays import Array
from refinecal._core.sample import Sample, on_cpu, row_slices
from refinecal.temperature.fit import fit_sample

ROUNDED = -float(np.log(np.finfo(np.float64).eps))  # 36.04: beyond, probabilities round to 0 or 1
ROUNDING = 1e-13  # scores closer than this, relative to their size, are equal
LARGEST = 1e100  # so that squares do not overflow
NOTHING = np.empty(0)

Floats = NDArray[np.float64]


def finite_gaps(logits: Array, limit: float = ROUNDED) -> Floats:
    """Return each logit minus the largest of its row, clipped at -limit."""
    with np.errstate(over="ignore"):
        gaps = np.subtract(logits, logits.max(axis=1, keepdims=True), dtype=np.float64)
    return np.asarray(np.maximum(gaps, -limit, out=gaps))


def log_odds(logits: Array, limit: float = ROUNDED) -> Floats:
    """Return the log-odds of class 1 of two, clipped to -limit..limit."""
    with np.errstate(over="ignore"):
        odds = np.subtract(logits[:, 1], logits[:, 0], dtype=np.float64)
    return np.asarray(np.clip(odds, -limit, limit, out=odds))


def merge_ties(odds: Floats) -> Floats:
    """Return the scores, with those that differ only by rounding set to the lowest of them.

    As in isotonic regression, a score equals a lower one if it is above it by at most ROUNDING, relative to
    its size, or to 1 (or to the largest score, if that is below 1).
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
    """Return how far below the largest a logit may be, which replaces -inf.

    No finite gap of the sample is clipped. Probabilities of 0 that are never wrong stay below rounding; if a
    label has probability 0, then 0 becomes half the smallest positive probability.
    """
    largest, wrong = 0.0, False
    for rows in row_slices(sample.n, sample.k):
        part = sample.logits[rows]
        with np.errstate(over="ignore"):
            low = float(np.subtract(part.min(), part.max(), dtype=np.float64))
        if -low <= ROUNDED:  # no gap can be larger: the common case, without a temporary
            largest = max(largest, -low)
            continue
        gaps = finite_gaps(part, np.inf)
        finite = np.isfinite(gaps)
        largest = max(largest, -float(gaps.min(where=finite, initial=0.0)))
        if sample.soft is None:
            possible = finite[np.arange(len(part)), sample.labels[rows]]
        else:
            possible = finite | (sample.soft[rows] <= 0)
        wrong = wrong or not possible.all()
    limit = largest + np.log(2) if wrong else max(largest, ROUNDED)
    return float(min(limit, LARGEST))


def even_weights(weights: Floats | None) -> Floats:
    """Return weights with mean 1, so that no sum overflows; an empty array if there are none."""
    if weights is None:
        return NOTHING
    shares = weights / weights.max()
    return np.asarray(shares / shares.mean())


def best_beta(sample: Sample, limit: float, threads: int, start: float) -> float:
    """Return the inverse temperature with the smallest log loss, of logits clipped at the limit."""
    weights = None if sample.weights is None else even_weights(sample.weights)
    gaps = finite_gaps(sample.logits, limit)
    return fit_sample(sample.replace(logits=gaps, weights=weights), start, threads).beta


# ---- two classes -------------------------------------------------------------------------------------------


def check_two_classes(sample: Sample, what: str, name: str, other: str = "temperature") -> Sample:
    """Return the rows of positive weight, in NumPy; raise for more than two classes."""
    if sample.k != 2:
        raise ValueError(
            f"{what} is for 2 classes, found {sample.k}: use calibrator='{name}-ovr' (one-vs-rest), or "
            f"calibrator='{other}'"
        )
    return on_cpu(sample).drop_weightless()


def shares_of(sample: Sample) -> Floats:
    """Return the share of class 1 in the label of each row."""
    return sample.labels.astype(np.float64) if sample.soft is None else sample.soft[:, 1]


def rank_rows(scores: Floats, labels: NDArray[Any]) -> NDArray[np.int64]:
    """Return the order of the rows by score, then by label."""
    order = np.argsort(scores)
    ranked = scores[order]
    return np.lexsort((labels, scores)) if (ranked[1:] == ranked[:-1]).any() else order


def log_rows(shares: Floats) -> Floats:
    """Return the log-probabilities of both classes, given the probability of class 1."""
    logs = np.empty((len(shares), 2))
    with np.errstate(divide="ignore"):
        np.log1p(-shares, out=logs[:, 0])
        np.log(shares, out=logs[:, 1])
    return logs


def log_rows_of_odds(odds: NDArray[Any]) -> Floats:
    """Return the log-probabilities of both classes, given the log-odds of class 1."""
    logs = np.empty((len(odds), 2))
    rest = np.log(1 + np.exp(-np.abs(odds)))
    np.subtract(-np.maximum(odds, 0), rest, out=logs[:, 0])
    np.subtract(np.minimum(odds, 0), rest, out=logs[:, 1])
    return logs


# ---- columns -----------------------------------------------------------------------------------------------


def gap_columns(logits: NDArray[Any], limit: float) -> Floats:
    """Return the transpose of :func:`finite_gaps`, (k, n)."""
    columns = np.empty(logits.shape[::-1])
    _kernels.softmax_linear.fill_gaps(logits, limit, columns)
    return columns


def log_softmax_rows(scores: Floats) -> Floats:
    """Return the log-softmax (n, k) of scores (k, n)."""
    logs = np.empty(scores.shape[::-1])
    _kernels.softmax_linear.fill_logs(scores, logs)
    return logs
