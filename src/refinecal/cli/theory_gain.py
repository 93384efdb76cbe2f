"""``refinecal theory gain``: predict the gain of choosing by refinement on a table, without training."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal._core.format import list_names, percent, significant
from refinecal.cli._console import Console, command, count, show_path
from refinecal.cli._options import (
    TABLE,
    Decimal,
    Delimiter,
    Json,
    Quiet,
    Seed,
    Target,
    Verbose,
    column,
    number,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from refinecal.report import Page
    from refinecal.tabular.schema import Schema
    from refinecal.theory.gain import GainPrediction
    from refinecal.training.encoding import Encoding

MOST_CELLS = 50_000_000  # 400 MB: larger tables are subsampled
NO_PENALTY = 1000.0  # C on standardized columns from which the penalty hardly matters
WORTH_SAYING = 0.001  # of the log loss
MOST_NAMES = 3
RANGE = (
    "Its range contains all values whose log loss is at most 0.1% above the lowest, and allows for sampling "
    "error ({} of tables). "
)


CLASS = "Predict this class against all others."
ROWS = "Number of rows to train on (default: the rows of the table; n_train in Python)."
DRAWS = "Number of simulated tables for the intervals; 0 for no intervals (n_draws in Python)."


@command("refinecal theory gain churn.csv --target churned --drop customer_id")
def gain(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="A .csv or .tsv file (optionally .gz or .zst), or a .parquet or .feather file.",
        ),
    ],
    target: Target,
    positive: Annotated[
        str | None,
        number("--positive", CLASS, metavar="LABEL", rich_help_panel=TABLE),
    ] = None,
    drop: Annotated[list[str] | None, column("--drop", "Ignore this column (repeatable).")] = None,
    categorical: Annotated[
        list[str] | None,
        column("--categorical", "Treat this numeric column as categorical (repeatable)."),
    ] = None,
    numeric: Annotated[
        list[str] | None, column("--numeric", "Treat this column as numeric (repeatable).")
    ] = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    rows: Annotated[int | None, number("--rows", ROWS, min=20)] = None,
    draws: Annotated[int, number("--draws", DRAWS, min=0)] = 60,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Predict the gain of choosing a penalty by refinement, without training a model."""
    from refinecal.tabular.files import open_table
    from refinecal.tabular.schema import Schema
    from refinecal.theory.feature_rows import FEWEST_ROWS
    from refinecal.theory.gain import predict_gain

    console = Console(as_json, quiet, verbose)
    with console.show_warnings():
        read = open_table(table, delimiter, decimal).read()
        schema = Schema.infer(
            read, target, drop=drop or (), categorical=categorical or (), numeric=numeric or ()
        )
        _check_classes(schema, positive)
        has_label = schema.has_label(read)
        if not has_label.all():
            missing = int((~has_label).sum())
            console.note(f"{count(missing, 'row')} without {schema.target!r} ignored")
            read = read.filter(has_label)
        if read.num_rows < FEWEST_ROWS:
            raise ValueError(
                f"{show_path(table)} has {count(read.num_rows, 'row')} with a label: at least {FEWEST_ROWS} "
                "are needed to distinguish signal from noise"
            )
        X, labels, encoding = _encode(console, read, schema, seed)
        size: dict[str, Any] = {"n_train": rows or read.num_rows, "n_draws": draws, "seed": seed}
        try:
            found = predict_gain(X, labels, positive=positive, **size)
        except ValueError as error:  # about X and y, which are the table and its target here
            message = re.sub(r"^X\b", "the table", str(error))
            raise ValueError(re.sub(r"^y\b", repr(target), message)) from error
    features = describe_features(schema, encoding, X.shape[1], found)
    data = {"table": table, "target": target, **found.to_dict(), "columns": schema.table_of_kinds()}
    console.show(gain_page(found, schema, features, read.num_rows, data, verbose))


def _check_classes(schema: Schema, positive: str | None) -> None:
    """Refuse a target with more than two classes, unless one is compared with the rest."""
    names = list_names(schema.classes, 5)
    if positive is not None and positive not in schema.classes:
        raise typer.BadParameter(
            f"{positive!r} is not a value of {schema.target!r}, which has {names}",
            param_hint="--positive",
        )
    if positive is None and len(schema.classes) != 2:
        raise ValueError(
            f"{schema.target!r} has {len(schema.classes)} classes ({names}), but the theory covers two: "
            f"compare one with the rest, with --positive {schema.classes[0]!r}"
        )


def _encode(
    console: Console, table: pa.Table, schema: Schema, seed: int
) -> tuple[Any, list[str], Encoding]:
    """Return features (missing values filled and marked, categories one-hot), labels and the encoding."""
    import numpy as np

    from refinecal.training.encoding import Encoding

    if not schema.features:
        raise ValueError("the table has no column to learn from besides the target")
    X, labels = schema.encode(table), schema.labels(table)
    encoding = Encoding.learn(X, "standard")
    most = max(MOST_CELLS // max(encoding.n_numbers + encoding.n_codes, 1), 1000)
    if len(X) > most:
        console.note(f"the table is large: using {count(most, 'row')} drawn at random")
        some = np.sort(np.random.default_rng(seed).choice(len(X), most, replace=False))
        X, labels = X.iloc[some], labels[some]
    one_hot = np.zeros((len(X), encoding.n_codes + 1))
    np.put_along_axis(one_hot, encoding.positions(X), 1.0, axis=1)
    features = np.concatenate([encoding.numbers(X), one_hot[:, :-1]], axis=1)
    return features, [schema.classes[label] for label in labels], encoding


# ---- output ------------------------------------------------------------------------------------------------


def gain_page(
    found: GainPrediction,
    schema: Schema,
    features: str,
    n_rows: int,
    data: Mapping[str, Any],
    verbose: bool,
) -> Page:
    """Return both choices of C with their losses, the prediction in words, and how far to trust it."""
    from refinecal.report import Column, Page, Section, Table, Written
    from refinecal.report.of_fit import columns_table
    from refinecal.theory.assumptions import CHOSEN
    from refinecal.theory.gain import describe_interval, show_percent, tabulate_choices

    rows = count(found.n_rows, "training row")
    if found.n_rows != n_rows:
        rows += f" (the table has {count(n_rows, 'row')})"
    choices: list[list[Any]] = []
    for by, lam, C, (low, high), *losses in tabulate_choices(found):
        ends = "" if isnan(low) else f"{significant(low, 2)} to {significant(high, 2)}"
        if high >= NO_PENALTY:
            ends = f"{significant(low, 2) if low < NO_PENALTY else '1,000'} or more"
        numbers = [Written(significant(lam, 3), lam), Written(significant(C, 3), C)]
        choices.append([by, *numbers, Written(ends, low), *losses])
    header: list[str | Column] = ["chosen by", Column("λ", spare=1), "C", "range of C"]
    table = Table("Choices of C", [*header, "log loss", "calibrated"], choices, terminal=2)
    columns = columns_table(schema, verbose * len(data["columns"]))
    points = [features]
    if abs(found.gain_affine - found.gain) > WORTH_SAYING:
        points.append(
            "With an intercept in the calibration (--calibrator affine), theory predicts "
            f"{show_percent(found.gain_affine)} less log loss."
        )
    known = not isnan(found.intervals["C_risk"][0])
    spread = describe_interval(found.intervals["bayes_error"], found.level)
    error = "not determined" if isnan(found.bayes_error) else f"about {percent(found.bayes_error)}"
    points.append(
        f"C is the parameter of scikit-learn's LogisticRegression on standardized columns. "
        f"{RANGE.format(percent(found.level, 0)) if known else ''}"
        f"Error rate of the best linear classifier: {error}{spread}."
    )
    points.append(f"Trust: {found.trust}")
    if verbose:
        points.append("Assumptions (✓ holds, ✗ violated, ? not checked):")
        points += map(str, found.assumptions)
    else:
        fine = ["✓ the data violate no assumption that can be checked"]
        points += [f"✗ {doubt}" for doubt in found.doubts] or fine
        points.append(f"? C is assumed to be chosen exactly: {CHOSEN}")
        points.append("-v shows all assumptions and the measurements.")
    return Page(
        f"{rows}, {count(found.n_features, 'feature')}, {found.classes[1]!r} against {found.classes[0]!r}",
        found.sentence,
        points=points,
        sections=[Section("Choices of C", (), (columns, table))],
        data=data,
    )


def describe_features(
    schema: Schema, encoding: Encoding, n_made: int, found: GainPrediction
) -> str:
    """Return how the columns of the table became features."""
    kinds = ["date" if each.form == "date" else each.kind for each in schema.features]
    unused = [each.name for each in schema.columns if each.kind == "unused"]
    categories = count(kinds.count("category"), "category", "categories")
    filled = count(len(encoding.marked), "column")
    parts = {
        count(kinds.count("number"), "number"): "number" in kinds,
        f"{count(kinds.count('date'), 'date')} (as days)": "date" in kinds,
        f"{categories} ({encoding.n_codes} one-hot)": "category" in kinds,
        f"missing values in {filled} (filled with the median, and marked)": len(encoding.marked)
        > 0,
        f"{len(unused)} ignored: {list_names(unused, MOST_NAMES)}": len(unused) > 0,
    }
    made, columns = count(n_made, "feature"), count(len(schema.columns), "column")
    text = f"{made} from {columns}: {'; '.join(part for part, known in parts.items() if known)}."
    redundant = n_made - found.n_features
    if redundant:
        which = "is a linear combination" if redundant == 1 else "are linear combinations"
        text += f" {redundant:,} {which} of the others and left out."
    return text
