"""Logistic regression on cubic pieces: sums of powers in each piece, for any number of knots."""

import math

import numpy as np

from refinecal._kernels.jit import FAST, inline, jit
from refinecal._kernels.logistic import BLOCK, add_losses, spread_margins


@jit(fastmath=FAST)
def read_splines(first, places, shares, weights, total, maps, ridge, theta):  # type: ignore[no-untyped-def]
    n_pieces, _, m = maps.shape
    pieces, slopes = np.zeros((n_pieces, 4)), np.zeros((n_pieces, 4))
    bends = np.zeros((n_pieces, 7))
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


@inline(fastmath=FAST)
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
            loss += add_losses(margin, share, weight, rest, residual, curve)
            _add_powers(u, residual, slopes[piece], 2 if tail else 4)
            _add_powers(u, curve, bends[piece], 3 if tail else 7)
    return loss


@jit(fastmath=FAST)
def read_losses(first, places, shares, pieces, out):  # type: ignore[no-untyped-def]
    """Fill the loss of each row."""
    margin, rest = np.empty(BLOCK), np.empty(BLOCK)
    residual, curve = np.empty(BLOCK), np.empty(BLOCK)
    for piece in range(len(pieces)):
        tail = piece == 0 or piece == len(pieces) - 1
        for start in range(first[piece], first[piece + 1], BLOCK):
            stop = min(start + BLOCK, first[piece + 1])
            _polynomial(places[start:stop], pieces[piece], 2 if tail else 4, margin)
            spread_margins(margin, shares[start:stop], rest, residual, curve)
            for r in range(stop - start):
                m = margin[r]
                out[start + r] = math.log(rest[r]) + (m if m > 0 else 0.0) - shares[start + r] * m


@inline(fastmath=FAST)
def _polynomial(u, coefficients, n_powers, out):  # type: ignore[no-untyped-def]
    """Fill the values at u of a polynomial, the coefficient of the lowest power first."""
    out[:] = coefficients[n_powers - 1]
    for power in range(n_powers - 2, -1, -1):
        coefficient = coefficients[power]
        for r in range(len(u)):
            out[r] = out[r] * u[r] + coefficient


@inline(fastmath=FAST)
def _add_powers(u, values, sums, n_powers):  # type: ignore[no-untyped-def]
    """Add the sums of the values times 1, u, u**2 ...; the values are lost."""
    for power in range(n_powers):
        total = 0.0
        for r in range(len(u)):
            total += values[r]
            values[r] *= u[r]
        sums[power] += total
