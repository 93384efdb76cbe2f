"""``refinecal theory``: what logistic regression learns when rows and features are many, from equations."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal.cli._options import (
    MODEL,
    OUTPUT,
    Json,
    NoSeed,
    Quiet,
    Verbose,
    file,
    named,
    number,
)
from refinecal.cli._outputs import check_output
from refinecal.cli._voice import Voice, command, count, shown
from refinecal.report.words import spaced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from refinecal.theory.curves import Minimisers
    from refinecal.theory.heatmaps import HeatMap
    from refinecal.theory.spectrum import Spectrum

FIGURES = (".png", ".svg", ".pdf")
TABLES = ("csv", "parquet")
METHODS = ("logistic", "lda", "ridge")
LOSSES = ("log", "brier", "spherical")
LAWS = "beta:A,B[,SHIFT], uniform:LOW,HIGH, mp:RATIO or points:V,V,…"
BEYOND = 100.0  # how far a curve goes beyond its minimisers
DOTS = 150  # per inch

theory_app = typer.Typer(
    name="theory",
    help="Calibration and refinement from equations: the paper's Gaussian model, and what it predicts.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


# ---- options -----------------------------------------------------------------------------------------------


def _positive(given: float | None) -> float | None:
    if given is not None and not 0 < given < float("inf"):
        raise typer.BadParameter(f"{given:g} is not positive and finite")
    return given


def _rate(given: float | None) -> float | None:
    if given is not None and not 0 < given < 0.5:
        more = " If it is in percent, multiply by 0.01." if 0.5 <= given < 50 else ""
        raise typer.BadParameter(f"{given:g} is not between 0 and 0.5.{more}")
    return given


def positive(name: str, help: str, **more: Any) -> Any:
    """Return an option that is a positive number."""
    return number(name, help, callback=_positive, **more)


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


# ---- curve -------------------------------------------------------------------------------------------------


@command("refinecal theory curve --ratio 0.5 --bayes-error 0.1 --spectrum beta:1,1 -o curve.png")
def curve(
    ratio: Annotated[float, positive("--ratio", "Features for each training row.")] = 0.5,
    bayes_error: Annotated[
        float | None,
        number(
            "--bayes-error",
            "Error rate of the best classifier; 0.1 without --signal.",
            callback=_rate,
        ),
    ] = None,
    signal: Annotated[
        float | None, positive("--signal", "Length of the class mean, in place of --bayes-error.")
    ] = None,
    spectrum: Annotated[
        str,
        typer.Option(
            "--spectrum",
            metavar="LAW",
            help=f"Law of the eigenvalues: {LAWS}.",
            rich_help_panel=MODEL,
        ),
    ] = "beta:1,1",
    method: Method = "logistic",
    loss: Loss = "log",
    lam_min: Annotated[
        float | None, positive("--lam-min", "Where the curve begins, instead of around the minima.")
    ] = None,
    lam_max: Annotated[float | None, positive("--lam-max", "Where it ends.")] = None,
    points: Annotated[int, number("--points", "Strengths on the curve.", min=2)] = 200,
    out: Annotated[
        Path | None, file("--out", "-o", help="Draw the curve: a .png, .svg or .pdf file.")
    ] = None,
    table: TableKind = "csv",
    seed: NoSeed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Find the strengths at which risk, calibration and refinement are smallest, and draw the curves."""
    from refinecal.theory.curves import minimise, path

    voice = Voice(as_json, quiet, verbose)
    beside = check_figure(out, table)
    if signal is not None and bayes_error is not None:
        raise typer.BadParameter("give --bayes-error or --signal, not both", param_hint="--signal")
    if signal is None and bayes_error is None:
        bayes_error = 0.1
    ask: dict[str, Any] = {"ratio": ratio, "spectrum": law(spectrum), "method": method}
    ask |= {"bayes_error": bayes_error, "signal": signal, "loss": loss}
    with solving():
        best = minimise(**ask)
        lams = _strengths(best, lam_min, lam_max, points)
        found = path(lams, **ask)
    show_curve(voice, best)
    if out is not None and beside is not None:
        from refinecal.plots.theory import draw_path

        save(canvas := new_figure(7.0, 5.0), out, lambda: draw_path(canvas, found, best))
        write_table(found.to_dict(), beside)
        voice.say(f"\nFigure: {shown(out)}\nTable:  {shown(beside)}")
    voice.result(
        {
            "method": method,
            "loss": loss,
            "spectrum": best.by_risk.spectrum.label,
            **{name: values[0] for name, values in best.to_dict().items()},
            "figure": out,
            "table": beside,
        }
    )


def _strengths(best: Minimisers, low: float | None, high: float | None, points: int) -> Any:
    """Return strengths around the minima, or between what was asked for."""
    import numpy as np

    lams = [float(getattr(best, f"lam_{name}")) for name in ("risk", "calibration", "refinement")]
    first, last = best.lam_range
    inside = [lam for lam in lams if first < lam < last] or [float(np.sqrt(first * last))]
    low = max(min(inside) / BEYOND, first) if low is None else low
    high = min(max(inside) * BEYOND, last) if high is None else high
    if not low < high:
        raise typer.BadParameter(
            f"the curve would go from {low:.3g} to {high:.3g}", param_hint="--lam-max"
        )
    return np.geomspace(low, high, points)


def show_curve(voice: Voice, best: Minimisers) -> None:
    """Show the three minimisers with the losses there, and say what is gained."""
    at = best.by_risk
    about = f"Bayes error {float(at.bayes_error):.3g}, {float(at.ratio):.3g} features for each row"
    voice.say(f"{at.method}, spectrum {at.spectrum.label}, {about}", "bold")
    rows = []
    for name in ("risk", "calibration", "refinement"):
        found = getattr(best, f"by_{name}")
        losses = (found.risk, found.calibration, found.refinement)
        end = " (end)" if getattr(best, f"at_bound_{name}").item() else ""
        row = [name + end, f"{float(found.lam):.4g}", *(f"{float(loss):.4f}" for loss in losses)]
        rows.append([*row, f"{float(found.error_rate):.4f}"])
    header = ["smallest", "λ", "risk", "calibration", "refinement", "error rate"]
    voice.table(header, rows, spare=("error rate",))
    if any("(end)" in row[0] for row in rows):
        voice.tell("(end): the curve still falls at the end of the range of λ.")
    voice.tell(gain_sentence(best), "bold")
    voice.tell(order_sentence(best))


def gain_sentence(best: Minimisers) -> str:
    """Say what choosing by refinement saves."""
    loss = best.by_risk.parts.loss
    without, both = -float(best.gain_uncalibrated), float(best.gain_calibrated)
    return (
        f"Chosen by refinement, then calibrated: {float(best.gain):.1%} less {loss} loss than by risk; "
        f"{both:.1%} if what risk chose is calibrated too; {without:.1%} more if neither is."
    )


def order_sentence(best: Minimisers) -> str:
    """Say which of the two is smallest first as the strength falls."""
    gap = float(best.log10_gap)
    first, then = ("calibration", "refinement") if gap > 0 else ("refinement", "calibration")
    if best.at_bound_calibration or best.at_bound_refinement:  # how far is then arbitrary
        return f"As λ falls, {first} is smallest first."
    return f"As λ falls, {first} is smallest first: at {10 ** abs(gap):.3g} times the λ of {then}."


# ---- heatmap -----------------------------------------------------------------------------------------------


@command("refinecal theory heatmap --spectrum beta:1,5 --spectrum beta:5,1 -o maps.png")
def heatmap(
    spectrum: Annotated[
        list[str] | None,
        typer.Option(
            "--spectrum",
            metavar="LAW",
            help=f"Law of the eigenvalues: {LAWS}. May be given again; by default the paper's beta:1,5, "
            "beta:2,2 and beta:5,1.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    ratios: Annotated[
        str,
        number("--ratios", "Features for each row: R,R,… or FIRST:LAST:COUNT.", metavar="LIST"),
    ] = "0.1:10:21",
    bayes_errors: Annotated[
        str, number("--bayes-errors", "Error rates of the best classifier.", metavar="LIST")
    ] = "0.001,0.01,0.03,0.05,0.1,0.15,0.2,0.25,0.3,0.35,0.4,0.45",
    method: Method = "logistic",
    loss: Loss = "log",
    processes: Annotated[
        int | None, number("--processes", "Instead of as many as pay.", min=1)
    ] = None,
    out: Annotated[Path, file("--out", "-o", help="The figure: a .png, .svg or .pdf file.")] = Path(
        "heatmap.png"
    ),
    table: TableKind = "csv",
    seed: NoSeed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Map what is gained by refinement, and which minimiser comes first, over many problems."""
    from refinecal.theory.heatmaps import heatmap as compute
    from refinecal.theory.heatmaps import paper_spectra

    voice = Voice(as_json, quiet, verbose)
    beside = check_figure(out, table)
    laws = [law(text) for text in spectrum] if spectrum else paper_spectra()
    axes = (numbers("--ratios", ratios), numbers("--bayes-errors", bayes_errors, _rate))
    with voice.listening(), solving(), Bar(voice, "cells") as bar:
        maps = compute(laws, *axes, method=method, loss=loss, processes=processes, progress=bar)
    show_maps(voice, maps)

    from refinecal.plots.theory import draw_heatmaps

    assert beside is not None
    canvas = new_figure(2.6 + 2.5 * len(laws), 8.4)
    save(canvas, out, lambda: draw_heatmaps(canvas, maps))
    write_table(maps.columns, beside)
    voice.say(f"\nFigure: {shown(out)}\nTable:  {shown(beside)}")
    voice.result(
        {"method": method, "loss": loss, "maps": summary(maps), "figure": out, "table": beside}
    )


def summary(maps: HeatMap) -> list[dict[str, Any]]:
    """Return for each spectrum where the gain is largest, its median, and how often calibration is first."""
    import numpy as np

    found = []
    for law, gain, gap in zip(maps.spectra, maps.grid("gain"), maps.grid("log10_gap"), strict=True):
        row, column = np.unravel_index(gain.argmax(), gain.shape)
        found.append(
            {
                "spectrum": law.label,
                "cells": gain.size,
                "largest_gain": gain[row, column],
                "at_ratio": maps.ratios[column],
                "at_bayes_error": maps.bayes_errors[row],
                "median_gain": np.median(gain),
                "calibration_first": np.mean(gap > 0),
            }
        )
    return found


def show_maps(voice: Voice, maps: HeatMap) -> None:
    """Show one row for each spectrum."""
    rows = [
        [
            each["spectrum"],
            spaced(f"{each['largest_gain']:.1%}"),
            f"{each['at_ratio']:.3g}",
            f"{each['at_bayes_error']:.3g}",
            spaced(f"{each['median_gain']:.2%}"),
            spaced(f"{each['calibration_first']:.0%}"),
        ]
        for each in summary(maps)
    ]
    voice.say(
        f"{count(len(maps.columns['gain']), 'problem')}, {maps.method}, {maps.loss} loss", "bold"
    )
    header = ["spectrum", "largest gain", "at p/n", "Bayes error", "median", "calibration first"]
    voice.table(header, rows, spare=("calibration first", "median"))
    voice.tell(
        "Gain: what choosing the strength by refinement, then calibrating, saves of the smallest risk. "
        "Calibration first: the share of problems in which it is smallest at a larger strength."
    )


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


def numbers(option: str, text: str, check: Any = _positive) -> list[float]:
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
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    try:
        with rc_context({"svg.hashsalt": "refinecal"}):
            draw()
            figure.savefig(part, format=kind, dpi=DOTS, metadata=metadata[kind])
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def write_table(columns: Mapping[str, Any], path: Path) -> None:
    """Write columns to a table."""
    import pyarrow as pa

    from refinecal.tabular.files import create_table

    with create_table(path) as out:
        out.write(pa.table(dict(columns)))


# What else belongs to the theory is added here: each function is decorated with cli._voice.command.
COMMANDS: tuple[Any, ...] = (curve, heatmap)
for each in COMMANDS:
    theory_app.command(epilog=each.__epilog__)(each)
