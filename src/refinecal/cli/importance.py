"""``refinecal importance``: what each column is worth to the model of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refinecal._core.format import number
from refinecal.cli import _options as option
from refinecal.cli import _pipes as pipe
from refinecal.cli._console import Console, command, show_path
from refinecal.cli._outputs import check_report, write_report

TABLE = "Rows with labels that the model was not trained on; - is standard input."
ROWS = "Use at most N rows, chosen at random."
REPEATS = "Permutations of each column."


@command("refinecal importance churn-run new.csv --report importance.html")
def importance(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of `refinecal fit`.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help=TABLE)],
    repeats: Annotated[int, option.number("--repeats", REPEATS, min=1)] = 5,
    rows: Annotated[
        int, option.number("--rows", ROWS, min=2, rich_help_panel=option.TABLE)
    ] = 10_000,
    delimiter: option.Delimiter = None,
    decimal: option.Decimal = None,
    sheet: option.Sheet = None,
    report: option.Report = None,
    seed: option.Seed = 0,
    as_json: option.Json = False,
    quiet: option.Quiet = False,
    verbose: option.Verbose = False,
) -> None:
    """Shuffle each column, and show by how much the refinement error and the log loss rise."""
    import numpy as np

    from refinecal.cli._theory_options import show_progress
    from refinecal.evaluation import permutation_importance
    from refinecal.report.of_importance import page
    from refinecal.tabular.files import open_table
    from refinecal.tabular.run import Run

    console = Console(as_json, quiet, verbose)
    check_report(report, [table])
    with console.show_warnings(), pipe.read_pipe(table) as path:
        loaded = Run.load(run)
        given = loaded.read_rows(open_table(path, delimiter, decimal, sheet))
        assert given.keys is not None, "keyed"
        notes = [f"of {number(given.n)} rows, {number(rows)} are used (--rows)"] * (given.n > rows)
        given = given.take(np.argsort(given.keys, kind="stable")[:rows])  # whatever their order was
        with show_progress(console, "shuffling columns") as progress:
            found = permutation_importance(
                loaded.predict_encoded,
                given.X,
                given.y,
                n_repeats=repeats,
                random_state=seed,
                sample_weight=given.weights,
                groups=given.groups,
                classes=range(len(loaded.classes)),
                progress=progress,
            )
        name = table if path == table else Path(show_path(path))
        made = page(found, name, seed, notes, loaded.read_test_loss())
        console.show(made)
        write_report(console, made, report)
