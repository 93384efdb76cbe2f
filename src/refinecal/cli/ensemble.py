"""``refinecal ensemble``: choose an ensemble of models from their predictions, or apply it to new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from refinecal._core.format import list_names
from refinecal.cli import _options as option
from refinecal.cli._console import Console, command, count, show_path
from refinecal.cli._outputs import check_output, check_report, write_report

PREDICTIONS = (
    "Tables with the predictions of one model each, for the same rows; their names, without folder and "
    "ending, are the names of the models."
)
OUT = "File to write: the ensemble (.json); with --apply its predictions (.parquet, .csv, ...)."
APPLY = "Apply this ensemble (.json) to the tables, of new rows, instead of choosing one."
METRIC = "Metric of the pool to optimize, such as refinement, log_loss, brier or auroc."
GROUP = "Column of groups, which cross-validation never splits."
BAGS = "Average over N selections, each on a bootstrap sample of the rows."
CHOOSING = (  # options that --apply has no use for
    *("metric", "pool", "members", "max_picks", "bags", "folds", "calibrator"),
    *("weight", "group", "report", "seed"),
)


def metric_names() -> list[str]:
    """Return the metrics that an ensemble can be chosen by."""
    from refinecal.metrics import BUILT_IN

    return list(BUILT_IN)


@command("refinecal ensemble predictions/*.parquet --target churned -o ensemble.json")
def ensemble(
    ctx: typer.Context,
    predictions: Annotated[list[Path], typer.Argument(metavar="PREDICTIONS", help=PREDICTIONS)],
    target: Annotated[
        str | None,
        option.column(
            "--target", "-t", help="Column of the label; with --apply, it is copied if given."
        ),
    ] = None,
    out: Annotated[Path | None, option.file("--out", "-o", help=OUT)] = None,
    apply: Annotated[Path | None, option.file("--apply", help=APPLY)] = None,
    metric: Annotated[
        str, option.choice("--metric", names=metric_names, help=METRIC)
    ] = "refinement",
    pool: Annotated[
        str,
        option.choice(
            "--pool",
            names=("auto", "arithmetic", "geometric"),
            help="Mean of probabilities or of log-probabilities (auto: chosen by cross-validation).",
        ),
    ] = "auto",
    members: Annotated[
        str,
        option.choice(
            "--members",
            names=("auto", "raw", "calibrated"),
            help="Whether each model is calibrated first (auto: chosen by cross-validation).",
        ),
    ] = "auto",
    max_picks: Annotated[int, option.number("--max-picks", "Largest number of picks.", min=1)] = 25,
    bags: Annotated[int, option.number("--bags", BAGS, min=1)] = 1,
    folds: Annotated[int, option.number("--folds", "Number of cross-validation folds.", min=2)] = 5,
    calibrator: Annotated[
        str, option.number("--calibrator", "Calibrator of the pool.", metavar="NAME")
    ] = "temperature",
    logits: option.Logits = False,
    weight: option.Weight = None,
    group: Annotated[str | None, option.column("--group", GROUP)] = None,
    delimiter: option.Delimiter = None,
    decimal: option.Decimal = None,
    report: option.Report = None,
    seed: option.Seed = 0,
    as_json: option.Json = False,
    quiet: option.Quiet = False,
    verbose: option.Verbose = False,
) -> None:
    """Choose an ensemble of models from their predictions, by the refinement of their pool."""
    console = Console(as_json, quiet, verbose)
    files = {"delimiter": delimiter, "decimal": decimal, "logits": logits}
    if apply is not None:
        option.refuse_given(ctx, CHOOSING, "contradicts --apply, which chooses no ensemble")
        _apply(console, predictions, apply, out, target, files)
        return
    if target is None:
        raise typer.BadParameter("name the column of the label", param_hint="--target")
    if len(predictions) < 2:
        raise typer.BadParameter("pass at least two tables", param_hint="PREDICTIONS")
    check_report(report, predictions)
    if out is not None:
        if out.suffix.lower() != ".json":
            raise typer.BadParameter(f"{out} does not end in .json", param_hint="--out")
        check_output(out, predictions, "--out")
    options = {
        "metric": metric,
        "pool": pool,
        "members": members,
        "max_picks": max_picks,
        "n_bags": bags,
        "cv": folds,
        "calibrator": calibrator,
        "random_state": seed,
    }
    _choose(
        console,
        predictions,
        target,
        files | {"weight": weight, "group": group},
        options,
        out,
        report,
    )


def _choose(
    console: Console,
    paths: list[Path],
    target: str,
    files: dict[str, Any],
    options: dict[str, Any],
    out: Path | None,
    report: Path | None,
) -> None:
    import numpy as np

    from refinecal.ensembles import select_ensemble
    from refinecal.report.of_ensemble import ensemble_page
    from refinecal.tabular.predictions import read_same_rows

    with console.show_warnings():
        read = read_same_rows(paths, target, **files)
        first = next(iter(read.values()))
        kind = "logits" if first.logits else "stack"
        stack: Any = {kind: {name: each.values for name, each in read.items()}}
        groups = first.groups
        if groups is not None:
            groups = np.array([None if each is None else str(each) for each in groups], object)
        found = select_ensemble(
            np.array(first.classes)[first.labels],
            **stack,
            sample_weight=first.weights,
            groups=groups,
            classes=first.classes,
            **options,
        )
        mixed = [name for name, n in zip(found.names, found.smoothing, strict=True) if n > 0]
        if mixed:
            console.note(
                f"labels have probability 0 in {list_names(mixed)}: mixed with uniform probabilities, "
                f"{first.n} to 1, as are their losses below"
            )
        page = ensemble_page(found, first.n)
        if out is not None:
            found.save(out)
        console.show(page)
        if out is not None:
            console.say(f"\nEnsemble: {show_path(out)}")
        write_report(console, page, report)


def _apply(
    console: Console,
    paths: list[Path],
    ensemble: Path,
    out: Path | None,
    target: str | None,
    files: dict[str, Any],
) -> None:
    """Write the predictions of an ensemble for new rows."""
    from refinecal.cli.predict import probability_table
    from refinecal.ensembles import SelectedEnsemble
    from refinecal.tabular.files import check_column, create_table, open_table
    from refinecal.tabular.predictions import model_names, read_values

    if out is None:
        raise typer.BadParameter("name the file of the predictions", param_hint="--out")
    check_output(out, [*paths, ensemble], "--out")
    with console.show_warnings():
        found = SelectedEnsemble.load(ensemble)
        classes = [str(label) for label in found.classes]
        values = {
            name: read_values(path, classes, **files)
            for name, path in zip(model_names(paths), paths, strict=True)
            if name in found.names
        }
        unused = [name for name in model_names(paths) if name not in values]
        if unused:
            console.note(f"not a model of {show_path(ensemble)}: {', '.join(unused)}")
        given: Any = {"logits" if files["logits"] else "stack": values}
        probs = found.predict_proba(**given)
        columns: dict[str, Any] = {}
        if target is not None:
            source = open_table(paths[0], files["delimiter"], files["decimal"])
            check_column(target, source.names, "target", str(source.path))
            columns[target] = source.read([target])[target]
        with create_table(out) as writer:
            writer.write(probability_table(columns, classes, probs))
    console.say(f"Predictions of {count(len(probs), 'row')}: {show_path(out)}")
    console.result({"rows": len(probs), "out": out, "classes": classes})
