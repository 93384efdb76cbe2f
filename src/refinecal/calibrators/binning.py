"""Histogram binning: one probability per bin of scores, and binning after a scaling."""

from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.checks import check_whole
from refinecal._core.sample import (
    ROUNDED,
    ROUNDING,
    Sample,
    clipped_odds,
    deal_in_turn,
    log_rows,
    shares_of,
)
from refinecal._kernels import BORDER
from refinecal.calibrators._pairs import Curve, steps
from refinecal.calibrators.base import Calibrator, Floats, check_two_classes, make_calibrator
from refinecal.calibrators.scaling import AffineScaling

STRATEGIES = {"quantile": "uniform-mass", "uniform": "uniform-width"}  # and the calibrator's name
LARGEST = 1 - 2.0**-53  # float below 1
FEW = 32  # edges


class _BinCalibrator(Calibrator):
    """A calibrator with one probability per bin, which predictions look up."""

    edges_: Floats
    shares_: Floats

    def _scores(self, logits: NDArray[Any]) -> Floats:
        """Return the scores to bin."""
        return clipped_odds(logits, np.inf)

    def _summary(self) -> str:
        return f"{len(self.shares_)} bins"

    def _learn_quantiles(
        self, odds: Floats, values: Floats, weights: Floats | None, n_bins: int
    ) -> None:
        """Learn the mean of the values in bins of equal mass."""
        self.edges_ = quantile_edges(odds, weights, n_bins)
        nothing = np.zeros(len(self.edges_) + 1)  # no bin is empty
        self.shares_ = _bin_means(_bins(odds, self.edges_), values, weights, nothing)

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        return self._look_up(log_rows(self.shares_), logits)

    def _log_proba(self, logits: NDArray[Any]) -> NDArray[Any]:
        rows = log_rows(self.shares_)
        if self.laplace:
            rows = np.log(self._smooth(np.exp(rows)))
        return self._look_up(rows, logits)

    def _proba(self, logits: NDArray[Any]) -> NDArray[Any]:
        return self._look_up(self._smooth(np.exp(log_rows(self.shares_))), logits)

    def _look_up(self, rows: NDArray[Any], logits: NDArray[Any]) -> NDArray[Any]:
        if len(rows) != len(self.edges_) + 1:  # in a damaged file
            raise ValueError("shares_ must have one entry more than edges_")
        return rows.take(_bins(self._scores(logits), self.edges_), axis=0)


class HistogramBinning(_BinCalibrator):
    r"""Calibrate two classes by the share of class 1 in each bin of scores.

    .. math:: g(p) = \frac{\sum_i w_i y_i 1[p_i \in B(p)]}{\sum_i w_i 1[p_i \in B(p)]},

    where B(p) is the bin of p, the probability of class 1. Equal scores are always in the same bin.

    Parameters
    ----------
    n_bins : int or "auto", default 15
        Number of bins; "auto" takes the cube root of the number of samples.
    strategy : {"quantile", "uniform"}
        Bins of equal mass (fewer where scores are equal), or of equal width in probability:
        :math:`b/m < p \le (b+1)/m`, up to rounding as for :func:`refinecal.metrics.ece`. An empty bin of
        equal width predicts its center.
    laplace : bool, default True
        Whether to smooth, so that no probability is 0.

    Attributes
    ----------
    edges_ : ndarray of shape (m - 1,)
        Log-odds of class 1 between the bins; a score on an edge belongs to the bin below.
    shares_ : ndarray of shape (m,)
        The predicted probability of class 1 in each bin.

    References
    ----------
    Zadrozny and Elkan, "Obtaining calibrated probability estimates from decision trees and naive Bayesian
    classifiers", ICML 2001.

    Examples
    --------
    >>> import refinecal as rc
    >>> scores, labels = [0.1, 0.2, 0.3, 0.7, 0.8, 0.9], [0, 0, 1, 1, 0, 1]
    >>> binning = rc.make_calibrator("uniform-mass", n_bins=2, laplace=False).fit(scores, labels)
    >>> binning.predict_proba([0.25, 0.75])[:, 1].round(6)  # 1 of 3, and 2 of 3
    array([0.333333, 0.666667])
    """

    def __init__(
        self, n_bins: int | str = 15, strategy: str = "quantile", laplace: bool = True
    ) -> None:
        self.n_bins = n_bins
        self.strategy = strategy
        self.laplace = laplace

    @property
    def n_parameters(self) -> int:
        """The number of its bins."""
        return len(self.shares_)

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        if self.strategy not in list(STRATEGIES):
            raise ValueError(
                f"strategy is {self.strategy!r}: it must be 'quantile' (bins of equal mass) or 'uniform' "
                "(bins of equal width)"
            )
        check_two_classes(sample, "histogram binning", STRATEGIES[self.strategy])
        n_bins = _count_bins(self.n_bins, sample.total)
        odds, shares = merge_ties(self._scores(sample.logits)), shares_of(sample)
        if self.strategy == "quantile":
            self._learn_quantiles(odds, shares, sample.weights, n_bins)
            return
        inner = np.minimum(np.arange(1, n_bins) / n_bins + BORDER, LARGEST)  # as _kernels.bins does
        self.edges_ = np.log(inner) - np.log1p(-inner)
        centers = (np.arange(n_bins) + 0.5) / n_bins
        self.shares_ = _bin_means(_bins(odds, self.edges_), shares, sample.weights, centers)

    def _curve(self) -> Curve:
        return steps(np.nextafter(self.edges_, np.inf), self.shares_)  # an edge is of the bin below


class ScalingBinning(_BinCalibrator):
    r"""Calibrate two classes by a scaling whose values are averaged in bins.

    A scaling g is fitted on half of the samples, and averaged in bins of equal mass over the other half. So
    few samples are enough, and few values make its calibration error measurable:

    .. math:: g_B(p) = \frac{\sum_i w_i g(p_i) 1[g(p_i) \in B]}{\sum_i w_i 1[g(p_i) \in B]},
              \quad g(p) \in B.

    Parameters
    ----------
    n_bins : int or "auto", default 15
        As for :class:`HistogramBinning`.
    scaling : str or Calibrator, default "affine"
        A name for :func:`make_calibrator`, used without smoothing, or a calibrator.
    split : bool, default True
        Whether the halves are disjoint, as the theory assumes; if not, both are all samples. The split
        depends only on scores and labels, not on the order of rows.
    laplace : bool, default True
        Whether to smooth.

    Attributes
    ----------
    scaling_ : Calibrator
        The fitted scaling.
    edges_ : ndarray of shape (m - 1,)
        Scaled log-odds of class 1 between the bins.
    shares_ : ndarray of shape (m,)
        The predicted probability of class 1 in each bin.

    References
    ----------
    Kumar, Liang and Ma, "Verified uncertainty calibration", NeurIPS 2019, section 4.

    Examples
    --------
    >>> import refinecal as rc
    >>> scores, labels = [0.2, 0.2, 0.2, 0.8, 0.8, 0.8], [0, 0, 1, 1, 0, 1]
    >>> binning = rc.make_calibrator("scaling-binning", n_bins=1, split=False, laplace=False)
    >>> binning.fit(scores, labels).predict_proba([0.2, 0.9])[:, 1].round(6)  # 3 of 6
    array([0.5, 0.5])
    """

    scaling_: Calibrator

    def __init__(
        self,
        n_bins: int | str = 15,
        scaling: str | Calibrator = "affine",
        split: bool = True,
        laplace: bool = True,
    ) -> None:
        self.n_bins = n_bins
        self.scaling = scaling
        self.split = split
        self.laplace = laplace

    @property
    def n_parameters(self) -> int:
        """The parameters of the scaling and the number of bins."""
        return self.scaling_.n_parameters + len(self.shares_)

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        check_two_classes(sample, "scaling-binning", "scaling-binning")
        first, second = _split_halves(sample) if self.split else (sample, sample)
        scaling = self.scaling
        if not isinstance(scaling, Calibrator):
            scaling = make_calibrator(scaling, laplace=False)
        self.scaling_ = deepcopy(scaling)._fit_sample(first, threads, start)
        odds = merge_ties(self._scores(second.logits))
        values, n_bins = np.exp(-np.logaddexp(0, -odds)), _count_bins(self.n_bins, second.total)
        self._learn_quantiles(odds, values, second.weights, n_bins)

    def _scores(self, logits: NDArray[Any]) -> Floats:
        return clipped_odds(self.scaling_._log_proba(logits), np.inf)

    def _curve(self) -> Curve | None:
        """Return the edges before scaling, if the scaling is an increasing line."""
        line = self.scaling_
        if not isinstance(line, AffineScaling) or line.laplace or not line.slope_ > 0:
            return None
        with np.errstate(over="ignore"):
            edges = (self.edges_ - line.intercept_) / line.slope_
        return steps(np.nextafter(edges, np.inf), self.shares_)._replace(limit=line.limit_)


def merge_ties(odds: Floats) -> Floats:
    """Return the scores, with those that differ only by rounding set to the lowest of them.

    As in isotonic regression, a score equals a lower one if it is above it by at most ROUNDING, relative to
    its size, or to 1 (or to the largest score, if that is below 1).
    """
    ranked = np.sort(odds)
    largest = max(abs(ranked[0]), abs(ranked[-1]))
    with np.errstate(invalid="ignore"):  # infinite scores are equal already
        gaps = np.diff(ranked)
        if gaps.min(where=gaps > 0, initial=np.inf) > ROUNDING * largest:
            return odds
        reach = ranked + ROUNDING * np.maximum(np.abs(ranked), min(1.0, largest))
        near = (ranked[1:] <= reach[:-1]) & np.isfinite(gaps)
    first = np.flatnonzero(np.concatenate([[True], ~near]))
    lowest = np.repeat(first, np.diff(np.append(first, len(ranked))))
    for i in np.flatnonzero(ranked > reach[lowest]):  # in a run longer than rounding
        below = lowest[i - 1]
        lowest[i] = below if below > lowest[i] and ranked[i] <= reach[below] else i
    return np.asarray(ranked[lowest][np.searchsorted(ranked, odds)])


def rank_rows(scores: Floats, labels: NDArray[Any]) -> NDArray[np.int64]:
    """Return the order of the rows by score, then by label."""
    order = np.argsort(scores)
    ranked = scores[order]
    return np.lexsort((labels, scores)) if (ranked[1:] == ranked[:-1]).any() else order


def quantile_edges(scores: Floats, weights: Floats | None, n_bins: int) -> Floats:
    """Return the edges between bins of about equal mass: halfway between scores.

    Equal scores are in the bin of the middle of their mass.
    """
    order = None if weights is None else np.argsort(scores)
    ranked = np.sort(scores) if order is None else scores[order]
    mass = np.ones(len(ranked)) if weights is None else weights[order]
    before = np.concatenate([[0.0], np.cumsum(mass)])
    wanted = np.arange(1, n_bins) * before[-1] / n_bins
    rows = np.minimum(np.searchsorted(before, wanted, "right") - 1, len(ranked) - 1)
    first = np.searchsorted(ranked, ranked[rows], "left")
    last = np.searchsorted(ranked, ranked[rows], "right")
    cuts = np.where((before[first] + before[last]) / 2 >= wanted, first, last)
    cuts = np.unique(cuts[(cuts > 0) & (cuts < len(ranked))])
    finite = ranked[np.isfinite(ranked)]
    limit = max(ROUNDED, float(np.abs(finite).max(initial=0.0)))  # what infinity stands for
    low, high = np.clip(ranked[cuts - 1], -limit, limit), np.clip(ranked[cuts], -limit, limit)
    middle = low / 2 + high / 2
    return np.asarray(np.where(middle < high, middle, low))  # adjacent floats have no middle


def _bins(scores: Floats, edges: Floats) -> NDArray[Any]:
    """Return the bin of each score: the number of edges below it."""
    if len(edges) > FEW:
        return np.asarray(np.searchsorted(edges, scores, "left"))
    bins = np.zeros(len(scores), dtype=np.int8)
    for edge in edges:  # at 14 edges, much faster than a search
        bins += scores > edge
    return bins


def _bin_means(
    bins: NDArray[Any], values: NDArray[Any], weights: Floats | None, empty: Floats
) -> Floats:
    """Return the mean of the values in each bin; those of ``empty`` for bins without values."""
    m = len(empty)
    mass = np.bincount(bins, weights, minlength=m)
    sums = np.bincount(bins, values if weights is None else weights * values, minlength=m)
    means = np.divide(sums, mass, out=empty.copy(), where=mass > 0)
    return np.clip(means, 0, 1)  # rounding must not pass 1


def _split_halves(sample: Sample) -> tuple[Sample, Sample]:
    """Split in two: by rank of the scores, copies go to the first, second, second, first ..."""
    order = rank_rows(merge_ties(clipped_odds(sample.logits, np.inf)), shares_of(sample))
    mass = np.ones(sample.n) if sample.weights is None else sample.weights
    second = np.empty(sample.n)
    (second[order],) = deal_in_turn(mass[order], 4, [1], width=2)
    first = mass - second
    if not (first.any() and second.any()):  # a single copy cannot be split
        return sample, sample
    return _set_weights(sample, first), _set_weights(sample, second)


def _set_weights(sample: Sample, weights: Floats) -> Sample:
    """Return the rows of positive weight; without weights if all are 1."""
    part = sample.replace(weights=weights).drop_weightless()
    once = part.weights is not None and bool((part.weights == 1).all())
    return part.replace(weights=None) if once else part


def _count_bins(n_bins: Any, total: float) -> int:
    """Return the number of bins that was asked for."""
    if n_bins == "auto":
        return max(1, round(float(total ** (1 / 3))))
    return check_whole("n_bins", n_bins, 1, ", or 'auto'")
