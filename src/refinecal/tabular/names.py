"""Names of columns: find the one that was meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from refinecal._core.format import list_names

MOST_MESSAGES = 5  # about columns, one each
DELIMITERS = {",": "','", ";": "';'", "\t": "'tab'", "|": "'|'", ":": "':'"}  # and how to pass them


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name most like this one, ignoring case; ``None`` if none is.

    >>> nearest("Incom", ["age", "income"])
    'income'
    """
    plain = {each.strip().lower(): each for each in names}
    found = get_close_matches(name.strip().lower(), plain, 1)
    return plain[found[0]] if found else None


def hint(name: str, names: Sequence[str], likely: Sequence[str] = ()) -> str:
    """Return the end of an error about a column that is not there; ``likely`` are those it may be."""
    listed = "only column is" if len(names) == 1 else "columns are"
    found = f" The {listed} {list_names(names)}."
    suspected = suspect_delimiter(names, name)
    if suspected:
        return f"{found} {suspected}"
    near = nearest(name, likely or names)
    return found if near is None else f" Did you mean {near!r}?{found}"


def suspect_delimiter(names: Sequence[str], wanted: str) -> str:
    """Return what to do about the only name if it looks like several, or one that holds the wanted one.

    >>> suspect_delimiter(["age;size;y"], "label")
    "Is ';' between its columns? Then pass delimiter=';'."
    """
    several = names
    if len(names) > 1:
        several = [name for name in names if any(wanted in name.split(d) for d in DELIMITERS)]
    most = max(DELIMITERS, key="".join(several).count)
    if most not in "".join(several):
        return ""
    what = "a tab" if most == "\t" else repr(most)
    return f"Is {what} between its columns? Then pass delimiter={DELIMITERS[most]}."


def check_column(
    name: str, names: Sequence[str], what: str, where: str = "the table", more: str = ""
) -> None:
    """Raise unless there is such a column; suggest the nearest, and say ``more``.

    >>> check_column("incom", ["age", "income"], "target")
    Traceback (most recent call last):
    ...
    ValueError: target is 'incom', but the table has no such column. Did you mean 'income'? \
The columns are 'age', 'income'.
    """
    if name not in names:
        raise ValueError(
            f"{what} is {name!r}, but {where} has no such column.{hint(name, names)}{more}"
        )


def shorten(messages: Mapping[str, str], most: int = MOST_MESSAGES) -> list[str]:
    """Return messages about columns, the last of them about all others if there are many.

    >>> shorten({"a": "'a' is empty", "b": "'b' is empty", "c": "'c' is empty"}, most=1)
    ["'a' is empty", "and 2 more columns: 'b', 'c'"]
    """
    texts, others = list(messages.values()), list(messages)[most:]
    if len(others) < 2:
        return texts
    return [*texts[:most], f"and {len(others)} more columns: {list_names(others)}"]
