"""``refinecal evaluate``: how good predictions are, and how much of their loss is miscalibration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from refinecal.cli import _options as option
from refinecal.cli import _pipes as pipe
from refinecal.cli._console import Console, command, show_path
from refinecal.cli._given import (
    clip_note,
    clip_probabilities,
    column_note,
    read_costs,
    zero_probability_note,
)
from refinecal.cli._outputs import check_report, write_report

TABLE = "Table with labels and predictions; - is standard input."
COLUMNS = "Prediction columns, in the order of the sorted classes, if not named after the classes."


@command("refinecal evaluate predictions.parquet --target churned --by region")
def evaluate(
    predictions: Annotated[Path, typer.Argument(metavar="PREDICTIONS", help=TABLE)],
    target: option.Target,
    columns: Annotated[
        str | None,
        option.number("--columns", COLUMNS, metavar="COL,COL", rich_help_panel=option.TABLE),
    ] = None,
    logits: option.Logits = False,
    clip: option.Clip = None,
    by: Annotated[
        str | None, option.column("--by", "Column of subgroups to evaluate separately.")
    ] = None,
    weight: option.Weight = None,
    cost: option.Cost = None,
    delimiter: option.Delimiter = None,
    decimal: option.Decimal = None,
    sheet: option.Sheet = None,
    report: option.Report = None,
    seed: option.NoSeed = 0,
    as_json: option.Json = False,
    quiet: option.Quiet = False,
    verbose: option.Verbose = False,
) -> None:
    """Evaluate predictions: their loss, split into calibration and refinement, and other metrics."""
    from refinecal.evaluation import evaluate as compute
    from refinecal.report.of_evaluation import page
    from refinecal.tabular.predictions import read_predictions

    console = Console(as_json, quiet, verbose)
    check_report(report, [predictions])
    with console.show_warnings("log loss is infinite"), pipe.read_pipe(predictions) as path:
        read = read_predictions(
            path,
            target,
            columns=None if columns is None else columns.split(","),
            logits=logits,
            weight=weight,
            by=by,
            delimiter=delimiter,
            decimal=decimal,
            sheet=sheet,
        )
        found = clip_probabilities(read, clip)
        given: Any = found.arguments
        result = compute(
            found.labels,
            **given,
            sample_weight=found.weights,
            classes=range(len(found.classes)),
            names=found.classes,
            by=found.groups,
        )
        zero = zero_probability_note(found, path)
        notes = [*column_note(read), *zero, *clip_note(clip)]
        costs = None if cost is None else read_costs(cost, found.classes)
        name = predictions if path == predictions else Path(show_path(path))
        made = page(result, found, name, by, notes, costs, clip=clip)
        console.show(made)
        write_report(console, made, report)
