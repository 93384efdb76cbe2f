r"""Fused loops: the log loss and its first four derivatives in beta, from one read of the logits.

With :math:`x_{ij} = \beta (z_{ij} - \max_j z_{ij})` and :math:`M_m = \sum_j e^{x_{ij}} x_{ij}^m`, row i has

.. math::
    \ell = \log M_0 - x_{iy}, \quad a = \mu - x_{iy}, \quad b = M_2/M_0 - \mu^2, \quad
    c = M_3/M_0 - 3 \mu M_2/M_0 + 2 \mu^3, \quad \mu = M_1/M_0,

and likewise d: cumulants of x under the prediction, which are the derivatives with respect to a
relative change of beta (``temperature.fit``). One exponential per element.
Three readers share the work: two classes need one exponential per row; a few classes are transposed
into tiles of ``TILE`` rows, so that vector lanes run over rows without a remainder for any k;
many classes are read along the row. ``temperature.fit`` has the same sums in plain NumPy.

The loops do not check for NaN and infinities, which make the sums non-finite; ``_core.checks`` then finds
and names them.
"""

import math

import numpy as np

from refinecal._kernels.jit import FAST, LN2, LOG2_E, inline, jit
from refinecal._kernels.vector import PAD, TILE, WIDE, column_maxima, exp2, row_maximum, transpose

RUN = 512  # columns added up in the type of the logits; the runs are added in float64


@jit(fastmath=FAST)
def fill_exp2(t, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` with 2**t: the exponential of the kernels, open to tests."""
    for i in range(len(t)):
        out[i] = exp2(t[i])


# ---- a block of rows: M_0, x_iy, a, b, c, d of each, with x in units of bits (x / ln 2) -------------------
# One array with constant offsets: the compiler sees that the parts do not overlap, and vectorises.

M0, XY, A, B, C, D, TOP, BLOCK_SIZE = (TILE * part for part in range(8))


@inline(fastmath=FAST)
def _block_two(z, labels, scale, floor, block):  # type: ignore[no-untyped-def]
    """Two classes: with t = scale * (logit of the label - the other one), one exponential per row."""
    zero, one, six = z.dtype.type(0), z.dtype.type(1), z.dtype.type(6)
    rows = len(z)
    wrong = 0
    for r in range(rows):
        wrong |= labels[r] & ~1  # any bit but the last: neither 0 nor 1
        wrong |= (z[r, 0] == np.inf) | (z[r, 1] == np.inf)  # which their gap could not show
        gap = (z[r, 1] - z[r, 0]) * scale
        block[XY + r] = gap if labels[r] == 1 else -gap
    for r in range(rows):
        t = block[XY + r]
        near = -floor if t > -floor else t  # beyond, the exponential is 0; keeps 0 * inf away
        far = floor if near < floor else near
        e = exp2(far if far < zero else -far)
        q = one / (one + e)
        miss = q if t < zero else e * q  # probability of the other class
        v = e * q * q
        h = v * far * far
        block[M0 + r] = one + e
        block[XY + r] = zero if t > zero else t
        block[A + r] = -near * miss
        block[B + r] = h
        block[C + r] = h * far * (miss + miss - one)
        block[D + r] = h * far * far * (one - six * v)
    return wrong == 0


@inline(fastmath=FAST)
def sum_tile(tile, scale, floor, block):  # type: ignore[no-untyped-def]
    """Fill in the moments of each column of a tile, whose largest numbers are known."""
    block[:XY] = 0
    block[A:TOP] = 0
    for j in range(0, len(tile), 2):  # two classes at a time: half the traffic of the five sums
        for r in range(TILE):
            x = (tile[j, r] - block[TOP + r]) * scale
            y = (tile[j + 1, r] - block[TOP + r]) * scale
            x = floor if x < floor else x
            y = floor if y < floor else y
            e, f = exp2(x), exp2(y)
            block[M0 + r] += e + f
            e *= x
            f *= y
            block[A + r] += e + f
            e *= x
            f *= y
            block[B + r] += e + f
            e *= x
            f *= y
            block[C + r] += e + f
            block[D + r] += e * x + f * y


@inline(fastmath=FAST)
def _block_tile(z, labels, target, scale, floor, tile, block):  # type: ignore[no-untyped-def]
    """A few classes: transpose the rows into ``tile``, then let vector lanes run over rows."""
    rows, k = z.shape
    transpose(z, tile)
    column_maxima(tile, block[TOP:])
    sum_tile(tile, scale, floor, block)
    for r in range(rows):
        if len(target):
            block[XY + r] = target[r] * scale
        elif 0 <= labels[r] < k:
            block[XY + r] = (tile[labels[r], r] - block[TOP + r]) * scale
        else:
            return False
    centre(rows, block)
    return True


@inline(fastmath=FAST)
def _moments(row, top, scale, floor):  # type: ignore[no-untyped-def]
    """Return M_0 ... M_4 of a run of columns."""
    zero = row.dtype.type(0)
    m0, m1, m2, m3, m4 = zero, zero, zero, zero, zero
    for j in range(len(row)):
        x = (row[j] - top) * scale
        x = floor if x < floor else x
        e = exp2(x)
        m0 += e
        e *= x
        m1 += e
        e *= x
        m2 += e
        e *= x
        m3 += e
        m4 += e * x
    return m0, m1, m2, m3, m4


@inline(fastmath=FAST)
def _block_wide(z, labels, target, scale, floor, block):  # type: ignore[no-untyped-def]
    """Many classes: read along each row."""
    rows, k = z.shape
    for r in range(rows):
        if len(target) == 0 and not 0 <= labels[r] < k:
            return False
        row = z[r]
        top = row_maximum(row)
        s0, s1, s2, s3, s4 = 0.0, 0.0, 0.0, 0.0, 0.0
        for first in range(0, k, RUN):
            m0, m1, m2, m3, m4 = _moments(row[first : first + RUN], top, scale, floor)
            s0, s1, s2, s3, s4 = s0 + m0, s1 + m1, s2 + m2, s3 + m3, s4 + m4
        block[M0 + r], block[A + r], block[B + r] = s0, s1, s2
        block[C + r], block[D + r] = s3, s4
        block[XY + r] = (target[r] if len(target) else row[labels[r]] - top) * scale
    centre(rows, block)
    return True


@inline(fastmath=FAST)
def centre(rows, block):  # type: ignore[no-untyped-def]
    """Turn the moments M_1 ... M_4 of each row into the cumulants a, b, c, d in place."""
    one, three = block.dtype.type(1), block.dtype.type(3)
    for r in range(rows):
        q = one / block[M0 + r]
        m1, m2, m3, m4 = block[A + r] * q, block[B + r] * q, block[C + r] * q, block[D + r] * q
        variance = m2 - m1 * m1
        third = m3 - m1 * (three * variance + m1 * m1)  # central moments, in turn
        fourth = m4 - m1 * (m3 + three * third + three * m1 * variance)
        block[A + r] = m1 - block[XY + r]
        block[B + r] = variance
        block[C + r] = third
        block[D + r] = fourth - three * variance * variance


# ---- the whole set -------------------------------------------------------------------------------------


@jit(fastmath=FAST)
def read(z, labels, target, weights, beta):  # type: ignore[no-untyped-def]
    """Return the sums over all rows of the weights, the losses and a, b, c, d.

    ``target`` holds, for soft labels, the mean of z_ij - max_j z_ij under each row's label
    distribution, else nothing; ``weights`` likewise holds nothing when every row counts once.
    A label out of range, or +inf, makes the sums NaN.
    """
    n, k = z.shape
    scale = z.dtype.type(beta * LOG2_E)
    floor = z.dtype.type(-126 if z.itemsize == 4 else -1022)
    two, wide = k == 2 and len(target) == 0, k > WIDE
    block = np.zeros(BLOCK_SIZE, z.dtype)
    tile = np.full((0 if two or wide else k + k % 2, TILE + PAD), -np.inf, z.dtype)
    total, loss, a, b, c, d = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        rows, part, own, soft = stop - start, z[start:stop], labels[start:stop], target[start:stop]
        if two:
            legal = _block_two(part, own, scale, floor, block)
        elif wide:
            legal = _block_wide(part, own, soft, scale, floor, block)
        else:
            legal = _block_tile(part, own, soft, scale, floor, tile, block)
        if not legal:
            return np.nan, np.nan, np.nan, np.nan, np.nan, np.nan
        if len(weights):
            for r in range(rows):
                w = weights[start + r]
                total += w
                loss += w * (math.log(block[M0 + r]) - LN2 * block[XY + r])
                a += w * block[A + r]
                b += w * block[B + r]
                c += w * block[C + r]
                d += w * block[D + r]
        else:
            total += rows
            loss += _log_product(block[M0 : M0 + rows], wide) - LN2 * _sum(block[XY : XY + rows])
            a += _sum(block[A : A + rows])
            b += _sum(block[B : B + rows])
            c += _sum(block[C : C + rows])
            d += _sum(block[D : D + rows])
    return total, loss, a * LN2, b * LN2**2, c * LN2**3, d * LN2**4


@inline(fastmath=FAST)
def _sum(values):  # type: ignore[no-untyped-def]
    total = 0.0
    for r in range(len(values)):
        total += values[r]
    return total


@inline(fastmath=FAST)
def _log_product(values, wide):  # type: ignore[no-untyped-def]
    """Return the sum of logarithms: one logarithm of a product where that cannot overflow."""
    total, product = 0.0, 1.0
    if wide:
        for r in range(len(values)):
            total += math.log(values[r])
        return total
    for r in range(len(values)):
        product *= values[r]
    return math.log(product)


@jit()
def read_zero(z, labels, target, weights):  # type: ignore[no-untyped-def]
    """Return slope and curvature of the mean loss at beta = 0+ (classes at -inf stay impossible)."""
    n, k = z.shape
    total, slope, curvature = 0.0, 0.0, 0.0
    for i in range(n):
        w = weights[i] if len(weights) else 1.0
        top = np.float64(row_maximum(z[i]))
        count, mean, square = 0, 0.0, 0.0
        for j in range(k):
            d = z[i, j] - top
            if d != -np.inf:
                count += 1
                mean += d
                square += d * d
        mean /= count
        total += w
        slope += w * (mean - (target[i] if len(target) else z[i, labels[i]] - top))
        curvature += w * (square / count - mean * mean)
    return slope / total, curvature / total


@jit(fastmath=FAST)
def read_rows(z, labels, target, beta, out):  # type: ignore[no-untyped-def]
    """Fill the rows of ``out`` (5, n) with the loss, a, b, c, d of each row of z."""
    n, k = z.shape
    scale = z.dtype.type(beta * LOG2_E)
    floor = z.dtype.type(-126 if z.itemsize == 4 else -1022)
    block = np.zeros(BLOCK_SIZE, z.dtype)
    tile = np.full((k + k % 2 if k <= WIDE else 0, TILE + PAD), -np.inf, z.dtype)
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        part, own, soft = z[start:stop], labels[start:stop], target[start:stop]
        if k > WIDE:
            _block_wide(part, own, soft, scale, floor, block)
        else:
            _block_tile(part, own, soft, scale, floor, tile, block)
        for r in range(stop - start):
            out[0, start + r] = math.log(block[M0 + r]) - LN2 * block[XY + r]
            out[1, start + r] = LN2 * block[A + r]
            out[2, start + r] = LN2**2 * block[B + r]
            out[3, start + r] = LN2**3 * block[C + r]
            out[4, start + r] = LN2**4 * block[D + r]
