"""The page that is the report of an experiment: how it is written, and known again to be replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from refinecal.report import save_figures, write

if TYPE_CHECKING:
    from refinecal.report import Page

__all__ = ["PAGE", "is_page", "write_all"]

PAGE, PICTURES = "report.html", "figures"
BEGINNING = 4_000  # bytes of a page that hold its title


def write_all(
    page: Page, folder: Path, tables: Callable[[Path], object], pictures: str | None = None
) -> Path:
    """Write a report into a folder, which is made if need be; return its page.

    Parameters
    ----------
    page : Page
        Written first: from then on the folder is known as a report.
    folder : Path
        Where to.
    tables : callable
        Writes the tables into a folder.
    pictures : {"png", "svg", "pdf"}, optional
        Write each figure into ``folder/figures``, too, as such a picture.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write(page, folder / PAGE)
    tables(folder)
    if pictures is not None:
        save_figures(page, folder / PICTURES, pictures)
    return folder / PAGE


def is_page(path: Path, title: str) -> bool:
    """Tell whether a file is a page of refinecal with this title."""
    try:
        with path.open("rb") as file:
            beginning = file.read(BEGINNING)
    except OSError:
        return False
    marks = (b'<meta name="generator" content="refinecal">', f"<title>{title}</title>".encode())
    return all(mark in beginning for mark in marks)
