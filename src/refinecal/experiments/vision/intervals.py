"""Means over trainings that differ by their seed, and the 95 % intervals of Student's t around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

__all__ = [
    "LEVEL",
    "Mean",
    "PairedDifference",
    "compare_paired",
    "mean_of",
    "smallest",
    "welch_difference",
]

LEVEL = 0.05


class Mean(NamedTuple):
    """A mean over runs, and half the width of its 95 % interval: NaN for a single run."""

    runs: int
    mean: float
    half: float

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.half / _quantile(self.runs - 1) if self.runs > 1 else math.nan


class PairedDifference(NamedTuple):
    """What differs between two choices in the same trainings, first less second."""

    runs: int
    mean: float
    half: float  # of the 95 % interval
    p: float  # of the paired t-test
    lower: int  # trainings in which the first is smaller
    equal: int
    higher: int

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
        """Whether the interval leaves out 0: what the seeds alone can tell.

        >>> compare_paired([1.0, 1.1, 0.9], [2.0, 2.0, 2.0]).verdict, compare_paired([1.0], [2.0]).verdict
        ('lower', 'too few runs')
        """
        if self.runs < 2:
            return "too few runs"
        if self.equal == self.runs:
            return "equal"
        return "lower" if self.high < 0 else "higher" if self.low > 0 else "within noise"


def mean_of(values: ArrayLike) -> Mean:
    r"""Return the mean and :math:`t_{0.975, n-1} \, s / \sqrt n`, without what is NaN.

    With an infinite number the mean is infinite, and has no interval.

    >>> found = mean_of([1.0, 2.0, 3.0])
    >>> found.runs, found.mean, round(found.half, 4)  # 4.3027 / sqrt(3)
    (3, 2.0, 2.4841)
    """
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    n = len(known)
    if n == 0:
        return Mean(0, math.nan, math.nan)
    mean = float(known.mean())
    if n == 1 or not math.isfinite(mean):
        return Mean(n, mean, math.nan)
    if np.ptp(known) == 0:  # the mean of equal numbers may be off by a bit
        return Mean(n, float(known[0]), 0.0)
    return Mean(n, mean, _quantile(n - 1) * float(known.std(ddof=1)) / math.sqrt(n))


def compare_paired(first: ArrayLike, second: ArrayLike) -> PairedDifference:
    """Return how two choices differ, over the trainings that know both.

    >>> found = compare_paired([0.9, 1.8, 2.7], [1.0, 2.0, 3.0])
    >>> round(found.mean, 3), found.lower, found.equal, found.higher
    (-0.2, 3, 0, 0)
    """
    one, other = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if one.shape != other.shape or one.ndim != 1:
        raise ValueError(
            f"first has shape {one.shape} and second {other.shape}: pass one number per training in both"
        )
    with np.errstate(invalid="ignore"):  # of two infinite numbers
        gaps = one - other
    gaps = gaps[~np.isnan(gaps)]
    found = mean_of(gaps)
    signs = [int(np.sum(gaps < 0)), int(np.sum(gaps == 0)), int(np.sum(gaps > 0))]
    return PairedDifference(*found, _p(found.mean, found.error, found.runs - 1), *signs)


def welch_difference(one: Mean, other: Mean) -> Mean:
    r"""Return how far two means of separate runs are apart: Welch's interval of their difference.

    Its degrees of freedom are Satterthwaite's,
    :math:`(e_1^2 + e_2^2)^2 / (e_1^4 / (n_1 - 1) + e_2^4 / (n_2 - 1))` for standard errors :math:`e`.
    """
    gap, runs = one.mean - other.mean, min(one.runs, other.runs)
    if runs < 2:
        return Mean(runs, gap, math.nan)
    squares = one.error**2, other.error**2
    total = sum(squares)
    if total == 0:
        return Mean(runs, gap, 0.0)
    parts = (
        square**2 / (each.runs - 1) for square, each in zip(squares, (one, other), strict=True)
    )
    return Mean(runs, gap, _quantile(total**2 / sum(parts)) * math.sqrt(total))


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


def _p(mean: float, error: float, freedom: int) -> float:
    """Return the p-value of Student's test that a mean is 0; NaN if it cannot be told."""
    from scipy.stats import t

    if freedom < 1 or not math.isfinite(error):
        return math.nan
    if error == 0:  # equal differences in all runs
        return 1.0 if mean == 0 else 0.0
    return float(2 * t.sf(abs(mean) / error, freedom))
