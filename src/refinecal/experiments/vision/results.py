"""From the folder of a run to its training runs: every metric at every epoch, and the epochs chosen."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal.experiments.folder import RunResults, open_finished, read_failures
from refinecal.experiments.plan import ImageKey, VisionPlan
from refinecal.experiments.units import VisionUnit, load_unit

__all__ = ["METRICS", "SCORES", "Results", "Row", "Training", "merge_results", "read_results"]

METRICS = (  # that choose epochs: the paper's, then the others
    *("log_loss", "brier", "accuracy", "refinement"),
    *("auroc", "ece", "smooth_ece"),
)
SCORES = ("log_loss", "brier", "accuracy", "ece", "smooth_ece", "auroc")  # of test images
HIGHER = ("accuracy", "auroc")  # of which more is better

Floats = NDArray[np.float64]
Group = tuple[str, str]  # data set, model
Progress = Callable[[int, int], None]


class Row(NamedTuple):
    """The epoch that a stopping metric chose in one training run, and its scores on test images."""

    dataset: str
    model: str
    seed: int
    metric: str
    epoch: int
    epochs: int  # of the run
    value: float  # of the metric on validation images, at that epoch
    beta: float  # of the temperature scaling there
    log_loss: float
    brier: float
    accuracy: float
    ece: float
    smooth_ece: float
    auroc: float
    log_loss_ts: float
    brier_ts: float
    accuracy_ts: float
    ece_ts: float
    smooth_ece_ts: float
    auroc_ts: float


@dataclass(frozen=True)
class Training:
    """A training run without its logits.

    Attributes are those of :class:`~refinecal.experiments.units.VisionUnit`; and ``run``, the folder
    that it comes from, and ``test_labels``, a digest of the labels of the test images.
    """

    run: str
    key: ImageKey
    recipe: dict[str, Any]
    n_train: int
    n_val: int
    n_test: int
    history: dict[str, Floats]
    best: dict[str, int]
    seconds: dict[str, float]
    peak_memory: int
    parameters: int
    flops: int
    stopped: str
    diverged: bool
    test_labels: str

    @classmethod
    def of(cls, unit: VisionUnit, run: str | os.PathLike[str] = "") -> Training:
        """Return what to keep of a unit."""
        digest = hashlib.sha256(np.asarray(unit.y_test, "<i8").tobytes()).hexdigest()[:16]
        own: dict[str, Any] = {"run": os.fspath(run), "test_labels": digest}
        names = [each.name for each in fields(cls) if each.name not in own]
        return cls(**own, **{name: getattr(unit, name) for name in names})

    @property
    def group(self) -> Group:
        """Which data set and model."""
        return self.key.dataset, self.key.model

    @cached_property
    def epochs(self) -> int:
        """How many epochs were trained."""
        return max((len(each) for each in self.history.values()), default=0)

    @cached_property
    def alike(self) -> dict[str, Any]:
        """What training runs must share to belong to one experiment: the recipe, and the images."""
        return {name.replace("_", " "): value for name, value in self.recipe.items()} | {
            "training images": self.n_train,
            "validation images": self.n_val,
            "test images": self.n_test,
            "labels of test images": self.test_labels,
        }

    def is_same(self, other: Training) -> bool:
        """Tell whether another training run recorded exactly the same."""
        return (
            self.best == other.best
            and self.history.keys() == other.history.keys()
            and all(
                np.array_equal(values, other.history[name], equal_nan=True)
                for name, values in self.history.items()
            )
        )

    def curve(self, name: str) -> Floats:
        """Return a history; NaN throughout if it was not recorded."""
        return self.history.get(name, np.full(self.epochs, np.nan))

    def at(self, metric: str, name: str) -> float:
        """Return one value of a history at the epoch that a metric chose; NaN if it chose none."""
        epoch = self.best.get(metric)
        return float("nan") if epoch is None else float(self.curve(name)[epoch - 1])

    def test(self, metric: str, scaled: bool, score: str) -> float:
        """Return a score of the test images at the epoch that a metric chose; NaN if it chose none."""
        return self.at(metric, f"test.{score}{'_ts' if scaled else ''}")

    def rows(self) -> list[Row]:
        """Return a row for each metric that chose an epoch."""
        return [
            Row(
                *(*self.key, metric, self.best[metric], self.epochs),
                *(self.at(metric, name) for name in (f"val.{metric}", "val.beta")),
                *(self.test(metric, scaled, score) for scaled in (False, True) for score in SCORES),
            )
            for metric in METRICS
            if metric in self.best
        ]


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
class Results(RunResults):
    """All results of a run, by model, data set and seed; or several runs together."""

    plans: list[VisionPlan]
    trainings: list[Training]
    lost: list[Training]  # that diverged, such as by a loss of NaN; they are not compared
    failed: dict[ImageKey, str]  # training runs that failed, with their errors
    repeated: list[RepeatedTraining] = field(default_factory=list)  # what several runs hold

    @property
    def stopped(self) -> dict[ImageKey, str]:
        """Why training runs diverged, by key."""
        return {each.key: each.stopped for each in self.lost}

    @cached_property
    def rows(self) -> list[Row]:
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

    def of(self, group: Group) -> list[Training]:
        """Return the training runs of a model on a data set."""
        return [each for each in self.trainings if each.group == group]


def read_results(path: str | os.PathLike[str], progress: Progress | None = None) -> Results:
    """Read every training run of a run.

    Parameters
    ----------
    path : str or Path
        The folder of the run.
    progress : callable, optional
        Called with how many training runs are read, and how many there are.
    """
    folder, keys = open_finished(path, "vision")
    found = []
    for done, key in enumerate(keys, 1):
        found.append(Training.of(load_unit(VisionUnit, folder.unit_path(key)), path))
        if progress is not None:
            progress(done, len(keys))
    if all(each.diverged for each in found):
        raise ValueError(
            f"{path} has nothing to compare: all training runs ({len(found)}) ended early "
            f"({found[0].stopped}). Start a new run with a smaller --lr"
        )
    check_alike(found)
    return sort_results([folder.plan], found, read_failures(folder))


def check_alike(trainings: Iterable[Training]) -> None:
    """Raise if training runs of a model on a data set differ in recipe, or in the number of images."""
    known: dict[Group, Training] = {}
    for each in trainings:
        first = known.setdefault(each.group, each)
        for name in dict.fromkeys((*first.alike, *each.alike)):
            one, other = first.alike.get(name), each.alike.get(name)
            if one != other:
                what = f"{each.key.model} on {each.key.dataset} with different {name}, {one} and {other}"
                if first.run == each.run:
                    raise ValueError(
                        f"{each.run} has training runs of {what} (seeds {first.key.seed} and "
                        f"{each.key.seed}): remove the files of one kind from {Path(each.run) / 'units'} "
                        "and resume the run, which computes them again"
                    )
                raise ValueError(
                    f"{first.run} and {each.run} trained {what}: report them separately"
                )


def sort_results(
    plans: list[VisionPlan], found: list[Training], failed: dict[ImageKey, str]
) -> Results:
    """Return results by model, data set and seed, in the order of the plans."""
    datasets = list(dict.fromkeys(name for plan in plans for name in plan.datasets))
    models = list(dict.fromkeys(name for plan in plans for name in plan.models))

    def place(each: Training) -> tuple[int, int, int]:
        return models.index(each.key.model), datasets.index(each.key.dataset), each.key.seed

    ordered = sorted(found, key=place)
    whole, lost = ([each for each in ordered if each.diverged == bad] for bad in (False, True))
    return Results(plans, whole, lost, failed)


# ---- several runs ------------------------------------------------------------------------------------------


def merge_results(results: Sequence[Results]) -> Results:
    """Return several runs as one: what more than one of them holds is taken from the first.

    Runs may differ in their recipe from data set to data set, but not in that of one model on one data set,
    nor in the images of a data set.
    """
    _check_images(results)
    check_alike([each for one in results for each in (*one.trainings, *one.lost)])
    plans = [plan for one in results for plan in one.plans]
    trainings = {each.key: each for one in reversed(results) for each in one.trainings}
    lost = {each.key: each for one in reversed(results) for each in one.lost}
    failed = {key: said for one in reversed(results) for key, said in one.failed.items()}
    there = {**lost, **trainings}
    left = {key: said for key, said in failed.items() if key not in there}
    held: Counter[tuple[str, str]] = Counter()
    different: Counter[tuple[str, str]] = Counter()
    for each in (each for one in results for each in one.trainings):
        first = trainings[each.key]
        if first is not each:
            held[first.run, each.run] += 1
            different[first.run, each.run] += not first.is_same(each)
    repeated = [RepeatedTraining(*runs, n, different[runs]) for runs, n in held.items()]
    return replace(sort_results(plans, list(there.values()), left), repeated=repeated)


def _check_images(results: Sequence[Results]) -> None:
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
