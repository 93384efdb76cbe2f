"""Fused loops of the metrics: one read of the probabilities."""

import math

import numpy as np

from refinecal._kernels.jit import FAST, LOG2_E, inline, jit
from refinecal._kernels.rows import SMALL
from refinecal._kernels.vector import PAD, TILE, WIDE, column_maxima, exp2, row_maximum, transpose

LOWEST = -1022.0  # exponent of the smallest number


@jit(fastmath=FAST)
def check_rows(probs, tolerance, sums):  # type: ignore[no-untyped-def]
    """Fill in the sum of each row; return whether all rows are probabilities. NaN is none."""
    n, k = probs.shape
    wrong = 0
    for i in range(n):
        total, low = 0.0, 0.0
        for j in range(k):
            p = probs[i, j]
            total += p
            low = p if p < low else low
        sums[i] = total
        wrong |= low < 0
    for i in range(n):
        wrong |= not abs(sums[i] - 1) <= tolerance
        if sums[i] > 1 + 1e-6:  # else none of the row can be above
            for j in range(k):
                wrong |= probs[i, j] > 1 + 1e-6
    return wrong == 0


@jit()
def look(probs, labels, soft, tolerance, top, right):  # type: ignore[no-untyped-def]
    """Fill in each row's largest probability, and the share of its label that has it.

    Return whether all rows are probabilities. ``soft`` is empty unless labels are soft.
    """
    n, k = probs.shape
    legal = True
    for i in range(n):
        high, best, low, total = probs[i, 0], 0, probs[i, 0], 0.0
        for j in range(k):
            p = probs[i, j]
            total += p
            low = p if p < low else low
            larger = p > high
            best = j if larger else best
            high = p if larger else high
        # NaN is wrong too
        legal &= low >= 0 and high <= 1 + 1e-6 and abs(total - 1) <= tolerance
        top[i] = min(high, 1.0)
        hit = 1.0 if best == labels[i] else 0.0
        right[i] = soft[i, best] if len(soft) else hit
    return legal


@jit()
def add_logs(probs, labels, soft, weights, totals):  # type: ignore[no-untyped-def]
    """Return the sum of the log losses of rows divided by their totals; a row of weight 0 is gone."""
    logs, product = 0.0, 1.0
    for i in range(len(labels)):
        w = weights[i] if len(weights) else 1.0
        q = probs[i, labels[i]] / totals[i]
        if len(soft) or len(weights) or q < SMALL:
            if w > 0:
                logs += w * (_soft_log(probs[i], soft[i], totals[i]) if len(soft) else -math.log(q))
        else:  # one logarithm of a product of many
            product *= q
            if product < SMALL**8:
                logs -= math.log(product)
                product = 1.0
    return logs - math.log(product)


@jit()
def add_briers(probs, labels, soft, weights):  # type: ignore[no-untyped-def]
    """Return the sum of the Brier scores of rows divided by their sums."""
    found = 0.0
    for i in range(len(labels)):
        total, square, at_label = _row_sums(probs[i], labels[i], soft[i : i + 1])
        scale = 1 / total
        loss = square * scale * scale - 2 * at_label * scale + 1
        found += (weights[i] if len(weights) else 1.0) * loss
    return found


@jit()
def add_cosines(probs, labels, soft, weights):  # type: ignore[no-untyped-def]
    """Return the sum of the cosines between rows and their labels."""
    found = 0.0
    for i in range(len(labels)):
        _, square, at_label = _row_sums(probs[i], labels[i], soft[i : i + 1])
        found += (weights[i] if len(weights) else 1.0) * at_label / math.sqrt(square)
    return found


@inline()
def _row_sums(row, label, soft):  # type: ignore[no-untyped-def]
    """Return the sum of a row, that of its squares, and its probability of the label."""
    total, square, at_label = 0.0, 0.0, 0.0
    for j in range(len(row)):
        total += row[j]
        square += row[j] * row[j]
        at_label += soft[0, j] * row[j] if len(soft) else 0.0
    return total, square, at_label if len(soft) else row[label]


@jit()
def _soft_log(row, shares, total):  # type: ignore[no-untyped-def]
    """Return the mean log loss of one row under its label's distribution."""
    loss = 0.0
    for j in range(len(row)):
        if shares[j] > 0:
            loss -= shares[j] * math.log(row[j] / total)
    return loss


@jit(fastmath=FAST)
def softmax_rows(z, out):  # type: ignore[no-untyped-def]
    """Fill in softmax(z), row by row; a class at -inf has probability 0."""
    if z.shape[1] > WIDE:
        for i in range(len(z)):
            _softmax_of_row(z[i], row_maximum(z[i]), out[i])
        return
    k = z.shape[1]
    tile = np.full((k + k % 2, TILE + PAD), -np.inf)
    top, total = np.empty(TILE), np.empty(TILE)
    for start in range(0, len(z), TILE):
        part = z[start : start + TILE]
        transpose(part, tile)
        column_maxima(tile, top)
        total[:] = 0
        for j in range(k):
            for r in range(TILE):
                tile[j, r] = _power((tile[j, r] - top[r]) * LOG2_E)
                total[r] += tile[j, r]
        for r in range(len(part)):
            for j in range(k):
                out[start + r, j] = tile[j, r] / total[r]


@inline(fastmath=FAST)
def _softmax_of_row(row, top, out):  # type: ignore[no-untyped-def]
    """The same for one row of many classes, along the row."""
    total = 0.0
    for j in range(len(row)):
        out[j] = _power((row[j] - top) * LOG2_E)
        total += out[j]
    for j in range(len(row)):
        out[j] /= total


@inline(fastmath=FAST)
def _power(x):  # type: ignore[no-untyped-def]
    """Return 2**x for x <= 0, and 0 below the smallest number."""
    return 0.0 if x < LOWEST else exp2(LOWEST if x < LOWEST else x)
