"""The predictions of the models that an ensemble may choose from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.arrays import Array, column_names, in_order
from refinecal._core.checks import check_sample, check_scores
from refinecal._core.format import list_names
from refinecal._core.sample import Sample, log_softmax, row_keys

LOWEST = -1e4  # log-probability of a class that a member calls impossible
Given = tuple[
    str | None, str, Any
]  # the name of a member, "probs" or "logits", and its predictions


@dataclass(frozen=True, slots=True)
class Members:
    """Checked predictions of all members for the same rows, none of weight 0.

    Attributes
    ----------
    names : tuple of str
    labels, weights, groups, classes, y
        Of the rows; ``y`` are the labels as they were given.
    logs : list of ndarray of shape (n, k), float32
        Log-probabilities, smoothed where a label would be impossible, at least ``LOWEST``.
    smoothing : ndarray of shape (m,)
        The number of rows next to which a uniform prediction counts as one; 0 for none.
    """

    names: tuple[str, ...]
    labels: NDArray[np.int64]
    weights: NDArray[np.float64] | None
    groups: NDArray[np.int64] | None
    classes: NDArray[Any]
    y: Any
    logs: list[NDArray[np.float32]]
    smoothing: NDArray[np.float64]
    is_soft: bool = False

    @property
    def total(self) -> float:
        """The number of rows, or the sum of the weights."""
        return float(len(self.labels) if self.weights is None else self.weights.sum())

    def find_units(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows in an order that depends on their content only, and the unit of each row.

        Units are never split between folds: the groups, or else rows that are equal, so that a row of weight
        2 is in one fold as two equal rows are.
        """
        mean = sum(self.logs[1:], self.logs[0].astype(np.float64))
        keys = np.stack(row_keys(Sample(self.labels, mean)))
        order = np.lexsort(keys)
        if self.groups is not None:
            return order, self.groups
        known = keys[1:] if self.is_soft else keys  # all labels of a row together
        new = np.concatenate([[0], np.diff(known[:, order]).any(axis=0)])
        units = np.empty(len(order), dtype=np.int64)
        units[order] = np.cumsum(new)
        return order, units


# ---- reading -----------------------------------------------------------------------------------------------


def read_members(
    y_val: Any,
    probs: Any = None,
    logits: Any = None,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    classes: ArrayLike | None = None,
    names: Sequence[str] | None = None,
) -> Members:
    """Check the predictions of all members; errors name the member."""
    found: list[str | None] = []
    logs: list[NDArray[np.float32]] = []
    smoothing: list[float] = []
    sample: Sample | None = None
    for number, (name, kind, values) in enumerate(iterate(probs, logits)):
        shown = _show(name if names is None or number >= len(names) else names[number], number)
        with _naming(shown):
            if sample is None:
                given: Any = {kind: values, "sample_weight": sample_weight, "classes": classes}
                sample = check_sample(y_val, **given, y_name="y_val")
                rows = _Rows.of(sample, groups)
                first = values
            log = read_logs(values, kind, sample.n, sample.k, column_names(first), shown)
        own = log[rows.kept]
        own, n = smooth_impossible(own, rows.labels, rows.total)
        logs.append(own)
        smoothing.append(n)
        found.append(name)
        del values, log, own
    if sample is None:
        raise ValueError("stack holds no member: pass the predictions of at least one model")
    known = np.arange(sample.k) if sample.classes is None else np.asarray(sample.classes)
    return Members(
        check_names(found, names),
        rows.labels,
        rows.weights,
        rows.groups,
        known,
        known[rows.labels],
        logs,
        np.array(smoothing),
        sample.soft is not None,
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of positive weight; a soft label is one weighted row for each possible label."""

    kept: Any
    labels: NDArray[np.int64]
    weights: NDArray[np.float64] | None
    groups: NDArray[np.int64] | None

    @property
    def total(self) -> float:
        return float(len(self.labels) if self.weights is None else self.weights.sum())

    @classmethod
    def of(cls, sample: Sample, groups: Any) -> _Rows:
        if groups is not None:
            groups = np.asarray(groups).reshape(-1)
            if len(groups) != sample.n:
                raise ValueError(
                    f"groups has {len(groups)} entries, but there are {sample.n} rows: pass one per row"
                )
            groups = np.unique(groups, return_inverse=True)[1].reshape(-1)
        rows = np.arange(sample.n)
        marked = sample.replace(logits=np.stack([rows, rows], axis=1).astype(np.float64))
        marked = marked.expand_soft_labels().drop_weightless()
        kept: Any = marked.logits[:, 0].astype(np.int64)
        groups = None if groups is None else groups[kept]
        if len(kept) == sample.n and np.array_equal(kept, rows):
            kept = slice(None)
        return cls(kept, marked.labels, marked.weights, groups)


def iterate(probs: Any, logits: Any) -> Iterator[Given]:
    """Yield the name, kind and predictions of each member, as they are given."""
    if (probs is None) == (logits is None):
        found = "neither" if probs is None else "both"
        raise TypeError(f"pass either probabilities as stack, or logits=, found {found}")
    kind, given = ("probs", probs) if logits is None else ("logits", logits)
    if hasattr(given, "columns"):
        raise TypeError(
            "stack is a table: pass a mapping from the name of each model to its predictions"
        )
    if isinstance(given, Mapping):
        yield from ((str(name), kind, values) for name, values in given.items())
        return
    shape = getattr(given, "shape", None)
    if shape is not None and len(shape) not in (2, 3):
        raise ValueError(
            f"stack has shape {tuple(shape)}: it must be (models, rows, classes), or (models, rows) for two "
            "classes"
        )
    if not isinstance(given, Iterable):
        raise TypeError(f"stack is {given!r}: pass the predictions of each model")
    for values in given:
        yield None, kind, values


def read_logs(
    values: Any, kind: str, n: int | None, k: int, columns: list[Any] | None, shown: str
) -> NDArray[np.float32]:
    """Return the log-probabilities (n, k) of one member."""
    scores = check_scores(values, kind)
    if scores.shape[1] != k or (n is not None and len(scores) != n):
        wanted = f"{k} classes" if n is None else f"({n}, {k})"
        raise ValueError(
            f"{kind} has shape {scores.shape}, but the first member has {wanted}: every member needs the "
            "same rows and classes"
        )
    scores = in_order(scores, column_names(values), columns, kind)
    return to_logs(scores)


def to_logs(scores: Array) -> NDArray[np.float32]:
    """Return logits as log-probabilities in float32, none below ``LOWEST``."""
    found = np.empty(scores.shape, np.float32)
    step = max(1, 2**20 // scores.shape[1])
    for start in range(0, len(scores), step):  # no float64 copy of the whole
        part = scores[start : start + step].astype(np.float64)
        found[start : start + step] = np.maximum(log_softmax(part), LOWEST)
    return found


def smooth_impossible(
    logs: NDArray[np.float32], labels: NDArray[np.int64], total: float
) -> tuple[NDArray[np.float32], float]:
    """Smooth a member that calls an observed label impossible; return the number of rows too, else 0.

    The rule is that of ``training.predictions.smooth_zeros``.
    """
    if (logs[np.arange(len(labels)), labels] > LOWEST).all():
        return logs, 0.0
    return smooth_logs(logs, total), total


def smooth_logs(logs: NDArray[np.float32], n: float) -> NDArray[np.float32]:
    """Mix probabilities with the uniform ones, weighted as one row next to n."""
    if n == 0:
        return logs
    shift, uniform = np.log(n / (n + 1)), -np.log((n + 1) * logs.shape[1])
    return np.asarray(np.logaddexp(logs + np.float32(shift), np.float32(uniform)))


# ---- names -------------------------------------------------------------------------------------------------


def check_names(found: Sequence[str | None], names: Sequence[str] | None) -> tuple[str, ...]:
    """Return a different name for each member: as given, else those of a mapping, else "model 1"."""
    chosen = [str(name) for name in names] if names is not None else None
    if chosen is None:
        chosen = [_show(name, number) for number, name in enumerate(found)]
    if len(chosen) != len(found):
        raise ValueError(
            f"names has {len(chosen)} entries, but there are {len(found)} members: name each once"
        )
    twice = [name for name in dict.fromkeys(chosen) if chosen.count(name) > 1]
    if twice:
        raise ValueError(
            f"names holds {list_names(twice)} more than once: name each member differently"
        )
    return tuple(chosen)


def _show(name: str | None, number: int) -> str:
    return f"model {number + 1}" if name is None else str(name)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Put the name of a member before the message of an error."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(f"member {name!r}: {error}") from error
