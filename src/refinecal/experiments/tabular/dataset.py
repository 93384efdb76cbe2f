"""A data set as the models see it, by the rules of the paper's appendix F, and its splits.

The rules are the same for every set: rows with a missing number are left out, a missing category is a
separate category, sets of fewer than 1,000 rows are refused, and of more than 100,000 rows that many are
drawn at random with a fixed seed, not stratified. Rows without a label are left out, too, and columns that
:class:`refinecal.tabular.schema.Schema` does not use, such as constant ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


ROWS_SEED = 0  # of the draw of rows; the paper's code draws the same ones


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A data set ready for models, after the rules.

    ``dropped`` has what the rules left out: how many rows were ``unlabelled``, had ``missing_numbers`` or
    were not drawn (``subsampled``); which ``columns`` and why; ``classes`` without rows; and columns of which
    only the most frequent ``categories`` are kept apart.
    """

    name: str
    X: pd.DataFrame  # float64 numbers and categories of integers, none missing
    y: NDArray[np.int64]  # labels as places in classes, each of which occurs
    classes: list[str]
    dropped: dict[str, Any]


def apply_rules(
    name: str,
    table: pa.Table,
    target: str,
    lists: Mapping[str, Any],
    min_rows: int,
    max_rows: int,
) -> Dataset:
    """Apply the rules to a table; ``lists`` has the columns that are known to be numeric or categorical."""
    from refinecal.tabular.schema import Schema

    schema = Schema.infer(table, target, **lists)
    labelled = schema.has_label(table)
    table = table.filter(labelled)
    X, y = schema.encode(table), schema.labels(table)
    gaps = X.select_dtypes("number").isna()
    complete = np.flatnonzero(~gaps.to_numpy().any(axis=1))
    dropped = {
        "unlabelled": int((~labelled).sum()),
        "missing_numbers": len(y) - len(complete),
        "subsampled": max(0, len(complete) - max_rows),
        "columns": {each.name: each.note for each in schema.columns if each.kind == "unused"},
    }
    if len(complete) < min_rows:
        raise ValueError(_too_few(name, len(complete), min_rows, dropped, gaps))
    rows = complete
    if len(complete) > max_rows:
        rows = complete[np.random.default_rng(ROWS_SEED).permutation(len(complete))[:max_rows]]
    kept, codes = np.unique(y[rows], return_inverse=True)
    if len(kept) < 2:
        raise ValueError(
            f"data set {name!r}: all rows that are left are of class {schema.classes[kept[0]]!r}"
        )
    dropped["classes"] = [each for i, each in enumerate(schema.classes) if i not in kept]
    dropped["categories"] = {
        each.name: each.note
        for each in schema.features
        if each.kind == "category" and not each.is_complete
    }
    X = _with_missing_categories(X.iloc[rows].reset_index(drop=True))
    return Dataset(name, X, codes.astype(np.int64), [schema.classes[i] for i in kept], dropped)


def _too_few(
    name: str, n: int, min_rows: int, dropped: Mapping[str, Any], gaps: pd.DataFrame
) -> str:
    """Say that a set has too few rows, and what they lack."""
    reasons = []
    if dropped["missing_numbers"]:
        column, most = str(gaps.sum().idxmax()), int(gaps.sum().max())
        reasons.append(f"{dropped['missing_numbers']} lack a number, {most} of them {column!r}")
    if dropped["unlabelled"]:
        reasons.append(f"{dropped['unlabelled']} lack a label")
    why = f" ({'; '.join(reasons)})" if reasons else ""
    columns = "leave out columns that are often missing, or " if dropped["missing_numbers"] else ""
    return (
        f"data set {name!r} has {n} complete rows{why}: at least {min_rows} are needed; {columns}"
        f"take smaller sets with --min-rows {max(n, 1)}"
    )


def _with_missing_categories(X: pd.DataFrame) -> pd.DataFrame:
    """Give missing categories a separate number, the next after those of the others."""
    import pandas as pd

    for name in X.select_dtypes("category").columns[X.select_dtypes("category").isna().any()]:
        codes, k = X[name].cat.codes.to_numpy(), len(X[name].cat.categories)
        dtype = pd.CategoricalDtype(np.arange(k + 1))
        X[name] = pd.Categorical.from_codes(np.where(codes < 0, k, codes), dtype=dtype)
    return X


Indices = NDArray[np.int64]

TEST, VALIDATION = 0.20, 0.16  # parts of the rows


def split(y: ArrayLike, number: int, seed: int = 0) -> tuple[Indices, Indices, Indices]:
    """Return the rows of split ``number`` to train, validate and test on: 64%, 16% and 20%, drawn at random.

    The same labels, number and seed give the same rows, for every method. Each class has a training row, if
    there are as many training rows as classes: where the draw left one out, one of its rows is exchanged with
    a training row of a class that has others.

    >>> train, val, test = split([0, 1] * 50, number=0)
    >>> len(train), len(val), len(test)
    (64, 16, 20)
    """
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise TypeError(
            f"y has shape {labels.shape} and type {labels.dtype}: it must be integer labels"
        )
    if min(number, seed) < 0:
        raise ValueError(f"number is {number} and seed {seed}: neither may be negative")
    n = len(labels)
    n_test, n_val = round(TEST * n), round(VALIDATION * n)
    if n_val < 1:
        raise ValueError(f"y has {n} rows: too few to split in three")
    order = np.random.default_rng([seed, number]).permutation(n)
    n_train = n - n_test - n_val
    _bring_all_classes(labels, order, n_train)
    return order[:n_train], order[n_train : n_train + n_val], order[n_train + n_val :]


def split_fold(
    y: ArrayLike, number: int, seed: int, n_folds: int, fold: int
) -> tuple[Indices, Indices, Indices]:
    """Return the rows of one of ``n_folds`` folds: stratified, of all rows of a split but its test rows.

    >>> parts = [split_fold([0, 1] * 50, 0, 0, 5, fold) for fold in range(5)]
    >>> sorted(int(row) for _, val, _ in parts for row in val) == sorted([*parts[0][0], *parts[0][1]])
    True
    """
    *rest, test = split(y, number, seed)
    rows = np.concatenate(rest)  # in random order
    rows = rows[np.argsort(np.asarray(y)[rows], kind="stable")]
    held_out = np.arange(len(rows)) % n_folds == fold
    return rows[~held_out], rows[held_out], test


def _bring_all_classes(labels: NDArray[Any], order: Indices, n_train: int) -> None:
    """Exchange rows until the first ``n_train`` of the order have all classes, or no class to spare."""
    classes, codes = np.unique(labels, return_inverse=True)
    counts = np.bincount(codes[order[:n_train]], minlength=len(classes))
    for absent in np.flatnonzero(counts == 0):
        spare = np.flatnonzero(counts[codes[order[:n_train]]] > 1)
        if not spare.size:
            return
        here = spare[0]  # the order is random already
        there = n_train + np.flatnonzero(codes[order[n_train:]] == absent)[0]
        counts[codes[order[here]]] -= 1
        counts[absent] += 1
        order[[here, there]] = order[[there, here]]
