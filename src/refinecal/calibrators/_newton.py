r"""Newton's method for convex losses: logistic regression, and the weights of a mixture.

Logistic regression reads loss, gradient and Hessian in one pass. With :math:`m_i = x_i \cdot \theta + o_i`
and the share :math:`s_i` of class 1, row i has the loss :math:`\log(1 + e^{-|m|}) + \max(m, 0) - s m`, the
residual :math:`\sigma(m) - s` and the Hessian weight :math:`\sigma(m) \sigma(-m)`: one exponential per row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal import _kernels
from refinecal._core.errors import warn
from refinecal._core.sample import NOTHING, Sample, shares_of
from refinecal.calibrators.base import Floats

FEW = 64  # parameters up to which calling LAPACK takes longer than solving
ENOUGH = 1e-4  # share of the promised decrease that a step must keep (Armijo)
SMALLEST_STEP = 2.0**-40
SMALL_STEP = 0.01  # relative to the parameters: may be taken without evaluating the loss
ROUNDING = 4e-16  # of a mean loss
CLOSE = 1e-6  # a squared decrement not worth a warning, where a minimum at infinity slows the end
NEARLY = 1e-4  # squared: a combination of features this small needs its own coordinate
STIFF = 1e14  # of the data's curvature: a penalty that leaves less than 1e-14 of the loss to gain
STRONGEST = 1e30  # a penalty as good as infinite
SMALLEST = 1e-305  # of a nonzero feature: its coefficient stays finite
FLAT = 1e-13  # of the largest singular value: rounding
MIXTURE_TOLERANCE = 1e-12  # of the squared decrement of a mixture's weights
MAX_MIXTURE_STEPS = 200


class Advice(NamedTuple):
    """The name of a calibrator, and what to do if its fit does not converge."""

    name: str
    fix: str


class Solution(NamedTuple):
    """The end of a search; the loss could still fall by half the decrement."""

    x: Floats
    value: float
    decrement: float
    n_steps: int
    converged: bool

    def accept(self, advice: Advice) -> Floats:
        """Return the parameters; warn if the search has not converged."""
        if not self.converged:
            warn(
                f"the fit of {advice.name} stopped after {self.n_steps} steps, and its loss could still fall "
                f"by about {self.decrement / 2:.1e}: {advice.fix}"
            )
        return self.x


def minimize_newton(
    function: Callable[[Floats], tuple[float, Floats, NDArray[Any]]],
    x0: Floats,
    *,
    tolerance: float = 1e-12,
    max_steps: int = 200,
) -> Solution:
    """Return the minimum of a convex mean loss by damped Newton steps.

    ``function`` returns value, gradient and Hessian, which may be singular. The search ends when the squared
    Newton decrement, twice the remaining decrease, is below ``tolerance``, also where the loss falls forever
    (separable data). A last step that is too small to need a check is still taken.
    """
    x = np.array(x0, dtype=np.float64)
    value, gradient, hessian = function(x)
    for n_steps in range(max_steps):
        step = newton_step(gradient, hessian)
        decrement = -float(gradient @ step)
        if decrement <= tolerance:
            end = x + step if np.abs(step).max() <= SMALL_STEP * (1 + np.abs(x).max()) else x
            return Solution(end, value - decrement / 2, decrement, n_steps, True)
        found = search_line(function, x, value, step, decrement, ROUNDING)
        if found is None:  # no decrease that rounding would show
            return Solution(x, value, decrement, n_steps, decrement <= CLOSE)
        x, (value, gradient, hessian) = found
    return Solution(x, value, decrement, max_steps, decrement <= CLOSE)


def newton_step(gradient: Floats, hessian: NDArray[Any]) -> Floats:
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


def search_line(
    function: Callable[[Floats], tuple[Any, ...]],
    x: Floats,
    value: float,
    step: Floats,
    decrement: float,
    rounding: float,
) -> tuple[Floats, Any] | None:
    """Return the first of x + step, x + step / 2, ... where the loss falls enough, and the values there.

    ``rounding`` is the relative rounding error of a mean loss.
    """
    length = 1.0
    while length > SMALLEST_STEP:
        there = x + length * step
        values = function(there)
        if values[0] <= value - ENOUGH * length * decrement + rounding * (1 + abs(value)):
            return there, values
        length /= 2
    return None


# ---- logistic regression -----------------------------------------------------------------------------------


def fit_logistic(
    sample: Sample,
    columns: list[Floats],
    advice: Advice,
    *,
    ridge: ArrayLike = 0.0,
    center: ArrayLike = 0.0,
    offset: Floats | None = None,
) -> Floats:
    """Return the coefficients of finite columns with the smallest mean log loss.

    A column of ones is the intercept. ``0.5 * ridge @ (theta - center)**2`` is added to the mean loss, and
    ``offset`` to the log-odds. Warns with the advice unless the squared decrement is below 1e-12.
    """
    features = np.stack(columns)
    d, n = features.shape
    scale = np.abs(features).max(axis=1)
    scale[scale < SMALLEST] = 1.0
    features /= scale[:, None]  # largest 1: no square can overflow
    shift = NOTHING if offset is None else offset
    with np.errstate(over="ignore"):
        penalty = np.diag(np.minimum(np.broadcast_to(ridge, d) / scale / scale, STRONGEST))
    middle = np.multiply(center, scale)
    basis, rest = np.eye(d), np.zeros(d)
    second = features @ features.T
    size = np.sqrt(np.diagonal(second))
    size[size == 0] = 1.0
    if np.linalg.eigvalsh(second / size[:, None] / size)[0] < NEARLY:  # nearly dependent
        basis = scale_directions(features.T / (2 * n**0.5), penalty)
        middle, given = np.linalg.lstsq(basis, middle)[0], middle
        rest = np.where(basis.any(axis=1), 0.0, given)  # of fixed parameters
        shift = rest @ features + (shift if len(shift) else 0.0)
        features, penalty = basis.T @ features, basis.T @ penalty @ basis

    weights = even_weights(sample.weights)
    parts = (features, shares_of(sample), weights, shift, penalty, middle)
    read = partial(_kernels.logistic.read_logistic, *map(np.ascontiguousarray, parts))
    found = minimize_newton(read, np.zeros(basis.shape[1])).accept(advice)
    return np.asarray((rest + basis @ found) / scale)


def fit_two(
    sample: Sample,
    columns: list[Floats],
    ridge: list[float],
    advice: Advice,
    offset: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Return the coefficients of the columns, and the intercepts of both classes.

    ``ridge`` holds the strengths of ``ridge * coefficient**2``; the last is for the difference of the two
    intercepts, which are opposite.
    """
    columns = [*columns, np.ones(sample.n)]
    found = fit_logistic(sample, columns, advice, ridge=2 * np.array(ridge), offset=offset)
    return found[:-1], found[-1] * np.array([-0.5, 0.5])


def scale_directions(data: NDArray[Any], penalty: NDArray[Any]) -> NDArray[Any]:
    r"""Return directions in which :math:`D^\top D + P` is 1, except those lost to rounding.

    The singular vectors of D stacked on a root of P, divided by their singular values. Their curvatures, the
    squares, may differ by more than the precision of a Hessian. A parameter whose penalty leaves nothing to
    gain is in none of them.
    """
    if len(data) > data.shape[1]:
        data = np.asarray(np.linalg.qr(data, mode="r"))  # R'R = D'D, without loss of precision
    kept = np.flatnonzero(np.diagonal(penalty) <= STIFF * (data**2).sum(axis=0).max())
    kept = kept if kept.size else np.arange(len(penalty))
    values, vectors = np.linalg.eigh(penalty[np.ix_(kept, kept)])
    roots = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
    _, sizes, turned = np.linalg.svd(np.concatenate([data[:, kept], roots]), full_matrices=False)
    felt = sizes > FLAT * sizes[0]
    basis = np.zeros((data.shape[1], int(felt.sum())))
    basis[kept] = turned[felt].T / sizes[felt]
    return basis


def even_weights(weights: Floats | None) -> Floats:
    """Return weights with mean 1, so that no sum overflows; an empty array if there are none."""
    if weights is None:
        return NOTHING
    shares = weights / weights.max()
    return np.asarray(shares / shares.mean())


# ---- weights of a mixture ----------------------------------------------------------------------------------


def mixture_weights(parts: Floats, shares: Floats) -> Floats:
    r"""Return the weights w of a mixture of parts (m, n) with the smallest mean log loss.

    Minimizes :math:`\sum_j w_j - \sum_i s_i \log (w \cdot q_i)` over :math:`w \ge 0`, whose solution sums to
    1, by Newton steps among the nonzero weights. A weight that would become negative is set to 0, and gets
    its own step if its slope is negative at the optimum of the others.
    """
    weights = np.full(len(parts), 1 / len(parts))
    free = np.ones(len(parts), dtype=bool)
    mixed = weights @ parts
    for _ in range(MAX_MIXTURE_STEPS):
        ratios = parts / mixed
        slopes = 1 - ratios @ shares
        step = np.zeros_like(weights)
        step[free] = newton_step(slopes[free], (ratios[free] * shares) @ ratios[free].T)
        decrement = -float(slopes @ step)
        if decrement <= MIXTURE_TOLERANCE:
            if slopes[~free].min(initial=0) >= -1e-9:
                break
            back = int(np.where(free, np.inf, slopes).argmin())
            free[back] = True
            step[:] = 0
            step[back] = -slopes[back] / (ratios[back] ** 2 @ shares)
            decrement = -float(slopes @ step)
        weights, mixed = _move(parts, shares, weights, mixed, step, decrement)
        free &= weights > 0
    else:
        warn(
            f"the weights of a mixture did not converge in {MAX_MIXTURE_STEPS} steps; please report the data"
        )
    return np.asarray(weights / weights.sum())


def _move(
    parts: Floats, shares: Floats, weights: Floats, mixed: Floats, step: Floats, decrement: float
) -> tuple[Floats, Floats]:
    """Return the weights after a step that keeps them nonnegative, and the mixture."""
    falling = step < 0
    room = np.where(falling, weights, np.inf) / np.where(falling, -step, 1.0)
    length = min(1.0, float(room.min()))
    value = weights.sum() - shares @ np.log(mixed)
    while True:
        there = np.maximum(weights + length * step, 0)
        there[falling & (room <= length)] = 0
        found = there @ parts
        if found.min() > 0:
            fallen = value - (there.sum() - shares @ np.log(found))
            if fallen >= 1e-4 * length * decrement - 1e-15 or length < 2.0**-40:
                return there, found
        length /= 2
