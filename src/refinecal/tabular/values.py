"""What the cells of a column say: numbers or texts, from text and from every Arrow type.

The same data give the same values whichever format they were stored in, and whichever way they are cut
into chunks: what a cell means depends on this cell, on its file and on what is known of its column, never
on the cells beside it.

Numbers may be written as people write them: 1,234.50 or 1.234,50 by the decimal mark of the file, $5, 5 EUR,
12 %, (5) for -5.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa
    import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
MINUS = "\N{MINUS SIGN}"
TRUE, FALSE = ("True", "true", "TRUE"), ("False", "false", "FALSE")

NUMBER = r"(?i)^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)$"
CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|RUB|TRY|ZAR|KRW"
UNIT = rf"(?:(?:US|[ACRS]|HK|NZ)?\p{{Sc}}|%|{CODES}|kr\.?|zł|Kč|Ft|Fr\.?|Rs\.?)"
SAME_UNIT = {"$": "USD", "US$": "USD", "€": "EUR", "£": "GBP", "R$": "BRL", "₹": "INR", "Rs": "INR"}
BLANK = r" \x{a0}\x{202f}"  # spaces of several widths
WHOLE = r"^\+?(-?[0-9]+)(?:\.(?:0{0,2}|0{4,}))?$"  # not 1.000, which may be a thousand
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

Mark = Literal[",", "."]  # before decimals
OTHER: dict[str, Mark] = {",": ".", ".": ","}


def _groups(separator: str, decimal: str) -> str:
    return rf"[1-9][0-9]{{0,2}}(?:[{separator}][0-9]{{3}})+(?:{decimal}[0-9]*)?"


GROUPS = {  # numbers with one thing between their thousands, by the decimal mark; 1,23,456 is Indian
    mark: r"^[+-]?(?:"
    + "|".join(_groups(each, re.escape(mark)) for each in (re.escape(OTHER[mark]), BLANK, "'’"))
    + (r"|[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}(?:\.[0-9]*)?" if mark == "." else "")
    + ")$"
    for mark in OTHER
}


# ---- the decimal marks of a file ---------------------------------------------------------------------------

AMOUNT = re.compile(  # a number, perhaps with a unit before or behind it
    r"\(?[+-]?\s*[^\d.,()+-]{0,5}([+-]?(?:\d[\d.,'’ \u00a0\u202f]*|[.,]\d+)(?:[eE][+-]?\d+)?)"
    r"[^\d.,()+-]{0,5}\)?"
)
IP_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
AMBIGUOUS = re.compile(r"[+-]?[1-9]\d{0,2}([.,])\d{3}")  # a thousand, or three decimals
SPACED = re.compile(r"[+-]?[1-9]\d{0,2}([ '’\u00a0\u202f])\d{3}(?:\1\d{3})*([.,]?)\d*")
CERTAIN = re.compile(  # with the decimal mark as the only comma or point, or the other one in groups
    r"[+-]?(?:(?:[1-9]\d{0,2}(?:(?P<other>[.,])\d{3})+|\d*)(?!(?P=other))(?P<mark>[.,])\d*(?:[eE][+-]?\d+)?"
    r"|[1-9]\d{0,2}(?P<group>[.,])\d{3}(?:(?P=group)\d{3})+)"
)


def find_mark(cells: Iterable[str]) -> str:
    """Return what stands before the decimals of a column of numbers; "" if nothing tells, or it has texts.

    1.234,5 and 1.234.567 tell a comma, 3.14 a point. 1.234 may be a thousand or have three decimals; beside
    whole numbers it is a thousand, if all of these are below 1000.

    >>> find_mark(["3,14", "2"]), find_mark(["$1,234.50"]), find_mark(["1.234"])
    (',', '.', '')
    >>> find_mark(["1.234", "87", "2.500"])
    ','
    """
    told, unsure, whole = set(), [], []
    for cell in cells:
        text = cell.strip().replace(MINUS, "-")
        found = None if IP_ADDRESS.fullmatch(text) else AMOUNT.fullmatch(text)
        if not found and text not in MISSING and text not in BLANKS:
            return ""
        number = found[1].strip() if found else ""
        if not number:
            continue
        if spaced := SPACED.fullmatch(number):
            told.add(spaced[2])
        elif ambiguous := AMBIGUOUS.fullmatch(number):
            unsure.append(ambiguous[1])
        elif certain := CERTAIN.fullmatch(number):
            told.add(certain["mark"] or OTHER[certain["group"]])
        elif number.lstrip("+-").isdigit():
            whole.append(number)
        else:
            return ""
    told.discard("")
    if not told and len(unsure) > 1 and len(set(unsure)) == 1 and whole:
        return OTHER[unsure[0]] if all(abs(int(each)) < 1000 for each in whole) else ""
    return told.pop() if len(told) == 1 else ""


@dataclass(frozen=True)
class Decimals:
    """How a file writes decimals.

    ``marks`` are those of columns of numbers that tell theirs; ``given`` is what the user says of all.
    """

    marks: Mapping[str, Mark] = field(default_factory=dict)
    given: Mark | None = None
    delimiter: str = ","

    def find(self, name: str, numbers: Iterable[str] = (), learnt: str = "") -> Mark:
        """Return the mark of a column: its own, that of most other numbers, what was learnt, or a point."""
        if self.given is not None or name in self.marks:
            return self.given or self.marks[name]
        votes = Counter(self.marks[each] for each in numbers if each in self.marks)
        if votes[","] != votes["."]:
            return "," if votes[","] > votes["."] else "."
        return "," if learnt == "," and self.delimiter != "," else "."

    def write(self, table: pa.Table) -> pa.Table:
        """Return a table that remembers this."""
        return table.replace_schema_metadata({DECIMALS: json.dumps(vars(self)).encode()})

    @classmethod
    def read(cls, table: pa.Table) -> Self:
        """Return what a table remembers; those that are not of text have points."""
        found = (table.schema.metadata or {}).get(DECIMALS)
        return cls() if found is None else cls(**json.loads(found))


DECIMALS = b"refinecal.decimals"  # in the metadata of a table


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

    ``bad`` has the rows that are no numbers, ``words`` those that are true or false, ``infinite`` counts
    those that are infinite, and ``blanks`` has the texts that count as missing only here. ``units`` are what
    stands beside numbers, and ``formatted`` is the first number written with these, or in groups of digits.
    """

    values: NDArray[np.float64]
    bad: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    words: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
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
    texts = column.dictionary_encode().unify_dictionaries()
    if len(column) < 2 * len(texts.chunk(0).dictionary):
        return _parse_cells(column, mark)
    # Each different text once: columns of categories have few.
    found = _parse_cells(pa.chunked_array([texts.chunk(0).dictionary]), mark)
    codes = pc.fill_null(pa.chunked_array([each.indices for each in texts.chunks]), -1).to_numpy()
    bad, words = np.zeros(len(found.values) + 1, bool), np.zeros(len(found.values) + 1, np.int64)
    bad[found.bad] = True
    words[found.words] = 1
    values = np.append(found.values, np.nan)[codes]
    return replace(
        found, values=values, bad=np.flatnonzero(bad[codes]), words=np.flatnonzero(words[codes])
    )


def _parse_cells(column: pa.ChunkedArray, mark: Mark) -> Numbers:
    text = pc.replace_substring(strip_missing(column), MINUS, "-")
    bare = _drop_units(text)
    grouped = pc.match_substring_regex(bare, GROUPS[mark])
    other = rf"[{re.escape(OTHER[mark])}{BLANK}'’]"
    number = pc.if_else(grouped, pc.replace_substring_regex(bare, other, ""), bare)
    if mark == ",":  # a point is none here, unless it stands between thousands
        has_point = pc.and_not(pc.match_substring(bare, "."), grouped)
        number = pc.if_else(has_point, "-", pc.replace_substring(number, ",", "."))
    good = pc.match_substring_regex(number, NUMBER)
    values = to_floats(pc.if_else(good, number, None))
    rows = rows_where(pc.invert(good))
    others = text.take(pa.array(rows))
    yes, no, blank = (_is_among(others, texts) for texts in (TRUE, FALSE, BLANKS))
    values[rows[yes]], values[rows[no]] = 1.0, 0.0
    has_unit = pc.and_(good, pc.not_equal(text, bare))
    plain = pc.replace_substring_regex(text.filter(has_unit), r"([0-9.,])[eE][+-]?[0-9]+", r"\1")
    units = pc.replace_substring_regex(plain, rf"[0-9,()+\-{BLANK}'’]|\.$|\.[0-9]*", "")
    formatted = rows_where(pc.or_(has_unit, pc.and_(good, grouped)))
    return Numbers(
        values,
        bad=rows[~(yes | no | blank)],
        words=rows[yes | no],
        blanks=tuple(pc.unique(others.filter(pa.array(blank))).to_pylist()),
        units=tuple(sorted({SAME_UNIT.get(each, each) for each in units.to_pylist() if each})),
        formatted=(text[formatted[0]].as_py(), values[formatted[0]]) if formatted.size else None,
    )


def _parse_plain(column: pa.ChunkedArray, mark: Mark) -> NDArray[np.float64] | None:
    """Return plain numbers, the usual and fastest; ``None`` if some need a closer look."""
    if mark == ",":
        if pc.any(pc.match_substring(column, ".")).as_py():
            return None
        column = pc.replace_substring(column, ",", ".")
    try:
        values = to_floats(column)
    except pa.ArrowInvalid:
        return None
    # To Arrow, nan(x) is a number too.
    return values if int(np.isnan(values).sum()) == column.null_count else None


def _drop_units(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return amounts without what stands beside their numbers; (5) and 5- are -5."""
    text = pc.replace_substring_regex(text, r"^\(([^()+-]*)\)$", r"-\1")
    text = pc.replace_substring_regex(text, rf"^([+-]?)\s*{UNIT}\s*([+-]?[0-9.,])", r"\1\2")
    text = pc.replace_substring_regex(text, rf"([0-9.,])[{BLANK}]*{UNIT}$", r"\1")
    return pc.replace_substring_regex(text, rf"^-[{BLANK}]+([0-9])", r"-\1")


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
CLOCK = rf"(?:[T,{BLANK}]+[0-9]{{1,2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:\.[0-9]+)?)?(?:[{BLANK}]?[AaPp][Mm])?)?$"
YEAR_LAST = r"^[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{4}" + CLOCK
YEAR_FIRST = r"^[0-9]{4}[./-][0-9]{1,2}[./-][0-9]{1,2}" + CLOCK
WITH_MONTH = r"^[0-9]{1,2}\.?[ -]\pL{3,9}\.?[ -][0-9]{4}" + CLOCK  # 31 Dec 2024, in any language
MICROSECONDS = 86_400_000_000  # in a day
LOOKED_AT = 100  # rows that tell at once whether a column can be one of dates
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
    text, half = _to_iso(_strip_blanks(column), order)
    good = pc.match_substring_regex(text, ISO)
    bad = rows_where(pc.invert(good))
    text = pc.replace_substring_regex(pc.if_else(good, text, None), r"(\.[0-9]{6})[0-9]+", r"\1")
    zoned = pc.match_substring_regex(text, ZONE)
    local, unread = _times(pc.if_else(zoned, None, text), pa.timestamp("us"))
    world, unread_too = _times(pc.if_else(zoned, text, None), pa.timestamp("us", "UTC"))
    values = np.where(np.isnan(local), world, local) + half
    return Numbers(values, np.sort(np.concatenate([bad, unread, unread_too])))


def _strip_blanks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts, null where they say that a number or a date is missing."""
    text = strip_missing(column)
    return pc.if_else(pc.is_in(text, value_set=pa.array(BLANKS)), None, text)


def _to_iso(
    text: pa.ChunkedArray, order: Order
) -> tuple[pa.ChunkedArray, NDArray[np.float64] | float]:
    """Return dates as in ISO 8601, but for the half of the day, and what that adds to them."""
    years = YEAR_FIRST if order == "ymd" else YEAR_LAST
    other = pc.and_not(pc.match_substring_regex(text, years), pc.match_substring_regex(text, ISO))
    if not pc.any(other).as_py():
        return text, 0.0
    date, parts = r"^([0-9]+)[./-]([0-9]+)[./-]([0-9]+)", {"ymd": r"\1-\2-\3", "dmy": r"\3-\2-\1"}
    iso = pc.replace_substring_regex(text, date, parts.get(order, r"\3-\1-\2"))
    iso = pc.replace_substring_regex(iso, rf"[T,{BLANK}]+([0-9]+:)", r" \1")
    for _ in range(2):  # neighbours share the mark between them
        iso = pc.replace_substring_regex(iso, r"([- ])([0-9])([-: ]|$)", PADDED)
    late = pc.match_substring_regex(iso, r"(?i) (?:0[1-9]|1[01]):[0-9:.]+.?pm$")
    early = pc.match_substring_regex(iso, r"(?i) 12:[0-9:.]+.?am$")
    iso = pc.replace_substring_regex(
        iso, rf"(?i)( (?:0[1-9]|1[0-2]):[0-9:.]+)[{BLANK}]?[ap]m$", r"\1"
    )
    half = pc.if_else(pc.and_(other, late), 0.5, pc.if_else(pc.and_(other, early), -0.5, 0.0))
    return pc.if_else(other, iso, text), pc.fill_null(half, 0.0).to_numpy()


def find_order(column: pa.ChunkedArray) -> tuple[Order | None, bool]:
    """Return the order in which all texts of a column are dates, ``None`` if they are not; whether any tells.

    Of 1/2/2024 it is not known which is the day. Unless a row tells, that is the first with points and
    hyphens, and the second with slashes.
    """
    some = _strip_blanks(column.slice(0, LOOKED_AT)).drop_null()
    if not pc.all(pc.match_substring_regex(some, f"{ISO}|{YEAR_FIRST}|{YEAR_LAST}")).as_py():
        return None, False  # no need to look at all
    text = pc.unique(_strip_blanks(column)).drop_null()
    if len(text) and pc.all(pc.match_substring_regex(text, f"{ISO}|{YEAR_FIRST}")).as_py():
        return "ymd", True
    if not (len(text) and pc.all(pc.match_substring_regex(text, YEAR_LAST)).as_py()):
        return None, False
    parts = pc.extract_regex(text, r"^(?P<first>[0-9]+)[./-](?P<second>[0-9]+)")
    first, second = (
        pc.max(pc.cast(pc.struct_field(parts, name), pa.int64())).as_py()
        for name in ("first", "second")
    )
    if max(first, second) > 12:
        order: Order = "dmy" if first > 12 else "mdy"
        return (None, False) if min(first, second) > 12 else (order, True)
    return "mdy" if "/" in text[0].as_py() else "dmy", False


def find_stray_date(column: pa.ChunkedArray) -> int | None:
    """Return the first row that is no date where most are; ``None`` if most are not."""
    text = _strip_blanks(column)
    is_date = pc.match_substring_regex(text, f"{ISO}|{YEAR_FIRST}|{YEAR_LAST}")
    others = rows_where(pc.invert(is_date))
    n_dates = len(text) - text.null_count - len(others)
    return int(others[0]) if n_dates > len(others) > 0 else None


def has_named_months(column: pa.ChunkedArray) -> bool:
    """Tell whether all texts are dates such as 31 Dec 2024, which are not read."""
    text = pc.unique(strip_missing(column)).drop_null()
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
