"""Isotonic regression: the best increasing map of the scores of a binary classifier."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.sample import (
    NOTHING,
    ROUNDING,
    Sample,
    clipped_odds,
    log_rows,
    readonly,
    shares_of,
)
from refinecal.calibrators._pairs import Curve
from refinecal.calibrators.base import Calibrator, Floats, check_two_classes

LARGEST = 1e300  # stands for an infinite score: what is learned stays finite, for JSON


class _Corners(Calibrator):
    """A map that is linear in the log-odds between corners, and constant outside."""

    log_odds_: Floats
    shares_: Floats

    def __init__(self, laplace: bool = True) -> None:
        self.laplace = laplace

    @property
    def n_parameters(self) -> int:
        """The number of its steps."""
        return len(np.unique(self.shares_))

    def _summary(self) -> str:
        return f"{self.n_parameters} steps"

    def _keep(self, low: Floats, high: Floats, levels: Floats) -> None:
        """Store both ends of each step, or its only point."""
        kept = np.stack([np.ones(len(low), dtype=bool), low < high], axis=1)
        self.log_odds_ = np.stack([low, high], axis=1)[kept]
        self.shares_ = np.stack([levels, levels], axis=1)[kept]

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        self._check_corners()
        corners = readonly(self.log_odds_), readonly(self.shares_)
        return log_rows(_kernels.pav.interpolate(clipped_odds(logits, LARGEST), *corners))

    def _curve(self) -> Curve:
        self._check_corners()
        pieces = np.zeros((len(self.shares_) + 1, 2))
        pieces[0, 0], pieces[1:, 0] = self.shares_[0], self.shares_
        pieces[1:-1, 1] = np.diff(self.shares_)
        return Curve(self.log_odds_, pieces, is_odds=False, limit=LARGEST)

    def _check_corners(self) -> None:
        if not 0 < len(self.log_odds_) == len(self.shares_):  # the compiled loop would not notice
            raise ValueError("log_odds_ and shares_ must be equally long")


class IsotonicCalibration(_Corners):
    r"""Calibrate two classes by the increasing step function with the smallest loss.

    The best increasing map is the same for every proper loss. Pool adjacent violators finds it, after
    averaging equal scores; between steps it is linear in the log-odds. With Laplace smoothing,
    :math:`g(p) = \frac{n}{n+1} \mathrm{iso}(p) + \frac{1}{n+1} \frac12`, so that log loss stays finite.

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth.

    Attributes
    ----------
    log_odds_, shares_ : ndarray
        The corners of the map: log-odds of class 1, and the share of class 1 there.

    References
    ----------
    Section 3 and appendix D of the paper. Zadrozny, Elkan, "Transforming classifier scores into accurate
    multiclass probability estimates", 2002.

    Examples
    --------
    >>> import refinecal as rc
    >>> iso = rc.make_calibrator("isotonic", laplace=False).fit([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1])
    >>> iso.predict_proba([0.2, 0.5, 0.8])[:, 1]
    array([0. , 0.5, 1. ])
    """

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        check_two_classes(sample, "isotonic calibration", "isotonic")
        scores, mass, hits = sum_scores(sample)
        first, levels = _kernels.pav.pool(mass, hits)
        self._keep(scores[first], scores[np.append(first[1:], len(scores)) - 1], levels)


class CentredIsotonicCalibration(_Corners):
    r"""Calibrate two classes by isotonic regression without its flat pieces.

    Each step of :class:`IsotonicCalibration` becomes one point, at the mean of its log-odds; the map is
    linear between these points. So it is strictly increasing and keeps the order of all scores, except
    beyond the first and last point, and on steps at exactly 0 or 1, which remain.

    Means and lines, unlike isotonic regression, depend on the scale. With log-odds, over- and underconfident
    versions of a classifier get the same probabilities, and the log loss is lower than with probabilities. A
    probability of exactly 0 or 1 within a longer step counts as odds twice as large as any other.

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth, as in :class:`IsotonicCalibration`.

    Attributes
    ----------
    log_odds_, shares_ : ndarray
        The points of the map: log-odds of class 1, and the share of class 1 there.

    References
    ----------
    Oron, Flournoy, "Centered isotonic regression: point and interval estimation for dose-response studies",
    2017.

    Examples
    --------
    >>> import refinecal as rc
    >>> iso = rc.make_calibrator("centred-isotonic", laplace=False)
    >>> iso = iso.fit_logits([-2.0, -1.0, 1.0, 2.0], [0, 1, 0, 1])  # a step of 1/2 from -1 to 1
    >>> iso.predict_proba_logits([-2.0, -1.0, 0.0, 1.0, 2.0])[:, 1]
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        check_two_classes(sample, "centered isotonic calibration", "centred-isotonic")
        scores, mass, hits = sum_scores(sample)
        first, levels = _kernels.pav.pool(mass, hits)
        last = np.append(first[1:], len(scores)) - 1
        sizes = np.abs(scores)
        limit = sizes.max(where=sizes < LARGEST, initial=0) + np.log(2)
        shares = mass / np.repeat(np.add.reduceat(mass, first), last - first + 1)
        centers = np.add.reduceat(shares * np.clip(scores, -limit, limit), first)
        centers = np.clip(centers, scores[first], scores[last])
        whole = (levels <= 0) | (levels >= 1)
        low = np.where(whole, scores[first], centers)
        self._keep(low, np.where(whole, scores[last], centers), levels)


# ---- shared with Venn-Abers --------------------------------------------------------------------------------


def sum_scores(sample: Sample) -> tuple[Floats, Floats, Floats]:
    """Return the different log-odds in order, the mass of each, and the mass of class 1 there."""
    odds = clipped_odds(sample.logits, LARGEST)
    shares = np.ascontiguousarray(shares_of(sample))
    weights = NOTHING if sample.weights is None else readonly(sample.weights)
    scores, mass, hits = _kernels.pav.sum_ties(odds, np.argsort(odds), shares, weights, ROUNDING)
    return scores, mass, hits
