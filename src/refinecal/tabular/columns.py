"""What the columns of a table are: numbers, categories, or of no use; and which classes a target has."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal._core.format import list_names
from refinecal.tabular._drift import Profile, profile_of_categories, profile_of_numbers
from refinecal.tabular.values import (
    OTHER,
    Mark,
    Numbers,
    Order,
    Texts,
    days_of,
    decode,
    find_order,
    find_stray_date,
    has_named_months,
    is_date,
    is_number,
    is_text,
    numbers_of,
    strip_missing,
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
SURE_PAIRS = 12  # of which chance would leave none once in 160,000 times
ID_NAME = re.compile(r"(?:^|[\W_]|(?<=[a-z])(?=I))(?i:id|ids|idx|index|uuid|guid|row|rownum|key)$")
UNNAMED = re.compile(r"column 1|Unnamed: 0")  # what others write before a table's first name
MARKS = {",": "commas", ".": "points"}
ORDERS = {"ymd": "year, month, day", "dmy": "day, month, year", "mdy": "month, day, year"}


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
    order : {"ymd", "dmy", "mdy"}
        Of year, month and day in the texts of a date; ISO 8601 is always understood.
    decimal : {",", ".", ""}
        What stood before the decimals of texts; other files tell theirs if they can.
    unit : str
        What stood beside the numbers, such as "EUR" or "%".
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
    order: Order = "ymd"
    decimal: str = ""
    unit: str = ""
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
    name: str,
    column: pa.ChunkedArray,
    forced: Kind | None = None,
    mark: Mark = ".",
    order: Order | None = None,
) -> Column:
    """Return what a column is, or what it is said to be.

    ``mark`` stands before the decimals of texts, and ``order`` is that of dates which do not tell theirs.

    Numbers, truth values and lengths of time (in seconds) are numbers; dates are too, in days since 1970.
    Texts are numbers, truth values or dates if all of them are, else categories. A dictionary, which is
    how Arrow stores pandas' categories, has categories whatever it holds.
    """
    is_dictionary = pa.types.is_dictionary(column.type)
    column = decode(column)
    if forced == "category" or (is_dictionary and forced is None):
        found = _category(name, column, forced=forced is not None)
    elif is_date(column.type):
        found = _number(name, days_of(column), "date")
    elif is_text(column.type):
        found = _from_text(name, column, forced, mark, order)
    elif is_number(column.type):
        found = _number(name, numbers_of(column))
    elif pa.types.is_null(column.type):
        found = Column(name, "number", n_missing=len(column))
    else:
        found = Column(name, "unused", note=f"holds {column.type}, which models cannot use")
    found = _drop_if_useless(found, column)
    return found if forced else _check_id(found, column, mark)


def _from_text(
    name: str,
    column: pa.ChunkedArray,
    forced: Kind | None,
    mark: Mark,
    order: Order | None,
) -> Column:
    numbers = numbers_of(column, mark)
    n_numbers = int((~numbers.missing).sum())
    all_alike = numbers.words.size in (0, n_numbers)  # not 3 beside true
    several = len(numbers.units) > 1
    if forced == "number" and several:
        raise ValueError(
            f"column {name!r} has numbers with different units, {list_names(numbers.units, 3)}: convert "
            "them to one"
        )
    are_codes = numbers.formatted is not None and _looks_like_codes(column)
    are_amounts = n_numbers > 0 and all_alike and not several and not are_codes
    if not numbers.bad.size and (forced == "number" or are_amounts):
        unit = numbers.units[0] if numbers.units else ""
        return replace(_number(name, numbers), decimal=mark, unit=unit)
    found_order, is_certain = find_order(column)
    if found_order is not None:
        found_order = found_order if is_certain or order is None else order
        days = days_of(column, found_order)
        if not days.bad.size:
            found = _number(name, days, "date", found_order)
            guess = " (no row tells)" if not is_certain and order is None else ""
            return replace(found, note=found.note + guess)
    if forced == "number":
        fail_number(Column(name, "number"), column, int(numbers.bad[0]), 1, mark)
    found = _category(name, column)
    note = _explain_category(column, numbers, mark)
    return replace(found, note="; ".join(each for each in (note, found.note) if each))


def _explain_category(column: pa.ChunkedArray, numbers: Numbers, mark: Mark) -> str:
    """Say why a column that looks like numbers or dates is not one; "" if it does not."""
    if len(numbers.units) > 1:
        return f"numbers with different units, {list_names(numbers.units, 3)}"
    if not numbers.bad.size:
        return ""
    if not numbers_of(column, OTHER[mark]).bad.size:
        return f"numbers with decimal {MARKS[OTHER[mark]]}, where {MARKS[mark]} are read"
    first = column[int(numbers.bad[0])].as_py()
    if int((~numbers.missing).sum()) > len(numbers.bad):
        return f"mostly numbers, but row {numbers.bad[0] + 1} is {first!r}"
    row = find_stray_date(column)
    if row is not None:
        return f"mostly dates, but row {row + 1} is {column[row].as_py()!r}"
    return (
        f"to use dates as such, write {first!r} as in 2024-12-31"
        if has_named_months(column)
        else ""
    )


def _looks_like_codes(column: pa.ChunkedArray) -> bool:
    """Tell digits in groups or parentheses that are no amounts: all of one form, such as phones."""
    text = pc.unique(strip_missing(column)).drop_null()
    forms = pc.unique(pc.replace_substring_regex(text, r"[0-9]", "0"))
    numbered = r"^\([0-9]+\)$|^[0-9]{1,3}(?:\.[0-9]{1,3}){3}$"  # (1), (2); addresses of computers
    if len(text) > 1 and pc.all(pc.match_substring_regex(text, numbered)).as_py():
        return True
    in_groups = pc.all(pc.match_substring_regex(text, r"^\+?[0-9]{1,3}( [0-9]{3})+$")).as_py()
    return bool(in_groups and len(text) > 1 and (len(forms) == 1 or text[0].as_py()[0] == "+"))


def _number(name: str, numbers: Numbers, form: Form = "plain", order: Order = "ymd") -> Column:
    missing = numbers.missing
    distinct, counts = np.unique(numbers.values[~missing], return_counts=True)
    notes = []
    if form == "date":
        notes.append("days since 1970-01-01" + f", read as {ORDERS[order]}" * (order != "ymd"))
    if numbers.formatted:
        text, value = numbers.formatted
        notes.append(f"{text!r} is read as {value:.12g}")
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
        order=order,
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
    if found.bad.size or found.words.size or found.missing.any():
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


def _check_id(column: Column, values: pa.ChunkedArray, mark: Mark) -> Column:
    """Return a column, unused if it has whole numbers that only name the rows; with a note if it may.

    They do if the column is called so and all differ, or if they lie so close that chance would have repeated
    more of them: of n numbers in a range of r, about n^2 / 2r pairs would be equal.
    """
    n, is_plain = len(values) - column.n_missing, column.form == "plain"
    if column.kind != "number" or not is_plain or column.n_distinct < DISTINCT * n or n <= FEW:
        return column
    numbers = numbers_of(values, mark).values
    numbers = numbers[~np.isnan(numbers)]
    if not (numbers == np.floor(numbers)).all():
        return column
    repeats = n - column.n_distinct
    too_close = n**2 > 2 * (SURE_PAIRS + 4 * repeats) * np.ptp(numbers)
    named = ID_NAME.search(column.name) or UNNAMED.fullmatch(column.name)
    if too_close or (named and column.n_distinct == len(values)):
        return _unused_id(column)
    if repeats:
        return column
    note = "whole numbers, all different: if they only name the rows, use --drop"
    return replace(column, note="; ".join(each for each in (column.note, note) if each))


def _unused_id(column: Column) -> Column:
    option = "--numeric" if column.kind == "number" else "--categorical"
    return unused_column(column, f"almost every value is unique, like an ID; {option} uses it")


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
    column: Column, values: pa.ChunkedArray, row: int, first_row: int, mark: Mark
) -> NoReturn:
    """Raise for a value that is not the number, or the date, that it should be."""
    value = values[row].as_py()
    wanted, cure = "a number", "Correct it, or leave it empty if it is missing."
    if column.form == "date":
        example = {"ymd": "2024-12-31", "dmy": "31.12.2024", "mdy": "12/31/2024"}[column.order]
        wanted = f"a date such as {example}"
    elif isinstance(value, str) and re.fullmatch(r"\s*[+-]?[\d.,]+\s*", value):
        cure = (
            f"Decimals are read with {MARKS[mark]} here: write all numbers that way, or pass "
            f"decimal={OTHER[mark]!r} if that is wrong."
        )
    where = f"column {column.name!r}, row {first_row + row}"
    raise ValueError(f"{where}: {value!r} is not {wanted}. {cure}")


# ---- the classes of a target -----------------------------------------------------------------------------

MOST_FRACTIONS = 20  # so many different fractions may be classes; more are measurements
MOST_WHOLE = 1000  # so many different whole numbers
MOST_SHOWN = 10  # classes in an error
FRACTION = re.compile(r"[+-]?(?:\d*[.,]\d+(?:[eE][+-]?\d+)?|\d+\.?[eE]-\d+)")
WHOLE = re.compile(r"[+-]?\d+")


def infer_classes(name: str, column: pa.ChunkedArray) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the classes in order and how often each occurs, or say why there is nothing to learn."""
    try:
        texts = texts_of(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(f"target {name!r} holds {column.type}, which cannot be a class") from None
    values = texts.values.to_pylist()
    if len(values) < 2:
        raise ValueError(f"target {name!r} is {_describe_single_class(texts, values)}")
    _check_few(name, texts, values)
    counts = dict(zip(values, texts.counts().tolist(), strict=True))
    classes = tuple(sort_texts(values))
    return classes, tuple(counts[each] for each in classes)


def find_variants(classes: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return pairs of classes that differ only by case or blanks.

    >>> find_variants(("Ja", "ja", "nein"))
    [('Ja', 'ja')]
    """
    seen: dict[str, str] = {}
    pairs = ((seen.setdefault(" ".join(each.casefold().split()), each), each) for each in classes)
    return [(first, other) for first, other in pairs if first != other]


def _describe_single_class(texts: Texts, values: list[str]) -> str:
    """Say what a target is that has no two classes."""
    missing = int((texts.codes < 0).sum())
    nothing = ": there is nothing to learn"
    if not values:
        return f"missing in every row{nothing}"
    if not missing:
        return f"always {values[0]!r}{nothing}"
    return (
        f"always {values[0]!r}, or missing (empty, NA and the like) in {missing} of {len(texts.codes)} "
        f"rows{nothing}. If to be missing is a class, write a word for it."
    )


def _check_few(name: str, texts: Texts, values: list[str]) -> None:
    """Refuse a target that looks like a measurement, or like the name of each row."""
    n, k = int((texts.codes >= 0).sum()), len(values)
    fractions = sum(FRACTION.fullmatch(value) is not None for value in values)
    numbers = fractions + sum(WHOLE.fullmatch(value) is not None for value in values)
    what = f"target {name!r} has {k} different values in {n} rows"
    if (fractions and numbers == k > MOST_FRACTIONS) or (numbers == k > MOST_WHOLE):
        raise ValueError(
            f"{what}, such as {values[0]!r}: it looks like a number to be measured, but refinecal predicts "
            "classes. Cut it into classes first, or name another target."
        )
    if k > 2 and k > n / 2:
        raise ValueError(
            f"{what}, such as {values[0]!r}: classes need several rows each. Name another target, or put "
            "rare classes together."
        )


def labels_of(
    texts: Texts, name: str, classes: tuple[str, ...], first_row: int
) -> NDArray[np.int64]:
    """Return the places of a target's values among its classes, or say which row has none."""
    labels = texts.places(classes)
    bad = np.flatnonzero(labels < 0)
    if not bad.size:
        return labels
    row, where = bad[0], f"target {name!r}, row {first_row + bad[0]}"
    if texts.codes[row] < 0:
        raise ValueError(f"{where} is missing: drop the rows without a label")
    value = texts.values[texts.codes[row]].as_py()
    raise ValueError(
        f"{where} is {value!r}, which training rows did not have: their classes are "
        f"{list_names(classes, MOST_SHOWN)}"
    )
