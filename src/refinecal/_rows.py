"""Rows of a user's table: ordered by what they hold, repeated as weights say, split for validation.

Rows are put in an order that depends on their content alone before anything is drawn at random, so that
a fitted model does not depend on the order of the table, and a row of weight 2 is the same as two rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_REPEATED = 4  # whole weights are repeated literally up to this many times the rows


@dataclass(frozen=True, slots=True)
class Rows:
    """Features, labels, weights and groups of the same rows."""

    X: Any
    y: NDArray[Any]
    weights: NDArray[np.float64] | None = None
    groups: NDArray[Any] | None = None

    @property
    def n(self) -> int:
        return len(self.y)

    @property
    def total(self) -> float:
        """The number of rows, each counted as often as its weight says."""
        return float(self.n if self.weights is None else self.weights.sum())

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """Return the given rows, in that order."""
        from sklearn.utils import _safe_indexing

        return Rows(
            _safe_indexing(self.X, rows),
            self.y[rows],
            None if self.weights is None else self.weights[rows],
            None if self.groups is None else self.groups[rows],
        )

    def in_order(self) -> Rows:
        """Return the rows in an order that depends on their content alone; rows of weight 0 are gone.

        Whole weights become repeated rows, unless that makes far more of them.
        """
        rows, repeated = np.arange(self.n), self
        if self.weights is not None:
            rows = np.flatnonzero(self.weights)
            whole = (self.weights == np.round(self.weights)).all()
            if whole and self.weights.sum() <= MOST_REPEATED * len(rows):
                rows = np.repeat(np.arange(self.n), self.weights.astype(np.int64))
                repeated = replace(self, weights=None)
        keys: list[NDArray[Any]] = [
            content(self.X)[rows],
            np.unique(self.y, return_inverse=True)[1][rows],
        ]
        if repeated.weights is not None:
            keys.insert(0, repeated.weights[rows])
        return repeated.take(rows[np.lexsort(keys)])


def joined(first: Rows, second: Rows) -> Rows:
    """Return the rows of both."""
    weights = None
    if first.weights is not None or second.weights is not None:
        parts = [np.ones(r.n) if r.weights is None else r.weights for r in (first, second)]
        weights = np.concatenate(parts)
    return Rows(_stacked([first.X, second.X]), np.concatenate([first.y, second.y]), weights)


def _stacked(parts: list[Any]) -> Any:
    """Return tables of one kind, one below the other."""
    for name in ("pandas", "polars"):
        package = sys.modules.get(name)
        if package is not None and isinstance(parts[0], package.DataFrame):
            return package.concat(parts)
    if hasattr(parts[0], "tocsr"):
        from scipy.sparse import vstack

        return vstack(parts, format="csr")
    return np.concatenate([np.asarray(part) for part in parts])


def content(X: Any) -> NDArray[np.uint64]:
    """Return a number for each row that depends on nothing but what the row holds, whatever holds it."""
    if hasattr(X, "tocsr"):
        return _of_sparse(X.tocsr())
    if hasattr(X, "columns"):
        columns = [_of_column(X[name], j) for j, name in enumerate(X.columns)]
        return _scrambled(np.sum(columns, axis=0, dtype=np.uint64))
    try:
        values = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        return np.array([_of_object(row) for row in X], dtype=np.uint64)
    values = values.reshape(len(values), -1)
    total = np.zeros(len(values), dtype=np.uint64)
    for j in range(values.shape[1]):
        total += _mixed(values[:, j], j)
    return _scrambled(total)


def _of_column(column: Any, j: int) -> NDArray[np.uint64]:
    """Return a number for each entry of a column of a DataFrame."""
    values = column.to_numpy()
    if values.dtype.kind in "biuf":
        return _mixed(values.astype(np.float64), j)
    distinct, place = np.unique(values.astype(str), return_inverse=True)
    numbers = np.array([_of_object(value) for value in distinct.tolist()], dtype=np.uint64)
    return _scrambled(numbers[place] ^ _scrambled(np.asarray(j, dtype=np.uint64)))


def _of_sparse(X: Any) -> NDArray[np.uint64]:
    X.sum_duplicates()
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    kept = X.data != 0
    total = np.zeros(X.shape[0], dtype=np.uint64)
    parts = _mixed(X.data[kept].astype(np.float64), X.indices[kept])
    np.add.at(total, row[kept], parts)
    return _scrambled(total)


def _of_object(row: Any) -> int:
    items = row.tolist() if isinstance(row, np.ndarray) else row
    return int.from_bytes(blake2b(repr(items).encode(), digest_size=8).digest(), "little")


def _mixed(values: NDArray[np.float64], column: Any) -> NDArray[np.uint64]:
    """Return the bits of values, scrambled together with the number of their column."""
    values = np.where(np.isnan(values), np.nan, values + 0.0)  # one NaN, and -0 the same as 0
    bits = values.view(np.uint64)
    columns = np.asarray(column, dtype=np.uint64) + np.uint64(1)
    return _scrambled(bits ^ _scrambled(columns))


def _scrambled(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64 bits: the finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    bits = np.atleast_1d(bits) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits ^ (bits >> np.uint64(31)))


def hold_out(rows: Rows, fraction: float, seed: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return training and validation rows: stratified by label, or whole groups."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedShuffleSplit

    if rows.groups is not None:
        parts = max(2, round(1 / fraction))
        splitter = StratifiedGroupKFold(parts, shuffle=True, random_state=seed)
        train, val = next(splitter.split(np.zeros(rows.n), rows.y, rows.groups))
        return train, val
    codes, counts = np.unique(rows.y, return_inverse=True, return_counts=True)[1:]
    alone = counts[codes] == 1  # a class of one row is for training
    rest = np.flatnonzero(~alone)
    k, n_val = int((counts > 1).sum()), round(fraction * rows.n)
    n_val = max(n_val, k)
    if k == 0 or len(rest) - n_val < k:
        raise ValueError(
            f"n_samples={rows.n} is too few to hold some out for validation: each class needs two rows or "
            "more. Pass X_val= and y_val=."
        )
    splitter = StratifiedShuffleSplit(1, test_size=n_val, random_state=seed)
    train, val = next(splitter.split(np.zeros(len(rest)), codes[rest]))
    return np.sort(np.concatenate([rest[train], np.flatnonzero(alone)])), np.sort(rest[val])


def split_folds(
    rows: Rows, n_folds: Any, seed: Any
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield training and validation rows of each fold: stratified by label, groups kept together."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    kind = StratifiedKFold if rows.groups is None else StratifiedGroupKFold
    splitter = n_folds
    if not hasattr(n_folds, "split"):
        splitter = kind(n_folds, shuffle=True, random_state=seed)
    yield from splitter.split(np.zeros(rows.n), rows.y, rows.groups)
