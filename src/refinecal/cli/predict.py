"""``refinecal predict``: calibrated probabilities for new rows, in chunks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal.cli._console import Console, command, count, show_path
from refinecal.cli._options import (
    TABLE,
    Decimal,
    Delimiter,
    Json,
    NoSeed,
    Quiet,
    Verbose,
    column,
    file,
    number,
)
from refinecal.cli._outputs import check_output

if TYPE_CHECKING:
    import pyarrow as pa

    from refinecal.tabular.drift import NewRows
    from refinecal.tabular.run import Run

MOST_SHOWN = 3  # columns that are not used


@command("refinecal predict churn-run new.csv -o predictions.csv --keep customer_id")
def predict(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run folder that `refinecal fit` wrote.")
    ],
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="New rows, in any format that `fit` reads.")
    ],
    out: Annotated[
        Path,
        file(
            "--out",
            "-o",
            help="Where to write: .csv, .tsv (or .gz, .zst of it), .parquet, .feather.",
        ),
    ],
    keep: Annotated[
        list[str] | None,
        column("--keep", "A column to copy; the target is, if it is there. May be given again."),
    ] = None,
    chunk: Annotated[
        int, number("--chunk", "Rows held in memory at a time.", min=1, rich_help_panel=TABLE)
    ] = 65_536,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    seed: NoSeed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write the class and the calibrated probabilities of each row. Nothing in RUN is ever unpickled."""
    from refinecal.tabular.drift import NewRows
    from refinecal.tabular.files import create_table, open_table
    from refinecal.tabular.names import shorten
    from refinecal.tabular.run import Run

    console = Console(as_json, quiet, verbose)
    with console.show_warnings():
        loaded = Run.load(run)
        source = open_table(table, delimiter, decimal)
        check_output(out, [table, run], "--out")
        extra = loaded.schema.check_names(source.names)
        copied = _columns_to_copy(loaded, source.names, keep or [])
        unused = [name for name in extra if name not in copied]
        if unused:
            console.note(_note_unused_columns(unused, show_path(table)))
        needed = list(dict.fromkeys([*(c.name for c in loaded.schema.features), *copied]))
        new = NewRows(loaded.schema)
        with create_table(out) as writer:
            for part in source.chunks(needed, chunk):
                writer.write(predict_table(loaded, part, copied, new))
        unseen, unlike = new.unseen, new.describe_drift()
        notes = {
            name: _note_unseen_values(name, values) for name, values in unseen.items()
        } | unlike
        for note in shorten({name: notes[name] for name in [*unlike, *notes]}):
            console.note(note)
    console.say(f"{count(new.n_rows, 'row')}: {show_path(out)}")
    console.result(
        {
            "rows": new.n_rows,
            "out": out,
            "classes": loaded.classes,
            "extra_columns": unused,
            "unseen": {name: dict(values) for name, values in unseen.items()},
            "unlike_training": unlike,
        }
    )


def predict_table(run: Run, part: pa.Table, copied: list[str], new: NewRows) -> pa.Table:
    """Return the copied columns, the likeliest class, and the probability of each."""
    import numpy as np
    import pyarrow as pa

    probs = run.predict_proba_part(part, new.n_rows + 1, new)
    columns: dict[str, Any] = {name: part.column(name) for name in copied}
    labels = np.array(run.classes, dtype=object)[probs.argmax(axis=1)]
    columns["prediction"] = pa.array(labels, type=pa.string())
    columns |= {f"p_{label}": probs[:, j] for j, label in enumerate(run.classes)}
    return pa.table(columns)


def _columns_to_copy(run: Run, names: list[str], keep: list[str]) -> list[str]:
    """Return the columns to copy: those asked for, and the target if it is there."""
    from refinecal.tabular.names import check_column

    for name in keep:
        check_column(name, names, "--keep")
    copied = list(dict.fromkeys(keep))
    target = run.schema.target
    if target in names and target not in copied:
        copied.append(target)
    made = {"prediction", *(f"p_{label}" for label in run.classes)}
    clash = sorted(made & set(copied))
    if clash:
        raise ValueError(
            f"the column {clash[0]!r} cannot be kept, since the result has one of that name: rename it"
        )
    return copied


def _note_unused_columns(names: list[str], where: str) -> str:
    """Say which columns the run does not know."""
    if len(names) == 1:
        return f"column {names[0]!r} of {where} is not used: unknown to the run"
    most = list(map(repr, names[:MOST_SHOWN]))
    if len(names) > MOST_SHOWN:
        most.append(f"{len(names) - MOST_SHOWN} more")
    listed = f"{', '.join(most[:-1])} and {most[-1]}"
    return f"columns {listed} of {where} are not used: unknown to the run"


def _note_unseen_values(name: str, values: Counter[str]) -> str:
    """Say which values of a column were never seen in training."""
    from refinecal.tabular.drift import examples

    total = sum(values.values())
    return (
        f"{count(total, 'row')} with a {name!r} that was never seen in training ({examples(values)}): "
        "taken as missing"
    )
