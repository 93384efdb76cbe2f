"""``refinecal evaluate``: what predictions are worth, and how much of their loss is miscalibration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal._core.format import format_beta, number, tidy_sentence
from refinecal.cli._console import Console, command, count, show_path
from refinecal.cli._given import clip_note, clip_probabilities, column_note, zero_probability_note
from refinecal.cli._options import (
    TABLE,
    Clip,
    Decimal,
    Delimiter,
    Json,
    Logits,
    NoSeed,
    Quiet,
    Report,
    Target,
    Verbose,
    Weight,
    column,
)
from refinecal.cli._outputs import check_report

if TYPE_CHECKING:
    from refinecal.evaluation import Evaluation

TERMS = ("risk", "calibration", "refinement", "sharpness", "uncertainty")
FEW_ROWS = 1000  # on which the terminal, too, says how the calibration error was measured
MOST_CLASSES = 30  # shown without -v


@command("refinecal evaluate predictions.parquet --target churned --by region")
def evaluate(
    predictions: Annotated[
        Path,
        typer.Argument(metavar="PREDICTIONS", help="A table with labels and predictions."),
    ],
    target: Target,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="COL,COL",
            rich_help_panel=TABLE,
            help="The predictions, in the order of the sorted classes, if not named after classes.",
        ),
    ] = None,
    logits: Logits = False,
    clip: Clip = None,
    by: Annotated[str | None, column("--by", "Subgroups, each on its own.")] = None,
    weight: Weight = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    report: Report = None,
    seed: NoSeed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Split the loss of predictions into calibration and refinement, and say where it comes from."""
    from refinecal.evaluation import evaluate as compute
    from refinecal.tabular.predictions import read_predictions

    console = Console(as_json, quiet, verbose)
    check_report(report, [predictions])
    with console.show_warnings("log loss is infinite"):
        read = read_predictions(
            predictions,
            target,
            columns=None if columns is None else columns.split(","),
            logits=logits,
            weight=weight,
            by=by,
            delimiter=delimiter,
            decimal=decimal,
        )
        found = clip_probabilities(read, clip)
        about = [
            each for each in (zero_probability_note(found, predictions), clip_note(clip)) if each
        ]
        for each in (column_note(read), *about):
            if each:
                console.note(each)
        given: Any = found.arguments
        result = compute(
            found.labels,
            **given,
            sample_weight=found.weights,
            classes=range(len(found.classes)),
            names=found.classes,
            by=found.groups,
        )
        if report is not None:
            from refinecal.report import write
            from refinecal.report.of_evaluation import page

            write(page(result, found, predictions, by, about), report)
    show(console, result, predictions, by)
    if report is not None:
        console.say(f"\nReport: {show_path(report)}")
    console.result({**result.to_dict(), "clip": clip})


def show(console: Console, found: Evaluation, path: Path, by: str | None) -> None:
    """Show the terms, the metrics, and the classes or groups."""
    console.say(
        f"{show_path(path)}: {count(found.n, 'row')}, {count(found.k, 'class', 'classes')}", "bold"
    )
    console.table(
        ["", "log loss", "Brier score"],
        [
            [term, f"{getattr(found.log, term):.5f}", f"{getattr(found.brier, term):.5f}"]
            for term in TERMS
        ],
    )
    console.say("  ".join(f"{name} {value}" for name, value in summary(found).items()))
    console.tell(
        f"Of the ECE, {found.overconfidence:.4f} is overconfidence, {found.underconfidence:.4f} "
        "underconfidence."
    )
    from refinecal.evaluation.verdict import IN_SAMPLE, cautions, verdict

    said = verdict(found)
    few = [IN_SAMPLE] if found.n < FEW_ROWS and "calibration error" in said else []
    for sentence in (said, *cautions(found), *few):
        console.tell(sentence)
    hidden = 0 if console.verbose else max(0, len(found.per_class) - MOST_CLASSES)
    shown_classes = per_class(found, len(found.per_class) - hidden)
    console.table(*shown_classes, spare=("mean prob.", "recall", "ECE", "share", "AUROC"))
    if hidden:
        console.say(f"… and {count(hidden, 'more class', 'more classes')} (-v shows all)")
    if by is not None:
        console.table(*per_group(found, by), spare=("ECE", "beta", "accuracy", "refin.", "calibr."))


def summary(found: Evaluation) -> dict[str, str]:
    """Return the metrics beside the losses, as text."""
    values = {
        "accuracy": f"{found.accuracy:.4f}",
        "AUROC": f"{found.auroc:.4f}",
        "ECE": f"{found.ece:.4f}",
        "smooth ECE": f"{found.smooth_ece:.4f}",
    }
    if found.log.beta is not None:
        values["beta"] = format_beta(found.log.beta)
    return values


def per_class(found: Evaluation, most: int) -> tuple[list[str], list[list[str]]]:
    """Return the header and rows of the table of classes."""
    header = ["class", "rows", "share", "mean prob.", "recall", "AUROC", "ECE", "log loss"]
    rows = [
        [
            str(each.label),
            number(round(each.n)),
            tidy_sentence(f"{each.share:.1%}"),
            tidy_sentence(f"{each.mean_probability:.1%}"),
            f"{each.recall:.3f}",
            f"{each.auroc:.3f}",
            f"{each.ece:.4f}",
            f"{each.log_loss:.4f}",
        ]
        for each in found.per_class[:most]
    ]
    return header, rows


def per_group(found: Evaluation, by: str) -> tuple[list[str], list[list[str]]]:
    """Return the header and rows of the table of subgroups."""
    header = [by, "rows", "log loss", "calibr.", "refin.", "beta", "accuracy", "ECE"]
    rows = [
        [
            str(name),
            number(each.n),
            f"{each.log.risk:.4f}",
            f"{each.log.calibration:.4f}",
            f"{each.log.refinement:.4f}",
            format_beta(each.log.beta, 3),
            f"{each.accuracy:.3f}",
            f"{each.ece:.4f}",
        ]
        for name, each in found.groups.items()
    ]
    return header, rows
