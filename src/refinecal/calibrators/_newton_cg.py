"""Newton's method for many parameters: steps by conjugate gradients, which need Hessian products only."""

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

from refinecal.calibrators._newton import (
    CLOSE,
    ENOUGH,
    SMALLEST_STEP,
    Solution,
    Vector,
    is_small,
)

FRESH = 1e-3  # share of the loss by which it must have fallen for a new preconditioner
MANY_PRODUCTS = 6  # in one step, which a new preconditioner would save
FORCE = 0.01  # share of the squared residual that conjugate gradients may leave in the first steps
SMALLEST_SIZE = 1e-12  # squared residual that is as good as none,
FINEST = 1e-3  # unless it began as small, where the preconditioner may be wrong about it
FLAT = 1e-7  # of the curvature that the preconditioner expects
MAX_PRODUCTS = 250  # per step: a truncated step still goes downhill


class Smooth(Protocol):
    """A convex loss: ``gradient``, then ``product``, are those of where ``value`` was last asked for."""

    rounding: float  # relative error of the value

    def value(self, theta: Vector, /) -> float:
        """Return the loss."""

    def gradient(self, theta: Vector, /) -> Vector:
        """Return its gradient."""

    def product(self, direction: Vector, /) -> Vector:
        """Return the Hessian times a direction."""


def minimise_cg(
    function: Smooth,
    x0: Vector,
    preconditioner: Callable[[], Callable[[Vector], Vector]],
    *,
    tolerance: float = 1e-10,
    max_steps: int = 200,
) -> Solution:
    """Return the minimum of a mean log loss; ends as :func:`refinecal.calibrators._newton.minimise` does.

    ``preconditioner()`` returns about the inverse of the Hessian where ``gradient`` was last asked for. The
    last step is the one after which a squared decrement below ``tolerance / 100`` is expected.
    """
    x = np.array(x0, dtype=np.float64)
    value, decrement, products = function.value(x), np.inf, 0
    for n_steps in range(max_steps):
        if value <= tolerance / 2:  # a log loss never falls below 0
            return Solution(x, value, 2 * value, n_steps, True)
        gradient = function.gradient(x)
        fresh = decrement > FRESH * value or products > MANY_PRODUCTS
        if fresh:
            inverse = preconditioner()
        step, products, left = _cg_step(function, gradient, inverse)
        if left > 0 and not fresh:  # an old preconditioner may take curvature for flatness
            inverse = preconditioner()
            step, products, left = _cg_step(function, gradient, inverse)
        last, decrement = decrement, -float(gradient @ step)
        unseen = is_small(step, x)
        if decrement <= tolerance < left:  # what is left is too flat to be seen from here
            decrement = left
            return Solution(x, value, decrement, n_steps, decrement <= CLOSE)
        if decrement <= (_last_of(last, tolerance) if unseen else tolerance):
            end = x + step if unseen else x
            return Solution(end, value - decrement / 2, min(decrement, tolerance), n_steps, True)
        length = 1.0
        while True:
            there = function.value(x + length * step)
            if there <= value - ENOUGH * length * decrement + 4 * function.rounding * (1 + value):
                break
            length /= 2
            if length < SMALLEST_STEP:
                return Solution(x, value, decrement, n_steps, decrement <= CLOSE)
        x, value = x + length * step, there
    return Solution(x, value, decrement, max_steps, decrement <= CLOSE)


def _last_of(last: float, tolerance: float) -> float:
    """Return the squared decrement d after which one more step is the last.

    Newton's converge quadratically, ``d = c * last**2`` and next ``c * d**2``, which is to be small.
    """
    return max(tolerance, min(math.cbrt(0.01 * tolerance * last**2), 1e-6))


def _cg_step(
    function: Smooth,
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
        bent = function.product(direction)
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
