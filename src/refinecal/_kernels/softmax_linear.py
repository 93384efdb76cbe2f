"""Softmax of scores with classes first: probabilities, losses, curvature; rows to columns and back."""

import math

import numpy as np

from refinecal._kernels.jit import FAST, LOG2_E, jit
from refinecal._kernels.vector import exp2, larger

TILE = 64  # samples at a time
BLOCK_SIZE = 8192  # numbers of a block of samples: 64 kB


@jit(fastmath=FAST)
def softmax_columns(u, labels, weights):  # type: ignore[no-untyped-def]
    """Turn scores (k, n) into weighted probabilities; return the sum of the losses.

    Without labels it is the sum of logsumexp.
    """
    k, n = u.shape
    block = max(16, min(n, BLOCK_SIZE // k))
    kind = u.dtype.type
    scale, floor, zero = kind(LOG2_E), kind(-126 if u.itemsize == 4 else -1022), kind(0)
    top, total = np.empty(block, u.dtype), np.empty(block, u.dtype)
    loss = 0.0
    for start in range(0, n, block):
        stop = min(start + block, n)
        rows = stop - start
        top[:rows] = u[0, start:stop]
        for j in range(1, k):
            part = u[j, start:stop]
            for r in range(rows):
                top[r] = larger(top[r], part[r])  # type: ignore[call-arg]
        for r in range(rows):
            w = np.float64(weights[start + r]) if len(weights) else 1.0
            own = u[labels[start + r], start + r] if len(labels) else zero
            loss += w * (np.float64(top[r]) - np.float64(own))
        total[:] = zero
        for j in range(k):
            part = u[j, start:stop]
            for r in range(rows):
                t = (part[r] - top[r]) * scale
                t = floor if t < floor else t
                e = exp2(t)
                part[r] = e
                total[r] += e
        for r in range(rows):
            w = np.float64(weights[start + r]) if len(weights) else 1.0
            loss += w * math.log(np.float64(total[r]))
            total[r] = kind(w) / total[r]
        for j in range(k):
            part = u[j, start:stop]
            for r in range(rows):
                part[r] *= total[r]
    return loss


@jit(fastmath=FAST)
def curve_columns(p, weights, v):  # type: ignore[no-untyped-def]
    """Turn v (k, n) into w (diag p - p p') v, where ``p`` holds weighted probabilities."""
    k, n = p.shape
    block = max(16, min(n, BLOCK_SIZE // k))
    mean = np.empty(block, v.dtype)
    for start in range(0, n, block):
        stop = min(start + block, n)
        rows = stop - start
        mean[:] = 0
        for j in range(k):
            own, part = p[j, start:stop], v[j, start:stop]
            for r in range(rows):
                mean[r] += own[r] * part[r]
        if len(weights):
            for r in range(rows):
                mean[r] /= weights[start + r]
        for j in range(k):
            own, part = p[j, start:stop], v[j, start:stop]
            for r in range(rows):
                part[r] = own[r] * (part[r] - mean[r])


@jit(fastmath=FAST)
def fill_gaps(z, limit, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` (k, n) with each logit of z (n, k) minus the largest of its row, or -limit."""
    n, k = z.shape
    top = np.empty(TILE)
    for start in range(0, n, TILE):
        rows = min(TILE, n - start)
        for j in range(k):
            for r in range(rows):
                out[j, start + r] = z[start + r, j]
        top[:rows] = out[0, start : start + rows]
        for j in range(1, k):
            part = out[j, start : start + rows]
            for r in range(rows):
                top[r] = larger(top[r], part[r])  # type: ignore[call-arg]
        for j in range(k):
            part = out[j, start : start + rows]
            for r in range(rows):
                gap = part[r] - top[r]
                part[r] = gap if gap > -limit else -limit


@jit(fastmath=FAST)
def fill_logs(u, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` (n, k) with u (k, n) minus the logarithm of the sum of its exponentials."""
    k, n = u.shape
    top, total = np.empty(TILE), np.empty(TILE)
    for start in range(0, n, TILE):
        rows = min(TILE, n - start)
        top[:rows] = u[0, start : start + rows]
        for j in range(1, k):
            part = u[j, start : start + rows]
            for r in range(rows):
                top[r] = larger(top[r], part[r])  # type: ignore[call-arg]
        total[:] = 0.0
        for j in range(k):
            part = u[j, start : start + rows]
            for r in range(rows):
                t = (part[r] - top[r]) * LOG2_E
                t = -1022.0 if t < -1022.0 else t
                e = exp2(t)  # on a separate line: else the loop is not vectorized
                total[r] += e
        for j in range(k):
            for r in range(rows):
                out[start + r, j] = u[j, start + r] - top[r]
        for r in range(rows):
            log = math.log(total[r])
            for j in range(k):  # apart from the above: u may be so large that this is lost
                out[start + r, j] -= log
