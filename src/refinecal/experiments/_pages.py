"""The page that is the report of an experiment: how it is written, and known again to be replaced."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from refinecal.report import save_figures, write

if TYPE_CHECKING:
    from refinecal.report import Page

__all__ = ["PAGE", "is_page", "write_page", "write_pictures"]

PAGE, PICTURES = "report.html", "figures"
BEGINNING = 4_000  # bytes of a page that hold its title


def write_page(page: Page, folder: Path) -> Path:
    """Write a page into a folder, which is made if need be and known as a report from then on; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    write(page, folder / PAGE)
    return folder / PAGE


def write_pictures(page: Page, folder: Path, kind: str | None) -> None:
    """Write each figure of a page into ``folder/figures``, too, as a picture: "png", "svg" or "pdf"."""
    if kind is not None:
        save_figures(page, folder / PICTURES, kind)


def is_page(path: Path, title: str) -> bool:
    """Tell whether a file is a page of refinecal with this title."""
    try:
        with path.open("rb") as file:
            beginning = file.read(BEGINNING)
    except OSError:
        return False
    marks = (b'<meta name="generator" content="refinecal">', f"<title>{title}</title>".encode())
    return all(mark in beginning for mark in marks)
