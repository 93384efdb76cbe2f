r"""Softmax of a linear map: loss, gradient and Hessian of many classes, with products of matrices.

The scores are :math:`u = \Theta x` (k, n): classes first, so that loops run over samples whatever k is.
With probabilities p and weights w the mean loss has the gradient :math:`A(w (p - y))` and the Hessian
:math:`A \, w (\mathrm{diag}\, p - p p^\top) A^\top`, where A is the adjoint of the map from parameters to
scores. ``MatrixMap`` and ``VectorMap`` say what those two are; the rest is shared.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.sample import Sample
from refinecal.calibrators._features import even_weights

FEW = 300  # parameters up to which products are done in blocks
PRODUCT_SIZE = 2**18  # multiplications of a block
CHUNK = 512  # samples whose outer products are summed together

Array = NDArray[np.float64]


class SoftmaxMap(ABC):
    """The mean log loss of softmax scores, plus a penalty ``0.5 * sum(ridge * (theta - centre)**2)``.

    Features in float32 are computed with in float32: an error of about 1e-8 in the gradient, of which the
    loss at the minimum shows the square.
    """

    def __init__(self, features: NDArray[Any], sample: Sample, ridge: Array, centre: Array) -> None:
        self.features, self.ridge, self.centre = features, ridge, centre
        self.k, self.n, self.total = sample.k, sample.n, float(sample.n)
        self.weights = even_weights(sample.weights).astype(features.dtype)
        self.labels = sample.labels if sample.soft is None else np.empty(0, np.int64)
        self.sample = sample
        self.probs = self.label_weights()
        self.target = self.adjoint(self.probs)
        self.work = np.empty_like(self.probs)
        self.rounding = float(np.finfo(features.dtype).eps)  # of the loss

    def label_weights(self) -> NDArray[Any]:
        """Return how much each class counts in each sample, (k, n): the weights have the mean 1."""
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
    def adjoint(self, values: NDArray[Any]) -> Array:
        """Return the sum over samples of one value per score, times what each parameter does to it."""

    @abstractmethod
    def outer(self, stride: int = 1) -> Array:
        """Return the Hessian of the sum of losses where they were last read, or of every so many."""

    def value(self, theta: Array) -> float:
        """Return the loss with its penalty; leave the weighted probabilities in ``probs``."""
        self.scores(theta.astype(self.features.dtype, copy=False), self.probs)
        loss = _kernels.softmax_linear.softmax_columns(self.probs, self.labels, self.weights)
        if not len(self.labels):
            loss -= float(self.target @ theta)
        away = theta - self.centre
        return float(loss / self.total + 0.5 * (self.ridge @ away**2))

    def gradient(self, theta: Array) -> Array:
        """Return the gradient, after ``value`` at the same place."""
        found = (self.adjoint(self.probs) - self.target) / self.total
        return np.asarray(found + self.ridge * (theta - self.centre))

    def product(self, direction: Array) -> Array:
        """Return the Hessian times a direction, after ``value``."""
        self.scores(direction.astype(self.features.dtype, copy=False), self.work)
        _kernels.softmax_linear.curve_columns(self.probs, self.weights, self.work)
        return np.asarray(self.adjoint(self.work) / self.total + self.ridge * direction)

    def all(self, theta: Array) -> tuple[float, Array, Array]:
        """Return value, gradient and Hessian."""
        value = self.value(theta)
        hessian = self.outer()
        hessian /= self.total
        hessian.flat[:: len(hessian) + 1] += self.ridge
        return value, self.gradient(theta), hessian

    def roots(self, rows: slice) -> NDArray[Any] | float:
        """Return what outer products of weighted probabilities are divided by: square roots of weights."""
        return np.sqrt(self.weights[rows]) if len(self.weights) else 1.0


class MatrixMap(SoftmaxMap):
    """Scores ``theta @ features``: features (d, n), theta (k, d) as a vector."""

    def scores(self, theta: NDArray[Any], out: NDArray[Any]) -> None:
        matrix = theta.reshape(self.k, -1)
        for part in self._parts():
            np.matmul(matrix, self.features[:, part], out=out[:, part])

    def adjoint(self, values: NDArray[Any]) -> Array:
        products = (values[:, part] @ self.features[:, part].T for part in self._parts())
        return np.asarray(sum(products).ravel(), dtype=np.float64)

    def _parts(self) -> Iterator[slice]:
        """Cut the samples into blocks that stay in cache."""
        size = self.k * len(self.features)
        step = PRODUCT_SIZE // size if size <= FEW else self.n
        for start in range(0, self.n, step):
            yield slice(start, start + step)

    def outer(self, stride: int = 1) -> Array:
        d = len(self.features)
        hessian = np.zeros((self.k * d, self.k * d))
        blocks = np.zeros((self.k, d * d))
        for start in range(0, self.n, CHUNK * stride):
            rows = slice(start, min(start + CHUNK * stride, self.n), stride)
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

    def adjoint(self, values: NDArray[Any]) -> Array:
        slopes = np.einsum("ji,ji->j", values, self.features)
        return np.concatenate([slopes, values.sum(axis=1)], dtype=np.float64)

    def blocks(self, values: NDArray[Any]) -> tuple[Array, Array, Array]:
        """Return the sums of v z**2, v z and v of each class."""
        squares = np.einsum("ji,ji,ji->j", values, self.features, self.features)
        return (squares, *np.split(self.adjoint(values), 2))

    def outer(self, stride: int = 1) -> Array:
        assert stride == 1, "the sums over classes below are those of all samples"
        k = self.k
        hessian = np.zeros((2 * k, 2 * k))
        for start in range(0, self.n, CHUNK):
            rows = slice(start, min(start + CHUNK, self.n))
            p = self.probs[:, rows] / self.roots(rows)
            both = np.concatenate([p * self.features[:, rows], p])
            hessian -= both @ both.T
        squares, slopes, sums = self.blocks(self.probs)
        own = np.arange(k)
        hessian[own, own] += squares
        hessian[own, own + k] += slopes
        hessian[own + k, own] += slopes
        hessian[own + k, own + k] += sums
        return hessian
