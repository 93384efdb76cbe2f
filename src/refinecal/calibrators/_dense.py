r"""Newton's method in coordinates of the data's own: for features that hardly differ from a constant.

Predictions close to uniform have logarithms that are all about -log k: a matrix then does the same as the
intercepts, but for one part in a million, and the Hessian loses that part. The singular vectors of
:math:`(J \otimes X, R^{1/2})`, with J the differences of classes, X the features and R the penalties, divided
by their singular values, are parameters in which curvatures are about 1, wherever rounding leaves any.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal.calibrators._logistic import triangle, well_scaled
from refinecal.calibrators._newton import Solution, Vector, minimise
from refinecal.calibrators._softmax_linear import MatrixMap

Array = NDArray[np.float64]

CHUNK = 2**21  # numbers of a block of samples: 16 MB


def solve_dense(softmax: MatrixMap) -> Solution:
    """Return the parameters of the smallest loss; ``x`` has them as :func:`minimise_cg` does."""
    k, n = softmax.k, softmax.n
    weighted = softmax.features * np.sqrt(softmax.weights if len(softmax.weights) else 1.0)
    spread = triangle(weighted.T / (2 * n**0.5))
    basis = well_scaled(np.kron(np.eye(k) - 1 / k, spread), np.diag(softmax.ridge))
    roots = np.sqrt(softmax.ridge)[:, None] * basis
    penalty = roots.T @ roots
    target = softmax.label_weights()

    def all_of(theta: Vector) -> tuple[float, Vector, Array]:
        value, gradient, hessian = _mean_loss(softmax, target, basis, theta)
        pull = penalty @ theta
        return value + 0.5 * float(theta @ pull), gradient + pull, hessian + penalty

    found = minimise(all_of, np.zeros(basis.shape[1]))
    return found._replace(x=softmax.centre + basis @ found.x)


def _mean_loss(
    softmax: MatrixMap, target: Array, basis: Array, theta: Vector
) -> tuple[float, Vector, Array]:
    """Return the mean loss, its gradient and its Hessian, from scores that sum to 0 over the classes."""
    k, n, m = softmax.k, softmax.n, len(theta)
    centre = softmax.centre.reshape(k, -1)
    value, gradient, hessian = 0.0, np.zeros(m), np.zeros((m, m))
    maps = basis.reshape(k, -1, m)
    maps = maps - maps.mean(axis=0)
    step = max(1, CHUNK // (k * m))
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        x: NDArray[Any] = softmax.features[:, rows]
        design = np.matmul(x.T, maps)  # (k, rows, m)
        scores = design @ theta + centre @ x
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
