"""How procedures compare on tables: set by set, over all, and over sets or runs with a property in common.

A procedure is a metric that chooses and a calibration that follows. It is compared with another on the same
splits, so that what differs between splits and sets cancels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from refinecal.experiments.comparing import LEVEL, Floats, Summary, relative, summarize
from refinecal.experiments.tabular.procedures import OURS, REFERENCE, Row, Training, folds_in

Procedure = tuple[str, str]
Index = dict[tuple[str, str, Procedure], dict[tuple[str, int], Row]]

SCORES = ("log_loss", "brier", "error", "auroc")  # of which the last is compared as 1 - AUROC
FEW_SPLITS = 3  # with fewer, splits cannot tell how much they scatter
ROUNDING = 1e-12  # differences that are a smaller part of a score come from the order of its sums
VERY_LOW = 0.02  # a log loss, in nats, of which a small part is next to nothing
TEST_SHARE = 0.2 / 0.8  # test rows for each of the others


class SetComparison(NamedTuple):
    """A procedure against another on one data set, by means over splits."""

    set: str
    n_rows: int
    n_val: int
    n_classes: int
    splits: int
    value: float
    reference: float
    relative: float  # percent, clipped
    difference: float
    error: float  # standard error of the difference
    p: float  # that chance alone makes it as large; NaN if unknown
    verdict: int | None  # -1 better beyond noise, 0 a tie, 1 worse; None if unknown


@dataclass(frozen=True)
class Comparison:
    """A procedure against another, on every data set that has both."""

    method: str
    mode: str
    metric: str
    calibration: str
    score: str
    sets: list[SetComparison]

    @cached_property
    def relative(self) -> Floats:
        """Relative differences in percent, one per set; negative where the procedure is better."""
        return np.array([each.relative for each in self.sets])

    @cached_property
    def summary(self) -> Summary:
        """The result over all sets."""
        finite = [each for each in self.sets if math.isfinite(each.relative)]
        return summarize([each.relative for each in finite], [each.verdict for each in finite])


def index(rows: Iterable[Row]) -> Index:
    """Return rows by method, mode and procedure, then by data set and split."""
    found: Index = {}
    for row in rows:
        name = (row.method, row.mode, (row.metric, row.calibration))
        found.setdefault(name, {})[row.set, row.split] = row
    return found


def compare(
    rows: Iterable[Row] | Index,
    method: str,
    mode: str,
    procedure: Procedure,
    reference: Procedure = REFERENCE,
    score: str = "log_loss",
    reference_mode: str | None = None,
) -> Comparison:
    """Compare two procedures on every data set on which a method was run with both.

    The difference on a set is that of the means over splits. Whether it is beyond noise is decided by the
    t-test over splits with Nadeau and Bengio's correction: the splits share rows, so the variance of their
    mean is :math:`s^2 (1/m + n_{test} / (n_{train} + n_{val}))`, not :math:`s^2 / m`. With one or two splits
    and the usual reference, the test rows decide instead, as if all splits had the same; of two splits, their
    scatter if that is larger. Test rows do not tell how another training run would turn out.

    The reference may be of another mode.
    """
    known = rows if isinstance(rows, dict) else index(rows)
    ours = known.get((method, mode, procedure), {})
    theirs = known.get((method, reference_mode or mode, reference), {})
    pairs: dict[str, list[tuple[Row, Row]]] = {}
    for key, row in ours.items():
        if key in theirs:
            pairs.setdefault(key[0], []).append((row, theirs[key]))
    by_rows = reference == REFERENCE and score == "log_loss" and reference_mode in (None, mode)
    sets = [_on_set(each, score, by_rows) for each in pairs.values()]
    return Comparison(method, mode, *procedure, score, sets)


def _on_set(pairs: Sequence[tuple[Row, Row]], score: str, by_rows: bool) -> SetComparison:
    values, references = (
        np.array([1 - row.auroc if score == "auroc" else getattr(row, score) for row in each])
        for each in zip(*pairs, strict=True)
    )
    first = pairs[0][0]
    gaps = values - references
    gaps[np.abs(gaps) <= ROUNDING * np.abs(references)] = 0.0
    error, p = _test_gaps(gaps, [row.difference_error for row, _ in pairs] if by_rows else [])
    mean, value, reference = (float(each.mean()) for each in (gaps, values, references))
    return SetComparison(
        *(first.set, first.n_rows, first.n_val, first.n_classes, len(gaps)),
        *(value, reference, relative(value, reference), mean, error, p),
        verdict=None if math.isnan(p) else int(np.sign(mean)) * (p < LEVEL),
    )


def _test_gaps(gaps: Floats, row_errors: Sequence[float]) -> tuple[float, float]:
    """Return the standard error of the mean difference, and the p-value of its test."""
    from scipy.stats import norm, t

    mean, n = abs(float(gaps.mean())), len(gaps)
    error = float(gaps.std(ddof=1) * math.sqrt(1 / n + TEST_SHARE)) if n > 1 else 0.0
    law = t(n - 1) if n >= FEW_SPLITS else norm
    if n < FEW_SPLITS:
        if not row_errors:
            return math.nan, math.nan
        error = max(float(np.mean(row_errors)), error)
    if mean == 0 or error <= ROUNDING * mean:
        return error, float(mean == 0)
    return error, float(2 * law.sf(mean / error))


# ---- sets and training runs with a property in common ------------------------------------------------------

EACH = "each training"  # instead of a mode
INF = math.inf
Classes = Sequence[tuple[float, str]]  # the upper end and the name of each class
VALIDATION = (
    (400, "under 400"),
    (1600, "400 to 1599"),
    (6400, "1600 to 6399"),
    (INF, "6400 or more"),
)
RISE = (
    *((0.01, "under 1 %"), (0.1, "1 to 10 %"), (0.5, "10 to 50 %")),
    *((2.0, "50 to 200 %"), (INF, "over 200 %")),
)
LOSS = ((VERY_LOW, f"under {VERY_LOW}"), (INF, f"{VERY_LOW} or more"))  # of the reference
RATE = ((0.01, "under 0.01"), (0.05, "0.01 to 0.05"), (0.2, "0.05 to 0.2"), (INF, "over 0.2"))
DEPTH = ((3.5, "1 to 3"), (7.5, "4 to 7"), (INF, "8 or more"))


@dataclass(frozen=True, slots=True)
class Regime:
    """Stopping by refinement against log loss, both with temperature, for some sets or training runs."""

    method: str
    mode: str
    by: str
    name: str
    trainings: int
    summary: Summary


def of_sets(rows: Index, trainings: Iterable[Training], method: str, mode: str) -> Iterator[Regime]:
    """Class data sets by validation rows, by the rise of the validation loss, and by their loss."""
    found = compare(rows, method, mode, OURS)
    rises = _rises(rows, trainings, method, mode)
    for by, classes, values in (
        ("validation rows", VALIDATION, [each.n_val for each in found.sets]),
        ("rise of validation loss", RISE, [rises.get(each.set, math.nan) for each in found.sets]),
        ("test log loss", LOSS, [each.reference for each in found.sets]),
    ):
        for name, sets in _classify(found.sets, values, classes):
            splits = sum(each.splits for each in sets)
            yield Regime(method, mode, by, name, splits, replace(found, sets=sets).summary)


def _rises(rows: Index, trainings: Iterable[Training], method: str, mode: str) -> dict[str, float]:
    """Return for each set the rise in the run that log loss chose, averaged over splits; none for folds."""
    if folds_in(mode):
        return {}
    chosen = {at: row.config for at, row in rows.get((method, mode, REFERENCE), {}).items()}
    rises: dict[str, list[float]] = {}
    for each in trainings:
        if each.method == method and chosen.get((each.set, each.split)) == each.config:
            rises.setdefault(each.set, []).append(each.rise)
    return {name: float(np.mean(values)) for name, values in rises.items()}


def of_trainings(trainings: Iterable[Training], method: str) -> Iterator[Regime]:
    """Class the training runs with random parameters by learning rate, depth and rise of the loss.

    In each class the losses of a set are averaged first, so that a set counts once.
    """
    random = [each for each in trainings if each.method == method and each.config]
    for by, classes, field in (
        ("learning rate", RATE, "learning_rate"),
        ("depth", DEPTH, "depth"),
        ("rise of validation loss", RISE, "rise"),
    ):
        values = [getattr(each, field) for each in random]
        for name, runs in _classify(random, values, classes):
            sets: dict[str, list[tuple[float, float]]] = {}
            for each in runs:
                sets.setdefault(each.set, []).append((each.refinement, each.log_loss))
            changes = [relative(*np.mean(some, axis=0).tolist()) for some in sets.values()]
            yield Regime(method, EACH, by, name, len(runs), summarize(changes))


def _classify(
    items: list[Any], values: Sequence[float], classes: Classes
) -> Iterator[tuple[str, list[Any]]]:
    """Yield the classes that occur, each with its items: values below its end and not below another's.

    >>> list(_classify(["a", "b", "c", "d"], [1600, math.inf, math.nan, 0], VALIDATION))
    [('under 400', ['d']), ('1600 to 6399', ['a']), ('6400 or more', ['b'])]
    """
    places = np.searchsorted([end for end, _ in classes[:-1]], values, side="right")
    for own, (_, name) in enumerate(classes):
        kept = [
            item
            for item, place, value in zip(items, places, values, strict=True)
            if place == own and not math.isnan(value)
        ]
        if kept:
            yield name, kept
