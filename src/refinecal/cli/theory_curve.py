"""``refinecal theory curve``: one problem, and the strengths of the penalty that suit it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal._core.format import percent, tidy_sentence
from refinecal.cli._console import Console, command
from refinecal.cli._options import Json, NoSeed, Quiet, Verbose, number
from refinecal.cli._theory_options import (
    Law,
    Loss,
    Method,
    Ratio,
    TableKind,
    check_figure,
    explain_failures,
    figure,
    parse_law,
    positive,
    rate,
    write_figure,
)

if TYPE_CHECKING:
    from refinecal.theory.curves import Minimisers

POINTS = 200  # on a curve
BEYOND = 100.0  # how far a curve goes beyond its minimisers


@command("refinecal theory curve --ratio 0.5 --bayes-error 0.1 --spectrum beta:1,1 -o curve.png")
def curve(
    ratio: Ratio = 0.5,
    bayes_error: Annotated[
        float | None,
        rate(
            "--bayes-error",
            "Error rate of the best classifier, such as 0.1 or 10%; 0.1 without --signal.",
        ),
    ] = None,
    signal: Annotated[
        float | None, positive("--signal", "Length of the class mean, in place of --bayes-error.")
    ] = None,
    spectrum: Law = "beta:1,1",
    method: Method = "logistic",
    loss: Loss = "log",
    lam_min: Annotated[
        float | None,
        positive("--lam-min", "Where the figure begins, instead of around the minima."),
    ] = None,
    lam_max: Annotated[float | None, positive("--lam-max", "Where the figure ends.")] = None,
    points: Annotated[
        int | None, number("--points", "Strengths on the curve, instead of 200.", min=2)
    ] = None,
    out: Annotated[Path | None, figure("the curves")] = None,
    table: TableKind = "csv",
    seed: NoSeed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Find the strengths at which risk, calibration and refinement are smallest; with -o, draw the curves."""
    from refinecal.theory.curves import minimise, path

    voice = Console(as_json, quiet, verbose)
    beside = check_figure(out, table)
    if signal is not None and bayes_error is not None:
        raise typer.BadParameter("give --bayes-error or --signal, not both", param_hint="--signal")
    if signal is None and bayes_error is None:
        bayes_error = 0.1
    ask: dict[str, Any] = {"ratio": ratio, "spectrum": parse_law(spectrum), "method": method}
    ask |= {"bayes_error": bayes_error, "signal": signal, "loss": loss}
    with explain_failures("Give --signal instead, or give"):
        best = minimise(**ask)
        lams = _strengths(best, lam_min, lam_max, points or POINTS)
        found = path(lams, **ask)
    show_curve(voice, best)
    if out is not None and beside is not None:
        from refinecal.plots.theory import draw_path

        write_figure(voice, (out, beside), (7.0, 5.0), found.to_dict(), draw_path, found, best)
    else:
        voice.say("\n-o curve.png draws the curves, with their numbers in curve.csv.")
        given = {"--lam-min": lam_min, "--lam-max": lam_max, "--points": points}
        idle = [name for name, value in given.items() if value is not None]
        if idle:
            voice.note(f"{', '.join(idle)}: only for the figure, which needs -o")
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


def show_curve(voice: Console, best: Minimisers) -> None:
    """Show the three minimisers with the losses there, and say what is gained."""
    from refinecal.plots.style import loss_name
    from refinecal.theory.curves import setting

    at = best.by_risk
    voice.tell(setting(at), "bold")
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
        low, high = best.lam_range
        voice.tell(
            f"(end): still falls at this end of what was searched, λ from {low:.3g} to {high:.3g}."
        )
    name = loss_name(at.parts.loss)
    voice.table(["λ chosen by", name, "difference"], compare_choices(best))
    voice.tell(
        f"Chosen by refinement, then calibrated: {percent(float(best.gain))} less {name} than chosen by "
        f"risk, {percent(float(best.gain_calibrated))} less than chosen by risk, then calibrated.",
        "bold",
    )
    voice.tell(describe_order(best))


def compare_choices(best: Minimisers) -> list[list[str]]:
    """Return what is left of the loss in four ways to choose the strength, each against the first."""
    by_risk, by_refinement = best.by_risk, best.by_refinement
    reached = {
        "risk": by_risk.risk,
        "risk, then calibrated": by_risk.refinement,
        "refinement, then calibrated": by_refinement.refinement,
        "refinement, not calibrated": by_refinement.risk,
    }
    first = float(by_risk.risk)
    rows = [
        [name, f"{float(loss):.4f}", tidy_sentence(percent(float(loss) / first - 1, sign="+"))]
        for name, loss in reached.items()
    ]
    rows[0][-1] = ""
    return rows


def describe_order(best: Minimisers) -> str:
    """Say which of the two is smallest first as the strength falls."""
    gap = float(best.log10_gap)
    first, then = ("calibration", "refinement") if gap > 0 else ("refinement", "calibration")
    if best.at_bound_calibration or best.at_bound_refinement:  # how far is then arbitrary
        return f"As λ falls, {first} is smallest first."
    return f"As λ falls, {first} is smallest first: at {10 ** abs(gap):.3g} times the λ of {then}."
