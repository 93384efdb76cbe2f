"""Output of commands: tables for people on stdout, notes and progress on stderr, JSON for programs."""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import typer

from refinecal._core.errors import needs_extra
from refinecal._core.files import FULL, plain
from refinecal._core.format import count as count  # noqa: PLC0414  # for the commands
from refinecal._core.format import tidy_sentence
from refinecal.cli import _interrupts

if TYPE_CHECKING:
    from refinecal.report import Page

P = ParamSpec("P")

FAILED = 1
PACKAGES = ("jinja2", "matplotlib", "pandas", "pyarrow")  # of the extra, with typer and rich
EXPECTED = (ValueError, OSError, MemoryError, ModuleNotFoundError)  # invalid input
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\^_])?")
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _count_from_one(found: re.Match[str]) -> str:
    """Return the row and column of a number, counted from 1."""
    row = f"row {int(found[2]) + 1}"
    what = "probability" if found[1] == "probs" else "logit"
    return f"{row}, {what}" if found[3] is None else f"{row}, {what} {int(found[3]) + 1}"


NAMING = "target|weight|group|by|drop|categorical|numeric"  # options that name a column
OPTIONS = f"{NAMING}|columns|calibrator|delimiter|decimal|folds|patience"
Rule = tuple[str, str | Callable[[re.Match[str]], str]]
FILE_RULES: tuple[Rule, ...] = (  # arguments of the library, and the options they stand for
    (r"\bread it with check=False", "pass --no-check"),
    (r"\bget them with download\(.*\)$", "get them with --download"),
)
RULES: tuple[Rule, ...] = (
    (rf"^({OPTIONS}) (?=is\b|has\b|names\b)", r"--\1 "),
    (rf"^({NAMING}) (?='|\")", r"--\1 "),
    (r"\b(delimiter|decimal)=", r"--\1 "),
    (r"; if they are labels or features, pass model\.predict_proba\(X\).*$", "."),
    (r"\blogits=", "--logits"),
    (r"calibrator=(['\"])([\w-]+)\1", r"--calibrator \2"),
    (r"Pass X_val= and y_val=(, or finer groups)?", "Give more rows or finer groups, or --folds 1"),
    (r"\bsample_weight=?", "--weight"),
    (r"\bclasses=", "--columns "),
    *FILE_RULES,
    (r"\bpredictions\[(['\"])(.+?)\1\]", r"the predictions of \1\2\1"),
    (r"(probs|logits)\[(\d+)(?:, *(\d+))?\]", _count_from_one),
)


def use_option_names(text: str, rules: Sequence[Rule] = RULES) -> str:
    """Return a message of the library in terms of the command line.

    >>> use_option_names("target is 'a', but x.csv has no such column.")
    "--target is 'a', but x.csv has no such column."
    >>> use_option_names("probs[65, 0] is 1.04: if these are logits, pass logits=")
    'row 66, probability 1 is 1.04: if these are logits, pass --logits'
    """
    for pattern, words in rules:
        text = re.sub(pattern, words, text)
    return text


def clean(text: str) -> str:
    r"""Return text without escape sequences and control characters except for line breaks.

    >>> clean("a\x1b[31mred\x07 b")
    'ared b'
    """
    return CONTROLS.sub("", ESCAPES.sub("", text))


class Console:
    """Writes results for people, or as JSON, or only errors."""

    def __init__(self, as_json: bool = False, quiet: bool = False, verbose: bool = False) -> None:
        from rich.console import Console as RichConsole

        self.as_json, self.quiet, self.verbose = as_json, quiet, verbose
        self.out = RichConsole(highlight=False, soft_wrap=True)
        self.err = RichConsole(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str = "", style: str | None = None, soft_wrap: bool = True) -> None:
        """Write a line for people."""
        if not (self.as_json or self.quiet):
            said = clean(tidy_sentence(text))
            self.out.print(said, style=style, markup=False, soft_wrap=soft_wrap)

    tell = functools.partialmethod(say, soft_wrap=False)  # a sentence, wrapped on the terminal

    def note(self, text: str) -> None:
        """Write a line to stderr."""
        if not self.quiet:
            said = clean(tidy_sentence(use_option_names(text)))
            self.err.print(f"note: {said}", style="yellow", markup=False)

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        left: Sequence[int] = (0,),
        spare: Sequence[str | int] = (),
    ) -> None:
        """Write a table; columns are right-aligned except for ``left``.

        On a narrow terminal names are folded, then ``spare`` columns (by name or place) are hidden, the first
        one first.
        """
        if self.as_json or self.quiet:
            return
        from refinecal.report.terminal import build_table

        known = [each for each in spare if not isinstance(each, str) or each in columns]
        places = [columns.index(each) if isinstance(each, str) else each for each in known]
        columns, *rows = (
            [clean(" ".join(cell.splitlines())) for cell in row] for row in (columns, *rows)
        )
        # The lines of a file or a pipe may be of any length.
        is_known = self.out.is_terminal or os.environ.get("COLUMNS", "").isdigit()
        room = self.out.width if is_known else None
        table, shown = build_table(columns, rows, left, places, room)
        self.out.print(table)
        hidden = [name for j, name in enumerate(columns) if j not in shown]
        if hidden:
            self.tell(f"Hidden (terminal too narrow): {', '.join(hidden)}")

    def show(self, page: Page) -> None:
        """Write a page: as tables and sentences, or its data as JSON; its notes go to stderr."""
        for note in page.notes:
            self.note(note)
        self.print_page(page)
        self.result(page.data)

    def print_page(self, page: Page) -> None:
        """Write the tables of a page that belong on the terminal, then what they mean."""
        if self.as_json or self.quiet:
            return
        from refinecal.report.page import Table
        from refinecal.report.terminal import show_table, type_signs

        self.tell(type_signs(page.title), "bold")
        for section in page.sections:
            for block in section.blocks:
                if isinstance(block, Table) and block.terminal:
                    show_table(block, self)
        if page.lead:
            self.tell(type_signs(page.lead), "bold")
        for point in page.points:
            self.tell(type_signs(point))

    def result(self, value: Any) -> None:
        """Write the result as JSON."""
        if self.as_json:
            sys.stdout.write(json.dumps(plain(value), ensure_ascii=False, allow_nan=False) + "\n")

    @contextmanager
    def show_warnings(self, said: str | None = None) -> Iterator[None]:
        """Turn warnings into notes, except those that match ``said``, which the command reports itself."""

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
    """Make a function a command: its help has an example; errors are messages without a traceback."""

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
                typer.echo(f"{_interrupts.message()}{more}", err=True)
                raise typer.Exit(_interrupts.exit_code()) from None
            except BrokenPipeError:  # the reader of our output, such as head, has closed it
                sys.stderr.close()
                raise typer.Exit(FAILED) from None
            except Exception as error:
                if _interrupts.end():  # a library turned the interrupt into another error
                    typer.echo(_interrupts.message(), err=True)
                    raise typer.Exit(_interrupts.exit_code()) from None
                if not isinstance(error, EXPECTED):
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
    """Return the message of an error in terms of the command line; that of a file names the file."""
    said = use_option_names(str(error))
    if isinstance(error, MemoryError) and not said:
        said = "there is not enough memory for this"
    if isinstance(error, OSError) and error.errno in FULL:
        said = FULL[error.errno].format(error.filename or "the output")
    elif isinstance(error, OSError) and error.strerror and error.filename:
        said = f"{error.filename}: {error.strerror}"
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return clean(tidy_sentence(said) + notes)


def show_path(path: Path) -> str:
    """Return a path, relative if it is below the current folder."""
    try:
        return clean(str(path.resolve().relative_to(Path.cwd())))
    except ValueError:
        return clean(str(path))
