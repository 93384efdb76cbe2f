"""Names of columns: find the one that was meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

MOST_NAMES = 12  # so many are shown in an error


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name most like this one, whatever the case of its letters; ``None`` if none is.

    >>> nearest("Incom", ["age", "income"])
    'income'
    """
    plain = {each.strip().lower(): each for each in names}
    found = get_close_matches(name.strip().lower(), plain, 1)
    return plain[found[0]] if found else None


def hint(name: str, names: Sequence[str]) -> str:
    """Return the end of an error about a name that is not there."""
    near = nearest(name, names)
    meant = "" if near is None else f" Did you mean {near!r}?"
    return f"{meant} The columns are {listed(names)}."


def listed(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """Return names as a list for people, cut off if there are many.

    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def check_column(
    name: str, names: Sequence[str], what: str, where: str = "the table", more: str = ""
) -> str:
    """Return the name if there is such a column; else raise, suggest the nearest, and say ``more``.

    >>> check_column("incom", ["age", "income"], "target")
    Traceback (most recent call last):
    ...
    ValueError: target is 'incom', but the table has no such column. Did you mean 'income'? \
The columns are 'age', 'income'.
    """
    if name in names:
        return name
    raise ValueError(
        f"{what} is {name!r}, but {where} has no such column.{hint(name, names)}{more}"
    )


def check_there(needed: Sequence[str], names: Sequence[str], unknown: Sequence[str]) -> None:
    """Raise if a column is missing that a model needs, perhaps one of the unknown under another name.

    >>> check_there(["age", "size"], ["age", "Size"], ["Size"])
    Traceback (most recent call last):
    ...
    ValueError: the table lacks the column 'size', which the model needs. Did you mean 'Size'? \
The columns are 'Size'.
    """
    given = set(names)
    absent = [name for name in needed if name not in given]
    if absent:
        lacks = "column" if len(absent) == 1 else "columns"
        raise ValueError(
            f"the table lacks the {lacks} {listed(absent)}, which the model needs."
            f"{hint(absent[0], unknown or names)}"
        )
