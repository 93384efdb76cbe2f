"""What the reports of all experiments share: files, cells of tables, numbers in sentences."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from refinecal._core.files import atomic_write
from refinecal._core.format import MINUS, MISSING
from refinecal.report import Column, Figure, Page, Table, save_figures, write

PAGE, PICTURES = "report.html", "figures"
BEGINNING = 4_000  # bytes of a page that hold its title
DIGITS = 10  # significant digits of a CSV file: the last bits of a sum depend on the machine
UNBROKEN = str.maketrans(
    {
        " ": "\N{NO-BREAK SPACE}",
        "-": "\N{NON-BREAKING HYPHEN}",
        ".": "\N{WORD JOINER}.",
        "/": "/\N{WORD JOINER}",
    }
)

Blocks = list[Table | Figure]
Columns = list[str | Column]
Cells = list[Any]
CsvTables = Mapping[str, tuple[Sequence[str], Iterable[Any]]]  # by name: columns and rows


def write_report(page: Page, tables: CsvTables, folder: Path, pictures: str | None = None) -> Path:
    """Write a page and its tables into a folder, which is created if need be; return the path of the page.

    The page is written first: from then on the folder is recognized as a report. ``pictures`` is
    ``"png"``, ``"svg"`` or ``"pdf"`` to write each figure into ``folder/figures``, too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write(page, folder / PAGE)
    write_tables(tables, folder)
    if pictures is not None:
        save_figures(page, folder / PICTURES, pictures)
    return folder / PAGE


def is_report(folder: Path, title: str) -> bool:
    """Tell whether a folder holds a report of refinecal with this title."""
    try:
        with (folder / PAGE).open("rb") as file:
            beginning = file.read(BEGINNING)
    except OSError:
        return False
    marks = (b'<meta name="generator" content="refinecal">', f"<title>{title}</title>".encode())
    return all(mark in beginning for mark in marks)


def write_tables(tables: CsvTables, folder: Path) -> list[Path]:
    """Write every table into a folder, as CSV files; return the files."""
    for name, (columns, rows) in tables.items():
        write_table(folder / f"{name}.csv", columns, rows)
    return [folder / f"{name}.csv" for name in tables]


def write_table(path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Any]) -> None:
    """Write a CSV file, complete or not at all; the same rows make the same bytes on any machine."""
    with atomic_write(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(value) for value in row] for row in rows)


def _cell(value: Any) -> str:
    """Return a value as text: 10 significant digits, nothing for what is missing.

    >>> _cell(0.1 + 0.2), _cell(float("nan")), _cell(3), _cell("a"), _cell(-0.0)
    ('0.3', '', '3', 'a', '0')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return f"{value + 0.0:.{DIGITS}g}"
    return value if isinstance(value, str) else json.dumps(value)


def keep_together(cell: Any) -> Any:
    """Keep a few words, or a number among them, on one line; leave other cells as they are."""
    return cell.translate(UNBROKEN) if isinstance(cell, str) else cell


def signed(value: float, digits: int = 2) -> str:
    """Return a number with its sign, never minus 0.

    >>> signed(-0.123), signed(0.001), signed(float("nan"))
    ('−0.12', '0.00', '–')
    """
    if not math.isfinite(value):
        return MISSING
    rounded = round(value, digits) + 0.0
    return f"{rounded:{'+' if rounded else ''}.{digits}f}".replace("-", MINUS)


def number_columns(*names: str) -> list[Column]:
    """Return columns of whole numbers."""
    return [Column(name, digits=0) for name in names]


def join_names(names: Sequence[str]) -> str:
    """Return names as a list in a sentence.

    >>> join_names(["a", "b", "c"]), join_names(["a"])
    ('a, b and c', 'a')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
