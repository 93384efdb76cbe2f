"""From the folder of a run to its trainings: every metric at every epoch, and what it would choose."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from refinecal.experiments._unit_files import check_name
from refinecal.experiments.vision.plan import Key, VisionPlan
from refinecal.experiments.vision.unit import VisionUnit

__all__ = ["METRICS", "SCORES", "RepeatedTraining", "Results", "Row", "Training", "read_results"]

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

    Attributes are those of :class:`~refinecal.experiments.vision.unit.VisionUnit`; and ``run``, the folder
    that it comes from, and ``test_labels``, a word that changes with the labels of the test images.
    """

    run: str
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
    diverged: bool
    test_labels: str

    @classmethod
    def of(cls, unit: VisionUnit, run: str | os.PathLike[str] = "") -> Training:
        """Return what to keep of a unit."""
        digest = hashlib.sha256(np.asarray(unit.y_test, "<i8").tobytes()).hexdigest()[:16]
        own: dict[str, Any] = {"run": os.fspath(run), "test_labels": digest}
        return cls(
            **own,
            **{name: getattr(unit, name) for name in cls.__dataclass_fields__ if name not in own},
        )

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
        """What trainings must share to be runs of one experiment: the recipe, and the images."""
        parts = {
            "training images": self.n_train,
            "validation images": self.n_val,
            "test images": self.n_test,
            "labels of test images": self.test_labels,
        }
        return {name.replace("_", " "): value for name, value in self.recipe.items()} | parts

    def is_same(self, other: Training) -> bool:
        """Tell whether another training recorded exactly the same."""
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

    def test(self, metric: str, score: str, scaled: bool) -> float:
        """Return a score of the test images at the epoch that a metric chose; NaN if it chose none."""
        epoch = self.best.get(metric)
        if epoch is None:
            return float("nan")
        return float(self.curve(f"test.{score}{'_ts' if scaled else ''}")[epoch - 1])

    def is_flat(self, metric: str) -> bool:
        """Tell whether the best temperature is infinite at the epoch that a metric chose."""
        epoch = self.best.get(metric)
        return epoch is not None and bool(self.curve("val.beta")[epoch - 1] == 0)

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


class RepeatedTraining(NamedTuple):
    """Trainings that two runs hold, which count once."""

    kept: str  # the run that they are taken from
    left: str  # the run that holds them, too
    trainings: int
    different: int  # of these, have other numbers there

    def __str__(self) -> str:
        """Say where they are, and where they were taken from.

        >>> print(RepeatedTraining("a", "b", 3, 1))
        3 trainings are in a and in b: taken from a; 1 of them has other numbers in b
        """
        are = "1 training is" if self.trainings == 1 else f"{self.trainings} trainings are"
        said = f"{are} in {self.kept} and in {self.left}: taken from {self.kept}"
        if not self.different:
            return f"{said}, with the same numbers"
        have = "has" if self.different == 1 else "have"
        which = f"{self.different} of them {have}" if self.trainings > 1 else "it has"
        return f"{said}; {which} other numbers in {self.left}"


@dataclass(frozen=True)
class Results:
    """All that a run has found out, in the order of its plan; or several runs together.

    Attributes
    ----------
    plans : list of VisionPlan
        What was to be trained.
    trainings : list of Training
        Those that came to their end, by data set, model and seed.
    lost : list of Training
        Those that diverged, such as by a loss that was no number; they are not compared.
    failed : dict
        The trainings that failed, by key, with what their error says.
    repeated : list of Repeated
        What more than one of the runs holds.
    """

    plans: list[VisionPlan]
    trainings: list[Training]
    lost: list[Training]
    failed: dict[Key, str]
    repeated: list[RepeatedTraining] = field(default_factory=list)

    @property
    def stopped(self) -> dict[Key, str]:
        """Why trainings diverged, by key."""
        return {each.key: each.stopped for each in self.lost}

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
        return self.planned - len(self.trainings) - len(self.lost) - len(self.failed)

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
        found.append(Training.of(_unit(folder.unit_path(key)), path))
        if progress is not None:
            progress(done, len(keys))
    failed = {
        key: f"{about.get('kind', 'error')}: {about.get('message', '')}".strip(": ")
        for key, about in folder.failed().items()
    }
    _check_any(path, found)
    check_alike(found)
    return sort_results([folder.plan], found, failed)


def _check_any(path: str | os.PathLike[str], found: Sequence[Training]) -> None:
    """Complain of a run in which nothing can be compared."""
    if not found:
        raise ValueError(
            f"{path} holds no finished training: run refinecal experiment vision first; refinecal "
            "experiment status tells what there is"
        )
    if all(each.diverged for each in found):
        which = "the only training" if len(found) == 1 else f"all {len(found)} trainings"
        raise ValueError(
            f"{path} holds nothing to compare, since {which} ended early ({found[0].stopped}): begin a new "
            "run with a smaller --lr"
        )


def _unit(path: Path) -> VisionUnit:
    """Return a training; of a file without its end, say how to repair it."""
    if path.is_file() and not VisionUnit.is_whole(path):
        raise ValueError(f"{path} is damaged: resume the run, which trains this one again")
    unit = VisionUnit.load(path)
    check_name(path, unit.key)
    return unit


def check_alike(trainings: Iterable[Training]) -> None:
    """Complain of trainings of a model on a data set that are not of one recipe, or not of one size."""
    known: dict[Group, Training] = {}
    for each in trainings:
        first = known.setdefault(each.group, each)
        for name in dict.fromkeys((*first.alike, *each.alike)):
            if first.alike.get(name) != each.alike.get(name):
                _fail_alike(first, each, name)


def _fail_alike(one: Training, other: Training, name: str) -> NoReturn:
    what = f"{one.key.model} on {one.key.dataset}"
    values = f"{one.alike.get(name)} and {other.alike.get(name)}"
    if one.run == other.run:
        raise ValueError(
            f"{one.run} holds trainings of {what} with different {name}, {values} (seeds {one.key.seed} and "
            f"{other.key.seed}): remove the files of one kind from {Path(one.run) / 'units'} and resume the "
            "run, which trains these again"
        )
    raise ValueError(
        f"{one.run} and {other.run} trained {what} with different {name}, {values}: report each of them by "
        "itself"
    )


def sort_results(plans: list[VisionPlan], found: list[Training], failed: dict[Key, str]) -> Results:
    """Return results by model, data set and seed, in the order of the plans."""
    datasets = list(dict.fromkeys(name for plan in plans for name in plan.datasets))
    models = list(dict.fromkeys(name for plan in plans for name in plan.models))

    def place(key: Key) -> tuple[int, int, int]:
        return models.index(key.model), datasets.index(key.dataset), key.seed

    ordered = sorted(found, key=lambda each: place(each.key))
    whole = [each for each in ordered if not each.diverged]
    return Results(plans, whole, [each for each in ordered if each.diverged], failed)
