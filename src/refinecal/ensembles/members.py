"""The predictions of the models that an ensemble may choose from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.arrays import Array, column_names, in_order, is_missing, to_numpy
from refinecal._core.checks import check_sample, check_scores
from refinecal._core.format import list_names
from refinecal._core.sample import Sample, log_softmax, mix_with_uniform, row_keys
from refinecal._core.step_files import LABELS, Layout, Stage, find_files, read_file, read_names

LOWEST = -1e4  # log-probability of a class that a member calls impossible


class Given(NamedTuple):
    """The predictions of one member as they are given, with labels and weights if a file has them."""

    name: str | None
    kind: str  # "probs" or "logits"
    values: Any
    labels: Any = None
    weights: Any = None


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
    columns : list of (list of str or None)
        The names of each member's columns in the order of the classes, where it is a table.
    """

    names: tuple[str, ...]
    labels: NDArray[np.int64]
    weights: NDArray[np.float64] | None
    groups: NDArray[np.int64] | None
    classes: NDArray[Any]
    y: Any
    logs: list[NDArray[np.float32]]
    smoothing: NDArray[np.float64]
    columns: list[list[str] | None]
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
    named: list[list[str] | None] = []
    sample: Sample | None = None
    for number, one in enumerate(iterate(probs, logits)):
        name = one.name if names is None or number >= len(names) else names[number]
        shown = _show(name, number)
        with naming(shown, one.kind):
            if sample is None:
                labels = _labels_of(one, y_val)
                weights = one.weights if sample_weight is None else sample_weight
                given: Any = {one.kind: one.values, "sample_weight": weights, "classes": classes}
                sample = check_sample(labels, **given, y_name="y_val")
                rows, columns = _Rows.of(sample, groups), _columns(one.values)
            elif y_val is None and one.labels is not None and not _same(one.labels, labels):
                raise ValueError(
                    f"member {shown!r}: its labels are not those of the first: pass the same rows in order"
                )
            log = read_logs(one.values, one.kind, sample.n, sample.k, columns)
        log, n = smooth_impossible(log[rows.kept], rows.labels, rows.total)
        logs.append(log)
        smoothing.append(n)
        found.append(one.name)
        own = _columns(one.values)
        named.append(columns if own and columns and set(own) == set(columns) else own)
        del one, log  # before the next is read
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
        named,
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
            groups = to_numpy(groups, "groups").reshape(-1)
            if len(groups) != sample.n:
                raise ValueError(
                    f"groups has {len(groups)} entries, but there are {sample.n} rows: pass one per row"
                )
            missing = np.array([is_missing(group) for group in groups])
            if missing.any():
                raise ValueError(
                    f"groups[{missing.argmax()}] is missing: drop the rows without a group, or give each of "
                    "them a group of its own"
                )
        rows = np.arange(sample.n)
        marked = sample.replace(logits=np.stack([rows, rows], axis=1).astype(np.float64))
        marked = marked.expand_soft_labels().drop_weightless()
        kept: Any = marked.logits[:, 0].astype(np.int64)
        if groups is not None:  # numbered without gaps
            groups = np.unique(groups[kept], return_inverse=True)[1].reshape(-1)
        if len(kept) == sample.n and np.array_equal(kept, rows):
            kept = slice(None)
        return cls(kept, marked.labels, marked.weights, groups)


def _labels_of(first: Given, y_val: Any) -> Any:
    labels = first.labels if y_val is None else y_val
    if labels is None:
        raise ValueError(
            f"y_val is missing: pass the labels, or save them in the files under one of the names "
            f"{', '.join(LABELS)}"
        )
    return labels


def _same(ours: Any, labels: Any) -> bool:
    return np.array_equal(to_numpy(ours, "labels"), to_numpy(labels, "labels"))


def iterate(probs: Any, logits: Any) -> Iterator[Given]:
    """Yield the predictions of each member, as they are given."""
    if (probs is None) == (logits is None):
        found = "neither" if probs is None else "both"
        raise TypeError(f"pass either probabilities as stack, or logits=, found {found}")
    kind, given = ("probs", probs) if logits is None else ("logits", logits)
    if hasattr(given, "columns"):
        raise TypeError(
            "stack is a table: pass a mapping from the name of each model to its predictions"
        )
    if isinstance(given, Mapping):
        yield from (Given(str(name), kind, values) for name, values in given.items())
        return
    if _are_files(given):
        yield from _read_files(given, kind)
        return
    shape = getattr(given, "shape", None)
    if shape is not None and len(shape) not in (2, 3):
        raise ValueError(
            f"stack has shape {tuple(shape)}: it must be (models, rows, classes), or (models, rows) for two "
            "classes"
        )
    if not isinstance(given, Iterable):
        raise TypeError(f"stack is {given!r}: pass the predictions of each model")
    yield from (Given(None, kind, values) for values in given)


def _are_files(given: Any) -> bool:
    if isinstance(given, list | tuple):
        return bool(given) and all(isinstance(one, str | os.PathLike) for one in given)
    return isinstance(given, str | os.PathLike)


def _read_files(files: Any, kind: str) -> Iterator[Given]:
    """Yield the members in files: one of each, or several of an archive; files say if they are logits."""
    paths = find_files(files)
    stems = [path.stem for path in paths]
    if len(set(stems)) < len(stems):
        stems = [f"{path.parent.name}/{path.stem}" for path in paths]
    for path, stem in zip(paths, stems, strict=True):
        names = read_names(path)
        before: Stage | None = None  # named by its step only if there are several
        for place, stage in enumerate(read_file(path, Layout(otherwise=kind))):
            if before is not None:
                yield _given(before, names[place - 1] if names else f"{stem} {before.step}")
            before = stage
        if before is not None:
            alone = not names and place == 0
            name = stem if alone else names[place] if names else f"{stem} {before.step}"
            yield _given(before, name)


def _given(stage: Stage, name: str) -> Given:
    return Given(name, stage.kind, stage.predictions, stage.labels, stage.weights)


def read_logs(
    values: Any, kind: str, n: int | None, k: int, columns: list[str] | None, strict: bool = False
) -> NDArray[np.float32]:
    """Return the log-probabilities (n, k) of one member; with ``strict``, names of columns must agree."""
    scores = check_scores(values, kind)
    if scores.shape[1] != k or (n is not None and len(scores) != n):
        wanted = f"{k} classes" if n is None else f"({n}, {k})"
        raise ValueError(
            f"{kind} has shape {scores.shape}, but the first member has {wanted}: every member needs the "
            "same rows and classes"
        )
    return to_logs(in_order(scores, _columns(values), columns, kind, strict))


def _columns(values: Any) -> list[str] | None:
    names = column_names(values)
    return None if names is None else [str(name) for name in names]


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
    return mix_with_uniform(logs, total), total


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
def naming(name: str, kind: str) -> Iterator[None]:
    """Put the name of a member before the message of an error about its predictions."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if not str(error).startswith(kind):
            raise
        raise type(error)(f"member {name!r}: {error}") from error
