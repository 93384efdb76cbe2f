"""What the commands of ``refinecal theory`` share: options, laws, figures with their tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal._whole import whole
from refinecal.cli._options import OUTPUT, named, number
from refinecal.cli._outputs import check_output
from refinecal.cli._voice import Voice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from refinecal.theory.spectrum import Spectrum

FIGURES = (".png", ".svg", ".pdf")
TABLES = ("csv", "parquet")
METHODS = ("logistic", "lda", "ridge")
LOSSES = ("log", "brier", "spherical")
LAWS = "beta:A,B[,SHIFT], uniform:LOW,HIGH, mp:RATIO or points:V,V,…"
DOTS = 150  # per inch


# ---- options -----------------------------------------------------------------------------------------------


def check_positive(given: float | None) -> float | None:
    if given is not None and not 0 < given < float("inf"):
        raise typer.BadParameter(f"{given:g} is not positive and finite")
    return given


def check_rate(given: float | None) -> float | None:
    if given is not None and not 0 < given < 0.5:
        more = " If it is in percent, multiply by 0.01." if 0.5 <= given < 50 else ""
        raise typer.BadParameter(f"{given:g} is not between 0 and 0.5.{more}")
    return given


def positive(name: str, help: str, **more: Any) -> Any:
    """Return an option that is a positive number."""
    return number(name, help, callback=check_positive, **more)


Method = Annotated[str, named("--method", names=METHODS, help="logistic, lda or ridge.")]
Loss = Annotated[str, named("--loss", names=LOSSES, help="log, brier or spherical.")]
TableKind = Annotated[
    str,
    typer.Option(
        "--table",
        metavar="KIND",
        help="csv or parquet: the numbers, in a file beside the figure.",
        rich_help_panel=OUTPUT,
        callback=lambda given: _one_of(given, TABLES),
    ),
]


def _one_of(given: str, names: tuple[str, ...]) -> str:
    if given not in names:
        raise typer.BadParameter(f"{given!r} is none of {', '.join(names)}")
    return given


class Bar:
    """A bar on stderr, called with what is done and with all there is to do."""

    def __init__(self, voice: Voice, what: str) -> None:
        from rich import progress as bars

        self._bar = bars.Progress(
            bars.TextColumn(what),
            bars.BarColumn(bar_width=20),
            bars.TextColumn("{task.completed:.0f}/{task.total:.0f}"),
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


def law(text: str) -> Spectrum:
    """Return the spectrum that an option names."""
    from refinecal.theory.spectrum import parse_spectrum

    try:
        return parse_spectrum(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--spectrum") from None


def numbers(option: str, text: str, check: Any = check_positive) -> list[float]:
    """Return the numbers of an option: a list, or evenly spread on a logarithmic scale.

    >>> numbers("--ratios", "0.1:10:3")
    [0.1, 1.0, 10.0]
    >>> numbers("--ratios", "0.5, 2")
    [0.5, 2.0]
    """
    import numpy as np

    try:
        if ":" in text:
            first, last, size = text.split(":")
            low, high = check(float(first)), check(float(last))
            found = np.geomspace(low, high, int(size)).tolist()
        else:
            found = [check(float(part)) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither numbers with commas nor FIRST:LAST:COUNT", param_hint=option
        ) from None
    except typer.BadParameter as error:
        raise typer.BadParameter(error.message, param_hint=option) from None
    if not found:
        raise typer.BadParameter(f"{text!r} has no numbers", param_hint=option)
    return [float(f"{each:.12g}") for each in found]


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
    return beside


@contextmanager
def solving() -> Iterator[None]:
    """Say what did not converge, without a traceback."""
    try:
        yield
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches, white whatever the user's settings."""
    from matplotlib.figure import Figure

    from refinecal.plots._style import PALETTE

    return Figure(figsize=(width, height), facecolor=PALETTE["paper"])


def save(figure: Figure, path: Path, draw: Any) -> None:
    """Draw a figure and write it, whole or not at all; the same figure gives the same file."""
    from matplotlib import rc_context

    kind = path.suffix.lower().removeprefix(".")
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with whole(os.path.realpath(path)) as part, rc_context({"svg.hashsalt": "refinecal"}):
        draw()
        figure.savefig(part, format=kind, dpi=DOTS, metadata=metadata[kind])


def write_table(columns: Mapping[str, Any], path: Path) -> None:
    """Write columns to a table."""
    import pyarrow as pa

    from refinecal.tabular.files import create_table

    with create_table(path) as out:
        out.write(pa.table(dict(columns)))
