"""Points in time as numbers: days since 1970-01-01, from text and from Arrow's types."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal.tabular._values import (
    Numbers,
    decode,
    is_date,
    is_text,
    rows_where,
    strip_missing,
    to_floats,
)

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa
    import pyarrow.compute as pc

ZONE = r":[0-9.:]*(?:Z|[+-][0-9]{2}:?[0-9]{2})$"
DATE = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?$"
)
OTHER_DATE = (  # 31.12.2024, 12/31/2024, 2024/12/31, 31 Dec 2024, perhaps with a time
    r"^(?:[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{4}|[0-9]{4}[./-][0-9]{1,2}[./-][0-9]{1,2}"
    r"|[0-9]{1,2}\.?[ -]\pL{3,9}\.?[ -][0-9]{4})(?:[T ,]+[0-9]{1,2}:[0-9]{2}.*)?$"
)
MICROSECONDS = 86_400_000_000  # in a day


def days_of(column: pa.ChunkedArray) -> Numbers:
    """Return points in time as days since 1970-01-01 in UTC; texts as in ISO 8601.

    Exact to the microsecond. Times without a zone are taken as UTC.
    """
    column = decode(column)
    if is_date(column.type):
        return Numbers(_days(column))
    if not is_text(column.type):
        return Numbers(np.full(len(column), np.nan), rows_where(column.is_valid()))
    text = strip_missing(column)
    good = pc.match_substring_regex(text, DATE)
    bad = rows_where(pc.invert(good))
    text = pc.replace_substring_regex(pc.if_else(good, text, None), r"(\.[0-9]{6})[0-9]+", r"\1")
    zoned = pc.match_substring_regex(text, ZONE)
    local, unread = _times(pc.if_else(zoned, None, text), pa.timestamp("us"))
    world, unread_too = _times(pc.if_else(zoned, text, None), pa.timestamp("us", "UTC"))
    values = np.where(np.isnan(local), world, local)
    return Numbers(values, np.sort(np.concatenate([bad, unread, unread_too])))


def _times(
    text: pa.ChunkedArray, kind: pa.DataType
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return texts as days, and the first row that is no day of the calendar."""
    try:
        return _days(pc.cast(text, kind)), np.empty(0, np.int64)
    except pa.ArrowInvalid:
        return np.full(len(text), np.nan), np.array([_first_failure(text, kind)])


def _first_failure(text: pa.ChunkedArray, kind: pa.DataType) -> int:
    """Return the first row that cannot be cast, which halving finds; there must be one."""
    low, high = 0, len(text)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            pc.cast(text.slice(low, middle - low), kind)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _days(column: pa.ChunkedArray) -> NDArray[np.float64]:
    zone = getattr(column.type, "tz", None)
    times = pc.cast(column, pa.timestamp("us", zone), safe=False)
    return to_floats(pc.cast(times, pa.int64())) / MICROSECONDS


def looks_like_dates(column: pa.ChunkedArray) -> bool:
    """Tell whether all texts seem to be dates, though perhaps in an order that is not read."""
    text = strip_missing(column).drop_null()
    if not len(text) or not pc.match_substring_regex(text[0], OTHER_DATE).as_py():
        return False
    return bool(pc.all(pc.match_substring_regex(text, OTHER_DATE)).as_py())
