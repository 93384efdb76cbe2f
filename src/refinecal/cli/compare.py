"""``refinecal compare``: several models on the same rows, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refinecal._core.format import format_beta
from refinecal.cli._console import Console, command, count, show_path
from refinecal.cli._given import clip_note, clip_probabilities, zero_probability_note
from refinecal.cli._options import (
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
)
from refinecal.cli._outputs import check_report

if TYPE_CHECKING:
    from refinecal.evaluation import Comparison


@command("refinecal compare forest.csv boosting.csv network.parquet --target churned")
def compare(
    predictions: Annotated[
        list[Path],
        typer.Argument(
            metavar="PREDICTIONS...", help="Tables of the same rows, one for each model."
        ),
    ],
    target: Target,
    logits: Logits = False,
    clip: Clip = None,
    weight: Weight = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    report: Report = None,
    seed: NoSeed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare models by log loss, and say which part of a difference calibration would remove."""
    from refinecal.evaluation import compare_models
    from refinecal.tabular.predictions import read_same_rows

    console = Console(as_json, quiet, verbose)
    if len(predictions) < 2:
        raise typer.BadParameter("name two tables at least", param_hint="PREDICTIONS")
    check_report(report, predictions)
    with console.show_warnings("log loss is infinite"):
        read = read_same_rows(
            predictions,
            target,
            logits=logits,
            weight=weight,
            delimiter=delimiter,
            decimal=decimal,
        )
        models = {name: clip_probabilities(each, clip) for name, each in read.items()}
        zero = (
            zero_probability_note(each, path)
            for each, path in zip(models.values(), predictions, strict=True)
        )
        about = [each for each in (*zero, clip_note(clip)) if each]
        for each in about:
            console.note(each)
        first = next(iter(models.values()))
        result = compare_models(
            first.labels,
            {name: each.values for name, each in models.items()},
            logits=first.logits,
            sample_weight=first.weights,
            classes=range(len(first.classes)),
            names=first.classes,
        )
        if report is not None:
            from refinecal.report import write
            from refinecal.report.of_evaluation import comparison_page

            write(comparison_page(result, models, about), report)
    show(console, result)
    if report is not None:
        console.say(f"\nReport: {show_path(report)}")
    console.result({**result.to_dict(), "clip": clip})


def show(console: Console, found: Comparison) -> None:
    """Show one row for each model, the best first, and how sure the differences are."""
    first = found.evaluations[found.ranking[0]]
    classes = count(first.k, "class", "classes")
    console.say(f"{count(first.n, 'row')}, {classes}; the best by log loss first", "bold")
    header = ["model", "log loss", "calibr.", "refin.", "beta", "Brier", "acc.", "AUROC", "ECE"]
    rows = []
    for name in found.ranking:
        each = found.evaluations[name]
        rows.append(
            [
                name,
                f"{each.log.risk:.4f}",
                f"{each.log.calibration:.4f}",
                f"{each.log.refinement:.4f}",
                format_beta(each.log.beta, 3),
                f"{each.brier.risk:.4f}",
                f"{each.accuracy:.4f}",
                f"{each.auroc:.4f}",
                f"{each.ece:.4f}",
            ]
        )
    console.table(header, rows, spare=("ECE", "beta", "Brier", "acc.", "AUROC"))
    console.table(*differences(found), spare=("± s.e. ", "Brier"))
    console.tell(found.verdict)


def differences(found: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return the table of differences to the best model, before and after calibration."""
    header = [
        f"above {found.best}",
        "log loss",
        "± s.e.",
        "calibrated",
        "± s.e.",
        "Brier",
        "± s.e. ",  # another name than its neighbours', by which it may be left out
    ]
    rows = []
    for name in found.ranking:
        if name != found.best:
            parts = (found.log[name], found.refinement[name], found.brier[name])
            row = [name]
            for part in parts:
                row += [f"{part.mean:+.4f}", f"{part.standard_error:.4f}"]
            rows.append(row)
    return header, rows
