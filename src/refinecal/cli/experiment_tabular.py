"""``refinecal experiment tabular``: train on many tables, and keep the best step by every metric."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal.cli._console import Console, command, count, show_path
from refinecal.cli._options import (
    RUNNING,
    TABLE,
    Json,
    Quiet,
    RetryFailed,
    RunOut,
    Verbose,
    flag,
    number,
    run_option,
)
from refinecal.cli._planning import (
    check_begin,
    find_data_sets,
    open_existing_run,
    open_run,
    remove_damaged,
    split_names,
    target_of,
)
from refinecal.cli._running import SOME_FAILED, RunProgress, announce, check_retry, suggest_resume
from refinecal.cli.experiment_status import show_status, summary

if TYPE_CHECKING:
    from refinecal.experiments.store import RunFolder


def _source(name: str, help: str, metavar: str, **more: Any) -> Any:
    return typer.Option(name, metavar=metavar, help=help, rich_help_panel=TABLE, **more)


@command("refinecal experiment tabular --data tables --methods xgboost,mlp --configs 10 --out run")
def tabular(
    out: RunOut,
    data: Annotated[
        Path | None,
        _source("--data", "A folder of Parquet, CSV or Feather tables; or one table.", "PATH"),
    ] = None,
    talent: Annotated[
        Path | None, _source("--talent", "A folder in the layout of TALENT.", "PATH")
    ] = None,
    openml: Annotated[
        str | None, _source("--openml", "A suite, or data set ids, of OpenML.", "IDS")
    ] = None,
    target: Annotated[
        str | None,
        _source(
            "--target",
            "The label column of each table.",
            "COL",
            show_default="target",
        ),
    ] = None,
    sets: Annotated[str | None, _source("--sets", "Only these data sets.", "A,B,…")] = None,
    min_rows: Annotated[
        int | None,
        number(
            "--min-rows",
            "Leave out smaller sets.",
            min=1,
            rich_help_panel=TABLE,
            show_default="1000",
        ),
    ] = None,
    max_rows: Annotated[
        int | None,
        number(
            "--max-rows",
            "Rows to draw from larger sets.",
            min=1,
            rich_help_panel=TABLE,
            show_default="100000",
        ),
    ] = None,
    methods: Annotated[
        str | None,
        number(
            "--methods",
            "Models: xgboost, mlp, realmlp, lightgbm, catboost, hist-gb, logistic.",
            metavar="A,B,…",
            show_default="xgboost",
        ),
    ] = None,
    splits: Annotated[
        int | None, number("--splits", "Random splits of each set.", min=1, show_default="5")
    ] = None,
    configs: Annotated[
        int | None,
        number(
            "--configs",
            "Random configurations in addition to the default parameters; the paper has 30.",
            min=0,
            show_default="0",
        ),
    ] = None,
    max_steps: Annotated[
        int | None,
        number(
            "--max-steps", "Steps (rounds, epochs, strengths), if fewer than the paper's.", min=1
        ),
    ] = None,
    seed: Annotated[
        int | None,
        number("--seed", "The same seed gives the same result.", min=0, show_default="0"),
    ] = None,
    processes: Annotated[
        int | None,
        run_option(
            "--processes", "Training runs at the same time.", min=1, show_default="all cores"
        ),
    ] = None,
    threads: Annotated[
        int | None,
        run_option("--threads", "Threads of each training run.", min=1, show_default="1"),
    ] = None,
    dask: Annotated[
        str | None, run_option("--dask", "Train on the Dask cluster of this scheduler.", "ADDRESS")
    ] = None,
    resume: Annotated[
        bool,
        flag(
            "--resume",
            help="Resume the run in --out; options such as more splits enlarge it.",
            rich_help_panel=RUNNING,
        ),
    ] = False,
    retry_failed: RetryFailed = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train to the last step, and keep the best step by each metric: to compare them on tables.

    Each training run is one file, so only runs in progress are lost if the command is stopped. The exit code
    is 3 if some training runs failed.
    """
    from refinecal.experiments.running import run
    from refinecal.experiments.tabular.protocol import Work
    from refinecal.experiments.tabular.unit import UnitResult

    console = Console(as_json, quiet, verbose)
    given = {
        "methods": split_names("--methods", methods),
        "splits": splits,
        "configs": configs,
        "max_steps": max_steps,
        "seed": seed,
        "min_rows": min_rows,
        "max_rows": max_rows,
        "n_threads": threads,
    }
    given = {name: value for name, value in given.items() if value is not None}
    _check_usage(data, talent, openml, dask, processes, resume, retry_failed)
    with console.show_warnings():
        only, is_named = split_names("--sets", sets), bool(data or talent or openml)
        before = open_existing_run(out, "tabular") if resume else None
        if before is None:
            check_begin(out, is_named, dask)
        found = find_data_sets(data, talent, openml, target or target_of(before), only)
        folder = open_run(console, out, found, given, before, only)
        remove_damaged(console, folder, UnitResult.is_whole)
        keys = [*folder.missing(), *(folder.failed() if retry_failed else ())]
        _announce(console, folder, len(keys))
        with (
            suggest_resume("tabular", out, "finished training runs are", "--dask", dask),
            RunProgress(console) as watch,
        ):
            width = {"processes": processes, "n_threads": folder.plan.n_threads}
            run(keys, Work(folder.plan), folder, dask=dask, progress=watch, **width)
    about = summary(folder)
    show_status(console, about)
    console.result(about)
    if about["failed"]:
        raise typer.Exit(SOME_FAILED)


# ---- what is asked for -------------------------------------------------------------------------------------


def _check_usage(
    data: Path | None,
    talent: Path | None,
    openml: str | None,
    dask: str | None,
    processes: int | None,
    resume: bool,
    retry_failed: bool,
) -> None:
    if sum(each is not None for each in (data, talent, openml)) > 1:
        raise typer.BadParameter("name one of --data, --talent and --openml")
    if dask is not None and processes is not None:
        raise typer.BadParameter(
            "the cluster decides the number of processes: omit --processes",
            param_hint="--dask",
        )
    check_retry(retry_failed, resume)


# ---- while it runs -----------------------------------------------------------------------------------------


def _announce(console: Console, folder: RunFolder, todo: int) -> None:
    from refinecal.experiments.tabular.differences import FEW_SETS

    plan = folder.plan
    parts = [
        count(len(plan.sources), "data set"),
        count(plan.splits, "split"),
        count(len(plan.methods), "method"),
        count(plan.configs + 1, "configuration"),
    ]
    announce(console, folder, parts, todo)
    if todo and len(plan.sources) < FEW_SETS:
        console.note(
            f"differences over data sets need at least {FEW_SETS} of them to be tested; here only within each"
        )
    if todo and not console.err.is_terminal:
        run = shlex.quote(show_path(folder.path))
        console.note(f"progress: refinecal experiment status {run}")
