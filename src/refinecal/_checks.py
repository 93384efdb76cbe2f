"""The one door: every array from a user passes here, and every complaint about one is worded here.

Inside the package there are then only ``labels`` in 0..k-1 and ``logits`` of shape (n, k), float32 or
float64 and C-contiguous. Probabilities enter as their logarithms, so 0 becomes -inf, which is legal.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

CHUNK = 2**20  # elements looked at together: bounds the memory of every check and of every mean

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """Labels, logits and weights that have passed every check."""

    labels: NDArray[np.int64]
    logits: Array  # (n, k) float32 or float64, C-contiguous; or a torch tensor on another device
    weights: NDArray[np.float64] | None = None
    soft: NDArray[np.float64] | None = None  # (n, k) rows summing to 1, if any label is soft
    classes: Array | None = None  # the label of each column, if labels were not 0..k-1 already
    columns: list[Any] | None = None  # column names of a DataFrame

    @property
    def n(self) -> int:
        return int(self.logits.shape[0])

    @property
    def k(self) -> int:
        return int(self.logits.shape[1])

    @property
    def total(self) -> float:
        """The number of rows, each counted as often as its weight says."""
        return float(self.n) if self.weights is None else float(self.weights.sum())

    @property
    def frequencies(self) -> NDArray[np.float64]:
        """The share of each class."""
        if self.soft is not None:
            return np.asarray(np.average(self.soft, axis=0, weights=self.weights))
        return np.asarray(np.bincount(self.labels, self.weights, minlength=self.k) / self.total)

    def take(self, rows: Any) -> "Sample":
        """Return the given rows (indices or a slice), as another sample."""
        logits = self.logits[rows]
        return replace(
            self,
            labels=np.ascontiguousarray(self.labels[rows]),
            logits=logits if is_torch(logits) else np.ascontiguousarray(logits),
            weights=None if self.weights is None else np.ascontiguousarray(self.weights[rows]),
            soft=None if self.soft is None else self.soft[rows],
        )

    def chunks(self) -> Iterator[tuple[slice, "Sample"]]:
        """Cut the sample into runs of rows small enough to make temporaries of."""
        for rows in _row_slices(self.n, self.k):
            yield rows, self.take(rows)

    def mean(self, values: Array) -> float:
        """Return the weighted mean of one value per row; a row of weight 0 is gone, whatever its value."""
        if self.weights is None:
            return float(np.mean(values))
        return float(np.average(np.where(self.weights > 0, values, 0.0), weights=self.weights))

    def counted(self) -> "Sample":
        """Return the rows that count: those of weight 0 are gone."""
        if self.weights is None or self.weights.all():
            return self
        return self.take(np.flatnonzero(self.weights))


def check_sample(
    y_true: Any,
    probs: Any = None,
    logits: Any = None,
    sample_weight: Any = None,
    classes: ArrayLike | None = None,
    y_name: str = "y_true",
    devices: bool = False,
    for_logits: str = "pass logits=",
) -> Sample:
    """Return the arguments of a public call as a ``Sample``, or say what is wrong with which of them.

    With ``devices``, torch tensors on another device than the CPU stay where they are; ``for_logits`` is
    the cure for those who have logits.
    """
    if (probs is None) == (logits is None):
        found = "neither" if probs is None else "both"
        raise TypeError(
            f"pass either probs or logits=, found {found}: probabilities are rows that sum to 1, "
            "logits are log-probabilities up to a constant, such as a network's last layer"
        )
    name = "logits" if probs is None else "probs"
    given = logits if probs is None else probs
    if devices and is_on_device(given):
        from refinecal._torch import check_device_sample

        return check_device_sample(y_true, given, name, sample_weight, classes, y_name)
    scores, columns = check_scores(given, name, for_logits), column_names(given)
    n, k = scores.shape
    labels, soft, names = check_labels(y_true, n, k, classes, y_name, name, columns)
    return Sample(labels, scores, check_weights(sample_weight, n, name), soft, names, columns)


# ---- any array type to NumPy -----------------------------------------------------------------------------


def is_torch(array: Any) -> bool:
    """Say whether this is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def is_on_device(array: Any) -> bool:
    """Say whether this is a torch tensor that lives on another device than the CPU."""
    return is_torch(array) and array.device.type != "cpu"


def on_cpu(sample: Sample) -> Sample:
    """Return the sample with its logits in NumPy."""
    if not is_on_device(sample.logits):
        return sample
    logits: Any = sample.logits
    return replace(sample, logits=np.ascontiguousarray(logits.cpu().numpy()))


def column_names(array: Any) -> list[Any] | None:
    """Return the column names of a DataFrame (pandas, polars), unless they only count from 0."""
    names = getattr(array, "column_names", None)  # pyarrow, whose columns are arrays
    if names is None:
        names = getattr(array, "columns", None)
    if names is None or getattr(array, "ndim", 2) != 2:
        return None
    names = list(names)
    return None if len(names) < 2 or names == list(range(len(names))) else names


def in_order(
    rows: Array, own: list[Any] | None, wanted: list[Any] | None, name: str, strict: bool = False
) -> Array:
    """Return named columns in the order that is wanted; with ``strict``, names must be those wanted."""
    if own is None or wanted is None or own == wanted:
        return rows
    if set(own) != set(wanted) or len(set(own)) != len(own):
        if strict:
            raise ValueError(
                f"{name} has the columns {own}, but {wanted} were there when it was fitted"
            )
        return rows
    return np.ascontiguousarray(rows[:, [own.index(name) for name in wanted]])


def to_numpy(array: Any, name: str) -> Array:
    """Return any array-like as NumPy, without a copy where memory can be shared."""
    if is_torch(array):
        array = array.detach().resolve_conj().resolve_neg()
        if array.layout != sys.modules["torch"].strided:
            raise TypeError(f"{name} is a sparse tensor: pass {name}.to_dense()")
        if array.is_floating_point() and array.dtype.itemsize < 4:  # NumPy has no bfloat16
            array = array.float()
        return np.asarray(array.cpu().numpy())
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: drop the masked rows, then pass {name}.data")
    if hasattr(array, "tocsr"):
        raise TypeError(f"{name} is a sparse matrix: pass {name}.toarray()")
    if hasattr(array, "collect") and hasattr(array, "collect_schema"):
        raise TypeError(f"{name} is a lazy frame: pass {name}.collect()")
    if hasattr(array, "to_numpy") and type(array).__module__ != "pyarrow.lib":  # pandas, polars
        array = array.to_numpy()
    try:
        found = np.asarray(array)
    except ValueError as error:
        raise ValueError(
            f"{name} cannot be read as an array: are its rows equally long?"
        ) from error
    if found.dtype.names is not None:
        raise TypeError(
            f"{name} is a structured array: pass "
            f"numpy.lib.recfunctions.structured_to_unstructured({name})"
        )
    if found.dtype.kind == "V":  # bfloat16 and other small floats of JAX
        found = found.astype(np.float32)
    if found.dtype.kind == "U" and isinstance(array, (list, tuple)):
        found = np.asarray(array, dtype=object)  # NumPy has made strings of numbers and NaN
    return found


def is_missing(value: Any) -> bool:
    """Say whether this is None, NaN, NaT or NA."""
    try:
        return value is None or bool(value != value)  # noqa: PLR0124  only these differ from themselves
    except (TypeError, ValueError):  # pandas.NA has no truth value; nor has an array
        return type(value).__name__ == "NAType"


def _to_floats(array: Any, name: str) -> Array:
    """Return float32 for small floats and float32, float64 for everything else that is a number."""
    found = to_numpy(array, name)
    if found.dtype.kind == "O":
        values = found.ravel().tolist()
        if (
            values
            and hasattr(values[0], "__len__")
            and not isinstance(values[0], (str, bytes, dict))
        ):
            raise TypeError(f"{name} holds one array per row: pass np.stack({name})")
        if any(isinstance(value, (str, bytes)) for value in values):
            raise TypeError(_not_numbers(name, "strings"))
        try:
            plain = [np.nan if is_missing(value) else value for value in values]
            return np.array(plain, dtype=np.float64).reshape(found.shape)
        except (TypeError, ValueError) as error:
            raise TypeError(_not_numbers(name, type(values[0]).__name__)) from error
    if found.dtype.kind not in "fiub":
        raise TypeError(_not_numbers(name, str(found.dtype)))
    small = found.dtype.kind == "f" and found.dtype.itemsize <= 4
    return found.astype(np.float32 if small else np.float64, copy=False)


def _not_numbers(name: str, found: str) -> str:
    return (
        f"{name} must hold real numbers, found {found}. If the first argument got there by mistake: "
        "the labels come first, then the predictions."
    )


# ---- probabilities and logits ----------------------------------------------------------------------------


def check_scores(given: Any, name: str, for_logits: str = "pass logits=") -> Array:
    """Return probabilities or logits (``name`` says which) as checked (n, k) logits."""
    half = getattr(getattr(given, "dtype", None), "itemsize", None) == 2
    scores = _to_floats(given, name)
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    if scores.ndim not in (1, 2):
        raise ValueError(
            f"{name} has shape {scores.shape}: it must be (n, k), or (n,) for two classes. For "
            "predictions per pixel or token, move the classes last and reshape(-1, k)."
        )
    if scores.size == 0:
        raise ValueError(f"{name} is empty (shape {scores.shape}): it needs at least one row")
    if name == "probs":
        return _logs_of_probs(scores, 1e-2 if half else 1e-3, for_logits)
    return _check_logits(scores)


def _logs_of_probs(probs: Array, tolerance: float, for_logits: str) -> Array:
    _refuse(probs, np.isnan, "probs", "is NaN: drop the rows whose prediction is missing")
    margin = 1e-6  # float32 softmax may round a little past 1
    _refuse(
        probs,
        lambda p: (p < 0) | (p > 1 + margin),
        "probs",
        f"is not a probability: these must lie in 0..1. If they are logits or log-odds, {for_logits}.",
    )
    if probs.ndim == 1:
        with np.errstate(divide="ignore"):
            return np.stack([np.log1p(-np.minimum(probs, 1)), np.log(probs)], axis=1)
    logs = np.empty(probs.shape, probs.dtype)
    for rows in _row_slices(*probs.shape):
        sums = probs[rows].sum(axis=1, dtype=np.float64)
        bad = np.flatnonzero(np.abs(sums - 1) > tolerance)
        if bad.size:
            raise ValueError(
                f"probs[{rows.start + bad[0]}] sums to {sums[bad[0]]:.6g}: each row must sum to 1. "
                f"If these are logits, {for_logits}; if they are scores, divide each row by its sum."
            )
        with np.errstate(divide="ignore"):
            np.log(probs[rows], out=logs[rows])
    return logs


def _check_logits(logits: Array) -> Array:
    if logits.ndim == 1:  # log-odds of class 1: columns (0, z), shifted so that infinities are -inf
        _refuse(logits, np.isnan, "logits", "is NaN: drop the rows whose prediction is missing")
        return np.stack([-np.maximum(logits, 0), np.minimum(logits, 0)], axis=1)
    logits = np.ascontiguousarray(logits)
    top = logits.max()  # NaN and +inf show here, without a temporary
    if not top < np.inf:
        _refuse(logits, np.isnan, "logits", "is NaN: drop the rows whose prediction is missing")
        cure = (
            "is +inf: only -inf (an impossible class) is allowed. Take log-probabilities instead."
        )
        _refuse(logits, np.isposinf, "logits", cure)
    if logits.min() == -np.inf:
        for rows in _row_slices(*logits.shape):
            bad = np.flatnonzero(np.isneginf(logits[rows]).all(axis=1))
            if bad.size:
                raise ValueError(
                    f"logits[{rows.start + bad[0]}] is -inf in every column: at least one class "
                    "must be possible. Drop the row."
                )
    return logits


def _refuse(array: Array, test: Callable[[Array], Array], name: str, why: str) -> None:
    """Raise for the first element that fails the test, naming its place and value."""
    for rows in _row_slices(len(array), array[0].size):
        bad = np.argwhere(test(array[rows]))
        if bad.size:
            bad[0][0] += rows.start
            where = tuple(int(i) for i in bad[0])
            value = array[where]
            shown = "" if why.startswith(("is NaN", "is +inf")) else f"is {value:.6g}, which "
            raise ValueError(f"{name}[{', '.join(map(str, where))}] {shown}{why}")


def _row_slices(n: int, k: int) -> Iterator[slice]:
    step = max(1, CHUNK // max(k, 1))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


# ---- labels ----------------------------------------------------------------------------------------------


def check_labels(
    given: Any,
    n: int,
    k: int,
    classes: ArrayLike | None,
    name: str,
    scores_name: str,
    columns: list[Any] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None, Array | None]:
    """Return labels in 0..k-1, the rows of soft labels if there are any, and the names of the classes."""
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
        hard, soft = _soft_labels(labels, name)
        return hard, soft, names
    if labels.dtype.kind in "OT":
        labels = _plain(labels, name)
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(_missing(name, int(np.isnan(labels).argmax())))
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
        return _positions(labels, names, name), None, names
    return _check_range(labels, k, name, scores_name), None, None


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
    bad = np.flatnonzero((labels < 0) | (labels >= k))
    if bad.size:
        low, high = labels.min(), labels.max()
        cure = "Pass classes=, the label of each column in order."
        if low >= 1 and high == k:
            cure = f"If your labels start at 1, pass {name} - 1."
        elif k == 2 and low == -1 and high == 1:
            cure = "If they are -1 and 1, pass classes=[-1, 1]."
        raise ValueError(
            f"{name}[{bad[0]}] is {_shown(labels[bad[0]])}, but {scores_name} has {k} columns: "
            f"{name} must lie in 0..{k - 1}. {cure}"
        )
    return np.ascontiguousarray(labels, dtype=np.int64)


def _shown(label: Any) -> str:
    return f"{label:g}" if isinstance(label, np.floating) else str(label)


def _missing(name: str, row: int) -> str:
    return f"{name}[{row}] is missing: drop the rows without a label"


def _plain(labels: Array, name: str) -> Array:
    """Turn an object array (pandas, lists of mixed things) into one of strings or numbers."""
    values = labels.tolist()
    for i, value in enumerate(values):
        if is_missing(value):
            raise ValueError(_missing(name, i))
    kinds = {str if isinstance(v, str) else type(v) for v in values}
    if str in kinds and len(kinds) > 1:
        found = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(f"{name} mixes {found}: make all labels the same type")
    return np.asarray(values)


def _check_classes(classes: ArrayLike, k: int, scores_name: str) -> Array:
    names = np.array(to_numpy(classes, "classes"))  # a copy, which outlives the caller's
    if names.dtype.kind == "O":
        names = np.asarray(names.tolist())
    if names.shape != (k,):
        raise ValueError(
            f"classes has shape {names.shape}, but {scores_name} has {k} columns: classes must name "
            "each column once, in order"
        )
    if len(set(names.tolist())) != k:
        raise ValueError("classes names a column twice: each class must have one column")
    return names


def _infer_classes(labels: Array, k: int, name: str, scores_name: str) -> Array:
    found = np.unique(labels)
    if len(found) != k:
        shown = ", ".join(repr(str(v)) for v in found[:5]) + (", ..." if len(found) > 5 else "")
        raise ValueError(
            f"{name} holds {len(found)} different labels ({shown}), but {scores_name} has {k} "
            "columns: pass classes=, the label of each column in order"
        )
    return found


def _positions(labels: Array, names: Array, name: str) -> NDArray[np.int64]:
    """Return the column of each label."""
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


def _soft_labels(rows: Array, name: str) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Return one-hot rows as labels, other rows that sum to 1 as soft labels."""
    soft = _to_floats(rows, name).astype(np.float64)
    _refuse(
        soft,
        lambda q: ~((q >= 0) & (q <= 1 + 1e-6)),
        name,
        "is not allowed: label rows lie in 0..1",
    )
    sums = soft.sum(axis=1)
    bad = np.flatnonzero(np.abs(sums - 1) > 1e-3)
    if bad.size:
        raise ValueError(
            f"{name}[{bad[0]}] sums to {sums[bad[0]]:.6g}: each row of labels must sum to 1"
        )
    hard = soft.argmax(axis=1)
    if np.all((soft == 0) | (soft == 1)):
        return hard, None
    return hard, soft / sums[:, None]


# ---- weights ---------------------------------------------------------------------------------------------


def check_weights(given: Any, n: int, scores_name: str) -> NDArray[np.float64] | None:
    """Return weights as float64, one per row, none negative, not all zero; ``None`` if none are given."""
    if given is None:
        return None
    weights = _to_floats(given, "sample_weight").astype(np.float64)
    if weights.shape not in ((n,), (n, 1)):
        raise ValueError(
            f"sample_weight has shape {weights.shape}, but {scores_name} has {n} rows: pass ({n},)"
        )
    weights = np.ascontiguousarray(weights.reshape(-1))
    bad = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
    if bad.size:
        raise ValueError(
            f"sample_weight[{bad[0]}] is {weights[bad[0]]:.6g}: a weight says how often the row counts, "
            "so it must be a finite number of at least 0"
        )
    if weights.max() > np.finfo(np.float64).max / n:
        raise ValueError("sample_weight is too large to be summed: divide it by its largest")
    if not weights.any():
        raise ValueError("sample_weight is 0 everywhere: at least one row must count")
    return weights


def warn(message: str) -> None:
    """Warn at the line of the user's code, however deep in the package this is called."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(
        "refinecal."
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, RuntimeWarning, stacklevel=level)


def fail_choice(name: str, value: object, choices: list[str], otherwise: str) -> NoReturn:
    """Raise for an unknown name, with the known ones and the nearest to it."""
    from difflib import get_close_matches

    near = get_close_matches(str(value), choices, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    known = ", ".join(map(repr, choices))
    raise ValueError(f"{name} is {value!r}: it must be one of {known}, or {otherwise}.{hint}")
