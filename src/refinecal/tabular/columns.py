"""What a column of a table is: numbers, dates, categories, or not used; and which classes a target has."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal._core.format import list_names
from refinecal.tabular.values import (
    OTHER,
    Mark,
    Numbers,
    Order,
    days_of,
    decode,
    explain_dates,
    find_order,
    is_date,
    is_number,
    look_like_codes,
    numbers_of,
    rows_where,
    sort_texts,
    texts_of,
)

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa
    import pyarrow.compute as pc

Kind = Literal["number", "category", "unused"]

MOST_CATEGORIES = 1000
DISTINCT = 0.9  # if more of the texts than this are different, they name the rows
FEW = 20  # unless there are no more than these
SURE_PAIRS = 12  # of which chance would leave none once in 160,000 times
ID_NAME = re.compile(r"(?:^|[\W_]|(?<=[a-z])(?=I))(?i:id|ids|idx|index|uuid|guid|row|rownum|key)$")
UNNAMED = re.compile(r"column 1|Unnamed: 0")  # what others write before a table's first name
MARKS = {",": "commas", ".": "points"}
ORDERS = {"ymd": "year, month, day", "dmy": "day, month, year", "mdy": "month, day, year"}
EXAMPLES = {"ymd": "2024-12-31", "dmy": "31.12.2024", "mdy": "12/31/2024"}
TAIL = 0.01  # of the values at each end of the range
FREQUENT = 0.25  # of the values: a number as frequent as this, such as 0, is left out of the range


@dataclass(frozen=True, slots=True)
class Profile:
    """What is kept of a column's training values to tell whether new ones are like them."""

    n_mode: int  # rows that have the most frequent value
    n_rare: int  # rows outside the bounds; with categories that occur once, or are not kept
    bounds: tuple[float, ...] = ()  # of 98% of the numbers, of all if they are few
    mode: float | None = None  # a number so frequent that the bounds are those of all others


@dataclass(frozen=True, slots=True)
class Column:
    """A column and what it is used as."""

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()  # those that were seen, at most 1000, sorted
    note: str = ""  # why it is unused, or what else there is to know
    n_missing: int = 0
    n_distinct: int = 0
    form: Literal["plain", "date"] = "plain"  # numbers of a date are days since 1970-01-01
    order: Order = "ymd"  # of year, month and day in texts; ISO 8601 is always understood
    decimal: str = ""  # the decimal mark of texts, "," or "."; other files tell theirs if they can
    unit: str = ""  # next to the numbers, such as "EUR" or "%"
    profile: Profile | None = None  # ``None`` if it is not known

    @property
    def is_complete(self) -> bool:
        """Whether ``categories`` has every category of the training rows."""
        return self.n_distinct <= len(self.categories)

    @property
    def is_truth(self) -> bool:
        """Whether the categories are those of true and false."""
        return set(self.categories) <= {"True", "False"}

    def drop(self, note: str) -> Column:
        """Return the column unused, with the reason."""
        return Column(self.name, "unused", (), note, self.n_missing, self.n_distinct)


def infer_column(
    name: str,
    values: pa.ChunkedArray,
    forced: Kind | None = None,
    mark: Mark = ".",
    order: Order | None = None,
    delimiter: str = "",
) -> Column:
    """Return what a column is, or what the user says it is.

    Numbers, truth values and lengths of time (in seconds) are numbers; dates are too, in days since 1970.
    Texts are numbers, truth values or dates if all of them are, else categories. A dictionary, which is how
    Arrow stores the categories of pandas, always has categories.

    ``mark`` is the decimal mark of texts, ``order`` that of dates which do not tell theirs, and
    ``delimiter`` the character between the columns of the file.
    """
    is_dictionary = pa.types.is_dictionary(values.type)
    values = decode(values)
    kind = values.type
    if forced == "unused":
        return _count_dropped(name, values)
    if forced == "category" or (is_dictionary and forced is None):
        found = _make_category(name, values, forced)
    elif pa.types.is_string(kind):
        found = _infer_text(name, values, forced, mark, order, delimiter)
    elif is_date(kind):
        found = _make_number(name, days_of(values), forced, form="date")
    elif is_number(kind) or pa.types.is_null(kind):
        found = _make_number(name, numbers_of(values), forced)
    else:
        return Column(name, "unused", note=f"holds {kind}, which models cannot use")
    if found.kind != "unused" and found.n_distinct == 0:
        return found.drop("every value is missing")
    if found.kind != "unused" and found.n_distinct == 1 and found.n_missing == 0:
        return found.drop(f"always the same: {values[0].as_py()!s}")
    return found


def _count_dropped(name: str, values: pa.ChunkedArray) -> Column:
    try:
        n_distinct = pc.count_distinct(values).as_py()
    except pa.ArrowException:  # of lists, for instance
        n_distinct = 0
    return Column(name, "unused", (), "left out on request", values.null_count, n_distinct)


# ---- numbers ---------------------------------------------------------------------------------------------


def _infer_text(
    name: str,
    column: pa.ChunkedArray,
    forced: Kind | None,
    mark: Mark,
    order: Order | None,
    delimiter: str,
) -> Column:
    numbers = numbers_of(column, mark)
    n_numbers = len(column) - int(np.isnan(numbers.values).sum())
    has_units = len(numbers.units) > 1
    if forced == "number" and has_units:
        raise ValueError(
            f"column {name!r} has numbers with different units, {list_names(numbers.units, 3)}: convert "
            "them to one"
        )
    are_codes = numbers.formatted is not None and look_like_codes(column)
    all_alike = numbers.words.size in (0, n_numbers)  # not 3 next to true
    are_amounts = n_numbers > 0 and all_alike and not has_units and not are_codes
    if not numbers.bad.size and (forced == "number" or are_amounts):
        found = _make_number(name, numbers, forced, decimal=mark, unit="".join(numbers.units))
        commas = rows_where(pc.match_substring(column, ","))
        if mark == delimiter == "," and commas.size and not found.note:
            text, value = column[int(commas[0])].as_py(), numbers.values[commas[0]]
            note = f"{text!r} is read as {value:.12g}; --categorical if it is a list"  # such as 2,3
            found = replace(found, note=note)
        return found
    found_order, is_certain = find_order(column)
    if found_order is not None:
        found_order = found_order if is_certain or order is None else order
        days = days_of(column, found_order)
        if not days.bad.size:
            found = _make_number(name, days, forced, form="date", order=found_order)
            guess = " (no row tells)" if not is_certain and order is None else ""
            return replace(found, note=found.note + guess)
    if forced == "number":
        fail_number(Column(name, "number"), column, int(numbers.bad[0]), 1, mark)
    found = _make_category(name, column, forced)
    notes = (_explain_category(column, numbers, mark), found.note)
    return replace(found, note="; ".join(filter(None, notes)))


def _explain_category(column: pa.ChunkedArray, numbers: Numbers, mark: Mark) -> str:
    """Say why a column that looks like numbers or dates is not one; "" if it does not."""
    if len(numbers.units) > 1:
        return f"numbers with different units, {list_names(numbers.units, 3)}"
    if not numbers.bad.size:
        return ""
    if not numbers_of(column, OTHER[mark]).bad.size:
        return f"numbers with decimal {MARKS[OTHER[mark]]}, where {MARKS[mark]} are read"
    if len(column) - np.isnan(numbers.values).sum() > len(numbers.bad):
        row = int(numbers.bad[0])
        return f"mostly numbers, but row {row + 1} is {column[row].as_py()!r}"
    return explain_dates(column)


def _make_number(name: str, numbers: Numbers, forced: Kind | None, **more: Any) -> Column:
    """Return a column of numbers; unused if they only name the rows, unless it is forced."""
    is_missing = np.isnan(numbers.values)
    distinct, counts = np.unique(numbers.values[~is_missing], return_counts=True)
    n_missing = int(is_missing.sum())
    found = Column(name, "number", n_missing=n_missing, n_distinct=len(distinct), **more)
    notes = []
    if found.form == "date":
        order = "" if found.order == "ymd" else f", read as {ORDERS[found.order]}"
        notes.append(f"days since 1970-01-01{order}")
    if numbers.formatted:
        text, value = numbers.formatted
        notes.append(f"{text!r} is read as {value:.12g}")
    if numbers.bare and numbers.units == ("%",):
        notes.append(f"some values have a % and others, such as {numbers.bare!r}, do not")
    if numbers.infinite:
        notes.append(f"infinite values count as missing ({numbers.infinite} rows)")
    if numbers.blanks:
        verb = "counts" if len(numbers.blanks) == 1 else "count"
        notes.append(f"{' and '.join(map(repr, numbers.blanks))} {verb} as missing")
    is_id: bool | None = False
    if forced is None and found.form == "plain":
        is_id = _is_id(name, distinct, int(counts.sum()), len(numbers.values))
    if is_id:
        return found.drop("almost every value is unique, like an ID; --numeric uses it")
    if is_id is None:
        notes.append("whole numbers, all different: if they only name the rows, use --drop")
    return replace(found, note="; ".join(notes), profile=_profile_numbers(distinct, counts))


def _is_id(name: str, distinct: NDArray[np.float64], n: int, n_rows: int) -> bool | None:
    """Tell whether numbers only name the rows; ``None`` if they may.

    Whole numbers do if the column is called so and all differ, or if they lie so close that chance would have
    repeated more of them: of n numbers in a range of r, about n^2 / 2r pairs would be equal.
    """
    if n <= FEW or len(distinct) < DISTINCT * n or (distinct % 1 != 0).any():
        return False
    repeats = n - len(distinct)
    too_close = n**2 > 2 * (SURE_PAIRS + 4 * repeats) * (distinct[-1] - distinct[0])
    is_named = ID_NAME.search(name) or UNNAMED.fullmatch(name)
    if too_close or (is_named and len(distinct) == n_rows):
        return True
    return False if repeats else None


def _profile_numbers(distinct: NDArray[np.float64], counts: NDArray[np.int64]) -> Profile | None:
    """Return the profile of numbers, from the sorted values and how often each occurs."""
    if len(distinct) < 2:
        return None
    top, mode = int(counts.argmax()), None
    n_mode = int(counts[top])
    if n_mode > FREQUENT * counts.sum():
        mode = float(distinct[top])
        distinct, counts = np.delete(distinct, top), np.delete(counts, top)
    up_to = np.cumsum(counts)
    tail = int(TAIL * up_to[-1])
    low, high = np.searchsorted(up_to, [tail, up_to[-1] - 1 - tail], side="right")
    n_rare = int(up_to[-1] - counts[low : high + 1].sum())
    return Profile(n_mode, n_rare, (float(distinct[low]), float(distinct[high])), mode)


def fail_number(
    column: Column, values: pa.ChunkedArray, row: int, first_row: int, mark: Mark
) -> NoReturn:
    """Raise for a value that is not the number, or the date, that it should be."""
    value = values[row].as_py()
    kind, fix = "a number", "Correct it, or leave it empty if it is missing."
    if column.form == "date":
        kind = f"a date such as {EXAMPLES[column.order]}"
    elif isinstance(value, str) and re.fullmatch(r"\s*[+-]?[\d.,]+\s*", value):
        fix = (
            f"Decimals are read with {MARKS[mark]} here: write all numbers that way, or pass "
            f"decimal={OTHER[mark]!r} if that is wrong."
        )
    where = f"column {column.name!r}, row {first_row + row}"
    raise ValueError(f"{where}: {value!r} is not {kind}. {fix}")


# ---- categories and classes ------------------------------------------------------------------------------

MOST_FRACTIONS = 20  # different fractions may be classes; more are measurements
MOST_WHOLE = 1000  # different whole numbers may be
FRACTION = re.compile(r"[+-]?(?:\d*[.,]\d+(?:[eE][+-]?\d+)?|\d+\.?[eE]-\d+)")
WHOLE = re.compile(r"[+-]?\d+")


def _make_category(name: str, column: pa.ChunkedArray, forced: Kind | None) -> Column:
    """Return a column of categories; unused if almost all differ, unless it is forced."""
    try:
        texts = texts_of(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return Column(name, "unused", note=f"holds {column.type}, which models cannot use")
    counts, values = texts.counts(), texts.values.to_pylist()
    n, n_distinct = int(counts.sum()), len(values)
    found = Column(name, "category", n_missing=len(column) - n, n_distinct=n_distinct)
    if n_distinct > max(FEW, DISTINCT * n) and forced is None:
        return found.drop("almost every value is unique, like an ID; --categorical uses it")
    note = ""
    if n_distinct > MOST_CATEGORIES:
        note = f"the {MOST_CATEGORIES} most frequent of {n_distinct} categories; others as missing"
    kept = sorted(range(n_distinct), key=lambda i: (-counts[i], values[i]))[:MOST_CATEGORIES]
    n_rare = int((counts[kept] == 1).sum() + n - counts[kept].sum())
    return replace(
        found,
        categories=tuple(sort_texts(values[i] for i in kept)),
        note=note,
        profile=Profile(int(counts.max()), n_rare) if n_distinct > 1 else None,
    )


def infer_classes(name: str, column: pa.ChunkedArray) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the classes in order and how often each occurs.

    Raises if there is only one, or if the target looks like a measurement or the name of each row.
    """
    what, n_rows = f"target {name!r}", len(column)
    try:
        texts = texts_of(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(f"{what} holds {column.type}, which cannot be a class") from None
    counts = dict(zip(texts.values.to_pylist(), texts.counts().tolist(), strict=True))
    n, k = sum(counts.values()), len(counts)
    if k == 0:
        raise ValueError(f"{what} is missing in every row: there is nothing to learn")
    first = next(iter(counts))
    if k == 1 and n == n_rows:
        raise ValueError(f"{what} is always {first!r}: there is nothing to learn")
    if k == 1:
        raise ValueError(
            f"{what} is always {first!r}, or missing (empty, NA and the like) in {n_rows - n} of {n_rows} "
            "rows: there is nothing to learn. If to be missing is a class, write a word for it."
        )
    fractions = sum(FRACTION.fullmatch(each) is not None for each in counts)
    numbers = fractions + sum(WHOLE.fullmatch(each) is not None for each in counts)
    found = f"{what} has {k} different values in {n} rows, such as {first!r}"
    if (fractions and numbers == k > MOST_FRACTIONS) or (numbers == k > MOST_WHOLE):
        raise ValueError(
            f"{found}: it looks like a number to be measured, but refinecal predicts classes. Cut it into "
            "classes first, or name another target."
        )
    if k > 2 and k > n / 2:
        raise ValueError(
            f"{found}: classes need several rows each. Name another target, or merge rare classes."
        )
    classes = tuple(sort_texts(counts))
    return classes, tuple(counts[each] for each in classes)
