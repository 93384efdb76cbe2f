"""Columns with a part of their own: the target, the weight, the group, and those named in lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal.tabular._names import check_column
from refinecal.tabular._values import Mark, has_decimal_comma, numbers_by, texts_of

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa


def check_roles(
    columns: Sequence[str], target: str, weight: str | None, group: str | None
) -> dict[str, str]:
    """Return which column has which role; no column has two."""
    roles: dict[str, str] = {}
    for role, name in (("target", target), ("weight", weight), ("group", group)):
        if name is None:
            continue
        check_column(name, columns, role)
        if name in roles:
            raise ValueError(f"{name!r} is both {roles[name]} and {role}: name two columns")
        roles[name] = role
    return roles


def check_lists(
    columns: Sequence[str],
    roles: Mapping[str, str],
    drop: Sequence[str],
    categorical: Sequence[str],
    numeric: Sequence[str],
) -> dict[str, Any]:
    """Return the kinds that are given, by column."""
    given: dict[str, str] = {}
    for what, names in (("drop", drop), ("categorical", categorical), ("numeric", numeric)):
        if isinstance(names, str):
            raise TypeError(f"{what} is the text {names!r}: pass a list of names, [{names!r}]")
        for name in names:
            check_column(name, columns, what)
            other = roles.get(name, given.get(name, what))
            if other != what:
                raise ValueError(f"{name!r} is both {other} and {what}: leave it out of {what}")
            given[name] = what
    kinds = {"categorical": "category", "numeric": "number"}
    return {name: kinds[what] for name, what in given.items() if what in kinds}


def weights_of(
    table: pa.Table,
    name: str,
    first_row: int = 1,
    used: NDArray[np.bool_] | None = None,
    decimal: Mark = "",
) -> NDArray[np.float64]:
    """Return a column as weights, checked in the rows that are used."""
    check_column(name, table.column_names, "weight")
    values = numbers_by(table[name], decimal if has_decimal_comma(table) else ".").values
    used = np.ones(len(values), np.bool_) if used is None else used
    bad = np.flatnonzero(used & ~(values >= 0))
    if bad.size:
        value = table[name][int(bad[0])].as_py()
        found = "missing" if value is None else repr(value)
        raise ValueError(
            f"weight {name!r}, row {first_row + bad[0]} is {found}: a weight says how often the row counts, "
            "so it must be a finite number of at least 0"
        )
    if not values[used].any():
        raise ValueError(f"weight {name!r} is 0 in every row: at least one row must count")
    return values


def groups_of(
    table: pa.Table, name: str, first_row: int = 1, used: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Return a number for each row's group, missing in no row that is used."""
    check_column(name, table.column_names, "group")
    texts = texts_of(table[name])
    bad = np.flatnonzero((texts.codes < 0) & (True if used is None else used))
    if bad.size:
        raise ValueError(
            f"group {name!r}, row {first_row + bad[0]} is missing: every row must belong to a group. Give "
            "those without one a group each, or drop them."
        )
    return texts.places(sorted(texts.values.to_pylist()))
