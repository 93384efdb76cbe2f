"""``refinecal theory check``: classifiers trained on samples against the theory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refinecal.cli._options import Json, Quiet, Seed, Verbose, file, number
from refinecal.cli._theory import (
    LAWS,
    Bar,
    Loss,
    Method,
    TableKind,
    check_figure,
    check_rate,
    law,
    new_figure,
    numbers,
    positive,
    save,
    solving,
    write_table,
)
from refinecal.cli._voice import FAILED, Voice, command, shown

if TYPE_CHECKING:
    from refinecal.theory._deviations import Largest
    from refinecal.theory.empirical import Check

SHOWN = {"risk": "risk", "calibration": "calibr.", "refinement": "refin."}


@command("refinecal theory check --n 1000 --seeds 20 --out check.png")
def check(
    n: Annotated[int, number("--n", "Training rows of each draw.", min=2)] = 2000,
    seeds: Annotated[int, number("--seeds", "Draws of the data.", min=2)] = 50,
    ratio: Annotated[float, positive("--ratio", "Features for each training row.")] = 0.5,
    bayes_error: Annotated[
        float, number("--bayes-error", "Error rate of the best classifier.", callback=check_rate)
    ] = 0.1,
    spectrum: Annotated[
        str, number("--spectrum", f"Law of the eigenvalues: {LAWS}.", metavar="LAW")
    ] = "beta:1,1",
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
    out: Annotated[
        Path | None, file("--out", "-o", help="Draw the comparison: a .png, .svg or .pdf file.")
    ] = None,
    table: TableKind = "csv",
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train on samples and compare with theory; the exit code is 1 if chance does not explain the gaps."""
    from refinecal.theory.empirical import check as run

    voice = Voice(as_json, quiet, verbose)
    beside = check_figure(out, table)
    eigenvalues, strengths = law(spectrum), numbers("--lams", lams)
    with voice.listening(), solving(), Bar(voice, "draws") as bar:
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

        save(canvas := new_figure(9.0, 5.2), out, lambda: draw_check(canvas, found))
        write_table(found.columns(), beside)
        voice.say(f"\nFigure: {shown(out)}\nTable:  {shown(beside)}")
    voice.result({**found.to_dict(), "figure": out, "table": beside})
    if not found.holds:
        raise typer.Exit(FAILED)


# ---- what is shown -----------------------------------------------------------------------------------------


def show(voice: Voice, found: Check) -> None:
    """Show theory and measurement at each strength, then the largest deviations and what they mean."""
    problem = found.theory.problem
    voice.tell(
        f"{found.theory.method}: {found.seeds} draws of n = {found.n}, p = {found.n_features}; Bayes error "
        f"{100 * problem.bayes_error.flat[0]:.3g} %, {problem.spectrum.label}",
        "bold",
    )
    header, rows = ["lam"], [[f"{lam:.3g}"] for lam in found.lam]
    for name, short in SHOWN.items():
        header += [short, "meas.", "dev."]
        for at, row in enumerate(rows):
            of = found.draws
            row += [
                f"{of.theory[name][at]:.4f}",
                f"{of.measured[name][at]:.4f}",
                f"{of.deviation[name][at]:+.1f}",
            ]
    voice.table(header, rows)
    voice.tell(
        "First of each three: theory; then the mean that was measured; then how far it is off, in standard "
        "errors of the mean difference of each draw from its own theory."
    )
    voice.say()
    for title, of in (("each draw's own theory", found.draws), ("the law's theory", found.law)):
        header = [f"largest, from {title}", "lam", "theory", "measured", "± s.e.", "dev."]
        voice.table(header, [largest(of.largest_of(name)) for name in of.theory])
    voice.tell(found.verdict, "bold" if found.holds else "bold red")
    voice.tell(
        f"Against the law, as in the paper: {found.law.verdict[0].lower()}{found.law.verdict[1:]}"
    )
    lifted = lift(found)
    if lifted:
        voice.tell(lifted)


def largest(of: Largest) -> list[str]:
    """Return a row about a largest deviation."""
    about = [of.quantity.replace("_", " "), f"{of.lam:.3g}"]
    numbers = [f"{of.theory:.4f}", f"{of.measured:.4f}", f"{of.standard_error:.2g}"]
    return [*about, *numbers, f"{of.deviation:+.1f}"]


def lift(found: Check) -> str | None:
    """Say where scatter alone moves a mean by more than a standard error."""
    of = found.draws
    gaps = of.expected["calibration"] - of.theory["calibration"]
    worth = gaps / of.standard_error["calibration"]
    at = int(worth.argmax())
    if worth[at] < 1:
        return None
    return (
        f"Calibration is never negative, so that scatter alone lifts its mean where theory is near 0: by "
        f"{gaps[at]:.5f} at λ = {found.lam[at]:.3g}. Deviations allow for that."
    )
