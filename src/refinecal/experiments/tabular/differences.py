"""How procedures compare over data sets: relative differences, counts, tests and intervals.

A procedure is a metric that chooses and a calibration that follows. It is compared with another on the same
splits, so that what differs between splits and sets cancels. Regimes are data sets or training runs with a
property in common.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal.experiments.tabular.results import OURS, REFERENCE, Row, Training

Floats = NDArray[np.float64]
Procedure = tuple[str, str]
Index = dict[tuple[str, str, Procedure], dict[tuple[str, int], Row]]

SCORES = ("log_loss", "brier", "error", "auroc")  # of which the last is compared as 1 - AUROC
LIMIT = 100.0  # percent, as in the paper: one set of almost no loss would dominate every mean
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)  # of the paper's boxes
LEVEL = 0.05
FEW_SPLITS = 3  # with fewer, splits cannot tell how much they scatter
FEW_SETS = 6  # with fewer, Wilcoxon's test cannot tell anything
RESAMPLES = 10_000
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


@dataclass(frozen=True, slots=True)
class Summary:
    """Relative differences over data sets, in percent; negative is better."""

    sets: int
    mean: float
    low: float  # ends of the 95% interval of the mean, from resampled sets
    high: float
    quantiles: tuple[float, ...]  # at 10, 25, 50, 75 and 90%
    lower: int  # sets by the sign of their difference
    equal: int
    higher: int
    wins: int | None  # sets by what is beyond noise within the set; None if unknown
    ties: int | None
    losses: int | None
    p: float  # of Wilcoxon's signed-rank test over sets
    side: int  # where its ranks lean: -1 to lower, 1 to higher, 0 to neither

    @property
    def median(self) -> float:
        """The middle set."""
        return self.quantiles[len(QUANTILES) // 2]

    @property
    def verdict(self) -> str:
        """The result of mean and test, in a few words.

        "lower" and "higher" are beyond noise by both; "mean lower" only by the interval of the mean, which
        a few sets may drive; "ranks lower" only by the test, for which a large difference is one of many.
        """
        if self.sets < FEW_SETS:
            return "too few sets"
        by_mean = -1 if self.high < 0 else int(self.low > 0)
        by_test = self.side if self.p < LEVEL else 0
        words = {-1: "lower", 0: "within noise", 1: "higher"}
        if by_mean == by_test:
            return words[by_mean]
        if by_mean and by_test:
            return "mixed"
        return f"mean {words[by_mean]}" if by_mean else f"ranks {words[by_test]}"


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
) -> Comparison:
    """Compare two procedures on every data set on which a method was run with both.

    The difference on a set is that of the means over splits. Whether it is beyond noise is decided by the
    t-test over splits with Nadeau and Bengio's correction: the splits share rows, so the variance of their
    mean is :math:`s^2 (1/m + n_{test} / (n_{train} + n_{val}))`, not :math:`s^2 / m`. With one or two splits
    and the usual reference, the test rows decide instead, as if all splits had the same; of two splits, their
    scatter if that is larger.
    """
    known = rows if isinstance(rows, dict) else index(rows)
    ours = known.get((method, mode, procedure), {})
    theirs = known.get((method, mode, reference), {})
    pairs: dict[str, list[tuple[Row, Row]]] = {}
    for key, row in ours.items():
        if key in theirs:
            pairs.setdefault(key[0], []).append((row, theirs[key]))
    by_rows = reference == REFERENCE and score == "log_loss"
    sets = [_on_set(each, score, by_rows) for each in pairs.values()]
    return Comparison(method, mode, *procedure, score, sets)


def relative(value: float, reference: float) -> float:
    """Return by how many percent a value is above another, at most 100 either way.

    >>> relative(0.9, 1.0), relative(5.0, 1.0), relative(0.0, 0.0), relative(0.1, 0.0)
    (-10.0, 100.0, 0.0, 100.0)
    """
    if value == reference:
        return 0.0
    if reference == 0:
        return math.copysign(LIMIT, value)
    return float(np.clip(round(100 * (value - reference) / abs(reference), 10), -LIMIT, LIMIT))


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
    """Return the standard error of the mean difference, and the p-value of its test.

    Splits share rows, so their scatter is corrected (Nadeau and Bengio 2003). With few splits, the standard
    error over test rows is used, if there is one, and the normal law. Test rows do not tell how another
    training run would turn out; two splits that disagree do.
    """
    from scipy.stats import t

    mean, n = abs(float(gaps.mean())), len(gaps)
    scatter = float(gaps.std(ddof=1) * math.sqrt(1 / n + TEST_SHARE)) if n > 1 else 0.0
    if n >= FEW_SPLITS:
        if scatter <= 1e-12 * mean or mean == 0:
            return scatter, 0.0 if mean > 0 else 1.0
        return scatter, float(2 * t.sf(mean / scatter, n - 1))
    if not row_errors:
        return math.nan, math.nan
    error = max(float(np.mean(row_errors)), scatter)
    if mean == 0:
        return error, 1.0
    return error, math.erfc(mean / error / math.sqrt(2)) if error > 0 else 0.0


# ---- over sets ---------------------------------------------------------------------------------------------


def summarize(relative: Any, verdicts: Sequence[int | None] = ()) -> Summary:
    """Summarize relative differences, one per set.

    >>> found = summarize([-2.0, -1.0, 0.0, -1.0])
    >>> found.mean, found.lower, found.equal, found.higher
    (-1.0, 3, 1, 0)
    """
    values = np.asarray(relative, np.float64)
    values = values[np.isfinite(values)]
    known = len(verdicts) > 0 and None not in verdicts
    wins, ties, losses = (list(verdicts).count(each) if known else None for each in (-1, 0, 1))
    lower, equal, higher = (int((np.sign(values) == each).sum()) for each in (-1, 0, 1))
    signs = (lower, equal, higher)
    if not values.size:
        nan = math.nan
        return Summary(0, nan, nan, nan, (nan,) * len(QUANTILES), *signs, None, None, None, nan, 0)
    quantiles = tuple(np.quantile(values, QUANTILES).tolist())
    mean = float(values.mean())
    return Summary(
        len(values),
        mean,
        *_interval(values),
        quantiles,
        *signs,
        *(wins, ties, losses),
        *_test_ranks(values),
    )


def _interval(values: Floats) -> tuple[float, float]:
    """Return the 95% interval of the mean from resampled sets; nothing is known from one set.

    Percentiles of resampled means are too close for few sets. They are taken as much further out as Student's
    quantile is further out than the normal one, and the usual standard error larger than the resampled
    (Hesterberg 2015, the expanded percentile interval).
    """
    from scipy.special import ndtr, stdtrit

    n = len(values)
    if n == 1:
        return -math.inf, math.inf
    outside = float(ndtr(math.sqrt(n / (n - 1)) * stdtrit(n - 1, LEVEL / 2)))
    means = values[_resample(n)].mean(axis=1)
    low, high = np.quantile(means, [outside, 1 - outside])
    return float(low), float(high)


@lru_cache(maxsize=8)
def _resample(n: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(n, size=(RESAMPLES, n))


def _test_ranks(values: Floats) -> tuple[float, int]:
    """Return the p of Wilcoxon's signed-rank test, and its side; sets without any difference say nothing."""
    from scipy.stats import rankdata, wilcoxon

    different = values[values != 0]
    if not different.size:
        return 1.0, 0
    ranks = rankdata(np.abs(different)) * np.sign(different)
    return float(wilcoxon(different).pvalue), int(np.sign(ranks.sum()))


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
        names = [_class(value, classes) for value in values]
        for _, name in classes:
            sets = [each for each, own in zip(found.sets, names, strict=True) if own == name]
            if sets:
                splits = sum(each.splits for each in sets)
                yield Regime(method, mode, by, name, splits, replace(found, sets=sets).summary)


def _rises(rows: Index, trainings: Iterable[Training], method: str, mode: str) -> dict[str, float]:
    """Return for each set the rise in the run that log loss chose, averaged over splits."""
    chosen = {at: row.config for at, row in rows.get((method, mode, REFERENCE), {}).items()}
    rises: dict[str, list[float]] = {}
    for each in trainings:
        if each.method == method and chosen.get((each.set, each.split)) == each.config:
            rises.setdefault(each.set, []).append(each.rise)
    return {name: float(np.mean(values)) for name, values in rises.items()}


def of_trainings(trainings: Iterable[Training], method: str) -> list[Regime]:
    """Class the training runs with random parameters by learning rate, depth and rise of the loss.

    In each class the losses of a set are averaged first, so that a set counts once.
    """
    random = [each for each in trainings if each.method == method and each.config]
    ways: tuple[tuple[str, Classes, str], ...] = (
        ("learning rate", RATE, "learning_rate"),
        ("depth", DEPTH, "depth"),
        ("rise of validation loss", RISE, "rise"),
    )
    return [
        Regime(method, "each training", by, name, len(kept), summarize(_by_set(kept)))
        for by, classes, field in ways
        for _, name in classes
        if (kept := [each for each in random if _class(getattr(each, field), classes) == name])
    ]


def _by_set(trainings: Iterable[Training]) -> list[float]:
    sets: dict[str, list[tuple[float, float]]] = {}
    for each in trainings:
        sets.setdefault(each.set, []).append((each.refinement, each.log_loss))
    return [relative(*np.mean(some, axis=0).tolist()) for some in sets.values()]


def _class(value: Any, classes: Classes) -> str | None:
    """Return the name of the class of a value: the first whose end is above it.

    >>> _class(1600, VALIDATION), _class(float("inf"), RISE), _class(float("nan"), RISE)
    ('1600 to 6399', 'over 200 %', None)
    """
    if math.isnan(value):
        return None
    return next((name for end, name in classes if value < end), classes[-1][1])
