r"""Fits of the softmax of a linear map, by Newton's method.

Softmax has the scores :math:`u = \Theta x` (k, n): classes first, so that loops run over samples for any k.
With probabilities p and weights w the mean loss has the gradient :math:`A(w (p - y))` and the Hessian
:math:`A \, w (\mathrm{diag}\, p - p p^\top) A^\top`, where A is the adjoint of the map from parameters to
scores. With few parameters, Newton's method uses the Hessian; with many, only products with it, in conjugate
gradients with a preconditioner.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from refinecal import _kernels
from refinecal._core.arrays import in_one_thread
from refinecal._core.sample import Sample
from refinecal.calibrators._newton import (
    CLOSE,
    SMALL_STEP,
    STRONGEST,
    Advice,
    Solution,
    even_weights,
    minimize_newton,
    scale_directions,
    search_line,
)
from refinecal.calibrators.base import Floats

Inverse = Callable[[Floats], Floats]  # of an approximate Hessian

FRESH = 1e-3  # share of the loss by which it must have fallen for a new preconditioner
MANY_PRODUCTS = 6  # in one step, which a new preconditioner would save
FORCE = 0.01  # share of the squared residual that conjugate gradients may leave in the first steps
SMALLEST_SIZE = 1e-12  # squared residual that is as good as none,
FINEST = 1e-3  # unless it began as small, where the preconditioner may be wrong about it
FLATTEST = 1e-7  # of the curvature that the preconditioner expects
TOLERANCE = 1e-10  # of the squared decrement
MAX_STEPS = 200
MAX_PRODUCTS = 250  # per step: a truncated step still goes downhill
PRODUCT_PARAMETERS = 300  # parameters up to which products are done in blocks
PRODUCT_SIZE = 2**18  # multiplications of a block
OUTER_ROWS = 512  # samples whose outer products are summed together
DENSE = 40  # parameters up to which the Hessian itself is cheaper than many products with it
MANY = 32  # classes from which a penalized matrix is fitted in float32
SEVERAL = 300  # parameters up to which the Hessian of a subsample is a cheap preconditioner
SAMPLED = 600  # about its size
SMALL = 1e-8  # of the mean curvature, where there is no penalty
SAMPLING_ERROR = 1e-5  # of its diagonal, added so that flat directions do no harm
CONSTANT = 0.1  # relative to the largest: variation of nearly constant features
SOME = 64  # samples, usually enough to see that they vary
CHUNK = 2**21  # numbers of a block of samples: 16 MB
LOOSE = 1e-9  # a squared decrement after which another solver is tried
TINY = 1e-30  # where there is no curvature at all


class SoftmaxMap(ABC):
    """The mean log loss of softmax scores, plus a penalty ``0.5 * sum(ridge * (theta - center)**2)``.

    Float32 features give an error of about 1e-8 in the gradient, and its square in the loss at the minimum.
    """

    def __init__(
        self, features: NDArray[Any], sample: Sample, ridge: Floats, center: Floats
    ) -> None:
        self.features, self.ridge, self.center = features, ridge, center
        self.k, self.n, self.total = sample.k, sample.n, float(sample.n)
        self.weights = even_weights(sample.weights).astype(features.dtype)
        self.labels = sample.labels if sample.soft is None else np.empty(0, np.int64)
        self.sample = sample
        size = self.k * len(features)
        step = PRODUCT_SIZE // size if size <= PRODUCT_PARAMETERS else self.n
        self.blocks = [slice(i, i + step) for i in range(0, self.n, step)]  # each fits in the cache
        self.probs = self.label_weights()
        self.target = self.adjoint(self.probs)
        self.work = np.empty_like(self.probs)
        self.rounding = float(np.finfo(features.dtype).eps)  # of the loss

    def label_weights(self) -> NDArray[Any]:
        """Return the weight of each class in each sample, (k, n), with mean 1 over samples."""
        sample = self.sample
        dense = np.zeros((self.k, self.n), self.features.dtype)
        if sample.soft is not None:
            dense[:] = sample.soft.T
        else:
            dense[sample.labels, np.arange(self.n)] = 1
        if len(self.weights):
            dense *= self.weights
        return dense

    @abstractmethod
    def scores(self, theta: NDArray[Any], out: NDArray[Any]) -> None:
        """Fill the scores (k, n)."""

    @abstractmethod
    def adjoint(self, values: NDArray[Any]) -> Floats:
        """Return the gradient in the parameters of the sum of values times scores."""

    @abstractmethod
    def outer(self) -> Floats:
        """Return the Hessian of the sum of losses, after ``read``."""

    def read(self, theta: Floats) -> tuple[float]:
        """Return the loss with its penalty, for line searches; leave weighted probabilities in ``probs``."""
        self.scores(theta.astype(self.features.dtype, copy=False), self.probs)
        loss = _kernels.softmax_linear.softmax_columns(self.probs, self.labels, self.weights)
        if not len(self.labels):
            loss -= float(self.target @ theta)
        away = theta - self.center
        return (float(loss / self.total + 0.5 * (self.ridge @ away**2)),)

    def gradient(self, theta: Floats) -> Floats:
        """Return the gradient, after ``read`` at the same parameters."""
        found = (self.adjoint(self.probs) - self.target) / self.total
        return np.asarray(found + self.ridge * (theta - self.center))

    def product(self, direction: Floats) -> Floats:
        """Return the Hessian times a direction, after ``read``."""
        self.scores(direction.astype(self.features.dtype, copy=False), self.work)
        _kernels.softmax_linear.curve_columns(self.probs, self.weights, self.work)
        return np.asarray(self.adjoint(self.work) / self.total + self.ridge * direction)

    def all(self, theta: Floats) -> tuple[float, Floats, Floats]:
        """Return value, gradient and Hessian."""
        (value,) = self.read(theta)
        hessian = self.outer()
        hessian /= self.total
        hessian.flat[:: len(hessian) + 1] += self.ridge
        return value, self.gradient(theta), hessian

    def roots(self, rows: slice) -> NDArray[Any] | float:
        """Return the square roots of the weights, which divide outer products of weighted probabilities."""
        return np.sqrt(self.weights[rows]) if len(self.weights) else 1.0


class MatrixMap(SoftmaxMap):
    """Scores ``theta @ features``: features (d, n), theta (k, d) as a vector."""

    def scores(self, theta: NDArray[Any], out: NDArray[Any]) -> None:
        matrix = theta.reshape(self.k, -1)
        for part in self.blocks:
            np.matmul(matrix, self.features[:, part], out=out[:, part])

    def adjoint(self, values: NDArray[Any]) -> Floats:
        products = (values[:, part] @ self.features[:, part].T for part in self.blocks)
        return np.asarray(sum(products).ravel(), dtype=np.float64)

    def outer(self, stride: int = 1) -> Floats:  # of every ``stride``-th sample
        d = len(self.features)
        hessian = np.zeros((self.k * d, self.k * d))
        blocks = np.zeros((self.k, d * d))
        for start in range(0, self.n, OUTER_ROWS * stride):
            rows = slice(start, min(start + OUTER_ROWS * stride, self.n), stride)
            x, p = self.features[:, rows], self.probs[:, rows]
            blocks += p @ (x[:, None] * x).reshape(d * d, -1).T
            spread = ((p / self.roots(rows))[:, None] * x).reshape(self.k * d, -1)
            hessian -= spread @ spread.T
        for j, block in enumerate(blocks):
            own = slice(j * d, (j + 1) * d)
            hessian[own, own] += block.reshape(d, d)
        return hessian


class VectorMap(SoftmaxMap):
    """Scores ``theta[:k] * features + theta[k:]``: features (k, n)."""

    def scores(self, theta: NDArray[Any], out: NDArray[Any]) -> None:
        np.multiply(self.features, theta[: self.k, None], out=out)
        out += theta[self.k :, None]

    def adjoint(self, values: NDArray[Any]) -> Floats:
        slopes = np.einsum("ji,ji->j", values, self.features)
        return np.concatenate([slopes, values.sum(axis=1)], dtype=np.float64)

    def sums(self, values: NDArray[Any]) -> tuple[Floats, Floats, Floats]:
        """Return the sums of v z**2, v z and v of each class."""
        squares = np.einsum("ji,ji,ji->j", values, self.features, self.features)
        return (squares, *np.split(self.adjoint(values), 2))

    def outer(self) -> Floats:
        k = self.k
        hessian = np.zeros((2 * k, 2 * k))
        for start in range(0, self.n, OUTER_ROWS):
            rows = slice(start, min(start + OUTER_ROWS, self.n))
            p = self.probs[:, rows] / self.roots(rows)
            both = np.concatenate([p * self.features[:, rows], p])
            hessian -= both @ both.T
        squares, slopes, shifts = self.sums(self.probs)
        own = np.arange(k)
        hessian[own, own] += squares
        hessian[own, own + k] += slopes
        hessian[own + k, own] += slopes
        hessian[own + k, own + k] += shifts
        return hessian


def fit_vector(
    features: Floats, sample: Sample, ridge: Floats, start: Floats, advice: Advice
) -> tuple[Floats, Floats]:
    """Return the scales and intercepts with the smallest loss; the penalty pulls toward the start."""
    softmax = VectorMap(features, sample, ridge, start)
    with in_one_thread(sample.k * features.size):
        if len(start) <= DENSE:
            found = minimize_newton(softmax.all, start)
        else:
            found = minimize_cg(softmax, start, partial(_invert_pairs, softmax))
    scales, shifts = np.split(found.accept(advice), 2)
    return scales, shifts


def fit_matrix(
    features: Floats,
    sample: Sample,
    penalties: tuple[float, float, float],
    center: float,
    advice: Advice,
) -> tuple[Floats, Floats]:
    """Return the matrix and the intercepts with the smallest loss; intercepts sum to 0.

    ``penalties`` are the strengths of ``strength * (parameter - center)**2`` off the diagonal, on it and for
    the intercepts; the center is 0 except on the diagonal.
    """
    k = sample.k
    ridge = np.full((k, k + 1), 2 * penalties[0])
    ridge[np.arange(k), np.arange(k)] = 2 * penalties[1]
    ridge[:, k] = 2 * penalties[2]
    start = np.eye(k, k + 1).ravel()
    is_flat = all(  # nearly constant features: they differ little from those of the first sample
        np.abs(x - x[:, :1]).max() < CONSTANT * np.abs(x).max()
        for x in (features[:, :SOME], features)
    )
    coarse = k >= MANY and penalties[0] > 0 and not is_flat  # where float32 is precise enough
    full = np.ones((k + 1, sample.n), np.float32 if coarse else np.float64)
    full[:k] = features
    with in_one_thread(k * full.size):
        softmax = MatrixMap(full, sample, np.minimum(ridge.ravel(), STRONGEST), center * start)
        found = _solve_matrix(softmax, start, is_flat).accept(advice).reshape(k, k + 1)
    return found[:, :k], found[:, k] - found[:, k].mean()


def _solve_matrix(softmax: MatrixMap, start: Floats, is_flat: bool) -> Solution:
    """Return the best matrix; ``is_flat`` says that the features are nearly constant."""
    several = len(start) <= SEVERAL
    if several and is_flat:
        return _solve_dense(softmax)
    if several and softmax.n > 2 * SAMPLED:
        precondition = partial(_invert_sample, softmax)
    else:
        x = softmax.features
        weighted = x * softmax.weights if len(softmax.weights) else x
        second = (weighted @ x.T).astype(np.float64) / softmax.total
        ridge = softmax.ridge.reshape(softmax.k, -1)
        strong = min(ridge[0, 1], ridge[0, -1]) > SMALL * np.trace(second) / len(second)
        basis = _basis(second, ridge, 0.0) if strong else None
        precondition = partial(_invert_rows, softmax, second, basis, is_flat)
    found = minimize_cg(softmax, start, precondition)
    if several and found.decrement > LOOSE:
        dense = _solve_dense(softmax)
        return dense if dense.value <= found.value else found
    return found


# ---- many parameters: steps by conjugate gradients ---------------------------------------------------------


def minimize_cg(softmax: SoftmaxMap, x0: Floats, precondition: Callable[[], Inverse]) -> Solution:
    """Return the minimum of a mean log loss by products with its Hessian; ends as ``minimize_newton`` does.

    ``precondition()`` returns an approximate inverse Hessian at the last gradient. The search ends with the
    step after which a squared decrement below a hundredth of the tolerance is expected.
    """
    x = np.array(x0, dtype=np.float64)
    (value,), decrement, products = softmax.read(x), np.inf, 0
    for n_steps in range(MAX_STEPS):
        if value <= TOLERANCE / 2:  # a log loss never falls below 0
            return Solution(x, value, 2 * value, n_steps, True)
        gradient = softmax.gradient(x)
        fresh = decrement > FRESH * value or products > MANY_PRODUCTS
        if fresh:
            inverse = precondition()
        step, products, left = _cg_step(softmax, gradient, inverse)
        if left > 0 and not fresh:  # an old preconditioner may mistake curvature for flatness
            inverse = precondition()
            step, products, left = _cg_step(softmax, gradient, inverse)
        last, decrement = decrement, -float(gradient @ step)
        unseen = np.abs(step).max() <= SMALL_STEP * (1 + np.abs(x).max())
        if decrement <= TOLERANCE < left:  # the rest is too flat to see
            decrement = left
            return Solution(x, value, decrement, n_steps, decrement <= CLOSE)
        # Steps converge quadratically, d = c * last**2 and next c * d**2: stop if that is small.
        enough = max(TOLERANCE, min(math.cbrt(0.01 * TOLERANCE * last**2), 1e-6))
        if decrement <= (enough if unseen else TOLERANCE):
            end = x + step if unseen else x
            return Solution(end, value - decrement / 2, min(decrement, TOLERANCE), n_steps, True)
        found = search_line(softmax.read, x, value, step, decrement, 4 * softmax.rounding)
        if found is None:
            return Solution(x, value, decrement, n_steps, decrement <= CLOSE)
        x, (value,) = found
    return Solution(x, value, decrement, MAX_STEPS, decrement <= CLOSE)


def _cg_step(softmax: SoftmaxMap, gradient: Floats, inverse: Inverse) -> tuple[Floats, int, float]:
    """Return an approximate Newton step, better for small gradients, and the number of products.

    The third value estimates the remaining squared decrement where the loss seems flat; else 0.
    """
    step = np.zeros_like(gradient)
    residual = -gradient
    better = inverse(residual)
    direction, image = better, residual  # the preconditioner maps the image to the direction
    size = float(residual @ better)
    goal = max(size * min(FORCE, size), min(SMALLEST_SIZE, FINEST * size))
    for products in range(MAX_PRODUCTS):
        if size <= goal:  # not before the first product, unless there is no gradient
            return step, products, 0.0
        bent = softmax.product(direction)
        curvature = float(direction @ bent)
        if curvature <= FLATTEST * float(direction @ image):  # rounding is all there is
            return step, products, size
        length = size / curvature
        step += length * direction
        residual = residual - length * bent
        better = inverse(residual)
        last, size = size, float(residual @ better)
        direction = better + (size / last) * direction
        image = residual + (size / last) * image
    return step, MAX_PRODUCTS, 0.0


def _invert_sample(softmax: MatrixMap) -> Inverse:
    """Return the inverse of the Hessian of a subsample."""
    stride = softmax.n // SAMPLED
    hessian = softmax.outer(stride) * (stride / softmax.total)
    diagonal = np.diagonal(hessian) + softmax.ridge
    hessian.flat[:: len(hessian) + 1] += softmax.ridge + SAMPLING_ERROR * diagonal + TINY
    try:
        factor = cho_factor(hessian, overwrite_a=True, check_finite=False)
    except LinAlgError:  # rounding made it indefinite, where hardly anything is uncertain
        return lambda vector: np.asarray(vector / (diagonal + TINY))
    return partial(cho_solve, factor, check_finite=False)


def _variances(softmax: SoftmaxMap) -> NDArray[Any]:
    """Return w p (1 - p) of each class and sample, in ``work``."""
    probs, work = softmax.probs, softmax.work
    np.multiply(probs, probs, out=work)
    if len(softmax.weights):
        work /= softmax.weights
    return np.asarray(np.subtract(probs, work, out=work))


def _invert_pairs(softmax: VectorMap) -> Inverse:
    """Return the inverse of the 2 by 2 blocks of the Hessian, one for slope and intercept of each class."""
    k = softmax.k
    aa, ab, bb = (block / softmax.total for block in softmax.sums(_variances(softmax)))
    aa, bb = aa + softmax.ridge[:k], bb + softmax.ridge[k:]
    aa, bb = aa * (1 + SMALL) + SMALL * aa.mean(), bb * (1 + SMALL) + SMALL * bb.mean()
    aa, bb = aa + TINY, bb + TINY
    determinant = aa * bb - ab**2

    def apply(vector: Floats) -> Floats:
        a, b = vector[:k], vector[k:]
        return np.concatenate([(bb * a - ab * b) / determinant, (aa * b - ab * a) / determinant])

    return apply


def _invert_rows(
    softmax: MatrixMap, second: Floats, basis: tuple[Floats, Floats] | None, is_flat: bool
) -> Inverse:
    r"""Return an approximate inverse of the Hessian block of each row j of the matrix.

    The block is approximated by :math:`a_j C + R`, with :math:`a_j` the mean of :math:`p_j (1 - p_j)`, C that
    of :math:`x x^\top` and R the off-diagonal penalties: one eigendecomposition inverts all of them. Row and
    column j of the block are exact, since the logit of class j is special where the class is likely.
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

    corner = (turned[:k] * inverse) @ turned.T
    corner /= corner[own, own][:, None]

    back = ((cross @ turned) * inverse) @ turned.T  # of a matrix with zeros on the diagonal
    back -= back[own, own][:, None] * corner
    pivot = np.maximum(pivot - (cross * back).sum(axis=1), 0.1 * pivot + SMALL * pivot.max() + TINY)

    def apply(vector: Floats) -> Floats:
        matrix = vector.reshape(k, d).copy()
        first = matrix[own, own]
        matrix[own, own] = 0
        found = ((matrix @ turned) * inverse) @ turned.T
        found -= found[own, own][:, None] * corner
        top = (first - (cross * found).sum(axis=1)) / pivot
        found -= top[:, None] * back
        found[own, own] = top
        return np.asarray(found).ravel()

    return _add_scale(softmax, apply) if is_flat else apply


def _add_scale(softmax: MatrixMap, of_rows: Inverse) -> Inverse:
    """Return the inverse with a diagonal matrix as an additional direction.

    It multiplies each feature so that their common part is the same for all classes, which softmax ignores:
    a multiple of the identity where predictions are nearly uniform. Within one row it looks like an
    intercept, so the row-wise inverse overestimates its curvature.
    """
    k = softmax.k
    middle = softmax.features[:-1].mean(axis=1, dtype=np.float64)
    large = np.abs(middle) > SMALL * np.abs(middle).max()
    entries = np.divide(1.0, middle, out=np.zeros(k), where=large)
    scale = np.eye(k, k + 1).ravel()
    scale[scale > 0] = entries / max(np.abs(entries).max(), TINY)
    curvature = float(scale @ softmax.product(scale)) + TINY

    def apply(vector: Floats) -> Floats:
        return of_rows(vector) + scale * (float(scale @ vector) / curvature)

    return apply


def _basis(second: Floats, ridge: Floats, least: float) -> tuple[Floats, Floats]:
    """Return eigenvalues of C relative to the off-diagonal R, and vectors V with V' R V = 1."""
    k = len(ridge)
    common = np.concatenate([ridge[[1] + [0] * (k - 1), np.arange(k)], ridge[0, k:]])
    root = 1 / np.sqrt(common + least)
    values, vectors = np.linalg.eigh(second * root[:, None] * root)
    return values, vectors * root[:, None]


# ---- features that hardly differ from a constant -----------------------------------------------------------


def _solve_dense(softmax: MatrixMap) -> Solution:
    r"""Return the minimum by Newton's method in coordinates adapted to the data.

    Nearly uniform predictions have logarithms close to -log k: a matrix then acts like the intercepts, up to
    one part in a million, which the Hessian loses. The singular vectors of :math:`(J \otimes X, R^{1/2})`,
    with J the differences of classes, X the features and R the penalties, divided by their singular values,
    are parameters with curvatures of about 1, except where rounding dominates.
    """
    k, n = softmax.k, softmax.n
    weighted = softmax.features * np.sqrt(softmax.weights if len(softmax.weights) else 1.0)
    spread = np.linalg.qr(weighted.T / (2 * n**0.5), mode="r")
    basis = scale_directions(np.kron(np.eye(k) - 1 / k, spread), np.diag(softmax.ridge))
    roots = np.sqrt(softmax.ridge)[:, None] * basis
    penalty = roots.T @ roots
    target = softmax.label_weights()

    def read(theta: Floats) -> tuple[float, Floats, Floats]:
        value, gradient, hessian = _mean_loss(softmax, target, basis, theta)
        pull = penalty @ theta
        return value + 0.5 * float(theta @ pull), gradient + pull, hessian + penalty

    found = minimize_newton(read, np.zeros(basis.shape[1]))
    return found._replace(x=softmax.center + basis @ found.x)


def _mean_loss(
    softmax: MatrixMap, target: Floats, basis: Floats, theta: Floats
) -> tuple[float, Floats, Floats]:
    """Return the mean loss, its gradient and its Hessian, from scores that sum to 0 over the classes."""
    k, n, m = softmax.k, softmax.n, len(theta)
    center = softmax.center.reshape(k, -1)
    value, gradient, hessian = 0.0, np.zeros(m), np.zeros((m, m))
    maps = basis.reshape(k, -1, m)
    maps = maps - maps.mean(axis=0)
    step = max(1, CHUNK // (k * m))
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        x: NDArray[Any] = softmax.features[:, rows]
        design = np.matmul(x.T, maps)  # (k, rows, m)
        scores = design @ theta + center @ x
        top = scores.max(axis=0)
        probs = np.exp(scores - top)
        sums = probs.sum(axis=0)
        probs /= sums
        own = target[:, rows]
        weights = own.sum(axis=0)
        value += float((weights * (top + np.log(sums)) - (own * scores).sum(axis=0)).sum())
        gradient += (probs * weights - own).ravel() @ design.reshape(-1, m)
        mean = (design * probs[:, :, None]).sum(axis=0)
        hessian -= mean.T @ (mean * weights[:, None])
        bent = design * (probs * weights)[:, :, None]
        hessian += design.reshape(-1, m).T @ bent.reshape(-1, m)
    return value / n, gradient / n, hessian / n
