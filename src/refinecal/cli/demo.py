"""``refinecal demo``: the whole job on data that needs no download."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from refinecal.cli._console import Console, command, show_path
from refinecal.cli._options import Json, Quiet, Seed, Verbose, file, number

if TYPE_CHECKING:
    from refinecal.experiments.gaussian import Experiment

TABLE, RUN, GAUSSIAN = "digits.csv", "digits-run", "gaussian.html"
UNUSUAL = 0.05  # a smaller chance is not taken for an explanation
MODEL = "hist-gb"  # over-fits on so few rows, so that there is something to see


@command("refinecal demo")
def demo(
    out: Annotated[Path, file("--out", "-o", help="The folder to write to.")] = Path(
        "refinecal-demo"
    ),
    draws: Annotated[int, number("--draws", "Draws of the Gaussian model.", min=1)] = 5,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Fit boosted trees to a real table, and choose a regularisation on the paper's Gaussian model."""
    from refinecal.cli.fit import ProgressBars, show, show_data
    from refinecal.experiments.gaussian import run
    from refinecal.report.of_fit import check_packages, write_report
    from refinecal.tabular.data import Options
    from refinecal.tabular.job import FitRequest, metrics, open_fit

    console = Console(as_json, quiet, verbose)
    table = write_digits(out)
    console.say(
        "1. Handwritten digits, 8 x 8 pixels, from scikit-learn: which of ten is it?", "bold"
    )
    console.say(f"   refinecal fit {show_path(table)} --target digit --model {MODEL} --folds 5\n")
    request = FitRequest(
        table,
        "digit",
        out / RUN,
        Options(MODEL, folds=5, seed=seed),
        overwrite=True,
        restart=True,
    )
    check_packages()
    with (
        console.show_warnings(),
        ProgressBars(console, MODEL) as progress,
        open_fit(request) as job,
    ):
        show_data(console, table, job.data)
        finished = job.run(progress)
        write_report(finished, request, job.draft)
        job.publish()
    show(console, finished)

    console.say(
        "\n2. The paper's Gaussian model: how much to regularise logistic regression?", "bold"
    )
    console.say("   500 features, 500 rows, eigenvalues from Beta(5, 1), Bayes error 10 %\n")
    found = run(draws, seed)
    page = out / GAUSSIAN
    show_gaussian(console, found)
    write_gaussian(found, page, seed)
    console.say(f"\nReports: {show_path(finished.report)}\n         {show_path(page)}")
    console.say("\nYour turn:\n    refinecal fit YOUR.csv --target COLUMN", "bold")
    console.result(
        {
            "digits": metrics(request, finished),
            "gaussian": summary(found),
            "reports": [finished.report, page],
        }
    )


def write_digits(folder: Path) -> Path:
    """Write scikit-learn's digits as a table; return where."""
    import pyarrow as pa
    from sklearn.datasets import load_digits

    from refinecal.tabular.files import create_table

    folder.mkdir(parents=True, exist_ok=True)
    X, y = load_digits(return_X_y=True)
    columns = {f"pixel_{i // 8}_{i % 8}": X[:, i].astype(int) for i in range(X.shape[1])}
    with create_table(folder / TABLE) as writer:
        writer.write(pa.table({**columns, "digit": y}))
    return folder / TABLE


def summary(found: Experiment) -> dict[str, Any]:
    """Return the numbers of the Gaussian experiment."""
    by_loss, calibrated, refined = found.losses.mean(axis=0)
    return {
        "draws": len(found.losses),
        "by_loss": by_loss,
        "by_loss_calibrated": calibrated,
        "by_refinement_calibrated": refined,
        "gain": found.gain,
        "gain_standard_error": found.standard_error,
        "gain_predicted": found.predicted_gain,
        "gain_deviation": found.deviation,
    }


def rows_of(found: Experiment) -> list[tuple[str, float]]:
    """Return the three ways to choose, with their mean test losses."""
    names = ("chosen by loss", "… then calibrated", "chosen by refinement, then calibrated")
    return list(zip(names, found.losses.mean(axis=0).tolist(), strict=True))


def theory_losses(found: Experiment) -> list[float]:
    """Return what theory says the three losses are."""
    by_loss, by_refinement = found.best.by_risk, found.best.by_refinement
    return [float(x) for x in (by_loss.risk, by_loss.refinement, by_refinement.refinement)]


def show_gaussian(console: Console, found: Experiment) -> None:
    """Show the three losses, and what is gained."""
    title = f"test log loss (mean of {len(found.losses)} draws)"
    rows = zip(rows_of(found), theory_losses(found), strict=True)
    console.table(
        [title, "theory", "measured"],
        [[name, f"{theory:.4f}", f"{loss:.4f}"] for (name, loss), theory in rows],
    )
    console.tell(describe_gain(found), "bold")


def describe_gain(found: Experiment) -> str:
    """Say what is gained, and whether that is what theory predicts."""
    error = found.standard_error
    sure = "" if math.isnan(error) else f" ± {error:.1%}"
    return (
        f"Choosing by refinement, then calibrating: {found.gain:.1%}{sure} less log loss; theory predicts "
        f"{found.predicted_gain:.1%}{describe_agreement(found)}"
    )


def describe_agreement(found: Experiment) -> str:
    """Say how far measurement and theory are apart, in standard errors, and whether chance explains it."""
    if math.isnan(found.deviation):
        return ". One draw cannot tell whether that agrees."
    far = f": {abs(found.deviation):.1f} standard errors apart, "
    if found.chance >= UNUSUAL:
        return f"{far}which chance explains."
    return f"{far}more than chance explains; theory is for many more rows and features."


def write_gaussian(found: Experiment, path: Path, seed: int) -> None:
    """Write the page of the Gaussian experiment."""
    import refinecal
    from refinecal._core.format import tidy_sentence, tile
    from refinecal.experiments.gaussian import draw_curves
    from refinecal.report import Card, Figure, Page, Section, Table, write

    lowest = {name: found.lams[values.argmin()] for name, values in found.curves.items()}
    figure = Figure(
        lambda canvas: draw_curves(found, canvas),
        "Loss and its two parts against the regularisation",
        "Lines are theory, for many rows and features; dots are means over draws, on validation rows, the "
        "lowest ones larger.",
        f"Measured risk is lowest at {lowest['risk']:.2g}, refinement at {lowest['refinement']:.2g}, "
        f"calibration at {lowest['calibration']:.2g}.",
    )
    table = Table(
        "Mean test log loss",
        ["chosen", "theory", "measured"],
        [
            (name, x, loss)
            for (name, loss), x in zip(rows_of(found), theory_losses(found), strict=True)
        ],
    )
    text = (
        "Two Gaussian classes in 500 dimensions, 500 training rows, eigenvalues of the covariance drawn from "
        "Beta(5, 1), Bayes error 10 %: section 7 of the paper, whose theory predicts a gain of "
        f"{tidy_sentence(f'{found.predicted_gain:.1%}')}.",
        "Strong regularisation tells the classes apart best, so that refinement is lowest there, but is "
        "under-confident; weak regularisation is over-confident, and calibration lowest in between. So is "
        "the loss, a compromise between the two that calibrating afterwards makes needless.",
    )
    of = f"mean of {len(found.losses)} draws" if len(found.losses) > 1 else "one draw"
    of += f"; theory: {found.predicted_gain:.1%}"
    gain = Card("less log loss", tidy_sentence(f"{found.gain:.1%}"), tidy_sentence(of))
    page = Page(
        "How much to regularise: the paper's Gaussian model",
        tidy_sentence(describe_gain(found)),
        cards=[gain, *(Card(name, tile(loss)) for name, loss in rows_of(found))],
        sections=[Section("Three minimisers", text, (figure, table))],
        facts={
            "refinecal": refinecal.__version__,
            "draws": str(len(found.losses)),
            "seed": str(seed),
        },
    )
    write(page, path)
