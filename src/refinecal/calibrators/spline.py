r"""Spline calibration: a smooth curve of the log-odds, whose smoothness is chosen by cross-validation.

With knots :math:`t_1 < \dots < t_m`, x lies in one of m - 1 intervals or two tails, and
:math:`f(x) = c_0 + c_1 u + c_2 u^2 + c_3 u^3` with u the place within the piece; tails are straight. The
coefficients c of a piece are linear in the m parameters of the spline, ``c = maps[piece] @ theta``, so
gradient and Hessian need only sums of powers of u in each piece, for any number of knots.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.checks import check_number, check_whole
from refinecal._core.sample import (
    Sample,
    clipped_odds,
    deal_at_random,
    deal_in_turn,
    gap_limit,
    shares_of,
)
from refinecal.calibrators._newton import Advice, minimize_newton
from refinecal.calibrators._pairs import Curve
from refinecal.calibrators.base import Calibrator, Floats, check_two_classes
from refinecal.calibrators.binning import merge_ties, rank_rows

PENALTIES = 10.0 ** np.arange(1.0, -9, -1)  # from a line to nearly free
PER_KNOT = 10  # samples per knot beyond the two of a line
N_FOLDS = 5
EXACT, CLOSE = 1e-12, 1e-9  # Newton decrements of the fit, and of those that compare penalties
MARGIN = 0.5  # standard errors that a looser curve must gain: the best value in simulations
CLOSEST = 1e-9  # smallest distance of knots, relative to the range
ADVICE = Advice("spline calibration", "set penalty, say to 1e-3, or lower n_knots")


class Rows(NamedTuple):
    """Rows in order of their scores: ``first[j]`` to ``first[j + 1]`` are in piece j."""

    first: NDArray[np.int64]
    places: Floats  # u of each row
    shares: Floats  # of class 1
    weights: Floats  # empty without sample weights
    total: float


class SplineCalibration(Calibrator):
    r"""Calibrate two classes by a natural cubic spline f on the log-odds x of class 1.

    .. math:: g(p) = \sigma(f(x)), \quad f = \arg\min \frac1n \sum_i \ell(\sigma(f(x_i)), y_i)
              + \frac\lambda2 \int f''(x)^2 dx,

    with x scaled so that the knots span 0 to 1. 5-fold cross-validation chooses :math:`\lambda`: the largest
    whose log loss is within half a standard error of the best. Beyond the outer knots f is straight; a large
    :math:`\lambda` gives affine scaling. f may decrease.

    Parameters
    ----------
    n_knots : int, default 20
        Number of knots, at quantiles of the distinct scores; fewer if there are fewer scores, or fewer than
        ten samples per knot beyond two.
    penalty : float, optional
        The strength :math:`\lambda`; by default chosen by cross-validation.
    laplace : bool, default True
        Whether to smooth.

    Attributes
    ----------
    knots_ : ndarray of shape (m,)
        Log-odds where the pieces meet.
    pieces_ : ndarray of shape (m + 1, 4)
        Coefficients of 1, u, u**2, u**3 for each piece, the tails first and last: u runs from 0 to 1 between
        two knots; in the tails it is the distance to the outer knot over that of the outer knots.
    penalty_ : float
        The strength that was used.
    limit_ : float
        Log-odds beyond this are clipped, so that probabilities of 0 and 1 stay finite.

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
        check_two_classes(sample, "spline calibration", "spline")
        n_knots = check_whole("n_knots", self.n_knots, 2, ", which makes a line")
        penalties = PENALTIES
        if self.penalty is not None:
            otherwise = ", or None to choose it by cross-validation"
            penalties = np.array([check_number("penalty", self.penalty, otherwise)])
        self.limit_ = gap_limit(sample)
        odds = merge_ties(clipped_odds(sample.logits, self.limit_))
        shares = shares_of(sample)
        order = rank_rows(odds, shares)  # for the folds
        self.knots_ = _choose_knots(odds[order], min(n_knots, 2 + int(sample.total / PER_KNOT)))
        copies = np.ones(sample.n) if sample.weights is None else sample.weights[order]
        rows = _make_rows(odds[order], shares[order], copies, self.knots_)
        penalties = penalties if len(self.knots_) > 2 else penalties[:1]
        maps = spline_maps(self.knots_)
        fits = _fit_path(rows, maps, penalties, [np.zeros(len(self.knots_))], EXACT)
        best = _choose_penalty(rows, copies, maps, penalties, fits) if len(penalties) > 1 else 0
        self.penalty_, self.pieces_ = float(penalties[best]), maps @ fits[best]

    def _curve(self) -> Curve:
        return Curve(self.knots_, self.pieces_, limit=self.limit_)

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        if self.pieces_.shape != (len(self.knots_) + 1, 4):  # in a damaged file
            raise ValueError("pieces_ must have one row more than knots_, of four numbers")
        pieces, u = _place(clipped_odds(logits, self.limit_), self.knots_)
        c0, c1, c2, c3 = self.pieces_.T[:, pieces]
        inside = np.where((pieces > 0) & (pieces < len(self.knots_)), u, 0.0)
        odds = c0 + c1 * u + inside**2 * (c2 + c3 * inside)
        return np.stack([-np.logaddexp(0, odds), -np.logaddexp(0, -odds)], axis=1)


def spline_maps(knots: Floats) -> Floats:
    r"""Return the matrices (m + 1, 4, m) from the parameters of a spline to the pieces.

    The first two parameters are the height and the rise of a line. The others bend it: the second derivatives
    inside are :math:`\gamma = L^{-\top} \theta`, where :math:`R = L L^\top` and
    :math:`\gamma^\top R \gamma = \int f''^2`, so that the squares of these parameters sum to that integral
    (with x from 0 to 1 between the outer knots). They do not change f at the outer knots.
    """
    m = len(knots)
    maps = np.zeros((m + 1, 4, m))
    maps[:, 0, 0] = 1
    if m == 1:  # one score: a constant
        return maps
    span = knots[-1] - knots[0]
    t, h = (knots - knots[0]) / span, (np.diff(knots) / span)[:, None]
    bend = np.zeros((m, m))
    if m > 2:
        r = np.diag((h[:-1, 0] + h[1:, 0]) / 3)
        r += np.diag(h[1:-1, 0] / 6, 1) + np.diag(h[1:-1, 0] / 6, -1)
        bend[1:-1, 2:] = np.linalg.inv(np.linalg.cholesky(r)).T
    slope, value = np.zeros((m, m)), np.zeros((m, m))
    slope[1:] = np.cumsum(h * (bend[:-1] + bend[1:]) / 2, axis=0)
    value[1:] = np.cumsum(h * slope[:-1] + h**2 * (2 * bend[:-1] + bend[1:]) / 6, axis=0)
    slope -= value[-1]
    value -= t[:, None] * value[-1]
    slope[:, 1] += 1
    value[:, 0] += 1
    value[:, 1] += t - 0.5
    maps[1:-1, 0], maps[1:-1, 1] = value[:-1], h * slope[:-1]
    maps[1:-1, 2], maps[1:-1, 3] = h**2 * bend[:-1] / 2, h**2 * np.diff(bend, axis=0) / 6
    maps[0, :2], maps[-1, :2] = (value[0], slope[0]), (value[-1], slope[-1])
    return maps


def _choose_knots(odds: Floats, n_knots: int) -> Floats:
    """Return quantiles of the distinct scores, so that tails have half as many as intervals."""
    apart = np.diff(odds) > CLOSEST * (odds[-1] - odds[0])
    distinct = odds[np.concatenate([[True], apart])]
    m = min(n_knots, len(distinct))
    return np.asarray(distinct[((np.arange(m) + 0.5) * len(distinct) / m).astype(np.int64)])


def _make_rows(odds: Floats, shares: NDArray[Any], copies: Floats, knots: Floats) -> Rows:
    """Return what the kernels read, from rows in order of their scores, with weights of mean 1."""
    pieces, places = _place(odds, knots)
    first = np.searchsorted(pieces, np.arange(len(knots) + 2), "left")
    weights = np.empty(0) if (copies == 1).all() else copies * (len(odds) / copies.sum())
    return Rows(first, places, shares.astype(np.float64), weights, float(len(odds)))


def _fit_path(
    rows: Rows, maps: Floats, penalties: Floats, starts: list[Floats], tolerance: float
) -> list[Floats]:
    """Return the parameters for each penalty, largest first, started at the last or at its start."""
    fits = starts[:1]
    for i, penalty in enumerate(penalties):
        ridge = np.where(np.arange(maps.shape[2]) < 2, 0.0, penalty)  # a line costs nothing
        start = starts[i] if len(starts) > 1 else fits[-1]
        read = partial(_kernels.splines.read_splines, *rows, maps, ridge)
        fits.append(minimize_newton(read, start, tolerance=tolerance).accept(ADVICE))
    return fits[1:]


def _choose_penalty(
    rows: Rows, copies: Floats, maps: Floats, penalties: Floats, fits: list[Floats]
) -> int:
    """Return the index of the largest penalty whose cross-validated loss is within noise of the best."""
    sums, squares = np.zeros(len(penalties)), np.zeros((len(penalties), len(penalties)))
    unit = rows.total / copies.sum()
    for out in _deal_folds(copies, rows):
        if not (out.any() and (copies - out).any()):
            continue
        test = _take(rows, out * unit)
        fitted = _fit_path(_take(rows, (copies - out) * unit), maps, penalties, fits, CLOSE)
        losses = np.empty((len(fitted), len(test.places)))
        for theta, found in zip(fitted, losses, strict=True):
            _kernels.splines.read_losses(test.first, test.places, test.shares, maps @ theta, found)
        losses -= losses[0]  # paired differences to the largest penalty
        mass = out[out > 0] * unit
        sums += losses @ mass
        squares += (losses * mass) @ losses.T
    means = sums / rows.total
    best = int(means.argmin())
    spread = np.diagonal(squares) - 2 * squares[best] + squares[best, best]
    errors = np.sqrt(np.maximum(spread * unit, 0)) / rows.total  # for as many samples as copies
    return int(np.flatnonzero(means - means[best] <= MARGIN * errors)[0])


def _deal_folds(copies: Floats, rows: Rows) -> Iterator[Floats]:
    """Yield the copies of each row in each fold: ranked rows in turn, equal rows at random."""
    new = np.ones(len(copies), dtype=bool)  # where another score, or another label, begins
    new[1:] = (np.diff(rows.places) != 0) | (np.diff(rows.shares) != 0)
    new[rows.first[rows.first < len(new)]] = True
    pack = np.cumsum(new) - 1
    masses: Floats = np.bincount(pack, copies).astype(np.float64)
    several = masses >= 2
    shares = np.zeros((len(masses), N_FOLDS))
    shares[several] = deal_at_random(masses[several], N_FOLDS) / masses[several, None]
    row = several[pack]
    for share, in_turn in zip(shares.T, deal_in_turn(copies, N_FOLDS, range(N_FOLDS)), strict=True):
        yield np.where(row, copies * share[pack], in_turn)


def _take(rows: Rows, weights: Floats) -> Rows:
    """Return the rows of positive weight, with these weights."""
    kept = np.flatnonzero(weights)
    first = np.searchsorted(kept, rows.first)
    heavy = weights[kept]
    once = bool((heavy == 1).all())
    total = float(heavy.sum())
    return Rows(first, rows.places[kept], rows.shares[kept], heavy[:0] if once else heavy, total)


def _place(odds: Floats, knots: Floats) -> tuple[NDArray[Any], Floats]:
    """Return the piece of each score, and its place within: 0..1 between two knots."""
    pieces = np.searchsorted(knots, odds, "right")
    span = knots[-1] - knots[0] if len(knots) > 1 else 1.0
    left = np.concatenate([knots[:1], knots])
    width = np.concatenate([[span], np.diff(knots), [span]])
    return pieces, (odds - left[pieces]) / width[pieces]
