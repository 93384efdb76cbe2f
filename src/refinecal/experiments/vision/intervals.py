"""Means over training runs that differ by their seed, and the 95% intervals of Student's t around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.05


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
    if math.isnan(found.half):
        p = math.nan
    elif found.half == 0:  # equal differences in all runs
        p = 1.0 if found.mean == 0 else 0.0
    else:
        p = float(2 * t.sf(abs(found.mean) / found.error, found.runs - 1))
    signs = (int((np.sign(gaps) == sign).sum()) for sign in (-1, 0, 1))
    return PairedDifference(*found, p, *signs)


def welch_difference(one: Mean, other: Mean) -> Mean:
    r"""Return the difference of two means of independent runs, with Welch's interval.

    Its degrees of freedom are Satterthwaite's,
    :math:`(e_1^2 + e_2^2)^2 / (e_1^4 / (n_1 - 1) + e_2^4 / (n_2 - 1))` for standard errors :math:`e`.
    """
    gap, runs = one.mean - other.mean, min(one.runs, other.runs)
    if runs < 2:
        return Mean(runs, gap, math.nan)
    total = one.error**2 + other.error**2
    if total == 0:
        return Mean(runs, gap, 0.0)
    freedom = total**2 / sum(each.error**4 / (each.runs - 1) for each in (one, other))
    return Mean(runs, gap, _quantile(freedom) * math.sqrt(total))


def smallest(means: Sequence[float], digits: int) -> list[bool]:
    """Tell which are smallest as they are printed: several may be, as in the paper.

    >>> smallest([0.1541, 0.161, 0.1544, float("nan")], 3)
    [True, False, True, False]
    """
    rounded = [round(mean, digits) for mean in means]
    least = min((value for value in rounded if math.isfinite(value)), default=math.nan)
    return [value == least for value in rounded]


def _quantile(freedom: float) -> float:
    from scipy.stats import t

    return float(t.ppf(1 - LEVEL / 2, freedom))
