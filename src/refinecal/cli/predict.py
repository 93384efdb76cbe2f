"""``refinecal predict``: calibrated probabilities for new rows, in chunks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal._core.format import list_names, number
from refinecal.cli import _interrupts
from refinecal.cli import _options as option
from refinecal.cli import _pipes as pipe
from refinecal.cli._console import Console, command, count, show_path
from refinecal.cli._given import read_costs
from refinecal.cli._outputs import check_output

if TYPE_CHECKING:
    import pyarrow as pa

    from refinecal.tabular.drift import NewRows
    from refinecal.tabular.run import Run

OUT = "File to write: .csv, .tsv (also .gz, .zst), .parquet or .feather; - is standard output."
TABLE = "New rows, in any format that `fit` reads; - is standard input."
KEEP = "Column to copy to the output, as the target is. Repeatable."
MOST_SHOWN = 3  # unknown columns that are named


@command("refinecal predict churn-run new.csv -o predictions.csv --keep customer_id")
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of `refinecal fit`.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help=TABLE)],
    out: Annotated[Path, option.file("--out", "-o", help=OUT)],
    keep: Annotated[list[str] | None, option.column("--keep", KEEP)] = None,
    chunk: Annotated[
        int,
        option.number("--chunk", "Rows in memory at a time.", min=1, rich_help_panel=option.TABLE),
    ] = 65_536,
    cost: option.Cost = None,
    delimiter: option.Delimiter = None,
    decimal: option.Decimal = None,
    sheet: option.Sheet = None,
    format: pipe.Format = None,
    seed: option.NoSeed = 0,
    as_json: option.Json = False,
    quiet: option.Quiet = False,
    verbose: option.Verbose = False,
) -> None:
    """Predict new rows: the class and calibrated probabilities. Nothing in RUN is ever unpickled."""
    from refinecal.tabular.drift import NewRows
    from refinecal.tabular.files import create_table, open_table
    from refinecal.tabular.run import Run

    console, piped = Console(as_json, quiet, verbose), out == pipe.PIPE
    if piped and as_json:
        raise typer.BadParameter("contradicts -o -: both write to stdout", param_hint="--json")
    with console.show_warnings():
        with _without_scikit_learn():
            loaded = Run.load(run)
        costs = None if cost is None else read_costs(cost, loaded.classes)
        with pipe.read_pipe(table) as path, pipe.write_pipe(out, format) as target:
            source = open_table(path, delimiter, decimal, sheet)
            if not piped:
                check_output(out, [table, run], "--out")
            extra = loaded.schema.check_names(source.names)
            copied = _columns_to_copy(loaded, source.names, keep or [])
            unused = [name for name in extra if name not in copied]
            if unused:
                which = "column" if len(unused) == 1 else "columns"
                listed = list_names(unused, MOST_SHOWN)
                console.note(f"ignored {which} of {show_path(path)} unknown to the run: {listed}")
            needed = list(dict.fromkeys([*(c.name for c in loaded.schema.features), *copied]))
            new, start = NewRows(loaded.schema), perf_counter()
            with create_table(target) as writer:
                for part in source.chunks(needed, chunk):
                    writer.write(predict_table(loaded, part, copied, new, costs))
            seconds = perf_counter() - start
    notes = _note_new_values(console, new)
    if not (as_json or quiet):
        rate = f"{number(new.n_rows / seconds, 0)} rows per second"
        console.err.print(f"{count(new.n_rows, 'row')} in {seconds:.2f} s: {rate}")
    if not piped:
        console.say(f"Predictions of {count(new.n_rows, 'row')}: {show_path(out)}")
    console.result(
        {
            "rows": new.n_rows,
            "seconds": seconds,
            "out": out,
            "classes": loaded.classes,
            "extra_columns": unused,
            **notes,
        }
    )


@contextmanager
def _without_scikit_learn() -> Iterator[None]:
    """Let XGBoost and LightGBM start in half the time: no prediction needs their scikit-learn classes."""
    if (
        not _interrupts.owns_process() or "sklearn" in sys.modules
    ):  # other code may need those classes
        yield
        return
    sys.modules["sklearn"] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        yield
    finally:
        del sys.modules["sklearn"]


def predict_table(
    run: Run, part: pa.Table, copied: list[str], new: NewRows, costs: Any = None
) -> pa.Table:
    """Return the copied columns, the predicted class, and the probability of each class."""
    probs = run.predict_proba_part(part, new.n_rows + 1, new)
    return probability_table(
        {name: part.column(name) for name in copied}, run.classes, probs, costs
    )


def probability_table(
    columns: dict[str, Any], classes: Sequence[str], probs: Any, costs: Any = None
) -> pa.Table:
    """Return columns, then the predicted class and the probability of each class.

    The predicted class is the most likely one or, with costs, the one with the smallest expected cost.
    """
    import numpy as np
    import pyarrow as pa

    places = probs.argmax(axis=1) if costs is None else (probs @ costs).argmin(axis=1)
    labels = np.array(classes, dtype=object)[places]
    made: dict[str, Any] = {"prediction": pa.array(labels, type=pa.string())}
    made |= {f"p_{label}": probs[:, j] for j, label in enumerate(classes)}
    return pa.table(columns | made)


def _columns_to_copy(run: Run, names: list[str], keep: list[str]) -> list[str]:
    """Return the columns to copy: those asked for, and the target if the table has it."""
    from refinecal.tabular.files import check_column

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
            f"the column {clash[0]!r} cannot be kept, since the output has a column of this name: rename it"
        )
    return copied


def _note_new_values(console: Console, new: NewRows) -> dict[str, Any]:
    """Note values never seen in training, and columns unlike those in training; return both as JSON."""
    from refinecal.tabular.drift import examples
    from refinecal.tabular.schema import shorten

    unseen, unlike = new.unseen, new.describe_drift()
    notes = {
        name: f"{count(sum(values.values()), 'row')} with a {name!r} that was never seen in training "
        f"({examples(values)}): treated as missing"
        for name, values in unseen.items()
    } | unlike
    for note in shorten({name: notes[name] for name in [*unlike, *notes]}):
        console.note(note)
    counts = {name: dict(values) for name, values in unseen.items()}
    return {"unseen": counts, "unlike_training": unlike}
