r"""Binary logistic regression on a few features, by Newton with loss, gradient and Hessian in one read.

With :math:`m_i = x_i \cdot \theta + o_i` and the share :math:`s_i` of class 1, row i has the loss
:math:`\log(1 + e^{-|m|}) + \max(m, 0) - s m`, the residual :math:`\sigma(m) - s` and the weight
:math:`\sigma(m) \sigma(-m)` in the Hessian: one exponential per row.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal import _kernels
from refinecal._core.sample import Sample
from refinecal.calibrators._features import NOTHING, even_weights, shares_of
from refinecal.calibrators._newton import Advice, minimise

Floats = NDArray[np.float64]

NEARLY = 1e-4  # squared: a combination of features that is this small needs coordinates of its own
STIFF = 1e14  # of the data's curvature: a penalty that leaves less than 1e-14 of the loss to gain
STRONGEST = 1e30  # a penalty as good as infinite
SMALLEST = 1e-305  # of a feature that is not 0: its coefficient stays finite
FLAT = 1e-13  # of the largest singular value: rounding


def fit_logistic(
    sample: Sample,
    columns: list[Floats],
    advice: Advice,
    *,
    ridge: ArrayLike = 0.0,
    centre: ArrayLike = 0.0,
    offset: Floats | None = None,
) -> Floats:
    """Return the coefficients of finite columns with the smallest mean log loss.

    A column of ones is the intercept. ``0.5 * ridge @ (theta - centre)**2`` is added to the mean loss, and
    ``offset`` to the log-odds. The squared decrement is below 1e-12; if not, a warning says what is advised.
    """
    features = np.stack(columns)
    d, n = features.shape
    scale = np.abs(features).max(axis=1)
    scale[scale < SMALLEST] = 1.0
    features /= scale[:, None]  # largest 1: no square can overflow
    shift = NOTHING if offset is None else offset
    with np.errstate(over="ignore"):
        penalty = np.diag(np.minimum(np.broadcast_to(ridge, d) / scale / scale, STRONGEST))
    middle = np.multiply(centre, scale)
    basis, rest = np.eye(d), np.zeros(d)
    if _are_nearly_dependent(features):
        basis = scale_directions(features.T / (2 * n**0.5), penalty)
        middle, given = np.linalg.lstsq(basis, middle)[0], middle
        rest = np.where(basis.any(axis=1), 0.0, given)  # of parameters that stay where they are
        shift = rest @ features + (shift if len(shift) else 0.0)
        features, penalty = basis.T @ features, basis.T @ penalty @ basis

    weights = even_weights(sample.weights)
    parts = (features, shares_of(sample), weights, shift, penalty, middle)
    read = partial(_kernels.logistic.read_logistic, *map(np.ascontiguousarray, parts))
    found = minimise(read, np.zeros(basis.shape[1])).accept(advice)
    return np.asarray((rest + basis @ found) / scale)


def fit_two(
    sample: Sample,
    columns: list[Floats],
    ridge: list[float],
    advice: Advice,
    offset: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Return the coefficients of the columns, and the intercepts of both classes.

    ``ridge`` has the strengths of ``ridge * coefficient**2``; the last is that of the difference of the
    two intercepts, which are halved between them.
    """
    columns = [*columns, np.ones(sample.n)]
    found = fit_logistic(sample, columns, advice, ridge=2 * np.array(ridge), offset=offset)
    return found[:-1], found[-1] * np.array([-0.5, 0.5])


def _are_nearly_dependent(columns: NDArray[Any]) -> bool:
    """Tell whether a combination of features, each divided by its size, is small."""
    second = columns @ columns.T
    size = np.sqrt(np.diagonal(second))
    size[size == 0] = 1.0
    return bool(np.linalg.eigvalsh(second / size[:, None] / size)[0] < NEARLY)


def scale_directions(data: NDArray[Any], penalty: NDArray[Any]) -> NDArray[Any]:
    r"""Return directions in which :math:`D^\top D + P` is 1, but for those that rounding hides.

    The singular vectors of D and a root of P over each other, divided by their singular values: so directions
    are told apart whose curvatures, the squares, differ by more than the precision of a Hessian. A parameter
    whose penalty leaves nothing to gain is in none of them.
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
