"""How commands speak: tables for people on stdout, notes and progress on stderr, JSON for programs."""

from __future__ import annotations

import functools
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec

import typer

from refinecal._json import plain

P = ParamSpec("P")

FAILED, INTERRUPTED = 1, 130
EXPECTED = (ValueError, OSError, ModuleNotFoundError)  # trouble with what the user gave


class Voice:
    """Says things to people, or to a program, or as little as possible."""

    def __init__(self, as_json: bool = False, quiet: bool = False, verbose: bool = False) -> None:
        from rich.console import Console

        self.as_json, self.quiet, self.verbose = as_json, quiet, verbose
        self.out = Console(highlight=False, soft_wrap=True)
        self.err = Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str = "", style: str | None = None) -> None:
        """Write a line for people."""
        if not (self.as_json or self.quiet):
            self.out.print(text, style=style, markup=False)

    def tell(self, text: str, style: str | None = None) -> None:
        """Write a sentence for people, wrapped at the width of the terminal."""
        if not (self.as_json or self.quiet):
            self.out.print(text, style=style, markup=False, soft_wrap=False)

    def note(self, text: str) -> None:
        """Write a line that is not part of the result."""
        if not self.quiet:
            self.err.print(f"note: {text}", style="yellow", markup=False)

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)
    ) -> None:
        """Write a table; columns are right-aligned but for ``left``."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        if self.as_json or self.quiet:
            return
        look: Any = {"box": box.SIMPLE_HEAD, "pad_edge": False, "collapse_padding": True}
        found = Table(**look, header_style="bold")
        for place, name in enumerate(columns):
            is_left = place in left
            found.add_column(
                Text(name),
                justify="left" if is_left else "right",
                no_wrap=not is_left,
                overflow="fold",
                min_width=min(14, max(len(row[0]) for row in rows))
                if place == 0 and rows
                else None,
            )
        for row in rows:
            found.add_row(*(Text(cell) for cell in row))
        self.out.print(found)

    def result(self, value: Any) -> None:
        """Write the result for a program."""
        if self.as_json:
            sys.stdout.write(json.dumps(plain(value), ensure_ascii=False, allow_nan=False) + "\n")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Turn warnings of the package into notes."""

        def show(message: Warning | str, *about: Any, **more: Any) -> None:
            self.note(str(message))

        with warnings.catch_warnings():
            warnings.simplefilter("always" if self.verbose else "default")
            for category in (DeprecationWarning, FutureWarning, ResourceWarning):
                warnings.simplefilter("default" if self.verbose else "ignore", category)
            warnings.showwarning = show
            yield


def command(example: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Make a function a command: its help has an example, its errors are a message, not a traceback."""

    def decorate(function: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(function)
        def run(*args: P.args, **options: P.kwargs) -> None:
            try:
                function(*args, **options)
            except KeyboardInterrupt:
                typer.echo("\ninterrupted", err=True)
                raise typer.Exit(INTERRUPTED) from None
            except BrokenPipeError:  # whoever read our output has had enough
                sys.stderr.close()
                raise typer.Exit(FAILED) from None
            except EXPECTED as error:
                if options.get("verbose"):
                    traceback.print_exc()
                typer.echo(f"error: {worded(error)}", err=True)
                raise typer.Exit(FAILED) from None

        run.__epilog__ = f"Example: [bold]{example}[/bold]"  # type: ignore[attr-defined]
        return run

    return decorate


def worded(error: BaseException) -> str:
    """Return what an error says; that of a file names it."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def count(number: float, one: str, many: str | None = None) -> str:
    """Return a number with its noun: "1 row", "12 000 rows".

    >>> count(12000, "row"), count(1, "class", "classes")
    ('12 000 rows', '1 class')
    """
    noun = one if number == 1 else many or f"{one}s"
    return f"{number:,.0f} {noun}".replace(",", " ")


def shown(path: Path) -> str:
    """Return a path as its user would write it: relative if it is below the current folder."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
