"""Checked predictions as evaluation reads them: columns of probabilities, and what they add up to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal import _kernels
from refinecal._core.arrays import NOTHING, column_names, readonly, to_floats
from refinecal._core.checks import check_labels, check_sample, check_weights
from refinecal._core.sample import Sample
from refinecal._core.softmax import log_softmax
from refinecal._core.threads import map_threads
from refinecal.losses import get_loss
from refinecal.metrics.ranking import areas_of_logits, areas_of_probs
from refinecal.resampling import losses_at

Floats = NDArray[np.float64]
N_BINS = 15  # of the calibration errors, as in most papers
PART = 2**16  # rows whose sums are added up by themselves, by one thread
FEW = 2**12  # rows that are copied together: they stay in the nearest cache
SMALL_BETA = 1e-30  # the loops multiply -inf by beta


@dataclass(frozen=True, slots=True)
class Sums:
    """What one read of the probabilities adds up; of each class, in each bin, weighted."""

    bins: Floats  # (k, N_BINS) probabilities of the class
    hits: Floats  # (k, N_BINS) its own rows
    events: (
        Floats  # (3, N_BINS) mass, probabilities and hits of the likeliest class, of two the second
    )
    mass: Floats  # (k,) its own rows
    right: Floats  # (k,) those whose likeliest class it is
    log: Floats  # (k,) their losses
    brier: Floats
    rest: Floats  # (n,) what each row leaves beside its likeliest class
    scores: Floats  # (n,) probability of the likeliest class, of two the second
    happened: Floats  # (n,) 1 where that is the label

    @property
    def total(self) -> float:
        return float(self.mass.sum())


@dataclass(frozen=True, slots=True)
class Scored:
    """A sample with its probabilities; soft labels are one weighted row for each label there."""

    sample: Sample
    columns: Floats  # (k, n), read-only
    labels: NDArray[np.int64]
    weights: Floats  # empty if every row counts once
    exact: bool  # given as probabilities, so that equal ones are equal to the last bit
    sums: Sums

    def take(self, rows: NDArray[np.int64], threads: int) -> Scored:
        """Return some rows."""
        sample = self.sample.take(rows)
        if self.sample.soft is None:
            columns = np.ascontiguousarray(self.columns[:, rows])
        else:  # columns are repeated for each label
            columns = _softmax_columns(sample, threads)
        found = _scored(sample, columns, self.exact, 1e-2, threads)
        assert found is not None  # all rows have passed
        return found

    def areas(self, threads: int) -> Floats:
        """Return the area under the ROC curve of each class against the rest."""
        if not self.exact:
            return areas_of_logits(self.sample, threads)
        weights = self.weights if self.weights.size else None
        return areas_of_probs(self.columns, self.sums.rest, self.labels, weights, threads)


# ---- from the arguments of a public call -----------------------------------------------------------------


def check_scored(
    y_true: Any,
    probs: Any,
    logits: Any,
    sample_weight: Any,
    classes: ArrayLike | None,
    threads: int,
    needs_logits: bool = True,
) -> Scored:
    """Return the arguments of a public call, or say what is wrong with which of them.

    The logits of probabilities are their logarithms, or NaN without ``needs_logits``, for readers of columns.

    Probabilities are looked at by the loop that adds them up; if it finds some that are none, or in any
    other case, ``check_sample`` looks again and finds the words.
    """
    given = None if probs is None or logits is not None else to_floats(probs, "probs")
    if given is not None and given.ndim == 2 and given.shape[1] > 1 and len(given):
        found = _from_probs(y_true, probs, given, sample_weight, classes, threads, needs_logits)
        if found is not None:
            return found
    sample = check_sample(y_true, probs, logits, sample_weight, classes)
    if given is not None and given.size == sample.n:  # one column
        p = given.reshape(-1).astype(np.float64)
        columns = np.stack([1 - p, p])
    else:
        columns = _softmax_columns(sample, threads)
    scored = _scored(sample, columns, given is not None, 1e-2, threads)
    assert scored is not None  # the sample is checked
    return scored


def _from_probs(
    y_true: Any,
    probs: Any,
    given: NDArray[Any],
    sample_weight: Any,
    classes: ArrayLike | None,
    threads: int,
    needs_logits: bool,
) -> Scored | None:
    """Return probabilities (n, k) with their labels, ``None`` if something is wrong with them."""
    half = getattr(getattr(probs, "dtype", None), "itemsize", None) == 2
    (n, k), names = given.shape, column_names(probs)
    labels, soft, known = check_labels(y_true, n, k, classes, "y_true", "probs", names)
    weights = check_weights(sample_weight, n, "probs")
    unknown = np.broadcast_to(given.dtype.type(np.nan), (n, k))
    logits = np.empty((n, k), given.dtype) if needs_logits else unknown
    sample = Sample(labels, logits, weights, soft, known, names)
    columns = np.ascontiguousarray(given.T, dtype=np.float64)
    scored = _scored(sample, columns, True, 1e-2 if half else 1e-3, threads)
    if scored is not None and needs_logits:
        map_threads(lambda rows: _fill_logs(given, logits, rows), _parts(n), n * k, threads)
    return scored


def _softmax_columns(sample: Sample, threads: int) -> Floats:
    """Return the probabilities that logits stand for."""
    columns = np.empty((sample.k, sample.n))

    def fill(rows: slice) -> None:
        for start in range(rows.start, rows.stop, FEW):
            few = slice(start, min(start + FEW, rows.stop))
            columns[:, few] = np.exp(log_softmax(sample.logits[few].astype(np.float64))).T

    map_threads(fill, _parts(sample.n), columns.size, threads)
    return columns


def _fill_logs(probs: NDArray[Any], logits: NDArray[Any], rows: slice) -> None:
    """Set logits to the logarithms, through copies that stay in the cache whatever the order of probs."""
    with np.errstate(divide="ignore"):
        for start in range(rows.start, rows.stop, FEW):
            few = slice(start, min(start + FEW, rows.stop))
            np.log(np.ascontiguousarray(probs[few]), out=logits[few])


def _scored(
    sample: Sample, columns: Floats, exact: bool, tolerance: float, threads: int
) -> Scored | None:
    """Add up the probabilities; ``None`` if they are not all probabilities."""
    labels, weights = sample.labels, NOTHING if sample.weights is None else sample.weights
    if sample.soft is not None:
        rows, labels = np.nonzero(sample.soft)
        weights = sample.soft[rows, labels] * (weights[rows] if weights.size else 1.0)
        columns = np.ascontiguousarray(columns[:, rows])
    columns, labels, weights = readonly(columns), readonly(labels), readonly(weights)
    sums = _add_up(columns, labels, weights, tolerance, threads)
    return None if sums is None else Scored(sample, columns, labels, weights, exact, sums)


def _parts(n: int) -> list[slice]:
    return [slice(start, min(start + PART, n)) for start in range(0, n, PART)]


def _add_up(
    columns: Floats, labels: NDArray[np.int64], weights: Floats, tolerance: float, threads: int
) -> Sums | None:
    loops, (k, n) = _kernels.rows, columns.shape
    each = np.empty((3, n))

    def add_part(rows: slice) -> tuple[bool, list[Floats]]:
        shapes = ((k, N_BINS * loops.COPIES), (k, N_BINS), (3, N_BINS), (loops.N_SUMS, k))
        sums = [np.zeros(shape) for shape in shapes]
        args = columns, labels, weights, rows.start, rows.stop, tolerance
        return loops.tally(*args, *sums, each), sums

    parts = map_threads(add_part, _parts(n), columns.size, threads)
    if not all(legal for legal, _ in parts):
        return None
    bins, hits, events, classes = (
        np.sum(part, axis=0) for part in zip(*(sums for _, sums in parts), strict=True)
    )
    bins = bins.reshape(k, N_BINS, loops.COPIES).sum(axis=2)
    mass, right, log, brier = classes
    return Sums(bins, hits, events, mass, right, log, brier, *readonly(each))


# ---- losses of rows --------------------------------------------------------------------------------------


def rows_at(sample: Sample, beta: float, threads: int, log: bool = True) -> Floats:
    """Return the Brier score, and with ``log`` the log loss, of each row after scaling by beta; (2, n)."""
    names = ("brier", "log") if log else ("brier",)
    if sample.soft is not None or beta < SMALL_BETA:
        return np.stack([losses_at(sample, beta, get_loss(name)) for name in names])
    found = np.empty((len(names), sample.n))
    logits = readonly(sample.logits.astype(np.float64, copy=False))
    labels = readonly(sample.labels)

    def fill(rows: slice) -> None:
        part = np.empty((len(names), rows.stop - rows.start))
        _kernels.rows.row_losses(logits[rows], labels[rows], beta, part)
        found[:, rows] = part

    map_threads(fill, _parts(sample.n), logits.size, threads)
    return found
