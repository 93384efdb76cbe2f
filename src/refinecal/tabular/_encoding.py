"""Columns of other tables, read as those of the training rows were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra, warn
from refinecal.tabular._columns import Column, fail_number
from refinecal.tabular._days import days_of
from refinecal.tabular._drift import REST
from refinecal.tabular._values import Mark, numbers_by, texts_of

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa

MOST_UNSEEN = 100  # different values that are told of a column


@dataclass(frozen=True, slots=True)
class InvalidValue:
    """A value that is not what its column holds."""

    column: Column
    values: pa.ChunkedArray
    row: int
    mark: Mark | None

    def fail(self, first_row: int) -> NoReturn:
        """Raise, and say which value of which row it is."""
        column = self.column
        fail_number(column.name, self.values, self.row, first_row, self.mark, column.form)


def parse_numbers(
    column: Column, values: pa.ChunkedArray, comma: bool, unread: list[InvalidValue]
) -> NDArray[np.float64]:
    """Return numbers or days; the first value that is none is added to ``unread``."""
    is_day = column.form == "date"
    found = days_of(values) if is_day else numbers_by(values, column.decimal if comma else ".")
    if found.bad.size:
        unread.append(
            InvalidValue(column, values, int(found.bad[0]), column.decimal if comma else None)
        )
    if found.infinite:
        warn(f"column {column.name!r} holds infinite numbers, which count as missing")
    return found.values


def category_codes(column: Column, values: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return places among the categories, -1 for values that are missing or not among them."""
    return texts_of(values, column.is_truth).places(column.categories)


def unseen_counts(column: Column, values: pa.ChunkedArray) -> dict[str, int]:
    """Return how often values occur that are not among the categories, the most frequent first."""
    texts = texts_of(values, column.is_truth)
    new = np.flatnonzero(texts.known(column.categories) < 0)
    counts = texts.counts()[new]
    order = np.argsort(-counts, kind="stable")  # the first to appear first
    kept = order[:MOST_UNSEEN]
    names = texts.values.take(pa.array(new[kept])).to_pylist()
    found = dict(zip(names, counts[kept].tolist(), strict=True))
    rest = int(counts[order[MOST_UNSEEN:]].sum())
    return found | {REST: found.get(REST, 0) + rest} if rest else found
