"""Newton's method for smooth convex losses: with the Hessian of few parameters, by its products of many."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.errors import warn

if TYPE_CHECKING:
    from refinecal.calibrators._softmax_linear import SoftmaxMap

FEW = 64  # parameters up to which calling LAPACK takes longer than solving
ENOUGH = 1e-4  # share of the promised decrease that a step must keep (Armijo)
SMALLEST_STEP = 2.0**-40
ROUNDING = 4e-16  # of a mean loss
CLOSE = 1e-6  # a squared decrement not worth a warning, where a minimum at infinity slows the end

FRESH = 1e-3  # share of the loss by which it must have fallen for a new preconditioner
MANY_PRODUCTS = 6  # in one step, which a new preconditioner would save
FORCE = 0.01  # share of the squared residual that conjugate gradients may leave in the first steps
SMALLEST_SIZE = 1e-12  # squared residual that is as good as none,
FINEST = 1e-3  # unless it began as small, where the preconditioner may be wrong about it
FLAT = 1e-7  # of the curvature that the preconditioner expects
MAX_PRODUCTS = 250  # per step: a truncated step still goes downhill

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

    def accept(self, advice: Advice) -> Vector:
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
    Hessian is harmless. ``accept`` of what is returned warns if the search ended before.
    """
    x = np.array(x0, dtype=np.float64)
    value, gradient, hessian = function(x)
    for n_steps in range(max_steps):
        step = newton_step(gradient, hessian)
        decrement = -float(gradient @ step)
        if decrement <= tolerance:
            end = x + step if is_small(step, x) else x
            return Solution(end, value - decrement / 2, decrement, n_steps, True)
        found = _search(function, x, value, step, decrement, ROUNDING)
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
        return np.asarray(_kernels.cholesky.solve_newton(gradient, np.ascontiguousarray(hessian)))
    from scipy.linalg.lapack import dposv

    scale = np.sqrt(np.maximum(np.diagonal(hessian), 0))
    inverse = np.divide(1.0, scale, out=np.ones_like(scale), where=scale > 0)
    scaled = hessian * inverse[:, None] * inverse
    scaled.flat[:: len(scaled) + 1] = 1 + _kernels.cholesky.DAMPING
    _, step, failed = dposv(scaled, -gradient * inverse)
    if failed:  # rounding made it indefinite: a short step downhill will do
        return np.asarray(-gradient * inverse**2)
    return np.asarray(step * inverse)


def _search(
    function: Callable[[Vector], tuple[Any, ...]],
    x: Vector,
    value: float,
    step: Vector,
    decrement: float,
    rounding: float,
) -> tuple[Vector, Any] | None:
    """Return the first of x + step, x + step / 2, ... where the loss falls enough, and all values there.

    By rounding alone, a mean loss may rise by ``rounding``, relative to 1 or to itself.
    """
    length = 1.0
    while length > SMALLEST_STEP:
        there = x + length * step
        values = function(there)
        if values[0] <= value - ENOUGH * length * decrement + rounding * (1 + abs(value)):
            return there, values
        length /= 2
    return None


# ---- many parameters: steps by conjugate gradients -------------------------------------------------------


def minimise_cg(
    softmax: SoftmaxMap,
    x0: Vector,
    preconditioner: Callable[[], Callable[[Vector], Vector]],
    *,
    tolerance: float = 1e-10,
    max_steps: int = 200,
) -> Solution:
    """Return the minimum of a mean log loss by products with its Hessian; ends as :func:`minimise` does.

    ``preconditioner()`` returns about the inverse of the Hessian where ``gradient`` was last asked for. The
    last step is the one after which a squared decrement below ``tolerance / 100`` is expected.
    """

    def read(theta: Vector) -> tuple[float]:
        return (softmax.value(theta),)

    x = np.array(x0, dtype=np.float64)
    value, decrement, products = softmax.value(x), np.inf, 0
    for n_steps in range(max_steps):
        if value <= tolerance / 2:  # a log loss never falls below 0
            return Solution(x, value, 2 * value, n_steps, True)
        gradient = softmax.gradient(x)
        fresh = decrement > FRESH * value or products > MANY_PRODUCTS
        if fresh:
            inverse = preconditioner()
        step, products, left = _cg_step(softmax, gradient, inverse)
        if left > 0 and not fresh:  # an old preconditioner may take curvature for flatness
            inverse = preconditioner()
            step, products, left = _cg_step(softmax, gradient, inverse)
        last, decrement = decrement, -float(gradient @ step)
        unseen = is_small(step, x)
        if decrement <= tolerance < left:  # what is left is too flat to be seen from here
            decrement = left
            return Solution(x, value, decrement, n_steps, decrement <= CLOSE)
        # Steps converge quadratically, d = c * last**2 and next c * d**2: it is the last if that is small.
        enough = max(tolerance, min(math.cbrt(0.01 * tolerance * last**2), 1e-6))
        if decrement <= (enough if unseen else tolerance):
            end = x + step if unseen else x
            return Solution(end, value - decrement / 2, min(decrement, tolerance), n_steps, True)
        found = _search(read, x, value, step, decrement, 4 * softmax.rounding)
        if found is None:
            return Solution(x, value, decrement, n_steps, decrement <= CLOSE)
        x, (value,) = found
    return Solution(x, value, decrement, max_steps, decrement <= CLOSE)


def _cg_step(
    softmax: SoftmaxMap,
    gradient: Vector,
    preconditioner: Callable[[Vector], Vector],
) -> tuple[Vector, int, float]:
    """Return about the Newton step, the closer the smaller the gradient, and how many products it took.

    The last number is about the squared decrement that is left where the loss seems flat; else 0.
    """
    step = np.zeros_like(gradient)
    residual = -gradient
    better = preconditioner(residual)
    direction, image = better, residual  # the preconditioner maps the image to the direction
    size = float(residual @ better)
    goal = max(size * min(FORCE, size), min(SMALLEST_SIZE, FINEST * size))
    for products in range(MAX_PRODUCTS):
        if size <= goal:  # not before the first product, unless there is no gradient
            return step, products, 0.0
        bent = softmax.product(direction)
        curvature = float(direction @ bent)
        if curvature <= FLAT * float(direction @ image):  # rounding is all there is
            return step, products, size
        length = size / curvature
        step += length * direction
        residual = residual - length * bent
        better = preconditioner(residual)
        last, size = size, float(residual @ better)
        direction = better + (size / last) * direction
        image = residual + (size / last) * image
    return step, MAX_PRODUCTS, 0.0
