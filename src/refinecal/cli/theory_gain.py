"""``refinecal theory gain``: what choosing by refinement would save on a table, without training."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal.cli._options import (
    TABLE,
    Delimiter,
    Json,
    Quiet,
    Seed,
    Target,
    Verbose,
    column,
    number,
)
from refinecal.cli._voice import Voice, command, count

if TYPE_CHECKING:
    import pyarrow as pa

    from refinecal.tabular.schema import Schema
    from refinecal.theory.gain import GainPrediction

MOST_CELLS = 50_000_000  # 400 MB: of larger tables, rows drawn at random are looked at
WORTH_SAYING = 0.001  # of the log loss
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
    rows: Annotated[
        int | None,
        number("--rows", "Rows to train on, if not as many as the table has.", min=20),
    ] = None,
    draws: Annotated[
        int, number("--draws", "How often to draw again for the intervals; 0 gives none.", min=0)
    ] = 60,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Predict what choosing a penalty by refinement would save; nothing is trained."""
    from refinecal.tabular.files import open_table
    from refinecal.tabular.schema import Schema
    from refinecal.theory.gain import predict_gain

    voice = Voice(as_json, quiet, verbose)
    with voice.listening():
        read = open_table(table, delimiter).read()
        schema = Schema.infer(
            read, target, drop=drop or (), categorical=categorical or (), numeric=numeric or ()
        )
        _check_two(schema, positive)
        read = _labelled(voice, read, schema)
        X, labels = _features(voice, read, schema, seed)
        names = [schema.classes[label] for label in labels]
        found = predict_gain(
            X, names, positive=positive, n_train=rows or read.num_rows, n_draws=draws, seed=seed
        )
    show(voice, found)
    voice.result({"table": table, "target": target, **found.to_dict()})


def show(voice: Voice, found: GainPrediction) -> None:
    """Show the two choices, the answer in words, and what it rests on."""
    rows, features = count(found.n_rows, "training row"), count(found.n_features, "feature")
    about = f"{found.classes[1]!r} against {found.classes[0]!r}"
    voice.say(f"{rows}, {features}, {about}", "bold")
    header = ["chosen by", "lam", "C", "log loss", "calibrated"]
    by_loss = (found.loss_by_risk, found.loss_by_risk_calibrated)
    voice.table(
        header,
        [
            ["loss", *_strengths(found.lam_risk, found.C_risk), *(f"{x:.4f}" for x in by_loss)],
            [
                "refinement",
                *_strengths(found.lam_refinement, found.C_refinement),
                "",
                f"{found.loss_by_refinement:.4f}",
            ],
        ],
    )
    voice.tell(found.sentence, "bold")
    if abs(found.gain_affine - found.gain) > WORTH_SAYING:
        voice.tell(
            f"If calibration has an intercept (--calibrator affine): {found.gain_affine:.1%} less log loss."
        )
    low, high = found.intervals["bayes_error"]
    between = "" if isnan(low) else f" ({low:.1%} to {high:.1%})"
    voice.tell(
        "C is that of scikit-learn's LogisticRegression on standardised columns. Error rate of the best "
        f"linear classifier: about {found.bayes_error:.1%}{between}."
    )
    voice.say()
    voice.tell(f"Trust: {found.trust}. It is assumed that")
    for each in found.assumptions:
        voice.tell(f"- {each}{'; ' + each.doubt if each.doubt else ''}")


def _strengths(lam: float, C: float) -> list[str]:
    return [f"{lam:.3g}", f"{C:.3g}"]


def _check_two(schema: Schema, positive: str | None) -> None:
    """Refuse a target of more classes, unless one is set against the rest."""
    names = ", ".join(map(repr, schema.classes[:5])) + ", …" * (len(schema.classes) > 5)
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


def _labelled(voice: Voice, table: pa.Table, schema: Schema) -> pa.Table:
    """Return the rows that have a label."""
    has_label = schema.has_label(table)
    missing = int((~has_label).sum())
    if missing:
        voice.note(f"{count(missing, 'row')} without {schema.target!r} left out")
    return table.filter(has_label)


def _features(voice: Voice, table: pa.Table, schema: Schema, seed: int) -> tuple[Any, Any]:
    """Return rows as numbers: missing ones filled and marked, categories one-hot."""
    import numpy as np

    from refinecal.tabular.models._encoding import Encoding

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
    return np.concatenate([encoding.numbers(X), one_hot[:, :-1]], axis=1), labels
