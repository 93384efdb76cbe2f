"""Checked labels, predictions and weights; what is read from logits; rows in order and in folds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.arrays import Array, is_on_device, is_torch, map_rows, map_threads

Floats = NDArray[np.float64]

NOTHING = np.empty(0)
NOTHING.flags.writeable = False
CHUNK = 2**20  # elements per pass: bounds the memory of checks and means
MARGIN = 1e-6  # float32 softmax may exceed 1 by rounding
ROUNDED = -float(np.log(np.finfo(np.float64).eps))  # 36.04: beyond, probabilities round to 0 or 1
ROUNDING = 1e-13  # scores closer than this, relative to their size, are equal
LARGEST = 1e100  # so that squares do not overflow
COUNTABLE = 2.0**53  # copies that are assigned one by one
FEW = 2**12  # rows that are copied together, to stay in the cache


class Sample:
    """Checked labels, predictions and weights.

    Predictions are given as logits or as probabilities; the other form is computed on first use.

    Attributes
    ----------
    labels : ndarray of int64
        In 0..k-1.
    weights : ndarray of float64 or None
        Sample weights.
    soft : ndarray of shape (n, k) or None
        Rows that sum to 1, if any label is soft.
    classes : ndarray or None
        The label of each column, if labels were not 0..k-1.
    columns : list or None
        Column names of a DataFrame.
    given : ndarray or None
        The probabilities that were given: ``(n, k)``, or ``(n,)`` of the second of two classes.
    threads : int or None
        The number of threads for large samples; by default all.
    n, k : int
        The number of rows and of classes.
    on_device : bool
        Whether the logits are a torch tensor on a device other than the CPU.
    """

    def __init__(
        self,
        labels: NDArray[np.int64],
        logits: Array | None = None,
        weights: Floats | None = None,
        soft: Floats | None = None,
        classes: Array | None = None,
        columns: list[Any] | None = None,
        given: Array | None = None,
        threads: int | None = None,
    ) -> None:
        self.labels, self.weights, self.soft = labels, weights, soft
        self.classes, self.columns, self.given = classes, columns, given
        self.threads = threads
        if logits is not None:
            self.logits = logits
        shape = (self.logits if given is None else given).shape
        self.n, self.k = len(labels), int(shape[1]) if len(shape) == 2 else 2
        self.on_device = type(logits) is not np.ndarray and is_on_device(logits)

    def replace(self, **changes: Any) -> Sample:
        """Return a sample with some attributes replaced; new logits replace probabilities."""
        kept = {"labels", "weights", "soft", "classes", "columns", "threads"}
        if not {"logits", "given"} & set(changes):
            kept.add("logits" if self.given is None else "given")
        return Sample(**{name: getattr(self, name) for name in kept} | changes)

    # ---- predictions -------------------------------------------------------------------------------------

    @cached_property
    def logits(self) -> Array:
        """``(n, k)`` float32 or float64, C-contiguous; or a torch tensor on another device."""
        assert self.given is not None, "either of the two"
        return log_probs(self.given, self.threads)

    @cached_property
    def probs(self) -> Floats:
        """``(n, k)``, C-contiguous: as given, or the softmax of the logits."""
        if self.given is None:
            return softmax(self.logits, self.threads)
        if self.given.ndim == 1:
            second = np.minimum(self.given.astype(np.float64, copy=False), 1)  # rounding
            return np.stack([1 - second, second], axis=1)
        return np.ascontiguousarray(self.given, dtype=np.float64)

    @cached_property
    def row_sums(self) -> Floats:
        """``(n,)``: the sum of the probabilities of each row, 1 up to rounding."""
        return sum_rows(self.probs, np.inf, self.threads)[1]

    @cached_property
    def likeliest(self) -> tuple[Floats, Floats]:
        """The largest probability of each row, and whether it is that of the label (its share, if soft)."""
        self.find_likeliest(np.inf)
        return self.likeliest

    def find_likeliest(self, tolerance: float) -> bool:
        """Set :attr:`likeliest`; return whether rows are probabilities that sum to 1 within a tolerance."""
        top, right = np.empty((2, self.n))
        soft = np.empty((0, self.k)) if self.soft is None else np.ascontiguousarray(self.soft)
        arrays = (readonly(array) for array in (self.probs, self.labels, soft))
        arguments = (*arrays, tolerance, top, right)
        look, size = _kernels.probs.look, self.probs.size
        legal = all(map_rows(look, self.n, size, self.threads, *arguments))
        self.likeliest = top, right
        return legal

    # ---- labels and weights ------------------------------------------------------------------------------

    @property
    def total(self) -> float:
        """The number of rows, or the sum of the weights."""
        return float(self.n) if self.weights is None else float(self.weights.sum())

    @property
    def frequencies(self) -> Floats:
        """The share of each class."""
        if self.soft is not None:
            return np.asarray(np.average(self.soft, axis=0, weights=self.weights))
        return np.asarray(np.bincount(self.labels, self.weights, minlength=self.k) / self.total)

    def mean(self, values: Array) -> float:
        """Return the weighted mean of one value per row; values of weight 0 are ignored, even NaN."""
        if self.weights is None:
            return float(np.mean(values))
        return float(np.average(np.where(self.weights > 0, values, 0.0), weights=self.weights))

    # ---- other samples -----------------------------------------------------------------------------------

    def take(self, rows: Any) -> Sample:
        """Return the given rows (indices or a slice)."""
        predictions: Any = self.logits if self.given is None else self.given
        predictions = predictions[rows]
        if not is_torch(predictions):
            predictions = np.ascontiguousarray(predictions)
        return self.replace(
            labels=np.ascontiguousarray(self.labels[rows]),
            weights=None if self.weights is None else np.ascontiguousarray(self.weights[rows]),
            soft=None if self.soft is None else self.soft[rows],
            **{"logits" if self.given is None else "given": predictions},
        )

    def chunks(self) -> Iterator[tuple[slice, Sample]]:
        """Yield slices of rows small enough for temporaries, with their samples."""
        for rows in row_slices(self.n, self.k):
            yield rows, self.take(rows)

    def expand_soft_labels(self) -> Sample:
        """Return soft labels as one weighted row per possible label."""
        if self.soft is None:
            return self
        rows, labels = np.nonzero(self.soft)
        weights = self.soft[rows, labels] * (1 if self.weights is None else self.weights[rows])
        return self.take(rows).replace(labels=labels, weights=weights, soft=None, columns=None)

    def drop_weightless(self) -> Sample:
        """Return the rows of positive weight."""
        if self.weights is None or self.weights.all():
            return self
        return self.take(np.flatnonzero(self.weights))


def on_cpu(sample: Sample) -> Sample:
    """Return the sample with its logits in NumPy."""
    if not sample.on_device:
        return sample
    logits: Any = sample.logits
    return sample.replace(logits=np.ascontiguousarray(logits.cpu().numpy()))


def sum_rows(probs: Array, tolerance: float, threads: int | None) -> tuple[bool, Floats]:
    """Return whether rows are probabilities that sum to 1 within a tolerance, and their sums."""
    rows, sums = readonly(np.ascontiguousarray(probs)), np.empty(len(probs))
    look = _kernels.probs.check_rows
    return all(map_rows(look, len(rows), rows.size, threads, rows, tolerance, sums)), sums


def log_probs(probs: Array, threads: int | None = None) -> Array:
    """Return the logarithms of checked probabilities, (n, k), also for one column."""
    with np.errstate(divide="ignore"):
        if probs.ndim == 1:
            return np.stack([np.log1p(-np.minimum(probs, 1)), np.log(probs)], axis=1)
    logs = np.empty(probs.shape, probs.dtype)

    def fill(start: int) -> None:  # copies in the cache, for any memory order
        rows = slice(start, start + FEW)
        with np.errstate(divide="ignore"):
            np.log(np.ascontiguousarray(probs[rows]), out=logs[rows])

    starts = range(0, len(probs), FEW)
    map_threads(fill, starts, probs.size, threads)
    return logs


def softmax(logits: Array, threads: int | None = None) -> Floats:
    """Return the softmax of logits, in float64."""
    found = np.empty(logits.shape)
    source = readonly(logits.astype(np.float64, copy=False))
    map_rows(_kernels.probs.softmax_rows, len(found), found.size, threads, source, found)
    return found


def scale_logits(logits: NDArray[Any], beta: float | NDArray[Any]) -> NDArray[Any]:
    """Return beta * logits minus the largest of each row, for one beta or one per row.

    beta = 0 makes all classes equally likely; for any other, -inf stays -inf.
    """
    tiny = np.finfo(logits.dtype).tiny  # beta stays positive: -inf * 0 is NaN
    betas = np.asarray(beta, dtype=np.float64)
    column = np.maximum(betas, tiny).astype(logits.dtype).reshape(-1, 1)
    with np.errstate(over="ignore"):  # a gap beyond the largest float is infinite
        gaps = logits - logits.max(axis=1, keepdims=True)
        gaps *= column
    flat = betas.reshape(-1, 1) == 0
    return np.where(flat, gaps.dtype.type(0), gaps) if flat.any() else np.asarray(gaps)


def log_softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """Return the log-softmax of each row."""
    gaps = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(gaps - np.log(np.exp(gaps).sum(axis=1, keepdims=True)))


def mix_with_uniform(logs: NDArray[Any], n: float) -> NDArray[Any]:
    """Mix log-probabilities with the uniform ones, weighted as one row next to n; n = 0 changes nothing."""
    if n == 0:
        return logs
    share, uniform = np.log(n / (n + 1)), -np.log((n + 1) * logs.shape[1])
    number = logs.dtype.type
    return np.asarray(np.logaddexp(logs + number(share), number(uniform)))


def log_odds(logits: Floats) -> Floats:
    """Return the log-odds of each class against the rest, accurate for confident predictions too."""
    if logits.shape[1] == 2:
        return logits - logits[:, ::-1]
    odds = np.empty(logits.shape)
    _kernels.ranking.log_odds_rows(readonly(np.ascontiguousarray(logits, dtype=np.float64)), odds)
    return odds


def finite_gaps(logits: Array, limit: float = ROUNDED) -> Floats:
    """Return each logit minus the largest of its row, clipped at -limit."""
    with np.errstate(over="ignore"):
        gaps = np.subtract(logits, logits.max(axis=1, keepdims=True), dtype=np.float64)
    return np.asarray(np.maximum(gaps, -limit, out=gaps))


def gap_columns(logits: NDArray[Any], limit: float) -> Floats:
    """Return the transpose of :func:`finite_gaps`, (k, n): classes first, so that loops run over samples."""
    columns = np.empty(logits.shape[::-1])
    _kernels.softmax_linear.fill_gaps(logits, limit, columns)
    return columns


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


def clipped_odds(logits: Array, limit: float = ROUNDED) -> Floats:
    """Return the log-odds of class 1 of two, clipped to -limit..limit."""
    with np.errstate(over="ignore"):
        odds = np.subtract(logits[:, 1], logits[:, 0], dtype=np.float64)
    return np.asarray(np.clip(odds, -limit, limit, out=odds))


def split_odds(odds: Array) -> Array:
    """Return log-odds as two columns, in which infinities become -inf."""
    return np.stack([-np.maximum(odds, 0), np.minimum(odds, 0)], axis=1)


def against_rest(sample: Sample, odds: Floats, own: Any) -> Sample:
    """Return the binary problem whether the label is a class, of all rows or of each, given its log-odds."""
    labels, soft = (sample.labels == own).astype(np.int64), None
    if sample.soft is not None:
        share = sample.soft[np.arange(sample.n), own]
        soft = np.stack([1 - share, share], axis=1)
        labels = soft.argmax(axis=1)
    logits = split_odds(odds)
    return sample.replace(labels=labels, logits=logits, soft=soft, classes=None, columns=None)


def shares_of(sample: Sample) -> Floats:
    """Return the share of class 1 in the label of each row."""
    return sample.labels.astype(np.float64) if sample.soft is None else sample.soft[:, 1]


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


# ---- rows in order and in folds ---------------------------------------------------------------------------


def label_gaps(sample: Sample) -> Floats:
    """Return z_iy - max_j z_ij of each row; for a soft label, its mean under the label's distribution."""
    found = np.empty(sample.n)
    for rows, chunk in sample.chunks():
        logits = chunk.logits.astype(np.float64)
        gaps = logits - logits.max(axis=1, keepdims=True)
        if chunk.soft is None:
            found[rows] = gaps[np.arange(chunk.n), chunk.labels]
        else:
            possible = chunk.soft > 0  # 0 * -inf counts as 0
            terms = np.where(possible, chunk.soft * np.where(possible, gaps, 0), 0)
            found[rows] = terms.sum(axis=1)
    return found


def row_keys(sample: Sample) -> list[NDArray[Any]]:
    """Return keys for ``lexsort``, so that the order of rows does not depend on how they came.

    The main keys do not change when logits are shifted or columns reordered. Only rows that are equal in
    these, such as (p, 1 - p) with one label and (1 - p, p) with the other, are ordered by their columns.
    """
    keys = np.empty((4, sample.n))
    factors = np.random.default_rng(1).uniform(1, 2, size=sample.k)  # distinguish any two rows
    for rows, chunk in sample.chunks():
        logits = chunk.logits.astype(np.float64)
        gaps = logits.max(axis=1, keepdims=True) - logits
        keys[0, rows] = np.where(np.isinf(gaps), -1, gaps) @ factors
        gaps[np.isinf(gaps)] = 0
        with np.errstate(over="ignore"):
            keys[1:3, rows] = (gaps**2).sum(axis=1), gaps.sum(axis=1)
    keys[3] = label_gaps(sample)
    keys = np.where(np.isfinite(keys), keys, 0)
    largest = np.abs(keys).max(axis=1, keepdims=True)
    keys = np.round(keys / np.where(largest > 0, largest, 1), 10)  # rounding must not decide
    mark, *symmetric = keys
    weights = [] if sample.weights is None else [sample.weights]
    if sample.soft is None:
        return [sample.labels, mark, *weights, *symmetric]
    soft = sample.soft
    marks = [np.round(soft @ factors, 10), np.round((soft**2).sum(axis=1), 10)]
    return [marks[0], mark, marks[1], *weights, *symmetric]


def deal_in_turn(
    copies: Floats, period: int, firsts: Iterable[int], width: int = 1
) -> list[Floats]:
    """Return the copies of each row in each fold: ``width`` of every period, starting at its first.

    A row of weight 3 is three copies, a row of weight 0.5 half a copy.
    """
    rounds, rest = np.divmod(np.concatenate([[0.0], np.cumsum(copies)]), period)
    dealt = (np.diff(width * rounds + np.clip(rest - first, 0, width)) for first in firsts)
    return [np.minimum(part, copies) for part in dealt]


def deal_at_random(copies: Floats, n_folds: int) -> Floats:
    """Return the copies of each row, of which there is at least one, in each fold, (n, n_folds).

    Assigned in turn, equal rows would be equally frequent in all folds, so that what was learned in some
    folds would hold in the others by design, and overfitting would not show.
    """
    rng = np.random.default_rng(0)
    dealt = np.minimum(copies, COUNTABLE)
    whole = np.floor(dealt)
    parts = rng.multinomial(whole.astype(np.int64), np.full(n_folds, 1 / n_folds)).astype(float)
    parts[np.arange(len(copies)), rng.integers(n_folds, size=len(copies))] += dealt - whole
    return np.asarray(parts * (copies / dealt)[:, None])


def row_slices(n: int, k: int) -> Iterator[slice]:
    """Split n rows of k numbers into slices of about CHUNK numbers."""
    step = max(1, CHUNK // max(k, 1))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def readonly(array: Array) -> Array:
    """Return a read-only view, so that one compiled loop serves all arrays."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
