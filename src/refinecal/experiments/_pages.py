"""Which pages are reports of an experiment, so that a new one may replace them."""

from pathlib import Path

__all__ = ["is_page"]

BEGINNING = 4_000  # bytes of a page that hold its title


def is_page(path: Path, title: str) -> bool:
    """Tell whether a file is a page of refinecal with this title."""
    try:
        with path.open("rb") as file:
            beginning = file.read(BEGINNING)
    except OSError:
        return False
    marks = (b'<meta name="generator" content="refinecal">', f"<title>{title}</title>".encode())
    return all(mark in beginning for mark in marks)
