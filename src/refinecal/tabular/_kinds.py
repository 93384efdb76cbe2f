"""What a schema found out, as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refinecal.tabular._names import listed

if TYPE_CHECKING:
    from refinecal.tabular._columns import Column
    from refinecal.tabular.schema import Schema

Row = dict[str, str | int]


def shown_kinds(schema: Schema) -> list[Row]:
    """Return one row for each column, those with a role first."""
    roles = {"target": schema.target, "weight": schema.weight, "group": schema.group}
    rows: list[Row] = [
        {"name": name, "kind": kind, "missing": "", "distinct": "", "note": ""}
        for kind, name in roles.items()
        if name is not None
    ]
    rare = listed(schema.rare_classes, 3)
    rows[0] |= {
        "missing": schema.n_rows - sum(schema.class_counts),
        "distinct": len(schema.classes),
        "note": f"a single row: {rare}" if rare else "",
    }
    return rows + [_row(column) for column in schema.columns]


def _row(column: Column) -> Row:
    is_date = column.form == "date" and column.kind == "number"
    return {
        "name": column.name,
        "kind": "date" if is_date else column.kind,
        "missing": column.n_missing,
        "distinct": column.n_distinct,
        "note": column.note,
    }
