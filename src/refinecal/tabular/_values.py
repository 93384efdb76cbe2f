"""What the cells of a column say: numbers or texts, from text and from every Arrow type.

The same data give the same values whichever format they were stored in, and whichever way they are cut
into chunks: what a cell means depends on this cell, on its file and on what is known of its column, never
on the cells beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa
    import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable

# Missing wherever it stands, quoted or not. "None" is not among them: it may be a class or a category.
MISSING = (
    *("", "?", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>"),
    *("NaN", "nan", "NAN", "-NaN", "-nan", "null", "NULL", "Null"),
)
# Missing in a column of numbers, among them what spreadsheets write for numbers that they lack.
BLANKS = (
    *("None", "none", "NONE", "-", "--", ".", "na", "n.a.", "N.A."),
    *("#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?", "#NULL!"),
)
TRUE, FALSE = ("True", "true", "TRUE"), ("False", "false", "FALSE")
DECIMAL_COMMA = {b"refinecal.decimal": b","}  # metadata of tables where 3,14 is a number

NUMBER = r"(?i)^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)$"
WITH_COMMA = r"^([+-]?[0-9]*),([0-9]+(?:[eE][+-]?[0-9]+)?)$"
GROUPED = r"^[+-]?[1-9][0-9]{0,2}[.,][0-9]{3}$"  # 1.234 may be a thousand, as 1,234 may be
WHOLE = r"^\+?(-?[0-9]+)(?:\.0*)?$"
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

Mark = Literal[",", ".", ""]  # before decimals; "" if it is not known which of the two


def has_decimal_comma(table: pa.Table) -> bool:
    """Tell whether a table comes from a file in which 3,14 is a number."""
    return DECIMAL_COMMA.items() <= (table.schema.metadata or {}).items()


# ---- types -----------------------------------------------------------------------------------------------


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a type is a string of some sort."""
    views = getattr(pa.types, "is_string_view", None)
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or (views is not None and views(kind))
    )


def is_number(kind: pa.DataType) -> bool:
    """Tell whether a type holds numbers: truth values and lengths of time are numbers too."""
    tests = ("integer", "floating", "decimal", "boolean", "duration", "time")
    return any(getattr(pa.types, f"is_{test}")(kind) for test in tests)


def is_date(kind: pa.DataType) -> bool:
    """Tell whether a type holds points in time."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def decode(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column whose values stand in it: dictionaries looked up, texts as plain strings."""
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    if is_text(column.type) and not pa.types.is_string(column.type):
        column = pc.cast(column, pa.string())
    return column


# ---- numbers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column as numbers, NaN where they are missing.

    ``bad`` has the rows that are no numbers, ``words`` counts those that are true or false, ``infinite``
    those that are infinite, and ``blanks`` has the texts that count as missing only here.
    """

    values: NDArray[np.float64]
    bad: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    words: int = 0
    infinite: int = 0
    blanks: tuple[str, ...] = ()

    @property
    def missing(self) -> NDArray[np.bool_]:
        return np.isnan(self.values)


def numbers_of(column: pa.ChunkedArray, comma: bool = False) -> Numbers:
    """Return a whole column as numbers; with ``comma``, 3,14 is one, unless 3.14 stands beside it."""
    return numbers_by(column, (mark_of(column) or ".") if comma else ".")


def numbers_by(column: pa.ChunkedArray, mark: Mark) -> Numbers:
    """Return numbers that are written with this mark, each cell by itself.

    If the mark is not known, 3,14 and 3.14 are the same number, and 1,234 and 1.234 are none: each may be
    a thousand.
    """
    column = decode(column)
    if is_text(column.type):
        found = _parse_numbers(column, mark)
    elif is_number(column.type):
        found = Numbers(_convert_numbers(column))
    else:
        found = Numbers(np.full(len(column), np.nan), rows_where(column.is_valid()))
    infinite = np.isinf(found.values)
    if not infinite.any():
        return found
    values = np.where(infinite, np.nan, found.values)
    return Numbers(values, found.bad, found.words, int(infinite.sum()), found.blanks)


def _convert_numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    kind = column.type
    if pa.types.is_decimal(kind) or pa.types.is_float32(kind):
        # By way of texts: 0.1 is then the same number as in CSV, down to the last bit.
        return to_floats(pc.cast(column, pa.string()))
    if not (pa.types.is_duration(kind) or pa.types.is_time(kind)):
        return to_floats(column)
    whole = pa.int32() if kind.bit_width == 32 else pa.int64()
    return to_floats(pc.cast(column, whole)) / PER_SECOND[kind.unit]


def _parse_numbers(column: pa.ChunkedArray, mark: Mark) -> Numbers:
    values = _parse_plain(column, mark)
    if values is not None:
        return Numbers(values)
    text = strip_missing(column)
    good = _match_numbers(text, mark)
    values = to_floats(_replace_commas(pc.if_else(good, text, None)))
    rows = rows_where(pc.invert(good))
    others = text.take(pa.array(rows))
    yes, no, blank = (_is_among(others, texts) for texts in (TRUE, FALSE, BLANKS))
    values[rows[yes]], values[rows[no]] = 1.0, 0.0
    seen = pc.unique(others.filter(pa.array(blank))).to_pylist()
    return Numbers(values, rows[~(yes | no | blank)], int((yes | no).sum()), 0, tuple(seen))


def _parse_plain(column: pa.ChunkedArray, mark: Mark) -> NDArray[np.float64] | None:
    """Return plain numbers, the usual and fastest; ``None`` if some need a closer look."""
    if mark != "." and pc.any(pc.match_substring(column, ".")).as_py():
        return None
    try:
        values = to_floats(column)
    except pa.ArrowInvalid:
        return None
    # To Arrow, nan(x) is a number too.
    return values if int(np.isnan(values).sum()) == column.null_count else None


def _match_numbers(text: pa.ChunkedArray, mark: Mark) -> pa.ChunkedArray:
    """Tell which texts are numbers with this mark; null where they are missing."""
    if mark == ".":
        return pc.match_substring_regex(text, NUMBER)
    number = pc.match_substring_regex(_replace_commas(text), NUMBER)
    other = pc.match_substring(text, ".") if mark else pc.match_substring_regex(text, GROUPED)
    return pc.and_not(number, other)


def _replace_commas(text: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.replace_substring_regex(text, WITH_COMMA, r"\1.\2")


def mark_of(column: pa.ChunkedArray) -> Mark:
    """Return what stands before the decimals of a whole column; "" if nothing in it tells.

    A point does, but for those of 1.234, which may be a thousand; else a comma does.
    """
    column = decode(column)
    if not is_text(column.type):
        return ""
    text = strip_missing(column)
    if pc.any(pc.and_not(_match_points(text), pc.match_substring_regex(text, GROUPED))).as_py():
        return "."
    return "," if pc.any(pc.match_substring_regex(text, WITH_COMMA)).as_py() else ""


def has_points(column: pa.ChunkedArray) -> bool:
    """Tell whether a whole column has texts that are numbers with a point."""
    column = decode(column)
    return is_text(column.type) and bool(pc.any(_match_points(strip_missing(column))).as_py())


def marks_of(table: pa.Table) -> dict[str, Mark]:
    """Return what stands before the decimals of each column, if that can be a comma.

    Where a column does not tell, the others do if they agree: the numbers of a file are written one way.
    """
    if not has_decimal_comma(table):
        return {}
    own = {name: mark_of(table[name]) for name in table.column_names}
    told = set(own.values()) - {""}
    common: Mark = ""
    if len(told) == 1:
        common = told.pop()
    elif not told and any(has_points(table[name]) for name in own):
        common = "."  # 1.234 here and there, and nothing against it
    return {name: mark or common for name, mark in own.items()}


def _match_points(text: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.and_(pc.match_substring(text, "."), pc.match_substring_regex(text, NUMBER))


def to_floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Return what can be cast as new float64, NaN where it is null."""
    floats = pc.cast(column, pa.float64(), safe=not pa.types.is_integer(column.type))
    return np.array(floats.to_numpy(), dtype=np.float64)


def rows_where(mask: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the places where a mask is true, which it is not where it is null."""
    return np.flatnonzero(pc.fill_null(mask, False).to_numpy())


def _is_among(text: pa.ChunkedArray, texts: Iterable[str]) -> NDArray[np.bool_]:
    found = pc.is_in(text, value_set=pa.array(texts, pa.string()))
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)


def strip_missing(text: Any) -> Any:
    """Return texts without spaces around them, null where they say that something is missing."""
    text = pc.utf8_trim_whitespace(text)
    absent = pc.is_in(text, value_set=pa.array(MISSING, pa.string()))
    return pc.if_else(absent, None, text)


# ---- texts -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Texts:
    """A column as places in a list of different texts; -1 where it is missing."""

    codes: NDArray[np.int64]
    values: pa.Array  # of strings, each once, in the order in which they appear

    def counts(self) -> NDArray[np.int64]:
        """Return how often each value occurs."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.values))

    def known(self, texts: Iterable[str]) -> NDArray[np.int64]:
        """Return each value's place among known texts; -1 for others."""
        found = pc.index_in(self.values, value_set=pa.array(texts, pa.string()))
        return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)

    def places(self, known: Iterable[str]) -> NDArray[np.int64]:
        """Return each row's place among known texts; -1 for others and where it is missing."""
        return np.append(self.known(known), -1)[self.codes]  # the last is for those missing


def texts_of(column: pa.ChunkedArray, truth: bool | None = None) -> Texts:
    """Return a column as texts, written one way: 3, 3.0 and ' 3' are '3'; true and TRUE are 'True'.

    The latter only if ``truth``; by default, if there is nothing but true and false.
    """
    column = decode(column)
    if not is_text(column.type):
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), None, column)
        column = pc.cast(column, pa.string())
    encoded = column.dictionary_encode().unify_dictionaries()
    if encoded.num_chunks == 0:
        return Texts(np.empty(0, np.int64), pa.array([], pa.string()))
    indices = pa.chunked_array([chunk.indices for chunk in encoded.chunks])
    codes = pc.fill_null(indices, -1).to_numpy().astype(np.int64)
    same = _canonicalize(encoded.chunk(0).dictionary, truth).dictionary_encode()
    merged = np.asarray(pc.fill_null(same.indices, -1).to_numpy(zero_copy_only=False))
    return Texts(np.append(merged, -1).astype(np.int64)[codes], same.dictionary)


def _canonicalize(values: pa.Array, truth: bool | None) -> pa.Array:
    values = pc.replace_substring_regex(strip_missing(values), WHOLE, r"\1")
    values = pc.if_else(pc.equal(values, "-0"), "0", values)
    yes, no = (pc.is_in(values, value_set=pa.array(words)) for words in (TRUE, FALSE))
    if truth is None:
        truth = pc.all(pc.or_(pc.or_(yes, no), values.is_null())).as_py()
    if truth:
        values = pc.if_else(yes, "True", pc.if_else(no, "False", values))
    return values
