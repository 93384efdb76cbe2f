"""``refinecal experiment tabular``: train on many tables, and keep the best step by every metric."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinecal.cli._console import Console, command, count, show_path
from refinecal.cli._experiments import (
    RunProgress,
    announce,
    check_retry,
    grow,
    open_existing_run,
    option,
    remove_damaged,
    split_names,
    suggest_resume,
)
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
from refinecal.cli.experiment_status import show_outcome

if TYPE_CHECKING:
    from refinecal.experiments.folder import RunFolder
    from refinecal.experiments.plan import Plan
    from refinecal.experiments.tabular.sets import Source


FoundSets = tuple[list["Source"], dict[str, str]]  # and by name why others are left out
TARGET = "target"
LACKING = {"missing_numbers": "missing numbers", "unlabelled": "missing labels"}
MOST_DROPPED = 3  # data sets whose dropped rows are listed


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
            "Models: xgboost, mlp, realmlp (the paper's), lightgbm, catboost, hist-gb, logistic; also "
            "xgboost-1000 (rounds by default, too) and mlp-4 (hidden layers).",
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
    folds: Annotated[
        int | None,
        option("--folds", "Also train on K folds and average the models: 2 to 10.", min=2),
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

    console = Console(as_json, quiet, verbose)
    given = {
        "methods": split_names("--methods", methods),
        "splits": splits,
        "configs": configs,
        "max_steps": max_steps,
        "folds": folds,
        "seed": seed,
        "min_rows": min_rows,
        "max_rows": max_rows,
        "n_threads": threads,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if sum(each is not None for each in (data, talent, openml)) > 1:
        raise typer.BadParameter("name one of --data, --talent and --openml")
    if dask is not None and processes is not None:
        raise typer.BadParameter(
            "the cluster decides the number of processes: omit --processes", param_hint="--dask"
        )
    check_retry(retry_failed, resume)
    with console.show_warnings():
        only = split_names("--sets", sets)
        before = open_existing_run(out, "tabular") if resume else None
        if before is None:
            _check_new(out, bool(data or talent or openml), dask)
        sources = before.plan.sources if before is not None else ()
        stored = next((each["target"] for each in sources if each.get("kind") == "table"), TARGET)
        found = _find_data_sets(data, talent, openml, target or stored, only)
        folder = _open_run(console, out, found, given, before, only)
        remove_damaged(console, folder)
        keys = [*folder.missing(), *(folder.failed() if retry_failed else ())]
        _announce(console, folder, len(keys))
        with (
            suggest_resume("tabular", out, "finished training runs are", "--dask", dask),
            RunProgress(console) as watch,
        ):
            width = {"processes": processes, "n_threads": folder.plan.n_threads}
            run(keys, Work(folder.plan), folder, dask=dask, progress=watch, **width)
    show_outcome(console, folder)


def _announce(console: Console, folder: RunFolder, todo: int) -> None:
    from refinecal.experiments.comparing import FEW_SETS

    plan = folder.plan
    sizes = {"data set": len(plan.sources), "split": plan.splits, "method": len(plan.methods)}
    sizes["configuration"] = plan.configs + 1
    if plan.folds:  # and one with the usual validation rows
        sizes["model"] = plan.folds + 1
    announce(console, folder, sizes, todo)
    if todo and len(plan.sources) < FEW_SETS:
        console.note(
            f"with fewer than {FEW_SETS} data sets, differences are tested only within each of them"
        )
    if todo and not console.err.is_terminal:
        run = shlex.quote(show_path(folder.path))
        console.note(f"progress: refinecal experiment status {run}")


def _find_data_sets(
    data: Path | None,
    talent: Path | None,
    openml: str | None,
    target: str,
    only: tuple[str, ...] | None,
) -> FoundSets | None:
    """Return the data sets that are named, and by name why others are left out; ``None`` if none are."""
    from refinecal.experiments.tabular import sets as known

    if data is not None:
        return known.find_tables(data, target, only)
    if talent is not None:
        return known.find_talent(talent, only)
    if openml is not None:
        return _select_sources(known.openml_sets(openml), only), {}
    return None


def _select_sources(sources: Any, names: tuple[str, ...] | None) -> Any:
    """Return the sources with these names, of any kind."""
    if names is None:
        return sources
    by_name = {each["name"] if isinstance(each, dict) else each.name: each for each in sources}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise typer.BadParameter(
            f"{', '.join(unknown)}: no such data set; there are {', '.join(list(by_name)[:10])}",
            param_hint="--sets",
        )
    return type(sources)(by_name[name] for name in names)


def _check_new(out: Path, is_named: bool, dask: str | None) -> None:
    """Raise if a run cannot start: without tables, in a folder in use, or without a cluster."""
    from refinecal.experiments.folder import RunFolder
    from refinecal.experiments.running import check_cluster

    if not is_named:
        raise ValueError("no tables are given: name them with --data, --talent or --openml")
    RunFolder.check_new(out)
    if dask is not None:
        check_cluster(dask)


def _open_run(
    console: Console,
    out: Path,
    found: FoundSets | None,
    given: dict[str, Any],
    folder: RunFolder | None,
    only: tuple[str, ...] | None,
) -> RunFolder:
    """Return the folder of a new run, or the given one: with the same plan, or with a larger one."""
    from refinecal.experiments.folder import RunFolder

    left_out: dict[str, str] = {}
    if found is None:
        assert folder is not None, "checked before"
        plan = replace(folder.plan, sources=_select_sources(folder.plan.sources, only), **given)
        _load_methods(plan.methods)
    else:
        plan, left_out = _make_plan(console, found, given, None if folder is None else folder.plan)
    if folder is None:
        folder = RunFolder.create(out, plan)
    else:
        grow(console, folder, plan)
    folder.note_left_out(left_out)
    return folder


def _make_plan(
    console: Console, named: FoundSets, given: dict[str, Any], base: Plan | None = None
) -> tuple[Plan, dict[str, str]]:
    """Return a plan of the usable sets, for the rest like the base; note why others are left out."""
    from refinecal.experiments.plan import Plan
    from refinecal.experiments.tabular.sets import survey

    sources, unfit = named
    found = tuple(each.to_dict() for each in sources)
    plan = replace(base or Plan(found, ("xgboost",)), sources=found, **given)
    _load_methods(plan.methods)
    new = [each for each in sources if base is None or not base.has(each.to_dict())]
    rows, refused = survey(new, plan.min_rows, plan.max_rows)
    left_out = unfit | refused
    for name, why in left_out.items():
        console.note(f"{name} left out: {why}")
    _note_dropped_rows(console, rows)
    fit = tuple(each.to_dict() for each in sources if each.name not in refused)
    if not fit:
        raise ValueError("none of the data sets can be used")
    return replace(plan, sources=fit), left_out


def _note_dropped_rows(console: Console, rows: list[dict[str, Any]]) -> None:
    """Note which sets have rows that are dropped."""
    short = [each for each in rows if any(each[what] for what in LACKING)]
    most = len(short) if console.verbose else MOST_DROPPED
    for each in short[:most]:
        n = sum(each[what] for what in LACKING)
        total = count(each["rows"] + each["subsampled"] + n, "row")
        why = ", ".join(words for what, words in LACKING.items() if each[what])
        console.note(f"{each['set']}: {n:,} of {total} dropped ({why})")
    if len(short) > most:
        others = count(len(short) - most, "other data set")
        console.note(f"rows of {others} are dropped, too; -v names all")


def _load_methods(names: tuple[str, ...]) -> None:
    """Import the packages of methods; raise for unknown methods and packages that are not installed."""
    from refinecal.experiments.tabular.protocol import get_method

    for name in names:
        _ = get_method(name).model  # imports its package
