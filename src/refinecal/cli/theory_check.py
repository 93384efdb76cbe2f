"""``refinecal theory check``: classifiers trained on samples against the theory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refinecal.cli._console import FAILED, Console, command, show_path
from refinecal.cli._options import Json, Quiet, Seed, Verbose, file, number
from refinecal.cli._theory import (
    LAWS,
    Bar,
    Loss,
    Method,
    TableKind,
    check_figure,
    law,
    new_figure,
    numbers,
    positive,
    rate,
    save,
    solving,
    write_table,
)

if TYPE_CHECKING:
    from refinecal.theory._deviations import Largest
    from refinecal.theory.empirical import Check

UNDECIDED = 3  # the exit code if there are too few draws
WORTH_A_WORD = 0.5  # standard errors
SHOWN = {"risk": "risk", "calibration": "calibr.", "refinement": "refin."}


@command("refinecal theory check --n 1000 --seeds 20 --out check.png")
def check(
    n: Annotated[int, number("--n", "Training rows of each draw.", min=10)] = 2000,
    seeds: Annotated[int, number("--seeds", "Draws of the data, 20 or more.", min=2)] = 50,
    ratio: Annotated[float, positive("--ratio", "Features for each training row.")] = 0.5,
    bayes_error: Annotated[
        float, rate("--bayes-error", "Error rate of the best classifier: 0.1 or 10%.")
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
        Path | None,
        file(
            "--out",
            "-o",
            help="Draw the comparison, which is not done otherwise: a .png, .svg or .pdf file.",
        ),
    ] = None,
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
    eigenvalues, strengths = law(spectrum), numbers("--lams", lams)
    with voice.show_warnings(), solving(), Bar(voice, "draws") as bar:
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
        voice.say(f"\nFigure: {show_path(out)}\nTable:  {show_path(beside)}")
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
        for at, row in enumerate(rows):
            of = found.draws
            row += [
                f"{of.expected[name][at]:.4f}",
                f"{of.measured[name][at]:.4f}",
                signed(of.deviation[name][at]),
            ]
    voice.table(header, rows)
    voice.tell(
        "exp.: the mean that theory expects, given how the draws scatter; then the mean that was measured; "
        "dev.: how far it is off, in standard errors of the mean difference of each draw from its own theory."
    )
    voice.say()
    for title, of in (("each draw's own theory", found.draws), ("the law's theory", found.law)):
        voice.say(f"Largest deviations from {title}:")
        header = ["", "lam", "theory", "expected", "measured", "± s.e.", "dev."]
        voice.table(header, [largest(of.largest_of(name)) for name in of.theory])
    voice.tell(found.verdict, "bold red" if found.holds is False else "bold")
    if found.holds is not None:
        said = found.law.verdict
        voice.tell(f"Against the law, as in the paper: {said[0].lower()}{said[1:]}")
    lifted = lift(found)
    if lifted:
        voice.tell(lifted)


def largest(of: Largest) -> list[str]:
    """Return a row about a largest deviation."""
    about = [of.quantity.replace("_", " "), f"{of.lam:.3g}"]
    values = [f"{each:.4f}" for each in (of.theory, of.expected, of.measured)]
    return [*about, *values, f"{of.standard_error:.2g}", signed(of.deviation)]


def signed(deviation: float) -> str:
    """Return a deviation with its sign, never minus 0.

    >>> signed(-0.04), signed(1.25), signed(-3)
    ('+0.0', '+1.2', '-3.0')
    """
    return f"{round(float(deviation), 1) + 0.0:+.1f}"


def lift(found: Check) -> str | None:
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
