r"""Fused loops for choosing ensembles: the loss of a pool together with each of the members.

Arrays hold the classes first, (k, n) for a pool and (m, k, n) for m members, so that vector lanes run over
rows. All are float32, with n a multiple of ``TILE``: rows that fill the last tile weigh nothing. The sums are
those of ``_kernels.temperature``, at an inverse temperature of the pool for each member.
"""

import numpy as np

from refinecal._kernels.jit import FAST, LN2, LOG2_E, inline, jit
from refinecal._kernels.temperature import (
    BLOCK_SIZE,
    M0,
    TOP,
    XY,
    A,
    B,
    C,
    D,
    centre,
    sum_tile,
)
from refinecal._kernels.vector import PAD, TILE, column_maxima, log2

TINY = np.float32(2.0**-126)  # the smallest normal number stands for a probability of 0
FLOOR = np.float32(-126)


@inline(fastmath=FAST)
def _fill_mean(member, total, share, tile):  # type: ignore[no-untyped-def]
    """Fill in log2 of the mean of probabilities."""
    for j in range(len(total)):
        for r in range(TILE):
            p = (total[j, r] + member[j, r]) * share
            tile[j, r] = log2(TINY if p < TINY else p)


@inline(fastmath=FAST)
def _fill_log_mean(member, total, factor, share, tile):  # type: ignore[no-untyped-def]
    """Fill in the mean of log-probabilities, those of the member times a factor."""
    for j in range(len(total)):
        for r in range(TILE):
            tile[j, r] = (total[j, r] + factor * member[j, r]) * share


@jit(fastmath=FAST)
def read(stack, total, factors, share, arithmetic, labels, weights, betas, out):  # type: ignore[no-untyped-def]
    """Fill row i of ``out`` (m, 6) with the sums of the weights, the losses and a, b, c, d.

    The pool is ``share`` times the sum of ``total`` and member i: of probabilities if ``arithmetic``, else of
    log-probabilities, which are multiplied by ``factors`` first.
    """
    _, m, k, _ = stack.shape
    block = np.zeros(BLOCK_SIZE, np.float32)
    tile = np.full((k + k % 2, TILE + PAD), -np.inf, np.float32)
    unit = 1.0 if arithmetic else LOG2_E
    out[:] = 0
    for t in range(len(stack)):
        label, weight = labels[t], weights[t]
        whole = np.float32(0)
        for r in range(TILE):
            whole += weight[r]
        if whole == 0:
            continue
        for i in range(m):
            if arithmetic:
                _fill_mean(stack[t, i], total[t], share, tile)
            else:
                _fill_log_mean(stack[t, i], total[t], factors[i], share, tile)
            column_maxima(tile, block[TOP:])
            scale = np.float32(betas[i] * unit)
            sum_tile(tile, scale, FLOOR, block)
            for r in range(TILE):
                block[XY + r] = (tile[label[r], r] - block[TOP + r]) * scale
            centre(TILE, block)
            _add(weight, block, out[i])
    for i in range(m):
        for power in range(5):
            out[i, 1 + power] *= LN2 ** max(power, 1)


@inline(fastmath=FAST)
def _add(weight, block, out):  # type: ignore[no-untyped-def]
    """Add the weighted sums of a block."""
    zero = np.float32(0)
    total, loss, a, b, c, d = zero, zero, zero, zero, zero, zero
    for r in range(TILE):
        w = weight[r]
        total += w
        loss += w * (log2(block[M0 + r]) - block[XY + r])
        a += w * block[A + r]
        b += w * block[B + r]
        c += w * block[C + r]
        d += w * block[D + r]
    out[0] += total
    out[1] += loss
    out[2] += a
    out[3] += b
    out[4] += c
    out[5] += d
