"""Pairwise coupling: probabilities of many classes from those of each pair."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SMALL = 1e-6  # probabilities below are computed again, to be exact beside themselves, not beside 1


def couple(ratios: Floats) -> Floats:
    r"""Return the probabilities that agree best with the probabilities of pairs.

    They minimise :math:`\sum_{i<j} (r_{ji} p_i - r_{ij} p_j)^2 = p^T Q p` with :math:`\sum_i p_i = 1`: they
    solve the linear system :math:`Q p = \lambda e, e^T p = 1`. It is never singular, since
    :math:`r_{ij} + r_{ji} = 1`, and its solution has no negative entries.

    Parameters
    ----------
    ratios : ndarray of shape (n, k, k)
        ``ratios[:, i, j]`` is the probability of i if it is i or j, 0 if i is j.

    Returns
    -------
    ndarray of shape (n, k)

    References
    ----------
    Wu, Lin, Weng, "Probability estimates for multi-class classification by pairwise coupling", 2004.
    """
    n, k, _ = ratios.shape
    opposite = ratios.transpose(0, 2, 1)
    products = ratios * opposite
    own = np.square(opposite).sum(axis=2)  # the diagonal of Q
    system = np.ones((n, k + 1, k + 1))
    system[:, :k, :k] = -products
    system[:, range(k), range(k)] = own
    system[:, k, k] = 0
    right = np.zeros((n, k + 1, 1))
    right[:, k] = 1
    probs = np.maximum(np.linalg.solve(system, right)[:, :k, 0], 0)
    gaps = opposite * probs[:, :, None] - ratios * probs[:, None, :]
    multiplier = np.square(gaps).sum(axis=(1, 2)) / 2
    with np.errstate(divide="ignore", invalid="ignore"):  # only where not needed
        again = ((products @ probs[:, :, None])[:, :, 0] + multiplier[:, None]) / own
    probs = np.where(probs < SMALL, again, probs)
    return np.asarray(probs / probs.sum(axis=1, keepdims=True))
