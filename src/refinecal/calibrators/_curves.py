"""Maps of two classes as curves in their log-odds: many at once, in one compiled loop."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal._kernels import FAST, LOG2_E, _inlined, _jit
from refinecal._vector import exp2

Floats = NDArray[np.float64]
NO_KNOTS = np.empty(0)
POWERS = 4  # of a piece: at most a cubic
TERMS = 16  # of a series in powers of 1/9: the next is below rounding


class Curve(NamedTuple):
    r"""A map from the log-odds x of class 1 of two to its probability, or to log-odds again.

    Pieces are polynomials in the place u of x within them: 0 to 1 between two knots; in the tails, u counts
    from the outer knot in units of the distance of the outer knots. A curve without knots has u = x. To
    log-odds, :math:`\mathrm{bend} \cdot \log(1 + e^{-|x|})` is added.
    """

    knots: Floats  # (m,) increasing; a score on a knot belongs to the piece above
    pieces: Floats  # (m + 1, 4 or less): coefficients of 1, u, u**2, u**3
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
    """Curves one after the other, as the compiled loop reads them."""

    begin: NDArray[np.int64]  # of the knots of each; of its pieces, if their number so far is added
    knots: Floats
    pieces: Floats
    powers: NDArray[np.int64]
    is_odds: NDArray[np.bool_]
    limit: Floats
    bend: Floats
    mix: Floats  # (n, 3): a factor for both probabilities, and what is added to each


def pack(curves: list[Curve], mix: list[tuple[float, float, float]]) -> Curves:
    """Return the curves one after the other, each with what becomes of its probabilities."""
    begin = np.cumsum([0, *(len(one.knots) for one in curves)])
    pieces = np.zeros((int(begin[-1]) + len(curves), POWERS))
    for i, one in enumerate(curves):
        own = pieces[begin[i] + i : begin[i + 1] + i + 1]
        if len(one.pieces) != len(own):  # in a damaged file
            raise ValueError("a curve must have one piece more than it has knots")
        own[:, : one.pieces.shape[1]] = one.pieces
    return Curves(
        begin,
        np.concatenate([one.knots for one in curves]),
        pieces,
        np.array([one.pieces.shape[1] for one in curves]),
        np.array([one.is_odds for one in curves]),
        np.array([one.limit for one in curves]),
        np.array([one.bend for one in curves]),
        np.array(mix),
    )


def evaluate(curves: Curves, logits: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return the probabilities of the second and of the first class of each pair, (n, number of pairs).

    Where both classes are impossible, they are equally so.
    """
    n, k = logits.shape
    if len(curves.mix) != k * (k - 1) // 2:  # the compiled loop would not notice
        raise ValueError(f"{k} classes have {k * (k - 1) // 2} pairs, found {len(curves.mix)}")
    columns = np.ascontiguousarray(logits.T, dtype=np.float64)
    up, down = np.empty((2, n, len(curves.mix)))
    _evaluate(columns, *curves, up, down)
    return up, down


@_jit(fastmath=FAST)
def _evaluate(columns, begin, knots, pieces, powers, is_odds, limit, bend, mix, up, down):  # type: ignore[no-untyped-def]
    k, n = columns.shape
    x, place, value, rest = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    at = np.empty(n, np.int64)
    pair = 0
    for j in range(k):
        for i in range(j):
            own = knots[begin[pair] : begin[pair + 1]]
            table = pieces[begin[pair] + pair : begin[pair + 1] + pair + 1]
            _log_odds(columns[i], columns[j], limit[pair], x)
            _find_pieces(x, own, at)
            _polynomials(x, own, table, powers[pair], at, place, value)
            if bend[pair] != 0.0:
                _add_bend(x, bend[pair], place, rest, value)
            if is_odds[pair]:
                _shares(value, rest)
            else:
                for r in range(n):
                    rest[r] = 1.0 - value[r]
            factor, more_down, more_up = mix[pair]
            for r in range(n):
                up[r, pair] = factor * value[r] + more_up
                down[r, pair] = factor * rest[r] + more_down
            pair += 1


@_inlined(fastmath=FAST)
def _shares(value, rest):  # type: ignore[no-untyped-def]
    """Turn log-odds into the probability of class 1, and fill that of class 0."""
    for r in range(len(value)):
        t = -abs(value[r]) * LOG2_E
        e = exp2(-1022.0 if t < -1022.0 else t)
        e = 0.0 if t < -1022.0 else e
        likely = 1.0 / (1.0 + e)
        above = value[r] > 0
        value[r] = likely if above else e * likely
        rest[r] = e * likely if above else likely


@_inlined(fastmath=FAST)
def _add_bend(x, bend, place, series, value):  # type: ignore[no-untyped-def]
    """Add bend * log(1 + e), with e = exp(-|x|), as 2 artanh(e / (2 + e)): its series is vector code."""
    for r in range(len(x)):
        t = -abs(x[r]) * LOG2_E
        e = exp2(-1022.0 if t < -1022.0 else t)
        place[r], series[r] = e / (2.0 + e), 0.0
    for i in range(TERMS - 1, -1, -1):
        term = 2.0 * bend / (2 * i + 1)
        for r in range(len(x)):
            series[r] = series[r] * (place[r] * place[r]) + term
    for r in range(len(x)):
        value[r] += place[r] * series[r]


@_inlined()
def _log_odds(first, second, limit, x):  # type: ignore[no-untyped-def]
    """Fill the log-odds, within -limit..limit; 0 where both logits are -inf."""
    for r in range(len(x)):
        gap = second[r] - first[r]
        gap = 0.0 if np.isnan(gap) else gap
        gap = gap if gap < limit else limit
        x[r] = gap if gap > -limit else -limit


@_inlined()
def _find_pieces(x, knots, at):  # type: ignore[no-untyped-def]
    """Fill how many knots are not above each score: all take the same steps of the binary search."""
    at[:] = 0
    size = len(knots)
    while size > 0:
        half = (size + 1) >> 1
        for r in range(len(x)):
            further = at[r] + half
            at[r] = further if knots[further - 1] <= x[r] else at[r]
        size -= half


@_inlined(fastmath=FAST)
def _polynomials(x, knots, pieces, n_powers, at, place, value):  # type: ignore[no-untyped-def]
    """Fill the polynomial of each score's piece."""
    last = len(knots) - 1
    span = knots[last] - knots[0] if last > 0 else 1.0
    for r in range(len(x)):
        value[r] = pieces[at[r], n_powers - 1]
    if n_powers == 1:
        return
    for r in range(len(x)):
        low = knots[max(at[r] - 1, 0)] if last >= 0 else 0.0
        width = knots[at[r]] - low if 0 < at[r] <= last else span
        place[r] = (x[r] - low) / width
    for power in range(n_powers - 2, -1, -1):
        for r in range(len(x)):
            rise = value[r] * place[r]
            value[r] = (rise if value[r] != 0.0 else 0.0) + pieces[at[r], power]  # 0 * inf is 0
