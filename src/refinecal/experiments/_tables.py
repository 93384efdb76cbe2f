"""Tables of results as CSV files: the same rows make the same bytes on any machine."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

from refinecal._core.files import atomic_write

__all__ = ["write_table"]

DIGITS = 10  # significant ones: the last bits of a sum depend on the machine


def write_table(path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Any]) -> None:
    """Write a CSV file, whole or not at all; the same rows make the same bytes on any machine."""
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
