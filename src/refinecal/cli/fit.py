"""``refinecal fit``: train, stop and calibrate a model of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal._core.format import count
from refinecal.cli._console import Console, command, show_path
from refinecal.cli._options import (
    TABLE,
    Decimal,
    Delimiter,
    Json,
    Quiet,
    Seed,
    Target,
    Verbose,
    Weight,
    choice,
    column,
    file,
    flag,
    number,
)
from refinecal.cli._outputs import check_folder, check_renderer

if TYPE_CHECKING:
    from refinecal.report import Page
    from refinecal.tabular.data import Data
    from refinecal.tabular.job import FinishedRun, FitRequest

REPEATABLE = "Repeatable."


def list_models() -> Sequence[str]:
    """Return the names of the models, once a command needs them."""
    from refinecal.training.table_model import MODELS

    return MODELS


def list_calibrators() -> list[str]:
    """Return the names of the calibrators."""
    from refinecal.calibrators.registry import KINDS, WRAPPERS

    return [name for name in KINDS if name not in (*WRAPPERS.values(), "laplace")]


def list_variants() -> list[str]:
    """Return other names of calibrators, and those of one-vs-rest and one-vs-one."""
    from refinecal.calibrators.registry import ALIASES, WRAPPERS

    wrapped = (f"{name}{ending}" for ending in WRAPPERS for name in list_calibrators())
    return [*ALIASES, *wrapped]


@command("refinecal fit churn.csv --target churned --drop customer_id")
def fit(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE", help="A .csv, .tsv (also .gz, .zst), .parquet or .feather file."
        ),
    ],
    target: Target,
    group: Annotated[
        str | None, column("--group", "Column of groups, which are never split.")
    ] = None,
    weight: Weight = None,
    drop: Annotated[list[str] | None, column("--drop", f"Ignore this column. {REPEATABLE}")] = None,
    categorical: Annotated[
        list[str] | None, column("--categorical", f"Treat this column as categorical. {REPEATABLE}")
    ] = None,
    numeric: Annotated[
        list[str] | None, column("--numeric", f"Treat this column as numeric. {REPEATABLE}")
    ] = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    test: Annotated[
        Path | None,
        file(
            "--test",
            help="Table of test rows, instead of a part of TABLE.",
            rich_help_panel=TABLE,
        ),
    ] = None,
    test_fraction: Annotated[
        float,
        number(
            "--test-fraction",
            "Fraction of the rows held out for testing.",
            min=0,
            max=0.9,
            rich_help_panel=TABLE,
        ),
    ] = 0.2,
    refit: Annotated[
        bool,
        typer.Option(
            "--refit/--no-refit",
            help="After testing, train again on all rows including the test rows; --no-refit (implied by "
            "--test) delivers the tested models.",
            rich_help_panel=TABLE,
        ),
    ] = True,
    model: Annotated[
        str,
        choice(
            "--model",
            "-m",
            names=list_models,
            help="xgboost, lightgbm, catboost, hist-gb, logistic (a regularization path) or mlp.",
        ),
    ] = "xgboost",
    tune: Annotated[
        int,
        number(
            "--tune",
            "Number of configurations to try: the default, then random ones. Refinement chooses.",
            min=1,
        ),
    ] = 1,
    calibrator: Annotated[
        str,
        choice(
            "--calibrator",
            names=list_calibrators,
            more=list_variants,
            help="auto (a cross-validated blend), temperature, structured-matrix, …; for two classes also "
            "affine, beta, isotonic, venn-abers, spline, … (for more classes add -ovr: one-vs-rest).",
        ),
    ] = "auto",
    folds: Annotated[
        str,
        number(
            "--folds",
            "Number of cross-validation folds, whose models are averaged; 1 is a single split. auto: 5, "
            "repeated twice if rows × classes < 20,000.",
        ),
    ] = "auto",
    validation_fraction: Annotated[
        float,
        number(
            "--validation-fraction",
            "Fraction held out for validation with --folds 1.",
            min=0.01,
            max=0.9,
        ),
    ] = 0.2,
    max_steps: Annotated[
        int | None,
        number("--max-steps", "Maximum number of rounds or epochs (default: by model).", min=1),
    ] = None,
    patience: Annotated[
        int | None,
        number("--patience", "Early-stopping patience, in steps (default: by model).", min=1),
    ] = None,
    threads: Annotated[
        int | None, number("--threads", "Number of threads (default: all cores).", min=1)
    ] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None, file("--out", "-o", help="Run folder to write (default: TABLE-run).")
    ] = None,
    resume: Annotated[
        bool, flag("--resume", help="Continue an unfinished run: keep its finished training runs.")
    ] = False,
    restart: Annotated[
        bool, flag("--restart", help="Discard the unfinished run and start over.")
    ] = False,
    overwrite: Annotated[
        bool, flag("--overwrite", help="Replace an existing run; keep other files.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train a model of a table, stop on refinement, calibrate, and write a run folder with a report."""
    from refinecal.tabular.data import Options
    from refinecal.tabular.job import FitRequest

    console = Console(as_json, quiet, verbose)
    if resume and restart:
        raise typer.BadParameter("contradicts --resume: pass one of them", param_hint="--restart")
    options = Options(
        model=model,
        calibrator=calibrator,
        tune=tune,
        max_steps=max_steps,
        patience=patience,
        folds=_folds(folds),
        validation_fraction=validation_fraction,
        test_fraction=test_fraction,
        refit=refit,
        seed=seed,
        n_threads=threads,
    )
    request = FitRequest(
        table,
        target,
        Path(f"{table.name.split('.')[0]}-run") if out is None else out,
        options,
        test,
        weight,
        group,
        drop or (),
        categorical or (),
        numeric or (),
        delimiter,
        decimal,
        resume,
        overwrite,
        restart,
    )
    check_folder(request.out, [table, *([] if test is None else [test])])
    done = _check_resume(console, request)
    console.show(fit_table(console, request, done))
    console.say(f"\nReport:  {show_path(request.out / 'report.html')}")
    console.say(f"Predict: refinecal predict {show_path(request.out)} NEW.csv -o predictions.csv")


def fit_table(console: Console, request: FitRequest, done: int = 0) -> Page:
    """Fit a model, with progress bars, and write its run folder; return the page of the report."""
    from refinecal.report import write
    from refinecal.report.of_fit import page
    from refinecal.tabular.job import Interrupted, resume_options, run_fit
    from refinecal.tabular.run import REPORT

    check_renderer()
    pages: list[Page] = []

    def write_page(finished: FinishedRun, folder: Path) -> None:
        pages.append(page(finished, request))
        write(pages[0], folder / REPORT)

    def begin(data: Data) -> None:
        show_data(console, request.table, data)
        if done:
            total = request.options.tune * len(data.pairs)
            total += 0 if data.everything is None else len(data.everything)
            console.say(f"resuming: {done} of {count(total, 'training run')} are done")

    with console.show_warnings(), ProgressBars(console, request.options.model) as progress:
        try:
            run_fit(request, progress, begin, write_page)
        except Interrupted as error:
            kept = count(error.finished, "finished training run")
            raise KeyboardInterrupt(
                f"{kept} kept: continue with {resume_options(request.out)}"
            ) from None
    return pages[0]


def _folds(given: str) -> int | str | None:
    """Return the value of ``--folds``: a number, "auto", or ``None`` for a single split."""
    if given == "auto":
        return given
    if not given.isdigit() or int(given) < 1:
        raise typer.BadParameter(
            f"{given!r} must be auto or an integer of at least 1", param_hint="--folds"
        )
    return None if int(given) == 1 else int(given)


def _check_resume(console: Console, request: FitRequest) -> int:
    """Return the number of finished training runs to resume; note if there are none."""
    from refinecal.tabular.run import hidden_path
    from refinecal.tabular.units import UnfinishedRun

    done = UnfinishedRun(hidden_path(request.out, "unfinished")).n_finished if request.resume else 0
    if not request.resume or done:
        return done
    if request.out.exists() and not request.overwrite:
        raise ValueError(
            f"--resume: {show_path(request.out)} is finished; pass --overwrite to replace it"
        )
    console.note("--resume: there is no unfinished run; starting from scratch")
    return 0


def show_data(console: Console, path: Path, data: Data) -> None:
    """Write what each column of the table is used as."""
    from refinecal.report.of_fit import MOST_COLUMNS, columns_table, describe_table
    from refinecal.report.terminal import show_table

    console.say(describe_table(show_path(path), data.schema), "bold")
    show_table(columns_table(data.schema, MOST_COLUMNS), console)


class ProgressBars:
    """Progress bars on stderr, one for each training run in progress."""

    def __init__(self, console: Console, model: str) -> None:
        from rich import progress as bars

        self.model = model
        self._bar = bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(bar_width=20),
            bars.TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            bars.TextColumn("{task.fields[state]}"),
            console=console.err,
            transient=True,
            disable=console.quiet or not console.err.is_terminal,
        )
        self._bars: dict[int, Any] = {}  # by run

    def __enter__(self) -> ProgressBars:
        return self

    def __exit__(self, *about: object) -> None:
        self._bar.stop()

    def start(self, run: int, total: int, max_steps: int) -> None:
        """Add a bar."""
        which = "" if total == 1 else f" {run} of {total}"
        self._bar.start()
        self._bars[run] = self._bar.add_task(f"{self.model}{which}", total=max_steps, state="")

    def step(self, run: int, number: int, record: Mapping[str, float] | None) -> None:
        """Advance a bar."""
        state = "" if record is None else f"refinement {record['refinement']:.4f}"
        self._bar.update(self._bars[run], completed=number, state=state)

    def finish(self, run: int) -> None:
        """Remove a bar."""
        self._bar.remove_task(self._bars.pop(run))
