"""The bins of probabilities, by one rule for calibration errors, evaluation and diagrams.

Of n bins of equal width, bin b holds b/n < p <= (b + 1)/n, and the first holds 0. A probability less than
BORDER above a border is on it, and so in the bin below: 0.1 + 0.2 is 3/10, and 0.1 in single precision is
1/10. Probabilities are rounded to single precision before they are compared with borders or, for bins of
equal mass, with each other, so bins are the same in both precisions.
"""

import numpy as np

from refinecal._kernels import BORDER
from refinecal._kernels.jit import jit

ROUNDING = 1e-9  # of the place of a row among all, in bins: sums of weights are not exact
MASS, SCORES, HITS, N_KINDS = range(4)  # weighted sums over the rows of each bin


@jit()
def bin_of(p, n_bins):  # type: ignore[no-untyped-def]
    """Return the bin of equal width."""
    place = np.int32((np.float32(p) - np.float32(BORDER)) * np.float32(n_bins))
    return min(max(place, np.int32(0)), np.int32(n_bins - 1))


@jit()
def uniform_bins(scores, n_bins, found):  # type: ignore[no-untyped-def]
    """Fill in the bin of equal width of each score."""
    for i in range(len(scores)):
        found[i] = bin_of(scores[i], n_bins)


@jit()
def quantile_bins(order, scores, weights, n_bins, found):  # type: ignore[no-untyped-def]
    """Fill in bins of equal mass: all rows of one score are in the bin of the middle of their mass.

    A middle on a border is in the bin above, as in histogram binning.
    """
    n = len(order)
    total = weights.sum() if len(weights) else float(n)
    first, below = 0, 0.0
    while first < n:
        last, own, score = first, 0.0, scores[order[first]]
        while last < n and scores[order[last]] == score:
            own += weights[order[last]] if len(weights) else 1.0
            last += 1
        place = (below + own / 2) / total * n_bins
        for i in order[first:last]:
            found[i] = min(int(place + ROUNDING), n_bins - 1)
        first, below = last, below + own


@jit()
def add_rows(bins, scores, hits, weights, sums):  # type: ignore[no-untyped-def]
    """Add scores and hits to the sums (3, n_bins) of their bins."""
    for i in range(len(bins)):
        b, w = bins[i], weights[i] if len(weights) else 1.0
        sums[MASS, b] += w
        sums[SCORES, b] += w * scores[i]
        sums[HITS, b] += w * hits[i]
