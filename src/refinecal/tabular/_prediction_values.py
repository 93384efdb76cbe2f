"""The columns of a file of predictions as arrays: labels, values, weights and subgroups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.arrays import check_threads, map_threads
from refinecal._core.errors import needs_extra
from refinecal.tabular._prediction_columns import Choice, sorted_labels
from refinecal.tabular.values import (
    Decimals,
    Mark,
    decode,
    is_number,
    is_text,
    numbers_of,
    texts_of,
)

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa
    import pyarrow.compute as pc

MOST_CLASSES = 10_000
MOST_RANGE = 2**20  # whole numbers this close together are counted, not sorted
NO_PREDICTION = ": if this is no column of predictions, name those with --columns"


def labels_of(
    column: pa.ChunkedArray, target: str, where: str
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the place of each row's label among the sorted labels, -1 where it is missing."""
    if pa.types.is_integer(column.type) and column.null_count == 0 and len(column):
        # Not by to_numpy, which imports pandas.
        counted = _labels_of_integers(
            np.concatenate([np.from_dlpack(chunk) for chunk in column.chunks])
        )
        if counted is not None:
            return counted
    texts = texts_of(column)
    known = sorted_labels(texts.values.to_pylist()) if len(texts.values) else []
    if not known:
        raise ValueError(f"target {target!r} is missing in every row of {where}")
    if len(known) > MOST_CLASSES:
        raise ValueError(
            f"target {target!r} has {len(known)} different values, such as {known[0]!r}: labels are classes, "
            "not measurements"
        )
    return texts.places(known), known


def _labels_of_integers(values: NDArray[Any]) -> tuple[NDArray[np.int64], list[str]] | None:
    """Return what :func:`labels_of` does for whole numbers that are close together."""
    low, high = int(values.min()), int(values.max())
    if high - low >= MOST_RANGE:
        return None
    shifted = values.astype(np.int64) - low
    seen = np.flatnonzero(np.bincount(shifted))
    if len(seen) > MOST_CLASSES:
        return None
    places = np.zeros(high - low + 1, np.int64)
    places[seen] = np.arange(len(seen))
    same = len(seen) == len(places)  # as they are
    return (shifted if same else places[shifted]), [str(low + value) for value in seen.tolist()]


def align_labels(
    labels: NDArray[np.int64], known: list[str], classes: tuple[str, ...]
) -> NDArray[np.int64]:
    """Return labels as places among the classes."""
    if tuple(known) == classes:
        return labels
    places = np.array([*(classes.index(label) for label in known), -1], dtype=np.int64)
    return places[labels]


def values_of(table: pa.Table, choice: Choice, logits: bool, where: str) -> NDArray[Any]:
    """Return the predictions; columns lie behind one another in memory, as in the file."""
    decimals = Decimals.read(table)
    kinds = {table.schema.field(name).type for name in choice.columns}
    dtype = np.float32 if kinds <= {pa.float32(), pa.float16()} else np.float64
    columns = np.empty((len(choice.columns), len(table)), dtype)

    def fill(j: int) -> None:
        name = choice.columns[j]
        _fill(table[name], columns[j], name, decimals.find(name, choice.columns), where)

    map_threads(fill, range(len(columns)), columns.size, check_threads(None))
    if len(columns) > 1:
        return columns.T
    if not choice.flipped:
        return np.asarray(columns[0])
    return np.asarray(-columns[0] if logits else 1 - columns[0])


def _fill(column: pa.ChunkedArray, out: NDArray[Any], name: str, mark: Mark, where: str) -> None:
    column = decode(column)
    if pa.types.is_floating(column.type) and column.null_count == 0:
        start = 0
        for chunk in column.chunks:  # one after the other: no copy of the whole
            out[start : start + len(chunk)] = np.from_dlpack(chunk)
            start += len(chunk)
        return
    out[:] = _numbers(column, name, mark, where, NO_PREDICTION)


def _numbers(
    column: pa.ChunkedArray, name: str, mark: Mark, where: str, cure: str = ""
) -> NDArray[np.float64]:
    """Return a column of numbers, infinite ones too, or say which row is none."""
    if not (is_text(column.type) or is_number(column.type)):
        raise ValueError(f"column {name!r} of {where} holds {column.type}, not numbers")
    try:
        values = pc.cast(column, pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        found = numbers_of(column, mark)
        if found.bad.size:
            row = int(found.bad[0])
            raise ValueError(
                f"row {row + 1} of column {name!r} of {where} is {column[row].as_py()!r}, which is no "
                f"number{cure}"
            ) from None
        values = found.values
    missing = np.flatnonzero(np.isnan(values))
    if missing.size:
        raise ValueError(
            f"row {missing[0] + 1} of column {name!r} of {where} is missing: drop the rows without it "
            f"({missing.size} of {len(values)})"
        )
    return np.asarray(values)


def weights_of(table: pa.Table, name: str, where: str) -> NDArray[np.float64]:
    return _numbers(decode(table[name]), name, Decimals.read(table).find(name), where)


def groups_of(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return the subgroups as texts."""
    texts = texts_of(column)
    return np.array([*texts.values.to_pylist(), None], dtype=object)[texts.codes]
