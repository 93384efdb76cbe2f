"""``refinecal fit``: the whole job on a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal._core.format import number as grouped
from refinecal._core.format import tidy_sentence
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
    Weight,
    choice,
    column,
    file,
    flag,
    number,
)
from refinecal.cli._outputs import check_folder

if TYPE_CHECKING:
    from refinecal.tabular.data import Data
    from refinecal.tabular.job import FinishedRun, FitRequest

MODELS = ("xgboost", "lightgbm", "catboost", "hist-gb", "logistic", "mlp")
BINARY = (
    "affine",
    "quadratic",
    "beta",
    "isotonic",
    "centred-isotonic",
    "venn-abers",
    "cross-venn-abers",
    "uniform-mass",
    "uniform-width",
    "scaling-binning",
    "spline",
)
CALIBRATORS = (
    "auto",
    "temperature",
    "vector",
    "matrix",
    "dirichlet",
    "structured-vector",
    "structured-matrix",
    "ensemble-temperature",
    *BINARY,
)
ALIASES = (
    "platt",
    "sigmoid",
    "svs",
    "sms",
    "ets",
    "centered-isotonic",
    "ivap",
    "cvap",
    "histogram",
)
WRAPPED = tuple(f"{name}-{way}" for way in ("ovr", "ovo") for name in BINARY)
# That are shown without -v; one more takes no more room than to say that it is hidden
FEW_COLUMNS = 10
AGAIN = "Repeatable."


@command("refinecal fit churn.csv --target churned --drop customer_id")
def fit(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE", help="A .csv or .tsv (or .gz, .zst of it), .parquet or .feather file."
        ),
    ],
    target: Target,
    group: Annotated[
        str | None, column("--group", "Rows of the same group stay together in every split.")
    ] = None,
    weight: Weight = None,
    drop: Annotated[list[str] | None, column("--drop", f"A column to ignore. {AGAIN}")] = None,
    categorical: Annotated[
        list[str] | None, column("--categorical", f"Treat this column as categorical. {AGAIN}")
    ] = None,
    numeric: Annotated[
        list[str] | None, column("--numeric", f"Treat this column as numeric. {AGAIN}")
    ] = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    test: Annotated[
        Path | None,
        file(
            "--test",
            help="A table of test rows, instead of a part of TABLE.",
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
            help="After judging, train again on all rows, test rows too; or deliver the judged models, as "
            "--test does.",
            rich_help_panel=TABLE,
        ),
    ] = True,
    model: Annotated[
        str,
        choice(
            "--model",
            "-m",
            names=MODELS,
            help="xgboost, lightgbm, catboost, hist-gb, logistic (a path of strengths) or mlp.",
        ),
    ] = "xgboost",
    tune: Annotated[
        int,
        number(
            "--tune",
            "Configurations to try: the default, then random ones. Refinement chooses.",
            min=1,
        ),
    ] = 1,
    calibrator: Annotated[
        str,
        choice(
            "--calibrator",
            names=CALIBRATORS,
            more=(*WRAPPED, *ALIASES),
            help="auto blends families by cross-validation; or temperature, structured-matrix, …; for two "
            "classes also affine, beta, isotonic, venn-abers, spline, … (with -ovr for more).",
        ),
    ] = "auto",
    folds: Annotated[
        str,
        number(
            "--folds",
            "Folds of the cross-validation whose models are averaged; 1 holds out rows once. auto: 5, drawn "
            "twice if rows × classes < 20,000.",
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
        number("--max-steps", "Rounds or epochs at most, instead of the model's.", min=1),
    ] = None,
    patience: Annotated[
        int | None,
        number("--patience", "Stop after this many steps without improvement.", min=1),
    ] = None,
    threads: Annotated[int | None, number("--threads", "Instead of all cores.", min=1)] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None, file("--out", "-o", help="The run folder to write, instead of TABLE-run.")
    ] = None,
    resume: Annotated[
        bool, flag("--resume", help="Continue an unfinished run: finished training runs are kept.")
    ] = False,
    restart: Annotated[
        bool, flag("--restart", help="Discard the unfinished run and start over.")
    ] = False,
    overwrite: Annotated[
        bool, flag("--overwrite", help="Replace the run that is there; other files are kept.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train long, stop where refinement is best, calibrate, and write a run folder with a report."""
    from refinecal.report.of_fit import check_packages, write_report
    from refinecal.tabular.data import Options
    from refinecal.tabular.fit_folder import FitFolder, Interrupted
    from refinecal.tabular.job import FitRequest, metrics, open_fit

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
    check_packages()
    folder = FitFolder(request.out)
    if resume and not folder.n_finished:
        _check_resume(console, request)
    try:
        with (
            console.show_warnings(),
            ProgressBars(console, model) as progress,
            open_fit(request) as job,
        ):
            show_data(console, table, job.data)
            if job.n_done:
                final = 0 if job.data.everything is None else len(job.data.everything)
                total = count(tune * len(job.data.pairs) + final, "training run")
                console.say(f"resuming: {job.n_done} of {total} are done")
            finished = job.run(progress)
            write_report(finished, request, job.draft)
            job.publish()
    except Interrupted as error:
        kept = count(error.finished, "finished training run")
        raise KeyboardInterrupt(f"{kept} kept: continue with {folder.resume_options}") from None
    show(console, finished)
    if as_json:
        console.result(
            {"run": finished.path, "report": finished.report, **metrics(request, finished)}
        )


def _folds(given: str) -> int | str | None:
    """Return what ``--folds`` says: a number, "auto", or ``None`` for holding out once."""
    if given == "auto":
        return given
    if not given.isdigit() or int(given) < 1:
        raise typer.BadParameter(
            f"{given!r} is neither auto nor a number of at least 1", param_hint="--folds"
        )
    return None if int(given) == 1 else int(given)


def _check_resume(console: Console, request: FitRequest) -> None:
    """Say that there is no unfinished run to resume; refuse to resume a finished one."""
    if request.out.exists() and not request.overwrite:
        raise ValueError(
            f"--resume: {show_path(request.out)} is finished: there is nothing to resume; pass --overwrite "
            "to replace it"
        )
    console.note("--resume: there is no unfinished run, so this one starts from the beginning")


# ---- what is shown -----------------------------------------------------------------------------------------


def show_data(console: Console, path: Path, data: Data) -> None:
    """Say what was found in the table."""
    schema = data.schema
    kinds = ["date" if each.form == "date" else each.kind for each in schema.features]
    parts = [count(schema.n_rows, "row"), count(kinds.count("number"), "number")]
    if "date" in kinds:
        parts.append(count(kinds.count("date"), "date"))
    parts.append(count(kinds.count("category"), "category", "categories"))
    console.say(f"{show_path(path)}: {', '.join(parts)}", "bold")
    rows = [list(row.values()) for row in schema.table_of_kinds()]
    hidden = 0 if console.verbose or len(rows) <= FEW_COLUMNS + 1 else len(rows) - FEW_COLUMNS
    console.table(
        ["column", "kind", "missing", "distinct", "note"],
        [
            [*map(_cell, row[:-1]), tidy_sentence(str(row[-1]))]
            for row in rows[: len(rows) - hidden]
        ],
        left=(0, 1, 4),
        spare=("note", "distinct", "missing"),
    )
    if hidden:
        console.say(f"… and {count(hidden, 'more column')} (-v shows all, as does the report)\n")


def _cell(cell: Any) -> str:
    """Return a name, or a count with its thousands apart."""
    return grouped(cell) if isinstance(cell, int) else str(cell)


def show(console: Console, finished: FinishedRun) -> None:
    """Say what came of it, and what to do next."""
    from refinecal.tabular.judgement import (
        describe_calibration,
        describe_certainty,
        describe_delivered,
        lead,
        recommend,
    )

    judged, found = finished.judged, finished.fit
    if judged is None:
        console.tell(
            f"Log loss of validation rows, each predicted by one model: {found.validation_loss:.4f}. There "
            "are no test rows to judge the average by."
        )
    else:
        rows = [
            [
                f"{'' if stage.change is None else '… '}{stage.name}",
                "" if stage.steps is None else _steps(stage.steps),
                f"{stage.loss:.4f}",
                "" if stage.change is None else f"{-stage.change.mean:+.4f}",
                "" if stage.change is None else f"{stage.change.standard_error:.4f}",
            ]
            for stage in judged.stages
        ]
        title = f"test log loss ({count(judged.ours.n, 'row')})"
        console.table([title, found.model.step_name, "log loss", "gain", "± s.e."], rows)
        console.tell(lead(judged), "bold")
        console.tell(describe_certainty(judged))
        for advice in recommend(found, judged):
            console.tell(f"- {advice}")
    console.tell(describe_delivered(found, judged))
    console.tell(describe_calibration(found))
    if len(found.candidates) > 1:
        from refinecal.report.of_fit import configuration

        console.tell(f"Chosen: {configuration(found)}")
    console.say(f"\nReport:  {show_path(finished.report)}")
    console.say(f"Predict: refinecal predict {show_path(finished.path)} NEW.csv -o predictions.csv")


def _steps(steps: list[int]) -> str:
    """Return the chosen step, or the smallest and largest of several folds."""
    low, high = min(steps), max(steps)
    return str(low) if low == high else f"{low}–{high}"


class ProgressBars:
    """Bars on stderr that follow the training runs under way, as a fit goes on."""

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
        """Begin a new bar."""
        which = "" if total == 1 else f" {run} of {total}"
        self._bar.start()
        self._bars[run] = self._bar.add_task(f"{self.model}{which}", total=max_steps, state="")

    def step(self, run: int, number: int, record: Mapping[str, float] | None) -> None:
        """Move the bar."""
        state = "" if record is None else f"refinement {record['refinement']:.4f}"
        self._bar.update(self._bars[run], completed=number, state=state)

    def finish(self, run: int) -> None:
        """Take the bar away."""
        self._bar.remove_task(self._bars.pop(run))
