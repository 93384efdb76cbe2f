"""Fits of softmax maps: which solver, from where, and about what the inverse Hessian is."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from refinecal.calibrators._dense import solve_dense
from refinecal.calibrators._logistic import STRONGEST
from refinecal.calibrators._newton import Advice, Solution, Vector, minimise
from refinecal.calibrators._newton_cg import minimise_cg
from refinecal.calibrators._softmax_linear import MatrixMap, SoftmaxMap, VectorMap

Array = NDArray[np.float64]

FEW = 40  # parameters up to which the Hessian itself is cheaper than many products with it
MANY = 32  # classes from which on a penalised matrix is fitted in float32
SEVERAL = 300  # parameters up to which the Hessian of a subsample is a cheap preconditioner
SAMPLED = 600  # about its size
SMALL = 1e-8  # of the mean curvature, where there is no penalty
SAMPLING_ERROR = 1e-5  # of its diagonal, added so that flat directions do no harm
NEARLY = 0.1  # of the largest: what features that hardly differ from a constant differ by
SOME = 64  # samples, most often enough to see that they differ
LOOSE = 1e-9  # a squared decrement after which another solver is tried
TINY = 1e-30  # where there is no curvature at all


def solve_vector(softmax: VectorMap, start: Vector, advice: Advice) -> Vector:
    """Return the parameters of the smallest loss."""
    if len(start) <= FEW:
        return minimise(softmax.all, start).said(advice)
    return minimise_cg(softmax, start, lambda: _pairs(softmax)).said(advice)


def solve_matrix(softmax: MatrixMap, start: Vector, advice: Advice) -> Vector:
    """Return the parameters of the smallest loss."""
    several = len(start) <= SEVERAL
    nearly_constant = _are_nearly_constant(softmax.features[:-1])
    if several and nearly_constant:
        return solve_dense(softmax).said(advice)
    found = _by_products(softmax, start, nearly_constant)
    if several and found.decrement > LOOSE:
        dense = solve_dense(softmax)
        found = dense if dense.value <= found.value else found
    return found.said(advice)


def _by_products(softmax: MatrixMap, start: Vector, nearly_constant: bool) -> Solution:
    if len(start) <= SEVERAL and softmax.n > 2 * SAMPLED:
        return minimise_cg(softmax, start, lambda: _sampled(softmax))
    x = softmax.features
    weighted = x * softmax.weights if len(softmax.weights) else x
    second = (weighted @ x.T).astype(np.float64) / softmax.total
    ridge = softmax.ridge.reshape(softmax.k, -1)
    strong = min(ridge[0, 1], ridge[0, -1]) > SMALL * np.trace(second) / len(second)
    basis = _basis(second, ridge, 0.0) if strong else None

    def preconditioner() -> Callable[[Vector], Vector]:
        of_rows = _rows(softmax, second, basis)
        return _with_scale(softmax, of_rows) if nearly_constant else of_rows

    return minimise_cg(softmax, start, preconditioner)


def _are_nearly_constant(features: NDArray[Any]) -> bool:
    """Tell whether features differ little from what they are in the first sample."""

    def differ_little(x: NDArray[Any]) -> bool:
        return bool(np.abs(x - x[:, :1]).max() < NEARLY * np.abs(x).max())

    return differ_little(features[:, :SOME]) and differ_little(features)


def with_ones(features: Array, off_diagonal: float) -> NDArray[Any]:
    """Return the features (k, n) with one more for the intercepts, in float32 if that is good enough."""
    k, n = features.shape
    coarse = k >= MANY and off_diagonal > 0 and not _are_nearly_constant(features)
    full = np.ones((k + 1, n), np.float32 if coarse else np.float64)
    full[:k] = features
    return full


def linear_start(k: int) -> Vector:
    """Return the identity with intercepts 0, as a vector."""
    return np.asarray(np.eye(k, k + 1).ravel(), dtype=np.float64)


def penalties(k: int, off_diagonal: float, diagonal: float, intercept: float) -> Vector:
    """Return the ridge of a matrix with intercepts, for penalties ``strength * parameter**2``."""
    ridge = np.full((k, k + 1), 2 * off_diagonal)
    ridge[np.arange(k), np.arange(k)] = 2 * diagonal
    ridge[:, k] = 2 * intercept
    return np.asarray(np.minimum(ridge.ravel(), STRONGEST))


def _sampled(softmax: MatrixMap) -> Callable[[Vector], Vector]:
    """Return the inverse of the Hessian of about every so many samples."""
    stride = softmax.n // SAMPLED
    hessian = softmax.outer(stride) * (stride / softmax.total)
    diagonal = np.diagonal(hessian) + softmax.ridge
    hessian.flat[:: len(hessian) + 1] += softmax.ridge + SAMPLING_ERROR * diagonal + TINY
    try:
        factor = cho_factor(hessian, overwrite_a=True, check_finite=False)
    except LinAlgError:  # rounding made it indefinite, where hardly anything is uncertain
        return lambda vector: np.asarray(vector / (diagonal + TINY))

    def apply(vector: Vector) -> Vector:
        return np.asarray(cho_solve(factor, vector, check_finite=False))

    return apply


def _variances(softmax: SoftmaxMap) -> NDArray[Any]:
    """Return w p (1 - p) of each class and sample, in ``work``."""
    probs, work = softmax.probs, softmax.work
    np.multiply(probs, probs, out=work)
    if len(softmax.weights):
        work /= softmax.weights
    return np.asarray(np.subtract(probs, work, out=work))


def _pairs(softmax: VectorMap) -> Callable[[Vector], Vector]:
    """Return the inverse of the 2 by 2 blocks of the Hessian, one for slope and intercept of each class."""
    k = softmax.k
    aa, ab, bb = (block / softmax.total for block in softmax.blocks(_variances(softmax)))
    aa, bb = aa + softmax.ridge[:k], bb + softmax.ridge[k:]
    aa, bb = aa * (1 + SMALL) + SMALL * aa.mean(), bb * (1 + SMALL) + SMALL * bb.mean()
    aa, bb = aa + TINY, bb + TINY
    determinant = aa * bb - ab**2

    def apply(vector: Vector) -> Vector:
        a, b = vector[:k], vector[k:]
        return np.concatenate([(bb * a - ab * b) / determinant, (aa * b - ab * a) / determinant])

    return apply


def _rows(
    softmax: MatrixMap, second: Array, basis: tuple[Array, Array] | None
) -> Callable[[Vector], Vector]:
    r"""Return about the inverse of the block of the Hessian that belongs to each row j of the matrix.

    The block is taken for :math:`a_j C + R`, with :math:`a_j` the mean of :math:`p_j (1 - p_j)`, C that of
    :math:`x x^\top` and R the penalties off the diagonal: one eigendecomposition inverts all of them.
    But row and column j of the block are exact, since where class j is likely its own logit is special.
    """
    k, d, own = softmax.k, len(second), np.arange(softmax.k)
    features, work = softmax.features, _variances(softmax)
    spread = work.sum(axis=1).astype(np.float64) / softmax.total
    spread = np.maximum(spread, SMALL * spread.max() + TINY)[:, None]
    work *= features[:k]
    cross = (work @ features.T).astype(np.float64) / softmax.total
    ridge = softmax.ridge.reshape(k, d)
    pivot = np.maximum(cross[own, own], 0) + np.diagonal(ridge)
    cross[own, own] = 0

    if basis is None:
        basis = _basis(second, ridge, SMALL * float(spread.mean() * np.trace(second)) / d)
    values, turned = basis
    inverse = 1 / (1 + spread * np.maximum(values, 0))

    def shared(matrix: Array) -> Array:
        return np.asarray(((matrix @ turned) * inverse) @ turned.T)

    corner = shared(np.eye(k, d))
    corner /= corner[own, own][:, None]

    def rest(matrix: Array) -> Array:  # of a matrix with zeros on the diagonal
        found = shared(matrix)
        found -= found[own, own][:, None] * corner
        return found

    back = rest(cross)
    pivot = np.maximum(pivot - (cross * back).sum(axis=1), 0.1 * pivot + SMALL * pivot.max() + TINY)

    def apply(vector: Vector) -> Vector:
        matrix = vector.reshape(k, d).copy()
        first = matrix[own, own]
        matrix[own, own] = 0
        found = rest(matrix)
        top = (first - (cross * found).sum(axis=1)) / pivot
        found -= top[:, None] * back
        found[own, own] = top
        return found.ravel()

    return apply


def _with_scale(
    softmax: MatrixMap, of_rows: Callable[[Vector], Vector]
) -> Callable[[Vector], Vector]:
    """Return the inverse with a diagonal matrix as a direction of its own.

    It is the one that makes the same of all features that they have in common, to which softmax is blind:
    multiples of the identity where predictions are nearly uniform. In each row alone it is an intercept, so
    the rows take it for far too steep.
    """
    k = softmax.k
    middle = softmax.features[:-1].mean(axis=1, dtype=np.float64)
    large = np.abs(middle) > SMALL * np.abs(middle).max()
    entries = np.divide(1.0, middle, out=np.zeros(k), where=large)
    scale = np.eye(k, k + 1).ravel()
    scale[scale > 0] = entries / max(np.abs(entries).max(), TINY)
    curvature = float(scale @ softmax.product(scale)) + TINY

    def apply(vector: Vector) -> Vector:
        return of_rows(vector) + scale * (float(scale @ vector) / curvature)

    return apply


def _basis(second: Array, ridge: Array, least: float) -> tuple[Array, Array]:
    """Return eigenvalues of C relative to R, and vectors V with V' R V = 1 (R as off the diagonal)."""
    k = len(ridge)
    common = np.concatenate([ridge[[1] + [0] * (k - 1), np.arange(k)], ridge[0, k:]])
    root = 1 / np.sqrt(common + least)
    values, vectors = np.linalg.eigh(second * root[:, None] * root)
    return values, vectors * root[:, None]
