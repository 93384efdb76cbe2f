r"""Binary logistic regression on a few features, by Newton with loss, gradient and Hessian in one read.

With :math:`m_i = x_i \cdot \theta + o_i` and the share :math:`s_i` of class 1, row i has the loss
:math:`\log(1 + e^{-|m|}) + \max(m, 0) - s m`, the residual :math:`\sigma(m) - s` and the weight
:math:`\sigma(m) \sigma(-m)` in the Hessian: one exponential per row.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._kernels import FAST, LOG2_E, _jit
from refinecal._vector import exp2
from refinecal.calibrators._newton import minimise

BLOCK = (
    256  # rows at a time: 2**256 does not overflow, and a block of a few features stays in cache
)
NOTHING = np.empty(0)


def fit_logistic(
    features: NDArray[np.float64],
    shares: NDArray[Any],
    weights: NDArray[np.float64] | None = None,
    *,
    ridge: NDArray[np.float64] | None = None,
    offset: NDArray[np.float64] | None = None,
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
        Adds ``0.5 * theta @ R @ theta`` to the mean loss.
    offset : ndarray of shape (n,), optional
        Added to the log-odds.
    """
    n, d = features.shape
    scale = np.abs(features).max(axis=0)
    scale[scale == 0] = 1.0
    columns = np.empty((d, n))
    np.divide(features.T, scale[:, None], out=columns)  # largest 1: no square can overflow
    target = np.ascontiguousarray(shares, dtype=np.float64)
    heavy = NOTHING if weights is None else weights
    shift = NOTHING if offset is None else np.ascontiguousarray(offset, dtype=np.float64)
    penalty = np.zeros((d, d)) if ridge is None else np.asarray(ridge, dtype=np.float64)
    penalty = np.diag(penalty) if penalty.ndim == 1 else penalty
    penalty = penalty / scale[:, None] / scale
    total = float(n) if weights is None else float(weights.sum())

    def mean_loss(theta: NDArray[Any]) -> tuple[float, NDArray[Any], NDArray[Any]]:
        gradient, hessian = np.zeros(d), np.zeros((d, d))
        loss = read_logistic(columns, target, heavy, shift, theta, gradient, hessian)
        pull = penalty @ theta
        return (
            loss / total + 0.5 * float(theta @ pull),
            gradient / total + pull,
            hessian / total + penalty,
        )

    return np.asarray(minimise(mean_loss, np.zeros(d)).x / scale)


@_jit(fastmath=FAST)
def read_logistic(x, shares, weights, offset, theta, gradient, hessian):  # type: ignore[no-untyped-def]
    """Return the sum of the losses; add theirs to gradient and Hessian. x has one row per feature."""
    n = x.shape[1]
    margin, rest = np.empty(BLOCK), np.empty(BLOCK)
    residual, curve = np.empty(BLOCK), np.empty(BLOCK)
    loss = 0.0
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        own, heavy = shares[start:stop], weights[start:stop]
        _margins(x, start, stop, offset[start:stop], theta, margin)
        loss += _spread(margin, own, rest, residual, curve)
        if len(weights):
            loss += _weigh(margin, own, heavy, rest, residual, curve)
        else:
            product = 1.0
            for r in range(stop - start):
                product *= rest[r]
            loss += math.log(product)
        _gather(x, start, stop, residual, curve, margin, gradient, hessian)
    for j in range(len(x)):
        for i in range(j):
            hessian[j, i] = hessian[i, j]
    return loss


@_jit(fastmath=FAST)
def _margins(x, start, stop, offset, theta, margin):  # type: ignore[no-untyped-def]
    """Fill the log-odds of each row."""
    margin[:] = 0.0
    for r in range(len(offset)):
        margin[r] = offset[r]
    for j in range(len(x)):
        column = x[j, start:stop]
        for r in range(len(column)):
            margin[r] += theta[j] * column[r]


@_jit(fastmath=FAST)
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


@_jit(fastmath=FAST)
def _weigh(margin, shares, weights, rest, residual, curve):  # type: ignore[no-untyped-def]
    """Let residual and curvature count as often as the weight says; return what that adds to the loss."""
    loss = 0.0
    for r in range(len(shares)):
        w, m = weights[r], margin[r]
        loss += w * math.log(rest[r]) + (w - 1.0) * ((m if m > 0 else 0.0) - shares[r] * m)
        residual[r] *= w
        curve[r] *= w
    return loss


@_jit(fastmath=FAST)
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
