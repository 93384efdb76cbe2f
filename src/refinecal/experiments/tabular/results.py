"""From the folder of a run to tables: the test scores of every procedure on every split of every data set."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from refinecal.experiments.folder import RunResults, open_finished, read_failures
from refinecal.experiments.plan import PLACE, Plan, TableKey
from refinecal.experiments.tabular.judging import Judgements, Row, Timing, Training, judge

__all__ = ["Results", "check_together", "merge_results", "read_results"]

Progress = Callable[[int, int], None]
SAME = ("seed", "max_steps", "max_rows", "version")  # what runs must share to be one experiment


@dataclass(frozen=True)
class Results(RunResults):
    """All results of a run, in the order of its plan; or several runs together."""

    plans: list[Plan]
    rows: list[Row]  # test scores of each procedure on each split
    trainings: list[Training]  # what stopping by refinement changed in each training run
    timings: list[Timing]  # time and memory of each training run
    failed: dict[TableKey, str]  # training runs that failed, with their errors

    @cached_property
    def methods(self) -> list[str]:
        """Every method of the plans."""
        return _unique(plan.methods for plan in self.plans)

    @property
    def done(self) -> int:
        """Number of training runs with a result."""
        return len(self.timings)

    def at_least(self, rows: int) -> Results:
        """Return the results of data sets with this many rows or more."""
        known = {row.set for row in self.rows if row.n_rows >= rows}
        if not known:
            most = max(row.n_rows for row in self.rows)
            raise ValueError(f"no data set has {rows} rows: the largest has {most}")
        plans = [
            replace(plan, sources=tuple(each for each in plan.sources if each["name"] in known))
            for plan in self.plans
            if known & set(plan.sets)
        ]
        return Results(
            plans,
            [each for each in self.rows if each.set in known],
            [each for each in self.trainings if each.set in known],
            [each for each in self.timings if each.set in known],
            {key: said for key, said in self.failed.items() if key.set in known},
        )


def merge_results(results: Sequence[Results]) -> Results:
    """Return several runs as one: what more than one of them has is taken from the first."""
    plans = [plan for each in results for plan in each.plans]
    check_together(plans)
    order = _order(plans)

    def merge(field: str, identity: Callable[[Any], Any]) -> list[Any]:
        every = (row for each in reversed(results) for row in getattr(each, field))
        unique = {identity(row): row for row in every}.values()
        return sorted(unique, key=lambda row: order(row.set, row.split, row.method, row.config))

    rows = {row[:6]: row for each in reversed(results) for row in each.rows}
    timings = merge("timings", lambda row: row[:4])
    done = {row[:4] for row in timings}
    failed = {key: said for each in reversed(results) for key, said in each.failed.items()}
    return Results(
        plans,
        sorted(rows.values(), key=lambda row: order(row.set, row.split, row.method)),
        merge("trainings", lambda row: row[:4]),
        timings,
        {key: said for key, said in failed.items() if key not in done},
    )


def check_together(plans: Sequence[Plan]) -> None:
    """Raise if runs are not one experiment, or have different data sets of the same name."""
    for other in plans[1:]:
        for name in SAME:
            one, two = getattr(plans[0], name), getattr(other, name)
            if one != two:
                raise ValueError(
                    f"the runs differ in {name}, {one} and {two}: report each of them separately"
                )
    known: dict[str, Any] = {}
    for source in (source for plan in plans for source in plan.sources):
        content = {name: value for name, value in source.items() if name != PLACE}
        if known.setdefault(source["name"], content) != content:
            raise ValueError(
                f"the runs have different data sets named {source['name']!r}: report the runs separately, or "
                "rename one of the sets and run it again"
            )


def read_results(
    path: str | os.PathLike[str],
    auto: bool = True,
    processes: int = 1,
    progress: Progress | None = None,
) -> Results:
    """Compute the test scores of every training run of a run.

    Parameters
    ----------
    path : str or Path
        The folder of the run.
    auto : bool, default True
        Whether to calibrate what log loss and refinement chose by ``"auto"``, too: about 0.2 s each.
    processes : int, default 1
        Splits computed at the same time; the result does not depend on it.
    progress : callable, optional
        Called with how many groups of training runs are done, and how many there are.
    """
    from joblib import Parallel, delayed, parallel_config  # type: ignore[import-untyped]

    folder, keys = open_finished(path, "tabular")
    groups: dict[tuple[str, int, str], list[Path]] = {}
    for key in keys:  # by increasing configuration
        groups.setdefault((key.set, key.split, key.method), []).append(folder.unit_path(key))
    order = _order([folder.plan])
    found: list[Judgements] = []
    with parallel_config(backend="loky", inner_max_num_threads=1):
        jobs = Parallel(n_jobs=min(processes, len(groups)), return_as="generator")
        names = sorted(groups, key=lambda name: order(*name))
        for each in jobs(delayed(judge_files)(groups[name], auto) for name in names):
            found.append(each)
            if progress is not None:
                progress(len(found), len(groups))
    rows, trainings, timings = ([one for each in found for one in each[part]] for part in range(3))
    return Results([folder.plan], rows, trainings, timings, read_failures(folder))  # type: ignore[arg-type]


def judge_files(paths: Sequence[Path], auto: bool = True) -> Judgements:
    """Return the scores of the training runs in some files: of one method on one split of one set."""
    from refinecal.experiments.units import UnitResult, load_unit

    return judge((load_unit(UnitResult, path) for path in paths), auto)


def _order(plans: Sequence[Plan]) -> Callable[..., tuple[int, ...]]:
    """Return what to sort by: methods, sets and splits as in the plans, then configurations."""
    sets, methods = (
        {name: place for place, name in enumerate(_unique(getattr(plan, field) for plan in plans))}
        for field in ("sets", "methods")
    )
    return lambda name, split, method, config=0: (methods[method], sets[name], split, config)


def _unique(names: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for some in names for name in some))
