r"""Binary logistic regression on a few features, by Newton with loss, gradient and Hessian in one read.

With :math:`m_i = x_i \cdot \theta + o_i` and the share :math:`s_i` of class 1, row i has the loss
:math:`\log(1 + e^{-|m|}) + \max(m, 0) - s m`, the residual :math:`\sigma(m) - s` and the weight
:math:`\sigma(m) \sigma(-m)` in the Hessian: one exponential per row.
"""

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._kernels import FAST, LOG2_E, _inlined, _jit
from refinecal._vector import exp2
from refinecal.calibrators._features import NOTHING, even_weights
from refinecal.calibrators._newton import Advice, minimise

BLOCK = (
    256  # rows at a time: 2**256 does not overflow, and a block of a few features stays in cache
)


ADVICE = Advice("logistic regression", "raise the ridge penalty")
NEARLY = 1e-4  # squared: a combination of features that is this small needs coordinates of its own
STIFF = (
    1e14  # of the curvature of the data: a penalty that leaves less than 1e-14 of the loss to gain
)
STRONGEST = 1e30  # a penalty as good as infinite
SMALLEST = 1e-305  # of a feature that is not 0: its coefficient stays finite
FLAT = 1e-13  # of the largest singular value: rounding


def fit_logistic(
    features: NDArray[np.float64],
    shares: NDArray[Any],
    weights: NDArray[np.float64] | None = None,
    *,
    ridge: NDArray[np.float64] | None = None,
    centre: NDArray[np.float64] | None = None,
    offset: NDArray[np.float64] | None = None,
    advice: Advice = ADVICE,
) -> NDArray[np.float64]:
    """Return the coefficients with the smallest mean log loss, to a squared decrement of 1e-12.

    Parameters
    ----------
    features : ndarray of shape (n, d)
        Finite; a column of ones is the intercept.
    shares : ndarray of shape (n,)
        The share of class 1 in 0..1: hard or soft labels.
    weights : ndarray of shape (n,), optional
        How often each row counts.
    ridge : ndarray of shape (d,) or (d, d), optional
        Adds ``0.5 * (theta - centre) @ R @ (theta - centre)`` to the mean loss.
    centre : ndarray of shape (d,), optional
        Where the penalty pulls; else to 0.
    offset : ndarray of shape (n,), optional
        Added to the log-odds.
    advice : Advice
        What a warning says should the fit not converge.
    """
    n, d = features.shape
    scale = np.abs(features).max(axis=0)
    scale[scale < SMALLEST] = 1.0
    columns = np.empty((d, n))
    np.divide(features.T, scale[:, None], out=columns)  # largest 1: no square can overflow
    target = np.ascontiguousarray(shares, dtype=np.float64)
    heavy = even_weights(weights)
    shift = NOTHING if offset is None else np.ascontiguousarray(offset, dtype=np.float64)
    penalty = _scaled(np.zeros(d) if ridge is None else ridge, scale)
    middle = np.zeros(d) if centre is None else centre * scale
    basis, rest = np.eye(d), np.zeros(d)
    if _are_nearly_dependent(columns):
        basis = well_scaled(columns.T / (2 * n**0.5), penalty)
        middle, given = np.linalg.lstsq(basis, middle)[0], middle
        rest = np.where(basis.any(axis=1), 0.0, given)  # of parameters that stay where they are
        shift = rest @ columns + (shift if len(shift) else 0.0)
        columns, penalty = basis.T @ columns, basis.T @ penalty @ basis

    given = (
        np.ascontiguousarray(part) for part in (columns, target, heavy, shift, penalty, middle)
    )
    found = minimise(partial(read_logistic, *given), np.zeros(basis.shape[1])).said(advice)
    return np.asarray((rest + basis @ found) / scale)


def _scaled(ridge: NDArray[Any], scale: NDArray[Any]) -> NDArray[Any]:
    """Return the penalty as a matrix, of coefficients that are ``scale`` times as large."""
    if np.ndim(ridge) == 2:
        return np.asarray(ridge / scale[:, None] / scale)
    with np.errstate(over="ignore"):
        return np.diag(np.minimum(ridge / scale / scale, STRONGEST))


def _are_nearly_dependent(columns: NDArray[Any]) -> bool:
    """Tell whether a combination of features, each divided by its size, is small."""
    second = columns @ columns.T
    size = np.sqrt(np.diagonal(second))
    size[size == 0] = 1.0
    return bool(np.linalg.eigvalsh(second / size[:, None] / size)[0] < NEARLY)


def triangle(data: NDArray[Any]) -> NDArray[np.float64]:
    """Return the triangular factor R of a matrix, with R'R = D'D but no loss of precision."""
    found: Any = np.linalg.qr(data, mode="r")
    return np.asarray(found)


def well_scaled(data: NDArray[Any], penalty: NDArray[Any]) -> NDArray[Any]:
    r"""Return directions in which :math:`D^\top D + P` is 1, but for those that rounding hides.

    The singular vectors of D and a root of P over each other, divided by their singular values: so directions
    are told apart whose curvatures, the squares, differ by more than the precision of a Hessian. A parameter
    whose penalty leaves nothing to gain is in none of them.
    """
    data = triangle(data) if len(data) > data.shape[1] else data
    kept = np.flatnonzero(np.diagonal(penalty) <= STIFF * (data**2).sum(axis=0).max())
    kept = kept if kept.size else np.arange(len(penalty))
    values, vectors = np.linalg.eigh(penalty[np.ix_(kept, kept)])
    roots = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
    _, sizes, turned = np.linalg.svd(np.concatenate([data[:, kept], roots]), full_matrices=False)
    felt = sizes > FLAT * sizes[0]
    basis = np.zeros((data.shape[1], int(felt.sum())))
    basis[kept] = turned[felt].T / sizes[felt]
    return basis


@_jit(fastmath=FAST)
def read_logistic(x, shares, weights, offset, penalty, middle, theta):  # type: ignore[no-untyped-def]
    """Return the mean loss with its penalty, the gradient and the Hessian. x has one row per feature."""
    d, n = x.shape
    gradient, hessian = np.zeros(d), np.zeros((d, d))
    margin, rest = np.empty(BLOCK), np.empty(BLOCK)
    residual, curve = np.empty(BLOCK), np.empty(BLOCK)
    loss = 0.0
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        own, heavy = shares[start:stop], weights[start:stop]
        _margins(x, start, stop, offset[start:stop], theta, margin)
        loss += _losses(margin, own, heavy, rest, residual, curve)
        _gather(x, start, stop, residual, curve, margin, gradient, hessian)
    loss /= n
    for j in range(d):
        pull = 0.0
        for i in range(d):
            pull += penalty[j, i] * (theta[i] - middle[i])
        loss += 0.5 * pull * (theta[j] - middle[j])
        gradient[j] = gradient[j] / n + pull
        for i in range(j + 1):
            hessian[i, j] = hessian[i, j] / n + penalty[i, j]
            hessian[j, i] = hessian[i, j]
    return loss, gradient, hessian


@_inlined(fastmath=FAST)
def _margins(x, start, stop, offset, theta, margin):  # type: ignore[no-untyped-def]
    """Fill the log-odds of each row."""
    margin[:] = 0.0
    for r in range(len(offset)):
        margin[r] = offset[r]
    for j in range(len(x)):
        column = x[j, start:stop]
        for r in range(len(column)):
            margin[r] += theta[j] * column[r]


@_inlined(fastmath=FAST)
def _spread(margin, shares, rest, residual, curve):  # type: ignore[no-untyped-def]
    """Fill 1 + exp(-|m|), residual and curvature of each row; return the sum of max(m, 0) - s m."""
    loss = 0.0
    for r in range(len(shares)):
        m, share = margin[r], shares[r]
        t = -abs(m) * LOG2_E
        e = exp2(-1022.0 if t < -1022.0 else t)
        q = 1.0 / (1.0 + e)
        up = q if m > 0 else e * q  # sigma(m)
        down = e * q if m > 0 else q
        rest[r] = 1.0 + e
        residual[r] = up * (1.0 - share) - down * share  # no cancellation for hard labels
        curve[r] = up * down
        loss += (m if m > 0 else 0.0) - share * m
    return loss


@_inlined(fastmath=FAST)
def _losses(margin, shares, weights, rest, residual, curve):  # type: ignore[no-untyped-def]
    """Return the sum of the losses of a block, and fill its residuals and curvatures."""
    loss = _spread(margin, shares, rest, residual, curve)
    if len(weights):
        return _weigh(margin, shares, weights, rest, residual, curve)
    product = 1.0  # one logarithm for the block
    for r in range(len(shares)):
        product *= rest[r]
    return loss + math.log(product)


@_inlined(fastmath=FAST)
def _weigh(margin, shares, weights, rest, residual, curve):  # type: ignore[no-untyped-def]
    """Let residual and curvature count as often as the weight says; return the sum of the losses."""
    loss = 0.0
    for r in range(len(shares)):
        w, m = weights[r], margin[r]
        loss += w * (math.log(rest[r]) + (m if m > 0 else 0.0) - shares[r] * m)
        residual[r] *= w
        curve[r] *= w
    return loss


@_inlined(fastmath=FAST)
def _gather(x, start, stop, residual, curve, bent, gradient, hessian):  # type: ignore[no-untyped-def]
    """Add a block's part to the gradient and to the upper half of the Hessian."""
    for j in range(len(x)):
        column = x[j, start:stop]
        slope = 0.0
        for r in range(len(column)):
            slope += residual[r] * column[r]
            bent[r] = curve[r] * column[r]
        gradient[j] += slope
        for i in range(j + 1):
            other = x[i, start:stop]
            bend = 0.0
            for r in range(len(other)):
                bend += bent[r] * other[r]
            hessian[i, j] += bend
