"""Where a command may write: never over what it reads."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import typer

from refinecal.cli._console import show_path

PAGES = (".html", ".htm")


def check_report(path: Path | None, inputs: Iterable[Path]) -> None:
    """Refuse a report that would not be a page, has no folder, or would take the place of an input."""
    if path is None:
        return
    if path.suffix.lower() not in PAGES:
        raise typer.BadParameter(
            f"{path} does not end in .html: a report is an HTML page", param_hint="--report"
        )
    check_output(path, inputs, "--report")
    import jinja2  # noqa: F401  # if it is missing, say so now and not after the work
    import matplotlib  # noqa: F401


def check_output(path: Path, inputs: Iterable[Path], option: str) -> None:
    """Refuse to write to an input, to a folder, or into one that is not there."""
    for given in inputs:
        if _holds(given, path):
            raise ValueError(
                f"{option} {show_path(path)} would take the place of what is read: name another file"
            )
    if path.is_dir():
        raise ValueError(f"{option} {show_path(path)} is a folder: name a file")
    if not path.parent.is_dir():
        raise ValueError(
            f"{option}: the folder {show_path(path.parent)} does not exist: make it first"
        )


def check_folder(path: Path, inputs: Iterable[Path]) -> None:
    """Refuse a run folder that is, or holds, what is read, or where the command is run."""
    here = Path.cwd()
    if path.is_dir() and (os.path.samefile(here, path) or _is_below(here, path)):
        raise ValueError(
            f"--out {show_path(path)} is or holds the folder that you are in: run the command elsewhere"
        )
    for given in inputs:
        if path.exists() and given.exists() and os.path.samefile(given, path):
            raise ValueError(f"--out {show_path(path)} is a table that is read: name a folder")
        if path.is_dir() and _is_below(given, path):
            raise ValueError(
                f"--out {show_path(path)} holds {show_path(given)}, which is read: name another folder"
            )


def _holds(given: Path, path: Path) -> bool:
    """Tell whether a file that is there is an input, or in a folder that is one."""
    if not path.exists():
        return False
    return os.path.samefile(given, path) if given.is_file() else _is_below(path, given)


def _is_below(path: Path, folder: Path) -> bool:
    return folder.resolve() in path.resolve().parents
