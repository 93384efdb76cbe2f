"""Tables on a terminal of any width: digits are never cut; names fold, and columns may be left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

NAME = 14  # characters: narrower names are not folded


def build_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int], room: int | None
) -> Table:
    """Return a table for a terminal ``room`` wide; columns are right-aligned but for ``left``."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    look: Any = {"box": box.SIMPLE_HEAD, "pad_edge": False, "collapse_padding": True}
    table = Table(**look, header_style="bold")
    for place, name in enumerate(columns):
        is_left = place in left
        table.add_column(
            Text(name),
            justify="left" if is_left else "right",
            no_wrap=not is_left,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    if room is None or minimum_width(columns, rows, left) > room:
        table.width = (
            natural_width(columns, rows) if room is None else minimum_width(columns, rows, left)
        )
    return table


def find_hidden_columns(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Sequence[int],
    spare: Sequence[str],
    room: int | None,
) -> list[int]:
    """Return the places of the columns to leave out: of the ``spare`` ones, the first first."""
    gone: list[int] = []
    for name in (each for each in spare if each in columns):
        kept = [place for place in range(len(columns)) if place not in gone]
        if room is None or minimum_width(*select_columns(columns, rows, left, kept)) <= room:
            break
        gone.append(list(columns).index(name))
    return sorted(gone)


def select_columns(
    columns: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int], kept: Sequence[int]
) -> tuple[list[str], list[list[str]], list[int]]:
    """Return a table with only some of its columns."""
    return (
        [columns[place] for place in kept],
        [[row[place] for place in kept] for row in rows],
        [now for now, place in enumerate(kept) if place in left],
    )


def minimum_width(
    columns: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int]
) -> int:
    """Return the width that a table needs if its names are folded."""
    wide = column_widths(columns, rows)
    return sum(min(w, NAME) if j in left else w for j, w in enumerate(wide)) + _border_width(
        columns
    )


def natural_width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the width of a table in which nothing is folded."""
    return sum(column_widths(columns, rows)) + _border_width(columns)


def column_widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column."""
    from rich.cells import cell_len

    return [max(map(cell_len, [name, *(row[j] for row in rows)])) for j, name in enumerate(columns)]


def _border_width(columns: Sequence[str]) -> int:
    """Return what borders and gaps take: one character at each side, two between columns."""
    return 2 + 2 * (len(columns) - 1)
