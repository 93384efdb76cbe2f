"""All comparisons that a report shows, computed once from the results of a run, and what they say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache, cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from refinecal._core.format import MISSING
from refinecal.experiments.comparing import FEW_SETS, LEVEL, Summary
from refinecal.experiments.report import CsvTables, signed
from refinecal.experiments.results import TableResults
from refinecal.experiments.tabular import differences
from refinecal.experiments.tabular.differences import Comparison, Procedure, Regime
from refinecal.experiments.tabular.procedures import (
    AUTO,
    MODES,
    NONE,
    OURS,
    PLAIN,
    REFERENCE,
    SMOOTH,
    TUNED,
    Row,
    Timing,
    Training,
    folds_in,
    mode_of,
    order_modes,
)
from refinecal.experiments.tabular.protocol import METHODS, get_method

METRIC_WORDS = {
    "log_loss": "log loss",
    "brier": "Brier",
    "accuracy": "accuracy",
    "auroc": "AUROC",
    "refinement": "refinement",
    "brier_refinement": "Brier refinement",
    "refinement_cv5": "refinement, 5-fold",
    "refinement_loo": "refinement, LOO",
    "refinement_laplace": "smoothed ref.",
    "refinement_isotonic": "isotonic ref.",
    "refinement_ivap": "IVAP ref.",
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
    "xgboost-1000": "XGBoost, 1,000 rounds",
    "mlp": "MLP",
    "mlp-4": "MLP, 4 layers",
    "realmlp": "RealMLP",
    "logistic": "logistic regression",
}
STEP_WORDS = {name: method.step_name for name, method in METHODS.items()}
SHORT_WORDS = {"hist-gb": "HistGB", "logistic": "logistic"}  # where there is little room
MANY = 0.1  # part of the training runs
KINDS = ("", "_laplace", "_cv5", "_loo", "_isotonic", "_ivap")  # of refinement
# What the figures show, from top to bottom.
SHOWN: tuple[Procedure, ...] = (
    ("log_loss", NONE),
    *((metric, SMOOTH) for metric in ("accuracy", "auroc", "brier", "brier_refinement")),
    *((f"refinement{kind}", SMOOTH) for kind in KINDS),
    ("log_loss", AUTO),
    ("refinement", AUTO),
)
# Questions that a user has, each as a procedure and what it is compared with.
QUESTIONS: tuple[tuple[Procedure, Procedure], ...] = (
    (OURS, REFERENCE),
    (OURS, ("log_loss", NONE)),
    (REFERENCE, ("log_loss", NONE)),
    *(((f"refinement{kind}", SMOOTH), OURS) for kind in KINDS[1:]),
    (("brier", SMOOTH), OURS),
    (OURS, ("refinement", PLAIN)),
    (("refinement", AUTO), OURS),
    (("refinement", AUTO), ("log_loss", AUTO)),
)
ABOUT = ("method", "mode", "metric", "calibration")
SUMMARY = (  # columns of CSV files
    *("sets", "mean", "mean_low", "mean_high", "q10", "q25", "q50", "q75", "q90"),
    *("lower", "equal", "higher", "wins", "ties", "losses", "wilcoxon_p", "verdict"),
)


class Question(NamedTuple):
    """Two procedures, and how the first compares with the second."""

    procedure: Procedure
    reference: Procedure
    found: Comparison


class Cost(NamedTuple):
    """Time and memory of the training runs of a method: medians, and the largest memory."""

    method: str
    mode: str
    trainings: int
    training: float  # seconds
    tracking: float  # as a part of training
    predicting: float  # seconds
    memory: float  # bytes
    hours: float  # of all of them


class Ends(NamedTuple):
    """In how many training runs of a method the best step is the last one."""

    method: str
    mode: str
    trainings: int
    steps: int  # of the longest
    log_loss: int
    refinement: int
    could_be_longer: bool  # they had fewer steps than the method's own number

    @property
    def are_many(self) -> bool:
        """Whether so many runs end at their best step that they may have been too short."""
        return max(self.log_loss, self.refinement) >= MANY * self.trainings


class Analysis:
    """All comparisons of the results of a run."""

    def __init__(self, results: TableResults) -> None:
        import pandas as pd

        self.results = results
        self._index = differences.index(results.rows)
        self.compare = cache(self._compare)
        self._trainings, self._timings = (
            pd.DataFrame(rows, columns=kind._fields).assign(
                mode=[mode_of(row.config, getattr(row, "folds", 0)) for row in rows]
            )
            for rows, kind in ((results.trainings, Training), (results.timings, Timing))
        )

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Methods with their modes, in the order of the plan."""
        known = {(row.method, row.mode) for row in self.results.rows}
        return [pair for pair in product(self.results.methods, self._modes) if pair in known]

    @cached_property
    def _modes(self) -> list[str]:
        return order_modes({*MODES, *self._timings["mode"]})  # of some, folds are yet to come

    @cached_property
    def methods(self) -> list[str]:
        """Methods that have a result."""
        return list(dict.fromkeys(method for method, _ in self.pairs))

    @cached_property
    def sets(self) -> dict[str, int]:
        """Data sets that have a result, with their rows."""
        return {row.set: row.n_rows for row in self.results.rows}

    def modes(self, method: str) -> list[str]:
        """Return how a method was run."""
        return [mode for each, mode in self.pairs if each == method]

    def procedures(self, method: str, mode: str, score: str = "log_loss") -> list[Procedure]:
        """Return what there is to show: for ranks and decisions, calibration by auto matters little."""
        there = [one for one in SHOWN if (method, mode, one) in self._index]
        return [one for one in there if score in ("log_loss", "brier") or one[1] != AUTO]

    def _compare(
        self,
        method: str,
        mode: str,
        procedure: Procedure = OURS,
        reference: Procedure = REFERENCE,
        score: str = "log_loss",
    ) -> Comparison:
        return differences.compare(self._index, method, mode, procedure, reference, score)

    @cached_property
    def headlines(self) -> list[Comparison]:
        """Stopping by refinement against log loss, both with temperature, for each method and mode."""
        found = [self.compare(method, mode) for method, mode in self.pairs]
        return [each for each in found if each.sets]

    @cached_property
    def against_holdout(self) -> list[Comparison]:
        """Folds against one model, by the same procedures."""
        found = [
            differences.compare(
                *(self._index, method, mode, one, one),
                reference_mode=mode_of(mode.startswith(TUNED), 0),
            )
            for method, mode in self.pairs
            if folds_in(mode)
            for one in self.procedures(method, mode)
        ]
        return [each for each in found if each.sets]

    def questions(self, method: str, mode: str) -> list[Question]:
        """Return the answers to what users ask."""
        found = (Question(*two, self.compare(method, mode, *two)) for two in QUESTIONS)
        return [each for each in found if each.found.sets]

    @cached_property
    def regimes(self) -> list[Regime]:
        """Where refinement helps, by properties of sets, then by those of random training runs."""
        runs = self.results.trainings
        by_set = [
            one for pair in self.pairs for one in differences.of_sets(self._index, runs, *pair)
        ]
        by_run = [one for method in self.methods for one in differences.of_trainings(runs, method)]
        return by_set + by_run

    def steps(self, method: str, mode: str) -> dict[str, list[float]]:
        """Return for each metric the step that it chose on each split of each data set."""
        found = {
            metric: self._index.get((method, mode, (metric, SMOOTH)), {}) for metric in METRIC_WORDS
        }
        return {
            metric: [float(row.step) for row in rows.values()]
            for metric, rows in found.items()
            if rows
        }

    def most_steps(self, method: str, mode: str) -> int:
        """Return the length of the longest training run; 0 if none can be compared."""
        lengths = (
            each.steps for each in self.results.rows if (each.method, each.mode) == (method, mode)
        )
        return max(lengths, default=0)

    @cached_property
    def ends(self) -> list[Ends]:
        """How often the best step is the last one, where a later step continues the same run."""
        runs = self._trainings.assign(
            by_loss=lambda each: each["step_log_loss"] == each["steps"],
            by_refinement=lambda each: each["step_refinement"] == each["steps"],
        ).groupby(["method", "mode"])
        counts = runs.agg(
            {"config": "size", "steps": "max", "by_loss": "sum", "by_refinement": "sum"}
        )
        found = []
        for pair in self.pairs:
            if pair in counts.index and STEP_WORDS.get(pair[0]) != "strength":
                n, steps, by_loss, by_refinement = counts.loc[pair].tolist()
                found.append(
                    Ends(*pair, n, steps, by_loss, by_refinement, steps < self._own_steps(*pair))
                )
        return found

    def _own_steps(self, method: str, mode: str) -> int:
        """Return how many steps a method's training runs have without --max-steps; 0 if it is not known."""
        version = self.results.plans[0].version
        known = method in METHODS
        return get_method(method, version).steps(int(mode == TUNED)) if known else 0

    def extent(self, method: str, mode: str) -> tuple[int, int, int]:
        """Return the number of sets, and the most splits and configurations of one."""
        sets = Counter(name for name, _ in self._index.get((method, mode, REFERENCE), {}))
        random = Counter(
            each[:2]
            for each in self.results.timings
            if (each.method, mode_of(each.config, each.folds)) == (method, mode)
        )
        configs = max(random.values(), default=0) // max(folds_in(mode), 1)
        configs = configs if mode.startswith(TUNED) else 1
        return len(sets), max(sets.values(), default=0), configs

    @cached_property
    def costs(self) -> list[Cost]:
        """Time and memory of training runs, by method and mode."""
        found = []
        for (method, mode), runs in self._timings.groupby(["method", "mode"]):
            seconds = runs[["training", "tracking", "predicting"]]
            total, middle = seconds.sum(), seconds.median()
            hours = np.nansum(np.ascontiguousarray(seconds)) / 3600
            tracking = total["tracking"] / total["training"] if total["training"] > 0 else math.nan
            memory = float(runs["peak_memory"].max())
            cost = (middle["training"], tracking, middle["predicting"], memory, hours)
            found.append(Cost(method, mode, len(runs), *map(float, cost)))
        order = list(product(self.methods, self._modes))
        return sorted(
            (each for each in found if each.method in self.methods),
            key=lambda each: order.index(each[:2]),
        )

    def tables(self) -> CsvTables:
        """Return every table of the report for a CSV file.

        ``timings`` and ``costs`` differ from run to run; nothing else does.
        """
        every = [
            self.compare(*pair, one, REFERENCE, score)
            for pair in self.pairs
            for score in differences.SCORES
            for one in self.procedures(*pair)
        ]
        about = [
            (each.method, each.mode, each.metric, each.calibration, each.score) for each in every
        ]
        questions = [
            (*pair, *one.procedure, *one.reference, *_cells(one.found.summary))
            for pair in self.pairs
            for one in self.questions(*pair)
        ]
        regimes = [
            (each.method, each.mode, each.by, each.name, each.trainings, *_cells(each.summary))
            for each in self.regimes
        ]
        against = [
            (each.method, each.mode, each.metric, each.calibration, *_cells(each.summary))
            for each in self.against_holdout
        ]
        folds: CsvTables = {"folds": ((*ABOUT, *SUMMARY), against)} if against else {}
        by_set = [(*which, *one) for which, of in zip(about, every, strict=True) for one in of.sets]
        summary = [(*which, *_cells(of.summary)) for which, of in zip(about, every, strict=True)]
        return {
            "results": (Row._fields, self.results.rows),
            "trainings": (Training._fields, self.results.trainings),
            "sets": ((*ABOUT, "score", *differences.SetComparison._fields), by_set),
            "summary": ((*ABOUT, "score", *SUMMARY), summary),
            "questions": ((*ABOUT, "than_metric", "than_calibration", *SUMMARY), questions),
            **folds,
            "regimes": (("method", "mode", "by", "class", "trainings", *SUMMARY), regimes),
            "timings": (Timing._fields, self.results.timings),
            "costs": (Cost._fields, self.costs),
        }


def _cells(found: Summary) -> tuple[Any, ...]:
    """Return a summary in the order of its columns."""
    known = math.isfinite(found.low) and math.isfinite(found.high)  # nothing is known from one set
    return (
        *(found.sets, found.mean, *((found.low, found.high) if known else (None, None))),
        *(*found.quantiles, found.lower, found.equal, found.higher),
        *(found.wins, found.ties, found.losses, found.p, found.verdict),
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


NAMED = 2  # comparisons that a headline can name with their numbers; more are counted
START = "Stopping by refinement instead of log loss"
CHANGED = "the test log loss after temperature scaling"
APART = (
    "Tuned is the best of the random configurations, which do not include the default parameters: with few "
    "configurations it may be worse than default."
)
BY_RANKS = (
    "Wilcoxon's test finds refinement {} over the sets that differ, but the mean is within noise."
)
VERDICTS = {  # in a few words, and as a sentence
    "lower": ("better", "Over all sets refinement is better, beyond noise."),
    "higher": ("worse", "Over all sets refinement is worse, beyond noise."),
    "within noise": ("within noise", "Over all sets the difference is within noise."),
    "mean lower": (
        "better by the interval only",
        "The mean is lower beyond noise, but may be driven by a few sets.",
    ),
    "mean higher": (
        "worse by the interval only",
        "The mean is higher beyond noise, but may be driven by a few sets.",
    ),
    "ranks lower": ("better by the rank test only", BY_RANKS.format("better")),
    "ranks higher": ("worse by the rank test only", BY_RANKS.format("worse")),
    "mixed": (
        "interval and rank test disagree",
        "The mean and the ranks of the differences point in opposite directions.",
    ),
    "too few sets": (
        "too few data sets",
        f"Too few data sets to tell: at least {FEW_SETS} are needed.",
    ),
}


def percent(value: float) -> str:
    """Return a percentage with its sign.

    >>> percent(-0.123), percent(float("nan"))
    ('−0.12%', '–')
    """
    return f"{signed(value)}%" if math.isfinite(value) else MISSING


def span(found: Summary) -> str:
    """Return the 95% interval of the mean.

    >>> from refinecal.experiments.comparing import summarize
    >>> span(summarize([1.0])), span(summarize([1.0, 1.0]))
    ('–', '+1.00 to +1.00')
    """
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return MISSING
    return f"{signed(found.low)} to {signed(found.high)}"


def count_wins(found: Summary) -> str:
    """Return the sets won, tied and lost, if known."""
    return MISSING if found.wins is None else f"{found.wins}/{found.ties}/{found.losses}"


def sentence(found: Comparison) -> str:
    """Return how stopping by refinement compares with log loss."""
    over = found.summary
    said = f"{method_word(found.method, found.mode)}: {percent(over.mean)} test log loss"
    if over.sets == 1:
        said += " on 1 set"
    else:
        said += (
            f" on average over {over.sets} sets (95% interval {span(over)}), median "
            f"{percent(over.median)}"
        )
    if over.wins is not None:
        by_chance = f"{over.sets * LEVEL / 2:.1f}"
        said += (
            f"; single sets: {over.wins} won, {over.ties} tied, {over.losses} lost (expected by chance: "
            f"{by_chance} won, {by_chance} lost)"
        )
    return f"{said}. {VERDICTS[over.verdict][1]}"


def lead(analysis: Analysis) -> str:
    """Return in a sentence or two what stopping by refinement instead of log loss changed."""
    found = analysis.headlines
    if not found:
        return "Log loss and refinement were not both tracked, so they cannot be compared."
    if len(found) == 1:
        over = found[0].summary
        return f"{START} changed {CHANGED} by {percent(over.mean)} on average. {VERDICTS[over.verdict][1]}"
    names = [method_word(each.method, each.mode) for each in found]
    if len(found) <= NAMED:
        named = (
            f"{name} by {percent(each.summary.mean)} ({VERDICTS[each.summary.verdict][0]})"
            for name, each in zip(names, found, strict=True)
        )
        return f"{START} changed {CHANGED} on average: {'; '.join(named)}."
    verdicts = Counter(each.summary.verdict for each in found)
    lower, higher, few = (verdicts[name] for name in ("lower", "higher", "too few sets"))
    why = f" ({few} with too few data sets: at least {FEW_SETS} are needed)" if few else ""
    return (
        f"{START} clearly lowered the test log loss in {lower} of {len(found)} cases and raised it in "
        f"{higher}; {len(found) - lower - higher} undecided{why}. Cases: {'; '.join(names)}."
    )


def describe_cut_short(ends: Sequence[Ends]) -> str:
    """Return which training runs may have been too short; nothing if few end at their best step.

    >>> print(describe_cut_short([Ends("mlp", "default", 20, 50, 2, 9, could_be_longer=True)]))
    Perhaps too short: in many training runs the best step is the last. MLP, default: by refinement in 9 of \
20 runs, by log loss in 2. Train longer: start a new run with a larger --max-steps.
    """
    many = [each for each in ends if each.are_many]
    if not many:
        return ""
    named = "; ".join(
        f"{method_word(each.method, each.mode)}: by refinement in {each.refinement} of {each.trainings} "
        f"runs, by log loss in {each.log_loss}"
        for each in many
    )
    said = f"Perhaps too short: in many training runs the best step is the last. {named}."
    if any(each.could_be_longer for each in many):
        return f"{said} Train longer: start a new run with a larger --max-steps."
    return f"{said} Longer runs might do better."
