"""Spline calibration: a smooth curve on the log-odds, as stiff as unseen rows ask for."""

import numbers
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from refinecal._calibrator import Calibrator
from refinecal._sample import Sample, on_cpu
from refinecal.calibrators._features import gap_limit, log_odds

if TYPE_CHECKING:
    from refinecal.calibrators._pieces import Rows

Floats = NDArray[np.float64]
PENALTIES = 10.0 ** np.arange(1, -9.5, -0.5)  # from a line to as good as free
SAME = 1e-9  # of the range: scores that differ by less are one
NO_BETTER = 1e-9  # gain of log loss for which no curve is bent


class SplineCalibration(Calibrator):
    r"""Calibrate two classes by a natural cubic spline f on the log-odds x of class 1.

    .. math:: g(p) = \sigma(f(x)), \quad f = \arg\min \frac1n \sum_i \ell(\sigma(f(x_i)), y_i)
              + \frac\lambda2 \int f''(x)^2 dx,

    with x scaled so that the knots reach from 0 to 1, and :math:`\lambda` of the smallest leave-one-out log
    loss, which one Newton step per row approximates. Beyond the outer knots f is straight, and a large
    :math:`\lambda` leaves nothing but affine scaling. f need not increase.

    Parameters
    ----------
    n_knots : int, default 20
        Knots, at quantiles of the distinct scores; as many as there are scores if those are fewer.
    penalty : float, optional
        The strength :math:`\lambda`; chosen by leave-one-out log loss if not given.
    laplace : bool, default True
        Whether to smooth.

    Attributes
    ----------
    knots_ : ndarray of shape (m,)
        Log-odds where the pieces meet.
    pieces_ : ndarray of shape (m + 1, 4)
        Coefficients of 1, u, u**2, u**3 for each piece, the tails first and last: u runs from 0 to 1 between
        two knots, and in the tails counts from the outer knot in units of the distance of the outer knots.
    penalty_ : float
        The strength that was used.
    limit_ : float
        Log-odds beyond which scores count as this large: what probabilities of 0 and 1 stand for.

    References
    ----------
    Lucena, "Spline-based probability calibration", 2018, arXiv 1809.07751; Green and Silverman,
    "Nonparametric regression and generalized linear models", 1994, section 2.1.

    Examples
    --------
    >>> import refinecal as rc
    >>> scores, labels = [0.2] * 4 + [0.5] * 4 + [0.8] * 4, [0, 0, 0, 1] + [0, 1] * 2 + [0, 1, 1, 1]
    >>> spline = rc.make_calibrator("spline", laplace=False).fit(scores, labels)
    >>> spline.predict_proba([0.2, 0.5, 0.8])[:, 1].round(6)  # 1 of 4, 2 of 4, 3 of 4: on a line
    array([0.25, 0.5 , 0.75])
    """

    def __init__(
        self, n_knots: int = 20, penalty: float | None = None, laplace: bool = True
    ) -> None:
        self.n_knots = n_knots
        self.penalty = penalty
        self.laplace = laplace

    @property
    def n_parameters(self) -> int:
        """The number of its knots."""
        return len(self.knots_)

    def _summary(self) -> str:
        return f"{len(self.knots_)} knots, penalty_={self.penalty_:.3g}"

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        if sample.k != 2:
            raise ValueError(
                f"spline calibration is for 2 classes, found {sample.k}: use calibrator='spline-ovr' for "
                "one class against the rest, or 'temperature'"
            )
        n_knots, penalties = self._checked()
        sample = on_cpu(sample.counted())
        self.limit_ = gap_limit(sample)
        odds = log_odds(sample.logits, self.limit_)
        order = np.argsort(odds)
        odds = odds[order]
        self.knots_ = _choose_knots(odds, n_knots)
        self._search(_in_order(sample, order, odds, self.knots_), penalties)

    def _search(self, rows: "Rows", penalties: Floats) -> None:
        """Fit with each penalty, from stiff to loose, and keep the best for rows left out."""
        from refinecal.calibrators._newton import minimise
        from refinecal.calibrators._pieces import loss_left_out, mean_loss, spline_maps

        maps = spline_maps(self.knots_)
        theta, best = np.zeros(len(self.knots_)), np.inf
        for penalty in penalties if len(theta) > 2 else penalties[:1]:
            ridge = np.where(np.arange(len(theta)) < 2, 0.0, penalty)
            theta = minimise(partial(mean_loss, rows, maps, ridge), theta).x
            loss = loss_left_out(rows, maps, ridge, theta) if len(penalties) > 1 else 0.0
            if loss < best - NO_BETTER:
                best, self.penalty_, self.pieces_ = loss, float(penalty), maps @ theta

    def _checked(self) -> tuple[int, Floats]:
        """Return the number of knots, and the penalties to try."""
        whole = isinstance(self.n_knots, numbers.Integral) and not isinstance(self.n_knots, bool)
        if not whole or self.n_knots < 2:
            raise ValueError(
                f"n_knots is {self.n_knots!r}: it must be a whole number of at least 2, which makes a line"
            )
        if self.penalty is None:
            return int(self.n_knots), PENALTIES
        if not (isinstance(self.penalty, numbers.Real) and 0 <= float(self.penalty) < np.inf):
            raise ValueError(
                f"penalty is {self.penalty!r}: it must be a finite number of at least 0, or None to let "
                "the data choose"
            )
        return int(self.n_knots), np.array([float(self.penalty)])

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        pieces, u = _place(log_odds(logits, self.limit_), self.knots_)
        c0, c1, c2, c3 = self.pieces_.T[:, pieces]
        inside = np.where((pieces > 0) & (pieces < len(self.knots_)), u, 0.0)
        odds = c0 + c1 * u + inside**2 * (c2 + c3 * inside)
        return np.stack([-np.logaddexp(0, odds), -np.logaddexp(0, -odds)], axis=1)


def _choose_knots(odds: Floats, n_knots: int) -> Floats:
    """Return scores in the middle of equally many distinct ones each; so tails have half as many."""
    gaps = np.diff(odds) > SAME * (odds[-1] - odds[0])
    distinct = odds[np.concatenate([[True], gaps])]
    m = min(n_knots, len(distinct))
    return np.asarray(distinct[((np.arange(m) + 0.5) * len(distinct) / m).astype(np.int64)])


def _in_order(sample: Sample, order: NDArray[Any], odds: Floats, knots: Floats) -> "Rows":
    """Return what the kernels read, in order of the scores."""
    from refinecal.calibrators._pieces import Rows

    pieces, places = _place(odds, knots)
    first = np.searchsorted(pieces, np.arange(len(knots) + 2), "left")
    shares = sample.labels if sample.soft is None else sample.soft[:, 1]
    weights = np.empty(0) if sample.weights is None else sample.weights[order]
    return Rows(first, places, shares[order].astype(np.float64), weights, sample.total)


def _place(odds: Floats, knots: Floats) -> tuple[NDArray[Any], Floats]:
    """Return the piece of each score, and its place within: 0..1 between two knots."""
    pieces = np.searchsorted(knots, odds, "right")
    span = knots[-1] - knots[0] if len(knots) > 1 else 1.0
    left = np.concatenate([knots[:1], knots])
    width = np.concatenate([[span], np.diff(knots), [span]])
    return pieces, (odds - left[pieces]) / width[pieces]
