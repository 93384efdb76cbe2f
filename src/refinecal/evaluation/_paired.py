"""Losses of each row, and the mean difference of two models with its standard error."""

from __future__ import annotations  # so that help() shows types by name

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.arrays import check_threads, to_floats
from refinecal._core.checks import (
    check_group_of_rows,
    check_keywords,
    check_number,
    check_sample,
    check_weights,
)
from refinecal._core.files import plain
from refinecal.losses import ProperLoss, get_loss, losses_at

NORMAL_95 = 1.959963984540054  # the 97.5% quantile of the normal distribution


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of a - b over rows, with its standard error.

    Attributes
    ----------
    mean : float
        Negative if a is better.
    standard_error : float
        Of the mean; NaN for fewer than two rows, and if the mean is not finite.
    low, high : float
        A 95% confidence interval.
    n : int
        Number of rows with positive weight.
    """

    mean: float
    standard_error: float
    low: float
    high: float
    n: int

    @property
    def is_sure(self) -> bool:
        """Whether the 95% interval excludes 0."""
        return self.low > 0 or self.high < 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON; numbers that are not finite become ``None``."""
        found: dict[str, Any] = plain(asdict(self))
        return found

    def __repr__(self) -> str:
        return (
            f"Difference {self.mean:+.6g} ± {self.standard_error:.3g} (s.e.) per row, 95% interval "
            f"{self.low:.6g} to {self.high:.6g} ({self.n} rows)"
        )


def row_losses(
    y_true: Any,
    probs: Any = None,
    *,
    logits: Any = None,
    classes: ArrayLike | None = None,
    loss: str | ProperLoss = "log",
    beta: float = 1.0,
    n_threads: int | None = None,
) -> NDArray[np.float64]:
    """Return the loss of each row, whose mean is the risk.

    Parameters
    ----------
    y_true, probs, logits, classes, loss, n_threads
        As for :func:`refinecal.decompose`.
    beta : float, default 1.0
        Inverse temperature that multiplies the logits.

    Returns
    -------
    ndarray of shape (n,)
        Infinite log loss where the label has probability 0.

    Examples
    --------
    >>> from refinecal.evaluation import row_losses
    >>> row_losses([0, 1], [[0.5, 0.5], [1.0, 0.0]], loss="brier")
    array([0.5, 2. ])
    """
    threads, loss = check_threads(n_threads), get_loss(loss)
    beta = check_number("beta", beta)
    sample = check_sample(y_true, probs, logits, None, classes, threads=threads)
    return losses_at(sample, beta, loss, threads)


@check_keywords()
def paired_difference(
    losses_a: Any, losses_b: Any, sample_weight: Any = None, groups: Any = None
) -> Difference:
    r"""Return the mean of a - b over rows with its standard error.

    With :math:`d_i = a_i - b_i`, weights :math:`w_i` and :math:`\bar d = \sum w_i d_i / \sum w_i`,

    .. math:: \text{standard error}^2 =
        \frac{n}{n-1} \frac{\sum_i w_i^2 (d_i - \bar d)^2}{\left(\sum_i w_i\right)^2},

    where n is the number of rows with positive weight: without weights, the variance of d divided by n.
    Weights are not frequencies here, so multiplying all of them changes nothing. With groups of dependent
    rows, their sums :math:`\sum_{i \in g} w_i (d_i - \bar d)` replace the rows.

    Parameters
    ----------
    losses_a, losses_b : array-like of shape (n,)
        Losses of two models on the same rows, as from :func:`row_losses`.
    sample_weight : array-like, optional
        The weight of each row.
    groups : array-like, optional
        The group of each row, if rows are not independent.

    Returns
    -------
    Difference
        If both losses of a row are infinite, their difference is 0. If only one is, the mean is infinite and
        its error NaN; if both models have such rows, the mean is NaN too.

    Examples
    --------
    >>> from refinecal.evaluation import paired_difference
    >>> found = paired_difference([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])
    >>> found.mean, round(found.standard_error, 6)  # sqrt(1 / 3)
    (1.0, 0.57735)
    """
    a, b = (_check_losses(*pair) for pair in ((losses_a, "losses_a"), (losses_b, "losses_b")))
    if a.shape != b.shape:
        raise ValueError(
            f"losses_a has {len(a)} rows, but losses_b has {len(b)}: both models must predict the same rows"
        )
    weights = check_weights(sample_weight, len(a), "losses_a")
    weights = np.ones(len(a)) if weights is None else weights / weights.max()
    groups = None if groups is None else check_group_of_rows(groups, len(a))
    gaps = np.zeros(len(a))
    np.subtract(a, b, out=gaps, where=(a != b) & (weights > 0))
    n, total = int(np.count_nonzero(weights)), float(weights.sum())
    low, high = float(gaps.min()), float(gaps.max())
    if math.isinf(low) or math.isinf(high):
        return Difference(_infinite_mean(low, high), math.nan, math.nan, math.nan, n)
    mean = float(weights @ gaps) / total
    error = math.nan
    parts = (weights * (gaps - mean))[weights > 0]
    if groups is not None:
        places = np.unique(groups[weights > 0], return_inverse=True)[1]
        parts = np.bincount(places, parts).astype(np.float64)
    if len(parts) > 1:
        error = math.sqrt(len(parts) / (len(parts) - 1) * float((parts**2).sum())) / total
    reach = NORMAL_95 * error
    return Difference(mean, error, mean - reach, mean + reach, n)


def _infinite_mean(low: float, high: float) -> float:
    """Return the mean of differences, some of which are infinite."""
    if math.isinf(low) and math.isinf(high) and low != high:
        return math.nan
    return high if math.isinf(high) else low


def _check_losses(given: Any, name: str) -> NDArray[np.float64]:
    losses = to_floats(given, name).astype(np.float64, copy=False)
    if losses.ndim != 1 or not losses.size:
        raise ValueError(f"{name} has shape {losses.shape}: it must be (n,), one loss per row")
    bad = np.flatnonzero(np.isnan(losses))
    if bad.size:
        raise ValueError(f"{name}[{bad[0]}] is NaN: drop the rows without a prediction")
    return losses
