"""Cells of a table as text, and the numbers they are sorted by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import SupportsFloat, TypeGuard

from refinecal._core.format import MISSING, MOST_DECIMALS, number, significant_decimals
from refinecal.report.page import Cell, Column, Written

SPREAD = 100.0  # columns whose numbers differ by at most this factor have common decimals
LONGEST = 80  # characters of a name that are shown


@dataclass(frozen=True)
class RenderedCell:
    """The text of a cell; ``value`` is its number, ``full`` the whole name if it was shortened."""

    text: str
    value: str = ""
    full: str = ""
    missing: bool = False
    strong: bool = False


def show_column(column: Column, cells: Sequence[Cell]) -> list[RenderedCell]:
    """Return the cells of one column as text, with common decimals if its numbers are of similar size."""
    digits = column.digits
    if digits is None:
        digits = 1 if column.percent else _common_decimals(cells)
    shown = [show(cell, digits, column.percent) for cell in cells]
    if column.sign:
        shown = [replace(c, text=f"+{c.text}") if c.text[:1].isdigit() else c for c in shown]
    return shown


def show(cell: Cell, digits: int | None = None, percent: bool = False) -> RenderedCell:
    """Return one cell as text; without ``digits``, a number has 4 significant digits.

    >>> show(12345.678).text, show(-0.00001, digits=4).text, show(float("nan")).text
    ('12,346', '0.0000', '–')
    """
    if is_missing(cell):
        return RenderedCell(MISSING, missing=True)
    if isinstance(cell, bool):
        return RenderedCell("yes" if cell else "no")
    if isinstance(cell, Written):
        value = "" if cell.value is None or math.isnan(cell.value) else _value(cell.value)
        return RenderedCell(cell.text, value=value, strong=cell.strong)
    if not _is_number(cell):
        text = str(cell)
        return RenderedCell(shorten(text), full=text if len(text) > LONGEST else "")
    if not percent:
        return RenderedCell(number(cell, digits), value=_value(cell))
    return RenderedCell(number(100 * float(cell), digits) + "%", value=_value(cell))


def is_missing(cell: Cell) -> bool:
    """Return whether a cell is ``None``, NaN or empty."""
    if isinstance(cell, Written):
        return not cell.text
    return cell is None or cell == "" or (_is_float(cell) and math.isnan(cell))


def is_numeric(cells: Sequence[Cell]) -> bool:
    """Return whether a column has mostly numbers, which are right-aligned."""
    found = [cell for cell in cells if not is_missing(cell)]
    numbers = sum(_is_number(cell.value if isinstance(cell, Written) else cell) for cell in found)
    return 2 * numbers > len(found)


def shorten(name: str, width: int = LONGEST) -> str:
    """Return a name of at most ``width`` characters, without its middle: ends distinguish long names."""
    if len(name) <= width:
        return name
    kept = width - 1
    return f"{name[: kept - kept // 3].rstrip()}…{name[-(kept // 3) :].lstrip()}"


def _is_number(cell: object) -> TypeGuard[Real]:
    """Return whether a cell is a number; ``True`` and ``False`` are not."""
    return isinstance(cell, Real) and not isinstance(cell, bool)


def _is_float(cell: object) -> TypeGuard[Real]:
    return isinstance(cell, Real) and not isinstance(cell, Integral)


def _value(value: SupportsFloat) -> str:
    """Return a number as JavaScript reads it."""
    if isinstance(value, Integral):
        return str(int(value))
    return repr(float(value)).replace("inf", "Infinity")


def _common_decimals(cells: Sequence[Cell]) -> int | None:
    """Return the decimals for all floats of a column; ``None`` if their sizes differ too much."""
    floats = [float(cell) for cell in cells if _is_float(cell)]
    above = [abs(value) for value in floats if math.isfinite(value) and value != 0]
    if not above or max(above) > SPREAD * min(above):
        return None
    digits = significant_decimals(max(above))
    return None if digits > MOST_DECIMALS or max(above) >= 1e15 else digits
