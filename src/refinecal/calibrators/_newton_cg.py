"""Newton's method for many parameters: steps by conjugate gradients, which need Hessian products only."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from refinecal.calibrators._newton import (
    ENOUGH,
    SMALLEST_STEP,
    Solution,
    Vector,
    rounding_of,
    said_if_stuck,
)

FORCE = 0.01  # share of the squared residual that conjugate gradients may leave in the first steps
MAX_PRODUCTS = 250  # per step: a truncated step still goes downhill


class Smooth(Protocol):
    """A convex loss: ``gradient`` and ``product`` are those of where ``value`` was last asked for."""

    def value(self, theta: Vector, /) -> float:
        """Return the loss."""

    def gradient(self, theta: Vector, /) -> Vector:
        """Return its gradient."""

    def product(self, direction: Vector, out: NDArray[np.float64], /) -> Vector:
        """Return the Hessian times a direction."""


def minimise_cg(
    function: Smooth,
    x0: Vector,
    preconditioner: Callable[[], Callable[[Vector], Vector]],
    work: NDArray[np.float64],
    *,
    tolerance: float = 1e-12,
    max_steps: int = 200,
) -> Solution:
    """Return the minimum of a convex mean loss; ends as :func:`refinecal.calibrators._newton.minimise` does.

    ``preconditioner()`` returns about the inverse of the Hessian where ``value`` was last asked for;
    ``work`` is what ``product`` may write to.
    """
    x = np.array(x0, dtype=np.float64)
    value = function.value(x)
    for n_steps in range(max_steps):
        gradient = function.gradient(x)
        step = _cg_step(function, gradient, preconditioner(), work, tolerance)
        decrement = -float(gradient @ step)
        if decrement <= tolerance:
            return Solution(x + step, value - decrement / 2, decrement, n_steps, True)
        length = 1.0
        while True:
            there = function.value(x + length * step)
            if there <= value - ENOUGH * length * decrement + rounding_of(value):
                break
            length /= 2
            if length < SMALLEST_STEP:
                close = decrement <= 1e-7 * (1 + value)
                return said_if_stuck(Solution(x, value, decrement, n_steps, close))
        x, value = x + length * step, there
    return said_if_stuck(Solution(x, value, decrement, max_steps, False))


def _cg_step(
    function: Smooth,
    gradient: Vector,
    preconditioner: Callable[[Vector], Vector],
    work: NDArray[np.float64],
    tolerance: float,
) -> Vector:
    """Return an approximate Newton step: the smaller the gradient, the closer (superlinear in all)."""
    step = np.zeros_like(gradient)
    residual = -gradient
    better = preconditioner(residual)
    direction = better
    size = float(residual @ better)
    goal = max(size * min(FORCE, size**0.5), 0.05 * tolerance)
    for _ in range(MAX_PRODUCTS):
        if size <= goal:
            break
        bent = function.product(direction, work)
        curvature = float(direction @ bent)
        if curvature <= 0:  # rounding: flat as far as one can see
            break
        length = size / curvature
        step += length * direction
        residual = residual - length * bent
        better = preconditioner(residual)
        last, size = size, float(residual @ better)
        direction = better + (size / last) * direction
    return step
