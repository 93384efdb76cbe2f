"""Fused loops that count, for each class, the pairs of rows that its scores put in the wrong order.

A score becomes a whole number, its *key*: the bits of p below 1/2, those of 1 - p mirrored above. Keys order
as scores do, equal scores have equal keys, and both ends are as fine as the numbers given. The keys of the
class are sorted; every row then finds its place among them. A table that is as fine as the cache allows gives
the place within two steps for several rows at once, on keys cut to 32 bits; rows that are not there by then,
or that meet an equal, are told apart by their whole keys one by one.
"""

import math

import numpy as np

from refinecal._kernels.jit import jit

BLOCK = 2048  # rows looked up together: their places stay in the nearest cache
KEY_BITS = 31  # of a cut key
TABLE_BITS = 18  # at most this many bits of it choose a cell of the table: 1 MB
CROWD = 24  # more scores than this in one cell are sorted with the others, not among themselves
NEAR_ONE = 2.0**-20  # closer to 1, the other classes' probabilities tell more than 1 - p
HALF = int(np.float64(0.5).view(np.int64))
LOWEST = int(np.float64(2.0**-32).view(np.int64))  # the table ends here and at 1 minus it
HIGHEST = 2 * HALF - LOWEST


@jit()
def by_class(labels, k):  # type: ignore[no-untyped-def]
    """Return the rows of each class, one class after the other, and where each begins."""
    begin = np.zeros(k + 1, np.int64)
    for i in range(len(labels)):
        begin[labels[i] + 1] += 1
    for j in range(k):
        begin[j + 1] += begin[j]
    rows, place = np.empty(len(labels), np.int64), begin[:k].copy()
    for i in range(len(labels)):
        rows[place[labels[i]]] = i
        place[labels[i]] += 1
    return rows, begin


@jit()
def _near(score, rest):  # type: ignore[no-untyped-def]
    """Return the distance to the nearer of 0 and 1, the latter through what is left for other classes."""
    gap = 1.0 - score
    far = gap if gap >= NEAR_ONE else rest
    return (score if score < 0.5 else far) + 0.0  # -0.0 becomes 0.0, which has other bits


@jit()
def keys_of(scores, rest, rows):  # type: ignore[no-untyped-def]
    """Return the keys of some rows."""
    near = np.empty(len(rows))
    keys = near.view(np.int64)
    for i in range(len(rows)):
        near[i] = _near(scores[rows[i]], rest[rows[i]])
    for i in range(len(rows)):
        keys[i] = keys[i] if scores[rows[i]] < 0.5 else 2 * HALF - keys[i]
    return keys


@jit()
def window(keys):  # type: ignore[no-untyped-def]
    """Return the frame of the table: the key below its first, its last, shifts to cut keys and to cells."""
    base, top = max(keys.min(), LOWEST), min(keys.max(), HIGHEST)
    shift = 0
    while (top - base) >> shift >= 1 << KEY_BITS:
        shift += 1
    bits = 1
    while bits < TABLE_BITS and 1 << bits < 8 * len(keys):
        bits += 1
    coarse = 0
    while (top - base) >> shift >> coarse >= 1 << bits:
        coarse += 1
    return base - (1 << shift), max(top, base), shift, coarse


@jit()
def _cut(key, frame):  # type: ignore[no-untyped-def]
    """Return the key in the units of the table: 1 before its first."""
    below, last, shift, _ = frame
    units = np.uint64(min(max(key, below), last) - below) >> np.uint64(shift)
    return np.uint32(units) + np.uint32(1)


@jit()
def arranged(keys, frame):  # type: ignore[no-untyped-def]
    """Return the keys sorted, cell by cell of the table; nothing if a cell is too full for that."""
    coarse = np.uint32(frame[3])
    cells = np.zeros((_cut(frame[1], frame) >> coarse) + 2, np.int64)
    for i in range(len(keys)):
        cells[(_cut(keys[i], frame) >> coarse) + 1] += 1
    if cells.max() > CROWD:
        return np.empty(0, np.int64)
    for c in range(len(cells) - 1):
        cells[c + 1] += cells[c]
    found = np.empty(len(keys), np.int64)
    for i in range(len(keys)):
        c = _cut(keys[i], frame) >> coarse
        found[cells[c]] = keys[i]
        cells[c] += 1
    for i in range(1, len(found)):  # no key is far from its place
        key, at = found[i], i
        while at > 0 and found[at - 1] > key:
            found[at] = found[at - 1]
            at -= 1
        found[at] = key
    return found


@jit()
def table_of(keys, frame):  # type: ignore[no-untyped-def]
    """Return sorted keys cut to 32 bits, and the number of keys before each cell."""
    coarse = np.uint32(frame[3])
    cut = np.full(len(keys) + 2, np.uint32(2**32 - 1))
    starts = np.zeros((_cut(frame[1], frame) >> coarse) + 2, np.uint32)
    for i in range(len(keys)):
        cut[i] = _cut(keys[i], frame)
        starts[(cut[i] >> coarse) + 1] += np.uint32(1)
    for c in range(len(starts) - 1):
        starts[c + 1] += starts[c]
    return cut, starts


@jit()
def _place(keys, key, low, high):  # type: ignore[no-untyped-def]
    """Return how many of the sorted keys are smaller, which is between low and high."""
    while high - low > 8:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    while low < high and keys[low] < key:
        low += 1
    return low


@jit()
def mass_below(scores, rest, weights, labels, own, keys, mass, cut, starts, frame):  # type: ignore[no-untyped-def]
    """Return, summed over the rows of other classes, twice the mass of keys below the row's, equal ones once.

    ``keys`` are sorted and differ; ``mass[t]`` is the mass of the first t of them, and empty if it is t.
    """
    key, near = np.empty(BLOCK, np.int64), np.empty(BLOCK)
    at, place = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32)
    whole, total = np.int64(0), 0.0
    for start in range(0, len(scores), BLOCK):
        part = scores[start : start + BLOCK]
        size = len(part)
        _keys_of_block(part, rest[start : start + BLOCK], near, key)
        _places(key, labels[start : start + BLOCK], own, cut, starts, frame, at, place)
        for r in range(size):
            t = np.int64(place[r])
            if cut[t] <= at[r]:
                t = _place(keys, key[r], t, np.int64(starts[(np.int64(at[r]) >> frame[3]) + 1]))
                place[r] = t
                if t < len(keys) and keys[t] == key[r]:
                    weight = weights[start + r] if len(weights) else 1.0
                    total += weight * (mass[t + 1] - mass[t] if len(mass) else 1.0)
        if len(mass) == 0:
            for r in range(size):
                whole += np.int64(place[r])
        elif len(weights):
            for r in range(size):
                total += 2 * weights[start + r] * mass[place[r]]
        else:
            for r in range(size):
                total += 2 * mass[place[r]]
    return total + 2 * whole


@jit()
def _keys_of_block(scores, rest, near, keys):  # type: ignore[no-untyped-def]
    """Fill in the keys of up to BLOCK rows."""
    bits, sure = near.view(np.int64), 0
    for r in range(len(scores)):
        near[r] = (scores[r] if scores[r] < 0.5 else 1.0 - scores[r]) + 0.0
        sure += 1.0 - scores[r] < NEAR_ONE
    if sure:
        for r in range(len(scores)):
            near[r] = _near(scores[r], rest[r])
    for r in range(len(scores)):
        keys[r] = bits[r] if scores[r] < 0.5 else 2 * HALF - bits[r]


@jit()
def _places(keys, labels, own, cut, starts, frame, at, place):  # type: ignore[no-untyped-def]
    """Fill in cut keys, and the number of cut keys below each if it is found within two steps.

    Rows of the class itself are put below all others, where they count nothing.
    """
    cell, one, zero = np.uint32(frame[3]), np.uint32(1), np.uint32(0)
    for r in range(len(labels)):
        at[r] = zero if labels[r] == own else _cut(keys[r], frame)
    for r in range(len(labels)):
        t = starts[np.uint64(at[r] >> cell)]
        t += one if cut[np.uint64(t)] < at[r] else zero
        t += one if cut[np.uint64(t)] < at[r] else zero
        place[r] = t


# ---- log-odds of logits ----------------------------------------------------------------------------------


@jit()
def largest_finite(logits, out):  # type: ignore[no-untyped-def]
    """Fill in the size of the largest finite logit of each row."""
    for i in range(len(logits)):
        size = 0.0
        for j in range(logits.shape[1]):
            value = abs(np.float64(logits[i, j]))
            size = max(size, value) if value < np.inf else size  # NaN is not
        out[i] = size


@jit()
def area_in_order(odds, order, rounding, own, others):  # type: ignore[no-untyped-def]
    """Return the mass of pairs in the right order, ties as one half: rows by increasing odds.

    Neighbours tie if rounding alone tells them apart. A run of them that is wider than rounding is not a tie:
    its scores only lie close, and only equal ones tie.
    """
    area, below, start = 0.0, 0.0, 0
    while start < len(order):
        end, least = start + 1, rounding[order[start]]
        while end < len(order):
            gap = odds[order[end]] - odds[order[end - 1]]  # NaN for infinite odds, which are equal
            if gap > min(rounding[order[end]], rounding[order[end - 1]]):
                break
            least = min(least, rounding[order[end]])
            end += 1
        is_wide = odds[order[end - 1]] - odds[order[start]] > least
        while start < end:
            mass, against = own[order[start]], others[order[start]]
            start += 1
            while start < end and not (is_wide and odds[order[start]] - odds[order[start - 1]] > 0):
                mass += own[order[start]]
                against += others[order[start]]
                start += 1
            area += mass * (below + against / 2)
            below += against
    return area


@jit()
def log_odds_rows(z, out):  # type: ignore[no-untyped-def]
    """Fill in the log-odds of each class against the rest, exact for the surest predictions too."""
    n, k = z.shape
    for i in range(n):
        top, second = 0, -np.inf
        for j in range(1, k):
            if z[i, j] > z[i, top]:
                top = j
        for j in range(k):
            if j != top and z[i, j] > second:
                second = z[i, j]
        if second == -np.inf:  # all others are impossible
            out[i, :] = -np.inf
            out[i, top] = np.inf
            continue
        rest = 0.0
        for j in range(k):
            out[i, j] = math.exp(z[i, j] - z[i, top])
            rest += out[i, j] if j != top else 0.0
        for j in range(k):
            if j != top:
                out[i, j] = z[i, j] - z[i, top] - math.log(1.0 + (rest - out[i, j]))
        if rest > 1e-250:
            out[i, top] = -math.log(rest)
            continue
        rest = 0.0  # too small to hold: beside the second class
        for j in range(k):
            rest += math.exp(z[i, j] - second) if j != top else 0.0
        out[i, top] = z[i, top] - second - math.log(rest)
