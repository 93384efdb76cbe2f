"""Which data sets an experiment has, and how its plan goes with that of the run which it resumes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from refinecal.cli._voice import Voice, count, shown

if TYPE_CHECKING:
    from refinecal.experiments.store import RunFolder
    from refinecal.experiments.tabular.plan import Plan
    from refinecal.experiments.tabular.sets import Source


def names(option: str, text: str | None) -> tuple[str, ...] | None:
    """Return the names of a list; ``None`` if there is none.

    >>> names("--methods", "xgboost, mlp")
    ('xgboost', 'mlp')
    """
    if text is None:
        return None
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise typer.BadParameter("name at least one", param_hint=option)
    return tuple(dict.fromkeys(names))


def found_sets(
    data: Path | None, talent: Path | None, openml: str | None, target: str, sets: str | None
) -> list[Source] | None:
    """Return the data sets that are named; ``None`` if none are."""
    from refinecal.experiments.tabular import sets as known

    only = names("--sets", sets)
    if data is not None:
        return known.find_sets(data, target, only)
    if talent is not None:
        return known.talent_sets(talent, only)
    if openml is not None:
        sources: list[Source] = _only(known.openml_sets(openml), only)
        return sources
    return None


def _only(sources: Any, names: tuple[str, ...] | None) -> Any:
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


def opened(
    voice: Voice,
    out: Path,
    sources: list[Source] | None,
    given: dict[str, Any],
    resume: bool,
    only: tuple[str, ...] | None,
) -> RunFolder:
    """Return the folder of a new run, or of one that goes on: with the same plan, or with a larger one."""
    from refinecal.experiments.store import PLAN, RunFolder

    is_there = (out / PLAN).is_file()
    if sources is None and not (resume and is_there):
        raise ValueError(
            f"{shown(out)} holds no run to resume: name tables with --data to begin one"
            if resume
            else "there are no tables: name them with --data, --talent or --openml"
        )
    if not (is_there and resume):
        RunFolder.check_new(out)
        return RunFolder.create(out, _planned(voice, sources or [], given))
    folder = RunFolder(out)
    if sources is None:
        plan = replace(folder.plan, sources=_only(folder.plan.sources, only), **given)
        check_methods(plan.methods)
    else:
        plan = _planned(voice, sources, given, folder.plan)
    _grow(voice, folder, plan)
    return folder


def _grow(voice: Voice, folder: RunFolder, plan: Plan) -> None:
    before = len(folder.plan.units())
    folder.grow(plan)
    if len(plan.units()) > before:
        voice.tell(f"{shown(folder.path)} had {count(before, 'training')}, and gets more")


def _planned(
    voice: Voice, sources: list[Source], given: dict[str, Any], base: Plan | None = None
) -> Plan:
    """Return a plan of the sets that can be used, for the rest like the base; say why others cannot."""
    from refinecal.experiments.tabular.plan import Plan
    from refinecal.experiments.tabular.sets import survey

    found = tuple(each.to_dict() for each in sources)
    plan = replace(base or Plan(found, ("xgboost",)), sources=found, **given)
    check_methods(plan.methods)
    new = [each for each in sources if base is None or not base.has(each.to_dict())]
    _, refused = survey(new, plan.min_rows, plan.max_rows)
    for name, why in refused.items():
        voice.note(f"{name} left out: {why}")
    fit = tuple(each.to_dict() for each in sources if each.name not in refused)
    if not fit:
        raise ValueError("none of the data sets can be used")
    return replace(plan, sources=fit)


def check_methods(names: tuple[str, ...]) -> None:
    """Refuse methods that are not known, or whose packages are not there."""
    from refinecal.experiments.tabular.methods import get_method

    for name in names:
        _ = get_method(name).model  # imports its package
