r"""How far a Brownian motion on [0, 1] gets: its largest distance from 0, and its range.

Each probability has two series, one fast for short distances and one for long ones, both to full precision;
:math:`\bar\Phi(x)` is the probability that a standard normal exceeds x.
"""

import math

LARGEST_SWITCH, RANGE_SWITCH = 1.5, 2.5  # where both series need few terms
TERMS = range(8)


def _beyond(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


def largest_tail(x: float) -> float:
    r"""Return the probability that the largest absolute value exceeds x.

    .. math:: 4 \sum_{k \ge 0} (-1)^k \bar\Phi((2k+1)x)
              = 1 - \frac4\pi \sum_{k \ge 0} \frac{(-1)^k}{2k+1} e^{-(2k+1)^2 \pi^2 / 8x^2}.
    """
    if x < 0.1:  # the exponential is 0 to full precision
        return 1.0
    if x > LARGEST_SWITCH:
        return 4 * math.fsum((-1.0) ** k * _beyond((2 * k + 1) * x) for k in TERMS)
    rate = (math.pi / x) ** 2 / 8
    terms = ((-1.0) ** k / (2 * k + 1) * math.exp(-rate * (2 * k + 1) ** 2) for k in TERMS)
    return 1 - 4 / math.pi * math.fsum(terms)


def range_tail(x: float) -> float:
    r"""Return the probability that the largest value exceeds the smallest by more than x.

    .. math:: 8 \sum_{k \ge 1} (-1)^{k-1} k \bar\Phi(kx)
              = 1 - 8 \sum_{m = 1, 3, 5, \dots} \Big(\frac1{\pi^2 m^2} + \frac1{x^2}\Big)
              e^{-m^2 \pi^2 / 2x^2}.

    The first is Feller's density, integrated; the second follows from the chance to stay between -a and b,
    differentiated in a, and integrated over a with b = x - a.
    """
    if x < 0.1:
        return 1.0
    if x > RANGE_SWITCH:
        return 8 * math.fsum((-1.0) ** k * (k + 1) * _beyond((k + 1) * x) for k in TERMS)
    rate = (math.pi / x) ** 2 / 2
    odd = (2 * k + 1 for k in TERMS)
    return 1 - 8 * math.fsum(((math.pi * m) ** -2 + x**-2) * math.exp(-rate * m**2) for m in odd)
