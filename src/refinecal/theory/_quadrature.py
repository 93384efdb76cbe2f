r"""Quadrature for laws on an interval that are power-like at its ends.

The density, up to a factor, is :math:`u^{a-1} (1-u)^{b-1} (s+u)^c` for :math:`u \in [0, 1]`, and the
function to average is rational, with a pole at :math:`u = -s - x`. The distance :math:`s` of the law from 0
is given; :math:`x \ge 0` is arbitrary, such as :math:`\lambda / \tau`.

So panels grow by a factor of 4 from :math:`s` to the right: no pole is then nearer to a panel than a third
of its length, and each node divides the error by 9. The panels at the two ends have Gauss-Jacobi nodes for
the fractional power of the density there. Panels that do not resolve the density yet are halved.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import roots_jacobi

Floats = NDArray[np.float64]

ORDER = 16  # nodes of a panel: 9^-16 is rounding error
GROWTH = 4.0
FINEST = 1e-14  # where grading ends if the law reaches 0: the rule is for x = 0 and x >= 100 FINEST
TOLERANCE = 3e-14  # of a panel against its two halves, relative to the whole
EPSILON = float(np.finfo(float).eps)
MOST_HALVINGS = 40
NEGLIGIBLE = 1e-20  # share of a mean


class Law(NamedTuple):
    """A density on [0, 1] proportional to u^(a-1) (1-u)^(b-1) (floor+u)^c."""

    a: float
    b: float
    floor: float
    c: float = 0.0

    @property
    def means(self) -> tuple[float, float]:
        """The means of u and of 1 - u, if c were 0."""
        return self.a / (self.a + self.b), self.b / (self.a + self.b)

    @property
    def diverges(self) -> bool:
        """Whether the mean of 1 / (floor + u) is infinite."""
        return self.floor == 0 and self.a <= 1

    def log_density(self, t: Floats, right: bool) -> Floats:
        """Return the logarithm at the distance t from 0, or from 1, up to a constant.

        Both powers are taken relative to the mean, in terms of the same difference, so that their
        rounding errors cancel when shapes are large.
        """
        (here, there), (p, q) = self.means, (self.a, self.b)
        if right:
            here, there, p, q = there, here, q, p
        change = (t - here) / here
        near = np.abs(change) < 0.5
        own = np.where(near, np.log1p(np.where(near, change, 0)), np.log(t / here))
        found = (p - 1) * own + (q - 1) * np.log1p((here - t) / there)
        if self.c:
            found += self.c * np.log(self.floor + (1 - t if right else t))
        return found

    def sigma(self, u: Floats) -> Floats:
        """Return floor + u, divided by its maximum; bounded away from 0 if its inverse has no mean."""
        return ((FINEST if self.diverges else self.floor) + u) / (1 + self.floor)


class Panel(NamedTuple):
    """Part of the interval: from ``start`` to ``stop``, distances from 0, or from 1 if ``right``."""

    right: bool
    start: float
    stop: float

    def halves(self) -> tuple[Panel, Panel]:
        """Return its two halves."""
        middle = (self.start + self.stop) / 2
        return self._replace(stop=middle), self._replace(start=middle)


def rule(law: Law, order: int = ORDER) -> tuple[Floats, Floats]:
    """Return nodes in [0, 1] and weights that sum to 1: the mean of f(u) is ``weights @ f(nodes)``."""
    panels = _halve_panels(law, _first_panels(law), order)
    parts = [_nodes_of(law, panel, order) for panel in panels]
    nodes, weights = (np.concatenate(each) for each in zip(*parts, strict=True))
    by_size = np.argsort(nodes, kind="stable")
    nodes, weights = nodes[by_size], weights[by_size]
    kept = _cut_tails(law.sigma(nodes), weights)
    return nodes[kept], weights[kept] / weights[kept].sum()


def _first_panels(law: Law) -> list[Panel]:
    """Return panels that grow from either end, and from the mean if the law is narrow."""
    (left, right), total = law.means, law.a + law.b
    spread = np.sqrt(left * right / (total + 1))
    steps = spread * GROWTH ** np.arange(4) if spread < 0.1 else np.empty(0)
    around = np.concatenate([-steps, 0 * steps, steps])  # else wide panels could miss the peak
    near, far = (3 * max(shape, 1.0) / total for shape in (law.a, law.b))  # scales of the powers
    starts = min(law.floor or FINEST, near), far
    panels = []
    for is_right, centre, start in zip((False, True), (left, right), starts, strict=True):
        graded = start * GROWTH ** np.arange(np.ceil(np.log(0.5 / start) / np.log(GROWTH)))
        edges = np.concatenate([graded, centre + around])
        edges = np.unique(np.concatenate([[0.0], edges[(edges > 0) & (edges < 0.5)], [0.5]]))
        pairs = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        panels += [Panel(is_right, *pair) for pair in pairs]
    return panels


def _halve_panels(law: Law, panels: list[Panel], order: int) -> list[Panel]:
    """Return panels that agree with their halves, halving those that do not."""
    rounding = 4 * EPSILON * np.sqrt(law.a + law.b)  # of the density's logarithm
    tolerance = TOLERANCE + rounding
    done: list[Panel] = []
    for _ in range(MOST_HALVINGS):
        whole = _integrals(law, done + panels, order)
        coarse: list[Panel] = []
        for panel in panels:
            gap = np.abs(_integrals(law, panel.halves(), order) - _integrals(law, [panel], order))
            if np.all(gap <= tolerance * whole):
                done.append(panel)
            else:
                coarse += panel.halves()
        if not coarse:
            return done
        panels = coarse
    raise RuntimeError(
        f"no quadrature within {tolerance:.0e} for {law} after {MOST_HALVINGS} halvings"
    )


def _integrals(law: Law, panels: Sequence[Panel], order: int) -> Floats:
    """Return the share of some panels in the means of 1, 1 / sigma and sigma^2."""
    found = np.zeros(3)
    for nodes, weights in (_nodes_of(law, panel, order) for panel in panels):
        sigma = law.sigma(nodes)
        found += weights.sum(), (weights / sigma).sum(), (weights * sigma**2).sum()
    return found


def _nodes_of(law: Law, panel: Panel, order: int) -> tuple[Floats, Floats]:
    """Return Gauss nodes u of a panel with weights that hold the density."""
    shape = law.b if panel.right else law.a
    fraction = shape - max(np.ceil(shape) - 1, 0.0) if panel.start == 0 else 1.0  # in (0, 1]
    parts, weights = _gauss(order, fraction)
    length = panel.stop - panel.start
    t = panel.start + length * parts
    logs = law.log_density(t, panel.right) - (fraction - 1) * np.log(parts)
    return 1 - t if panel.right else t, length * weights * np.exp(logs)


@lru_cache(maxsize=256)
def _gauss(order: int, shape: float) -> tuple[Floats, Floats]:
    """Return the Gauss rule on [0, 1] with weight t^(shape - 1), shape > 0.

    SciPy's nodes lose digits near 0 when the shape is small, and its weights lose more; two Newton
    steps on the polynomial, evaluated from 0, bring them back.
    """
    t = (1 + roots_jacobi(order, 0.0, shape - 1)[0]) / 2
    start = -order * (order + shape) / shape

    def slope(t: Floats) -> Floats:
        return start * _jacobi(order - 1, shape + 1, 1.0, t)

    for _ in range(2):
        t = t - _jacobi(order, shape, 0.0, t) / slope(t)
    weights = 1 / (t * (1 - t) * slope(t) ** 2)
    return t, weights / (weights.sum() * shape)


def _jacobi(n: int, shape: float, beta: float, t: Floats) -> Floats:
    """Return the Jacobi polynomial of degree n > 0, alpha = shape - 1, at 1 - 2t; it is 1 at t = 0."""
    both = shape - 1 + beta
    change = -(shape + 1 + beta) / shape * t
    value = 1 + change
    for k in range(1, n):
        c = 2 * k + both
        change = 2 * k * (k + beta) * (c + 2) * change - 2 * c * (c + 1) * (c + 2) * t * value
        change = change / (2 * (k + shape) * (k + shape + beta) * c)
        value = value + change
    return value


def _cut_tails(sigma: Floats, weights: Floats) -> slice:
    """Return the nodes to keep: all but tails that are negligible in every mean.

    Of the functions in question, the left tail has its largest share in the mean of sigma^-3, and the
    right tail in that of sigma^2.
    """
    left, right = np.cumsum(weights * sigma**-3.0), np.cumsum((weights * sigma**2)[::-1])
    first, last = (np.searchsorted(sums, NEGLIGIBLE * sums[-1]) for sums in (left, right))
    return slice(int(first), len(sigma) - int(last))
