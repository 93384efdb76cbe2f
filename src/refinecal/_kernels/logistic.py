"""Logistic regression: the mean loss with its gradient and its Hessian, in one read."""

import math

import numpy as np

from refinecal._kernels.jit import FAST, LOG2_E, inline, jit
from refinecal._kernels.vector import exp2

BLOCK = 256  # rows at a time: 2**256 does not overflow, and a few features stay in cache


@jit(fastmath=FAST)
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
        loss += add_losses(margin, own, heavy, rest, residual, curve)
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


@inline(fastmath=FAST)
def _margins(x, start, stop, offset, theta, margin):  # type: ignore[no-untyped-def]
    """Fill the log-odds of each row."""
    margin[:] = 0.0
    for r in range(len(offset)):
        margin[r] = offset[r]
    for j in range(len(x)):
        column = x[j, start:stop]
        for r in range(len(column)):
            margin[r] += theta[j] * column[r]


@inline(fastmath=FAST)
def spread_margins(margin, shares, rest, residual, curve):  # type: ignore[no-untyped-def]
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


@inline(fastmath=FAST)
def add_losses(margin, shares, weights, rest, residual, curve):  # type: ignore[no-untyped-def]
    """Return the sum of the losses of a block, and fill its residuals and curvatures."""
    loss = spread_margins(margin, shares, rest, residual, curve)
    if len(weights):
        return _weigh(margin, shares, weights, rest, residual, curve)
    product = 1.0  # one logarithm for the block
    for r in range(len(shares)):
        product *= rest[r]
    return loss + math.log(product)


@inline(fastmath=FAST)
def _weigh(margin, shares, weights, rest, residual, curve):  # type: ignore[no-untyped-def]
    """Let residual and curvature count as often as the weight says; return the sum of the losses."""
    loss = 0.0
    for r in range(len(shares)):
        w, m = weights[r], margin[r]
        loss += w * (math.log(rest[r]) + (m if m > 0 else 0.0) - shares[r] * m)
        residual[r] *= w
        curve[r] *= w
    return loss


@inline(fastmath=FAST)
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
