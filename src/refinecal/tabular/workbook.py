"""Spreadsheets such as .xlsx: one sheet, with a line of names and a line of cells for each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from refinecal._core.errors import needs_extra, warn
from refinecal._core.format import list_names

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa

MOST_SHOWN = 10  # sheets
EXACT = 2**53  # whole numbers below are exact as floats
Cells = Sequence[Any]


class Workbook:
    """A sheet of a workbook, by default the first one; all of it is in memory.

    A column holds numbers, dates or truth values if all of its cells do, else strings, as in a text file.
    Cells that are empty or hold an error are missing; rows and columns without any value are skipped.
    """

    def __init__(self, path: Path, sheet: str | None = None) -> None:
        self.path = path
        cells, merged = self._read(sheet)
        rows = [row for row in cells if any(cell != "" for cell in row)]
        if not rows:
            raise ValueError(f"{path} has no value in the sheet: there is nothing to read")
        columns = [each for each in zip(*rows, strict=True) if any(cell != "" for cell in each)]
        self._check_layout(cells, merged, columns)
        self.names = [_write(each[0]).strip() or f"column {j}" for j, each in enumerate(columns, 1)]
        self.has_rows = len(rows) > 1
        self._columns = [_to_arrow(each[1:]) for each in columns]

    def tables(self, columns: list[str], rows: int) -> Iterator[pa.Table]:
        places = [self.names.index(name) for name in columns]
        table = pa.table([self._columns[place] for place in places], names=columns)
        yield from (table.slice(start, rows) for start in range(0, table.num_rows, rows))

    def _read(self, sheet: str | None) -> tuple[list[Cells], Any]:
        """Return all cells of the sheet, and the corners of those that are merged."""
        with needs_extra("xlsx", package="python_calamine"):
            from python_calamine import CalamineError, load_workbook
        try:
            with load_workbook(str(self.path)) as book:
                found = book.get_sheet_by_name(self._choose(book.sheet_names, sheet))
                cells: list[Any] = found.to_python(skip_empty_area=False)
                return cells, found.merged_cell_ranges or ()
        except CalamineError as error:
            raise ValueError(
                f"{self.path} cannot be read as a spreadsheet: it is damaged, protected by a password or of "
                f"another format than its ending says. Save it again. ({error})"
            ) from error

    def _choose(self, names: Sequence[str], sheet: str | None) -> str:
        if sheet is None:
            if len(names) > 1:
                warn(
                    f"{self.path} has {len(names)} sheets, of which {names[0]!r} is read: choose another "
                    "with --sheet"
                )
            return names[0]
        if sheet not in names:
            near = get_close_matches(sheet, names, 1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            listed = list_names(names, MOST_SHOWN)
            raise ValueError(f"sheet is {sheet!r}, but {self.path} has {listed}.{meant}")
        return sheet

    def _check_layout(self, cells: list[Cells], merged: Any, columns: Sequence[Cells]) -> None:
        """Refuse merged cells, of which all but one would be missing, and lines above that of the names."""
        fix = "put one line of column names first, and fill every cell of the rows below it"
        for (top, left), (bottom, right) in merged:
            if top < len(cells) and left < len(cells[top]) and cells[top][left] != "":
                where = f"{_cell(top, left)}:{_cell(bottom, right)}"
                raise ValueError(f"{self.path}: the cells {where} are merged: unmerge them, {fix}")
        n_named = sum(column[0] != "" for column in columns)
        if 2 * n_named < len(columns):
            raise ValueError(
                f"{self.path}: the first line has values in {n_named} of {len(columns)} columns, so it is "
                f"hardly that of their names: {fix}"
            )


def _cell(row: int, column: int) -> str:
    """Return the name of a cell.

    >>> _cell(0, 0), _cell(9, 27)
    ('A1', 'AB10')
    """
    letters = ""
    while column >= 0:
        column, letter = divmod(column, 26)
        letters, column = chr(ord("A") + letter) + letters, column - 1
    return f"{letters}{row + 1}"


def _to_arrow(cells: Cells) -> pa.Array:
    """Return a column as numbers, dates or truth values if all cells are, else as strings."""
    values = [None if cell == "" else cell for cell in cells]
    values = [each.total_seconds() if isinstance(each, timedelta) else each for each in values]
    kinds = {type(each) for each in values if each is not None}
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds and kinds <= {int, float}:
        is_whole = all(each is None or (each == int(each) and abs(each) < EXACT) for each in values)
        return pa.array(values, pa.int64() if is_whole else pa.float64(), from_pandas=not is_whole)
    if kinds and kinds <= {date, datetime}:
        times = [
            datetime(each.year, each.month, each.day) if type(each) is date else each
            for each in values
        ]
        return pa.array(times, pa.timestamp("us"))
    return pa.array([None if each is None else _write(each) for each in values], pa.string())


def _write(cell: Any) -> str:
    """Return the text of a cell: 3, not 3.0, and dates as in ISO 8601."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < EXACT:
        return str(int(cell))
    return cell.isoformat(" ") if isinstance(cell, datetime) else str(cell)
