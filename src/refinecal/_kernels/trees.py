"""Predictions of the trees of a boosted model."""

import numpy as np

from refinecal._kernels.jit import jit


@jit()
def add_trees(  # type: ignore[no-untyped-def]
    rows,
    first,
    last,
    starts,
    feature,
    threshold,
    left,
    right,
    missing_left,
    bitset,
    bitsets,
    value,
    out,
):
    k = out.shape[1]
    for i in range(len(rows)):
        for tree in range(first, last):
            start = starts[tree]
            node = start
            while feature[node] >= 0:
                x = rows[i, feature[node]]
                if np.isnan(x):
                    go_left = missing_left[node] != 0
                elif bitset[node] >= 0:
                    code = int(x) & 255  # categories are numbered 0..254; stays inside the bitset
                    go_left = (bitsets[bitset[node], code >> 5] >> (code & 31)) & 1 != 0
                else:
                    go_left = x <= threshold[node]
                node = start + (left[node] if go_left else right[node])
            out[i, tree % k] += value[node]


@jit()
def add_votes(  # type: ignore[no-untyped-def]
    rows, first, last, starts, feature, threshold, right, missing_left, leaves, out
):
    for i in range(len(rows)):
        for tree in range(first, last):
            start = starts[tree]
            node = start
            while feature[node] >= 0:
                x = rows[i, feature[node]]
                go_left = missing_left[node] != 0 if np.isnan(x) else x <= threshold[node]
                node = node + 1 if go_left else start + right[node]
            for j in range(out.shape[1]):
                out[i, j] += leaves[right[node], j]
