"""All comparisons that a report shows, computed once from the results of a run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np

from refinecal.experiments.tabular.differences import (
    SCORES,
    Comparison,
    Procedure,
    compare,
    index,
)
from refinecal.experiments.tabular.judging import (
    AUTO,
    MODES,
    NONE,
    OURS,
    PLAIN,
    REFERENCE,
    SMOOTH,
    TUNED,
    Timing,
    Training,
)
from refinecal.experiments.tabular.methods import METHODS
from refinecal.experiments.tabular.regimes import Regime, of_sets, of_trainings
from refinecal.experiments.tabular.results import Results

__all__ = ["METRIC_WORDS", "Analysis", "Cost", "Ends", "method_word", "procedure_word"]

METRIC_WORDS = {
    "log_loss": "log loss",
    "brier": "Brier",
    "accuracy": "accuracy",
    "auroc": "AUROC",
    "refinement": "refinement",
    "brier_refinement": "Brier refinement",
    "refinement_cv5": "refinement, 5-fold",
    "refinement_loo": "refinement, LOO",
    "refinement_isotonic": "isotonic ref.",
}
SCORE_WORDS = {
    "log_loss": "test log loss",
    "brier": "test Brier score",
    "error": "test error rate",
    "auroc": "1 − test AUROC",
}
CALIBRATION_WORDS = {NONE: "", SMOOTH: " + TS", PLAIN: " + TS unsmoothed", AUTO: " + auto"}
METHOD_WORDS = {
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
    "catboost": "CatBoost",
    "hist-gb": "HistGradientBoosting",
    "mlp": "MLP",
    "realmlp": "RealMLP",
    "logistic": "logistic regression",
}
STEP_WORDS = {name: method.step_name for name, method in METHODS.items()}
SHORT_WORDS = {"hist-gb": "HistGB", "logistic": "logistic"}  # where there is little room
MANY = 0.1  # part of the trainings
# What the figures show, from top to bottom.
SHOWN: tuple[Procedure, ...] = (
    ("log_loss", NONE),
    *(
        (metric, SMOOTH)
        for metric in (
            *("accuracy", "auroc", "brier", "brier_refinement"),
            *("refinement", "refinement_cv5", "refinement_loo", "refinement_isotonic"),
        )
    ),
    ("log_loss", AUTO),
    ("refinement", AUTO),
)
# Questions that a user has, each as a procedure and what it is compared with.
QUESTIONS: tuple[tuple[Procedure, Procedure], ...] = (
    (OURS, REFERENCE),
    (OURS, ("log_loss", NONE)),
    (REFERENCE, ("log_loss", NONE)),
    (("refinement_loo", SMOOTH), OURS),
    (("refinement_cv5", SMOOTH), OURS),
    (("refinement_isotonic", SMOOTH), OURS),
    (("brier", SMOOTH), OURS),
    (OURS, ("refinement", PLAIN)),
    (("refinement", AUTO), OURS),
    (("refinement", AUTO), ("log_loss", AUTO)),
)


class Question(NamedTuple):
    """Two procedures, and how the first compares with the second."""

    procedure: Procedure
    reference: Procedure
    found: Comparison


class Cost(NamedTuple):
    """What the trainings of a method took: medians, and the largest memory."""

    method: str
    mode: str
    trainings: int
    training: float  # seconds
    tracking: float  # as a part of training
    predicting: float  # seconds
    memory: float  # bytes
    hours: float  # of all of them


class Ends(NamedTuple):
    """In how many trainings of a method the best step is the last one."""

    method: str
    mode: str
    trainings: int
    steps: int  # of the longest
    log_loss: int
    refinement: int
    could_be_longer: bool  # they had fewer steps than the method's own number

    @property
    def are_many(self) -> bool:
        """Whether so many trainings end at their best that they may have been too short."""
        return max(self.log_loss, self.refinement) >= MANY * self.trainings


class Analysis:
    """What the results of a run say."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self._index = index(results.rows)
        self.compare = cache(self._compare)

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Methods with their modes, in the order of the plan."""
        known = {(row.method, row.mode) for row in self.results.rows}
        wanted = [(method, mode) for method in self.results.methods for mode in MODES]
        return [pair for pair in wanted if pair in known]

    @cached_property
    def methods(self) -> list[str]:
        """Methods of which there is a result."""
        return list(dict.fromkeys(method for method, _ in self.pairs))

    @cached_property
    def sets(self) -> dict[str, int]:
        """Data sets of which there is a result, with their rows."""
        return {row.set: row.n_rows for row in self.results.rows}

    def modes(self, method: str) -> list[str]:
        """Return how a method was run."""
        return [mode for each, mode in self.pairs if each == method]

    def procedures(self, method: str, mode: str, score: str = "log_loss") -> list[Procedure]:
        """Return what there is to show: for ranks and decisions, calibration matters little."""
        there = [one for one in SHOWN if (method, mode, one) in self._index]
        return [one for one in there if score in ("log_loss", "brier") or one[1] == SMOOTH]

    def _compare(
        self,
        method: str,
        mode: str,
        procedure: Procedure = OURS,
        reference: Procedure = REFERENCE,
        score: str = "log_loss",
    ) -> Comparison:
        return compare(self._index, method, mode, procedure, reference, score)

    @cached_property
    def headlines(self) -> list[Comparison]:
        """Stopping by refinement against log loss, both with temperature, for each method and mode."""
        found = [self.compare(method, mode) for method, mode in self.pairs]
        return [each for each in found if each.sets]

    def compare_all(self) -> Iterator[Comparison]:
        """Yield every procedure against the usual reference, for every score."""
        for method, mode in self.pairs:
            for score in SCORES:
                for one in (each for each in SHOWN if (method, mode, each) in self._index):
                    yield self.compare(method, mode, one, REFERENCE, score)

    def questions(self, method: str, mode: str) -> list[Question]:
        """Return the answers to what users ask."""
        found = (
            Question(ours, theirs, self.compare(method, mode, ours, theirs))
            for ours, theirs in QUESTIONS
        )
        return [each for each in found if each.found.sets]

    @cached_property
    def regimes(self) -> list[Regime]:
        """Where refinement helps, by properties of sets, then by those of random trainings."""
        trainings = self.results.trainings
        by_set = [
            regime
            for method, mode in self.pairs
            for regime in of_sets(self._index, trainings, method, mode)
        ]
        return by_set + [
            each for method in self.methods for each in of_trainings(trainings, method)
        ]

    def steps(self, method: str, mode: str) -> dict[str, list[float]]:
        """Return for each metric the step that it chose, one per data set: the median over splits."""
        chosen: dict[str, dict[str, list[int]]] = {}
        for (each, how, (metric, calibration)), rows in self._index.items():
            if (each, how, calibration) == (method, mode, SMOOTH):
                for (name, _), row in rows.items():
                    chosen.setdefault(metric, {}).setdefault(name, []).append(row.step)
        return {
            metric: [float(np.median(steps)) for steps in chosen[metric].values()]
            for metric in METRIC_WORDS
            if metric in chosen
        }

    def most_steps(self, method: str) -> int:
        """Return the length of the longest training."""
        return max(each.steps for each in self.results.rows if each.method == method)

    @cached_property
    def ends(self) -> list[Ends]:
        """How often the best step is the last one, where a step is a further one of the same training."""
        found = []
        for method, mode in self.pairs:
            some = [
                each
                for each in self.results.trainings
                if each.method == method and (each.config > 0) == (mode == TUNED)
            ]
            if some and STEP_WORDS.get(method) != "strength":
                found.append(_ends(method, mode, some))
        return found

    def extent(self, method: str, mode: str) -> tuple[int, int, int]:
        """Return the number of sets, and the most splits and configurations of one."""
        rows = self._index.get((method, mode, REFERENCE), {})
        sets = Counter(name for name, _ in rows)
        random = Counter(
            (each.set, each.split)
            for each in self.results.timings
            if each.method == method and each.config
        )
        configs = max(random.values(), default=0) if mode == TUNED else 1
        return len(sets), max(sets.values(), default=0), configs

    @cached_property
    def costs(self) -> list[Cost]:
        """What trainings took, by method and mode."""
        found = []
        for method in self.methods:
            for mode in MODES:
                some = [
                    each
                    for each in self.results.timings
                    if each.method == method and (each.config > 0) == (mode == TUNED)
                ]
                if some:
                    found.append(_cost(method, mode, some))
        return found


def _ends(method: str, mode: str, trainings: Sequence[Training]) -> Ends:
    steps = max(each.steps for each in trainings)
    own = METHODS[method].max_steps if method in METHODS else steps
    last_log_loss, last_refinement = (
        sum(getattr(each, name) == each.steps for each in trainings)
        for name in ("step_log_loss", "step_refinement")
    )
    return Ends(method, mode, len(trainings), steps, last_log_loss, last_refinement, steps < own)


def _cost(method: str, mode: str, timings: Sequence[Timing]) -> Cost:
    training, tracking, predicting = (
        np.array([getattr(each, name) for each in timings])
        for name in ("training", "tracking", "predicting")
    )
    total = float(training.sum())
    return Cost(
        method,
        mode,
        len(timings),
        float(np.median(training)),
        float(tracking.sum()) / total if total > 0 else math.nan,
        float(np.median(predicting)),
        float(max(each.peak_memory for each in timings)),
        float(np.nansum([training, tracking, predicting])) / 3600,
    )


# ---- names -------------------------------------------------------------------------------------------------


def method_word(method: str, mode: str | None = None, short: bool = False) -> str:
    """Return a method as people write it.

    >>> method_word("xgboost", "tuned"), method_word("mine"), method_word("hist-gb", short=True)
    ('XGBoost, tuned', 'mine', 'HistGB')
    """
    name = METHOD_WORDS.get(method, method)
    if short:
        name = SHORT_WORDS.get(method, name)
    return name if mode is None else f"{name}, {mode}"


def procedure_word(procedure: Procedure) -> str:
    """Return a procedure as figures name it.

    >>> procedure_word(("refinement", "temperature")), procedure_word(("log_loss", "none"))
    ('refinement + TS', 'log loss')
    """
    metric, calibration = procedure
    return METRIC_WORDS.get(metric, metric) + CALIBRATION_WORDS[calibration]
