"""From a page to the terminal. Digits are never cut: names are folded and spare columns hidden.

Minus signs become hyphens, in tables and sentences, so that numbers can be copied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from refinecal._core.format import MINUS, number
from refinecal.report.page import Table, show_cells

if TYPE_CHECKING:
    from rich.table import Table as RichTable

FOLDED = 14  # characters: narrower names are not folded
type_signs = partial(re.compile(f"{MINUS}(?=[\\d∞])").sub, "-")  # before numbers, not in a name


def show_table(table: Table, console: Any, rest: str = "more (-v shows all)") -> None:
    """Write a table with the numbers of the HTML report; long ones in full only if ``verbose``."""
    columns, numeric, cells = show_cells(table)
    texts = [["" if c.missing else type_signs(c.text) for c in row] for row in cells]
    hidden = len(texts) - table.terminal
    if console.verbose or hidden <= 1:  # to say that one row is hidden would take as much room
        hidden = 0
    left = [j for j, is_number in enumerate(numeric) if j == 0 or not is_number]
    spare = sorted((each.spare, j) for j, each in enumerate(columns) if each.spare)
    names, shown = [each.name for each in columns], texts[: len(texts) - hidden]
    console.table(names, shown, left, [j for _, j in spare])
    if hidden:
        console.say(f"… and {number(hidden)} {rest}\n")
    if table.note:
        console.tell(f"{table.note}\n")


def build_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Sequence[int],
    spare: Sequence[int],
    room: int | None,
) -> tuple[RichTable, list[int]]:
    """Return a table for a terminal ``room`` wide, and the places of its columns.

    Columns are right-aligned except for ``left``, which are folded. If that is not enough, ``spare`` columns
    are hidden, in this order.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table as RichTable
    from rich.text import Text

    whole = [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]
    folded = [min(width, FOLDED) if j in left else width for j, width in enumerate(whole)]
    shown = list(range(len(columns)))
    for place in spare:
        if room is None or sum(folded[j] + 2 for j in shown) <= room:
            break
        shown.remove(place)
    look: Any = {"box": box.SIMPLE_HEAD, "pad_edge": False, "collapse_padding": True}
    table = RichTable(**look, header_style="bold")
    for j in shown:
        justify: Any = "left" if j in left else "right"
        table.add_column(Text(columns[j]), justify=justify, no_wrap=j not in left, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[j]) for j in shown))
    needed = sum((whole if room is None else folded)[j] + 2 for j in shown)
    if room is None or needed > room:
        table.width = needed
    return table, shown
