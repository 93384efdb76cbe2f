"""Means over seeds, choices compared within the same training runs, and what they say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from refinecal._core.format import MINUS, count, number
from refinecal.experiments.comparing import Floats, Mean, PairedDifference, compare_paired, mean_of
from refinecal.experiments.report import CsvTables, join_names, signed
from refinecal.experiments.results import ImageResults
from refinecal.experiments.vision.cost import IMAGES, PROTOCOL, RUNS, TABLE, Estimate, estimates
from refinecal.experiments.vision.cost import published as printed_in_paper
from refinecal.experiments.vision.history import (
    HIGHER,
    METRICS,
    SCORES,
    VARIANT,
    Choice,
    Group,
    History,
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
SHORT_WORDS = {"resnet18": "RN-18", "wrn28-10": "WRN-28-10"}  # where there is little room
PAPER = ("log_loss", "brier", "accuracy", "refinement")  # the metrics of its tables
SAME = ("epochs", "schedule", "lr", "weight_decay", "batch")  # in what counts as the paper's recipe
DIGITS = 3  # of the paper's tables; accuracy has one, in percent
WORTH_DRAWING = (*PAPER, "auroc")  # calibration errors are small before anything is learned
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

    results: ImageResults

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
        """Return what the paper printed, by stopping metric; of several ways to train, for the paper's."""
        dataset, (model, *how) = group[0], group[1].split(VARIANT)
        if how and any(
            each.recipe[n] != PROTOCOL[n] for each in self.results.of(group) for n in SAME
        ):
            return {}
        found = {metric: printed_in_paper(dataset, model, metric, score) for metric in PAPER}
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
        runs = self.results.trainings
        names = tuple(dict.fromkeys(name for each in runs for name in each.history))
        return {
            "runs": (Choice._fields, self.results.rows),
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
            "estimate": (Estimate._fields, estimates()),
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
    rounded = {name: round(sign * each.mean, DIGITS) for name, each in means.items()}
    least = min(filter(math.isfinite, rounded.values()), default=math.nan)
    return {name for name, value in rounded.items() if value == least}


def departures(trainings: Sequence[History]) -> list[str]:
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


def count_stopped(trainings: Sequence[History]) -> int:
    """Return how many training runs a monitor ended before their last epoch, by its patience."""
    return sum(bool(each.stopped) and each.epochs < each.recipe["epochs"] for each in trainings)


def model_word(model: str) -> str:
    """Return the name of a model, and how it was trained if there are several ways.

    >>> model_word("resnet18"), model_word("resnet18 · adamw, cosine")
    ('ResNet-18', 'ResNet-18 · adamw, cosine')
    """
    name, *how = model.split(VARIANT)
    return VARIANT.join([MODEL_WORDS.get(name, name), *how])


def group_word(group: Group) -> str:
    """Return the name of a model on a data set.

    >>> group_word(("cifar10", "resnet18"))
    'ResNet-18 on CIFAR-10'
    """
    dataset, model = group
    return f"{model_word(model)} on {DATASET_WORDS.get(dataset, dataset)}"


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


def _cost(group: Group, trainings: list[History]) -> Cost:
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


DECIMALS = 3  # of the paper's tables
GAP_DECIMALS = 4  # of differences, which are small
MOST_DECIMALS = 4  # of percentages that would be 0.0 with fewer
VERDICTS = {
    "lower": "Refinement chose better, beyond what seeds change.",
    "higher": "Refinement chose worse, beyond what seeds change.",
    "within noise": "The difference is within what seeds change.",
    "equal": "Both chose equally good epochs.",
    "too few runs": "One run cannot tell what another seed would change.",
}
START = "Stopping by refinement instead of log loss"


def format_mean(found: Mean, score: str = "log_loss", digits: int = DECIMALS) -> str:
    """Return a mean ± its standard error.

    >>> format_mean(Mean(10, 0.1541, 0.0049)), format_mean(Mean(10, 0.951, 0.002), "accuracy")
    ('0.154 ± 0.002', '95.1% ± 0.1')
    >>> format_mean(Mean(1, 0.1541, float("nan"))), format_mean(Mean(0, float("nan"), float("nan")))
    ('0.154', '')
    """
    if not math.isfinite(found.mean):
        return "" if math.isnan(found.mean) else "∞"
    scale, unit, digits = (100.0, "%", digits - 2) if score == "accuracy" else (1.0, "", digits)
    return f"{scale * found.mean:.{digits}f}{unit}{_plus_minus(scale * found.error, digits)}"


def format_gap(
    found: Mean | PairedDifference, score: str = "log_loss", digits: int = GAP_DECIMALS
) -> str:
    """Return a difference with its sign ± its standard error; that of accuracy in percentage points.

    >>> format_gap(Mean(10, -0.00312, 0.001)), format_gap(Mean(10, 0.002, 0.0011), "accuracy")
    ('−0.0031 ± 0.0004', '+0.20 ± 0.05')
    >>> format_gap(Mean(1, 0.0, math.nan))
    '0.0000'
    """
    if not math.isfinite(found.mean):
        return "" if math.isnan(found.mean) else "∞" if found.mean > 0 else f"{MINUS}∞"
    scale, digits = (100.0, digits - 2) if score == "accuracy" else (1.0, digits)
    return signed(scale * found.mean, digits) + _plus_minus(scale * found.error, digits)


def _plus_minus(error: float, digits: int) -> str:
    return f" ± {error:.{digits}f}" if math.isfinite(error) else ""


def format_interval(found: PairedDifference) -> str:
    """Return the 95% interval of a difference; nothing for a single run."""
    if math.isnan(found.half):
        return ""
    return f"{signed(found.low, GAP_DECIMALS)} to {signed(found.high, GAP_DECIMALS)}"


def percent(value: float) -> str:
    """Return a percentage with one decimal, or as many as a small number needs not to be 0.

    >>> percent(-2.04), percent(0.032), percent(0.0), percent(1e-9)
    ('−2.0%', '+0.03%', '0.0%', '0.0000%')
    """
    digits = (n for n in range(1, MOST_DECIMALS) if not value or round(value, n))
    return f"{signed(value, next(digits, MOST_DECIMALS))}%"


def format_p(p: float) -> str:
    """Return a p-value.

    >>> format_p(0.0317), format_p(1e-9), format_p(float("nan"))
    ('0.032', '< 0.001', '')
    """
    return "" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def sentence(analysis: Analysis, group: Group) -> str:
    """Return how stopping by refinement compares with log loss in one group."""
    found = analysis.headlines[group]
    interval = f", 95% interval {format_interval(found)}" if found.runs > 1 else ""
    return (
        f"{group_word(group)}, over {count(found.runs, 'run')}: {signed(found.mean, GAP_DECIMALS)} in test "
        f"log loss ({percent(analysis.relative_headline(group))}{interval}), lower in {found.lower}, "
        f"equal in {found.equal}, higher in {found.higher}. {VERDICTS[found.verdict]}"
    )


def lead(analysis: Analysis) -> str:
    """Return in a sentence what stopping by refinement instead of log loss changed."""
    found = analysis.headlines
    if not found:
        return "Log loss and refinement were not both tracked, so they cannot be compared."
    if len(found) == 1:
        ((group, only),) = found.items()
        change = analysis.relative_headline(group)
        by = f"changed it by {percent(change)}" if change else "left it unchanged"
        return (
            f"Test log loss of {group_word(group)} after temperature scaling: stopping by refinement instead "
            f"of log loss {by}. {VERDICTS[only.verdict]}"
        )
    verdicts = Counter(
        "equal" if each.equal == each.runs else each.verdict for each in found.values()
    )
    lower, higher, equal = (verdicts[name] for name in ("lower", "higher", "equal"))
    return (
        f"{START} lowered the test log loss, beyond what seeds change, in {lower} of {len(found)} "
        f"comparisons and raised it in {higher}; {equal} equal, "
        f"{len(found) - lower - higher - equal} undecided."
    )


def describe_flat(analysis: Analysis) -> list[str]:
    """Return where the best temperature is infinite, so that all classes are equally likely after TS."""
    said = []
    for group in analysis.groups:
        runs = analysis.results.of(group)
        alike: dict[tuple[int, ...], list[str]] = {}  # metrics, by the seeds in which it is so
        for metric in analysis.metrics(group):
            seeds = tuple(each.key.seed for each in runs if each.at("val.beta", metric) == 0)
            alike.setdefault(seeds, []).append(METRIC_WORDS[metric])
        said += [
            f"In {len(seeds)} of {count(len(runs), 'training run')} of {group_word(group)} the best "
            f"temperature is infinite at the epoch that {join_names(names)} chose: after TS all classes are "
            "equally likely there."
            for seeds, names in alike.items()
            if seeds
        ]
    return said
