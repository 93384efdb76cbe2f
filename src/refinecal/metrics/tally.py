"""All sums over predictions that need one read of their probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.arrays import map_threads
from refinecal._core.sample import NOTHING, Sample, parts, readonly, softmax
from refinecal.losses import get_loss
from refinecal.metrics.bins import N_BINS
from refinecal.metrics.ranking import areas_of_logits, areas_of_probs
from refinecal.resampling import losses_at

Floats = NDArray[np.float64]
PART = 2**16  # rows per task of a thread


@dataclass(frozen=True, slots=True)
class Tally:
    """Weighted sums per class and bin; soft labels count as one weighted row per label."""

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

    @property
    def total(self) -> float:
        return float(self.mass.sum())


def tally(sample: Sample, threads: int) -> Tally:
    """Return the sums over a sample."""
    rows_of = sample.expand_soft_labels()
    columns = _columns(rows_of)
    labels = readonly(rows_of.labels)
    weights = readonly(NOTHING if rows_of.weights is None else rows_of.weights)
    loops, (k, n) = _kernels.rows, columns.shape
    each = np.empty((3, n))

    def add_part(rows: slice) -> list[Floats]:
        shapes = ((k, N_BINS * loops.COPIES), (k, N_BINS), (3, N_BINS), (loops.N_SUMS, k))
        sums = [np.zeros(shape) for shape in shapes]
        loops.tally(columns, labels, weights, rows.start, rows.stop, *sums, each)
        return sums

    found = map_threads(add_part, parts(n, PART), columns.size, threads)
    bins, hits, events, classes = (np.sum(part, axis=0) for part in zip(*found, strict=True))
    bins = bins.reshape(k, N_BINS, loops.COPIES).sum(axis=2)
    if sample.given is None:  # larger losses than probabilities can represent
        losses = losses_at(rows_of, 1.0, get_loss("log"), threads)
        if rows_of.weights is not None:
            losses = np.where(rows_of.weights > 0, losses, 0.0) * rows_of.weights
        classes[loops.LOSS] = np.bincount(rows_of.labels, losses, minlength=k)
    return Tally(columns, labels, weights, bins, hits, events, *classes, *readonly(each))


def _columns(sample: Sample) -> Floats:
    """Return the probabilities with classes first, as the loops read them."""
    given = sample.probs if sample.given is not None and sample.given.ndim == 1 else sample.given
    if given is None:
        given = softmax(sample.logits, sample.threads)  # not cached
    return readonly(np.ascontiguousarray(given.T, dtype=np.float64))


def areas_of(sample: Sample, threads: int, found: Tally | None = None) -> Floats:
    """Return the one-vs-rest area under the ROC curve of each class."""
    if sample.given is None:
        return areas_of_logits(sample, threads)
    found = tally(sample, threads) if found is None else found
    weights = found.weights if found.weights.size else None
    return areas_of_probs(found.columns, found.rest, found.labels, weights, threads)
