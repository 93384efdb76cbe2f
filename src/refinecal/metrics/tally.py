"""Sums over predictions from one read of their probabilities, and areas under ROC curves."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.arrays import map_threads
from refinecal._core.sample import NOTHING, Sample, readonly, softmax
from refinecal.losses import get_loss, losses_at
from refinecal.metrics.bins import N_BINS

Floats = NDArray[np.float64]
PART = 2**16  # rows per task of a thread
FEW = 2**12  # rows whose log-odds are computed together: a multiple of a tile of the loop


@dataclass(frozen=True, slots=True)
class Tally:
    """Weighted sums per class and bin; soft labels count as one weighted row per label."""

    total: float  # mass of all rows
    columns: Floats  # (k, n) probabilities, read-only
    labels: NDArray[np.int64]
    weights: Floats  # empty without sample weights
    bins: Floats  # (k, N_BINS) probabilities of the class
    hits: Floats  # (k, N_BINS) its own rows
    events: Floats  # (3, N_BINS) mass, probabilities and hits of the top class (of two, the second)
    mass: Floats  # (k,) its own rows
    right: Floats  # (k,) those whose likeliest class it is
    log: Floats  # (k,) their losses
    brier: Floats
    rest: Floats  # (n,) one minus the probability of the likeliest class
    scores: Floats  # (n,) probability of the likeliest class, of two the second
    happened: Floats  # (n,) 1 where that is the label


def tally(sample: Sample, threads: int) -> Tally:
    """Return the sums over a sample."""
    rows_of = sample.expand_soft_labels()
    probs = rows_of.given
    if probs is None:
        probs = softmax(rows_of.logits, rows_of.threads)  # not kept
    elif probs.ndim == 1:
        probs = rows_of.probs
    columns = readonly(np.ascontiguousarray(probs.T, dtype=np.float64))
    labels = readonly(rows_of.labels)
    weights = readonly(NOTHING if rows_of.weights is None else rows_of.weights)
    loops, (k, n) = _kernels.rows, columns.shape
    each = np.empty((3, n))

    def add_part(rows: slice) -> list[Floats]:
        shapes = ((k, N_BINS * loops.COPIES), (k, N_BINS), (3, N_BINS), (loops.N_SUMS, k))
        sums = [np.zeros(shape) for shape in shapes]
        loops.tally(columns, labels, weights, rows.start, rows.stop, *sums, each)
        return sums

    cuts = [slice(start, min(start + PART, n)) for start in range(0, n, PART)]
    found = map_threads(add_part, cuts, columns.size, threads)
    bins, hits, events, classes = (np.sum(part, axis=0) for part in zip(*found, strict=True))
    bins = bins.reshape(k, N_BINS, loops.COPIES).sum(axis=2)
    if sample.given is None:  # larger losses than probabilities can represent
        losses = losses_at(rows_of, 1.0, get_loss("log"), threads)
        if rows_of.weights is not None:
            losses = np.where(rows_of.weights > 0, losses, 0.0) * rows_of.weights
        classes[loops.LOSS] = np.bincount(rows_of.labels, losses, minlength=k)
    total = float(classes[loops.MASS].sum())
    return Tally(total, columns, labels, weights, bins, hits, events, *classes, *readonly(each))


# ---- areas under one-vs-rest ROC curves --------------------------------------------------------------------

# Equal probabilities are ties, as in scikit-learn. Log-odds of logits are sums of exponentials, so those that
# differ only by rounding are ties too.


def areas_of(sample: Sample, threads: int = 1, found: Tally | None = None) -> Floats:
    """Return the one-vs-rest area under the ROC curve of each class, of logits by their log-odds."""
    if sample.given is not None:
        found = tally(sample, threads) if found is None else found
        weights = found.weights if found.weights.size else None
        rows_of = Sample(found.labels, found.columns.T, weights)
        return compute_areas(found.columns, found.rest, 0.0, rows_of, threads)
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
    return compute_areas(odds, rounding, unit, sample, threads)


def mean_area(areas: Floats) -> float:
    """Return the mean over classes with an area; NaN if there is none."""
    if len(areas) == 2:
        return float(areas[1])
    known = areas[~np.isnan(areas)]
    return float(known.mean()) if known.size else math.nan


def compute_areas(
    columns: Floats, rest: Floats, unit: float, sample: Sample, threads: int = 1
) -> Floats:
    r"""Return :math:`1 - \sum_{i \in -} w_i (\text{mass of + below i} + \frac12 \text{equal}) / W_+ W_-`.

    That is the area of each class, NaN for a class without rows or with all rows. ``columns`` are scores
    (k, n); ``rest`` is one minus the largest probability of each row, or with ``unit`` the rounding error of
    log-odds. Both are read-only.
    """
    labels, soft = readonly(sample.labels), sample.soft
    weights = None if sample.weights is None else readonly(sample.weights)
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
        for each in (own, share, others):  # of this class alone, or read-only already
            each.flags.writeable = False
        scores = columns[j], rest, unit, farthest
        twice = _kernels.ranking.twice_below(*scores, labels, hidden, own, share, others)
        return float(1 - twice / (2 * pairs))

    if sample.k == 2:
        return np.full(2, area(1))  # the other class's score is 1 - p: the same pairs
    return np.array(map_threads(area, range(sample.k), columns.size, threads))
