"""What the cells of a column say: numbers or texts, from text and from every Arrow type.

The same data give the same values whichever format they were stored in, and whichever way they are cut
into chunks: what a cell means depends on this cell, on its file and on what is known of its column, never
on the cells beside it.

Numbers may be written as people write them: 1,234.50 or 1.234,50 by the decimal mark of the file, $5, 5 EUR,
12 %, (5) for -5.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
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

DECIMAL = (
    b"refinecal.decimal"  # metadata of a table: the mark of its file, with ? if that is a guess
)

NUMBER = r"(?i)^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)$"
CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|RUB|TRY|ZAR|KRW"
UNIT = rf"(?:\p{{Sc}}|%|{CODES}|kr|zł)"
SPACES = r" '’\x{a0}\x{202f}"  # between thousands, beside the other mark
GROUPS = {  # numbers with something between thousands, by the decimal mark
    ".": rf"^[+-]?[1-9][0-9]{{0,2}}(?:[,{SPACES}][0-9]{{3}})+(?:\.[0-9]*)?$",
    ",": rf"^[+-]?[1-9][0-9]{{0,2}}(?:[.{SPACES}][0-9]{{3}})+(?:,[0-9]*)?$",
}
WHOLE = r"^\+?(-?[0-9]+)(?:\.0*)?$"
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

Mark = Literal[",", "."]


# ---- the decimal mark of a file ----------------------------------------------------------------------------

WITH_MARKS = re.compile(
    r"[^0-9.,+-]{0,5}([+-]?(?=.?[0-9])[0-9]*[.,][0-9.,]*)(?:[eE][+-]?[0-9]+)?[^0-9.,]{0,5}"
)
AMBIGUOUS = re.compile(r"[+-]?[1-9][0-9]{0,2}([.,])[0-9]{3}")  # a thousand, or three decimals
CERTAIN = re.compile(  # with the decimal mark as the only comma or point, or the other one as groups
    r"[+-]?(?:(?:[1-9][0-9]{0,2}(?:(?P<other>[.,])[0-9]{3})+|[0-9]*)(?!(?P=other))(?P<mark>[.,])[0-9]*"
    r"|[1-9][0-9]{0,2}(?P<group>[.,])[0-9]{3}(?:(?P=group)[0-9]{3})+)"
)
OTHER: dict[str, Mark] = {",": ".", ".": ","}


def find_decimal(cells: Iterable[str], delimiter: str = ",") -> tuple[Mark, bool]:
    """Return what stands before decimals, and whether any cell tells.

    1.234,5 and 1.234.567 tell a comma, 3.14 a point; 1,234 and 1.234 may be thousands, and tell nothing.

    >>> find_decimal(["3,14", "1.234,5"], ";"), find_decimal(["$1,234.50"]), find_decimal(["1,234"])
    ((',', True), ('.', True), ('.', False))
    """
    told, guessed = Counter[str](), Counter[str]()
    for cell in cells:
        found = WITH_MARKS.fullmatch(cell.strip())
        if not found:
            continue
        number = found[1]
        ambiguous = AMBIGUOUS.fullmatch(number)
        if ambiguous:
            guessed[ambiguous[1]] += 1
        elif certain := CERTAIN.fullmatch(number):
            told[certain["mark"] or OTHER[certain["group"]]] += 1
    if told["."] != told[","]:
        return "." if told["."] > told[","] else ",", True
    is_comma = delimiter == ";" and guessed[","] > guessed["."]
    return "," if is_comma else ".", False


def mark_table(table: pa.Table, decimal: Mark, is_certain: bool) -> pa.Table:
    """Return a table that says how its file writes decimals."""
    return table.replace_schema_metadata({DECIMAL: decimal.encode() + b"?" * (not is_certain)})


def decimal_of(table: pa.Table, learnt: Mark | None = None) -> Mark:
    """Return what stands before decimals in a table's texts; what was learnt counts where that is a guess."""
    mark = (table.schema.metadata or {}).get(DECIMAL, b".?").decode()
    return learnt if learnt and mark.endswith("?") else mark[:1]


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
    those that are infinite, and ``blanks`` has the texts that count as missing only here. ``units`` are what
    stands beside numbers, and ``formatted`` is the first number written with these, or in groups of digits.
    """

    values: NDArray[np.float64]
    bad: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    words: int = 0
    infinite: int = 0
    blanks: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    formatted: tuple[str, float] | None = None

    @property
    def missing(self) -> NDArray[np.bool_]:
        return np.isnan(self.values)


def numbers_of(column: pa.ChunkedArray, mark: Mark = ".") -> Numbers:
    """Return a column as numbers, each cell by itself; ``mark`` stands before the decimals of texts."""
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
    return replace(found, values=values, infinite=int(infinite.sum()))


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
    bare = _drop_units(text)
    grouped = pc.match_substring_regex(bare, GROUPS[mark])
    number = pc.if_else(grouped, _drop_groups(bare, mark), bare)
    if mark == ",":  # a point is none here, unless it stands between thousands
        has_point = pc.and_not(pc.match_substring(bare, "."), grouped)
        number = pc.if_else(has_point, "-", pc.replace_substring(number, ",", "."))
    good = pc.match_substring_regex(number, NUMBER)
    values = to_floats(pc.if_else(good, number, None))
    rows = rows_where(pc.invert(good))
    others = text.take(pa.array(rows))
    yes, no, blank = (_is_among(others, texts) for texts in (TRUE, FALSE, BLANKS))
    values[rows[yes]], values[rows[no]] = 1.0, 0.0
    units = pc.replace_substring_regex(text, rf"[0-9.,()+\-{SPACES}]", "")
    has_unit = pc.and_(good, pc.not_equal(text, bare))
    formatted = rows_where(pc.or_(has_unit, pc.and_(good, grouped)))
    return Numbers(
        values,
        bad=rows[~(yes | no | blank)],
        words=int((yes | no).sum()),
        blanks=tuple(pc.unique(others.filter(pa.array(blank))).to_pylist()),
        units=tuple(each for each in pc.unique(units.filter(has_unit)).to_pylist() if each),
        formatted=(text[formatted[0]].as_py(), values[formatted[0]]) if formatted.size else None,
    )


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


def _drop_units(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return amounts without what stands beside their numbers; (5) is -5."""
    text = pc.replace_substring_regex(text, r"^\(([^()+-]*)\)$", r"-\1")
    text = pc.replace_substring_regex(text, rf"^([+-]?)\s*{UNIT}\s*([+-]?[0-9.,])", r"\1\2")
    return pc.replace_substring_regex(text, rf"([0-9.,])[\s\x{{a0}}\x{{202f}}]*{UNIT}$", r"\1")


def _drop_groups(text: pa.ChunkedArray, mark: Mark) -> pa.ChunkedArray:
    return pc.replace_substring_regex(text, rf"[{re.escape(OTHER[mark])}{SPACES}]", "")


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


# ---- dates -----------------------------------------------------------------------------------------------

Order = Literal["ymd", "dmy", "mdy"]  # of year, month and day
ZONE = r":[0-9.:]*(?:Z|[+-][0-9]{2}:?[0-9]{2})$"
ISO = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?$"
)
CLOCK = r"(?:[T ,]+[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?: ?[AaPp][Mm])?)?$"
YEAR_LAST = r"^[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{4}" + CLOCK
YEAR_FIRST = r"^[0-9]{4}[./-][0-9]{1,2}[./-][0-9]{1,2}" + CLOCK
WITH_MONTH = r"^[0-9]{1,2}\.?[ -]\pL{3,9}\.?[ -][0-9]{4}" + CLOCK  # 31 Dec 2024, in any language
MICROSECONDS = 86_400_000_000  # in a day
PADDED = r"\10\2\3"  # RE2 knows nine groups: the first, and a zero


def days_of(column: pa.ChunkedArray, order: Order = "ymd") -> Numbers:
    """Return points in time as days since 1970-01-01 in UTC; texts as in ISO 8601, or in this order.

    Exact to the microsecond. Times without a zone are taken as UTC.
    """
    column = decode(column)
    if is_date(column.type):
        return Numbers(_days(column))
    if not is_text(column.type):
        return Numbers(np.full(len(column), np.nan), rows_where(column.is_valid()))
    given = strip_missing(column)
    text = _to_iso(given, order)
    good = pc.match_substring_regex(text, ISO)
    bad = rows_where(pc.invert(good))
    text = pc.replace_substring_regex(pc.if_else(good, text, None), r"(\.[0-9]{6})[0-9]+", r"\1")
    zoned = pc.match_substring_regex(text, ZONE)
    local, unread = _times(pc.if_else(zoned, None, text), pa.timestamp("us"))
    world, unread_too = _times(pc.if_else(zoned, text, None), pa.timestamp("us", "UTC"))
    values = np.where(np.isnan(local), world, local) + _half_days(given)
    return Numbers(values, np.sort(np.concatenate([bad, unread, unread_too])))


def _to_iso(text: pa.ChunkedArray, order: Order) -> pa.ChunkedArray:
    """Return dates as in ISO 8601, but for the half of the day, where they are not already."""
    years = {"ymd": YEAR_FIRST, "dmy": YEAR_LAST, "mdy": YEAR_LAST}[order]
    other = pc.and_not(pc.match_substring_regex(text, years), pc.match_substring_regex(text, ISO))
    if not pc.any(other).as_py():
        return text
    date, parts = r"^([0-9]+)[./-]([0-9]+)[./-]([0-9]+)", {"ymd": r"\1-\2-\3", "dmy": r"\3-\2-\1"}
    iso = pc.replace_substring_regex(text, date, parts.get(order, r"\3-\1-\2"))
    iso = pc.replace_substring_regex(iso, r"[T ,]+([0-9]+:)", r" \1")
    for _ in range(2):  # neighbours share the mark between them
        iso = pc.replace_substring_regex(iso, r"([- ])([0-9])([-: ]|$)", PADDED)
    iso = pc.replace_substring_regex(iso, r" ?[AaPp][Mm]$", "")
    return pc.if_else(other, iso, text)


def _half_days(text: pa.ChunkedArray) -> NDArray[np.float64]:
    """Return 1/2 where PM adds half a day to the hour, -1/2 where 12 AM is midnight; else 0."""
    late = pc.match_substring_regex(text, r"(?i)pm$")
    if not pc.any(pc.or_(late, pc.match_substring_regex(text, r"(?i)am$"))).as_py():
        return np.zeros(len(text))
    noon = pc.match_substring_regex(text, r"(?i) 12:[0-9:.]+ ?[ap]m$")
    early = pc.and_(noon, pc.match_substring_regex(text, r"(?i)am$"))
    steps = pc.if_else(early, -0.5, pc.if_else(pc.and_not(late, noon), 0.5, 0.0))
    return np.asarray(pc.fill_null(steps, 0.0).to_numpy(), dtype=np.float64)


def find_order(column: pa.ChunkedArray) -> Order | None:
    """Return the order in which all texts of a column are dates; ``None`` if they are not.

    Of 1/2/2024 it is not known which is the day: unless another row tells, it is the first with points and
    hyphens, and the second with slashes.
    """
    text = strip_missing(column).drop_null()
    if not len(text):
        return None
    if pc.all(pc.match_substring_regex(text, f"{ISO}|{YEAR_FIRST}")).as_py():
        return "ymd"
    if not pc.all(pc.match_substring_regex(text, YEAR_LAST)).as_py():
        return None
    parts = pc.extract_regex(text, r"^(?P<first>[0-9]+)[./-](?P<second>[0-9]+)")
    largest = [
        pc.max(pc.cast(pc.struct_field(parts, name), pa.int64())).as_py()
        for name in ("first", "second")
    ]
    if min(largest) > 12:
        return None
    if max(largest) > 12:
        return "dmy" if largest[0] > 12 else "mdy"
    return "mdy" if "/" in text[0].as_py() else "dmy"


def has_named_months(column: pa.ChunkedArray) -> bool:
    """Tell whether all texts are dates such as 31 Dec 2024, which are not read."""
    text = strip_missing(column).drop_null()
    return bool(len(text) and pc.all(pc.match_substring_regex(text, WITH_MONTH)).as_py())


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
