"""Rows of logits as columns, and back: with classes first, every loop runs over samples."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._kernels import FAST, LOG2_E, _jit
from refinecal._vector import exp2, larger

TILE = 64  # samples at a time

Array = NDArray[np.float64]


def gap_columns(logits: NDArray[Any], limit: float) -> Array:
    """Return finite gaps, as ``_features.finite_gaps`` does, but as (k, n)."""
    columns = np.empty(logits.shape[::-1])
    fill_gaps(logits, limit, columns)
    return columns


def centred_columns(logits: NDArray[Any], limit: float) -> Array:
    """Return finite logits (k, n) that sum to 0 over the classes."""
    gaps = gap_columns(logits, limit)
    gaps -= gaps.mean(axis=0)
    return gaps


def log_softmax_rows(scores: Array) -> Array:
    """Return the logarithms of softmax of scores (k, n), as (n, k)."""
    logs = np.empty(scores.shape[::-1])
    fill_logs(scores, logs)
    return logs


def normalise(gaps: Array) -> Array:
    """Turn finite gaps (k, n) into log-probabilities, in place."""
    gaps -= np.log(np.exp(gaps).sum(axis=0))
    return gaps


def smooth(gaps: Array, beta: float, n: float) -> Array:
    """Turn gaps (k, n) into log(n / (n + 1) * softmax(beta * gaps) + 1 / (n + 1) / k), in place."""
    gaps *= beta
    probs = np.exp(gaps, out=gaps)
    probs *= (n / (n + 1)) / probs.sum(axis=0)
    probs += 1 / ((n + 1) * len(gaps))
    return np.asarray(np.log(probs, out=probs))


@_jit(fastmath=FAST)
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


@_jit(fastmath=FAST)
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
                e = exp2(t)  # on a line of its own: else the loop does not become vector code
                total[r] += e
        for j in range(k):
            for r in range(rows):
                out[start + r, j] = u[j, start + r] - top[r]
        for r in range(rows):
            log = math.log(total[r])
            for j in range(k):  # apart from the above: u may be so large that this is lost
                out[start + r, j] -= log
