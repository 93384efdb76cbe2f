"""Hashes of rows by their content, so that what is drawn does not depend on the order of a table."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["hash_rows"]


def hash_rows(X: Any) -> NDArray[np.uint64]:
    """Return a hash of each row's content, the same for every type of table."""
    if hasattr(X, "tocsr"):
        return _hash_sparse(X.tocsr())
    if hasattr(X, "columns"):
        table = X.iloc if hasattr(X, "iloc") else X  # by position: names may repeat
        columns = [table[:, j].to_numpy() for j in range(X.shape[1])]
    else:
        try:
            values = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError):
            return np.array([_hash_object(row) for row in X], dtype=np.uint64)
        columns = list(values.reshape(len(values), -1).T)
    total = np.zeros(len(X), dtype=np.uint64)
    for j, column in enumerate(columns):
        if column.dtype.kind in "biuf":
            total += _hash_values(column.astype(np.float64, copy=False), j)
        else:
            texts, place = np.unique(column.astype(str), return_inverse=True)
            numbers = np.array([_hash_object(text) for text in texts.tolist()], dtype=np.uint64)
            total += _scramble(numbers[place] ^ _scramble(np.asarray(j, dtype=np.uint64)))
    return _scramble(total)


def _hash_sparse(X: Any) -> NDArray[np.uint64]:
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    kept = X.data != 0
    total = np.zeros(X.shape[0], dtype=np.uint64)
    parts = _hash_values(X.data[kept].astype(np.float64), X.indices[kept])
    np.add.at(total, row[kept], parts)
    return _scramble(total)


def _hash_object(row: Any) -> int:
    items = row.tolist() if isinstance(row, np.ndarray) else row
    return int.from_bytes(blake2b(repr(items).encode(), digest_size=8).digest(), "little")


def _hash_values(values: NDArray[np.float64], column: Any) -> NDArray[np.uint64]:
    """Return the bits of values, scrambled together with the number of their column."""
    values = np.where(np.isnan(values), np.nan, values + 0.0)  # one NaN, and -0 the same as 0
    bits = values.view(np.uint64)
    columns = np.asarray(column, dtype=np.uint64) + np.uint64(1)
    return _scramble(bits ^ _scramble(columns))


def _scramble(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64 bits: the finalizer of SplitMix64 (Steele, Lea, Flood 2014)."""
    bits = np.atleast_1d(bits) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits ^ (bits >> np.uint64(31)))
