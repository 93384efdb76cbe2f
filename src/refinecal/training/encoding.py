"""Tables for linear models and networks: scaled numbers, indicators of missing values, one-hot categories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Arrays = dict[str, NDArray[Any]]

LARGEST = float(np.finfo(np.float32).max)  # XGBoost and CatBoost keep numbers as float32
SCALINGS = ("standard", "quantile")
MOST_CATEGORIES = 1000  # per column that are encoded; rarer ones count as missing
ROWS_PER_QUANTILE, FEWEST_QUANTILES, MOST_QUANTILES = 30, 10, 1000
LEAST_SHARE = 1e-7  # values beyond all others get the normal quantile +-5.2


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


def most_frequent(codes: NDArray[np.int64], most: int | None) -> NDArray[np.int64]:
    """Return the codes that occur, in increasing order: all of them, or the ``most`` most frequent.

    >>> most_frequent(np.array([7, 7, 2, 2, 5, -1]), 2)
    array([2, 7])
    """
    found, counts = np.unique(codes[codes >= 0], return_counts=True)
    # Stable, so that of codes that are equally frequent the smaller one stays.
    return np.sort(found[np.argsort(-counts, kind="stable")[:most]])


def learn_codes(
    X: pd.DataFrame, mask: NDArray[np.bool_], most: int | None = None
) -> list[NDArray[np.int64]]:
    """Return the codes that occur in each column of categories, at most the ``most`` most frequent."""
    return [most_frequent(to_codes(X.iloc[:, j]), most) for j in np.flatnonzero(mask)]


def code_positions(
    X: pd.DataFrame, mask: NDArray[np.bool_], known: list[NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Return where each category is among the known codes of its column; -1 if it is not."""
    import pandas as pd

    found = np.empty((len(X), len(known)), dtype=np.int64)
    for i, (j, codes) in enumerate(zip(np.flatnonzero(mask), known, strict=True)):
        found[:, i] = pd.Index(codes).get_indexer(to_codes(X.iloc[:, j]))
    return found


def number_columns(X: pd.DataFrame, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the columns that are not categories."""
    columns = np.flatnonzero(~mask)
    numbers = np.empty((len(X), len(columns)), dtype=np.float64)
    for i, j in enumerate(columns):
        numbers[:, i] = to_numbers(X.iloc[:, j])
    return numbers


@dataclass(frozen=True, slots=True)
class Encoding:
    """What was learned about the columns of the training rows."""

    is_category: NDArray[np.bool_]
    medians: NDArray[np.float64]  # of all numbers, in place of missing ones
    marked: NDArray[np.int64]  # which numbers get a column that is 1 where they are missing
    kept: NDArray[np.int64]  # which numbers vary at all
    centre: NDArray[np.float64]  # of those kept
    spread: NDArray[np.float64]
    quantiles: NDArray[np.float64]  # of those kept, by row; no rows with standard scaling
    codes: NDArray[np.int64]  # of all categorical columns, one after the other
    code_starts: NDArray[np.int64]

    @classmethod
    def learn(cls, X: pd.DataFrame, scaling: str) -> Self:
        """Learn from training rows. ``scaling`` is "standard", or "quantile" for a normal distribution."""
        mask = category_mask(X)
        numbers = number_columns(X, mask)
        is_missing = np.isnan(numbers)
        medians = np.array([_median(column) for column in numbers.T], dtype=np.float64)
        share = is_missing.mean(axis=0)
        filled = np.where(is_missing, medians, numbers)
        kept = np.flatnonzero(np.ptp(filled, axis=0) > 0)
        filled = filled[:, kept]
        n = np.clip(len(X) // ROWS_PER_QUANTILE, FEWEST_QUANTILES, MOST_QUANTILES)
        shares = np.linspace(0, 1, n if scaling == "quantile" else 0)
        known = learn_codes(X, mask, MOST_CATEGORIES)
        return cls(
            mask,
            medians,
            np.flatnonzero((share > 0) & (share < 1)),
            kept,
            filled.mean(axis=0),
            filled.std(axis=0),
            np.quantile(filled, shares, axis=0),
            np.concatenate([np.empty(0, np.int64), *known]),
            np.cumsum([0, *map(len, known)], dtype=np.int64),
        )

    @property
    def n_numbers(self) -> int:
        """How many columns the numbers have, with those that mark missing ones."""
        return len(self.kept) + len(self.marked)

    @property
    def n_codes(self) -> int:
        """How many columns the categories would have one-hot."""
        return len(self.codes)

    def numbers(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return numbers on one scale, then 1 for each marked number that is missing, else 0."""
        numbers = number_columns(X, self.is_category)
        is_missing = np.isnan(numbers)
        filled = np.where(is_missing, self.medians, numbers)[:, self.kept]
        if len(self.quantiles):
            scaled = np.empty_like(filled)
            for j in range(filled.shape[1]):
                scaled[:, j] = _normal(filled[:, j], self.quantiles[:, j])
        else:
            scaled = (filled - self.centre) / self.spread
        return np.concatenate([scaled, is_missing[:, self.marked].astype(np.float64)], axis=1)

    def positions(self, X: pd.DataFrame) -> NDArray[np.int64]:
        """Return, for each categorical column, which of the one-hot columns is 1; ``n_codes`` if none."""
        starts = self.code_starts
        known = [self.codes[a:b] for a, b in pairwise(starts)]
        places = code_positions(X, self.is_category, known)
        return np.where(places < 0, self.n_codes, places + starts[:-1])

    def to_arrays(self) -> Arrays:
        """Return everything as arrays by name, for a file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return what :meth:`to_arrays` stored."""
        return cls(**{field.name: arrays[field.name] for field in fields(cls)})


def _median(column: NDArray[np.float64]) -> float:
    """Return the median of the values that are not missing; 0 if all are."""
    there = column[~np.isnan(column)]
    return float(np.median(there)) if len(there) else 0.0


def _normal(x: NDArray[np.float64], quantiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the normal quantile of each number's rank; of numbers that are equal, that of their middle."""
    from scipy.special import ndtri

    shares = np.linspace(0, 1, len(quantiles))
    from_below = np.interp(x, quantiles, shares)
    from_above = -np.interp(-x, -quantiles[::-1], -shares[::-1])
    ranks = (from_below + from_above) / 2
    return np.asarray(ndtri(np.clip(ranks, LEAST_SHARE, 1 - LEAST_SHARE)))
