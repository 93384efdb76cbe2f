"""Checks of feature rows: numbers only, two classes, no constant columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.arrays import column_names, is_missing, to_floats, to_numpy
from refinecal._core.format import list_names

FEWEST_ROWS = 20
FEWEST_OF_A_CLASS = 5
EXTREME = 1e45  # standard deviations, or 1 / EXTREME: eigenvalues are their squares, and are cubed


Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Names = tuple[Any, ...]


def check_rows(
    X: Any, y: Any = None, *, standardize: bool = False, positive: Any = None
) -> tuple[Floats, Labels, Names]:
    """Return features without constant columns, labels 0 and 1, and the names of the two classes.

    Rows are ordered by class and content, so that their order in the table does not change the last digit.
    With ``standardize``, columns have mean 0 and standard deviation 1. ``positive`` is the label of class 1,
    and all others are class 0.
    """
    _refuse_texts(X)
    features = np.array(to_floats(X, "X"), dtype=np.float64, order="C")
    if features.ndim != 2:
        raise ValueError(f"X has shape {features.shape}: it must be (rows, features)")
    n, p = features.shape
    if n < FEWEST_ROWS or p == 0:
        raise ValueError(
            f"X has {n} rows and {p} columns: at least {FEWEST_ROWS} rows and one column are needed to "
            "distinguish signal from noise"
        )
    bad = np.argwhere(~np.isfinite(features))
    if bad.size:
        i, j = bad[0].tolist()
        names = column_names(X)
        column = j if names is None else repr(names[j])
        raise ValueError(
            f"X[{i}, {column}] is {features[i, j]}: every value must be a finite number. Fill missing "
            "values, for example with sklearn.impute.SimpleImputer, or drop their rows."
        )
    labels, classes = check_two_classes(y, n, positive)
    order = np.lexsort((features.view(f"V{features[0].nbytes}")[:, 0], labels))
    features, labels = features[order], labels[order]
    size = np.abs(features).max(axis=0)
    size[size == 0] = 1.0
    spread = (features / size).std(axis=0)  # squares of what is huge would overflow
    kept = spread > 1e-10  # rounding errors of a constant are smaller
    if not kept.any():
        raise ValueError("X is the same in every row: there is nothing to learn from")
    features, size, spread = features[:, kept], size[kept], spread[kept]
    if standardize:
        features = features / size
        features = (features - features.mean(axis=0)) / spread
    else:
        spread = spread * size
        bad = spread[(spread > EXTREME) | (spread < 1 / EXTREME)]
        if bad.size:
            raise ValueError(
                f"X has a column with standard deviation {bad[0]:.2g}: it must lie between {1 / EXTREME:g} "
                f"and {EXTREME:g}. Change its unit, or pass standardize=True."
            )
    return features, labels, classes


def check_two_classes(y: Any, n: int, positive: Any = None) -> tuple[Labels, Names]:
    """Return labels as 0 and 1 and their names; zeros and one name if ``y`` is None."""
    if y is None:
        return np.zeros(n, dtype=np.int64), ("all",)
    given = to_numpy(y, "y")
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.shape != (n,):
        raise ValueError(
            f"y has shape {given.shape}, but X has {n} rows: pass one label for each row"
        )
    missing = [i for i, value in enumerate(given.tolist()) if is_missing(value)]
    if missing:
        raise ValueError(f"y[{missing[0]}] is missing: drop rows without a label")
    values = given.astype(str) if given.dtype.kind == "O" else given
    names, places = np.unique(values, return_inverse=True)
    labels, classes = np.asarray(places, dtype=np.int64).reshape(-1), tuple(names.tolist())
    if positive is not None:
        labels, classes = _merge_rest(labels, classes, positive)
    if len(classes) < 2:
        raise ValueError(f"y is {classes[0]!r} in every row: two classes are needed")
    if len(classes) > 2:
        first, second = classes[:2]
        raise ValueError(
            f"y has {len(classes)} different labels, but the theory covers two classes: keep the rows of "
            f"two, such as {first!r} and {second!r}, or compare one with the rest with positive={second!r}"
        )
    counts = np.bincount(labels, minlength=2)
    if counts.min() < FEWEST_OF_A_CLASS:
        raise ValueError(
            f"y has {counts.min()} rows of class {classes[int(counts.argmin())]!r}: at least "
            f"{FEWEST_OF_A_CLASS} of each class are needed to estimate its mean"
        )
    return labels, classes


def _merge_rest(labels: Labels, classes: Names, positive: Any) -> tuple[Labels, Names]:
    found = [k for k, name in enumerate(classes) if name == positive or str(name) == str(positive)]
    if not found:
        raise ValueError(
            f"positive is {positive!r}, which is not a label: y has {list_names(classes, 5)}"
        )
    rest = "the rest" if len(classes) != 2 else classes[1 - found[0]]
    return (labels == found[0]).astype(np.int64), (rest, classes[found[0]])


def _refuse_texts(X: Any) -> None:
    """Refuse a table with columns that are not numbers."""
    if not hasattr(X, "dtypes") or column_names(X) is None:
        return
    kinds = list(zip(list(X.columns), list(X.dtypes), strict=False))
    texts = [str(name) for name, kind in kinds if not _is_number(kind)]
    if texts:
        raise TypeError(
            f"X has columns that are not numbers: {list_names(texts, 5)}. Encode them first, with "
            "pandas.get_dummies(X) or sklearn.preprocessing.OneHotEncoder."
        )


def _is_number(kind: Any) -> bool:
    """Tell whether a column of pandas or polars holds numbers."""
    is_numeric = getattr(kind, "is_numeric", None)  # polars
    if callable(is_numeric):
        return bool(is_numeric()) or str(kind) == "Boolean"
    return getattr(kind, "kind", "O") in "iufb"
