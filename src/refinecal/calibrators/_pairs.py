"""Pairs of classes: their maps as curves in the log-odds, and probabilities that fit all pairs.

Pairs are in the order of a lower triangle: row j has the pairs of class j with those before it.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels

Floats = NDArray[np.float64]
NO_KNOTS = np.empty(0)
POWERS = 4  # of a piece: at most a cubic


class Curve(NamedTuple):
    r"""A map from the log-odds x of class 1 of two to its probability, or to log-odds again.

    Pieces are polynomials in the place u of x: 0 to 1 between two knots; in the tails, u is the distance to
    the outer knot over that of the outer knots. A curve without knots has u = x. Log-odds get
    :math:`\mathrm{bend} \cdot \log(1 + e^{-|x|})` added.
    """

    knots: Floats  # (m,) increasing; a knot belongs to the piece above
    pieces: Floats  # (m + 1, at most 4): coefficients of 1, u, u**2, u**3
    is_odds: bool = True
    limit: float = np.inf  # of x
    bend: float = 0.0


def polynomial(*coefficients: float, limit: float = np.inf) -> Curve:
    """Return log-odds that are a polynomial in x."""
    return Curve(NO_KNOTS, np.array([coefficients]), limit=limit)


def steps(knots: Floats, levels: Floats, is_odds: bool = False) -> Curve:
    """Return a step function."""
    return Curve(knots, levels[:, None], is_odds)


class Curves(NamedTuple):
    """Concatenated curves, as the compiled loop reads them."""

    begin: NDArray[np.int64]  # of the knots of each; add the index of the curve for its pieces
    knots: Floats
    pieces: Floats
    powers: NDArray[np.int64]
    is_odds: NDArray[np.bool_]
    limit: Floats
    bend: Floats
    mix: Floats  # (n, 3): a factor for both probabilities, and an addend for each


def pack(curves: list[Curve], mix: list[tuple[float, float, float]]) -> Curves:
    """Return the concatenated curves, each with the mixture of its probabilities."""
    begin = np.cumsum([0, *(len(one.knots) for one in curves)])
    pieces = np.zeros((int(begin[-1]) + len(curves), POWERS))
    for i, one in enumerate(curves):
        own = pieces[begin[i] + i : begin[i + 1] + i + 1]
        if len(one.pieces) != len(own):  # in a damaged file
            raise ValueError("a curve must have one piece more than it has knots")
        own[:, : one.pieces.shape[1]] = one.pieces
    rest = [(one.pieces.shape[1], one.is_odds, one.limit, one.bend) for one in curves]
    powers, is_odds, limit, bend = map(np.array, zip(*rest, strict=True))
    knots = np.concatenate([one.knots for one in curves])
    return Curves(begin, knots, pieces, powers, is_odds, limit, bend, np.array(mix))


def evaluate(curves: Curves, logits: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return the probabilities of the second and of the first class of each pair, (n, number of pairs).

    Both are 1/2 where both logits are -inf.
    """
    n, k = logits.shape
    if len(curves.mix) != k * (k - 1) // 2:  # the compiled loop would not notice
        raise ValueError(f"{k} classes have {k * (k - 1) // 2} pairs, found {len(curves.mix)}")
    columns = np.ascontiguousarray(logits.T, dtype=np.float64)
    up, down = np.empty((2, n, len(curves.mix)))
    _kernels.curves.evaluate_curves(columns, *curves, up, down)
    return up, down


def couple(up: Floats, down: Floats) -> Floats:
    r"""Return the probabilities that best fit the probabilities of pairs.

    With :math:`r_{ij}` the probability of class i if it is i or j, they minimize
    :math:`\sum_{i<j} (r_{ji} p_i - r_{ij} p_j)^2 = p^T Q p` with :math:`\sum_i p_i = 1`: they solve the
    linear system :math:`Q p = \lambda e, e^T p = 1`. It is never singular, since
    :math:`r_{ij} + r_{ji} = 1`, and its solution has no negative entries.

    The class t that loses least to others is set to 1, which leaves
    :math:`Q_{BB} p_B = -Q_{Bt} + \lambda e` for the others. All terms but the diagonal of Q have one sign, so
    nothing cancels in the elimination.

    ``up`` and ``down`` (n, pairs) are, for each pair of classes i < j, the probabilities of j and of i. This
    is the second method of Wu, Lin, Weng, "Probability estimates for multi-class classification by pairwise
    coupling", 2004.
    """
    n, n_pairs = up.shape
    k = (1 + int((1 + 8 * n_pairs) ** 0.5)) // 2
    probs = np.empty((n, k))
    _kernels.coupling.couple_rows(up, down, probs)
    return probs
