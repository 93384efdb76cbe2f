"""The data sets and the plan of an experiment: of a new run, or of one that resumes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from refinecal.cli._console import Console, count, show_path

if TYPE_CHECKING:
    from refinecal.experiments.store import RunFolder
    from refinecal.experiments.tabular.plan import Plan
    from refinecal.experiments.tabular.sets import Source
    from refinecal.experiments.vision.plan import VisionPlan

FoundSets = tuple[list["Source"], dict[str, str]]  # and by name why others are left out
TARGET = "target"
LACKING = {"missing_numbers": "missing numbers", "unlabelled": "missing labels"}
MOST_DROPPED = 3  # data sets of which rows are said to be dropped


def split_names(option: str, text: str | None) -> tuple[str, ...] | None:
    """Return the names of a list; ``None`` if there is none.

    >>> split_names("--methods", "xgboost, mlp")
    ('xgboost', 'mlp')
    """
    if text is None:
        return None
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise typer.BadParameter("name at least one", param_hint=option)
    return tuple(dict.fromkeys(names))


def find_data_sets(
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


def open_existing_run(out: Path, kind: str) -> RunFolder:
    """Return the run of an experiment in a folder; raise if another process is running it."""
    from refinecal.experiments.store import PLAN, RunFolder

    if not (out / PLAN).is_file():
        raise ValueError(f"{show_path(out)} has no run to resume: omit --resume to begin one")
    folder = RunFolder(out)
    folder.check_kind(kind)
    folder.check_idle()
    return folder


def target_of(folder: RunFolder | None) -> str:
    """Return the target of a run's tables, which all have the same; that of a new run by default."""
    sources = folder.plan.sources if folder is not None else ()
    return next((each["target"] for each in sources if each.get("kind") == "table"), TARGET)


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


def open_run(
    console: Console,
    out: Path,
    found: FoundSets | None,
    given: dict[str, Any],
    folder: RunFolder | None,
    only: tuple[str, ...] | None,
) -> RunFolder:
    """Return the folder of a new run, or the given one: with the same plan, or with a larger one."""
    from refinecal.experiments.store import RunFolder

    if found is None:
        assert folder is not None, "asked before"
        plan = replace(folder.plan, sources=_select_sources(folder.plan.sources, only), **given)
        check_methods(plan.methods)
        grow(console, folder, plan)
        return folder
    if folder is None:
        plan, left_out = _make_plan(console, found, given)
        folder = RunFolder.create(out, plan)
    else:
        plan, left_out = _make_plan(console, found, given, folder.plan)
        grow(console, folder, plan)
    folder.note_left_out(left_out)
    return folder


def check_begin(out: Path, is_named: bool, dask: str | None) -> None:
    """Raise if a run cannot begin: without tables, in a folder in use, or without a cluster."""
    from refinecal.experiments.running import check_cluster
    from refinecal.experiments.store import RunFolder

    if not is_named:
        raise ValueError("no tables are given: name them with --data, --talent or --openml")
    RunFolder.check_new(out)
    if dask is not None:
        check_cluster(dask)


def grow(console: Console, folder: RunFolder, plan: Plan | VisionPlan) -> None:
    """Give a run another plan, and tell if it is larger."""
    before = len(folder.plan.units())
    folder.grow(plan)
    if len(plan.units()) > before:
        console.tell(
            f"{show_path(folder.path)} had {count(before, 'training run')}; more are added"
        )


def remove_damaged(console: Console, folder: RunFolder, is_whole: Callable[[Path], bool]) -> None:
    """Remove truncated results, so that they are computed again, and say so."""
    damaged = folder.remove_damaged(is_whole)
    if damaged:
        which = f"{damaged[0]}" + ", …" * (len(damaged) > 1)
        console.note(f"{count(len(damaged), 'truncated result')} will be computed again: {which}")


def _make_plan(
    console: Console, named: FoundSets, given: dict[str, Any], base: Plan | None = None
) -> tuple[Plan, dict[str, str]]:
    """Return a plan of the usable sets, for the rest like the base; note why others are left out."""
    from refinecal.experiments.tabular.plan import Plan
    from refinecal.experiments.tabular.sets import survey

    sources, unfit = named
    found = tuple(each.to_dict() for each in sources)
    plan = replace(base or Plan(found, ("xgboost",)), sources=found, **given)
    check_methods(plan.methods)
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
        dropped = f"{n:,}"
        total = count(each["rows"] + each["subsampled"] + n, "row")
        why = ", ".join(words for what, words in LACKING.items() if each[what])
        console.note(f"{each['set']}: {dropped} of {total} dropped ({why})")
    if len(short) > most:
        others = count(len(short) - most, "other data set")
        console.note(f"rows of {others} are dropped, too; -v names all")


def check_methods(names: tuple[str, ...]) -> None:
    """Raise for unknown methods, and for methods whose packages are not installed."""
    from refinecal.experiments.tabular.methods import get_method

    for name in names:
        _ = get_method(name).model  # imports its package
