"""Newton's method for smooth convex losses of a few hundred parameters."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv

from refinecal._core.errors import warn
from refinecal._kernels.cholesky import DAMPING, solve_newton

FEW = 64  # parameters up to which calling LAPACK takes longer than solving
ENOUGH = 1e-4  # share of the promised decrease that a step must keep (Armijo)
SMALLEST_STEP = 2.0**-40
CLOSE = 1e-6  # a squared decrement not worth a warning, where a minimum at infinity slows the end

Vector = NDArray[np.float64]


class Advice(NamedTuple):
    """Whose fit it is, and what to do should it not converge."""

    name: str
    cure: str


class Solution(NamedTuple):
    """Where the search ended: half the decrement is what the loss could still fall by."""

    x: Vector
    value: float
    decrement: float
    n_steps: int
    converged: bool

    def said(self, advice: Advice) -> Vector:
        """Return the parameters, with a warning if the search ended before the minimum."""
        if not self.converged:
            warn(
                f"the fit of {advice.name} stopped after {self.n_steps} steps, and its loss could still fall "
                f"by about {self.decrement / 2:.1e}: {advice.cure}"
            )
        return self.x


def minimise(
    function: Callable[[Vector], tuple[float, Vector, NDArray[Any]]],
    x0: Vector,
    *,
    tolerance: float = 1e-12,
    max_steps: int = 200,
) -> Solution:
    """Return the minimum of a convex mean loss by damped Newton steps.

    ``function`` returns value, gradient and Hessian. The search ends when the squared Newton decrement,
    twice the decrease that is left, falls below ``tolerance``: so it ends too where the loss falls for
    ever (separable data). The last step, if it is too small to need a check, is still taken. A singular
    Hessian is harmless. ``said`` of what is returned warns if the search ended before.
    """
    x = np.array(x0, dtype=np.float64)
    value, gradient, hessian = function(x)
    for n_steps in range(max_steps):
        step = newton_step(gradient, hessian)
        decrement = -float(gradient @ step)
        if decrement <= tolerance:
            end = x + step if is_small(step, x) else x
            return Solution(end, value - decrement / 2, decrement, n_steps, True)
        found = _search(function, x, value, step, decrement)
        if found is None:  # no decrease that rounding would show
            return Solution(x, value, decrement, n_steps, decrement <= CLOSE)
        x, (value, gradient, hessian) = found
    return Solution(x, value, decrement, max_steps, decrement <= CLOSE)


def is_small(step: Vector, x: Vector) -> bool:
    """Tell a step that may be taken unseen from one along a direction where there is only rounding."""
    return bool(np.abs(step).max() <= 0.01 * (1 + np.abs(x).max()))


def newton_step(gradient: Vector, hessian: NDArray[Any]) -> Vector:
    """Return minus the inverse Hessian times the gradient, for a Hessian that may be singular."""
    if len(gradient) <= FEW:
        return np.asarray(solve_newton(gradient, np.ascontiguousarray(hessian)))
    scale = np.sqrt(np.maximum(np.diagonal(hessian), 0))
    inverse = np.divide(1.0, scale, out=np.ones_like(scale), where=scale > 0)
    scaled = hessian * inverse[:, None] * inverse
    scaled.flat[:: len(scaled) + 1] = 1 + DAMPING
    _, step, failed = dposv(scaled, -gradient * inverse)
    if failed:  # rounding made it indefinite: a short step downhill will do
        return np.asarray(-gradient * inverse**2)
    return np.asarray(step * inverse)


def _search(
    function: Callable[[Vector], tuple[float, Vector, NDArray[Any]]],
    x: Vector,
    value: float,
    step: Vector,
    decrement: float,
) -> tuple[Vector, tuple[float, Vector, NDArray[Any]]] | None:
    """Return the first of x + step, x + step / 2, ... where the loss falls enough, and all values there."""
    length = 1.0
    while length > SMALLEST_STEP:
        there = x + length * step
        values = function(there)
        if values[0] <= value - ENOUGH * length * decrement + rounding_of(value):
            return there, values
        length /= 2
    return None


def rounding_of(value: float) -> float:
    """Return how much a mean loss may rise by rounding alone."""
    return 4e-16 * (1 + abs(value))
