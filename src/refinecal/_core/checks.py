"""Checks of all arguments from users, with the errors that they raise.

Then ``labels`` lie in 0..k-1 and ``logits`` have the shape (n, k), float32 or float64 and C-contiguous.
Probabilities become their logarithms, so 0 becomes -inf, which is allowed.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable
from difflib import get_close_matches
from functools import update_wrapper
from types import FunctionType
from typing import Any, NoReturn, ParamSpec, TypeVar, cast, is_typeddict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.arrays import (
    Array,
    category_order,
    column_names,
    in_order,
    is_missing,
    is_on_device,
    to_floats,
    to_numpy,
)
from refinecal._core.errors import warn
from refinecal._core.sample import MARGIN, Sample, log_probs, row_slices, split_odds, sum_rows

EITHER = (
    "pass either probs or logits=, found {}: probabilities are rows that sum to 1, logits are "
    "log-probabilities up to a constant, such as a network's last layer"
)


def check_sample(
    y_true: Any,
    probs: Any = None,
    logits: Any = None,
    sample_weight: Any = None,
    classes: ArrayLike | None = None,
    y_name: str = "y_true",
    devices: bool = False,
    for_logits: str = "pass logits=",
    strict: bool = False,
    quiet: bool = False,
    known: KnownLabels | None = None,
    likeliest: bool = False,
    threads: int | None = None,
) -> Sample:
    """Return the arguments of a public call as a ``Sample``, or raise an error that names the argument.

    ``known`` labels are not checked again. With ``likeliest``, one read of the probabilities checks them and
    finds the likeliest class of each row. With ``devices``, torch tensors stay on their device.
    ``for_logits`` is the fix in messages for those who have logits. ``strict`` raises for logits that look
    like probabilities; ``quiet`` omits warnings about labels.
    """
    if (probs is None) == (logits is None):
        found = "neither" if probs is None else "both"
        raise TypeError(EITHER.format(found))
    name, given = ("logits", logits) if probs is None else ("probs", probs)
    if known is not None and probs is None and sample_weight is None and classes is None:
        sample = known.sample(y_true, logits, threads)
        if sample is not None:
            return sample
    if devices and is_on_device(given):
        from refinecal._core.devices import check_device_sample

        return check_device_sample(y_true, given, name, sample_weight, classes, y_name, quiet)
    try:
        scores, tolerance, sums = _read_scores(given, name, for_logits, threads, likeliest)
    except ValueError:  # predictions of several labels need not sum to 1
        _refuse_multilabel(to_numpy(y_true, y_name), y_name, name, given)
        raise
    n, k = scores.shape if scores.ndim == 2 else (len(scores), 2)
    columns = column_names(given)
    labels, soft, names = check_labels(y_true, n, k, classes, y_name, name, columns, quiet)
    weights = check_weights(sample_weight, n, name)
    if name == "logits":
        doubt_logits(scores, strict)
        if soft is None and names is None and not quiet:
            warn_if_features(labels, scores, y_name)
        return Sample(labels, scores, weights, soft, names, columns, threads=threads)
    if soft is not None and np.ndim(given) == 1 and np.isin(scores, (0, 1)).all():
        raise ValueError(
            f"{name} holds only 0 and 1, and {y_name} holds probabilities: are the two swapped?"
        )
    sample = Sample(labels, None, weights, soft, names, columns, scores, threads)
    if sums is not None:
        sample.row_sums = sums
    elif scores.ndim == 2 and not sample.find_likeliest(tolerance):
        _refuse_probs(scores, name, tolerance, for_logits)
    return sample


class KnownLabels:
    """The labels of the last training step, without weights: if they do not change, they are checked once."""

    _labels = np.empty(0, np.int64)  # a private copy
    _k, _uncertainty = 0, math.nan

    def sample(self, y_val: Any, logits: Any, threads: int | None) -> Sample | None:
        """Return plain arrays with the same labels as a sample; ``None`` if they must be checked.

        Raises if logits look like probabilities.
        """
        if type(y_val) is not np.ndarray or type(logits) is not np.ndarray:
            return None
        same = y_val.dtype == np.int64 and np.array_equal(y_val, self._labels)
        is_plain = logits.dtype.char in "fd" and logits.dtype.isnative
        if not same or not is_plain or len(logits) != len(y_val):
            return None
        if not np.isfinite(logits.sum()):  # the full check names the error
            return None
        if logits.ndim == 1 and self._k == 2:
            columns = np.zeros((len(logits), 2), logits.dtype)
            columns[:, 1] = logits
            return Sample(self._labels, columns, threads=threads)
        if logits.shape[1:] != (self._k,):
            return None
        doubt_logits(logits, strict=True)
        return Sample(self._labels, np.ascontiguousarray(logits), threads=threads)

    def uncertainty(self, sample: Sample, entropy: Callable[[Array], Any]) -> float:
        """Return the entropy of the class frequencies, computed again only if labels have changed."""
        if sample.weights is not None or sample.soft is not None:
            return float(entropy(sample.frequencies))
        labels = sample.labels
        if sample.k != self._k or not (
            labels is self._labels or np.array_equal(labels, self._labels)
        ):
            self._labels, self._k = labels.copy(), sample.k
            self._uncertainty = float(entropy(sample.frequencies))
        return self._uncertainty


# ---- probabilities and logits ----------------------------------------------------------------------------


def check_scores(given: Any, name: str, for_logits: str = "pass logits=") -> Array:
    """Return probabilities, or logits if that is their name, as checked (n, k) logits."""
    scores = _read_scores(given, name, for_logits)[0]
    return scores if name == "logits" else log_probs(scores)


def _read_scores(
    given: Any,
    name: str,
    for_logits: str,
    threads: int | None = None,
    likeliest: bool = False,
) -> tuple[Array, float, NDArray[np.float64] | None]:
    """Return logits, or probabilities with the tolerance of their sums and the sums of rows, (n, k) or (n,).

    With ``likeliest``, the search for the likeliest class checks rows of probabilities.
    """
    half = getattr(getattr(given, "dtype", None), "itemsize", None) == 2
    tolerance, sums = 1e-2 if half else 1e-3, None
    scores = to_floats(given, name)
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    if scores.ndim not in (1, 2):
        raise ValueError(
            f"{name} has shape {scores.shape}: it must be (n, k), or (n,) for two classes. For "
            "predictions per pixel or token, move the classes last and reshape(-1, k)."
        )
    if scores.size == 0:
        raise ValueError(f"{name} is empty (shape {scores.shape}): it needs at least one row")
    if name == "logits":
        return _check_logits(scores), tolerance, None
    legal = True
    if scores.ndim == 1:
        legal = bool(scores.min() >= 0 and scores.max() <= 1 + MARGIN)
    elif not likeliest:
        legal, sums = sum_rows(scores, tolerance, threads)
    if not legal:
        _refuse_probs(scores, name, tolerance, for_logits)
    return scores, tolerance, sums


def _refuse_probs(probs: Array, name: str, tolerance: float, for_logits: str) -> None:
    """Raise for invalid probabilities."""
    _refuse(probs, np.isnan, name, "is NaN: drop the rows whose prediction is missing")
    first = "predictions first, then labels" if "fit" in for_logits else "labels first"
    order = "the true labels as y_true" if name == "true_probs" else first
    _refuse(
        probs,
        lambda p: (p < 0) | (p > 1 + MARGIN),
        name,
        f"is not a probability: these must lie in 0..1. If they are logits or log-odds, {for_logits}; "
        "if they are labels or features, pass model.predict_proba(X), not model.predict(X) or X, and "
        f"{order}.",
    )
    for rows in row_slices(*probs.shape) if probs.ndim == 2 else ():
        sums = probs[rows].sum(axis=1, dtype=np.float64)
        bad = np.flatnonzero(np.abs(sums - 1) > tolerance)
        if bad.size:
            raise ValueError(
                f"{name}[{rows.start + bad[0]}] sums to {sums[bad[0]]:.6g}: each row must sum to 1. "
                f"If these are logits, {for_logits}; if they are scores, divide each row by its sum."
            )


def _check_logits(logits: Array) -> Array:
    if (
        logits.ndim == 1
    ):  # log-odds of class 1: columns (0, z), shifted so that infinities become -inf
        _refuse(logits, np.isnan, "logits", "is NaN: drop the rows whose prediction is missing")
        return split_odds(logits)
    logits = np.ascontiguousarray(logits)
    top = logits.max()  # finds NaN and +inf without a temporary
    if not top < np.inf:
        _refuse(logits, np.isnan, "logits", "is NaN: drop the rows whose prediction is missing")
        fix = "is +inf: only -inf (an impossible class) is allowed. Pass log-probabilities instead."
        _refuse(logits, np.isposinf, "logits", fix)
    if logits.min() == -np.inf:
        for rows in row_slices(*logits.shape):
            bad = np.flatnonzero(np.isneginf(logits[rows]).all(axis=1))
            if bad.size:
                raise ValueError(
                    f"logits[{rows.start + bad[0]}] is -inf in every column: at least one class "
                    "must be possible. Drop the row."
                )
    return logits


def _refuse(array: Array, test: Callable[[Array], Array], name: str, why: str) -> None:
    """Raise for the first element for which the test is true, with its index and value."""
    for rows in row_slices(len(array), array[0].size):
        bad = np.argwhere(test(array[rows]))
        if bad.size:
            bad[0][0] += rows.start
            where = tuple(int(i) for i in bad[0])
            value = array[where]
            shown = "" if why.startswith(("is NaN", "is +inf")) else f"is {value:.6g}, which "
            raise ValueError(f"{name}[{', '.join(map(str, where))}] {shown}{why}")


# ---- labels ----------------------------------------------------------------------------------------------


def check_labels(
    given: Any,
    n: int,
    k: int,
    classes: ArrayLike | None,
    name: str,
    scores_name: str,
    columns: list[Any] | None = None,
    quiet: bool = False,
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None, Array | None]:
    """Return labels in 0..k-1, soft labels or ``None``, and the names of the classes.

    Unless ``quiet``, warns if categories are not in the order of the columns.
    """
    labels = to_numpy(given, name)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim not in (1, 2) or (labels.ndim == 2 and labels.shape[1] != k):
        raise ValueError(
            f"{name} has shape {labels.shape}: labels must be ({n},), or ({n}, {k}) rows that sum to 1. "
            "Are labels and predictions in the right order?"
        )
    if len(labels) != n:
        raise ValueError(
            f"{name} has {len(labels)} rows, but {scores_name} has {n}: pass one label per prediction"
        )
    names = None if classes is None else _check_classes(classes, k, scores_name)
    if labels.ndim == 2:
        wanted = columns if names is None else names.tolist()
        labels = in_order(labels, column_names(given), wanted, name)
        hard, soft = _soft_labels(labels, name, scores_name)
        return hard, soft, names
    if labels.dtype.kind in "OTf":
        labels = _plain(labels, name)
    if names is None and columns is not None and set(np.unique(labels).tolist()) & set(columns):
        names = _check_classes(columns, k, scores_name)
    if names is not None:
        return _positions(labels, names, name), None, names
    if labels.dtype.kind in "UST":
        names = _infer_classes(labels, k, name, scores_name)
        if columns is not None:
            raise ValueError(
                f"{scores_name} has the columns {columns}, none of which is a label: pass classes=, "
                f"the label of each column in order, such as classes={names.tolist()}"
            )
        found = _positions(labels, names, name)
    else:
        found = _check_range(labels, k, name, scores_name)
    order = None if quiet else category_order(given)
    if order is not None:
        _warn_of_order(order, labels, k, name, scores_name)
    return found, None, names


def _warn_of_order(order: list[Any], labels: Array, k: int, name: str, scores_name: str) -> None:
    """Warn of categories that are not in sorted order, which the columns are assumed to have."""
    if len(order) > k:
        seen = set(labels.tolist())
        order = [one for one in order if one in seen]
    try:
        ordered = sorted(order)
    except TypeError:  # categories of several types, of which these labels have one
        return
    if order != ordered:
        few, every = len(order) <= 8, f"({name}.dtype.categories)"
        warn(
            f"{name} has its categories in the order {_some(order)}, but the columns of {scores_name} are "
            f"assumed to be in sorted order. If they follow the categories, pass "
            f"classes={order if few else f'list{every}'}; if they are sorted, pass "
            f"classes={ordered if few else f'sorted{every}'}."
        )


def _some(labels: list[Any]) -> str:
    return ", ".join(map(repr, labels[:5])) + (", ..." if len(labels) > 5 else "")


def _check_range(labels: Array, k: int, name: str, scores_name: str) -> NDArray[np.int64]:
    if labels.dtype.kind == "b" and k != 2:
        raise ValueError(
            f"{name} is boolean, but {scores_name} has {k} columns: pass class numbers"
        )
    if labels.dtype.kind == "f":
        bad = np.flatnonzero(labels != np.floor(labels))
        if bad.size:
            raise ValueError(
                f"{name}[{bad[0]}] is {labels[bad[0]]}: labels must be whole numbers, strings, or "
                f"({len(labels)}, {k}) rows of class probabilities"
            )
    elif labels.dtype.kind not in "iub":
        raise TypeError(
            f"{name} holds {labels.dtype}: labels must be integers, strings or booleans"
        )
    low, high = labels.min(), labels.max()
    if low < 0 or high >= k:
        bad = np.flatnonzero((labels < 0) | (labels >= k))
        fix = "Pass classes=, the label of each column in order."
        if low >= 1 and high == k:
            fix = f"If your labels start at 1, pass {name} - 1."
        elif k == 2 and low == -1 and high == 1:
            fix = "If they are -1 and 1, pass classes=[-1, 1]."
        shown = f"{labels[bad[0]]:g}" if labels.dtype.kind == "f" else labels[bad[0]]
        raise ValueError(
            f"{name}[{bad[0]}] is {shown}, but {scores_name} has {k} columns: {name} must lie in "
            f"0..{k - 1}. {fix}"
        )
    return np.ascontiguousarray(labels, dtype=np.int64)


def _plain(labels: Array, name: str) -> Array:
    """Return labels, none of them missing; those of pandas and mixed lists as strings or numbers."""
    is_float = labels.dtype.kind == "f"
    values = [] if is_float else labels.tolist()
    missing = np.isnan(labels) if is_float else np.array([is_missing(value) for value in values])
    if missing.any():
        raise ValueError(f"{name}[{missing.argmax()}] is missing: drop the rows without a label")
    if is_float:
        return labels
    kinds = {str if isinstance(v, str) else type(v) for v in values}
    if str in kinds and len(kinds) > 1:
        found = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(f"{name} mixes {found}: make all labels the same type")
    return np.asarray(values)


def _check_classes(classes: ArrayLike, k: int, scores_name: str) -> Array:
    names = np.array(to_numpy(classes, "classes"))  # a copy
    if names.dtype.kind == "O":
        names = np.asarray(names.tolist())
    if names.shape != (k,):
        raise ValueError(
            f"classes has shape {names.shape}, but {scores_name} has {k} columns: classes must name "
            "each column once, in order"
        )
    if len(set(names.tolist())) != k:
        raise ValueError("classes contains a label twice: each class must have one column")
    return names


def _infer_classes(labels: Array, k: int, name: str, scores_name: str) -> Array:
    found = np.unique(labels)
    if len(found) != k:
        raise ValueError(
            f"{name} holds {len(found)} different labels ({_some(found.tolist())}), but {scores_name} has "
            f"{k} columns: pass classes=, the label of each column in order"
        )
    return found


def _positions(labels: Array, names: Array, name: str) -> NDArray[np.int64]:
    """Return the column of each label."""
    numbered = labels.dtype.kind in "iu" and names.tolist() == list(range(len(names)))
    if numbered and labels.min() >= 0 and labels.max() < len(names):  # unchanged, without sorting
        return np.ascontiguousarray(labels, dtype=np.int64)
    column = {value: j for j, value in enumerate(names.tolist())}
    found, inverse = np.unique(labels, return_inverse=True)
    codes = np.array([column.get(value, -1) for value in found.tolist()], dtype=np.int64)
    positions = codes[inverse.reshape(-1)]
    bad = np.flatnonzero(positions < 0)
    if bad.size:
        label = labels[bad[0]].item()
        raise ValueError(
            f"{name}[{bad[0]}] is {label!r}, which is not among classes {names.tolist()}"
        )
    return positions


def _soft_labels(
    rows: Array, name: str, scores_name: str
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Return one-hot rows as labels, other rows that sum to 1 as soft labels."""
    soft = to_floats(rows, name).astype(np.float64)
    _refuse(
        soft,
        lambda q: ~((q >= 0) & (q <= 1 + 1e-6)),
        name,
        "is not allowed: label rows lie in 0..1",
    )
    sums = soft.sum(axis=1)
    bad = np.flatnonzero(np.abs(sums - 1) > 1e-3)
    if bad.size:
        _refuse_multilabel(soft, name, scores_name)
        raise ValueError(
            f"{name}[{bad[0]}] sums to {sums[bad[0]]:.6g}: each row of labels must sum to 1. If the rows are "
            "class probabilities, divide each by its sum."
        )
    hard = soft.argmax(axis=1)
    if np.all((soft == 0) | (soft == 1)):
        return hard, None
    return hard, soft / sums[:, None]


def _refuse_multilabel(rows: Array, name: str, scores_name: str, given: Any = None) -> None:
    """Raise for rows of 0 and 1 without exactly one 1; ``given`` predictions may be (k, n, 2)."""
    if rows.ndim != 2 or rows.shape[1] < 2 or not rows.size:
        return
    rows = to_floats(rows, name)
    if not ((rows == 0) | (rows == 1)).all():
        return
    marks = rows.sum(axis=1)
    odd = np.flatnonzero(marks > 1) if marks.max() > 1 else np.flatnonzero(marks == 0)
    if odd.size:
        k, count = rows.shape[1], int(marks[odd[0]])
        is_list = given is not None and to_numpy(given, scores_name).ndim == 3
        one = f"{scores_name}[j]" if is_list else f"{scores_name}[:, j]"
        one = f"logits={one}" if scores_name == "logits" else one
        missing = "" if count else "If the row has no label, drop it. "
        raise ValueError(
            f"{name}[{odd[0]}] marks {count or 'none'} of the {k} classes: each row must mark one. {missing}"
            "If a row may have several labels (multilabel), each label is a separate binary problem: "
            f"pass {name}[:, j] with {one}, one j of 0..{k - 1} at a time, such as "
            f"rc.decompose({name}[:, 0], {one.replace('j', '0')})"
        )


# ---- weights ---------------------------------------------------------------------------------------------


def warn_if_light(weights: NDArray[np.float64] | None, who: str) -> None:
    """Warn if weights sum to about 1, which ``who`` would take as the number of rows."""
    if weights is None:
        return
    rows, total = int(np.count_nonzero(weights)), float(weights.sum())
    if total < 0.1 * rows:
        warn(
            f"sample_weight sums to {total:.3g} over {rows} rows: weights are frequencies, so {who} takes "
            "this as the number of rows. Multiply weights that sum to 1 by the number of rows."
        )


WEIGHTS = 2.0**-400, 2.0**400  # range of the largest: no sum or product of two overflows


def check_weights(given: Any, n: int, scores_name: str) -> NDArray[np.float64] | None:
    """Return weights as float64, one per row, none negative, not all zero; ``None`` if none are given.

    Extremely small or large weights are multiplied by a power of two, so that nothing overflows.
    """
    if given is None:
        return None
    weights = to_floats(given, "sample_weight").astype(np.float64)
    if weights.shape not in ((n,), (n, 1)):
        raise ValueError(
            f"sample_weight has shape {weights.shape}, but {scores_name} has {n} rows: pass ({n},)"
        )
    weights = np.ascontiguousarray(weights.reshape(-1))
    bad = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
    if bad.size:
        raise ValueError(
            f"sample_weight[{bad[0]}] is {weights[bad[0]]:.6g}: a weight must be a finite number of at "
            "least 0"
        )
    largest = weights.max()
    if largest == 0:
        raise ValueError("sample_weight is zero everywhere: at least one weight must be positive")
    nearest = np.clip(largest, *WEIGHTS)
    if nearest != largest:
        weights = np.ldexp(weights, np.frexp(nearest)[1] - np.frexp(largest)[1])
    return weights


def check_group_of_rows(given: Any, n: int) -> Array:
    """Return the group of each row."""
    listed = isinstance(given, list | tuple)  # whose numbers and texts NumPy makes texts
    groups = np.asarray(given if listed else to_numpy(given, "groups")).reshape(-1)
    if len(groups) != n:
        raise ValueError(
            f"groups has {len(groups)} entries, but there are {n} rows: pass one per row"
        )
    return groups


def doubt_logits(logits: Array, strict: bool = False) -> None:
    """Warn of logits that look like probabilities; if ``strict``, raise unless nearly uniform.

    All their rows lie in 0..1 and sum to 1, and are not only 0 and 1.
    """
    first = logits[0]
    if len(logits) < 5 or first.min() < 0 or abs(first.sum() - 1) > 1e-3:
        return
    off = np.abs(logits.sum(axis=1, dtype=np.float64) - 1).max()
    if logits.min() < 0 or off >= 1e-3 or logits.max(axis=1).min() >= 1:
        return
    if not strict:
        warn(PROBABILITIES_AS_LOGITS)
    elif np.ptp(logits) > 0.01:
        raise ValueError(PROBABILITIES_AS_LOGITS)


PROBABILITIES_AS_LOGITS = (
    "logits look like probabilities: every row is positive and sums to 1. Pass them as probs, or what the "
    "model returns before its softmax, or np.log of them."
)
MANY_ROWS = 20  # of each label: a class a quarter as common is missing in less than 1% of samples


def warn_if_features(labels: NDArray[np.int64], logits: Array, name: str) -> None:
    """Warn of logits that are probably features: most columns belong to classes that never occur.

    In small samples of many classes some are missing by chance, but then others occur only once or twice
    (Good and Turing). So it warns only if the labels are the first numbers without a gap, each in many rows,
    and at most half as many as columns. If these really are the first of many classes, logits predict them
    better than the most common label; features do not.
    """
    k = logits.shape[1]
    if k < 4 or 2 * (labels[:64].max() + 1) > k:  # the common case, without reading all labels
        return
    low, high = int(labels.min()), int(labels.max())
    if low > 1 or high == low or 2 * (high + 1) > k:
        return
    counts = np.bincount(labels)[low:]
    if counts.min() < MANY_ROWS or np.sum(logits.argmax(axis=1) == labels) > counts.max():
        return
    warn(
        f"logits has {k} columns, but {name} holds only labels from {low} to {high}, and the largest logit "
        "predicts them no better than the most common label. Are these the features? Pass the model's "
        f"predictions. If the other classes are just missing, pass classes=range({k})."
    )


HARD = "All probabilities are 0 or 1: did you pass model.predict(X)? Pass model.predict_proba(X)."


def is_hard(logits: Array) -> bool:
    """Return whether all probabilities are 0 or 1, as for predicted classes."""
    return all(
        bool(((logits[rows] == 0) | np.isneginf(logits[rows])).all())
        for rows in row_slices(*logits.shape)
    )


# ---- numbers ---------------------------------------------------------------------------------------------


def check_whole(name: str, value: Any, least: int = 1, otherwise: str = "") -> int:
    """Return a whole number of at least ``least``; ``otherwise`` names what else is allowed."""
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise ValueError(
            f"{name} is {value!r}: it must be a whole number of at least {least}{otherwise}"
        )
    return int(value)


def check_number(name: str, value: Any, otherwise: str = "") -> float:
    """Return a finite number of at least 0; ``otherwise`` names what else is allowed."""
    if not (isinstance(value, numbers.Real) and 0 <= float(value) < math.inf):
        raise ValueError(
            f"{name} is {value!r}: it must be a finite number of at least 0{otherwise}"
        )
    return float(value)


# ---- keywords --------------------------------------------------------------------------------------------

P = ParamSpec("P")
R = TypeVar("R")

SYNONYMS = (  # names of the same option in different frameworks
    (
        *("patience", "rounds", "stopping_rounds", "early_stopping_rounds"),
        *("early_stopping_round", "early_stopping_patience", "n_iter_no_change"),
    ),
    ("restore_best", "restore_best_weights", "load_best", "save_best"),
)


def check_keywords(*options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function to raise for unknown keywords, with a hint.

    ``options`` are the callables and typed dictionaries whose keywords its ``**options`` takes.

    >>> @check_keywords()
    ... def stop(patience=None, metric="refinement"): ...
    >>> stop(patince=5)
    Traceback (most recent call last):
    TypeError: stop() got an unexpected keyword argument 'patince'. Did you mean 'patience'?
    >>> stop(rounds=5)
    Traceback (most recent call last):
    TypeError: rounds is called patience here: pass patience=5
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known = dict.fromkeys(name for one in (function, *options) for name in _names_of(one))
        fail = _fail

        def call(*args: P.args, **given: P.kwargs) -> R:
            for name, value in given.items():
                if name not in known:
                    fail(function, args, name, value, list(known))
            return function(*args, **given)

        # In the module of the function, else doctest would skip its examples.
        made = FunctionType(
            call.__code__, cast("Any", function).__globals__, closure=call.__closure__
        )
        return cast("Callable[P, R]", update_wrapper(made, function))

    return decorate


def _names_of(source: Any) -> list[str]:
    if is_typeddict(source):
        return list(source.__annotations__)
    parameters = inspect.signature(source).parameters.values()
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [one.name for one in parameters if one.kind in by_name and one.name != "self"]


def _fail(function: Any, args: Any, name: str, value: Any, known: list[str]) -> NoReturn:
    for words in SYNONYMS:
        ours = [word for word in words if word in known]
        if name in words and ours:
            raise TypeError(f"{name} is called {ours[0]} here: pass {ours[0]}={value!r}")
    who = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
    near = get_close_matches(name, known, 1)
    hint = f". Did you mean {near[0]!r}?" if near else f": it takes {', '.join(known)}"
    raise TypeError(f"{who}() got an unexpected keyword argument {name!r}{hint}")
