"""Options of the ``refinecal theory`` commands, how they are parsed, and how a figure is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal._core.files import atomic_write
from refinecal.cli._console import Console, show_path
from refinecal.cli._options import OUTPUT, choice, file, number
from refinecal.cli._outputs import check_output

if TYPE_CHECKING:
    from refinecal.theory.spectrum import Spectrum

FIGURES = (".png", ".svg", ".pdf")
TABLES = ("csv", "parquet")
METHODS = ("logistic", "lda", "ridge")
LOSSES = ("log", "brier", "spherical")
LAWS = "beta:A,B[,SHIFT[,SCALE]], uniform:LOW,HIGH, mp:RATIO[,SCALE], points:V,V,… or identity"
OPTION_WORDS = {  # what the library suggests in Python, and the same on the command line
    "BetaSpectrum(1, 1, shift=0, scale=high)": "beta:1,1,0,HIGH",
    "a BetaSpectrum with a small shift": "beta:A,B,SHIFT with a small shift",
    "use PointSpectrum": "write points:V,V,…",
}
DOTS_PER_INCH = 150
LONGEST = 1000  # numbers that FIRST:LAST:COUNT may stand for
OUR_TABLES = ({"lam", "calibration", "refinement"}, {"log10_gap", "gain"}, {"against", "deviation"})


# ---- options -----------------------------------------------------------------------------------------------


def parse_positive(text: str | float) -> float:
    """Return a positive number.

    >>> parse_positive("1e-3")
    0.001
    """
    try:
        value = float(text)
    except ValueError:
        hint = " Use a decimal point: 0.1, not 0,1." if "," in str(text) else ""
        raise typer.BadParameter(f"{text!r} is not a number.{hint}") from None
    if not 0 < value < float("inf"):
        raise typer.BadParameter(f"{value:g} is not positive and finite")
    return value


def parse_rate(text: str | float) -> float:
    """Return an error rate below 0.5, written as a fraction or in percent.

    >>> parse_rate("0.1"), parse_rate("7.5 %")
    (0.1, 0.075)
    """
    given = str(text).strip()
    value = parse_positive(given.removesuffix("%")) / (100 if given.endswith("%") else 1)
    if value >= 0.5:
        hint = f" For percent, write {value:g}%." if 1 <= value < 50 else ""
        raise typer.BadParameter(f"{value:g} is not between 0 and 0.5, both excluded.{hint}")
    return value


def check_table(given: str) -> str:
    if given not in TABLES:
        raise typer.BadParameter(f"{given!r} must be one of {', '.join(TABLES)}")
    return given


positive = partial(number, parser=parse_positive)
rate = partial(number, parser=parse_rate)  # such as 0.1 or 10%
Ratio = Annotated[float, positive("--ratio", "Number of features per training row, p/n.")]
Law = Annotated[
    str, number("--spectrum", f"Distribution of covariance eigenvalues: {LAWS}.", metavar="LAW")
]
Method = Annotated[
    str, choice("--method", names=METHODS, help="Classifier: logistic, lda or ridge.")
]
Loss = Annotated[
    str, choice("--loss", names=LOSSES, help="Loss to report: log, brier or spherical.")
]
FigureFile = Annotated[
    Path | None,
    file("--out", "-o", help="Write a figure to this .png, .svg or .pdf file (default: none)."),
]
TableKind = Annotated[
    str,
    typer.Option(
        "--table",
        metavar="KIND",
        help="Format of the table of numbers written next to the figure: csv or parquet.",
        rich_help_panel=OUTPUT,
        callback=check_table,
    ),
]


class Bar:
    """A progress bar on stderr, called with the number of finished items and the total."""

    def __init__(self, console: Console, what: str) -> None:
        from rich import progress as bars

        self._bar = bars.Progress(
            bars.TextColumn(what),
            bars.BarColumn(bar_width=20),
            bars.MofNCompleteColumn(),
            bars.TimeElapsedColumn(),
            console=console.err,
            transient=True,
            disable=console.quiet or not console.err.is_terminal,
        )
        self._task = self._bar.add_task(what, total=None, start=True)

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *about: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=done, total=total)


# ---- values that typer cannot parse ------------------------------------------------------------------------


def parse_law(text: str) -> Spectrum:
    """Return the spectrum that an option names."""
    from refinecal.theory.spectrum import parse_spectrum

    try:
        return parse_spectrum(text)
    except ValueError as error:
        message = str(error)
        for python, option in OPTION_WORDS.items():
            message = message.replace(python, option)
        raise typer.BadParameter(message, param_hint="--spectrum") from None


def parse_numbers(
    option: str, text: str, parse: Callable[[str], float] = parse_positive
) -> list[float]:
    """Return the positive numbers of an option: a list, or evenly spaced on a logarithmic scale.

    >>> parse_numbers("--ratios", "0.1:10:3")
    [0.1, 1.0, 10.0]
    >>> parse_numbers("--ratios", "0.5, 2")
    [0.5, 2.0]
    >>> parse_numbers("--bayes-errors", "1%,0.2", parse_rate)
    [0.01, 0.2]
    """
    import numpy as np

    try:
        if ":" in text:
            first, last, count = text.split(":")
            if not 1 <= int(count) <= LONGEST:
                raise typer.BadParameter(f"COUNT is {count}, but must be 1 to {LONGEST}")
            values = np.geomspace(parse(first), parse(last), int(count)).tolist()
        else:
            values = [parse(part) for part in text.split(",")]
    except ValueError:
        form = "write numbers separated by commas, or FIRST:LAST:COUNT"
        raise typer.BadParameter(f"cannot read {text!r}: {form}", param_hint=option) from None
    except typer.BadParameter as error:
        raise typer.BadParameter(error.message, param_hint=option) from None
    return [float(f"{value:.12g}") for value in values]


@contextmanager
def explain_failures(advice: str = "Give") -> Iterator[None]:
    """Report a failure to converge as a message, and name options instead of Python arguments."""
    try:
        yield
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    except ValueError as error:
        message = str(error).replace("Pass signal= instead, or give", advice)
        raise ValueError(message.replace("bayes_error", "--bayes-error")) from error


# ---- figures -----------------------------------------------------------------------------------------------


def check_figure(path: Path | None, table: str) -> Path | None:
    """Check that a figure and its table can be written; return the path of the table."""
    if path is None:
        return None
    if path.suffix.lower() not in FIGURES:
        raise typer.BadParameter(
            f"{path} is a figure, but does not end in {', '.join(FIGURES)}", param_hint="--out"
        )
    table_path = path.with_suffix(f".{table}")
    for each in (path, table_path):
        check_output(each, (), "--out")
    import matplotlib  # noqa: F401  # if it is missing, say so now and not after the work
    import pyarrow  # noqa: F401

    if table_path.exists() and not _is_our_table(table_path):
        raise ValueError(
            f"--out: the table of the figure would replace {show_path(table_path)}, which this command "
            "did not write: choose another name for the figure"
        )
    return table_path


def _is_our_table(path: Path) -> bool:
    """Tell whether a table has the columns of one that these commands write."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        schema = csv.open_csv(path).schema if path.suffix == ".csv" else parquet.read_schema(path)
    except (OSError, pa.ArrowInvalid):
        return False
    return any({*schema.names} >= columns for columns in OUR_TABLES)


def write_figure(
    console: Console,
    paths: tuple[Path, Path],
    size: tuple[float, float],
    columns: Mapping[str, Any],
    draw: Callable[..., object],
    *content: Any,
) -> None:
    """Draw a figure of a size in inches on white, write it and its table, and say where they are.

    Files are written completely or not at all; the same figure gives the same file.
    """
    import pyarrow as pa
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from refinecal.tabular.files import create_table

    path, table_path = paths
    figure = Figure(figsize=size, facecolor="white")
    kind = path.suffix.lower().removeprefix(".")
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with atomic_write(os.path.realpath(path)) as part, rc_context({"svg.hashsalt": "refinecal"}):
        draw(figure, *content)
        figure.savefig(part, format=kind, dpi=DOTS_PER_INCH, metadata=metadata[kind])
    with create_table(table_path) as out:
        out.write(pa.table(dict(columns)))
    console.say(f"\nFigure: {show_path(path)}\nTable:  {show_path(table_path)}")
