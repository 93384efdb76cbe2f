"""``refinecal theory curve``: one problem, and the strengths of the penalty that suit it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal.cli._options import MODEL, Json, NoSeed, Quiet, Verbose, file, number
from refinecal.cli._theory import (
    LAWS,
    Loss,
    Method,
    TableKind,
    check_figure,
    check_rate,
    law,
    new_figure,
    positive,
    save,
    solving,
    write_table,
)
from refinecal.cli._voice import Voice, command, shown

if TYPE_CHECKING:
    from refinecal.theory.curves import Minimisers

BEYOND = 100.0  # how far a curve goes beyond its minimisers


@command("refinecal theory curve --ratio 0.5 --bayes-error 0.1 --spectrum beta:1,1 -o curve.png")
def curve(
    ratio: Annotated[float, positive("--ratio", "Features for each training row.")] = 0.5,
    bayes_error: Annotated[
        float | None,
        number(
            "--bayes-error",
            "Error rate of the best classifier; 0.1 without --signal.",
            callback=check_rate,
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
