r"""Natural cubic splines as pieces, and the log loss of logistic regression on them in one read.

With knots :math:`t_1 < \dots < t_m`, the piece of x is one of the m - 1 intervals or of the two tails, and
:math:`f(x) = c_0 + c_1 u + c_2 u^2 + c_3 u^3` with u the place within the piece; tails are straight. The
coefficients c of a piece are linear in the m parameters of the spline, ``c = maps[piece] @ theta``, so that
gradient and Hessian need only sums of powers of u in each piece, whatever the number of knots.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal._kernels import FAST, _inlined, _jit
from refinecal.calibrators._logistic import BLOCK, _losses, _spread

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
    value, gradient, hessian = _mean_loss(*rows, maps, ridge, theta)
    return value, gradient, hessian


@_jit(fastmath=FAST)
def _mean_loss(first, places, shares, weights, total, maps, ridge, theta):  # type: ignore[no-untyped-def]
    n_pieces, _, m = maps.shape
    pieces, slopes, bends = (
        np.zeros((n_pieces, 4)),
        np.zeros((n_pieces, 4)),
        np.zeros((n_pieces, 7)),
    )
    for piece in range(n_pieces):
        for power in range(4):
            for i in range(m):
                pieces[piece, power] += maps[piece, power, i] * theta[i]
    value = _read_pieces(first, places, shares, weights, pieces, slopes, bends) / total
    gradient, hessian, bent = np.zeros(m), np.zeros((m, m)), np.empty((4, m))
    for piece in range(n_pieces):
        own, slope, bend = maps[piece], slopes[piece], bends[piece]
        for power in range(4):
            for i in range(m):
                gradient[i] += own[power, i] * slope[power]
                low = bend[power] * own[0, i] + bend[power + 1] * own[1, i]
                bent[power, i] = low + bend[power + 2] * own[2, i] + bend[power + 3] * own[3, i]
        for i in range(m):
            a, b, c, d, row = own[0, i], own[1, i], own[2, i], own[3, i], hessian[i]
            for j in range(i + 1):
                row[j] += a * bent[0, j] + b * bent[1, j] + c * bent[2, j] + d * bent[3, j]
    for i in range(m):
        pull = ridge[i] * theta[i]
        value += 0.5 * theta[i] * pull
        gradient[i] = gradient[i] / total + pull
        for j in range(i + 1):
            hessian[i, j] = hessian[i, j] / total + (ridge[i] if i == j else 0.0)
            hessian[j, i] = hessian[i, j]
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


@_inlined(fastmath=FAST)
def _read_pieces(first, places, shares, weights, pieces, slopes, bends):  # type: ignore[no-untyped-def]
    """Return the sum of the losses; add residuals and curvatures times powers of u, piece by piece."""
    margin, rest = np.empty(BLOCK), np.empty(BLOCK)
    residual, curve = np.empty(BLOCK), np.empty(BLOCK)
    loss = 0.0
    for piece in range(len(pieces)):
        tail = piece == 0 or piece == len(pieces) - 1  # where u may be large, and powers overflow
        for start in range(first[piece], first[piece + 1], BLOCK):
            stop = min(start + BLOCK, first[piece + 1])
            u, share, weight = places[start:stop], shares[start:stop], weights[start:stop]
            _polynomial(u, pieces[piece], 2 if tail else 4, margin)
            loss += _losses(margin, share, weight, rest, residual, curve)
            _add_powers(u, residual, slopes[piece], 2 if tail else 4)
            _add_powers(u, curve, bends[piece], 3 if tail else 7)
    return loss


@_jit(fastmath=FAST)
def read_losses(first, places, shares, pieces, out):  # type: ignore[no-untyped-def]
    """Fill the loss of each row."""
    margin, rest = np.empty(BLOCK), np.empty(BLOCK)
    residual, curve = np.empty(BLOCK), np.empty(BLOCK)
    for piece in range(len(pieces)):
        tail = piece == 0 or piece == len(pieces) - 1
        for start in range(first[piece], first[piece + 1], BLOCK):
            stop = min(start + BLOCK, first[piece + 1])
            _polynomial(places[start:stop], pieces[piece], 2 if tail else 4, margin)
            _spread(margin, shares[start:stop], rest, residual, curve)
            for r in range(stop - start):
                m = margin[r]
                out[start + r] = math.log(rest[r]) + (m if m > 0 else 0.0) - shares[start + r] * m


@_inlined(fastmath=FAST)
def _polynomial(u, coefficients, n_powers, out):  # type: ignore[no-untyped-def]
    """Fill the values at u of a polynomial, the coefficient of the lowest power first."""
    out[:] = coefficients[n_powers - 1]
    for power in range(n_powers - 2, -1, -1):
        coefficient = coefficients[power]
        for r in range(len(u)):
            out[r] = out[r] * u[r] + coefficient


@_inlined(fastmath=FAST)
def _add_powers(u, values, sums, n_powers):  # type: ignore[no-untyped-def]
    """Add the sums of the values times 1, u, u**2 ...; the values are lost."""
    for power in range(n_powers):
        total = 0.0
        for r in range(len(u)):
            total += values[r]
            values[r] *= u[r]
        sums[power] += total
