"""Output files of commands: checked before the work, and never an input."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from refinecal.cli._console import Console, show_path

if TYPE_CHECKING:
    from refinecal.report import Page

PAGES = (".html", ".htm")


def check_report(path: Path | None, inputs: Iterable[Path]) -> None:
    """Raise an error unless the report is an HTML file in a folder that exists, and not an input."""
    if path is None:
        return
    if path.suffix.lower() not in PAGES:
        raise typer.BadParameter(
            f"{path} does not end in .html: a report is an HTML page", param_hint="--report"
        )
    check_output(path, inputs, "--report")
    check_renderer()


def check_renderer() -> None:
    """Fail now, and not after the work, if a package that writes reports is missing."""
    import jinja2  # noqa: F401
    import matplotlib  # noqa: F401


def write_report(console: Console, page: Page, path: Path | None) -> None:
    """Write a page as HTML, if a file is given, and say where it is."""
    if path is not None:
        from refinecal.report import write

        write(page, path)
        console.say(f"\nReport: {show_path(path)}")


def check_output(path: Path, inputs: Iterable[Path], option: str) -> None:
    """Raise an error if a file is an input or a folder, or its folder does not exist."""
    for given in inputs:
        if _holds(given, path):
            raise ValueError(
                f"{option} {show_path(path)} would overwrite an input: choose another file"
            )
    if path.is_dir():
        raise ValueError(f"{option} {show_path(path)} is a folder: pass a file")
    if not path.parent.is_dir():
        raise ValueError(
            f"{option}: the folder {show_path(path.parent)} does not exist: create it first"
        )


def check_folder(path: Path, inputs: Iterable[Path]) -> None:
    """Raise an error if a run folder is or contains an input or the current folder."""
    here = Path.cwd()
    if path.is_dir() and (os.path.samefile(here, path) or _is_below(here, path)):
        raise ValueError(
            f"--out {show_path(path)} is or contains the current folder: run the command elsewhere"
        )
    for given in inputs:
        if path.exists() and given.exists() and os.path.samefile(given, path):
            raise ValueError(f"--out {show_path(path)} is an input table: pass a folder")
        if path.is_dir() and _is_below(given, path):
            raise ValueError(
                f"--out {show_path(path)} contains the input {show_path(given)}: choose another folder"
            )


def _holds(given: Path, path: Path) -> bool:
    """Return whether an existing file is an input, or in an input folder."""
    if not path.exists():
        return False
    return os.path.samefile(given, path) if given.is_file() else _is_below(path, given)


def _is_below(path: Path, folder: Path) -> bool:
    return folder.resolve() in path.resolve().parents
