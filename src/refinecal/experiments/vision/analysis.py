"""Means over seeds, and choices compared within the same training runs, of an experiment on images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from refinecal._core.format import number
from refinecal.experiments.reporting import CsvTables, count
from refinecal.experiments.vision.intervals import (
    Mean,
    PairedDifference,
    compare_paired,
    mean_of,
    smallest,
)
from refinecal.experiments.vision.published import RUNS, published
from refinecal.experiments.vision.results import (
    HIGHER,
    METRICS,
    SCORES,
    Floats,
    Group,
    Results,
    Row,
    Training,
)

METRIC_WORDS = {
    "log_loss": "log loss",
    "brier": "Brier score",
    "accuracy": "accuracy",
    "refinement": "refinement",
    "auroc": "AUROC",
    "ece": "ECE",
    "smooth_ece": "smooth ECE",
}
DATASET_WORDS = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "svhn": "SVHN",
    "fashion-mnist": "Fashion-MNIST",
}
MODEL_WORDS = {
    "resnet18": "ResNet-18",
    "wrn28-10": "WideResNet-28-10",
    "medium": "medium ResNet",
    "small": "small ResNet",
}
PAPER = ("log_loss", "brier", "accuracy", "refinement")  # the metrics of its tables
TABLE = ("log_loss", "brier", "accuracy", "ece", "smooth_ece")  # and their scores
DIGITS = 3  # of the paper's tables; accuracy has one, in percent
WORTH_DRAWING = (*PAPER, "auroc")  # calibration errors are small before anything is learned
IMAGES = {  # of training, and of test
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "svhn": (73_257, 26_032),
    "fashion-mnist": (60_000, 10_000),
}
PROTOCOL = {  # of appendix E
    "epochs": 300,
    "schedule": "step",
    "lr": 0.1,
    "momentum": 0.9,
    "nesterov": False,
    "weight_decay": 1e-4,
    "batch": 128,
    "crop": 4,
    "flip": True,
    "cutout": 16,
    "validation": 0.1,
    "precision": "float32",  # of the published script: Lightning's default
}
COMPARED = ("dataset", "model", "metric", "calibration")  # columns of CSV files
MEAN = ("runs", "mean", "half", "low", "high")


class Procedure(NamedTuple):
    """What chooses the epoch, and whether temperature scaling follows."""

    metric: str
    scaled: bool = True

    @property
    def calibration(self) -> str:
        """Name of the calibration that follows."""
        return "temperature" if self.scaled else "none"


REFERENCE = Procedure("log_loss")


class Cost(NamedTuple):
    """Time and memory of the training runs of a model on a data set."""

    dataset: str
    model: str
    trainings: int
    parameters: int
    flops: int  # of one image forward
    minutes: float  # of one run, everything included; the median
    training: float  # part of these, and so are the next two
    evaluating: float
    metrics: float
    images_per_second: float  # while training
    gflops: float  # 10^9 floating point operations per second, while training
    memory: int  # bytes, the most


@dataclass(frozen=True)
class Analysis:
    """The comparisons of a report."""

    results: Results

    @property
    def groups(self) -> list[Group]:
        """Every model on every data set."""
        return self.results.groups

    @cached_property
    def models(self) -> list[str]:
        """Every model."""
        return list(dict.fromkeys(model for _, model in self.groups))

    def metrics(self, group: Group) -> list[str]:
        """Return the metrics that chose an epoch in some training run."""
        known = {metric for each in self.results.of(group) for metric in each.best}
        return [metric for metric in METRICS if metric in known]

    # ---- means ---------------------------------------------------------------------------------------------

    def values(self, group: Group, procedure: Procedure, score: str = "log_loss") -> Floats:
        """Return a test score for each training run of a group."""
        return np.array([each.test(*procedure, score) for each in self.results.of(group)])

    def mean(self, group: Group, procedure: Procedure, score: str = "log_loss") -> Mean:
        """Return the mean of a test score over seeds."""
        return mean_of(self.values(group, procedure, score))

    def best(self, group: Group, score: str, scaled: bool = True) -> set[str]:
        """Return which of the paper's metrics have the best mean, as it is printed; none if all are equal."""
        names = [name for name in self.metrics(group) if name in PAPER]
        means = {name: self.mean(group, Procedure(name, scaled), score) for name in names}
        found = best_of(means, score)
        return set() if len(found) == len(names) > 1 else found

    def published(self, group: Group, score: str) -> dict[str, Mean]:
        """Return what the paper printed, by stopping metric."""
        found = {metric: published(*group, metric, score) for metric in PAPER}
        return {metric: each for metric, each in found.items() if each is not None}

    # ---- comparisons ---------------------------------------------------------------------------------------

    def compare(
        self, group: Group, first: Procedure, second: Procedure, score: str = "log_loss"
    ) -> PairedDifference:
        """Return how the first differs from the second over seeds."""
        return compare_paired(self.values(group, first, score), self.values(group, second, score))

    @cached_property
    def headlines(self) -> dict[Group, PairedDifference]:
        """Refinement against log loss, both followed by temperature scaling: test log loss."""
        wanted = {"log_loss", "refinement"}
        return {
            group: self.compare(group, Procedure("refinement"), REFERENCE)
            for group in self.groups
            if wanted <= set(self.metrics(group))
        }

    def relative_headline(self, group: Group) -> float:
        """Return the headline of a group in percent of the mean loss that log loss led to."""
        return 100 * self.headlines[group].mean / self.mean(group, REFERENCE).mean

    def relative(self, group: Group, procedure: Procedure, score: str = "log_loss") -> Floats:
        """Return the differences to log loss with temperature scaling, in percent of it, run by run."""
        reference = self.values(group, REFERENCE, score)
        with np.errstate(divide="ignore", invalid="ignore"):
            return 100 * (self.values(group, procedure, score) - reference) / reference

    def procedures(self) -> list[Procedure]:
        """Return what figure 5 shows: log loss without scaling, and the other choices with it."""
        known = {metric for group in self.groups for metric in self.metrics(group)}
        wanted = (Procedure("log_loss", False), *(Procedure(name) for name in WORTH_DRAWING))
        return [each for each in wanted if each.metric in known and each != REFERENCE]

    def pairs(self, group: Group) -> list[tuple[Procedure, Procedure]]:
        """Return what is compared directly: every two of the paper's metrics, and scaling or none."""
        order = ("refinement", "accuracy", "brier", "log_loss")
        names = [name for name in order if name in self.metrics(group)]
        two = [
            (Procedure(one), Procedure(other))
            for place, one in enumerate(names)
            for other in names[place + 1 :]
        ]
        return two + [(Procedure(name), Procedure(name, False)) for name in reversed(names)]

    # ---- curves and costs ----------------------------------------------------------------------------------

    def curves(self, group: Group, name: str) -> Floats:
        """Return a history of each training run: (runs, epochs)."""
        of = self.results.of(group)
        most = max(each.epochs for each in of)
        found = np.full((len(of), most), np.nan)
        for row, each in zip(found, of, strict=True):
            row[: each.epochs] = each.curve(name)
        return found

    def chosen_epochs(self, group: Group, metric: str) -> Floats:
        """Return the epoch that a metric chose in each training run; NaN where it chose none."""
        return np.array([each.best.get(metric, np.nan) for each in self.results.of(group)])

    @cached_property
    def costs(self) -> list[Cost]:
        """Time and memory of training runs."""
        return [_cost(group, self.results.of(group)) for group in self.groups]

    # ---- CSV files -----------------------------------------------------------------------------------------

    def tables(self) -> CsvTables:
        """Return every table of the report for a CSV file; ``costs`` differ from run to run."""
        from refinecal.experiments.vision import cost

        runs = self.results.trainings
        names = tuple(dict.fromkeys(name for each in runs for name in each.history))
        return {
            "runs": (Row._fields, self.results.rows),
            "means": (
                (*COMPARED, "score", *MEAN, "best", "published_mean", "published_half"),
                self._mean_rows(),
            ),
            "paired": (
                (
                    *(*COMPARED, "than_metric", "than_calibration", "score", *MEAN),
                    *("p", "lower", "equal", "higher", "verdict"),
                ),
                self._paired_rows(),
            ),
            "relative": (
                ("dataset", "model", "seed", "procedure", "percent"),
                self._relative_rows(),
            ),
            "curves": (
                ("dataset", "model", "seed", "epoch", *names),
                (
                    (*each.key, epoch, *(each.curve(name)[epoch - 1].item() for name in names))
                    for each in runs
                    for epoch in range(1, each.epochs + 1)
                ),
            ),
            "estimate": (cost.Estimate._fields, cost.estimates()),
            "costs": (Cost._fields, self.costs),
        }

    def _mean_rows(self) -> Iterator[tuple[Any, ...]]:
        for group in self.groups:
            for scaled in (True, False):
                for score in SCORES:
                    best = self.best(group, score, scaled)
                    printed = self.published(group, score) if scaled and score in TABLE else {}
                    for metric in self.metrics(group):
                        procedure, paper = Procedure(metric, scaled), printed.get(metric)
                        found = self.mean(group, procedure, score)
                        ends = (found.mean - found.half, found.mean + found.half)
                        yield (
                            *(*group, metric, procedure.calibration, score),
                            *(*found, *ends, metric in best),
                            *((None, None) if paper is None else (paper.mean, paper.half)),
                        )

    def _paired_rows(self) -> Iterator[tuple[Any, ...]]:
        for group in self.groups:
            for first, second in self.pairs(group):
                for score in SCORES:
                    found = self.compare(group, first, second, score)
                    yield (
                        *(*group, first.metric, first.calibration),
                        *(second.metric, second.calibration, score, *found[:3]),
                        *(found.low, found.high, *found[3:], found.verdict),
                    )

    def _relative_rows(self) -> Iterator[tuple[Any, ...]]:
        for group in self.groups:
            for procedure in self.procedures():
                if procedure.metric in self.metrics(group):
                    percents = self.relative(group, procedure).tolist()
                    for each, percent in zip(self.results.of(group), percents, strict=True):
                        yield (*each.key, procedure_word(procedure), percent)


def best_of(means: dict[str, Mean], score: str) -> set[str]:
    """Return whose mean is best, with the decimals that are printed; several may be.

    >>> best_of({"a": Mean(3, 0.9514, 0.0), "b": Mean(3, 0.9496, 0.0)}, "accuracy")  # 95.1 and 95.0 %
    {'a'}
    """
    sign = -1 if score in HIGHER else 1
    found = smallest([sign * each.mean for each in means.values()], DIGITS)
    return {name for name, is_best in zip(means, found, strict=True) if is_best}


def departures(trainings: Sequence[Training]) -> list[str]:
    """Return in words what differs from the paper's protocol: in any recipe, the images, the runs."""
    said = [
        f"{name.replace('_', ' ')} {' and '.join(dict.fromkeys(map(_word, found)))} instead of "
        f"{_word(wanted)}"
        for name, wanted in PROTOCOL.items()
        for found in [[each.recipe[name] for each in trainings if name in each.recipe]]
        if any(value != wanted for value in found)
    ]
    train, test = IMAGES.get(trainings[0].key.dataset, (None, None))
    in_training = [each.n_train + each.n_val for each in trainings]
    for what, wanted, images in (
        ("training and validation images", train, in_training),
        ("test images", test, [each.n_test for each in trainings]),
    ):
        if wanted is not None and any(n != wanted for n in images):
            sizes = " and ".join(number(n) for n in dict.fromkeys(images))
            said.append(f"{sizes} {what} instead of {number(wanted)}")
    if len(trainings) != RUNS:
        said.append(f"{count(len(trainings), 'run')} instead of {RUNS}")
    if short := count_stopped(trainings):
        said.append(f"{short} of {len(trainings)} ended before the last epoch")
    return said


def count_stopped(trainings: Sequence[Training]) -> int:
    """Return how many training runs a monitor ended before their last epoch, by its patience."""
    return sum(bool(each.stopped) and each.epochs < each.recipe["epochs"] for each in trainings)


def group_word(group: Group) -> str:
    """Return the name of a model on a data set.

    >>> group_word(("cifar10", "resnet18"))
    'ResNet-18 on CIFAR-10'
    """
    dataset, model = group
    return f"{MODEL_WORDS.get(model, model)} on {DATASET_WORDS.get(dataset, dataset)}"


def procedure_word(procedure: Procedure) -> str:
    """Return what a procedure is called.

    >>> procedure_word(REFERENCE), procedure_word(Procedure("ece", False))
    ('log loss + TS', 'ECE')
    """
    return METRIC_WORDS[procedure.metric] + (" + TS" if procedure.scaled else "")


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _cost(group: Group, trainings: list[Training]) -> Cost:
    parts = {
        name: np.array([each.seconds.get(name, 0.0) for each in trainings])
        for name in ("training", "evaluating", "metrics")
    }
    total = sum(parts.values(), start=np.zeros(len(trainings)))
    images = np.array([each.n_train * each.epochs for each in trainings])
    flops = np.array([3.0 * each.flops for each in trainings])  # a step is three forward passes
    with np.errstate(divide="ignore", invalid="ignore"):
        speed = images / parts["training"]
        shares = {name: float(np.median(part / total)) for name, part in parts.items()}
    return Cost(
        *group,
        len(trainings),
        trainings[0].parameters,
        trainings[0].flops,
        float(np.median(total)) / 60,
        shares["training"],
        shares["evaluating"],
        shares["metrics"],
        float(np.median(speed)),
        float(np.median(speed * flops)) / 1e9,
        max(each.peak_memory for each in trainings),
    )
