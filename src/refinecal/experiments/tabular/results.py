"""From the folder of a run to tables: what every procedure is worth, on every split of every data set."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refinecal.experiments._unit_files import check_name
from refinecal.experiments.tabular.judging import Judgements, Row, Timing, Training, judge
from refinecal.experiments.tabular.plan import PLACE, Key, Plan

if TYPE_CHECKING:
    from refinecal.experiments.tabular.unit import UnitResult

__all__ = ["Results", "check_together", "merge_results", "read_results"]

Progress = Callable[[int, int], None]
SAME = ("seed", "max_steps", "max_rows", "version")  # what runs must share to be one experiment


@dataclass(frozen=True)
class Results:
    """All that a run has found out, in the order of its plan; or several runs together.

    Attributes
    ----------
    plans : list of Plan
        What was to be trained.
    rows : list of Row
        What each procedure is worth on each split.
    trainings : list of Training
        What stopping by refinement changed in each training.
    timings : list of Timing
        What each training took.
    failed : dict
        The trainings that failed, by key, with what their error says.
    """

    plans: list[Plan]
    rows: list[Row]
    trainings: list[Training]
    timings: list[Timing]
    failed: dict[Key, str]

    @cached_property
    def methods(self) -> list[str]:
        """Every method of the plans."""
        return _unique(plan.methods for plan in self.plans)

    @cached_property
    def planned(self) -> int:
        """Number of trainings in the plans."""
        return len({key for plan in self.plans for key in plan.units()})

    @cached_property
    def done(self) -> int:
        """Number of trainings that are there."""
        return len(self.timings)

    @property
    def missing(self) -> int:
        """Number of trainings that are neither there nor failed."""
        return self.planned - self.done - len(self.failed)

    def at_least(self, rows: int) -> Results:
        """Return what there is of data sets with so many rows or more."""
        known = {row.set for row in self.rows if row.n_rows >= rows}
        if not known:
            most = max(row.n_rows for row in self.rows)
            raise ValueError(f"no data set has {rows} rows: the largest has {most}")
        kept = [row for row in self.rows if row.set in known]
        trainings = [each for each in self.trainings if each.set in known]
        timings = [each for each in self.timings if each.set in known]
        failed = {key: said for key, said in self.failed.items() if key.set in known}
        plans = [
            plan.at(tuple(source for source in plan.sources if source["name"] in known))
            for plan in self.plans
            if known & set(plan.sets)
        ]
        return Results(plans, kept, trainings, timings, failed)


def merge_results(results: Sequence[Results]) -> Results:
    """Return several runs as one: what more than one of them holds is taken from the first."""
    plans = [plan for each in results for plan in each.plans]
    check_together(plans)
    rows = {row[:6]: row for each in reversed(results) for row in each.rows}
    trainings = {
        Key(row.set, row.split, row.method, row.config): row
        for each in reversed(results)
        for row in each.trainings
    }
    timings = {Key(*row[:4]): row for each in reversed(results) for row in each.timings}
    failed = {key: said for each in reversed(results) for key, said in each.failed.items()}
    order = _order(plans)
    return Results(
        plans,
        sorted(rows.values(), key=lambda row: order((row.set, row.split, row.method))),
        sorted(
            trainings.values(),
            key=lambda row: (*order((row.set, row.split, row.method)), row.config),
        ),
        sorted(
            timings.values(), key=lambda row: (*order((row.set, row.split, row.method)), row.config)
        ),
        {key: said for key, said in failed.items() if key not in timings},
    )


def check_together(plans: Sequence[Plan]) -> None:
    """Complain of runs that are not one experiment."""
    for other in plans[1:]:
        for name in SAME:
            one, two = getattr(plans[0], name), getattr(other, name)
            if one != two:
                raise ValueError(
                    f"the runs differ in {name}, {one} and {two}: report each of them by itself"
                )
    _check_sources(plans)


def _check_sources(plans: Sequence[Plan]) -> None:
    """Complain of two data sets that share a name, but not their content."""
    known: dict[str, Any] = {}
    for plan in plans:
        for source in plan.sources:
            content = {name: value for name, value in source.items() if name != PLACE}
            if known.setdefault(source["name"], content) != content:
                raise ValueError(
                    f"the runs have different data sets named {source['name']!r}: report each of the runs by "
                    "itself, or give one of the sets another name and run it again"
                )


def read_results(
    path: str | os.PathLike[str],
    auto: bool = True,
    processes: int = 1,
    progress: Progress | None = None,
) -> Results:
    """Judge every training of a run by its test rows.

    Parameters
    ----------
    path : str or Path
        The folder of the run.
    auto : bool, default True
        Whether to calibrate what log loss and refinement chose by ``"auto"``, too: about 0.2 s each.
    processes : int, default 1
        Splits judged at the same time; the result does not depend on it.
    progress : callable, optional
        Called with how many groups of trainings are judged, and how many there are.
    """
    from refinecal.experiments.store import RunFolder

    folder = RunFolder(path)
    folder.check_kind("tabular")
    plan, there = folder.plan, set(folder.finished())
    groups: dict[tuple[str, int, str], list[Path]] = {}
    for key in plan.units():  # by increasing configuration
        if key in there:
            groups.setdefault((key.set, key.split, key.method), []).append(folder.unit_path(key))
    if not groups:
        raise ValueError(
            f"{path} holds no finished training: run refinecal experiment tabular first; refinecal "
            "experiment status tells what there is"
        )
    paths = [groups[name] for name in sorted(groups, key=_order([plan]))]
    found = _judge_all(paths, auto, processes, progress)
    failed = {
        key: f"{about.get('kind', 'error')}: {about.get('message', '')}".strip(": ")
        for key, about in folder.failed().items()
    }
    return Results(
        [plan],
        [row for each in found for row in each.rows],
        [row for each in found for row in each.trainings],
        [row for each in found for row in each.timings],
        failed,
    )


def _order(plans: Sequence[Plan]) -> Callable[[tuple[str, int, str]], tuple[int, int, int]]:
    """Return what to sort by: methods, sets and splits as in the plans."""
    sets = {name: place for place, name in enumerate(_unique(plan.sets for plan in plans))}
    methods = {name: place for place, name in enumerate(_unique(plan.methods for plan in plans))}
    return lambda name: (methods[name[2]], sets[name[0]], name[1])


def _unique(names: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for some in names for name in some))


def _judge_all(
    groups: Sequence[Sequence[Path]], auto: bool, processes: int, progress: Progress | None
) -> list[Judgements]:
    from joblib import Parallel, delayed, parallel_config  # type: ignore[import-untyped]

    with parallel_config(backend="loky", inner_max_num_threads=1):
        jobs = Parallel(n_jobs=min(processes, len(groups)), return_as="generator")
        found = []
        for each in jobs(delayed(judge_files)(paths, auto) for paths in groups):
            found.append(each)
            if progress is not None:
                progress(len(found), len(groups))
    return found


def judge_files(paths: Sequence[Path], auto: bool = True) -> Judgements:
    """Return what the trainings in some files are worth: of one method on one split of one set."""
    return judge((_unit(path) for path in paths), auto)


def _unit(path: Path) -> UnitResult:
    """Return a training; of a file without its end, say how to repair it."""
    from refinecal.experiments.tabular.unit import UnitResult

    if path.is_file() and not UnitResult.is_whole(path):
        raise ValueError(f"{path} is damaged: resume the run, which trains this one again")
    unit = UnitResult.load(path)
    check_name(path, unit.key)
    return unit
