"""Spline calibration: a smooth curve on the log-odds, as stiff as unseen rows ask for."""

import numbers
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import Sample
from refinecal.calibrators._dealing import at_random
from refinecal.calibrators._features import gap_limit, log_odds, settled
from refinecal.calibrators._two_classes import shares_of, two_classes
from refinecal.calibrators.base import Calibrator
from refinecal.calibrators.binning import rank

if TYPE_CHECKING:
    from refinecal.calibrators._curves import Curve
    from refinecal.calibrators._pieces import Rows

Floats = NDArray[np.float64]
PENALTIES = 10.0 ** np.arange(
    1.0, -9, -1
)  # from a line to as good as free; half steps gain nothing
PER_KNOT = 10  # samples for each knot beyond the two of a line
N_FOLDS = 5
EXACT, CLOSE = 1e-12, 1e-9  # Newton decrements of the fit, and of those that only compare penalties
MARGIN = (
    0.5  # standard errors that a looser curve must gain: fewer did worse in simulations, and more
)
CLOSEST = 1e-9  # of the range: knots that are closer have no piece of curve between them


class SplineCalibration(Calibrator):
    r"""Calibrate two classes by a natural cubic spline f on the log-odds x of class 1.

    .. math:: g(p) = \sigma(f(x)), \quad f = \arg\min \frac1n \sum_i \ell(\sigma(f(x_i)), y_i)
              + \frac\lambda2 \int f''(x)^2 dx,

    with x scaled so that the knots reach from 0 to 1. Five-fold cross-validation chooses :math:`\lambda`: the
    largest whose log loss is within half a standard error of the best. Beyond the outer knots f is straight,
    and a large :math:`\lambda` leaves nothing but affine scaling. f need not increase.

    Parameters
    ----------
    n_knots : int, default 20
        Knots, at quantiles of the distinct scores; fewer if there are fewer scores, or less than ten samples
        for each knot beyond the two of a line.
    penalty : float, optional
        The strength :math:`\lambda`; chosen by cross-validation if not given.
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
        sample = two_classes(sample, "spline calibration", "spline")
        n_knots, penalties = self._checked()
        self.limit_ = gap_limit(sample)
        odds = settled(log_odds(sample.logits, self.limit_))
        shares = shares_of(sample)
        order = rank(odds, shares)  # which decides the folds
        self.knots_ = _choose_knots(odds[order], min(n_knots, 2 + int(sample.total / PER_KNOT)))
        copies = np.ones(sample.n) if sample.weights is None else sample.weights[order]
        rows = _in_order(odds[order], shares[order], copies, self.knots_)
        self._search(rows, copies, penalties if len(self.knots_) > 2 else penalties[:1])

    def _search(self, rows: "Rows", copies: Floats, penalties: Floats) -> None:
        """Fit with each penalty, and keep the one that rows left out ask for."""
        from refinecal.calibrators._pieces import spline_maps

        maps = spline_maps(self.knots_)
        fits = _path(rows, maps, penalties, [np.zeros(len(self.knots_))], EXACT)
        best = _stiffest(rows, copies, maps, penalties, fits) if len(penalties) > 1 else 0
        self.penalty_, self.pieces_ = float(penalties[best]), maps @ fits[best]

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

    def _curve(self) -> "Curve":
        from refinecal.calibrators._curves import Curve

        return Curve(self.knots_, self.pieces_, limit=self.limit_)

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        if self.pieces_.shape != (len(self.knots_) + 1, 4):  # in a damaged file
            raise ValueError("pieces_ must have one row more than knots_, of four numbers")
        pieces, u = _place(log_odds(logits, self.limit_), self.knots_)
        c0, c1, c2, c3 = self.pieces_.T[:, pieces]
        inside = np.where((pieces > 0) & (pieces < len(self.knots_)), u, 0.0)
        odds = c0 + c1 * u + inside**2 * (c2 + c3 * inside)
        return np.stack([-np.logaddexp(0, odds), -np.logaddexp(0, -odds)], axis=1)


def _choose_knots(odds: Floats, n_knots: int) -> Floats:
    """Return scores in the middle of equally many distinct ones each; so tails have half as many."""
    apart = np.diff(odds) > CLOSEST * (odds[-1] - odds[0])
    distinct = odds[np.concatenate([[True], apart])]
    m = min(n_knots, len(distinct))
    return np.asarray(distinct[((np.arange(m) + 0.5) * len(distinct) / m).astype(np.int64)])


def _in_order(odds: Floats, shares: NDArray[Any], copies: Floats, knots: Floats) -> "Rows":
    """Return what the kernels read, from rows in order of their scores; the weights have the mean 1."""
    from refinecal.calibrators._pieces import Rows

    pieces, places = _place(odds, knots)
    first = np.searchsorted(pieces, np.arange(len(knots) + 2), "left")
    weights = np.empty(0) if (copies == 1).all() else copies * (len(odds) / copies.sum())
    return Rows(first, places, shares.astype(np.float64), weights, float(len(odds)))


def _path(
    rows: "Rows", maps: Floats, penalties: Floats, starts: list[Floats], tolerance: float
) -> list[Floats]:
    """Return the parameters for each penalty, from stiff to loose, found from the last or from its start."""
    from refinecal.calibrators._newton import Advice, minimise
    from refinecal.calibrators._pieces import mean_loss

    advice = Advice("spline calibration", "set penalty, say to 1e-3, or lower n_knots")
    fits = starts[:1]
    for i, penalty in enumerate(penalties):
        ridge = np.where(np.arange(maps.shape[2]) < 2, 0.0, penalty)  # a line costs nothing
        start = starts[i] if len(starts) > 1 else fits[-1]
        found = minimise(partial(mean_loss, rows, maps, ridge), start, tolerance=tolerance)
        fits.append(found.said(advice))
    return fits[1:]


def _stiffest(
    rows: "Rows", copies: Floats, maps: Floats, penalties: Floats, fits: list[Floats]
) -> int:
    """Return which penalty is the largest that does as well as the best on rows left out, within noise."""
    from refinecal.calibrators._pieces import row_losses, take

    sums, squares = np.zeros(len(penalties)), np.zeros((len(penalties), len(penalties)))
    unit = rows.total / copies.sum()
    for out in _folds(copies, rows):
        if not (out.any() and (copies - out).any()):
            continue
        test = take(rows, out * unit)
        fitted = _path(take(rows, (copies - out) * unit), maps, penalties, fits, CLOSE)
        losses = np.array([row_losses(test, maps @ theta) for theta in fitted])
        losses -= losses[0]  # in pairs: what each gains over the stiffest
        mass = out[out > 0] * unit
        sums += losses @ mass
        squares += (losses * mass) @ losses.T
    means = sums / rows.total
    best = int(means.argmin())
    spread = np.diagonal(squares) - 2 * squares[best] + squares[best, best]
    errors = (
        np.sqrt(np.maximum(spread * unit, 0)) / rows.total
    )  # of as many samples as there are copies
    return int(np.flatnonzero(means - means[best] <= MARGIN * errors)[0])


def _folds(copies: Floats, rows: "Rows") -> Iterator[Floats]:
    """Deal ranked rows to the folds in turn, copies at random: how many of each row are in each fold."""
    ends = np.concatenate([[0.0], np.cumsum(copies)])
    rounds, rest = np.divmod(ends, N_FOLDS)
    new = np.ones(len(copies), dtype=bool)  # where another score, or another label, begins
    new[1:] = (np.diff(rows.places) != 0) | (np.diff(rows.shares) != 0)
    new[rows.first[rows.first < len(new)]] = True
    pack = np.cumsum(new) - 1
    masses: Floats = np.bincount(pack, copies).astype(np.float64)
    several = masses >= 2
    shares = at_random(masses[several], N_FOLDS) / masses[several, None]
    row = several[pack]
    for fold in range(N_FOLDS):
        out = np.minimum(np.diff(rounds + np.clip(rest - fold, 0, 1)), copies)
        of_pack = np.zeros(len(masses))
        of_pack[several] = shares[:, fold]
        yield np.where(row, copies * of_pack[pack], out)


def _place(odds: Floats, knots: Floats) -> tuple[NDArray[Any], Floats]:
    """Return the piece of each score, and its place within: 0..1 between two knots."""
    pieces = np.searchsorted(knots, odds, "right")
    span = knots[-1] - knots[0] if len(knots) > 1 else 1.0
    left = np.concatenate([knots[:1], knots])
    width = np.concatenate([[span], np.diff(knots), [span]])
    return pieces, (odds - left[pieces]) / width[pieces]
