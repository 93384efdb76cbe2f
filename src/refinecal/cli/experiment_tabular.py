"""``refinecal experiment tabular``: train on many tables, and keep the best step by every metric."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from refinecal.cli._running import (
    SOME_FAILED,
    RunProgress,
    announce,
    check_retry,
    option,
    suggest_resume,
)
from refinecal.cli.experiment_status import show_status, summary

if TYPE_CHECKING:
    from refinecal.experiments.store import RunFolder


@command("refinecal experiment tabular --data tables --methods xgboost,mlp --configs 10 --out run")
def tabular(
    out: RunOut,
    data: Annotated[
        Path | None,
        option(
            "--data", "A folder of Parquet, CSV or Feather tables; or one.", None, "PATH", TABLE
        ),
    ] = None,
    talent: Annotated[
        Path | None, option("--talent", "A folder in the layout of TALENT.", None, "PATH", TABLE)
    ] = None,
    openml: Annotated[
        str | None, option("--openml", "A suite, or data set ids, of OpenML.", None, "IDS", TABLE)
    ] = None,
    target: Annotated[
        str | None, option("--target", "The label column of each table.", "target", "COL", TABLE)
    ] = None,
    sets: Annotated[
        str | None, option("--sets", "Only these data sets.", None, "A,B,…", TABLE)
    ] = None,
    min_rows: Annotated[
        int | None, option("--min-rows", "Leave out smaller sets.", "1000", panel=TABLE, min=1)
    ] = None,
    max_rows: Annotated[
        int | None,
        option("--max-rows", "Rows drawn from larger sets.", "100000", panel=TABLE, min=1),
    ] = None,
    methods: Annotated[
        str | None,
        option(
            "--methods",
            "Models: xgboost, mlp, realmlp, lightgbm, catboost, hist-gb, logistic.",
            "xgboost",
            "A,B,…",
        ),
    ] = None,
    splits: Annotated[
        int | None, option("--splits", "Random splits of each set.", "5", min=1)
    ] = None,
    configs: Annotated[
        int | None,
        option("--configs", "Random configurations, in addition to the defaults.", "0", min=0),
    ] = None,
    max_steps: Annotated[
        int | None,
        option("--max-steps", "Steps (rounds, epochs), if fewer than the paper's.", min=1),
    ] = None,
    seed: Annotated[
        int | None, option("--seed", "The same seed gives the same result.", "0", min=0)
    ] = None,
    processes: Annotated[
        int | None,
        option("--processes", "Training runs at a time.", "all cores", panel=RUNNING, min=1),
    ] = None,
    threads: Annotated[
        int | None, option("--threads", "Threads of each training run.", "1", panel=RUNNING, min=1)
    ] = None,
    dask: Annotated[
        str | None, option("--dask", "Use this Dask cluster.", None, "ADDRESS", RUNNING)
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
