"""``refinecal demo``: an example from data to reports that needs no download."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from refinecal._core.format import count, number, percent, significant
from refinecal.cli import _options as option
from refinecal.cli._console import Console, command, show_path
from refinecal.cli.fit import fit_table, say_predict

if TYPE_CHECKING:
    from refinecal.experiments.regularization import Experiment
    from refinecal.report import Page

TABLE, RUN, GAUSSIAN = "digits.csv", "digits-run", "gaussian.html"
UNUSUAL = 0.05  # p-value below which chance is not an explanation
MODEL = "hist-gb"  # overfits on so few rows that calibration and refinement differ visibly
CHOICES = (
    "chosen by loss",
    "chosen by loss, then calibrated",
    "chosen by refinement, then calibrated",
)
TEXT = (
    "Two Gaussian classes in 500 dimensions, 500 training rows, eigenvalues of the covariance drawn from "
    "Beta(5, 1), Bayes error 10%: section 7 of the paper.",
    "With strong regularization, logistic regression distinguishes the classes best: refinement is lowest, "
    "but it is underconfident; with weak regularization it is overconfident. Calibration error is lowest in "
    "between, and so is the loss: a compromise that calibration after training makes unnecessary.",
)


@command("refinecal demo")
def demo(
    out: Annotated[Path, option.file("--out", "-o", help="Folder to write to.")] = Path(
        "refinecal-demo"
    ),
    draws: Annotated[
        int, option.number("--draws", "Number of draws of the Gaussian model.", min=1)
    ] = 5,
    seed: option.Seed = 0,
    as_json: option.Json = False,
    quiet: option.Quiet = False,
    verbose: option.Verbose = False,
) -> None:
    """Fit boosted trees to a real table, and choose a regularization for the paper's Gaussian model."""
    from refinecal.experiments.regularization import run
    from refinecal.report import write
    from refinecal.tabular.data import Options
    from refinecal.tabular.job import FitRequest

    console = Console(as_json, quiet, verbose)
    table = write_digits(out)
    console.say("1. Handwritten digits from scikit-learn, 8 x 8 pixels, ten classes", "bold")
    console.say(f"   refinecal fit {show_path(table)} --target digit --model {MODEL} --folds 5\n")
    options = Options(MODEL, folds=5, seed=seed)
    request = FitRequest(table, "digit", out / RUN, options, overwrite=True, restart=True)
    digits = fit_table(console, request)
    console.print_page(digits)
    console.say()
    say_predict(console, out / RUN)
    console.say("\n2. A simulation: the paper's Gaussian model", "bold")
    console.say("   500 features, 500 rows, eigenvalues from Beta(5, 1), Bayes error 10%\n")
    gaussian = gaussian_page(run(draws, seed), seed)
    console.print_page(gaussian)
    write(gaussian, out / GAUSSIAN)
    reports = [out / RUN / "report.html", out / GAUSSIAN]
    console.say(f"\nReports: {show_path(reports[0])}\n         {show_path(reports[1])}")
    console.say("\nNow with your data:\n    refinecal fit YOUR.csv --target COLUMN", "bold")
    fitted = {name: value for name, value in digits.data.items() if name not in ("run", "report")}
    console.result({"digits": fitted, "gaussian": gaussian.data, "reports": reports})


def write_digits(folder: Path) -> Path:
    """Write scikit-learn's digits as a table; return its path."""
    import pyarrow as pa
    from sklearn.datasets import load_digits

    from refinecal.tabular.files import create_table

    folder.mkdir(parents=True, exist_ok=True)
    X, y = load_digits(return_X_y=True)
    columns = {f"pixel_{i // 8}_{i % 8}": X[:, i].astype(int) for i in range(X.shape[1])}
    with create_table(folder / TABLE) as writer:
        writer.write(pa.table({**columns, "digit": y}))
    return folder / TABLE


def gaussian_page(found: Experiment, seed: int) -> Page:
    """Return the page of the Gaussian experiment."""
    from refinecal.experiments.regularization import draw_curves
    from refinecal.report import Card, Column, Figure, Page, Section, Table
    from refinecal.report.of_evaluation import facts_of

    lowest = {
        name: significant(found.lams[values.argmin()], 2) for name, values in found.curves.items()
    }
    figure = Figure(
        lambda canvas: draw_curves(found, canvas),
        "Loss and its two terms against the regularization",
        "Lines are theory, for many rows and features. Dots are means over draws, on validation rows; the "
        "larger ones are minima.",
        "Measured risk is lowest at {risk}, refinement at {refinement}, calibration at {calibration}.".format(
            **lowest
        ),
    )
    by_loss, by_refinement = found.best.by_risk, found.best.by_refinement
    theory = [by_loss.risk, by_loss.refinement, by_refinement.refinement]
    measured = found.losses.mean(axis=0).tolist()
    rows = [list(row) for row in zip(CHOICES, map(float, theory), measured, strict=True)]
    draws = count(len(found.losses), "draw")
    title = f"test log loss (mean of {draws})"
    columns = [Column(title), Column("theory", 4), Column("measured", 4)]
    table = Table("Mean test log loss", columns, rows, terminal=len(rows))
    keys = ("by_loss", "by_loss_calibrated", "by_refinement_calibrated")
    return Page(
        "How much to regularize logistic regression",
        describe_gain(found),
        cards=[
            Card("lower log loss", percent(found.gain), f"theory: {percent(found.predicted_gain)}"),
            *(Card(name, number(loss, 4)) for name, loss in zip(CHOICES, measured, strict=True)),
        ],
        sections=[Section("Three choices", TEXT, (figure, table))],
        facts=facts_of(draws=len(found.losses), seed=seed),
        data={
            "draws": len(found.losses),
            **dict(zip(keys, measured, strict=True)),
            "gain": found.gain,
            "gain_standard_error": found.standard_error,
            "gain_predicted": found.predicted_gain,
            "gain_deviation": found.deviation,
        },
    )


def describe_gain(found: Experiment) -> str:
    """Return what is gained, and whether it agrees with theory."""
    gain = percent(found.gain)
    predicted = f"lowers the log loss by {{}}; theory predicts {percent(found.predicted_gain)}."
    start = f"Choosing by refinement, then calibrating, {predicted}"
    if math.isnan(found.deviation):
        return f"{start.format(gain)} One draw cannot tell whether they agree."
    gain = f"{gain} ± {percent(found.standard_error)} (standard error)"
    apart = f"{number(abs(found.deviation), 1)} standard errors"
    agree = f"The two agree within sampling error: they differ by {apart}."
    if found.chance < UNUSUAL:
        agree = f"The difference of {apart} is significant; theory holds for many more rows and features."
    return f"{start.format(gain)} {agree}"
