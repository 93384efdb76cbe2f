"""``refinecal theory check``: classifiers trained on samples against the theory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refinecal._core.format import format_signed
from refinecal.cli._console import FAILED, Console, command
from refinecal.cli._options import Json, Quiet, Seed, Verbose, number
from refinecal.cli._theory_options import (
    Bar,
    Law,
    Loss,
    Method,
    Ratio,
    TableKind,
    check_figure,
    explain_failures,
    figure,
    parse_law,
    parse_numbers,
    rate,
    write_figure,
)

if TYPE_CHECKING:
    from refinecal.theory.empirical import Check

UNDECIDED = 3  # the exit code if there are too few draws
WORTH_A_WORD = 0.5  # standard errors
SHOWN = {"risk": "risk", "calibration": "calibr.", "refinement": "refin."}


@command("refinecal theory check --n 1000 --seeds 20 --out check.png")
def check(
    n: Annotated[int, number("--n", "Training rows of each draw.", min=10)] = 2000,
    seeds: Annotated[int, number("--seeds", "Draws of the data, 20 or more.", min=2)] = 50,
    ratio: Ratio = 0.5,
    bayes_error: Annotated[
        float, rate("--bayes-error", "Error rate of the best classifier: 0.1 or 10%.")
    ] = 0.1,
    spectrum: Law = "beta:1,1",
    method: Method = "logistic",
    loss: Loss = "log",
    lams: Annotated[
        str,
        number("--lams", "Strengths of the penalty: L,L,… or FIRST:LAST:COUNT.", metavar="LIST"),
    ] = "0.001:10:17",
    processes: Annotated[
        int | None, number("--processes", "Draws at the same time, instead of all cores.", min=1)
    ] = None,
    seed: Seed = 0,
    out: Annotated[Path | None, figure("the comparison")] = None,
    table: TableKind = "csv",
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train on samples and compare with theory.

    The exit code is 0 if chance explains the gaps, 1 if it does not, 3 if there are too few draws to tell.
    """
    from refinecal.theory.empirical import check as run

    voice = Console(as_json, quiet, verbose)
    beside = check_figure(out, table)
    eigenvalues, strengths = parse_law(spectrum), parse_numbers("--lams", lams)
    with voice.show_warnings(), explain_failures(), Bar(voice, "draws") as bar:
        found = run(
            strengths,
            ratio=ratio,
            bayes_error=bayes_error,
            spectrum=eigenvalues,
            n=n,
            seeds=seeds,
            method=method,
            loss=loss,
            processes=processes,
            progress=bar,
            seed=seed,
        )
    show(voice, found)
    if out is not None and beside is not None:
        from refinecal.plots.theory_check import draw_check

        write_figure(voice, (out, beside), (9.0, 5.2), found.columns(), draw_check, found)
    else:
        voice.say("\n-o check.png draws it, with its numbers in check.csv.")
    voice.result({**found.to_dict(), "figure": out, "table": beside})
    if found.holds is not True:
        raise typer.Exit(UNDECIDED if found.holds is None else FAILED)


# ---- what is shown -----------------------------------------------------------------------------------------


def show(voice: Console, found: Check) -> None:
    """Show theory and measurement at each strength, then the largest deviations and what they mean."""
    voice.tell(found.setting, "bold")
    header, rows = ["lam"], [[f"{lam:.3g}"] for lam in found.lam]
    for name, short in SHOWN.items():
        header += ["exp.", short, "dev."]
        of = found.draws
        columns = zip(of.expected[name], of.measured[name], of.deviation[name], strict=True)
        for row, (expected, measured, deviation) in zip(rows, columns, strict=True):
            row += [f"{expected:.4f}", f"{measured:.4f}", format_signed(deviation)]
    voice.table(header, rows)
    voice.tell(
        "exp.: the mean that theory expects, given how the draws scatter; then the mean that was measured; "
        "dev.: how far it is off, in standard errors of the mean difference of each draw from its own theory."
    )
    voice.say()
    for title, of in (("each draw's own theory", found.draws), ("the law's theory", found.law)):
        voice.say(f"Largest deviations from {title}:")
        header = ["", "lam", "theory", "expected", "measured", "± s.e.", "dev."]
        voice.table(header, [of.largest_of(name).to_cells() for name in of.theory])
    voice.tell(found.verdict, "bold red" if found.holds is False else "bold")
    if found.holds is not None:
        said = found.law.verdict
        voice.tell(f"Against the law, as in the paper: {said[0].lower()}{said[1:]}")
    lift = describe_lift(found)
    if lift:
        voice.tell(lift)


def describe_lift(found: Check) -> str | None:
    """Say where scatter alone moves a mean by half a standard error or more."""
    import numpy as np

    of, moved = found.draws, []
    for name in of.theory:
        gaps = of.expected[name] - of.theory[name]
        worth = np.abs(gaps) / of.standard_error[name]
        at = int(worth.argmax())
        if worth[at] >= WORTH_A_WORD:
            moved.append(f"{name.replace('_', ' ')} by {gaps[at]:+.4f} at λ = {found.lam[at]:.3g}")
    if not moved:
        return None
    return (
        "What is expected is not theory itself: the mean of a curved function is moved by scatter alone, "
        f"here {', '.join(moved)}."
    )
