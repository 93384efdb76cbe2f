"""From the folder of a run to its trainings: every metric at every epoch, and what it would choose."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal.experiments.vision.plan import Key, VisionPlan
from refinecal.experiments.vision.unit import VisionUnit

__all__ = ["METRICS", "SCORES", "Results", "Row", "Training", "merged", "read_results"]

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
    """What a stopping metric chose in one training, and how good that is on test images."""

    dataset: str
    model: str
    seed: int
    metric: str
    epoch: int
    epochs: int  # of the training
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
    """A training without its logits, which the tables need no longer.

    Attributes are those of :class:`~refinecal.experiments.vision.unit.VisionUnit`.
    """

    key: Key
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

    @classmethod
    def of(cls, unit: VisionUnit) -> Training:
        """Return what to keep of a unit."""
        return cls(**{name: getattr(unit, name) for name in cls.__dataclass_fields__})

    @property
    def group(self) -> Group:
        """Which data set and model."""
        return self.key.dataset, self.key.model

    @cached_property
    def epochs(self) -> int:
        """How many epochs were trained."""
        return max((len(each) for each in self.history.values()), default=0)

    def curve(self, name: str) -> Floats:
        """Return a history; NaN throughout if it was not recorded."""
        return self.history.get(name, np.full(self.epochs, np.nan))

    def test(self, metric: str, score: str, scaled: bool) -> float:
        """Return a score of the test images at the epoch that a metric chose; NaN if it chose none."""
        epoch = self.best.get(metric)
        if epoch is None:
            return float("nan")
        return float(self.curve(f"test.{score}{'_ts' if scaled else ''}")[epoch - 1])

    def rows(self) -> list[Row]:
        """Return a row for each metric that chose an epoch."""
        return [
            Row(
                *self.key,
                metric,
                self.best[metric],
                self.epochs,
                float(self.curve(f"val.{metric}")[self.best[metric] - 1]),
                float(self.curve("val.beta")[self.best[metric] - 1]),
                *(self.test(metric, score, False) for score in SCORES),
                *(self.test(metric, score, True) for score in SCORES),
            )
            for metric in METRICS
            if metric in self.best
        ]


@dataclass(frozen=True)
class Results:
    """All that a run has found out, in the order of its plan; or several runs together.

    Attributes
    ----------
    plans : list of VisionPlan
        What was to be trained.
    trainings : list of Training
        Those that came to their last epoch, by data set, model and seed.
    stopped : dict
        Trainings that ended early, such as by a loss that was no number, with why; they are not compared.
    failed : dict
        The trainings that failed, by key, with what their error says.
    """

    plans: list[VisionPlan]
    trainings: list[Training]
    stopped: dict[Key, str]
    failed: dict[Key, str]

    @cached_property
    def rows(self) -> list[Row]:
        """What each metric chose in each training."""
        return [row for each in self.trainings for row in each.rows()]

    @cached_property
    def groups(self) -> list[Group]:
        """Every data set and model with a training: models in turn, as in the paper's two tables."""
        return list(dict.fromkeys(each.group for each in self.trainings))

    @cached_property
    def planned(self) -> int:
        """Number of trainings in the plans."""
        return len({key for plan in self.plans for key in plan.units()})

    @property
    def missing(self) -> int:
        """Number of trainings that are neither there nor failed."""
        return self.planned - len(self.trainings) - len(self.stopped) - len(self.failed)

    def of(self, group: Group) -> list[Training]:
        """Return the trainings of a model on a data set."""
        return [each for each in self.trainings if each.group == group]


def read_results(path: str | os.PathLike[str], progress: Progress | None = None) -> Results:
    """Read every training of a run.

    Parameters
    ----------
    path : str or Path
        The folder of the run.
    progress : callable, optional
        Called with how many trainings are read, and how many there are.
    """
    from refinecal.experiments.store import RunFolder

    folder = RunFolder(path)
    folder.check_kind("vision")
    keys = folder.finished()
    found = []
    for done, key in enumerate(keys, 1):
        found.append(Training.of(_unit(folder.unit_path(key))))
        if progress is not None:
            progress(done, len(keys))
    failed = {
        key: f"{about.get('kind', 'error')}: {about.get('message', '')}".strip(": ")
        for key, about in folder.failed().items()
    }
    if not any(not each.stopped for each in found):
        raise ValueError(
            f"{path} holds no finished training: run refinecal experiment vision first; refinecal "
            "experiment status tells what there is"
        )
    return _sorted([folder.plan], found, failed)


def _unit(path: Path) -> VisionUnit:
    """Return a training; of a file without its end, say what mends it."""
    if path.is_file() and not VisionUnit.is_whole(path):
        raise ValueError(f"{path} is damaged: resume the run, which trains this one again")
    return VisionUnit.load(path)


def merged(results: Sequence[Results]) -> Results:
    """Return several runs as one: what more than one of them holds is taken from the first.

    Runs may differ in their recipe from data set to data set, but not in that of one model on one data set.
    """
    trainings = {each.key: each for one in reversed(results) for each in one.trainings}
    recipes: dict[Group, dict[str, Any]] = {}
    for one in results:
        for each in one.trainings:
            _check_same(each.group, recipes.setdefault(each.group, each.recipe), each.recipe)
    plans = [plan for one in results for plan in one.plans]
    stopped = {key: said for one in reversed(results) for key, said in one.stopped.items()}
    failed = {key: said for one in reversed(results) for key, said in one.failed.items()}
    there = {**stopped, **trainings}
    found = _sorted(
        plans, list(trainings.values()), {k: v for k, v in failed.items() if k not in there}
    )
    left = {key: said for key, said in stopped.items() if key not in trainings}
    return Results(plans, found.trainings, left, found.failed)


def _check_same(group: Group, one: dict[str, Any], other: dict[str, Any]) -> None:
    for name in dict.fromkeys((*one, *other)):
        if one.get(name) != other.get(name):
            raise ValueError(
                f"the runs trained {group[1]} on {group[0]} with different {name}, {one.get(name)} and "
                f"{other.get(name)}: report each of them by itself"
            )


def _sorted(plans: list[VisionPlan], found: list[Training], failed: dict[Key, str]) -> Results:
    """Return results by model, data set and seed, in the order of the plans."""
    datasets = list(dict.fromkeys(name for plan in plans for name in plan.datasets))
    models = list(dict.fromkeys(name for plan in plans for name in plan.models))

    def place(key: Key) -> tuple[int, int, int]:
        return models.index(key.model), datasets.index(key.dataset), key.seed

    ordered = sorted(found, key=lambda each: place(each.key))
    whole = [each for each in ordered if not each.stopped]
    stopped = {each.key: each.stopped for each in ordered if each.stopped}
    return Results(plans, whole, stopped, failed)
