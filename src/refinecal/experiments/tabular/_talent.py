"""Data sets of the TALENT benchmark: folders with ``N_*.npy``, ``C_*.npy``, ``y_*.npy`` and ``info.json``.

``N`` are numbers, ``C`` categories, ``y`` labels, each in the parts train, val and test, which are put
together here: the experiment makes its own splits. ``info.json`` has at least ``task_type`` ("binclass",
"multiclass" or "regression"), ``n_num_features`` and ``n_cat_features``. Either of ``N`` and ``C`` may be
absent.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal.experiments._pickled_arrays import read_array

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa

PARTS = ("train", "val", "test")
COUNTS = {"N": "n_num_features", "C": "n_cat_features"}
TASKS = ("binclass", "multiclass", "regression")
TARGET = "y"


def read_info(folder: Path) -> dict[str, Any]:
    """Return ``info.json``; raise if it lacks the kind of the task."""
    path = folder / "info.json"
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    task = info.get("task_type") if isinstance(info, dict) else None
    if task not in TASKS:
        raise ValueError(f"{path}: task_type is {task!r}, but must be one of {', '.join(TASKS)}")
    return dict(info)


def read_talent(folder: Path) -> tuple[pa.Table, list[str], list[str]]:
    """Return all rows of a data set, and the names of its numeric and of its categorical columns."""
    info = read_info(folder)
    if info["task_type"] == "regression":
        raise ValueError(f"{folder} is a regression task: refinecal predicts classes")
    y, sizes = _read_parts(folder, "y")
    if y.shape[1] != 1:
        raise ValueError(f"{folder}: y has {y.shape[1]} columns: there must be one label per row")
    columns: dict[str, Any] = {}
    names: dict[str, list[str]] = {"N": [], "C": []}
    for item, kind in COUNTS.items():
        if not (folder / f"{item}_train.npy").exists():
            continue
        values, rows = _read_parts(folder, item)
        if rows != sizes:
            raise ValueError(f"{folder}: {item} has {rows} rows in {PARTS}, but y has {sizes}")
        if info.get(kind, values.shape[1]) != values.shape[1]:
            raise ValueError(
                f"{folder}: {item} has {values.shape[1]} columns, but info.json says {kind} = {info[kind]}"
            )
        names[item] = [f"{item}_{j}" for j in range(values.shape[1])]
        as_column = _numbers if item == "N" else _texts
        columns |= {
            name: as_column(values[:, j], f"{folder}: column {j} of {item}")
            for j, name in enumerate(names[item])
        }
    if not columns:
        raise ValueError(
            f"{folder} has neither N_train.npy nor C_train.npy: there is nothing to learn from"
        )
    table = pa.table(columns | {TARGET: _texts(y[:, 0], f"{folder}: y")})
    return table, names["N"], names["C"]


def _read_parts(folder: Path, item: str) -> tuple[NDArray[Any], list[int]]:
    """Return the parts of one item below each other, and how many rows each has."""
    parts = []
    for part in PARTS:
        array = read_array(folder / f"{item}_{part}.npy")
        if array.ndim not in (1, 2):
            raise ValueError(
                f"{folder / f'{item}_{part}.npy'} has {array.ndim} axes, not rows and columns"
            )
        parts.append(array.reshape(len(array), -1) if array.size else array.reshape(len(array), 0))
    widths = [part.shape[1] for part in parts if len(part)]
    if len(set(widths)) != 1:
        raise ValueError(
            f"{folder}: the parts of {item} have {widths} columns: they must be the same"
        )
    return np.concatenate([part for part in parts if len(part)]), [len(part) for part in parts]


def _numbers(column: NDArray[Any], what: str) -> pa.Array:
    """Return numbers, NaN where they are missing."""
    if column.dtype.kind in "biuf":
        return pa.array(column)
    try:
        return pa.array(column.astype(np.float64))  # None becomes NaN
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} should be numbers: {error}") from None


def _texts(column: NDArray[Any], what: str) -> pa.Array:
    """Return categories: whole numbers as such, other values as texts, null where they are missing."""
    if column.dtype.kind in "biuf":
        return pa.array(column)
    if column.dtype.kind == "S":
        column = np.char.decode(column, "utf-8")
    if column.dtype.kind == "U":
        return pa.array(column.tolist(), pa.string())
    if column.dtype.kind != "O":
        raise ValueError(f"{what} has the type {column.dtype}, which cannot be a category")
    return pa.array([_text(value) for value in column.tolist()], pa.string())


def _text(value: Any) -> str | None:
    is_missing = value is None or (isinstance(value, float) and math.isnan(value))
    return None if is_missing else str(value)
