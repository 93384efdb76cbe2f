"""From the folder of a run to its results: what is finished, what failed, and several runs as one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from refinecal._core.format import number
from refinecal.experiments.folder import RunFolder
from refinecal.experiments.plan import ImageKey, Plan, TableKey, VisionPlan, without_place
from refinecal.experiments.tabular.procedures import (
    DEFAULT,
    TUNED,
    Judgements,
    Row,
    Timing,
    Training,
    judge,
)
from refinecal.experiments.tabular.protocol import METHODS, get_method
from refinecal.experiments.units import UnitResult, load_unit
from refinecal.experiments.vision.history import VARIANT, Choice, Group, History

__all__ = ["ImageResults", "TableResults", "check_together", "merge_results", "read_results"]

Progress = Callable[[int, int], None]
TEST_IMAGES = ("test images", "labels of test images")  # the same however a model is trained
SAME = ("seed", "max_rows", "version")  # what runs on tables must share to be merged


@dataclass(frozen=True)
class Results:
    """Results of one run or of several, in the order of their plans."""

    plans: list[Any]
    failed: dict[Any, str]  # training runs that failed, with their errors

    @property
    def done(self) -> int:
        """Number of training runs with a result."""
        raise NotImplementedError

    @cached_property
    def planned(self) -> int:
        """Number of training runs in the plans."""
        return len({key for plan in self.plans for key in plan.units()})

    @property
    def missing(self) -> int:
        """Number of training runs that are neither finished nor failed."""
        return self.planned - self.done - len(self.failed)

    def unfinished(self) -> str:
        """Return how many training runs failed or are missing, in words."""
        said = [f"{number(len(self.failed))} failed"] if self.failed else []
        said += [f"{number(self.missing)} not yet run"] if self.missing else []
        return ", ".join(said)


@dataclass(frozen=True)
class TableResults(Results):
    """All results of a run on tables, or of several together."""

    plans: list[Plan]
    failed: dict[TableKey, str]
    rows: list[Row]  # test scores of each procedure on each split
    trainings: list[Training]  # what stopping by refinement changed in each training run
    timings: list[Timing]  # time and memory of each training run

    @cached_property
    def methods(self) -> list[str]:
        """Every method of the plans."""
        return _unique(plan.methods for plan in self.plans)

    @property
    def done(self) -> int:
        """Number of training runs with a result."""
        return len(self.timings)

    def at_least(self, rows: int) -> TableResults:
        """Return the results of data sets with this many rows or more."""
        known = {row.set for row in self.rows if row.n_rows >= rows}
        if not known:
            most = max(row.n_rows for row in self.rows)
            raise ValueError(f"no data set has {rows} rows: the largest has {most}")
        return TableResults(
            [
                replace(plan, sources=tuple(each for each in plan.sources if each["name"] in known))
                for plan in self.plans
                if known & set(plan.sets)
            ],
            {key: said for key, said in self.failed.items() if key.set in known},
            [each for each in self.rows if each.set in known],
            [each for each in self.trainings if each.set in known],
            [each for each in self.timings if each.set in known],
        )


class RepeatedTraining(NamedTuple):
    """Training runs that two runs hold, which count once."""

    kept: str  # the run that they are taken from
    left: str  # the run that holds them, too
    trainings: int
    different: int  # of these, have other numbers there

    def __str__(self) -> str:
        """Return where they are, and where they were taken from.

        >>> print(RepeatedTraining("a", "b", 3, 1))
        3 of the training runs are in both a and b: taken from a; 1 of them different in b
        """
        said = f"{self.trainings} of the training runs are in both {self.kept} and {self.left}: taken from "
        same = (
            f"{self.different} of them different in {self.left}" if self.different else "all equal"
        )
        return f"{said}{self.kept}; {same}"


@dataclass(frozen=True)
class ImageResults(Results):
    """All results of a run on images, by model, data set and seed; or of several together."""

    plans: list[VisionPlan]
    failed: dict[ImageKey, str]
    trainings: list[History]
    lost: list[History]  # that diverged, such as by a loss of NaN; they are not compared
    repeated: list[RepeatedTraining] = field(default_factory=list)  # what several runs hold
    units: set[ImageKey] = field(default_factory=set)  # of several runs: what is planned

    @cached_property
    def planned(self) -> int:
        """Number of training runs in the plans."""
        return len(self.units) or super().planned

    @property
    def stopped(self) -> dict[ImageKey, str]:
        """Why training runs diverged, by key."""
        return {each.key: each.stopped for each in self.lost}

    @cached_property
    def rows(self) -> list[Choice]:
        """The epochs that each metric chose in each training run."""
        return [row for each in self.trainings for row in each.rows()]

    @cached_property
    def groups(self) -> list[Group]:
        """Every data set and model with a training run: models in turn, as in the paper's two tables."""
        return list(dict.fromkeys(each.group for each in self.trainings))

    @property
    def done(self) -> int:
        """Number of training runs with a result."""
        return len(self.trainings) + len(self.lost)

    def of(self, group: Group) -> list[History]:
        """Return the training runs of a model on a data set."""
        return [each for each in self.trainings if each.group == group]


# ---- reading -----------------------------------------------------------------------------------------------


def read_results(
    path: str | os.PathLike[str],
    kind: str | None = None,
    auto: bool = True,
    processes: int = 1,
    progress: Progress | None = None,
) -> Any:
    """Return the :class:`TableResults` or the :class:`ImageResults` of a run.

    Parameters
    ----------
    path : str or Path
        The folder of the run.
    kind : {"tabular", "vision"}, optional
        The experiment of which the run must be; by default either.
    auto : bool, default True
        On tables, whether to calibrate what log loss and refinement chose by ``"auto"``, too, which takes
        most of the time.
    processes : int, default 1
        On tables, splits computed at the same time; the result does not depend on it.
    progress : callable, optional
        Called with how much is read, and how much there is.
    """
    folder = RunFolder(path)
    if kind is not None:
        folder.check_kind(kind)
    keys = folder.finished()
    if not keys:
        raise ValueError(
            f"{path} has no finished training run: run refinecal experiment {folder.kind} first; see "
            "refinecal experiment status"
        )
    failed = {
        key: f"{about.get('kind', 'error')}: {about.get('message', '')}".strip(": ")
        for key, about in folder.failed().items()
    }
    tell = progress or (lambda done, total: None)
    if folder.kind == "vision":
        return _read_images(folder, keys, failed, tell)
    return _read_tables(folder, keys, failed, tell, auto, processes)


def _read_tables(
    folder: RunFolder,
    keys: list[TableKey],
    failed: dict[TableKey, str],
    tell: Progress,
    auto: bool,
    processes: int,
) -> TableResults:
    """Compute the test scores of every training run of a run."""
    from joblib import Parallel, delayed, parallel_config  # type: ignore[import-untyped]

    groups: dict[tuple[str, int, str], list[Path]] = {}
    for key in keys:  # by increasing configuration
        groups.setdefault((key.set, key.split, key.method), []).append(folder.unit_path(key))
    order = _order([folder.plan])
    found: list[Any] = []
    with parallel_config(backend="loky", inner_max_num_threads=1):
        jobs = Parallel(n_jobs=min(processes, len(groups)), return_as="generator")
        names = sorted(groups, key=lambda name: order(*name))
        for each in jobs(delayed(_judge_files)(groups[name], auto) for name in names):
            found.append(each)
            tell(len(found), len(groups))
    parts = ([one for each in found for one in each[part]] for part in range(3))
    return TableResults([folder.plan], failed, *parts)


def _judge_files(paths: Sequence[Path], auto: bool) -> Judgements:
    """Return the scores of the training runs in some files: of one method on one split of one set."""
    return judge((load_unit(UnitResult, path) for path in paths), auto)


def _read_images(
    folder: RunFolder, keys: list[ImageKey], failed: dict[ImageKey, str], tell: Progress
) -> ImageResults:
    """Read every training run of a run."""
    found = []
    for done, key in enumerate(keys, 1):
        found.append(History.read(folder.unit_path(key), str(folder.path)))
        tell(done, len(keys))
    if all(each.diverged for each in found):
        raise ValueError(
            f"{folder.path} has nothing to compare: all training runs ({len(found)}) ended early "
            f"({found[0].stopped}). Start a new run with a smaller --lr"
        )
    return _sort_images([folder.plan], failed, found)


# ---- several runs ------------------------------------------------------------------------------------------


def merge_results(results: Sequence[Any]) -> Any:
    """Return several runs as one: what more than one of them has is taken from the first.

    Runs on images may differ in their recipe: of a model that several trained in different ways on one data
    set, each way is shown as a model. The images of a data set are the same in all.
    """
    if len(results) == 1:
        return results[0]
    plans = [plan for each in results for plan in each.plans]
    merge = _merge_images if isinstance(results[0], ImageResults) else _merge_tables
    return merge(results, plans)


def _merge_failed(results: Sequence[Results]) -> dict[Any, str]:
    return {key: said for each in reversed(results) for key, said in each.failed.items()}


def _merge_tables(results: Sequence[TableResults], plans: list[Plan]) -> TableResults:
    check_together(plans)
    order = _order(plans)

    def merge(name: str, key: int) -> list[Any]:
        """Return one list of all rows, of which the first ``key`` columns tell them apart."""
        rows = {row[:key]: row for each in reversed(results) for row in getattr(each, name)}
        return sorted(
            rows.values(),
            key=lambda row: (order(row.set, row.split, row.method, row.config), row[4:key]),
        )

    rows = {row[:6]: row for each in reversed(results) for row in each.rows}
    timings = merge("timings", 6)
    done = {row[:6] for row in timings}
    return TableResults(
        plans,
        {key: said for key, said in _merge_failed(results).items() if key not in done},
        sorted(rows.values(), key=lambda row: order(row.set, row.split, row.method)),
        merge("trainings", 4),
        timings,
    )


def check_together(plans: Sequence[Plan]) -> None:
    """Raise if runs on tables are not one experiment, or have different data sets of the same name."""
    for other in plans[1:]:
        for name in SAME:
            one, two = getattr(plans[0], name), getattr(other, name)
            if one != two:
                raise ValueError(
                    f"the runs differ in {name}, {one} and {two}: report them separately"
                )
    longest: dict[tuple[str, str], int] = {}
    for plan in plans:
        modes = (DEFAULT, TUNED)[: 1 + (plan.configs > 0)]
        for name, (config, mode) in product(plan.methods, enumerate(modes)):
            steps = _steps_of(name, config, plan)
            if longest.setdefault((name, mode), steps) != steps:
                raise ValueError(
                    f"the runs differ in max_steps of {name} ({mode}), {longest[name, mode]} and {steps}: "
                    "report them separately"
                )
    known: dict[str, Any] = {}
    for source in (source for plan in plans for source in plan.sources):
        content = without_place(source)
        if known.setdefault(source["name"], content) != content:
            raise ValueError(
                f"the runs have different data sets named {source['name']!r}: report the runs separately, or "
                "rename one of the sets and run it again"
            )


def _steps_of(method: str, config: int, plan: Plan) -> int:
    """Return how many steps a plan trains a configuration of a method, as far as that is known."""
    if method not in METHODS:
        return plan.max_steps or 0
    return get_method(method, plan.version).steps(config, plan.max_steps)


def _order(plans: Sequence[Plan]) -> Callable[..., tuple[int, ...]]:
    """Return what to sort by: methods, sets and splits as in the plans, then configurations."""
    sets, methods = (
        {each: at for at, each in enumerate(_unique(getattr(plan, name) for plan in plans))}
        for name in ("sets", "methods")
    )
    return lambda name, split, method, config=0: (methods[method], sets[name], split, config)


def _unique(names: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for some in names for name in some))


def _merge_images(results: Sequence[ImageResults], plans: list[VisionPlan]) -> ImageResults:
    _check_images(results)
    _check_alike((each for one in results for each in (*one.trainings, *one.lost)), TEST_IMAGES)
    results = _name_recipes(results)
    kept = {
        each.key: each
        for found in ("lost", "trainings")  # one that diverged may be whole elsewhere
        for one in reversed(results)
        for each in getattr(one, found)
    }
    every = [each for one in results for each in (*one.trainings, *one.lost)]
    failed = {key: said for key, said in _merge_failed(results).items() if key not in kept}
    held: Counter[tuple[str, str]] = Counter()
    different: Counter[tuple[str, str]] = Counter()
    found = _sort_images(plans, failed, list(kept.values()), every)
    for each in (each for one in results for each in one.trainings):
        first = kept[each.key]
        if first is not each:
            held[first.run, each.run] += 1
            different[first.run, each.run] += not first.is_same(each)
    repeated = [RepeatedTraining(*runs, n, different[runs]) for runs, n in held.items()]
    units = set[ImageKey]().union(*(one.units for one in results))
    return replace(found, repeated=repeated, units=units)


def _name_recipes(results: Sequence[ImageResults]) -> list[ImageResults]:
    """Add to the name of a model what differs between the recipes of several runs on one data set."""
    recipes: dict[Group, list[tuple[ImageResults, dict[str, Any]]]] = {}
    for one in results:
        trained = {each.group: each.recipe for each in (*one.lost, *one.trainings)}
        for group in dict.fromkeys(key[:2] for plan in one.plans for key in plan.units()):
            recipe = trained.get(group, one.plans[0].recipe(*group).to_dict())
            recipes.setdefault(group, []).append((one, {**VisionPlan.ADDED, **recipe}))

    def name_group(group: Group, own: dict[str, Any]) -> str:
        # "auto" is the precision of training runs that are yet to come.
        said = ", ".join(
            _name_setting(name, value)
            for name, value in own.items()
            if value != "auto"
            and any(other.get(name) not in (value, "auto") for _, other in recipes[group])
        )
        return f"{group[1]}{VARIANT}{said}" if said else group[1]

    def rename(one: ImageResults) -> ImageResults:
        names = {
            group: name_group(group, own)
            for group, known in recipes.items()
            for other, own in known
            if other is one
        }

        def key_of(key: ImageKey) -> ImageKey:
            return key._replace(model=names.get(key[:2], key.model))

        trainings, lost = (
            [replace(each, key=key_of(each.key)) for each in some]
            for some in (one.trainings, one.lost)
        )
        failed = {key_of(key): said for key, said in one.failed.items()}
        units = {key_of(key) for plan in one.plans for key in plan.units()}
        return replace(one, trainings=trainings, lost=lost, failed=failed, units=units)

    return [rename(one) for one in results]


def _name_setting(name: str, value: Any) -> str:
    """Return a setting of a recipe in a word or two.

    >>> _name_setting("schedule", "cosine"), _name_setting("weight_decay", 0.01), _name_setting("flip", False)
    ('cosine', 'weight decay 0.01', 'no flip')
    """
    name = name.replace("_", " ")
    if value is None:
        return f"no {name}"
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return value if isinstance(value, str) else f"{name} {value}"


def _check_images(results: Sequence[ImageResults]) -> None:
    """Raise if plans are about different images of one data set."""
    known: dict[str, tuple[str, str]] = {}
    for one in results:
        run = (*one.trainings, *one.lost)[0].run
        for name, content in ((n, c) for plan in one.plans for n, c in plan.content.items()):
            first, images = known.setdefault(name, (run, content))
            if images != content:
                raise ValueError(
                    f"{first} and {run} have different images of {name}, {images} and {content}: report "
                    "each of them separately, or train one of them again on the images of the other"
                )


def _sort_images(
    plans: list[VisionPlan],
    failed: dict[ImageKey, str],
    found: list[History],
    every: Iterable[History] = (),
) -> ImageResults:
    """Return results by model, data set and seed, in the order of the plans, if all of them are alike."""
    _check_alike(every or found)
    datasets, models = (
        _unique(getattr(plan, name) for plan in plans) for name in ("datasets", "models")
    )

    def place(each: History) -> tuple[int, str, int, int]:
        model, _, how = each.key.model.partition(VARIANT)
        return models.index(model), how, datasets.index(each.key.dataset), each.key.seed

    ordered = sorted(found, key=place)
    whole, lost = ([each for each in ordered if each.diverged == bad] for bad in (False, True))
    return ImageResults(plans, failed, whole, lost)


def _check_alike(histories: Iterable[History], only: Sequence[str] = ()) -> None:
    """Raise if training runs of a model on a data set differ in recipe, or in the number of images."""
    known: dict[Group, History] = {}
    for each in histories:
        first = known.setdefault(each.group, each)
        for name in only or dict.fromkeys((*first.alike, *each.alike)):
            one, other = first.alike.get(name), each.alike.get(name)
            if one == other:
                continue
            what = (
                f"{each.key.model} on {each.key.dataset} with different {name}, {one} and {other}"
            )
            if first.run == each.run:
                raise ValueError(
                    f"{each.run} has training runs of {what} (seeds {first.key.seed} and {each.key.seed}): "
                    f"remove the files of one kind from {Path(each.run) / 'units'} and resume the run, which "
                    "computes them again"
                )
            raise ValueError(f"{first.run} and {each.run} trained {what}: report them separately")
