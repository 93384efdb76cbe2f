"""Calibration errors in bins of probability: ECE, MCE, over- and underconfidence."""

from __future__ import annotations  # so that help() shows types by name

import math
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.checks import check_keywords, check_whole, warn_if_light
from refinecal._core.errors import fail_choice
from refinecal._core.sample import NOTHING, readonly
from refinecal.metrics.events import Floats, Inputs, events, read

N_BINS = 15  # as in most papers
STRATEGIES = ("uniform", "quantile")
NORMS = ("l1", "l2", "max")
CONFIDENCE_KINDS = ("auto", "binary", "top-label")
LEAST = 2.0  # rows of a bin from which a variance can be estimated
ROUNDING = 1e-12  # of a mean that is 1/2


@check_keywords(Inputs)
def ece(
    y_true: Any,
    probs: Any = None,
    *,
    n_bins: int = N_BINS,
    strategy: str = "uniform",
    kind: str = "auto",
    norm: str = "l1",
    debiased: bool = False,
    **inputs: Unpack[Inputs],
) -> float:
    r"""Return the expected calibration error: the distance of probabilities and frequencies, in bins.

    With the share :math:`w_b` of rows in bin b, their mean probability :math:`\bar p_b` and the frequency
    :math:`\bar y_b` of the class, it is :math:`\sum_b w_b |\bar p_b - \bar y_b|`; with ``norm="l2"``
    :math:`\sqrt{\sum_b w_b (\bar p_b - \bar y_b)^2}`, with ``"max"`` the largest distance.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    n_bins : int, default 15
        Number of bins.
    strategy : {"uniform", "quantile"}
        Bins of equal width, bin b holding b/n_bins < p <= (b + 1)/n_bins; or of equal mass, with equal
        probabilities in the same bin. See the notes for rounding.
    kind : {"auto", "binary", "top-label", "class-wise"}
        The second of two classes, the likeliest class, or all classes with equal weights: the mean of their
        errors, of their squares, or the largest. By default "binary" for two classes, else "top-label".
    norm : {"l1", "l2", "max"}
        How to combine the distances.
    debiased : bool, default False
        For ``norm="l2"``: subtract the expected contribution of chance from each square,
        :math:`\bar y_b (1 - \bar y_b) / (n_b - 1)`. Bins of fewer than two rows count as 0.

    Returns
    -------
    float
        Between 0 and 1. If debiased, the signed root: below 0 if chance alone would give more. The unbiased
        estimate is the square, ``e * abs(e)``.

    Notes
    -----
    Without ``debiased``, correct probabilities have an error above 0: in a bin of 100 rows, frequencies are
    off by 0.04 on average at p = 1/2. It grows with more bins and fewer rows, so compare models on the same
    rows only. Errors that cancel within a bin are not seen. :func:`smooth_ece` needs no bins.

    Sample weights are frequencies, also for :math:`n_b`.

    Bins are computed in single precision, so they are the same for float32 and float64. A probability less
    than :math:`2^{-20}` above a border is on it: 0.1 + 0.2 is in the bin that ends at 0.3. The mean
    probability keeps full precision. Evaluations and reliability diagrams use the same bins.

    References
    ----------
    Naeini, Cooper & Hauskrecht, AAAI 2015; Guo et al., ICML 2017; Bröcker, Climate Dynamics 2012 and Kumar,
    Liang & Ma, NeurIPS 2019, for the debiased square.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.metrics.ece([0, 1, 1, 1], [0.5] * 4), 12)  # predicts 1/2, observes 3/4
    0.25
    >>> rc.metrics.ece([0, 1, 1, 1], [0.5] * 4, norm="l2", debiased=True)  # 1/16 - (3/16) / 3
    0.0
    """
    check_bins(n_bins, strategy)
    if norm not in NORMS:
        fail_choice("norm", norm, NORMS)
    if debiased and norm != "l2":
        raise ValueError(
            f"debiased is True, but norm is {norm!r}: only squares can be debiased; pass norm='l2'"
        )
    sample = read(y_true, probs, True, **inputs)
    if debiased and sample is not y_true:  # already warned
        warn_if_light(sample.weights, "debiasing")
    if norm == "max":
        return mce(sample, n_bins=n_bins, strategy=strategy, kind=kind)
    sums = [bin_sums(*event, n_bins, strategy) for event in events(sample, kind)]
    if norm == "l1":
        return float(np.mean([mean_distance(each) for each in sums]))
    square = float(np.mean([_mean_square(each, debiased) for each in sums]))
    return math.copysign(math.sqrt(abs(square)), square)


@check_keywords(Inputs)
def mce(
    y_true: Any,
    probs: Any = None,
    *,
    n_bins: int = N_BINS,
    strategy: str = "uniform",
    kind: str = "auto",
    min_count: float = 0,
    **inputs: Unpack[Inputs],
) -> float:
    """Return the maximum calibration error, that of the worst bin.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    n_bins, strategy, kind
        As for :func:`ece`; "class-wise" is the largest over all classes.
    min_count : float, default 0
        Ignore bins with fewer rows, where chance dominates.

    Returns
    -------
    float
        Between 0 and 1; NaN if no bin is left.

    References
    ----------
    Naeini, Cooper & Hauskrecht, AAAI 2015.

    Examples
    --------
    >>> import refinecal as rc
    >>> y, p = [0, 1, 1, 1, 0], [0.5, 0.5, 0.5, 0.5, 0.875]
    >>> rc.metrics.mce(y, p)  # one row of 0.875
    0.875
    >>> rc.metrics.mce(y, p, min_count=2)
    0.25
    """
    check_bins(n_bins, strategy)
    if not min_count >= 0:
        raise ValueError(f"min_count is {min_count!r}: it must be a number of rows, 0 or more")
    sample = read(y_true, probs, True, **inputs)
    if min_count and sample is not y_true:
        warn_if_light(sample.weights, "min_count")
    distances = []
    for event in events(sample, kind):
        mass, scores, hits = bin_sums(*event, n_bins, strategy)
        kept = (mass > 0) & (mass >= min_count)
        distances.extend(np.abs(scores - hits)[kept] / mass[kept])
    return float(max(distances, default=math.nan))


@check_keywords(Inputs)
def overconfidence(
    y_true: Any,
    probs: Any = None,
    *,
    n_bins: int = N_BINS,
    strategy: str = "uniform",
    kind: str = "auto",
    **inputs: Unpack[Inputs],
) -> float:
    r"""Return the part of the calibration error from bins where the model is overconfident.

    It is :math:`\sum_b w_b \max(0, \bar c_b - \bar a_b)` over the bins of :func:`ece`, with the mean
    confidence :math:`\bar c_b`, the accuracy :math:`\bar a_b` and the share :math:`w_b` of rows of bin b.
    Together with :func:`underconfidence` it adds up to :func:`ece`.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    n_bins, strategy
        As for :func:`ece`.
    kind : {"auto", "binary", "top-label"}
        As for :func:`ece`. For two classes, a bin below 1/2 predicts the first class: 0.1 is overconfident
        if the second class is more frequent than that.

    Returns
    -------
    float
        Between 0 and 1.

    Notes
    -----
    The overconfidence error of Thulasidasan et al. (NeurIPS 2019) also multiplies each bin by its
    confidence, so it is smaller and not part of a calibration error.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.metrics.overconfidence([1, 1, 0, 0], [1.0] * 4), 12)  # predicts 1, observes 1/2
    0.5
    """
    return _both_parts(y_true, probs, n_bins, strategy, kind, inputs)[0]


@check_keywords(Inputs)
def underconfidence(
    y_true: Any,
    probs: Any = None,
    *,
    n_bins: int = N_BINS,
    strategy: str = "uniform",
    kind: str = "auto",
    **inputs: Unpack[Inputs],
) -> float:
    r"""Return the part of the calibration error from bins where the model is underconfident.

    It is :math:`\sum_b w_b \max(0, \bar a_b - \bar c_b)` in the notation of :func:`overconfidence`, the
    other part of :func:`ece`.

    Parameters
    ----------
    y_true, probs, n_bins, strategy, kind, **inputs
        As for :func:`overconfidence`.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.metrics.underconfidence([1, 1, 1, 1], [0.75] * 4), 12)  # predicts 3/4, observes 1
    0.25
    """
    return _both_parts(y_true, probs, n_bins, strategy, kind, inputs)[1]


def _both_parts(
    y_true: Any, probs: Any, n_bins: int, strategy: str, kind: str, inputs: Inputs
) -> tuple[float, float]:
    """Return over- and underconfidence."""
    check_bins(n_bins, strategy)
    if kind not in CONFIDENCE_KINDS:
        fail_choice("kind", kind, CONFIDENCE_KINDS)
    sample = read(y_true, probs, True, **inputs)
    sums = bin_sums(*events(sample, kind)[0], n_bins, strategy)
    return confidence_parts(sums, kind == "binary" or (kind == "auto" and sample.k == 2))


def _mean_square(sums: Floats, debiased: bool) -> float:
    """Return the mean squared distance in the bins, over rows."""
    mass, scores, hits = sums[:, sums[0] > 0]
    squares = ((scores - hits) / mass) ** 2
    if debiased:
        shares = hits / mass
        many = mass >= LEAST
        chance = shares * (1 - shares) / np.where(many, mass - 1, 1)
        squares = np.where(many, squares - chance, 0.0)
    return float(mass @ squares / mass.sum())


# ---- sums over bins ----------------------------------------------------------------------------------------


def check_bins(n_bins: Any, strategy: str) -> None:
    """Raise for a wrong number of bins or an unknown strategy."""
    check_whole("n_bins", n_bins)
    if strategy not in STRATEGIES:
        fail_choice("strategy", strategy, list(STRATEGIES), "omitted")


def bin_numbers(
    scores: Floats, n_bins: int, strategy: str = "uniform", weights: Floats = NOTHING
) -> NDArray[np.int32]:
    """Return the bin of each score."""
    found = np.empty(len(scores), np.int32)
    if strategy == "uniform":
        _kernels.bins.uniform_bins(readonly(scores), n_bins, found)
    else:
        single = scores.astype(np.float32)
        order = np.argsort(single)
        _kernels.bins.quantile_bins(
            readonly(order), readonly(single), readonly(weights), n_bins, found
        )
    return found


def bin_sums(
    scores: Floats, hits: Floats, weights: Floats, n_bins: int, strategy: str = "uniform"
) -> Floats:
    """Return the sums of weights, scores and hits in each bin, (3, n_bins)."""
    bins = bin_numbers(scores, n_bins, strategy, weights)
    sums = np.zeros((_kernels.bins.N_KINDS, n_bins))
    _kernels.bins.add_rows(*(readonly(each) for each in (bins, scores, hits, weights)), sums)
    return sums


def mean_distance(sums: Floats) -> float:
    """Return the expected calibration error of the sums of :func:`bin_sums`."""
    mass, scores, hits = sums[:, sums[0] > 0]
    return float(np.abs(scores - hits).sum() / mass.sum())


def confidence_parts(sums: Floats, binary: bool) -> tuple[float, float]:
    """Return over- and underconfidence of the sums of :func:`bin_sums`."""
    mass, scores, hits = sums
    gaps = scores - hits
    if binary:  # below 1/2 it predicts the other class; at 1/2 it cannot be overconfident
        side = scores - mass / 2
        side = np.where(np.abs(side) <= ROUNDING * mass, 0.0, np.sign(side))
        gaps = np.where(side == 0, -np.abs(gaps), side * gaps)
    total = mass.sum()
    return float(np.maximum(gaps, 0).sum() / total), float(np.maximum(-gaps, 0).sum() / total)
