"""What a column of a table is: a number, a category, or of no use."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, NoReturn

import numpy as np

from refinecal._core.errors import needs_extra
from refinecal.tabular._days import DATE, days_of, looks_like_dates
from refinecal.tabular._drift import Profile, profile_of_categories, profile_of_numbers
from refinecal.tabular._values import (
    Mark,
    Numbers,
    decode,
    is_date,
    is_number,
    is_text,
    numbers_by,
    numbers_of,
    texts_of,
)

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa
    import pyarrow.compute as pc

Kind = Literal["number", "category", "unused"]
Form = Literal["plain", "date"]

MOST_CATEGORIES = 1000
DISTINCT = 0.9  # if more of the texts than this are different, they name the rows
FEW = 20  # unless there are no more than so many
ID_NAME = re.compile(r"(?:^|[\W_]|(?<=[a-z])(?=I))(?i:id|ids|idx|index|uuid|guid|row|rownum|key)$")
UNNAMED = re.compile(r"column 1|Unnamed: 0")  # what others write before a table's first name
CURES: dict[Mark | None, str] = {  # by what stands before decimals in a file with semicolons
    None: "Decimal commas are understood in files with semicolons; use points elsewhere.",
    ",": "Decimal commas and points are mixed, this column having commas when it was learnt: write all "
    "its numbers with commas, none between thousands, or write a file without semicolons, with points.",
    ".": "Decimal commas and points are mixed, this column having points when it was learnt: write all "
    "its numbers with points, none between thousands.",
    "": "In a file with semicolons it may be a thousand or have three decimals: write it without a mark, "
    "or write a file without semicolons, with decimal points.",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column and what it is used as.

    Attributes
    ----------
    name : str
    kind : {"number", "category", "unused"}
    categories : tuple of str
        The categories that were seen, at most 1000, sorted.
    note : str
        Why it is unused, or what else there is to know.
    n_missing, n_distinct : int
        How many rows lack a value, and how many different values there are.
    form : {"plain", "date"}
        Numbers of a date are days since 1970-01-01.
    decimal : {",", ".", ""}
        What stands before decimals in files with semicolons, "" if that is not known. In other files it
        is a point.
    profile : Profile or None
        What tells whether values of other rows are like those seen; ``None`` if it is not known.
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    note: str = ""
    n_missing: int = 0
    n_distinct: int = 0
    form: Form = "plain"
    decimal: Mark = ""
    profile: Profile | None = None

    @property
    def is_complete(self) -> bool:
        """Whether ``categories`` has every category of the training rows."""
        return self.n_distinct <= len(self.categories)

    @property
    def is_truth(self) -> bool:
        """Whether the categories are those of true and false."""
        return set(self.categories) <= {"True", "False"}


def infer_column(
    name: str, column: pa.ChunkedArray, forced: Kind | None = None, mark: Mark | None = None
) -> Column:
    """Return what a column is, or what it is said to be.

    ``mark`` stands before decimals in a file with semicolons; elsewhere it is ``None``, and a point does.

    Numbers, truth values and lengths of time (in seconds) are numbers; dates are too, in days since 1970.
    Texts are numbers, truth values or dates if all of them are, else categories. A dictionary, which is
    how Arrow stores pandas' categories, has categories whatever it holds.
    """
    is_dictionary = pa.types.is_dictionary(column.type)
    column = decode(column)
    if forced == "category":
        found = _category(name, column, forced=True)
    elif is_dictionary and forced is None:
        found = _category(name, column)
    elif is_date(column.type):
        found = _number(name, days_of(column), "date")
    elif is_text(column.type):
        found = _from_text(name, column, forced, mark)
    elif is_number(column.type):
        found = _number(name, numbers_of(column))
    elif pa.types.is_null(column.type):
        found = Column(name, "number", n_missing=len(column))
    else:
        found = Column(name, "unused", note=f"holds {column.type}, which models cannot use")
    found = _drop_if_useless(found, column)
    numbers_the_rows = forced is None and found.kind == "number" and _is_id(found, column)
    return _unused_id(found) if numbers_the_rows else found


def _from_text(
    name: str, column: pa.ChunkedArray, forced: Kind | None, mark: Mark | None
) -> Column:
    numbers = numbers_by(column, "." if mark is None else mark)
    n_numbers = int((~numbers.missing).sum())
    all_alike = numbers.words in (0, n_numbers)  # not 3 beside true
    if not numbers.bad.size and (forced == "number" or (n_numbers and all_alike)):
        return replace(_number(name, numbers), decimal=mark or "")
    first = column[int(numbers.bad[0])].as_py() if numbers.bad.size else ""
    if re.match(DATE, first.strip()):  # else there is no need to look at the others
        days = days_of(column)
        if not days.bad.size:
            return _number(name, days, "date")
    if forced == "number":
        fail_number(name, column, int(numbers.bad[0]), 1, mark)
    found, note = _category(name, column), ""
    if numbers.bad.size and n_numbers > len(numbers.bad):
        note = f"mostly numbers, but row {numbers.bad[0] + 1} is {first!r}"
    elif looks_like_dates(column):
        note = f"to use dates as such, write {first!r} as in 2024-12-31"
    return replace(found, note="; ".join(each for each in (note, found.note) if each))


def _number(name: str, numbers: Numbers, form: Form = "plain") -> Column:
    missing = numbers.missing
    distinct, counts = np.unique(numbers.values[~missing], return_counts=True)
    notes = ["days since 1970-01-01"] if form == "date" else []
    if numbers.infinite:
        notes.append(f"infinite values count as missing ({numbers.infinite} rows)")
    if numbers.blanks:
        notes.append(f"{' and '.join(map(repr, numbers.blanks))} count as missing")
    return Column(
        name,
        "number",
        note="; ".join(notes),
        n_missing=int(missing.sum()),
        n_distinct=len(distinct),
        form=form,
        profile=profile_of_numbers(distinct, counts),
    )


def _category(name: str, column: pa.ChunkedArray, forced: bool = False) -> Column:
    try:
        texts = texts_of(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return Column(name, "unused", note=f"holds {column.type}, which models cannot use")
    n_missing, n_distinct = int((texts.codes < 0).sum()), len(texts.values)
    present = len(column) - n_missing
    found = Column(name, "category", n_missing=n_missing, n_distinct=n_distinct)
    if n_distinct > max(FEW, DISTINCT * present) and not forced:
        return _unused_id(found)
    note = ""
    if n_distinct > MOST_CATEGORIES:
        note = f"the {MOST_CATEGORIES} most frequent of {n_distinct} categories; others as missing"
    counts, values = texts.counts(), texts.values.to_pylist()
    kept = sorted(range(n_distinct), key=lambda i: (-counts[i], values[i]))[:MOST_CATEGORIES]
    return replace(
        found,
        categories=tuple(sort_texts(values[i] for i in kept)),
        note=note,
        profile=profile_of_categories(counts, MOST_CATEGORIES),
    )


def sort_texts(texts: object) -> list[str]:
    """Return texts sorted: by value if all are numbers, else as texts.

    >>> sort_texts(["10", "9"]), sort_texts(["10", "9", "b"])
    (['9', '10'], ['10', '9', 'b'])
    """
    values = sorted(texts)  # type: ignore[call-overload]
    found = numbers_of(pa.chunked_array([pa.array(values, pa.string())]))
    if found.bad.size or found.words or found.missing.any():
        return list(values)
    return [values[i] for i in np.argsort(found.values, kind="stable")]


def _drop_if_useless(column: Column, values: pa.ChunkedArray) -> Column:
    """Return the column, unused if it says nothing."""
    if column.kind == "unused":
        return column
    note = ""
    if column.n_distinct == 0:
        note = "every value is missing"
    elif column.n_distinct == 1 and column.n_missing == 0:
        note = f"always the same: {values[0].as_py()!s}"
    return unused_column(column, note) if note else column


def _is_id(column: Column, values: pa.ChunkedArray) -> bool:
    """Tell whether numbers only name the rows: whole, all different, and called so."""
    named = ID_NAME.search(column.name) or UNNAMED.fullmatch(column.name)
    if not named or column.n_distinct < len(values) or len(values) <= FEW or column.form == "date":
        return False
    numbers = numbers_of(values).values
    return bool((numbers == np.floor(numbers)).all())


def _unused_id(column: Column) -> Column:
    option = "numeric" if column.kind == "number" else "categorical"
    note = f"nearly every row has another value, as a name has; to use it, list it in {option}"
    return unused_column(column, note)


def drop_column(name: str, values: pa.ChunkedArray) -> Column:
    """Return a column that is left out, whatever its values are."""
    try:
        n_distinct = pc.count_distinct(values).as_py()
    except pa.ArrowException:  # of lists, for instance
        n_distinct = 0
    return Column(name, "unused", (), "left out on request", values.null_count, n_distinct)


def unused_column(column: Column, note: str) -> Column:
    """Return a column that is not used, with the reason."""
    return Column(column.name, "unused", (), note, column.n_missing, column.n_distinct)


def fail_number(
    name: str,
    column: pa.ChunkedArray,
    row: int,
    first_row: int = 1,
    mark: Mark | None = None,
    form: Form = "plain",
) -> NoReturn:
    """Raise for a value that is not the number, or the date, that it should be."""
    value = column[row].as_py()
    wanted = "a number" if form == "plain" else "a date such as 2024-12-31"
    cure = "Correct it, or leave it empty if it is missing."
    if form == "plain" and isinstance(value, str) and re.fullmatch(r"\s*[+-]?[\d.,]+\s*", value):
        cure = CURES[mark]
    raise ValueError(f"column {name!r}, row {first_row + row}: {value!r} is not {wanted}. {cure}")
