"""Compiled loops over sorted scores: pool adjacent violators, and the two functions of Venn-Abers.

Both draw the cumulative sum diagram, the points (mass so far, mass of class 1 so far), and follow its
greatest convex minorant, whose slopes are the isotonic regression.
"""

import numpy as np

from refinecal._kernels.jit import inline, jit


@jit()
def sum_ties(odds, order, shares, weights, rounding):  # type: ignore[no-untyped-def]
    """Return the different scores, in order, with the mass of each and that of class 1.

    ``weights`` may be empty; scores closer than ``rounding``, relative to their size, to the first are one.
    """
    n = len(order)
    scores, mass, hits = np.empty(n), np.empty(n), np.empty(n)
    last, limit = -1, -np.inf
    for i in range(n):
        row = order[i]
        weight = weights[row] if len(weights) else 1.0
        if odds[row] > limit:
            last += 1
            scores[last], mass[last], hits[last] = odds[row], 0.0, 0.0
            limit = odds[row] + rounding * max(1.0, abs(odds[row]))
        mass[last] += weight
        hits[last] += weight * shares[row]
    return scores[: last + 1], mass[: last + 1], hits[: last + 1]


@jit()
def pool(mass, hits):  # type: ignore[no-untyped-def]
    """Return where each piece of the isotonic regression begins, and its level; levels increase strictly."""
    return pool_violators(mass, hits)


@inline()
def pool_violators(mass, hits):  # type: ignore[no-untyped-def]
    """Do what :func:`pool` does, as a part of other loops."""
    n = len(mass)
    first, level = np.empty(n, np.int64), np.empty(n)
    own, ones = np.empty(n), np.empty(n)
    top = -1
    for i in range(n):
        top += 1
        first[top], own[top], ones[top] = i, mass[i], hits[i]
        level[top] = min(hits[i] / mass[i], 1.0)
        while top > 0 and level[top - 1] >= level[top]:
            top -= 1
            own[top] += own[top + 1]
            ones[top] += ones[top + 1]
            level[top] = min(ones[top] / own[top], 1.0)
    return first[: top + 1], level[: top + 1]


# ---- looking up ------------------------------------------------------------------------------------------

BLOCK = 256  # rows looked up together, in vector lanes: all take the same steps of the search


@jit()
def count_knots(odds, knots):  # type: ignore[no-untyped-def]
    """Return, for each of the log-odds, how many knots are not above it."""
    return search_knots(odds, knots)


@inline()
def search_knots(odds, knots):  # type: ignore[no-untyped-def]
    """Do what :func:`count_knots` does, as a part of other loops."""
    found = np.zeros(len(odds), np.int64)
    for start in range(0, len(odds), BLOCK):
        part, at = odds[start : start + BLOCK], found[start : start + BLOCK]
        size = len(knots)
        while size > 0:
            half = (size + 1) >> 1
            for r in range(len(part)):
                further = at[r] + half
                at[r] = further if knots[further - 1] <= part[r] else at[r]
            size -= half
    return found


@jit()
def interpolate(odds, corners, shares):  # type: ignore[no-untyped-def]
    """Return the shares at the given log-odds, linear between corners and constant beyond them."""
    found, last = np.empty(len(odds)), len(corners) - 1
    at = search_knots(odds, corners)
    for i in range(len(odds)):
        a = max(at[i] - 1, 0)
        b = min(a + 1, last)
        part = (odds[i] - corners[a]) / (corners[b] - corners[a]) if b > a else 0.0
        found[i] = shares[a] + max(part, 0.0) * (shares[b] - shares[a])
    return found


@jit()
def add_steps(knots, levels, more_knots, more_levels):  # type: ignore[no-untyped-def]
    """Return the sum of two step functions; each has a level before its first knot and one from each on."""
    m, n = len(knots), len(more_knots)
    both, sums = np.empty(m + n), np.empty(m + n + 1)
    i, j = 0, 0
    sums[0] = levels[0] + more_levels[0]
    for at in range(m + n):
        if j == n or (i < m and knots[i] <= more_knots[j]):
            both[at] = knots[i]
            i += 1
        else:
            both[at] = more_knots[j]
            j += 1
        sums[at + 1] = levels[i] + more_levels[j]
    return both, sums


# ---- Venn-Abers ------------------------------------------------------------------------------------------


@jit()
def _hulls(x, y):  # type: ignore[no-untyped-def]
    """Return, for each point, the next corner of the lower hull of it and all points to its right."""
    n = len(x)
    after = np.full(n, n, np.int64)
    for i in range(n - 2, -1, -1):
        b = i + 1
        while after[b] < n:
            c = after[b]
            if (y[b] - y[i]) * (x[c] - x[i]) < (y[c] - y[i]) * (x[b] - x[i]):
                break
            b = c
        after[i] = b
    return after


@jit()
def add_test_object(mass, hits, weight, label):  # type: ignore[no-untyped-def]
    """Return the isotonic regression at each score, once an object with that score and label has joined."""
    return bridge_hulls(mass, hits, weight, label)


@inline()
def bridge_hulls(mass, hits, weight, label):  # type: ignore[no-untyped-def]
    r"""Return the isotonic regression at each score, once an object with that score and label has joined.

    Joining score j moves the points :math:`P_j, P_{j+1}, \dots` of the diagram by (weight, weight * label).
    The value is the slope of the edge that bridges the hulls of :math:`P_0, \dots, P_{j-1}` and of the moved
    points. Its two ends only ever go right when j does, so that all bridges are found in O(n).
    """
    n = len(mass)
    x, y = np.zeros(n + 1), np.zeros(n + 1)
    for i in range(n):
        x[i + 1], y[i + 1] = x[i] + mass[i], y[i] + hits[i]
    after = _hulls(x, y)
    rise = weight * label
    found, hull = np.empty(n), np.empty(n + 1, np.int64)
    top, at, b = -1, 0, 1  # last corner of the left hull, corner and point where the bridge ends
    for j in range(1, n + 1):
        while top > 0:  # P_{j-1} joins the left hull
            a, c = hull[top - 1], hull[top]
            if (y[c] - y[a]) * (x[j - 1] - x[a]) < (y[j - 1] - y[a]) * (x[c] - x[a]):
                break
            top -= 1
        top += 1
        hull[top] = j - 1
        at, b = min(at, top), max(b, j)
        while True:
            a = hull[at]
            run, climb = x[b] - x[a] + weight, y[b] - y[a] + rise
            while after[b] <= n:
                c = after[b]
                if (y[c] - y[a] + rise) * run > climb * (x[c] - x[a] + weight):
                    break
                b, run, climb = c, x[c] - x[a] + weight, y[c] - y[a] + rise
            if at == top or (y[hull[at + 1]] - y[a]) * run > climb * (x[hull[at + 1]] - x[a]):
                break
            at += 1
        found[j - 1] = climb / run
    return found
