"""The arguments that every metric takes, and what is read from them."""

from __future__ import annotations  # so that help() shows types by name

from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal import _kernels
from refinecal._core.arrays import NOTHING, column_names, is_on_device, readonly, to_floats
from refinecal._core.checks import check_labels, check_sample, check_weights
from refinecal._core.errors import fail_choice
from refinecal._core.sample import Sample
from refinecal._core.threads import check_threads, map_threads
from refinecal.metrics.scored import Scored, check_scored

Floats = NDArray[np.float64]
KINDS = ("auto", "binary", "top-label", "class-wise")
PART = 2**15  # rows that one thread reads at a time


class Inputs(TypedDict, total=False):
    """The keywords of every function here."""

    logits: Any
    sample_weight: Any
    classes: ArrayLike | None


def check(y_true: Any, probs: Any, threads: int, **inputs: Unpack[Inputs]) -> Scored:
    """Return the arguments of a metric, ready to be added up; logits only if they were given."""
    logits, weights = inputs.get("logits"), inputs.get("sample_weight")
    return check_scored(
        y_true, probs, logits, weights, inputs.get("classes"), threads, needs_logits=False
    )


# ---- what is read ----------------------------------------------------------------------------------------


class Event(NamedTuple):
    """Probabilities of something, and whether it happened."""

    scores: Floats
    hits: Floats  # 0 or 1; of soft labels the share
    weights: Floats  # empty if every row counts once

    @property
    def total(self) -> float:
        return float(self.weights.sum()) if self.weights.size else float(len(self.scores))


@dataclass(frozen=True, slots=True)
class Given:
    """Checked probabilities and labels, with the likeliest class of each row."""

    probs: Floats  # (n, k), C-contiguous
    labels: NDArray[np.int64]
    soft: Floats  # (n, k), empty without soft labels
    weights: Floats  # empty if every row counts once
    top: Floats  # (n,) the largest probability
    right: Floats  # (n,) whether that is the label's; of soft labels the share

    @property
    def k(self) -> int:
        return int(self.probs.shape[1])

    @property
    def total(self) -> float:
        """The number of rows, each counted as often as its weight says."""
        return float(self.weights.sum()) if self.weights.size else float(len(self.labels))

    @property
    def accuracy(self) -> float:
        right = self.right @ self.weights if self.weights.size else self.right.sum()
        return float(right / self.total)

    def loss(self, which: int) -> float:
        """Return the mean of one of the losses of ``_loops``, or of the cosine."""
        arrays = [readonly(array) for array in (self.probs, self.labels, self.soft, self.weights)]

        def add_part(rows: slice) -> float:
            sums = np.zeros(_kernels.probs.N_LOSSES)
            _kernels.probs.add_losses(*(array[rows] for array in arrays), sums)
            return float(sums[which])

        parts = map_threads(
            add_part, _parts(len(self.labels)), self.probs.size, check_threads(None)
        )
        return float(sum(parts) / self.total)

    def of_class(self, j: int) -> Event:
        """Return the event that the label is class j."""
        hits = self.soft[:, j] if self.soft.size else self.labels == j
        return Event(np.minimum(self.probs[:, j], 1), hits.astype(np.float64), self.weights)

    def events(self, kind: str = "auto") -> list[Event]:
        """Return what a calibration error of this kind is about: one event, or one for each class."""
        if kind not in KINDS:
            fail_choice("kind", kind, list(KINDS[:-1]), repr(KINDS[-1]))
        if kind == "binary" and self.k != 2:
            raise ValueError(
                f"kind is 'binary', but there are {self.k} classes: use 'top-label' or 'class-wise'"
            )
        if kind == "class-wise":
            return [self.of_class(j) for j in range(self.k)]
        if kind == "binary" or (kind == "auto" and self.k == 2):
            return [self.of_class(1)]
        return [Event(self.top, self.right, self.weights)]


def read(y_true: Any, probs: Any = None, **inputs: Unpack[Inputs]) -> Given:
    """Return the arguments of a metric as probabilities, or say what is wrong with which of them.

    The loop that seeks the likeliest class sees wrong ones; if there are, ``check_sample`` has the words.
    """
    if probs is not None and inputs.get("logits") is None and not is_on_device(probs):
        given = to_floats(probs, "probs")
        if given.size and given.ndim in (1, 2):
            found = _read_probs(y_true, probs, given, **inputs)
            if found is not None:
                return found
    return read_sample(check_sample(y_true, probs, **inputs))


def read_sample(sample: Sample) -> Given:
    """Return what the logits of a checked sample stand for."""
    logits = readonly(sample.logits.astype(np.float64, copy=False))
    probs = np.empty(logits.shape)

    def fill(rows: slice) -> None:
        _kernels.probs.softmax_rows(logits[rows], probs[rows])

    map_threads(fill, _parts(sample.n), probs.size, check_threads(None))
    found = _looked_at(probs, sample.labels, sample.soft, sample.weights, 1e-2)
    assert found is not None  # the sample is checked
    return found


def _read_probs(
    y_true: Any, probs: Any, given: NDArray[Any], **inputs: Unpack[Inputs]
) -> Given | None:
    """Return given probabilities as they are, ``None`` if something is wrong with them."""
    half = getattr(getattr(probs, "dtype", None), "itemsize", None) == 2
    one_column = given.ndim == 1 or given.shape[1] == 1
    if one_column:
        p = given.reshape(-1).astype(np.float64, copy=False)
        given = np.stack([1 - p, p], axis=1)
    names = None if one_column else column_names(probs)
    n, k = given.shape
    labels, soft, _ = check_labels(y_true, n, k, inputs.get("classes"), "y_true", "probs", names)
    if one_column and soft is not None:
        return None  # they may be swapped
    weights = check_weights(inputs.get("sample_weight"), n, "probs")
    rows = np.ascontiguousarray(given, dtype=np.float64)
    return _looked_at(rows, labels, soft, weights, 1e-2 if half else 1e-3)


def _looked_at(
    probs: Floats,
    labels: NDArray[np.int64],
    soft: Floats | None,
    weights: Floats | None,
    tolerance: float,
) -> Given | None:
    """Return the rows with the likeliest class of each; ``None`` if they are not all probabilities."""
    n, k = probs.shape
    shares = np.empty((0, k)) if soft is None else np.ascontiguousarray(soft)
    arrays = [readonly(array) for array in (probs, labels, shares)]
    top, right = np.empty(n), np.empty(n)

    def look(rows: slice) -> bool:
        here = (array[rows] for array in arrays)  # of an empty array it is empty
        legal: bool = _kernels.probs.look(*here, tolerance, top[rows], right[rows])
        return legal

    if not all(map_threads(look, _parts(n), probs.size, check_threads(None))):
        return None
    return Given(probs, labels, shares, NOTHING if weights is None else weights, top, right)


def _parts(n: int) -> list[slice]:
    return [slice(start, min(start + PART, n)) for start in range(0, n, PART)]
