r"""Natural cubic splines as pieces, and the log loss of logistic regression on them in one read.

With knots :math:`t_1 < \dots < t_m`, the piece of x is one of the m - 1 intervals or of the two tails, and
:math:`f(x) = c_0 + c_1 u + c_2 u^2 + c_3 u^3` with u the place within the piece; tails are straight. The
coefficients c of a piece are linear in the m parameters of the spline, ``c = maps[piece] @ theta``, so that
gradient and Hessian need only sums of powers of u in each piece, whatever the number of knots.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal._kernels.splines import read_losses, read_splines

Floats = NDArray[np.float64]


class Rows(NamedTuple):
    """Rows in order of their scores: ``first[j]`` to ``first[j + 1]`` are in piece j."""

    first: NDArray[np.int64]
    places: Floats  # u of each row
    shares: Floats  # of class 1
    weights: Floats  # empty if every row counts once
    total: float


def spline_maps(knots: Floats) -> Floats:
    r"""Return the matrices (m + 1, 4, m) from the parameters of a spline to the pieces.

    The first two parameters are the height and the rise of a line over the knots. The others bend it:
    the second derivatives inside are :math:`\gamma = L^{-\top} \theta`, where :math:`R = L L^\top` and
    :math:`\gamma^\top R \gamma = \int f''^2`, so that the squares of these parameters sum to that integral
    (x running from 0 to 1 between the outer knots). They leave f at the outer knots as it is.
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


def mean_loss(
    rows: Rows, maps: Floats, ridge: Floats, theta: Floats
) -> tuple[float, Floats, Floats]:
    """Return the mean log loss plus half the penalty, its gradient and its Hessian."""
    value, gradient, hessian = read_splines(*rows, maps, ridge, theta)
    return value, gradient, hessian


def row_losses(rows: Rows, pieces: Floats) -> Floats:
    """Return the log loss of each row."""
    losses = np.empty(len(rows.places))
    read_losses(rows.first, rows.places, rows.shares, pieces, losses)
    return losses


def take(rows: Rows, weights: Floats) -> Rows:
    """Return the rows of positive weight, each counted as often as that says."""
    kept = np.flatnonzero(weights)
    first = np.searchsorted(kept, rows.first)
    heavy = weights[kept]
    once = bool((heavy == 1).all())
    total = float(heavy.sum())
    return Rows(first, rows.places[kept], rows.shares[kept], heavy[:0] if once else heavy, total)
