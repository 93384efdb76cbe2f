"""What the columns of a table are, learnt from all of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refinecal._core.errors import needs_extra
from refinecal.tabular._columns import Column, drop_column, infer_column
from refinecal.tabular._roles import check_lists, check_roles, groups_of, weights_of
from refinecal.tabular._target import infer_classes
from refinecal.tabular._values import Mark, has_decimal_comma, has_points, mark_of, texts_of

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa


def infer_fields(
    table: pa.Table,
    target: str,
    weight: str | None,
    group: str | None,
    lists: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Return the fields of a schema; ``lists`` has the names of drop, categorical and numeric."""
    roles = check_roles(table.column_names, target, weight, group)
    forced = check_lists(table.column_names, roles, **lists)
    marks = marks_of(table)
    dropped = set(lists["drop"])
    columns = tuple(
        drop_column(name, table[name])
        if name in dropped
        else infer_column(name, table[name], forced.get(name), marks.get(name))
        for name in table.column_names
        if name not in roles
    )
    classes, counts = infer_classes(target, table[target])
    _check_features(columns, target)
    decimal = marks.get(weight, "") if weight is not None else ""
    labelled = texts_of(table[target]).codes >= 0  # the others may lack a weight or a group too
    if weight is not None:
        weights_of(table, weight, used=labelled, decimal=decimal)
    if group is not None:
        groups_of(table, group, used=labelled)
    return {
        "columns": columns,
        "target": target,
        "classes": classes,
        "weight": weight,
        "group": group,
        "n_rows": table.num_rows,
        "class_counts": counts,
        "weight_decimal": decimal,
    }


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


def _check_features(columns: Sequence[Column], target: str) -> None:
    if all(column.kind == "unused" for column in columns):
        why = "; ".join(f"{column.name!r}: {column.note}" for column in columns[:5])
        raise ValueError(
            f"beside {target!r}, the table has no column to learn from" + f" ({why})" * bool(why)
        )
