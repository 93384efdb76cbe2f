"""``refinecal theory gain``: what choosing by refinement would save on a table, without training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal._core.format import list_names, list_some
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

    from refinecal.tabular.schema import Schema
    from refinecal.theory.gain import GainPrediction

MOST_CELLS = 50_000_000  # 400 MB: of larger tables, rows drawn at random are looked at
WORTH_SAYING = 0.001  # of the log loss
MOST_NAMES = 3
AGAIN = "May be given again."


@command("refinecal theory gain churn.csv --target churned --drop customer_id")
def gain(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE", help="A .csv or .tsv (or .gz, .zst of it), .parquet or .feather file."
        ),
    ],
    target: Target,
    positive: Annotated[
        str | None,
        typer.Option(
            "--positive",
            metavar="LABEL",
            rich_help_panel=TABLE,
            help="Sets this class against all others.",
        ),
    ] = None,
    drop: Annotated[list[str] | None, column("--drop", f"A column to leave out. {AGAIN}")] = None,
    categorical: Annotated[
        list[str] | None, column("--categorical", f"Takes numbers for categories. {AGAIN}")
    ] = None,
    numeric: Annotated[
        list[str] | None, column("--numeric", f"Insists that a column is numbers. {AGAIN}")
    ] = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    rows: Annotated[
        int | None,
        number(
            "--rows",
            "How many rows will be trained on, if not as many as the table has (n_train in Python).",
            min=20,
        ),
    ] = None,
    draws: Annotated[
        int,
        number(
            "--draws",
            "Simulated tables behind each interval (n_draws in Python); 0 gives none.",
            min=0,
        ),
    ] = 60,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Predict what choosing a penalty by refinement would save; nothing is trained."""
    from refinecal.tabular.files import open_table
    from refinecal.tabular.schema import Schema
    from refinecal.theory.feature_rows import FEWEST_ROWS
    from refinecal.theory.gain import predict_gain

    voice = Console(as_json, quiet, verbose)
    with voice.show_warnings():
        read = open_table(table, delimiter, decimal).read()
        schema = Schema.infer(
            read, target, drop=drop or (), categorical=categorical or (), numeric=numeric or ()
        )
        _check_two(schema, positive)
        has_label = schema.has_label(read)
        if not has_label.all():
            missing = int((~has_label).sum())
            voice.note(f"{count(missing, 'row')} without {schema.target!r} left out")
            read = read.filter(has_label)
        if read.num_rows < FEWEST_ROWS:
            raise ValueError(
                f"{show_path(table)} has {count(read.num_rows, 'row')} with a label: at least {FEWEST_ROWS} "
                "are needed, or nothing can be told from noise"
            )
        made = _make_features(voice, read, schema, seed)
        n_train = rows or read.num_rows
        with _about_the_table(target):
            found = predict_gain(
                made.X, made.labels, positive=positive, n_train=n_train, n_draws=draws, seed=seed
            )
    show_columns(voice, schema, made, found, read.num_rows)
    show(voice, found)
    kinds = schema.table_of_kinds()
    voice.result({"table": table, "target": target, **found.to_dict(), "columns": kinds})


def show_columns(
    voice: Console, schema: Schema, made: Features, found: GainPrediction, n_rows: int
) -> None:
    """Say what is predicted from: how many rows, and what became of the columns."""
    rows, features = count(found.n_rows, "training row"), count(found.n_features, "feature")
    if found.n_rows != n_rows:
        rows += f" (the table has {count(n_rows, 'row')})"
    voice.say(f"{rows}, {features}, {found.classes[1]!r} against {found.classes[0]!r}", "bold")
    redundant = made.X.shape[1] - found.n_features
    more = f" Of these, {redundant} can be computed from others and say nothing new."
    voice.tell(describe_columns(schema, made) + more * (redundant > 0))
    if voice.verbose:
        voice.table(
            ["column", "kind", "missing", "distinct", "note"],
            [[str(cell) for cell in row.values()] for row in schema.table_of_kinds()],
            left=(0, 1, 4),
            spare=("note", "distinct", "missing"),
        )


def describe_columns(schema: Schema, made: Features) -> str:
    """Return what became of the columns, in a sentence."""
    dates = [each for each in schema.features if each.form == "date"]
    numbers = [each for each in schema.features if each.kind == "number" and each not in dates]
    categories = [each for each in schema.features if each.kind == "category"]
    unused = [each.name for each in schema.columns if each.kind == "unused"]
    one_hot = f"{count(len(categories), 'category', 'categories')} ({made.one_hot} one-hot)"
    gaps = f"gaps in {count(made.filled, 'column')} (filled with the median, and marked)"
    parts = (
        (numbers, count(len(numbers), "number")),
        (dates, f"{count(len(dates), 'date')} (as days)"),
        (categories, one_hot),
        (made.filled, gaps),
        (unused, f"{len(unused)} left out: {list_names(unused, MOST_NAMES)}"),
    )
    features, columns = count(made.X.shape[1], "feature"), count(len(schema.columns), "column")
    return f"{features} from {columns}: {'; '.join(text for some, text in parts if some)}."


def show(voice: Console, found: GainPrediction) -> None:
    """Show the two choices, the answer in words, and what it rests on."""
    from refinecal.theory.gain import describe_interval, show_percent, tabulate_choices

    interval = f"{100 * found.level:g} % interval"
    header = ["chosen by", "lam", "C", interval, "log loss", "calibrated"]
    voice.table(header, tabulate_choices(found), spare=("lam",))
    voice.tell(found.sentence, "bold")
    if abs(found.gain_affine - found.gain) > WORTH_SAYING:
        voice.tell(
            "If calibration has an intercept (--calibrator affine), the prediction is "
            f"{show_percent(found.gain_affine)} % less log loss."
        )
    about = "not determined" if isnan(found.bayes_error) else f"about {found.bayes_error:.1%}"
    voice.tell(
        "C is that of scikit-learn's LogisticRegression on standardised columns; its interval holds what is "
        "as good to 0.1 % of the log loss. Error rate of the best "
        f"linear classifier: {about}{describe_interval(found.intervals['bayes_error'], found.level)}.",
    )
    voice.say()
    show_trust(voice, found)


def show_trust(voice: Console, found: GainPrediction) -> None:
    """Say what speaks against the prediction; with -v, also what does not."""
    from refinecal.theory.assumptions import CHOSEN

    voice.tell(f"Trust: {found.trust}", "bold")
    if voice.verbose:
        voice.tell("It is assumed that (✓ holds, ✗ doubtful, ? not looked at)")
        for each in found.assumptions:
            voice.tell(str(each))
        return
    for each in found.assumptions:
        if each.doubt:
            voice.tell(f"{each.mark} {each.doubt}")
    if not found.doubts:
        voice.tell("✓ nothing that was looked at speaks against it")
    voice.tell(f"? C is taken as chosen exactly: {CHOSEN}")
    voice.tell("-v shows all that is assumed, and what was measured.")


@contextmanager
def _about_the_table(target: str) -> Iterator[None]:
    """Let errors speak of the table and its target, not of X and y."""
    try:
        yield
    except ValueError as error:
        said = re.sub(r"^X\b", "the table", str(error))
        raise ValueError(re.sub(r"^y\b", repr(target), said)) from error


def _check_two(schema: Schema, positive: str | None) -> None:
    """Refuse a target of more classes, unless one is set against the rest."""
    names = list_some(schema.classes)
    if positive is not None and positive not in schema.classes:
        raise typer.BadParameter(
            f"{positive!r} is no value of {schema.target!r}, which holds {names}",
            param_hint="--positive",
        )
    if positive is None and len(schema.classes) != 2:
        raise ValueError(
            f"{schema.target!r} has {len(schema.classes)} classes ({names}), but the theory is about two: "
            f"set one against the rest with --positive {schema.classes[0]!r}"
        )


@dataclass(frozen=True)
class Features:
    """Rows as numbers, and how they were made."""

    X: Any
    labels: list[str]
    one_hot: int  # features that categories became
    filled: int  # columns with gaps


def _make_features(voice: Console, table: pa.Table, schema: Schema, seed: int) -> Features:
    """Return rows as numbers: missing ones filled and marked, categories one-hot."""
    import numpy as np

    from refinecal.training.encoding import Encoding

    if not schema.features:
        raise ValueError("the table has no column to learn from besides the target")
    X, labels = schema.encode(table), schema.labels(table)
    encoding = Encoding.learn(X, "standard")
    most = max(MOST_CELLS // max(encoding.n_numbers + encoding.n_codes, 1), 1000)
    if len(X) > most:
        voice.note(f"{count(most, 'row')} drawn at random are looked at: the table is large")
        some = np.sort(np.random.default_rng(seed).choice(len(X), most, replace=False))
        X, labels = X.iloc[some], labels[some]
    one_hot = np.zeros((len(X), encoding.n_codes + 1))
    np.put_along_axis(one_hot, encoding.positions(X), 1.0, axis=1)
    features = np.concatenate([encoding.numbers(X), one_hot[:, :-1]], axis=1)
    names = [schema.classes[label] for label in labels]
    return Features(features, names, encoding.n_codes, len(encoding.marked))
