"""Fused loops that count, for each class, the pairs of rows that its scores rank in the wrong order.

A score becomes an integer, its *key*, with the same order: the bits of p below 1/2, those of 1 - p above, or
those of unit + abs(x) for log-odds x. Equal scores have equal keys, and both ends keep full precision. The
keys of the class are sorted; every row then finds its place among them. A table that fits the cache gives the
place within two steps for several rows at once, on keys cut to 32 bits; rows that are not found by then, or
that meet an equal key, are compared by their full keys one by one. For log-odds, the few rows that may tie
with one of the class by rounding are then sorted too.
"""

import math

import numpy as np

from refinecal._kernels.jit import LOG2_E, inline, jit
from refinecal._kernels.vector import PAD, TILE, exp2, transpose

BLOCK = 2048  # rows looked up together: their places stay in the nearest cache
KEY_BITS = 31  # of a cut key
TABLE_BITS = 18  # at most this many bits of it choose a cell of the table: 1 MB
CROWD = 24  # more scores than this in one cell are sorted with the others, not among themselves
NEAR_ONE = 2.0**-20  # closer to 1, the other classes' probabilities tell more than 1 - p
HALF = int(np.float64(0.5).view(np.int64))
LIMIT = 31 << 52  # key, or its negative, at which the table ends: 2**-32 from 0 and 1
LOWEST = -708.0  # its exponential is next to nothing, but a normal number
SERIES = tuple(1.0 / n for n in range(31, 0, -2))  # of artanh(s) / s in s**2, to 1e-16 for s <= 1/3


@jit()
def group_rows(labels, k):  # type: ignore[no-untyped-def]
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
def twice_below(scores, rest, unit, farthest, labels, hidden, own, share, others):  # type: ignore[no-untyped-def]
    """Return, summed over all rows, twice the mass of the class below the row's score, and once what ties.

    ``own`` are the rows of the class; ``share`` is what each row weighs for it, ``others`` what against it,
    empty if that is 1; rows of the ``hidden`` label do not count among the others. Log-odds have a unit;
    ``rest`` is then how far apart rounding may put equal ones, and ``farthest`` the largest of these.
    """
    keys, rows, frame = _sort(scores, rest, unit, own)
    bounds = _merge_equal(keys, rows, share, scores, rest, unit, farthest)
    twice, near = _count(scores, rest, unit, labels, hidden, others, bounds, frame)
    if len(near):
        near_keys, near, _ = _sort(scores, rest, unit, near)
        twice += _count_ties(keys, rows, share, near_keys, near, others, scores, rest)
    return twice


@jit()
def _fill_keys(scores, rest, unit, keys):  # type: ignore[no-untyped-def]
    """Fill in the keys of log-odds if there is a unit; else of probabilities, near 1 by what they leave."""
    near, zero = keys.view(np.float64), np.float64(unit).view(np.int64)
    if unit > 0:
        for i in range(len(scores)):
            near[i] = abs(scores[i]) + unit
            keys[i] = keys[i] - zero if scores[i] > 0 else zero - keys[i]
        return
    for i in range(len(scores)):
        gap = 1.0 - scores[i]
        far = gap if gap >= NEAR_ONE else rest[i]
        near[i] = (scores[i] if scores[i] < 0.5 else far) + 0.0  # -0.0 has other bits
        keys[i] = keys[i] - HALF if scores[i] < 0.5 else HALF - keys[i]


@jit()
def _window(keys):  # type: ignore[no-untyped-def]
    """Return the frame of the table: the key below its first, its last, shifts to cut keys and to cells."""
    base, top = max(keys.min(), -LIMIT), min(keys.max(), LIMIT)
    bits, shift, coarse = 1, 0, 0
    while bits < TABLE_BITS and 1 << bits < 8 * len(keys):
        bits += 1
    while (top - base) >> shift >= 1 << KEY_BITS:
        shift += 1
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
def _starts(keys, frame):  # type: ignore[no-untyped-def]
    """Return the number of keys before each cell of the table, and how many the fullest holds."""
    coarse, most = np.uint32(frame[3]), np.uint32(0)
    starts = np.zeros((_cut(frame[1], frame) >> coarse) + 2, np.uint32)
    for i in range(len(keys)):
        starts[(_cut(keys[i], frame) >> coarse) + 1] += np.uint32(1)
    for c in range(len(starts) - 1):
        most = max(most, starts[c + 1])
        starts[c + 1] += starts[c]
    return starts, most


@jit()
def _sort(scores, rest, unit, rows):  # type: ignore[no-untyped-def]
    """Return the keys of some rows in order, those rows, and the frame of their table."""
    keys = np.empty(len(rows), np.int64)
    _fill_keys(scores[rows], rest[rows], unit, keys)
    frame = _window(keys)
    cells, most = _starts(keys, frame)
    if most > CROWD:
        order = np.argsort(keys, kind="mergesort")
        return keys[order], rows[order], frame
    found, order = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    for i in range(len(keys)):
        c = _cut(keys[i], frame) >> np.uint32(frame[3])
        found[cells[c]], order[cells[c]] = keys[i], rows[i]
        cells[c] += np.uint32(1)
    for i in range(1, len(found)):  # no key is far from its place
        key, row, at = found[i], order[i], i
        while at > 0 and found[at - 1] > key:
            found[at], order[at] = found[at - 1], order[at - 1]
            at -= 1
        found[at], order[at] = key, row
    return found, order, frame


@jit()
def _merge_equal(keys, rows, share, scores, rest, unit, farthest):  # type: ignore[no-untyped-def]
    """Return sorted keys that differ, the mass of the first t of them, or nothing if that is t, and bounds.

    A row between keys t - 1 and t that lies above ``low[t]`` or below ``high[t]`` may take part in a tie.
    """
    found, mass, t, total = np.empty(len(keys), np.int64), np.zeros(len(keys) + 1), 0, 0.0
    low, reach = np.full(len(keys) + 1 if unit > 0 else 0, np.nan), 0.0
    high = low.copy()
    for i in range(len(keys)):
        if i == 0 or keys[i] != keys[i - 1]:
            found[t], reach, t = keys[i], 0.0, t + 1
        total += share[rows[i]] if len(share) else 1.0
        mass[t] = total
        if unit > 0:
            reach = max(reach, rest[rows[i]] + farthest)
            low[t - 1], high[t] = scores[rows[i]] - reach, scores[rows[i]] + reach
    is_count = t == len(keys) and len(share) == 0
    return found[:t], mass[: 0 if is_count else t + 1], low, high


@jit()
def _count(scores, rest, unit, labels, hidden, weights, bounds, frame):  # type: ignore[no-untyped-def]
    """Return twice the mass of keys below each row's, equal ones once, and the rows near enough for a tie."""
    keys, mass, low, high = bounds
    starts, _ = _starts(keys, frame)
    cut = np.full(len(keys) + 2, np.uint32(2**32 - 1))
    for i in range(len(keys)):
        cut[i] = _cut(keys[i], frame)
    key, at = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.uint32)
    place = at.copy()
    near, n_near = np.empty(len(scores) if unit > 0 else 0, np.int64), 0
    whole, total = np.int64(0), 0.0
    for start in range(0, len(scores), BLOCK):
        part = scores[start : start + BLOCK]
        size = len(part)
        _fill_keys(part, rest[start : start + BLOCK], unit, key)
        _places(key, labels[start : start + BLOCK], hidden, cut, starts, frame, at, place)
        for r in range(size):
            t = np.int64(place[r])
            if cut[t] <= at[r]:
                end = np.int64(starts[(np.int64(at[r]) >> frame[3]) + 1])
                t += np.searchsorted(keys[t:end], key[r])
                place[r] = t
                if t < len(keys) and keys[t] == key[r]:
                    weight = weights[start + r] if len(weights) else 1.0
                    total += weight * (mass[t + 1] - mass[t] if len(mass) else 1.0)
        if unit > 0:
            for r in range(size):
                t, near[n_near] = np.int64(place[r]), start + r
                n_near += ((part[r] >= low[t]) | (part[r] <= high[t])) & (at[r] > 0)
        if len(mass) == 0 and len(weights) == 0:
            for r in range(size):
                whole += np.int64(place[r])
        else:
            for r in range(size):
                below = mass[place[r]] if len(mass) else np.float64(place[r])
                total += 2 * (weights[start + r] if len(weights) else 1.0) * below
    return total + 2 * whole, near[:n_near]


@jit()
def _places(keys, labels, hidden, cut, starts, frame, at, place):  # type: ignore[no-untyped-def]
    """Fill in cut keys, and the number of cut keys below each if it is found within two steps.

    Rows of the hidden label are put below all others, where they count nothing.
    """
    cell, one, zero = np.uint32(frame[3]), np.uint32(1), np.uint32(0)
    for r in range(len(labels)):
        at[r] = zero if labels[r] == hidden else _cut(keys[r], frame)
    for r in range(len(labels)):
        t = starts[np.uint64(at[r] >> cell)]
        t += one if cut[np.uint64(t)] < at[r] else zero
        t += one if cut[np.uint64(t)] < at[r] else zero
        place[r] = t


# ---- log-odds of logits ----------------------------------------------------------------------------------


@jit()
def _count_ties(keys, rows, share, near_keys, near, others, odds, rounding):  # type: ignore[no-untyped-def]
    """Return what ties by rounding add to twice the mass below, of the class's rows and those near them.

    Neighbors tie if they differ only by rounding. A run of them that is wider than rounding is not a tie:
    only its equal scores tie, which have been counted. A run that ties is not wider than the
    rounding of each row of the class in it, so any row that could link, widen or cut it is near: no
    farther from that row than its rounding and the largest of all.
    """
    found, a, b, last, first = 0.0, 0, 0, -np.inf, -np.inf
    reach, least, above, below, counted = 0.0, 0.0, 0.0, 0.0, 0.0
    while a < len(keys) or b < len(near):
        is_own = b == len(near) or (a < len(keys) and keys[a] <= near_keys[b])
        key, x = (keys[a], odds[rows[a]]) if is_own else (near_keys[b], odds[near[b]])
        mass, against, widest, narrowest = 0.0, 0.0, 0.0, np.inf
        while a < len(keys) and keys[a] == key:
            mass += share[rows[a]] if len(share) else 1.0
            widest, narrowest = max(widest, rounding[rows[a]]), min(narrowest, rounding[rows[a]])
            a += 1
        while b < len(near) and near_keys[b] == key:
            against += others[near[b]] if len(others) else 1.0
            widest, narrowest = max(widest, rounding[near[b]]), min(narrowest, rounding[near[b]])
            b += 1
        if not x - last <= min(reach, widest):
            found += 0.0 if last - first > least else below * above - counted
            first, least, below, above, counted = x, np.inf, 0.0, 0.0, 0.0
        counted += against * (2 * below + mass)
        below, above = below + mass, above + against
        last, reach, least = x, widest, min(least, narrowest)
    return found + (0.0 if last - first > least else below * above - counted)


@jit(fastmath={"contract", "nsz"})
def fill_log_odds(z, begin, end, odds, rounding):  # type: ignore[no-untyped-def]
    """Fill in the log-odds (k, n) of some rows, of two classes the second's, and how far rounding moves them.

    With s = p / (2 - p), log(p / (1 - p)) = log(p) + 2 artanh(s); what the likeliest class leaves is added up
    without it. Both arrays have room for whole tiles.
    """
    k, units = z.shape[1], 1e7 if z.itemsize == 4 else 1.0  # 8 units in the last place of float32
    tile, top = np.full((k, TILE + PAD), -np.inf, z.dtype), np.empty(TILE)
    rest, total, log_total = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for start in range(begin, end, TILE):
        part = z[start : min(start + TILE, end)]
        transpose(part, tile)
        top[:], total[:], rest[:] = -np.inf, 0.0, 0.0
        for j in range(k):
            for r in range(TILE):
                value = np.float64(tile[j, r])
                top[r] = value if value > top[r] else top[r]
                size = abs(value)
                total[r] = size if (size > total[r]) & (size < np.inf) else total[r]
        for r in range(TILE):  # sums of exponentials are of size 1
            size = units * total[r]
            rounding[start + r] = 1e-13 * (1.0 if (k > 2) & (size < 1.0) else size)
            total[r] = 0.0
        if k == 2:
            x = odds[1, start : start + TILE]
            for r in range(TILE):
                x[r] = np.float64(tile[1, r]) - np.float64(tile[0, r])
            continue
        for j in range(k):
            x = odds[j, start : start + TILE]
            for r in range(TILE):
                gap = np.float64(tile[j, r]) - top[r]
                x[r] = exp2(LOG2_E * (gap if gap > LOWEST else LOWEST))
            for r in range(TILE):
                rest[r] += x[r] if x[r] < 1.0 else 0.0
                total[r] += 0.0 if x[r] < 1.0 else 1.0
        for r in range(len(part)):
            rest[r] += total[r] - 1.0
            total[r] = 1.0 + rest[r]
            rest[r] = (
                -math.log(rest[r]) if rest[r] > 1e-250 else _log_odds_of_top(tile[:, r], top[r])
            )
            log_total[r] = math.log(total[r])
        for j in range(k):
            x = odds[j, start : start + TILE]
            for r in range(TILE):
                gap, s = np.float64(tile[j, r]) - top[r], x[r] / (2.0 * total[r] - x[r])
                other = gap - log_total[r] + 2.0 * s * _artanh(s * s)
                x[r] = other if x[r] < 1.0 else rest[r]


@inline(fastmath={"contract", "nsz"})
def _artanh(u):  # type: ignore[no-untyped-def]
    """Return artanh(s) / s for s**2 = u, by its series."""
    c = SERIES
    p = ((((c[0] * u + c[1]) * u + c[2]) * u + c[3]) * u + c[4]) * u + c[5]
    p = ((((p * u + c[6]) * u + c[7]) * u + c[8]) * u + c[9]) * u + c[10]
    return ((((p * u + c[11]) * u + c[12]) * u + c[13]) * u + c[14]) * u + c[15]


@jit()
def _log_odds_of_top(row, top):  # type: ignore[no-untyped-def]
    """Return the log-odds of the only likely class: the others next to the second."""
    second, rest = -np.inf, 0.0
    for j in range(len(row)):
        second = max(second, np.float64(row[j])) if row[j] < top else second
    if second == -np.inf:  # all others are impossible
        return np.inf
    for j in range(len(row)):
        rest += math.exp(row[j] - second) if row[j] < top else 0.0
    return top - second - math.log(rest)


@jit()
def log_odds_rows(z, out):  # type: ignore[no-untyped-def]
    """Fill in the log-odds of each class against the rest, row by row and by the exact functions."""
    for i in range(len(z)):
        best, rest = z[i].argmax(), 0.0
        top = z[i, best]
        for j in range(z.shape[1]):
            out[i, j] = math.exp(z[i, j] - top)
            rest += out[i, j] if j != best else 0.0
        for j in range(z.shape[1]):
            out[i, j] = z[i, j] - top - math.log(1.0 + (rest - out[i, j]))
        out[i, best] = -math.log(rest) if rest > 1e-250 else _log_odds_of_top(z[i], top)
