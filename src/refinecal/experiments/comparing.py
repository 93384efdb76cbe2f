"""Means and differences with their tests: over training runs that differ by their seed, over data sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

LEVEL = 0.05
LIMIT = 100.0  # percent, as in the paper: one set of almost no loss would dominate every mean
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)  # of the paper's boxes
FEW_SETS = 6  # with fewer, Wilcoxon's test cannot tell anything
RESAMPLES = 10_000


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


def count_signs(values: Floats) -> tuple[int, int, int]:
    """Return how many values are negative, 0 and positive."""
    lower, equal, higher = (int((np.sign(values) == sign).sum()) for sign in (-1, 0, 1))
    return lower, equal, higher


# ---- over seeds: Student's t -------------------------------------------------------------------------------


class Mean(NamedTuple):
    """A mean over runs, and half the width of its 95% interval: NaN for a single run."""

    runs: int
    mean: float
    half: float

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.half / _quantile(self.runs - 1) if self.runs > 1 else math.nan


class PairedDifference(NamedTuple):
    """The difference between two choices in the same training runs, first less second."""

    runs: int
    mean: float
    half: float  # of the 95% interval
    p: float  # of the paired t-test
    lower: int  # runs in which the first is smaller
    equal: int
    higher: int

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return Mean(self.runs, self.mean, self.half).error

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half

    @property
    def verdict(self) -> str:
        """Whether the interval excludes 0, as far as seeds alone can tell.

        >>> compare_paired([1.0, 1.1, 0.9], [2.0, 2.0, 2.0]).verdict, compare_paired([1.0], [2.0]).verdict
        ('lower', 'too few runs')
        """
        if self.runs < 2:
            return "too few runs"
        if self.equal == self.runs:
            return "equal"
        return "lower" if self.high < 0 else "higher" if self.low > 0 else "within noise"


def mean_of(values: ArrayLike) -> Mean:
    r"""Return the mean and :math:`t_{0.975, n-1} \, s / \sqrt n`, ignoring NaN.

    An infinite mean has no interval.

    >>> found = mean_of([1.0, 2.0, 3.0])
    >>> found.runs, found.mean, round(found.half, 4)  # 4.3027 / sqrt(3)
    (3, 2.0, 2.4841)
    """
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    n = len(known)
    mean = float(known.mean()) if n else math.nan
    if n < 2 or not math.isfinite(mean):
        return Mean(n, mean, math.nan)
    if np.ptp(known) == 0:  # the mean of equal numbers may be off by a bit
        return Mean(n, float(known[0]), 0.0)
    return Mean(n, mean, _quantile(n - 1) * float(known.std(ddof=1)) / math.sqrt(n))


def compare_paired(first: ArrayLike, second: ArrayLike) -> PairedDifference:
    """Return how two choices differ, over the training runs that have both.

    >>> found = compare_paired([0.9, 1.8, 2.7], [1.0, 2.0, 3.0])
    >>> round(found.mean, 3), found.lower, found.equal, found.higher
    (-0.2, 3, 0, 0)
    """
    from scipy.stats import t

    with np.errstate(invalid="ignore"):  # of two infinite numbers
        gaps = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    gaps = gaps[~np.isnan(gaps)]
    found = mean_of(gaps)
    p = math.nan if math.isnan(found.half) else float(found.mean == 0)  # of equal differences
    if found.half > 0:
        p = float(2 * t.sf(abs(found.mean) / found.error, found.runs - 1))
    return PairedDifference(*found, p, *count_signs(gaps))


def welch_difference(one: Mean, other: Mean) -> Mean:
    r"""Return the difference of two means of independent runs, with Welch's interval.

    Its degrees of freedom are Satterthwaite's,
    :math:`(e_1^2 + e_2^2)^2 / (e_1^4 / (n_1 - 1) + e_2^4 / (n_2 - 1))` for standard errors :math:`e`.
    """
    gap, runs = one.mean - other.mean, min(one.runs, other.runs)
    total = one.error**2 + other.error**2
    if runs < 2 or total == 0:
        return Mean(runs, gap, math.nan if runs < 2 else 0.0)
    freedom = total**2 / sum(each.error**4 / (each.runs - 1) for each in (one, other))
    return Mean(runs, gap, _quantile(freedom) * math.sqrt(total))


def _quantile(freedom: float) -> float:
    from scipy.stats import t

    return float(t.ppf(1 - LEVEL / 2, freedom))


# ---- over data sets ----------------------------------------------------------------------------------------


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


def summarize(relative: Any, verdicts: Sequence[int | None] = ()) -> Summary:
    """Summarize relative differences, one per set.

    >>> found = summarize([-2.0, -1.0, 0.0, -1.0])
    >>> found.mean, found.lower, found.equal, found.higher
    (-1.0, 3, 1, 0)
    """
    values = np.asarray(relative, np.float64)
    values = values[np.isfinite(values)]
    if not values.size:
        nan = math.nan
        return Summary(0, nan, nan, nan, (nan,) * len(QUANTILES), 0, 0, 0, None, None, None, nan, 0)
    known = len(verdicts) > 0 and None not in verdicts
    wins, ties, losses = (list(verdicts).count(each) if known else None for each in (-1, 0, 1))
    return Summary(
        len(values),
        float(values.mean()),
        *_interval(values),
        tuple(np.quantile(values, QUANTILES).tolist()),
        *count_signs(values),
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
    means = values[np.random.default_rng(0).integers(n, size=(RESAMPLES, n))].mean(axis=1)
    low, high = np.quantile(means, [outside, 1 - outside]).tolist()
    return low, high


def _test_ranks(values: Floats) -> tuple[float, int]:
    """Return the p of Wilcoxon's signed-rank test, and its side; sets without any difference say nothing."""
    from scipy.stats import rankdata, wilcoxon

    different = values[values != 0]
    if not different.size:
        return 1.0, 0
    lean = rankdata(np.abs(different)) @ np.sign(different)
    return float(wilcoxon(different).pvalue), int(np.sign(lean))
