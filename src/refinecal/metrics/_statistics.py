"""Tests of calibration, without bins or bandwidth.

With rows sorted by probability, the cumulative sum of outcomes minus probabilities is about a Brownian motion
if predictions are calibrated. Equal probabilities are added together, so the order of rows does not matter.
"""

from __future__ import annotations  # so that help() shows types by name

import math
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from refinecal._core.checks import check_keywords, warn_if_light
from refinecal._core.errors import fail_choice
from refinecal._core.sample import Sample, row_slices
from refinecal.metrics.events import Event, Inputs, events, read

Floats = NDArray[np.float64]
TIE = 1e-13  # probabilities closer than this are equal
TEST_KINDS = ("auto", "binary", "top-label")


class CalibrationTest(NamedTuple):
    """The result of a test, which unpacks as ``statistic, p_value``.

    Attributes
    ----------
    statistic : float
        Larger in absolute value for worse calibration.
    p_value : float
        The probability of such a statistic for calibrated predictions.
    """

    statistic: float
    p_value: float


# ---- distances -------------------------------------------------------------------------------------------


@check_keywords(Inputs)
def ks_statistic(
    y_true: Any, probs: Any = None, *, kind: str = "auto", **inputs: Unpack[Inputs]
) -> float:
    r"""Return the Kolmogorov-Smirnov calibration error: the largest cumulative difference.

    With rows sorted by probability, :math:`\max_t |C_t|` where
    :math:`C_t = \frac1n \sum_{i : p_i \le t} (y_i - p_i)`: the difference between observed and predicted
    outcomes among rows of small probability, as a share of all rows.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    kind : {"auto", "binary", "top-label", "class-wise"}
        As for :func:`ece`; "class-wise" is the mean over all classes.

    Returns
    -------
    float
        Between 0 and 1; :func:`ks_test` tests whether it is more than chance.

    References
    ----------
    Gupta, Rahimi, Ajanthan, Mensink, Sminchisescu, Hartley, "Calibration of Neural Networks using Splines",
    2021.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.metrics.ks_statistic([0, 1, 1, 1], [0.5] * 4)  # predicts 2 of 4, observes 3
    0.25
    >>> round(rc.metrics.ks_statistic([1, 0], [0.2, 0.9]), 12)  # 0.8 above the prediction, then 0.9 below
    0.4
    """
    found = events(read(y_true, probs, True, **inputs), kind)
    return float(np.mean([_largest(_walk(event)) / event.total for event in found]))


@check_keywords(Inputs)
def kuiper_statistic(
    y_true: Any, probs: Any = None, *, kind: str = "auto", **inputs: Unpack[Inputs]
) -> float:
    r"""Return Kuiper's calibration error: the range of cumulative differences.

    That is :math:`\max_t C_t - \min_t C_t`, with :math:`C_t` as for :func:`ks_statistic` and 0 before the
    first row: the largest difference over any interval of probabilities.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    kind : {"auto", "binary", "top-label", "class-wise"}
        As for :func:`ks_statistic`.

    Returns
    -------
    float
        Between 0 and 1, one to two times :func:`ks_statistic`; see :func:`kuiper_test`.

    References
    ----------
    Arrieta-Ibarra, Gujral, Tannen, Tygert, Xu, "Metrics of calibration for probabilistic predictions", 2022.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.metrics.kuiper_statistic([1, 0], [0.2, 0.9]), 12)  # from 0.4 down to -0.05
    0.45
    """
    found = events(read(y_true, probs, True, **inputs), kind)
    return float(np.mean([_range(_walk(event)) / event.total for event in found]))


# ---- tests -----------------------------------------------------------------------------------------------


@check_keywords(Inputs)
def ks_test(
    y_true: Any, probs: Any = None, *, kind: str = "auto", **inputs: Unpack[Inputs]
) -> CalibrationTest:
    r"""Test calibration by the largest cumulative difference.

    The statistic is :math:`n \max_t |C_t| / \sqrt{\sum_i p_i (1 - p_i)}`, with :math:`C_t` as for
    :func:`ks_statistic`. For calibrated predictions it converges to the largest absolute value of a Brownian
    motion on [0, 1], which gives the p-value.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too. Weights are
        frequencies, so weights that sum to 1 count as a single row. A soft label counts as one outcome,
        though it varies less: the p-value is then too large.
    kind : {"auto", "binary", "top-label"}
        The second of two classes, or the likeliest class; by default "binary" for two classes.

    Returns
    -------
    CalibrationTest
        ``statistic`` and ``p_value``. With few rows or many ties the p-value is conservative. For predictions
        of only 0 and 1 they are 0 and 1 if all are right, else infinity and 0.

    References
    ----------
    Arrieta-Ibarra, Gujral, Tannen, Tygert, Xu, "Metrics of calibration for probabilistic predictions", 2022.

    Examples
    --------
    >>> import refinecal as rc
    >>> statistic, p_value = rc.metrics.ks_test([0, 1, 1, 1], [0.5] * 4)
    >>> statistic  # 1 more than predicted, over a standard deviation of sqrt(4 / 4)
    1.0
    >>> round(p_value, 3)  # 4 (0.15866 - 0.00135): normal tails beyond 1 and 3
    0.629
    """
    event = _check_test(y_true, probs, kind, **inputs)
    statistic = _standardize(_largest(_walk(event)), event)
    return CalibrationTest(statistic, largest_tail(statistic))


@check_keywords(Inputs)
def kuiper_test(
    y_true: Any, probs: Any = None, *, kind: str = "auto", **inputs: Unpack[Inputs]
) -> CalibrationTest:
    r"""Test calibration by the range of cumulative differences.

    The statistic is :math:`n (\max_t C_t - \min_t C_t) / \sqrt{\sum_i p_i (1 - p_i)}`, with :math:`C_t` as
    for :func:`kuiper_statistic`. For calibrated predictions it converges to the range of a Brownian motion on
    [0, 1]. More sensitive than :func:`ks_test` to miscalibration in the middle.

    Parameters
    ----------
    y_true, probs, kind, **inputs
        As for :func:`ks_test`.

    Returns
    -------
    CalibrationTest
        ``statistic`` and ``p_value``, as for :func:`ks_test`.

    References
    ----------
    Arrieta-Ibarra, Gujral, Tannen, Tygert, Xu, "Metrics of calibration for probabilistic predictions", 2022.
    Feller, "The asymptotic distribution of the range of sums of independent random variables", 1951.

    Examples
    --------
    >>> import refinecal as rc
    >>> statistic, p_value = rc.metrics.kuiper_test([0, 1, 1, 1], [0.5] * 4)
    >>> statistic
    1.0
    >>> round(p_value, 3)  # 8 (0.15866 - 2 * 0.02275 + 3 * 0.00135 - 4 * 0.00003)
    0.937
    """
    event = _check_test(y_true, probs, kind, **inputs)
    statistic = _standardize(_range(_walk(event)), event)
    return CalibrationTest(statistic, range_tail(statistic))


@check_keywords(Inputs)
def spiegelhalter(
    y_true: Any, probs: Any = None, *, kind: str = "all", **inputs: Unpack[Inputs]
) -> CalibrationTest:
    r"""Test calibration by comparing the Brier score with its expectation under the predictions.

    If labels are drawn from a prediction p, the Brier score of the row is :math:`1 + s - 2 p_y` with
    :math:`s = \sum_j p_j^2`; it has mean :math:`1 - s` and variance :math:`4 \sum_j p_j (p_j - s)^2`. So

    .. math:: z = \sum_i (s_i - p_{i y_i}) \Big/ \sqrt{\sum_i \sum_j p_{ij} (p_{ij} - s_i)^2}

    is about standard normal for calibrated predictions. For two classes it is Spiegelhalter's
    :math:`\sum_i (y_i - p_i)(1 - 2 p_i) / \sqrt{\sum_i (1 - 2 p_i)^2 p_i (1 - p_i)}`.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`ks_test`.
    kind : {"all", "top-label"}
        All classes, or the likeliest against the rest.

    Returns
    -------
    CalibrationTest
        ``statistic`` is z: positive for overconfident predictions, negative for underconfident ones; with the
        two-sided ``p_value``. If no score has variance (all classes equally likely, or probabilities of 0 and
        1), both are NaN, or infinity and 0 if a certain prediction is wrong.

    References
    ----------
    Spiegelhalter, "Probabilistic prediction in patient management and clinical trials", 1986.

    Examples
    --------
    >>> import refinecal as rc
    >>> z, p_value = rc.metrics.spiegelhalter([1, 1, 1, 0], [0.9] * 4)
    >>> round(z, 12)  # (-3 * 0.1 + 0.9) * 0.8 = 0.48, over sqrt(4 * 0.64 * 0.09) = 0.48
    1.0
    >>> round(p_value, 3)
    0.317
    """
    if kind not in ("all", "top-label"):
        fail_choice("kind", kind, ["all", "top-label"])
    sample = read(y_true, probs, True, **inputs)
    if sample is not y_true:  # else a training step: warned before
        warn_if_light(sample.weights, "the test")
    excess, variance = _excess_of_all(sample) if kind == "all" else _excess_of_top(sample)
    if variance == 0:
        found = CalibrationTest(math.nan, math.nan)
        return found if excess == 0 else CalibrationTest(math.copysign(math.inf, excess), 0.0)
    z = excess / math.sqrt(variance)
    return CalibrationTest(z, math.erfc(abs(z) / math.sqrt(2)))


# ---- the sums --------------------------------------------------------------------------------------------


def _check_test(y_true: Any, probs: Any, kind: str, **inputs: Unpack[Inputs]) -> Event:
    if kind not in TEST_KINDS:
        fail_choice("kind", kind, TEST_KINDS)
    sample = read(y_true, probs, True, **inputs)
    if sample is not y_true:  # else a training step: warned before
        warn_if_light(sample.weights, "the test")
    return events(sample, kind)[0]


def _walk(event: Event) -> Floats:
    """Return the sums of outcomes minus probabilities up to each different probability, in order."""
    order = np.argsort(event.scores)
    scores, steps = event.scores[order], (event.hits - event.scores)[order]
    if event.weights.size:
        steps *= event.weights[order]
    ends = np.append(np.diff(scores) > TIE, True)
    return np.asarray(np.cumsum(steps)[ends])


def _largest(walk: Floats) -> float:
    return float(np.abs(walk).max())


def _range(walk: Floats) -> float:
    return float(max(walk.max(), 0) - min(walk.min(), 0))


def _standardize(distance: float, event: Event) -> float:
    """Return the distance in standard deviations of the sum."""
    spread = np.maximum(event.scores * (1 - event.scores), 0)
    variance = float(spread @ event.weights if event.weights.size else spread.sum())
    if variance == 0:
        return 0.0 if distance == 0 else math.inf
    return distance / math.sqrt(variance)


def _excess_of_top(sample: Sample) -> tuple[float, float]:
    """Return the excess of the score of the likeliest class against the rest, and its variance."""
    scores, hits, weights = events(sample, "top-label")[0]
    slopes = 1 - 2 * scores
    excess, variance = (hits - scores) * slopes, slopes**2 * np.maximum(scores * (1 - scores), 0)
    return _total(excess, weights), _total(variance, weights)


def _excess_of_all(sample: Sample) -> tuple[float, float]:
    """Return half the excess of the Brier score over its expectation, and a quarter of its variance."""
    n, k = sample.probs.shape
    excess, variance = np.empty(n), np.empty(n)
    for rows in row_slices(n, k):
        probs = sample.probs[rows] / sample.probs[rows].sum(axis=1, keepdims=True)
        expected = (probs**2).sum(axis=1, keepdims=True)
        above = probs - expected
        above[np.abs(above) < 1e-14 * expected] = 0  # equally likely up to rounding
        variance[rows] = (probs * above**2).sum(axis=1)
        if sample.soft is not None:
            excess[rows] = -(sample.soft[rows] * above).sum(axis=1)
        else:
            excess[rows] = -above[np.arange(len(above)), sample.labels[rows]]
    return _total(excess, sample.weights), _total(variance, sample.weights)


def _total(values: Floats, weights: Floats | None) -> float:
    return float(values.sum() if weights is None or not weights.size else values @ weights)


# ---- extremes of a Brownian motion on [0, 1] ---------------------------------------------------------------
# Each probability has two series, one for short and one for long distances, both to full precision.

LARGEST_SWITCH, RANGE_SWITCH = 1.5, 2.5  # where both series need few terms
TERMS = range(8)


def _beyond(x: float) -> float:
    r"""Return :math:`\bar\Phi(x)`, the probability that a standard normal exceeds x."""
    return math.erfc(x / math.sqrt(2)) / 2


def largest_tail(x: float) -> float:
    r"""Return the probability that the largest absolute value exceeds x.

    .. math:: 4 \sum_{k \ge 0} (-1)^k \bar\Phi((2k+1)x)
              = 1 - \frac4\pi \sum_{k \ge 0} \frac{(-1)^k}{2k+1} e^{-(2k+1)^2 \pi^2 / 8x^2}.
    """
    if x < 0.1:  # the exponential is 0 to full precision
        return 1.0
    if x > LARGEST_SWITCH:
        return 4 * math.fsum((-1.0) ** k * _beyond((2 * k + 1) * x) for k in TERMS)
    rate = (math.pi / x) ** 2 / 8
    terms = ((-1.0) ** k / (2 * k + 1) * math.exp(-rate * (2 * k + 1) ** 2) for k in TERMS)
    return 1 - 4 / math.pi * math.fsum(terms)


def range_tail(x: float) -> float:
    r"""Return the probability that the largest value exceeds the smallest by more than x.

    .. math:: 8 \sum_{k \ge 1} (-1)^{k-1} k \bar\Phi(kx)
              = 1 - 8 \sum_{m = 1, 3, 5, \dots} \Big(\frac1{\pi^2 m^2} + \frac1{x^2}\Big)
              e^{-m^2 \pi^2 / 2x^2}.

    The first is the integral of Feller's density; the second follows from the probability to stay between -a
    and b, differentiated in a, and integrated over a with b = x - a.
    """
    if x < 0.1:
        return 1.0
    if x > RANGE_SWITCH:
        return 8 * math.fsum((-1.0) ** k * (k + 1) * _beyond((k + 1) * x) for k in TERMS)
    rate = (math.pi / x) ** 2 / 2
    odd = (2 * k + 1 for k in TERMS)
    return 1 - 8 * math.fsum(((math.pi * m) ** -2 + x**-2) * math.exp(-rate * m**2) for m in odd)
