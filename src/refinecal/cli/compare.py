"""``refinecal compare``: several models on the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refinecal.cli import _options as option
from refinecal.cli._console import Console, command
from refinecal.cli._given import clip_note, clip_probabilities, zero_probability_note
from refinecal.cli._outputs import check_report, write_report


@command("refinecal compare forest.csv boosting.csv network.parquet --target churned")
def compare(
    predictions: Annotated[
        list[Path],
        typer.Argument(
            metavar="PREDICTIONS",
            help="Tables with the predictions of one model each, for the same rows.",
        ),
    ],
    target: option.Target,
    logits: option.Logits = False,
    clip: option.Clip = None,
    weight: option.Weight = None,
    delimiter: option.Delimiter = None,
    decimal: option.Decimal = None,
    report: option.Report = None,
    seed: option.NoSeed = 0,
    as_json: option.Json = False,
    quiet: option.Quiet = False,
    verbose: option.Verbose = False,
) -> None:
    """Compare models by log loss, before and after calibration, with standard errors."""
    from refinecal.evaluation import compare_models
    from refinecal.report.of_evaluation import comparison_page
    from refinecal.tabular.predictions import read_same_rows

    console = Console(as_json, quiet, verbose)
    if len(predictions) < 2:
        raise typer.BadParameter("pass at least two tables", param_hint="PREDICTIONS")
    check_report(report, predictions)
    with console.show_warnings("log loss is infinite"):
        read = read_same_rows(
            predictions, target, logits=logits, weight=weight, delimiter=delimiter, decimal=decimal
        )
        models = {name: clip_probabilities(each, clip) for name, each in read.items()}
        notes = clip_note(clip)
        for each, path in zip(models.values(), predictions, strict=True):
            notes = [*zero_probability_note(each, path), *notes]
        first = next(iter(models.values()))
        result = compare_models(
            first.labels,
            {name: each.values for name, each in models.items()},
            logits=first.logits,
            sample_weight=first.weights,
            classes=range(len(first.classes)),
            names=first.classes,
        )
        page = comparison_page(result, models, notes, clip=clip)
        console.show(page)
        write_report(console, page, report)
