"""``refinecal fit``: train, stop and calibrate a model of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal._core.format import count
from refinecal.cli import _options as option
from refinecal.cli._console import Console, command, show_path
from refinecal.cli._given import read_costs
from refinecal.cli._outputs import check_folder, check_renderer

if TYPE_CHECKING:
    from refinecal.report import Page
    from refinecal.tabular.data import Data
    from refinecal.tabular.job import FitJob, FitRequest

Columns = list[str] | None
TABLE: Any = {"rich_help_panel": option.TABLE}
FORMATS = "A .csv, .tsv (also .gz, .zst), .parquet, .feather or .xlsx file."
TREAT = "Treat this column as {}. Repeatable."
TEST = "Table of test rows, instead of a part of TABLE."
TEST_ROWS = "Fraction of test rows; by default 0.2, of auto at most 2,000 rows."
REFIT = (
    "After testing, train again on all rows including the test rows; --no-refit (implied by --test) delivers "
    "the tested models."
)
TUNE = "Number of configurations to try: the default, then random ones. Refinement chooses."
TIME_LIMIT = "Seconds for the whole command, about; auto has 300 unless told otherwise."
ENSEMBLE = "With --model auto: pool the models of several kinds, or take the best kind."
CALIBRATOR = (
    "auto (a cross-validated blend), temperature, structured-matrix, …; for two classes also affine, beta, "
    "isotonic, venn-abers, spline, … (for more classes add -ovr: one-vs-rest)."
)
FOLDS = (
    "Number of cross-validation folds, whose models are averaged; 1 is a single split. auto: 5, repeated "
    "twice if rows × classes < 20,000."
)


def list_models() -> Sequence[str]:
    """Return the names of the models, once a command needs them."""
    from refinecal.training.table_model import MODELS

    return ["auto", *MODELS]


def list_calibrators() -> list[str]:
    """Return the names of the calibrators."""
    from refinecal.calibrators.base import KINDS, WRAPPERS

    return [name for name in KINDS if name not in (*WRAPPERS.values(), "laplace")]


def list_variants() -> list[str]:
    """Return other names of calibrators, and those of one-vs-rest and one-vs-one."""
    from refinecal.calibrators.base import ALIASES, WRAPPERS

    wrapped = (f"{name}{ending}" for ending in WRAPPERS for name in list_calibrators())
    return [*ALIASES, *wrapped]


def check_folds(given: str) -> str:
    """Return the value of ``--folds`` if it is "auto" or a number."""
    if given != "auto" and (not given.isdigit() or int(given) < 1):
        raise typer.BadParameter(f"{given!r} must be auto or an integer of at least 1")
    return given


@command("refinecal fit churn.csv --target churned --drop customer_id")
def fit(
    ctx: typer.Context,
    table: Annotated[Path, typer.Argument(metavar="TABLE", help=FORMATS)],
    target: option.Target,
    group: Annotated[str | None, option.column("--group", "Column of groups, never split.")] = None,
    weight: option.Weight = None,
    drop: Annotated[Columns, option.column("--drop", "Ignore this column. Repeatable.")] = None,
    categorical: Annotated[
        Columns, option.column("--categorical", TREAT.format("categorical"))
    ] = None,
    numeric: Annotated[Columns, option.column("--numeric", TREAT.format("numeric"))] = None,
    delimiter: option.Delimiter = None,
    decimal: option.Decimal = None,
    sheet: option.Sheet = None,
    test: Annotated[Path | None, option.file("--test", help=TEST, **TABLE)] = None,
    test_fraction: Annotated[
        float | None, option.number("--test-fraction", TEST_ROWS, min=0, max=0.9, **TABLE)
    ] = None,
    refit: Annotated[bool, typer.Option("--refit/--no-refit", help=REFIT, **TABLE)] = True,
    model: Annotated[
        str,
        option.choice(
            "--model",
            "-m",
            names=list_models,
            help="auto (several kinds), xgboost, lightgbm, catboost, hist-gb, extra-trees, "
            "random-forest, knn (nearest neighbors), logistic (a regularization path) or mlp.",
        ),
    ] = "xgboost",
    time_limit: Annotated[float | None, option.number("--time-limit", TIME_LIMIT, min=1)] = None,
    tune: Annotated[int, option.number("--tune", TUNE, min=1)] = 1,
    ensemble: Annotated[bool, typer.Option("--ensemble/--no-ensemble", help=ENSEMBLE)] = True,
    calibrator: Annotated[
        str,
        option.choice("--calibrator", names=list_calibrators, more=list_variants, help=CALIBRATOR),
    ] = "auto",
    folds: Annotated[str, option.number("--folds", FOLDS, callback=check_folds)] = "auto",
    validation_fraction: Annotated[
        float,
        option.number(
            "--validation-fraction",
            "Fraction of validation rows with --folds 1.",
            min=0.01,
            max=0.9,
        ),
    ] = 0.2,
    max_steps: Annotated[
        int | None,
        option.number("--max-steps", "Most rounds or epochs (default: by model).", min=1),
    ] = None,
    patience: Annotated[
        int | None, option.number("--patience", "Patience in steps (default: by model).", min=1)
    ] = None,
    cost: option.Cost = None,
    threads: Annotated[
        int | None, option.number("--threads", "Number of threads (default: all cores).", min=1)
    ] = None,
    seed: option.Seed = 0,
    out: Annotated[
        Path | None, option.file("--out", "-o", help="Run folder to write (default: TABLE-run).")
    ] = None,
    config: option.Config = None,
    resume: Annotated[bool, option.flag("--resume", help="Continue an unfinished run.")] = False,
    restart: Annotated[bool, option.flag("--restart", help="Discard an unfinished run.")] = False,
    overwrite: Annotated[
        bool, option.flag("--overwrite", help="Replace an existing run; keep other files.")
    ] = False,
    as_json: option.Json = False,
    quiet: option.Quiet = False,
    verbose: option.Verbose = False,
) -> None:
    """Train a model of a table, stop on refinement, calibrate, and write a run folder with a report."""
    from refinecal.tabular.clock import Clock

    clock = Clock()  # before the imports that take long
    from refinecal.tabular.data import Options
    from refinecal.tabular.fit_folder import FitFolder
    from refinecal.tabular.job import FitRequest

    console = Console(as_json, quiet, verbose)
    if resume and restart:
        raise typer.BadParameter("contradicts --resume: pass one of them", param_hint="--restart")
    n_folds = folds if folds == "auto" else int(folds)
    limits = (max_steps, patience, None if n_folds == 1 else n_folds)
    fractions = (validation_fraction, test_fraction)
    options = Options(model, calibrator, tune, *limits, *fractions, refit, seed, threads)
    options = replace(options, time_limit=time_limit, ensemble=ensemble)
    request = FitRequest(
        table,
        target,
        Path(f"{table.name.split('.')[0]}-run") if out is None else out,
        options,
        test=test,
        weight=weight,
        group=group,
        drop=drop or (),
        categorical=categorical or (),
        numeric=numeric or (),
        delimiter=delimiter,
        decimal=decimal,
        sheet=sheet,
        resume=resume,
        overwrite=overwrite,
        restart=restart,
        clock=clock,
    )
    check_folder(request.out, [table, *([] if test is None else [test])])
    check_renderer()
    folder = FitFolder(request.out)
    if resume and not folder.n_finished:
        _check_resume(console, request)
    console.show(fit_table(console, request, cost, option.write_config(ctx)))
    console.say(f"\nReport:  {show_path(request.out / 'report.html')}")
    say_predict(console, request.out)


def say_predict(console: Console, run: Path) -> None:
    """Write the command that predicts with a run folder."""
    console.say(f"Predict: refinecal predict {show_path(run)} NEW.csv -o predictions.csv")


def fit_table(
    console: Console, request: FitRequest, cost: str | None = None, settings: str | None = None
) -> Page:
    """Fit a model, with progress bars, and write its run folder; return the page of the report."""
    from refinecal.report import write
    from refinecal.report.of_fit import page
    from refinecal.tabular.fit_folder import REPORT, SETTINGS
    from refinecal.tabular.job import open_fit

    with (
        console.show_warnings(),
        closing(ProgressBars(console)) as progress,
        open_fit(request) as job,
    ):
        costs = None if cost is None else read_costs(cost, job.data.schema.classes)
        show_data(console, request.table, job.data)
        if job.n_done:
            console.say(describe_kept(job))
        if job.clock.limit < math.inf:
            from refinecal.tabular.planner import fit_in_time as fit_model
        else:
            from refinecal.tabular.fitting import fit as fit_model
        found = fit_model(job.data, request.options, job.folder, progress, job.clock)
        report = page(job.write(found), request, costs)
        write(report, job.draft / REPORT)
        if settings is not None:
            (job.draft / SETTINGS).write_text(settings, "utf-8", "replace")
        job.publish()
    return report


def describe_kept(job: FitJob) -> str:
    """Return how much of a resumed fit is done."""
    if job.clock.limit < math.inf:
        from refinecal.tabular.clock import duration

        used = duration(job.clock.before)
        return f"resuming: {count(job.n_done, 'training run')} are done, after {used} of the time"
    final = 0 if job.data.everything is None else len(job.data.everything)
    total = job.request.options.tune * len(job.data.pairs) + final
    return f"resuming: {job.n_done} of {count(total, 'training run')} are done"


def _check_resume(console: Console, request: FitRequest) -> None:
    """Note that there is no unfinished run to resume; refuse to resume a finished one."""
    if request.out.exists() and not request.overwrite:
        raise ValueError(
            f"--resume: {show_path(request.out)} is finished; pass --overwrite to replace it"
        )
    console.note("--resume: there is no unfinished run; starting from scratch")


def show_data(console: Console, path: Path, data: Data) -> None:
    """Write what each column of the table is used as."""
    from refinecal.report.of_fit import MOST_COLUMNS, columns_table, describe_table
    from refinecal.report.terminal import show_table

    console.say(describe_table(show_path(path), data.schema), "bold")
    rest = "more columns (-v and the report show all)"
    show_table(columns_table(data.schema, MOST_COLUMNS), console, rest)


class ProgressBars:
    """Progress bars on stderr, one for each training run in progress."""

    def __init__(self, console: Console) -> None:
        from rich import progress as bars

        self.say = console.tell
        self._bar = bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(bar_width=20),
            bars.TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            bars.TextColumn("{task.fields[state]}"),
            console=console.err,
            transient=True,
            disable=console.quiet or not console.err.is_terminal,
        )
        self.close = self._bar.stop
        self._bars: dict[int, Any] = {}  # by run

    def start(self, run: int, name: str, max_steps: int) -> None:
        """Add a bar."""
        self._bar.start()
        self._bars[run] = self._bar.add_task(name, total=max_steps, state="")

    def step(self, run: int, number: int, record: Mapping[str, float] | None) -> None:
        """Advance a bar."""
        state = "" if record is None else f"refinement {record['refinement']:.4f}"
        self._bar.update(self._bars[run], completed=number, state=state)

    def finish(self, run: int) -> None:
        """Remove a bar."""
        self._bar.remove_task(self._bars.pop(run))
