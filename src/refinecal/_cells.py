"""Fused loops that gather masses on the line [0, 1] into cells, and find the masses of predictions."""

import numpy as np

from refinecal._kernels import _jit

ORDER = 6  # moments kept of each cell: 0 to 5
TILE = 256  # rows whose columns are looked at together: they stay in the nearest cache


@_jit()
def moments_of(places, masses, out):  # type: ignore[no-untyped-def]
    """Add masses at places in [0, 1] to the moments of the cells: ``out[c, q]`` sums mass * d**q.

    d is the distance from the middle of the cell, in cells: -1/2 to 1/2.
    """
    cells = len(out)
    for i in range(len(places)):
        x = places[i] * cells
        c = min(int(x), cells - 1)
        d, mass = x - c - 0.5, masses[i]
        out[c, 0] += mass
        mass *= d
        out[c, 1] += mass
        mass *= d
        out[c, 2] += mass
        mass *= d
        out[c, 3] += mass
        mass *= d
        out[c, 4] += mass
        out[c, 5] += mass * d


@_jit()
def tops_of(columns, labels, scores, hits):  # type: ignore[no-untyped-def]
    """Fill in the largest probability of each row, of columns (k, n), and whether it is the label's."""
    k, n = columns.shape
    best = np.empty(TILE, np.int64)
    for start in range(0, n, TILE):
        top, hit, own = scores[start : start + TILE], hits[start : start + TILE], labels[start:]
        top[:] = columns[0, start : start + TILE]
        best[:] = 0
        for j in range(1, k):
            row = columns[j, start : start + TILE]
            for r in range(len(row)):
                larger = row[r] > top[r]
                best[r] = j if larger else best[r]
                top[r] = row[r] if larger else top[r]
        for r in range(len(top)):
            hit[r] = best[r] == own[r]
