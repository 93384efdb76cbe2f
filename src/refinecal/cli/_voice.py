"""How commands speak: tables for people on stdout, notes and progress on stderr, JSON for programs."""

from __future__ import annotations

import functools
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec

import typer

from refinecal._core.errors import needs_extra
from refinecal._core.files import FULL, plain
from refinecal._core.format import GAP, spaced
from refinecal.cli import _interrupts, _tables
from refinecal.cli._words import clean, on_the_command_line

P = ParamSpec("P")

FAILED = 1
PACKAGES = ("jinja2", "matplotlib", "pandas", "pyarrow")  # of the extra, beside typer and rich
EXPECTED = (
    ValueError,
    OSError,
    MemoryError,
    ModuleNotFoundError,
)  # trouble with what the user gave


class Console:
    """Says things to people, or to a program, or as little as possible."""

    def __init__(self, as_json: bool = False, quiet: bool = False, verbose: bool = False) -> None:
        from rich.console import Console as RichConsole

        self.as_json, self.quiet, self.verbose = as_json, quiet, verbose
        self.out = RichConsole(highlight=False, soft_wrap=True)
        self.err = RichConsole(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str = "", style: str | None = None) -> None:
        """Write a line for people."""
        if not (self.as_json or self.quiet):
            self.out.print(clean(spaced(text)), style=style, markup=False)

    def tell(self, text: str, style: str | None = None) -> None:
        """Write a sentence for people, wrapped at the width of the terminal."""
        if not (self.as_json or self.quiet):
            self.out.print(clean(spaced(text)), style=style, markup=False, soft_wrap=False)

    def note(self, text: str) -> None:
        """Write a line that is not part of the result."""
        if not self.quiet:
            said = clean(spaced(on_the_command_line(text)))
            self.err.print(f"note: {said}", style="yellow", markup=False)

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        left: Sequence[int] = (0,),
        spare: Sequence[str] = (),
    ) -> None:
        """Write a table; columns are right-aligned but for ``left``.

        Where the terminal is too narrow names fold, then ``spare`` columns are left out, the first first.
        """
        if self.as_json or self.quiet:
            return
        columns = [to_one_line(name) for name in columns]
        rows = [[to_one_line(cell) for cell in row] for row in rows]
        gone = _tables.find_hidden_columns(columns, rows, left, spare, self.room)
        kept = [place for place in range(len(columns)) if place not in gone]
        self.out.print(
            _tables.build_table(*_tables.select_columns(columns, rows, left, kept), self.room)
        )
        if gone:
            names = ", ".join(columns[place] for place in gone)
            self.tell(f"Left out for want of room: {names}")

    @property
    def room(self) -> int | None:
        """Width of the terminal; ``None`` for a file or a pipe, which take any width."""
        known = self.out.is_terminal or os.environ.get("COLUMNS", "").isdigit()
        return self.out.width if known else None

    def result(self, value: Any) -> None:
        """Write the result for a program."""
        if self.as_json:
            sys.stdout.write(json.dumps(plain(value), ensure_ascii=False, allow_nan=False) + "\n")

    @contextmanager
    def show_warnings(self, said: str | None = None) -> Iterator[None]:
        """Turn warnings of the package into notes, but for what the command says itself."""

        def show(message: Warning | str, *about: Any, **more: Any) -> None:
            self.note(str(message))

        with warnings.catch_warnings():
            warnings.simplefilter("always" if self.verbose else "default")
            for category in (DeprecationWarning, FutureWarning, ResourceWarning):
                warnings.simplefilter("default" if self.verbose else "ignore", category)
            if said is not None:
                warnings.filterwarnings("ignore", f".*{said}")
            warnings.showwarning = show
            yield


def command(example: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Make a function a command: its help has an example, its errors are a message, not a traceback."""

    def decorate(function: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(function)
        def run(*args: P.args, **options: P.kwargs) -> None:
            _interrupts.begin()
            try:
                with needs_extra("cli", *PACKAGES):
                    function(*args, **options)
            except KeyboardInterrupt as error:
                _interrupts.end()
                more = f"; {error}" if str(error) else ""
                typer.echo(f"{_interrupts.word()}{more}", err=True)
                raise typer.Exit(_interrupts.code()) from None
            except BrokenPipeError:  # whoever read our output has had enough
                sys.stderr.close()
                raise typer.Exit(FAILED) from None
            except Exception as error:
                if _interrupts.end():  # which somebody took for an error of theirs
                    typer.echo(_interrupts.word(), err=True)
                    raise typer.Exit(_interrupts.code()) from None
                if not isinstance(error, EXPECTED):  # typer's own, and ours
                    raise
                if options.get("verbose"):
                    traceback.print_exc()
                typer.echo(f"error: {describe_error(error)}", err=True)
                raise typer.Exit(FAILED) from None
            finally:
                _interrupts.end()

        run.__epilog__ = f"Example: [bold]{example}[/bold]"  # type: ignore[attr-defined]
        return run

    return decorate


def describe_error(error: BaseException) -> str:
    """Return what an error says, in words of the command line; that of a file names it."""
    said = on_the_command_line(str(error))
    if isinstance(error, MemoryError) and not said:
        said = "there is not enough memory for this"
    if isinstance(error, OSError) and error.errno in FULL:
        said = FULL[error.errno].format(error.filename or "the output")
    elif isinstance(error, OSError) and error.strerror and error.filename:
        said = f"{error.filename}: {error.strerror}"
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return clean(spaced(said) + notes)


def count(number: float, one: str, many: str | None = None) -> str:
    """Return a number with its noun: "1 row", "12 000 rows".

    >>> count(12000, "row").replace(GAP, "_"), count(1, "class", "classes")
    ('12_000 rows', '1 class')
    """
    noun = one if number == 1 else many or f"{one}s"
    return f"{number:,.0f} {noun}".replace(",", GAP)


def to_one_line(text: str) -> str:
    """Return a text for a cell of a table."""
    return clean(" ".join(text.splitlines()))


def show_path(path: Path) -> str:
    """Return a path as its user would write it: relative if it is below the current folder."""
    try:
        return clean(str(path.resolve().relative_to(Path.cwd())))
    except ValueError:
        return clean(str(path))
