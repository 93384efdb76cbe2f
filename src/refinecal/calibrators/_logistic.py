r"""Binary logistic regression on a few features, by Newton with loss, gradient and Hessian in one read.

With :math:`m_i = x_i \cdot \theta + o_i` and the share :math:`s_i` of class 1, row i has the loss
:math:`\log(1 + e^{-|m|}) + \max(m, 0) - s m`, the residual :math:`\sigma(m) - s` and the weight
:math:`\sigma(m) \sigma(-m)` in the Hessian: one exponential per row.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._kernels.logistic import read_logistic
from refinecal.calibrators._features import NOTHING, even_weights
from refinecal.calibrators._newton import Advice, minimise

ADVICE = Advice("logistic regression", "raise the ridge penalty")
NEARLY = 1e-4  # squared: a combination of features that is this small needs coordinates of its own
STIFF = (
    1e14  # of the curvature of the data: a penalty that leaves less than 1e-14 of the loss to gain
)
STRONGEST = 1e30  # a penalty as good as infinite
SMALLEST = 1e-305  # of a feature that is not 0: its coefficient stays finite
FLAT = 1e-13  # of the largest singular value: rounding


def fit_logistic(
    features: NDArray[np.float64],
    shares: NDArray[Any],
    weights: NDArray[np.float64] | None = None,
    *,
    ridge: NDArray[np.float64] | None = None,
    centre: NDArray[np.float64] | None = None,
    offset: NDArray[np.float64] | None = None,
    advice: Advice = ADVICE,
) -> NDArray[np.float64]:
    """Return the coefficients with the smallest mean log loss, to a squared decrement of 1e-12.

    Parameters
    ----------
    features : ndarray of shape (n, d)
        Finite; a column of ones is the intercept.
    shares : ndarray of shape (n,)
        The share of class 1 in 0..1: hard or soft labels.
    weights : ndarray of shape (n,), optional
        How often each row counts.
    ridge : ndarray of shape (d,) or (d, d), optional
        Adds ``0.5 * (theta - centre) @ R @ (theta - centre)`` to the mean loss.
    centre : ndarray of shape (d,), optional
        Where the penalty pulls; else to 0.
    offset : ndarray of shape (n,), optional
        Added to the log-odds.
    advice : Advice
        What a warning says should the fit not converge.
    """
    n, d = features.shape
    scale = np.abs(features).max(axis=0)
    scale[scale < SMALLEST] = 1.0
    columns = np.empty((d, n))
    np.divide(features.T, scale[:, None], out=columns)  # largest 1: no square can overflow
    target = np.ascontiguousarray(shares, dtype=np.float64)
    heavy = even_weights(weights)
    shift = NOTHING if offset is None else np.ascontiguousarray(offset, dtype=np.float64)
    penalty = _scaled(np.zeros(d) if ridge is None else ridge, scale)
    middle = np.zeros(d) if centre is None else centre * scale
    basis, rest = np.eye(d), np.zeros(d)
    if _are_nearly_dependent(columns):
        basis = well_scaled(columns.T / (2 * n**0.5), penalty)
        middle, given = np.linalg.lstsq(basis, middle)[0], middle
        rest = np.where(basis.any(axis=1), 0.0, given)  # of parameters that stay where they are
        shift = rest @ columns + (shift if len(shift) else 0.0)
        columns, penalty = basis.T @ columns, basis.T @ penalty @ basis

    given = (
        np.ascontiguousarray(part) for part in (columns, target, heavy, shift, penalty, middle)
    )
    found = minimise(partial(read_logistic, *given), np.zeros(basis.shape[1])).said(advice)
    return np.asarray((rest + basis @ found) / scale)


def _scaled(ridge: NDArray[Any], scale: NDArray[Any]) -> NDArray[Any]:
    """Return the penalty as a matrix, of coefficients that are ``scale`` times as large."""
    if np.ndim(ridge) == 2:
        return np.asarray(ridge / scale[:, None] / scale)
    with np.errstate(over="ignore"):
        return np.diag(np.minimum(ridge / scale / scale, STRONGEST))


def _are_nearly_dependent(columns: NDArray[Any]) -> bool:
    """Tell whether a combination of features, each divided by its size, is small."""
    second = columns @ columns.T
    size = np.sqrt(np.diagonal(second))
    size[size == 0] = 1.0
    return bool(np.linalg.eigvalsh(second / size[:, None] / size)[0] < NEARLY)


def triangle(data: NDArray[Any]) -> NDArray[np.float64]:
    """Return the triangular factor R of a matrix, with R'R = D'D but no loss of precision."""
    found: Any = np.linalg.qr(data, mode="r")
    return np.asarray(found)


def well_scaled(data: NDArray[Any], penalty: NDArray[Any]) -> NDArray[Any]:
    r"""Return directions in which :math:`D^\top D + P` is 1, but for those that rounding hides.

    The singular vectors of D and a root of P over each other, divided by their singular values: so directions
    are told apart whose curvatures, the squares, differ by more than the precision of a Hessian. A parameter
    whose penalty leaves nothing to gain is in none of them.
    """
    data = triangle(data) if len(data) > data.shape[1] else data
    kept = np.flatnonzero(np.diagonal(penalty) <= STIFF * (data**2).sum(axis=0).max())
    kept = kept if kept.size else np.arange(len(penalty))
    values, vectors = np.linalg.eigh(penalty[np.ix_(kept, kept)])
    roots = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
    _, sizes, turned = np.linalg.svd(np.concatenate([data[:, kept], roots]), full_matrices=False)
    felt = sizes > FLAT * sizes[0]
    basis = np.zeros((data.shape[1], int(felt.sum())))
    basis[kept] = turned[felt].T / sizes[felt]
    return basis
