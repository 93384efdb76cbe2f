"""Tables as the models want them: matrices of numbers, and codes of categories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

LARGEST = float(np.finfo(np.float32).max)  # XGBoost and CatBoost keep numbers as float32


def category_mask(X: pd.DataFrame) -> NDArray[np.bool_]:
    """Tell which columns are categories."""
    return np.array([hasattr(dtype, "categories") for dtype in X.dtypes], dtype=bool)


def to_codes(column: Any) -> NDArray[np.int64]:
    """Return the categories of a column, which are whole numbers; -1 where missing."""
    names = column.cat.categories.to_numpy()
    if len(names) and not np.issubdtype(names.dtype, np.integer):
        raise TypeError(
            f"column {column.name!r} has categories such as {names[0]!r}: they must be whole numbers, as "
            "Schema.encode makes them"
        )
    positions = column.cat.codes.to_numpy()
    return np.where(positions < 0, -1, np.append(names, -1)[positions]).astype(np.int64)


def to_numbers(column: Any) -> NDArray[np.float64]:
    """Return a column as float64; infinities become the largest number that all libraries take."""
    return np.clip(np.asarray(column, dtype=np.float64), -LARGEST, LARGEST)


def to_matrix(X: pd.DataFrame) -> NDArray[np.float64]:
    """Return numbers and codes as one matrix, NaN where missing."""
    matrix = np.empty(X.shape, dtype=np.float64)
    for j, is_category in enumerate(category_mask(X)):
        column = X.iloc[:, j]
        if is_category:
            codes = to_codes(column)
            matrix[:, j] = np.where(codes < 0, np.nan, codes)
        else:
            matrix[:, j] = to_numbers(column)
    return matrix


def most_frequent(codes: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return the codes that occur, in increasing order: all of them, or the ``most`` most frequent.

    >>> most_frequent(np.array([7, 7, 2, 2, 5, -1]), 2)
    array([2, 7])
    """
    found, counts = np.unique(codes[codes >= 0], return_counts=True)
    # Stable, so that of codes that are equally frequent the smaller one stays.
    return np.sort(found[np.argsort(-counts, kind="stable")[:most]])


def positions_in(known: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each code is among the known ones, which increase; -1 if it is not.

    >>> positions_in(np.array([2, 7]), np.array([7, 3, -1, 2]))
    array([ 1, -1, -1,  0])
    """
    if not len(known):
        return np.full(len(codes), -1, dtype=np.int64)
    places = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    return np.where(known[places] == codes, places, -1)
