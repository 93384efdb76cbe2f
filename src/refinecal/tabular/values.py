"""What the cells of a column say: numbers, dates or texts, from text and from every Arrow type.

The same data give the same values in every file format and for every size of chunk: what a cell means depends
on this cell, on its file and on what is known of its column, never on neighboring cells.

Numbers may be written as people write them: 1,234.50 or 1.234,50 by the decimal mark of the file, $5, 5 EUR,
12 %, (5) for -5.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa
    import pyarrow.compute as pc

# Missing everywhere, quoted or not. "None" is not among them: it may be a class or a category.
MISSING = (
    *("", "?", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>"),
    *("NaN", "nan", "NAN", "-NaN", "-nan", "null", "NULL", "Null"),
)
# Missing in a column of numbers or dates, among them what spreadsheets write for errors.
BLANKS = (
    *("None", "none", "NONE", "-", "--", ".", "na", "n.a.", "N.A.", "k.A.", "k. A."),
    *("#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?", "#NULL!"),
)
MINUS = "\N{MINUS SIGN}"
TRUE, FALSE = ("True", "true", "TRUE"), ("False", "false", "FALSE")

NUMBER = r"(?i)^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)$"
CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|RUB|TRY|ZAR|KRW"
UNIT = rf"(?:(?:US|[ACRS]|HK|NZ)?\p{{Sc}}|%|{CODES}|kr\.?|zł|Kč|Ft|Fr\.?|Rs\.?)"
SAME_UNIT = {"$": "USD", "US$": "USD", "€": "EUR", "£": "GBP", "R$": "BRL", "₹": "INR", "Rs": "INR"}
BLANK = r" \x{a0}\x{202f}"  # spaces of several widths
AMOUNTS = (  # with units, and the numbers that they are
    (r"^\(([^()+-]*)\)$", r"-\1"),  # (5) is -5
    (rf"^([+-]?)\s*{UNIT}\s*([+-]?[0-9.,])", r"\1\2"),
    (rf"([0-9.,])[{BLANK}]*{UNIT}$", r"\1"),
    (rf"^-[{BLANK}]+([0-9])", r"-\1"),
)
SMALL = "'’"  # apostrophes, as in 1'000
WHOLE = r"^\+?(-?[0-9]+)(?:\.(?:0{0,2}|0{4,}))?$"  # not 1.000, which may be a thousand
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
NO_ROWS = np.empty(0, np.int64)

Mark = Literal[",", "."]  # before decimals
OTHER: dict[str, Mark] = {",": ".", ".": ","}


GROUPED = r"[1-9][0-9]{{0,2}}(?:[{}][0-9]{{3}})+(?:\{}[0-9]*)?"
GROUPS = {  # numbers with one thing between their thousands, by the decimal mark; 1,23,456 is Indian
    ",": rf"^[+-]?(?:{'|'.join(GROUPED.format(each, ',') for each in ('.', BLANK, SMALL))})$",
    ".": rf"^[+-]?(?:{'|'.join(GROUPED.format(each, '.') for each in (',', BLANK, SMALL))}"
    r"|[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}(?:\.[0-9]*)?)$",
}


# ---- types -----------------------------------------------------------------------------------------------


TEXTS = (pa.string(), pa.large_string(), pa.string_view())  # decode() leaves the first alone


def is_number(kind: pa.DataType) -> bool:
    """Tell whether a type holds numbers: truth values and lengths of time are numbers too."""
    tests = ("integer", "floating", "decimal", "boolean", "duration", "time")
    return any(getattr(pa.types, f"is_{test}")(kind) for test in tests)


def is_date(kind: pa.DataType) -> bool:
    """Tell whether a type holds points in time."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def decode(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with dictionaries looked up, and texts as plain strings."""
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    return pc.cast(column, pa.string()) if column.type in TEXTS else column


# ---- numbers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column as numbers, NaN where they are missing.

    ``bad`` has the rows that are not numbers, ``words`` those that are true or false, ``infinite`` counts
    those that are infinite, and ``blanks`` has the texts that count as missing only here. ``units`` are
    those next to numbers, ``formatted`` is the first number written with a unit or in groups of digits, and
    ``bare`` the first without a unit if others have one.
    """

    values: NDArray[np.float64]
    bad: NDArray[np.int64] = field(default_factory=NO_ROWS.copy)
    words: NDArray[np.int64] = field(default_factory=NO_ROWS.copy)
    infinite: int = 0
    blanks: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    formatted: tuple[str, float] | None = None
    bare: str = ""


def numbers_of(column: pa.ChunkedArray, mark: Mark = ".", infinite: bool = False) -> Numbers:
    """Return a column as numbers, each cell by itself, with this decimal mark in texts.

    Infinite ones are missing, unless they are wanted.
    """
    column = decode(column)
    if pa.types.is_string(column.type):
        found = _parse_plain(column, mark) or _parse_distinct(column, _parse_numbers, mark)
    elif is_number(column.type):
        found = Numbers(_convert_numbers(column))
    else:
        found = Numbers(np.full(len(column), np.nan), rows_where(column.is_valid()))
    is_infinite = np.isinf(found.values)
    if infinite or not is_infinite.any():
        return found
    values = np.where(is_infinite, np.nan, found.values)
    return replace(found, values=values, infinite=int(is_infinite.sum()))


def _convert_numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    kind = column.type
    if pa.types.is_decimal(kind) or pa.types.is_float32(kind):
        # By way of texts: 0.1 is then exactly the same number as in CSV.
        return to_floats(pc.cast(column, pa.string()))
    if not (pa.types.is_duration(kind) or pa.types.is_time(kind)):
        return to_floats(column)
    whole = pa.int32() if kind.bit_width == 32 else pa.int64()
    return to_floats(pc.cast(column, whole)) / PER_SECOND[kind.unit]


def _parse_plain(column: pa.ChunkedArray, mark: Mark) -> Numbers | None:
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
    return Numbers(values) if np.isnan(values).sum() == column.null_count else None


def _parse_distinct(column: pa.ChunkedArray, parse: Callable[..., Numbers], how: str) -> Numbers:
    """Return a column of texts parsed, each different text once: columns of categories have few."""
    codes, texts = _encode(column)
    found = parse(texts, how)
    bad, words = (np.flatnonzero(np.isin(codes, rows)) for rows in (found.bad, found.words))
    return replace(found, values=np.append(found.values, np.nan)[codes], bad=bad, words=words)


def _parse_numbers(text: pa.Array, mark: Mark) -> Numbers:
    text = pc.replace_substring(strip_missing(text), MINUS, "-")
    bare = text
    for amount, number in AMOUNTS:
        bare = pc.replace_substring_regex(bare, amount, number)
    grouped = pc.match_substring_regex(bare, GROUPS[mark])
    other = rf"[{re.escape(OTHER[mark])}{BLANK}{SMALL}]"
    number = pc.if_else(grouped, pc.replace_substring_regex(bare, other, ""), bare)
    if mark == ",":  # a point is only legal between thousands
        has_point = pc.and_not(pc.match_substring(bare, "."), grouped)
        number = pc.if_else(has_point, "-", pc.replace_substring(number, ",", "."))
    good = pc.match_substring_regex(number, NUMBER)
    values = to_floats(pc.if_else(good, number, None))
    rows = rows_where(pc.invert(good))
    others = text.take(pa.array(rows))
    yes, no, blank = (
        np.asarray(pc.is_in(others, value_set=pa.array(texts))) for texts in (TRUE, FALSE, BLANKS)
    )
    values[rows[yes]], values[rows[no]] = 1.0, 0.0
    has_unit = pc.and_(good, pc.not_equal(text, bare))
    plain = pc.replace_substring_regex(text.filter(has_unit), r"([0-9.,])[eE][+-]?[0-9]+", r"\1")
    units = pc.replace_substring_regex(plain, rf"[0-9,()+\-{BLANK}{SMALL}]|\.$|\.[0-9]*", "")
    units = sorted({SAME_UNIT.get(each, each) for each in units.to_pylist() if each})
    formatted = rows_where(pc.or_(has_unit, pc.and_(good, grouped)))
    without = rows_where(pc.and_not(good, has_unit)) if units else NO_ROWS
    return Numbers(
        values,
        bad=rows[~(yes | no | blank)],
        words=rows[yes | no],
        blanks=tuple(pc.unique(others.filter(pa.array(blank))).to_pylist()),
        units=tuple(units),
        formatted=(text[formatted[0]].as_py(), values[formatted[0]]) if formatted.size else None,
        bare=text[without[0]].as_py() if without.size else "",
    )


def to_floats(column: Any) -> NDArray[np.float64]:
    """Return what can be cast as new float64, NaN where it is null."""
    floats = pc.cast(column, pa.float64(), safe=not pa.types.is_integer(column.type))
    return np.array(floats, dtype=np.float64)


def rows_where(mask: Any) -> NDArray[np.int64]:
    """Return the places where a mask is true, which it is not where it is null."""
    return np.flatnonzero(np.asarray(pc.fill_null(mask, False)))


def strip_missing(text: Any, more: tuple[str, ...] = ()) -> Any:
    """Return texts without spaces around them, null where they say that something is missing."""
    text = pc.utf8_trim_whitespace(text)
    return pc.if_else(pc.is_in(text, value_set=pa.array(MISSING + more)), None, text)


def match_all(text: Any, pattern: str) -> bool:
    """Tell whether all texts match a pattern, and there are any."""
    return bool(len(text) and pc.all(pc.match_substring_regex(text, pattern)).as_py())


def look_like_codes(column: Any) -> bool:
    """Tell whether digits in groups or parentheses are codes of one form, such as phone numbers."""
    text = pc.unique(strip_missing(column)).drop_null()
    if len(text) < 2:
        return False
    if match_all(text, rf"^\([0-9]+\)$|{IP_ADDRESS}"):  # (1), (2) or IP addresses
        return True
    forms = pc.unique(pc.replace_substring_regex(text, r"[0-9]", "0"))
    in_groups = match_all(text, r"^\+?[0-9]{1,3}( [0-9]{3})+$")
    return in_groups and (len(forms) == 1 or text[0].as_py()[0] == "+")


def sort_texts(texts: Iterable[str]) -> list[str]:
    """Return texts sorted: by value if all are numbers, else as texts.

    >>> sort_texts(["10", "9"]), sort_texts(["10", "9", "b"])
    (['9', '10'], ['10', '9', 'b'])
    """
    values = sorted(texts)
    if all(re.fullmatch("-?[0-9]+", value) for value in values):
        return sorted(values, key=int)
    found = numbers_of(pa.chunked_array([pa.array(values, pa.string())]))
    if found.bad.size or found.words.size or np.isnan(found.values).any():
        return values
    return [values[i] for i in np.argsort(found.values, kind="stable")]


def describe_variants(texts: Iterable[str]) -> str:
    """Return which texts differ only by case or blanks; "" if none do.

    >>> describe_variants(["Ja", "nein", "ja"])
    "'Ja' and 'ja' differ only by case or blanks"
    """
    alike: dict[str, list[str]] = {}
    for text in texts:
        alike.setdefault(" ".join(text.casefold().split()), []).append(text)
    groups = [group for group in alike.values() if len(group) > 1]
    more = ", and so do others" if len(groups) > 1 else ""
    names = " and ".join(map(repr, groups[0])) if groups else ""
    return f"{names} differ only by case or blanks{more}" if groups else ""


# ---- the decimal marks of a file -------------------------------------------------------------------------

IP_ADDRESS = r"^[0-9]{1,3}(?:\.[0-9]{1,3}){3}$"
LONGEST = 60  # characters of a number, with spaces and units
FEW_WORDS = 0.1  # for each number, among the different cells of a column of numbers
DECIMALS = b"refinecal.decimals"  # in the metadata of a table


def find_marks(columns: Mapping[str, Iterable[str]]) -> dict[str, Mark]:
    """Return the decimal marks of the columns of numbers whose cells tell it.

    That is the mark with which all cells are numbers, but for a few words: 1.234,5 and 1.234.567 tell a
    comma, 3.14 a point. 1.234 may be a thousand or have three decimals; next to whole numbers it is a
    thousand, if all of these are below 1000.

    >>> find_marks({"a": ["3,14", "2"], "b": ["$1,234.50"], "c": ["1.234"], "d": ["1.234", "87", "2.500"]})
    {'a': ',', 'b': '.', 'd': ','}
    """
    cells = {name: set(each) for name, each in columns.items()}
    cells = {name: each for name, each in cells.items() if max(map(len, each), default=0) < LONGEST}
    text = pa.array([cell for each in cells.values() for cell in each], pa.string())
    owner = np.repeat(np.arange(len(cells)), [len(each) for each in cells.values()])
    addresses = rows_where(pc.match_substring_regex(text, IP_ADDRESS))
    sizes = []
    marks: tuple[Mark, Mark] = (",", ".")
    for mark in marks:
        found = _parse_numbers(text, mark)
        found.values[np.concatenate([found.bad, found.words, addresses])] = np.inf
        sizes.append(np.abs(found.values))
    comma, point = sizes
    is_small = (comma == point) & (comma == np.floor(comma)) & (comma < 1000)
    is_word = np.isinf(comma) & np.isinf(point)
    masks = (
        *(is_word, np.isinf(comma) & ~is_word, np.isinf(point) & ~is_word),
        *(comma > point, comma < point, (comma == point) & ~is_word, is_small),
    )
    words, no_comma, no_point, more, less, same, small = (
        np.bincount(owner[mask], minlength=len(cells)) for mask in masks
    )
    many_words = words > FEW_WORDS * (more + less + same)
    no_comma, no_point = no_comma + many_words, no_point + many_words
    thousands = (same > 0) & (small == same) & (more + less > 1)
    is_comma = (no_comma == 0) & ((no_point > 0) | thousands & (less == 0))
    is_point = (no_point == 0) & ((no_comma > 0) | thousands & (more == 0))
    chosen = np.select([is_comma, is_point], marks, "").tolist()
    return {name: mark for name, mark in zip(cells, chosen, strict=True) if mark}


@dataclass(frozen=True)
class Decimals:
    """The decimal marks of a file: those its columns of numbers show, or the one that the user gives."""

    marks: Mapping[str, Mark] = field(default_factory=dict)
    given: Mark | None = None
    delimiter: str = ","

    def find(self, name: str, numbers: Iterable[str] = (), learned: str = "") -> Mark:
        """Return the mark of a column: its own, that of most other numbers, what was learned, or a point."""
        if self.given is not None or name in self.marks:
            return self.given or self.marks[name]
        votes = Counter(self.marks[each] for each in numbers if each in self.marks)
        if votes[","] != votes["."]:
            return "," if votes[","] > votes["."] else "."
        return "," if learned == "," and self.delimiter != "," else "."

    @classmethod
    def of_table(cls, table: pa.Table) -> Self:
        """Return the marks of the file that a table was read from; without any, they are points."""
        found = (table.schema.metadata or {}).get(DECIMALS)
        return cls() if found is None else cls(**json.loads(found))


# ---- dates -----------------------------------------------------------------------------------------------

Order = Literal["ymd", "dmy", "mdy"]  # of year, month and day
HOUR, SIXTIETH = "(?:[01][0-9]|2[0-3])", "[0-5][0-9]"
ZONE = rf"(?: ?(?:Z|UTC|GMT|[+-]{HOUR}(?::?{SIXTIETH})?))"
DAY = (  # of the calendar
    r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    r"|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
)
ISO = rf"^{DAY}(?:[T ]{HOUR}:{SIXTIETH}(?::{SIXTIETH}(?:\.[0-9]{{1,9}})?)?{ZONE}?)?$"
CLOCK = rf"(?:[T,{BLANK}]+[0-9]{{1,2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:\.[0-9]+)?)?(?:[{BLANK}]?[AaPp][Mm])?)?$"
YEAR_LAST = r"^[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{4}" + CLOCK
YEAR_FIRST = r"^[0-9]{4}[./-][0-9]{1,2}[./-][0-9]{1,2}" + CLOCK
OTHER_DATES = (  # 31 Dec 2024, in any language, and 31.12.24
    r"^(?:[0-9]{1,2}\.?[ -]\pL{3,9}\.?[ -][0-9]{4}|[0-9]{2}[./-][0-9]{2}[./-][0-9]{2})" + CLOCK
)
MICROSECONDS = 86_400_000_000  # in a day
LOOKED_AT = 100  # rows that tell at once whether a column can be one of dates
PADDED = r"\10\2\3"  # RE2 knows nine groups: the first, and a zero


def days_of(column: pa.ChunkedArray, order: Order = "ymd") -> Numbers:
    """Return points in time as days since 1970-01-01 in UTC; texts as in ISO 8601, or in this order.

    Exact to the microsecond. Times without a zone are taken as UTC.
    """
    column = decode(column)
    if is_date(column.type):
        return Numbers(_count_days(column))
    if pa.types.is_string(column.type):
        return _parse_distinct(column, _parse_days, order)
    return Numbers(np.full(len(column), np.nan), rows_where(column.is_valid()))


def _parse_days(text: pa.Array, order: Order) -> Numbers:
    blanks = pc.unique(text.filter(pc.is_in(text, value_set=pa.array(BLANKS)))).to_pylist()
    text, half = _to_iso(strip_missing(text, BLANKS), order)
    good = pc.match_substring_regex(text, ISO)
    bad = rows_where(pc.invert(good))
    text = pc.replace_substring_regex(pc.if_else(good, text, None), r"(\.[0-9]{6})[0-9]+", r"\1")
    text = pc.replace_substring_regex(text, "^([0-9-]{10})$", r"\1 00:00")
    zoned = pc.match_substring_regex(text, f":.*{ZONE}$")
    text = pc.replace_substring_regex(text, " ?(?:UTC|GMT|Z)$", "Z")
    text = pc.replace_substring_regex(text, r" ([+-])", r"\1")
    text = pc.if_else(zoned, text, pc.binary_join_element_wise(text, "Z", ""))
    days = _count_days(pc.cast(text, pa.timestamp("us", "UTC"))) + half
    return Numbers(days, bad, blanks=tuple(blanks))


def _count_days(column: Any) -> NDArray[np.float64]:
    zone = getattr(column.type, "tz", None)
    times = pc.cast(column, pa.timestamp("us", zone), safe=False)
    return to_floats(pc.cast(times, pa.int64())) / MICROSECONDS


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
    for _ in range(2):  # neighbors share the mark between them
        iso = pc.replace_substring_regex(iso, r"([- ])([0-9])([-: ]|$)", PADDED)
    late = pc.match_substring_regex(iso, r"(?i) (?:0[1-9]|1[01]):[0-9:.]+.?pm$")
    early = pc.match_substring_regex(iso, r"(?i) 12:[0-9:.]+.?am$")
    iso = pc.replace_substring_regex(
        iso, rf"(?i)( (?:0[1-9]|1[0-2]):[0-9:.]+)[{BLANK}]?[ap]m$", r"\1"
    )
    half = pc.if_else(pc.and_(other, late), 0.5, pc.if_else(pc.and_(other, early), -0.5, 0.0))
    return pc.if_else(other, iso, text), pc.fill_null(half, 0.0).to_numpy()


def find_order(column: pa.ChunkedArray) -> tuple[Order | None, bool]:
    """Return the order in which all texts of a column are dates, or ``None``; and whether some row tells it.

    Of 1/2/2024 it is not known which is the day. Unless a row tells, that is the first with points and
    hyphens, and the second with slashes.
    """
    for some in (column.slice(0, LOOKED_AT), column):  # most columns need no look at all of it
        text = pc.unique(strip_missing(some, BLANKS)).drop_null()
        if not pc.all(pc.match_substring_regex(text, f"{ISO}|{YEAR_FIRST}|{YEAR_LAST}")).as_py():
            return None, False
    others = text.filter(pc.match_substring_regex(text, YEAR_LAST))
    if not len(others):
        return ("ymd", True) if len(text) else (None, False)
    parts = pc.extract_regex(others, r"^(?P<first>[0-9]+)[./-](?P<second>[0-9]+)")
    first, second = (
        pc.max(pc.cast(pc.struct_field(parts, name), pa.int64())).as_py()
        for name in ("first", "second")
    )
    if max(first, second) > 12:
        order: Order = "dmy" if first > 12 else "mdy"
        return (None, False) if min(first, second) > 12 else (order, True)
    return "mdy" if "/" in others[0].as_py() else "dmy", False


def explain_dates(column: pa.ChunkedArray) -> str:
    """Say why a column that looks like dates is not one; "" if it does not."""
    text = strip_missing(column, BLANKS)
    is_date = pc.match_substring_regex(text, f"{ISO}|{YEAR_FIRST}|{YEAR_LAST}")
    order, _ = find_order(text.filter(is_date))
    bad = rows_where(text.is_valid()) if order is None else days_of(text, order).bad
    if not bad.size:
        return ""
    first = column[int(bad[0])].as_py()
    if len(text) - text.null_count > 2 * len(bad):
        return f"mostly dates, but row {bad[0] + 1} is {first!r}"
    if match_all(pc.unique(text).drop_null(), OTHER_DATES):
        return f"to use dates as such, write {first!r} as in 2024-12-31"
    return ""


# ---- texts -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Texts:
    """A column as places in a list of different texts; -1 where it is missing."""

    codes: NDArray[np.int64]
    values: pa.Array  # of strings, each once, in the order in which they appear

    def counts(self) -> NDArray[np.int64]:
        """Return how often each value occurs."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.values))

    def places(self, known: Iterable[str]) -> NDArray[np.int64]:
        """Return each row's place among known texts; -1 for others and where it is missing."""
        found = pc.fill_null(pc.index_in(self.values, value_set=pa.array(known, pa.string())), -1)
        return np.append(np.asarray(found), -1).astype(np.int64)[self.codes]  # -1 for those missing


def texts_of(column: pa.ChunkedArray, truth: bool | None = None) -> Texts:
    """Return a column as texts, written one way: 3, 3.0 and ' 3' are '3'; true and TRUE are 'True'.

    The latter only if ``truth``; by default, if there is nothing but true and false.
    """
    codes, values = _encode(decode(column))
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), None, values)
    values = strip_missing(pc.cast(values, pa.string()))
    values = pc.replace_substring_regex(values, WHOLE, r"\1")
    values = pc.if_else(pc.equal(values, "-0"), "0", values)
    yes, no = (pc.is_in(values, value_set=pa.array(texts)) for texts in (TRUE, FALSE))
    if truth is None:
        truth = pc.all(pc.or_(pc.or_(yes, no), values.is_null())).as_py()
    if truth:
        values = pc.if_else(yes, "True", pc.if_else(no, "False", values))
    same = values.dictionary_encode()
    merged = np.append(np.asarray(pc.fill_null(same.indices, -1)), -1).astype(np.int64)
    return Texts(merged[codes], same.dictionary)


def _encode(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], pa.Array]:
    """Return the place of each row among the different values, -1 where it is null; and these values."""
    encoded = column.dictionary_encode().unify_dictionaries()
    if encoded.num_chunks == 0:
        return NO_ROWS, pa.array([], column.type)
    indices = pa.chunked_array([chunk.indices for chunk in encoded.chunks])
    codes = np.asarray(pc.fill_null(indices, -1)).astype(np.int64)
    return codes, encoded.chunk(0).dictionary
