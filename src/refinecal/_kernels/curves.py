"""Curves of all pairs of classes, evaluated in one loop."""

import numpy as np

from refinecal._kernels.jit import FAST, LOG2_E, inline, jit
from refinecal._kernels.pav import search_knots
from refinecal._kernels.vector import exp2

TERMS = 16  # of a series in powers of 1/9: the next is below rounding


@jit(fastmath=FAST)
def evaluate_curves(columns, begin, knots, pieces, powers, is_odds, limit, bend, mix, up, down):  # type: ignore[no-untyped-def]
    k, n = columns.shape
    x, place, value, rest = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    pair = 0
    for j in range(k):
        for i in range(j):
            own = knots[begin[pair] : begin[pair + 1]]
            table = pieces[begin[pair] + pair : begin[pair + 1] + pair + 1]
            _log_odds(columns[i], columns[j], limit[pair], x)
            at = search_knots(x, own)
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


@inline(fastmath=FAST)
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


@inline(fastmath=FAST)
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


@inline()
def _log_odds(first, second, limit, x):  # type: ignore[no-untyped-def]
    """Fill the log-odds, within -limit..limit; 0 where both logits are -inf."""
    for r in range(len(x)):
        gap = second[r] - first[r]
        gap = 0.0 if np.isnan(gap) else gap
        gap = gap if gap < limit else limit
        x[r] = gap if gap > -limit else -limit


@inline(fastmath=FAST)
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
