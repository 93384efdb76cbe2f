"""Pairwise coupling: probabilities of many classes from those of each pair.

Pairs are in the order of ``pairs``: row j of a lower triangle has the pairs of class j with those before it.
"""

import numpy as np
from numpy.typing import NDArray

from refinecal._kernels.coupling import couple_rows

Floats = NDArray[np.float64]


def couple(up: Floats, down: Floats) -> Floats:
    r"""Return the probabilities that agree best with the probabilities of pairs.

    With :math:`r_{ij}` the probability of class i if it is i or j, they minimize
    :math:`\sum_{i<j} (r_{ji} p_i - r_{ij} p_j)^2 = p^T Q p` with :math:`\sum_i p_i = 1`: they solve the
    linear system :math:`Q p = \lambda e, e^T p = 1`. It is never singular, since
    :math:`r_{ij} + r_{ji} = 1`, and its solution has no negative entries.

    The class t that loses to others least is set to 1, which leaves
    :math:`Q_{BB} p_B = -Q_{Bt} + \lambda e` for the others. Everything in it but the diagonal of Q has one
    sign, and so has everything that elimination adds up: nothing cancels.

    Parameters
    ----------
    up, down : ndarray of shape (n, k (k - 1) / 2)
        For each pair of classes i < j, the probability of j and that of i, which sum to 1.

    Returns
    -------
    ndarray of shape (n, k)

    References
    ----------
    Wu, Lin, Weng, "Probability estimates for multi-class classification by pairwise coupling", 2004.
    """
    n, n_pairs = up.shape
    k = (1 + int((1 + 8 * n_pairs) ** 0.5)) // 2
    probs = np.empty((n, k))
    couple_rows(up, down, probs)
    return probs
