r"""The search for the best inverse temperature, separate from the readers of the data.

The mean log loss :math:`L(\beta)` is convex, so its slope has at most one root. The search asks a reader
(Numba or torch) for :math:`L` and its first four derivatives, in a *relative* change ``s`` of beta,

.. math:: L(\beta (1 + s)) = L + a s + \tfrac12 b s^2 + \tfrac16 c s^3 + \tfrac1{24} d s^4 + O(s^5),

so nothing depends on the scale of the logits.
"""

import math
from typing import NamedTuple, Protocol

MAX_BETA = math.exp(16.0)  # upper end of the paper's search interval (appendix D)
MAX_READS = 200  # bisection of log beta alone needs about 60
START_READS = 8  # a subsample only has to give a start

FINE_64 = 1e-11  # estimated relative error of beta at which the search stops
FINE_32 = 1e-9  # float32 logits carry 6e-8, and the estimate is only an estimate
ROUNDING_64, ROUNDING_32 = 2e-16, 1e-7  # relative error of one number
LOOSE = 1e-2  # on a subsample, whose sampling error is larger


class Point(NamedTuple):
    """The mean loss at ``beta`` and its derivatives in a relative change of beta."""

    beta: float
    loss: float
    a: float
    b: float
    c: float
    d: float


class Reader(Protocol):
    """Reads all the data once for each call of ``at``."""

    shape: tuple[int, int]  # rows and classes
    tolerance: float  # relative error of beta that its numbers allow
    rounding: float  # relative error of one of its numbers

    def every(self, stride: int) -> "Reader":
        """Return a reader of every ``stride``-th row."""

    def at(self, beta: float) -> Point:
        """Return the loss and its derivatives at (the representable number nearest to) ``beta``."""

    def at_zero(self) -> tuple[float, float]:
        """Return slope and curvature of the loss in beta itself, as beta falls to 0."""


class Found(NamedTuple):
    """The result of a search; ``loss`` is NaN if the data hold NaN, and for beta = 0."""

    beta: float
    loss: float
    n_reads: float
    converged: bool


def search(
    reader: Reader,
    start: float,
    tol: float,
    max_reads: int = MAX_READS,
    rounding: float = ROUNDING_64,
) -> Found:
    """Return the beta in [0, MAX_BETA] with the smallest loss, to the relative error ``tol``.

    Each step goes to the minimum of the fourth-order model, which has four times as many correct digits, so
    the last one needs no read to confirm it. A bracket with bisection in log beta handles losses far from
    that model, as for saturated or separable predictions.
    """
    lo, hi, is_bounded = 0.0, MAX_BETA, False  # whether the loss rises at hi
    beta = min(max(start, 1e-300), MAX_BETA)
    zero_seen = False
    for n_reads in range(1, max_reads + 1):
        point = reader.at(beta)
        beta, loss, a, b, c, d = point
        if not math.isfinite(loss + a):
            return Found(beta, math.nan, n_reads + zero_seen, False)
        at_bound = a < 0 and beta >= 0.999999 * MAX_BETA  # the loss falls forever
        closed = beta == lo or (is_bounded and beta == hi)  # no representable number in between
        if a == 0 or at_bound or closed or hi - lo <= 4e-16 * hi:
            return Found(min(beta, MAX_BETA), loss, n_reads + zero_seen, True)
        lo, hi = (lo, beta) if a > 0 else (beta, hi)
        is_bounded = is_bounded or a > 0
        step, error = best_step(a, b, c, d)
        target = beta * (1 + step)
        if lo <= target <= hi:
            if error < tol:
                loss += step * (a + step * (b / 2 + step * (c / 6 + step * d / 24)))
                return Found(target, loss, n_reads + zero_seen, True)
            if -0.9 < step < 9:
                beta = target
                continue
        if a > 0 and lo == 0 and not zero_seen:
            zero_seen = True
            slope, curvature = reader.at_zero()
            if slope >= 0:  # no better than chance: the flat prediction is best
                return Found(0.0, math.nan, n_reads + 1, True)
            target = -slope / curvature if 0 < curvature < math.inf else 0.0
            beta = target if lo < target < hi else beta * 1e-3
            continue
        reach = (beta - lo if a > 0 else hi - beta) / beta
        if is_bounded and abs(a) * reach <= rounding * loss:  # convex: nothing more to gain
            return Found(beta, loss, n_reads + zero_seen, True)
        beta = _towards_root(beta, lo, hi if is_bounded else None, rising=a > 0)
    return Found(beta, loss, max_reads + zero_seen, False)


def best_step(a: float, b: float, c: float, d: float) -> tuple[float, float]:
    """Return the relative step to the root of the slope, and an estimate of the error left after it.

    Far from the root the slope is modeled as a constant plus an exponential with the same a, b, c, which is
    exact for saturated and nearly separable predictions, where Newton's steps would be slow.
    """
    if not b > 0:
        return math.copysign(math.inf, -a), math.inf
    newton = -a / b
    rate = c / b
    bend = newton * rate
    if bend <= -0.999:  # the model has no root on this side
        return (3.0 if newton > 0 else -math.inf), math.inf
    step = newton * math.log1p(bend) / bend if abs(bend) > 1e-8 else newton
    if abs(step) * max(1.0, abs(rate)) < 0.1:  # close enough for a cubic model of the slope
        for _ in range(2):
            value = a + step * (b + step * (c / 2 + step * d / 6))
            step -= value / (b + step * (c + step * d / 2))
    size = min(abs(step), 1e9)
    growth = min(max(1.0, abs(rate) / 2, abs(d / c) if c else 0.0), 1e50)  # of the derivatives
    return step, size**4 * growth * max(growth**2, abs(d / b))


def _towards_root(beta: float, lo: float, hi: float | None, rising: bool) -> float:
    """Bisect log beta, or move by a large factor while the bracket is open on that side."""
    if lo > 0 and hi is not None:
        return math.sqrt(lo) * math.sqrt(hi)
    return beta * 1e-3 if rising else min(beta * 100, MAX_BETA)
