"""What the commands of ``refinecal theory`` share: options, laws, figures with their tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
IN_OTHER_WORDS = {  # what laws say of themselves in Python, and how that is written here
    "BetaSpectrum(1, 1, shift=0, scale=high)": "beta:1,1,0,HIGH",
    "a BetaSpectrum with a small shift": "beta:A,B,SHIFT with a small shift",
    "use PointSpectrum": "write points:V,V,…",
}
DOTS = 150  # per inch
LONGEST = 1000  # numbers that FIRST:LAST:COUNT may stand for
OURS = ({"lam", "calibration", "refinement"}, {"log10_gap", "gain"}, {"against", "deviation"})


# ---- options -----------------------------------------------------------------------------------------------


def to_number(text: str | float) -> float:
    """Return a number that was typed.

    >>> to_number("1e-3")
    0.001
    """
    try:
        return float(text)
    except ValueError:
        more = " Decimals have a point: 0.1, not 0,1." if "," in str(text) else ""
        raise typer.BadParameter(f"{text!r} is not a number.{more}") from None


def to_rate(text: str | float) -> float:
    """Return a part of 1 that was typed as such, or in percent.

    >>> to_rate("0.1"), to_rate("7.5 %")
    (0.1, 0.075)
    """
    given = str(text).strip()
    return to_number(given[:-1]) / 100 if given.endswith("%") else to_number(given)


def check_positive(given: float | None) -> float | None:
    if given is not None and not 0 < given < float("inf"):
        raise typer.BadParameter(f"{given:g} is not positive and finite")
    return given


def check_rate(given: float | None) -> float | None:
    if given is not None and not 0 < given < 0.5:
        more = f" For percent, write {given:g}%." if 1 <= given < 50 else ""
        raise typer.BadParameter(f"{given:g} is not between 0 and 0.5, both excluded.{more}")
    return given


def check_table(given: str) -> str:
    if given not in TABLES:
        raise typer.BadParameter(f"{given!r} is none of {', '.join(TABLES)}")
    return given


def positive(name: str, help: str, **more: Any) -> Any:
    """Return an option that is a positive number."""
    return number(name, help, parser=to_number, callback=check_positive, **more)


def rate(name: str, help: str, **more: Any) -> Any:
    """Return an option that is an error rate, such as 0.1 or 10%."""
    return number(name, help, parser=to_rate, callback=check_rate, **more)


def figure(what: str) -> Any:
    """Return an option that is the file of a figure."""
    text = f"Draw {what}, which is not done otherwise: a .png, .svg or .pdf file."
    return file("--out", "-o", help=text)


Ratio = Annotated[float, positive("--ratio", "Features for each training row.")]
Law = Annotated[str, number("--spectrum", f"Law of the eigenvalues: {LAWS}.", metavar="LAW")]
Method = Annotated[str, choice("--method", names=METHODS, help="logistic, lda or ridge.")]
Loss = Annotated[str, choice("--loss", names=LOSSES, help="log, brier or spherical.")]
TableKind = Annotated[
    str,
    typer.Option(
        "--table",
        metavar="KIND",
        help="csv or parquet: the numbers, in a file beside the figure.",
        rich_help_panel=OUTPUT,
        callback=check_table,
    ),
]


class Bar:
    """A bar on stderr, called with what is done and with all there is to do."""

    def __init__(self, voice: Console, what: str) -> None:
        from rich import progress as bars

        self._bar = bars.Progress(
            bars.TextColumn(what),
            bars.BarColumn(bar_width=20),
            bars.MofNCompleteColumn(),
            bars.TimeElapsedColumn(),
            console=voice.err,
            transient=True,
            disable=voice.quiet or not voice.err.is_terminal,
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


# ---- what is read and written ------------------------------------------------------------------------------


def parse_law(text: str) -> Spectrum:
    """Return the spectrum that an option names."""
    from refinecal.theory.spectrum import parse_spectrum

    try:
        return parse_spectrum(text)
    except ValueError as error:
        said = str(error)
        for python, here in IN_OTHER_WORDS.items():
            said = said.replace(python, here)
        raise typer.BadParameter(said, param_hint="--spectrum") from None


def parse_numbers(
    option: str, text: str, read: Callable[[str], Any] = lambda part: check_positive(float(part))
) -> list[float]:
    """Return the positive numbers of an option: a list, or evenly spread on a logarithmic scale.

    >>> parse_numbers("--ratios", "0.1:10:3")
    [0.1, 1.0, 10.0]
    >>> parse_numbers("--ratios", "0.5, 2")
    [0.5, 2.0]
    """
    import numpy as np

    try:
        if ":" in text:
            first, last, count = text.split(":")
            if int(count) > LONGEST:
                raise typer.BadParameter(f"{count} numbers are too many: {LONGEST} at most")
            found = np.geomspace(read(first), read(last), int(count)).tolist()
        else:
            found = [read(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither numbers with commas nor FIRST:LAST:COUNT", param_hint=option
        ) from None
    except typer.BadParameter as error:
        raise typer.BadParameter(error.message, param_hint=option) from None
    if not found:
        raise typer.BadParameter(f"{text!r} has no numbers", param_hint=option)
    return [float(f"{each:.12g}") for each in found]


def parse_rates(option: str, text: str) -> list[float]:
    """Return the error rates of an option, in the same way; they may be in percent.

    >>> parse_rates("--bayes-errors", "1%,0.2")
    [0.01, 0.2]
    """
    return parse_numbers(option, text, lambda part: check_rate(to_rate(part)))


def check_figure(path: Path | None, table: str) -> Path | None:
    """Refuse a figure of an unknown kind, or where nothing can be written; return where its table goes."""
    if path is None:
        return None
    if path.suffix.lower() not in FIGURES:
        raise typer.BadParameter(
            f"{path} does not end in {', '.join(FIGURES)}: it is a figure", param_hint="--out"
        )
    beside = path.with_suffix(f".{table}")
    for each in (path, beside):
        check_output(each, (), "--out")
    import matplotlib  # noqa: F401  # if it is missing, say so now and not after the work
    import pyarrow  # noqa: F401

    if beside.exists() and not _is_ours(beside):
        raise ValueError(
            f"--out: the table beside the figure would take the place of {show_path(beside)}, which is none "
            "of ours: name the figure otherwise"
        )
    return beside


def _is_ours(path: Path) -> bool:
    """Tell whether a table has the columns of one that these commands write."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        if path.suffix == ".csv":
            names = {*csv.open_csv(path).schema.names}
        else:
            names = {*parquet.read_schema(path).names}
    except (OSError, pa.ArrowInvalid):
        return False
    return any(names >= columns for columns in OURS)


@contextmanager
def explain_failures(cure: str = "Give") -> Iterator[None]:
    """Say what did not converge, without a traceback, and what is wrong in words of the command line."""
    try:
        yield
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    except ValueError as error:
        said = str(error).replace("Pass signal= instead, or give", cure)
        raise ValueError(said.replace("bayes_error", "--bayes-error")) from error


def write_figure(
    voice: Console,
    paths: tuple[Path, Path],
    size: tuple[float, float],
    columns: Mapping[str, Any],
    draw: Callable[..., object],
    *content: Any,
) -> None:
    """Draw a figure of a size in inches, white whatever the user's settings; write its table; say where.

    Each is written whole or not at all; the same figure gives the same file.
    """
    import pyarrow as pa
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from refinecal.tabular.files import create_table

    path, beside = paths
    figure = Figure(figsize=size, facecolor="white")
    kind = path.suffix.lower().removeprefix(".")
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with atomic_write(os.path.realpath(path)) as part, rc_context({"svg.hashsalt": "refinecal"}):
        draw(figure, *content)
        figure.savefig(part, format=kind, dpi=DOTS, metadata=metadata[kind])
    with create_table(beside) as out:
        out.write(pa.table(dict(columns)))
    voice.say(f"\nFigure: {show_path(path)}\nTable:  {show_path(beside)}")
