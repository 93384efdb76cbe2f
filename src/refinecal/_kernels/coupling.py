"""Pairwise coupling, row by row: elimination in which nothing cancels."""

import numpy as np

from refinecal._kernels.jit import FAST, inline, jit

APART = 16  # unused numbers around each array that is worked on
BLOCK = 4  # classes eliminated together: each number is then read and written a quarter as often


@jit(fastmath=FAST)
def couple_rows(up, down, probs):  # type: ignore[no-untyped-def]
    n, k = probs.shape
    apart = k + APART
    work = np.empty(6 * apart + up.shape[1])
    own, with_top = work[APART:apart], work[apart + APART : 2 * apart]
    fixed, slope = work[2 * apart + APART : 3 * apart], work[3 * apart + APART : 4 * apart]
    shared = work[5 * apart : 5 * apart + up.shape[1]]
    for row in range(n):
        _system(up[row], down[row], shared, own)
        top = np.argmin(own)
        least = own[top]
        _part_from(top, shared, own, with_top)
        fixed[:], slope[:] = with_top, 1.0
        slope[top] = 0.0
        _eliminate(shared, own, fixed, slope)
        _substitute(shared, own, fixed, slope)
        fixed[top] = 1.0
        rest, rise = least, 1.0  # the top class's own equation gives lambda, but for rounding
        for i in range(k):
            if i != top:
                rest -= with_top[i] * fixed[i]
                rise += with_top[i] * slope[i]
        multiplier = max(rest, 0.0) / rise
        total = _fill(fixed, slope, multiplier, probs[row])
        multiplier = _disagreement(up[row], down[row], probs[row]) / total  # as exact as each gap
        total = _fill(fixed, slope, multiplier, probs[row])
        for i in range(k):
            probs[row, i] /= total


@inline(fastmath=FAST)
def _system(up, down, shared, own):  # type: ignore[no-untyped-def]
    """Fill minus the triangle of Q, and its diagonal."""
    own[:] = 0.0
    for j in range(len(own)):
        start = j * (j - 1) // 2
        u, v, part = up[start : start + j], down[start : start + j], shared[start : start + j]
        total = 0.0
        for i in range(j):
            part[i] = u[i] * v[i]
            own[i] += u[i] * u[i]
            total += v[i] * v[i]
        own[j] = total


@inline()
def _part_from(top, shared, own, with_top):  # type: ignore[no-untyped-def]
    """Move what the other classes share with one of them out of the triangle."""
    own[top], with_top[top] = 1.0, 0.0
    for i in range(len(own)):
        if i != top:
            at = top * (top - 1) // 2 + i if i < top else i * (i - 1) // 2 + top
            with_top[i], shared[at] = shared[at], 0.0


@inline(fastmath=FAST)
def _eliminate(shared, own, fixed, slope):  # type: ignore[no-untyped-def]
    """Eliminate the classes from the last on, from all before it, and from both right-hand sides."""
    for stop in range(len(own), 0, -BLOCK):
        first = max(stop - BLOCK, 0)
        for c in range(stop - 1, first, -1):
            row = shared[c * (c - 1) // 2 : c * (c + 1) // 2]
            for i in range(first, c):
                factor = row[i] / own[c]
                other = shared[i * (i - 1) // 2 : i * (i + 1) // 2]
                for j in range(i):
                    other[j] += factor * row[j]
                own[i] -= factor * row[i]
                fixed[i] += factor * fixed[c]
                slope[i] += factor * slope[c]
        if first == 0:
            break
        a, b, c, d = first, first + 1, first + 2, first + 3
        row_a, row_b = shared[a * (a - 1) // 2 :], shared[b * (b - 1) // 2 :]
        row_c, row_d = shared[c * (c - 1) // 2 :], shared[d * (d - 1) // 2 :]
        for i in range(first):
            by_a, by_b = row_a[i] / own[a], row_b[i] / own[b]
            by_c, by_d = row_c[i] / own[c], row_d[i] / own[d]
            other = shared[i * (i - 1) // 2 : i * (i + 1) // 2]
            for j in range(i):
                other[j] += by_a * row_a[j] + by_b * row_b[j] + by_c * row_c[j] + by_d * row_d[j]
            own[i] -= by_a * row_a[i] + by_b * row_b[i] + by_c * row_c[i] + by_d * row_d[i]
            fixed[i] += by_a * fixed[a] + by_b * fixed[b] + by_c * fixed[c] + by_d * fixed[d]
            slope[i] += by_a * slope[a] + by_b * slope[b] + by_c * slope[c] + by_d * slope[d]


@inline(fastmath=FAST)
def _substitute(shared, own, fixed, slope):  # type: ignore[no-untyped-def]
    """Solve the triangular systems that are left."""
    for c in range(len(own)):
        row = shared[c * (c - 1) // 2 : c * (c + 1) // 2]
        constant, rise = fixed[c], slope[c]
        for i in range(c):
            constant += row[i] * fixed[i]
            rise += row[i] * slope[i]
        fixed[c], slope[c] = constant / own[c], rise / own[c]


@inline(fastmath=FAST)
def _fill(fixed, slope, multiplier, probs):  # type: ignore[no-untyped-def]
    """Fill the solution for one multiplier, and return its sum."""
    total = 0.0
    for i in range(len(probs)):
        probs[i] = fixed[i] + multiplier * slope[i]
        total += probs[i]
    return total


@inline(fastmath=FAST)
def _disagreement(up, down, probs):  # type: ignore[no-untyped-def]
    """Return the sum of squares that is minimized."""
    total = 0.0
    for j in range(len(probs)):
        start = j * (j - 1) // 2
        u, v, own = up[start : start + j], down[start : start + j], probs[j]
        for i in range(j):
            gap = u[i] * probs[i] - v[i] * own
            total += gap * gap
    return total
