r"""Fused loops that read probabilities once for all sums over rows.

Columns come first, ``(k, n)``, so that vector lanes run over rows. The probability of all but the likeliest
class is summed separately, :math:`\sum_j \min(p_j, \max_{i<j} p_i)`, since 1 - p would round it away.
"""

import math

import numpy as np

from refinecal._kernels.bins import bin_of, uniform_bins
from refinecal._kernels.jit import FAST, LOG2_E, jit
from refinecal._kernels.vector import PAD, TILE, column_maxima, exp2, transpose

COPIES = 4  # of each histogram: adjacent rows mostly hit one bin, and would wait for each other
SMALL = 1e-30  # probabilities below are not multiplied

# Sums over the rows of each class: their mass, that of the right ones, losses.
MASS, HITS, LOSS, BRIER, N_SUMS = range(5)


# One array with constant offsets, as in ``_kernels``: the compiler sees that its parts do not overlap.
TOP, BEST, SQUARE, REST, BLOCK_SIZE = (TILE * part for part in range(5))


@jit()
def tally(columns, labels, weights, first, last, bins, hits, events, classes, rows):  # type: ignore[no-untyped-def]
    """Add rows first..last to the sums.

    ``bins[j]`` sums the probabilities of class j, COPIES sums per bin; ``hits[j]`` the mass of its own rows.
    ``events`` are mass, probabilities and hits of the second of two classes, else of the likeliest. ``rows``
    gets the probability outside the likeliest class of each row, its score and its hit.
    """
    k, n_bins = hits.shape
    block, at, product = np.empty(BLOCK_SIZE), np.zeros(TILE, np.uint32), np.ones(k)
    for start in range(first, last, TILE):
        stop = min(start + TILE, last)
        own = weights[start:stop]
        block[:] = 0
        for j in range(k):
            _summarise(columns[j, start:stop], float(j), block)
        for j in range(k):
            uniform_bins(columns[j, start:stop], n_bins, at)
            _add(columns[j, start:stop], own, at, bins[j])
        for r in range(stop - start):
            rows[0, start + r] = block[REST + r]
            w = own[r] if len(weights) else 1.0
            y, top, total = labels[start + r], block[TOP + r], block[TOP + r] + block[REST + r]
            p, right = columns[y, start + r], block[BEST + r] == y
            q = p / total
            classes[MASS, y] += w
            classes[HITS, y] += w * right
            classes[BRIER, y] += w * (block[SQUARE + r] / (total * total) - 2 * q + 1)
            if len(weights) or q < SMALL:
                if w > 0:  # a row of weight 0 is gone, however large its loss
                    classes[LOSS, y] -= w * math.log(q)
            else:  # one logarithm of a product of many
                product[y] *= q
                if product[y] < SMALL**8:
                    classes[LOSS, y] -= math.log(product[y])
                    product[y] = 1.0
            hits[y, bin_of(p, n_bins)] += w
            score, hit = min(top, 1.0), 1.0 if right else 0.0
            if k == 2:
                score, hit = min(columns[1, start + r], 1.0), float(y)
            b = bin_of(score, n_bins)
            events[0, b] += w
            events[1, b] += w * score
            events[2, b] += w * hit
            rows[1, start + r], rows[2, start + r] = score, hit
    for j in range(k):
        classes[LOSS, j] -= math.log(product[j])


@jit()
def _summarise(row, j, block):  # type: ignore[no-untyped-def]
    """Add one class to each row's largest probability and its class, sum of squares, and rest."""
    for r in range(len(row)):
        p, top = row[r], block[TOP + r]
        larger = p > top
        block[REST + r] += top if larger else p
        block[BEST + r] = j if larger else block[BEST + r]
        block[TOP + r] = p if larger else top
        block[SQUARE + r] += p * p


@jit()
def _add(row, weights, at, bins):  # type: ignore[no-untyped-def]
    """Add probabilities to the sums of their bins; rounding may have lifted some past 1."""
    if len(weights):
        for r in range(len(row)):
            bins[np.uint64(at[r]) * np.uint64(COPIES)] += min(row[r], 1.0) * weights[r]
        return
    whole = len(row) - len(row) % COPIES
    for r in range(0, whole, COPIES):
        for c in range(COPIES):
            bins[np.uint64(at[r + c]) * np.uint64(COPIES) + np.uint64(c)] += min(row[r + c], 1.0)
    for r in range(whole, len(row)):
        bins[np.uint64(at[r]) * np.uint64(COPIES)] += min(row[r], 1.0)


@jit(fastmath=FAST)
def row_losses(z, labels, beta, is_log, out):  # type: ignore[no-untyped-def]
    """Fill in each row's Brier score under softmax(beta * z), or its log loss."""
    n, k = z.shape
    scale, floor = beta * LOG2_E, -1022.0
    tile = np.full((k + k % 2, TILE + PAD), -np.inf)
    top, total, square = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for start in range(0, n, TILE):
        part = z[start : start + TILE]
        transpose(part, tile)
        column_maxima(tile, top)
        total[:] = 0
        square[:] = 0
        for j in range(k):
            for r in range(TILE):
                x = (tile[j, r] - top[r]) * scale
                e = exp2(floor if x < floor else x)
                tile[j, r] = e
                total[r] += e
                square[r] += e * e
        for r in range(len(part)):
            q, y = 1 / total[r], labels[start + r]
            if is_log:
                out[start + r] = math.log(total[r]) - beta * (part[r, y] - top[r])
            else:
                out[start + r] = (square[r] * q - 2 * tile[y, r]) * q + 1
