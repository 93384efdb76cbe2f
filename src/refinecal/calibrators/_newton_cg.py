"""Newton's method for many parameters: steps by conjugate gradients, which need Hessian products only."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from refinecal.calibrators._newton import (
    CLOSE,
    ENOUGH,
    SMALLEST_STEP,
    Solution,
    Vector,
    rounding_of,
    said_if_stuck,
)

FORCE = 0.01  # share of the squared residual that conjugate gradients may leave in the first steps
FLAT = 1e-7  # of the curvature that the preconditioner expects
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
    value, decrement = function.value(x), np.inf
    for n_steps in range(max_steps):
        if value <= tolerance / 2:  # a log loss never falls below 0
            return Solution(x, value, 2 * value, n_steps, True)
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
                return said_if_stuck(Solution(x, value, decrement, n_steps, decrement <= CLOSE))
        x, value = x + length * step, there
    return said_if_stuck(Solution(x, value, decrement, max_steps, decrement <= CLOSE))


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
    direction, image = (
        better,
        residual,
    )  # the image is what the preconditioner maps to the direction
    size = float(residual @ better)
    goal = max(size * min(FORCE, size**0.5), 0.05 * tolerance)
    for _ in range(MAX_PRODUCTS):
        if size <= goal:
            break
        bent = function.product(direction, work)
        curvature = float(direction @ bent)
        if curvature <= FLAT * float(direction @ image):  # rounding is all there is
            break
        length = size / curvature
        step += length * direction
        residual = residual - length * bent
        better = preconditioner(residual)
        last, size = size, float(residual @ better)
        direction = better + (size / last) * direction
        image = residual + (size / last) * image
    return step
