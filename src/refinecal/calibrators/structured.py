"""Structured scaling: vector and matrix scaling that shrink to temperature scaling as n / k falls."""

from __future__ import annotations  # so that help() shows types by name

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import Sample, on_cpu
from refinecal.calibrators._features import best_beta, check_strength, gap_columns, gap_limit
from refinecal.calibrators._logistic_regression import STRONGEST, fit_two
from refinecal.calibrators._newton import Advice
from refinecal.calibrators._softmax_fits import fit_matrix, fit_vector
from refinecal.calibrators.scaling import DiagonalCalibrator, LinearCalibrator, MatrixCalibrator

Array = NDArray[np.float64]

VECTOR = Advice("structured vector scaling", "raise diagonal and intercept")
MATRIX = Advice("structured matrix scaling", "raise diagonal, off_diagonal and intercept")


class _Structured(LinearCalibrator):
    """A first step by temperature scaling with smoothing, whose log-probabilities are the features."""

    first_beta_: float
    _weighs_rows = True  # against penalties

    def _features(self, logits: NDArray[Any]) -> Array:
        """Return log(n / (n + 1) * softmax(beta * logits) + 1 / (n + 1) / k)."""
        gaps, n = gap_columns(logits, self.limit_), self.n_samples_
        gaps *= self.first_beta_
        probs = np.exp(gaps, out=gaps)
        probs *= (n / (n + 1)) / probs.sum(axis=0)
        probs += 1 / ((n + 1) * len(gaps))
        return np.asarray(np.log(probs, out=probs))

    def _first_step(self, sample: Sample, threads: int, start: float) -> tuple[Sample, Array]:
        """Learn the temperature; return the rows that count, and their features."""
        sample = on_cpu(sample).drop_weightless()
        self.limit_, self.n_samples_ = gap_limit(sample), sample.total
        self.first_beta_ = best_beta(sample, self.limit_, threads, start)
        return sample, self._features(sample.logits)


class StructuredVectorScaling(_Structured, DiagonalCalibrator):
    r"""Calibrate by temperature, then by a scale and an intercept for each class, shrunk to 1 and 0.

    Temperature scaling with Laplace smoothing gives :math:`z' = \log g(p)`. Then
    :math:`\mathrm{softmax}((1 + \delta) z' + b)` has the smallest mean log loss plus
    :math:`\frac{k}{n} (\rho_b \|b\|^2 + \rho_d \|\delta\|^2)`.

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth the result; the first step is always smoothed.
    diagonal, intercept : float, default 1
        The strengths :math:`\rho_d` and :math:`\rho_b`.

    Attributes
    ----------
    first_beta_ : float
        The inverse temperature of the first step.
    scales_, intercepts_ : ndarray of shape (k,)
        :math:`1 + \delta` and b.
    limit_ : float
        Logits further than this below the largest are cut: what a probability of 0 stands for.

    References
    ----------
    E. Berta, D. Holzmüller, M. Jordan, F. Bach, Structured matrix scaling, arXiv 2511.03685.

    Examples
    --------
    With penalties that strong it is temperature scaling: right three times out of four.

    >>> import refinecal as rc
    >>> fitted = rc.make_calibrator("structured-vector", diagonal=1e9, intercept=1e9, laplace=False)
    >>> fitted = fitted.fit_logits([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> fitted.predict_proba_logits([[2.0, 0.0]]).round(6)  # 4/5 of it, and 1/5 of 1/2
    array([[0.7, 0.3]])
    """

    def __init__(self, laplace: bool = True, diagonal: float = 1.0, intercept: float = 1.0) -> None:
        self.laplace = laplace
        self.diagonal = diagonal
        self.intercept = intercept

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        k, strength = sample.k, sample.k / sample.total
        on_scale = strength * check_strength("diagonal", self.diagonal)
        on_shift = strength * check_strength("intercept", self.intercept)
        sample, logs = self._first_step(sample, threads, start)
        if k == 2:
            away, self.intercepts_ = _fit_two(sample, logs, on_scale, on_shift, VECTOR)
            self.scales_ = 1 + away
            return
        begin = np.repeat([1.0, 0.0], k)
        ridge = np.minimum(np.repeat([2 * on_scale, 2 * on_shift], k), STRONGEST)
        self.scales_, shifts = fit_vector(logs, sample, ridge, begin, VECTOR)
        self.intercepts_ = shifts - shifts.mean()


class StructuredMatrixScaling(_Structured, MatrixCalibrator):
    r"""Calibrate by temperature, then by a matrix and an intercept, shrunk to the identity and 0.

    Temperature scaling with Laplace smoothing gives :math:`z' = \log g(p)`. Then
    :math:`\mathrm{softmax}((I + \Delta) z' + b)` has the smallest mean log loss plus

    .. math::
        \frac{k}{n} \rho_b \|b\|^2 + \frac{k}{n} \rho_d \|\mathrm{diag} \Delta\|^2
        + \frac{k (k - 1)}{n} \rho_o \|\mathrm{offdiag} \Delta\|^2.

    The penalties vanish as n grows and bind as k grows.

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth the result; the first step is always smoothed.
    diagonal, off_diagonal, intercept : float, default 1
        The strengths :math:`\rho_d`, :math:`\rho_o` and :math:`\rho_b`.

    Attributes
    ----------
    first_beta_ : float
        The inverse temperature of the first step.
    matrix_ : ndarray of shape (k, k)
        :math:`I + \Delta`.
    intercepts_ : ndarray of shape (k,)
        b.
    limit_ : float
        Logits further than this below the largest are cut: what a probability of 0 stands for.

    References
    ----------
    E. Berta, D. Holzmüller, M. Jordan, F. Bach, Structured matrix scaling, arXiv 2511.03685.

    Examples
    --------
    With penalties that strong it is temperature scaling: right three times out of four.

    >>> import refinecal as rc
    >>> strong = {"diagonal": 1e9, "off_diagonal": 1e9, "intercept": 1e9}
    >>> fitted = rc.make_calibrator("structured-matrix", **strong, laplace=False)
    >>> fitted = fitted.fit_logits([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> fitted.predict_proba_logits([[2.0, 0.0]]).round(6)  # 4/5 of it, and 1/5 of 1/2
    array([[0.7, 0.3]])
    """

    def __init__(
        self,
        laplace: bool = True,
        diagonal: float = 1.0,
        off_diagonal: float = 1.0,
        intercept: float = 1.0,
    ) -> None:
        self.laplace = laplace
        self.diagonal = diagonal
        self.off_diagonal = off_diagonal
        self.intercept = intercept

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        k, strength = sample.k, sample.k / sample.total
        on_diagonal = strength * check_strength("diagonal", self.diagonal)
        off_diagonal = strength * (k - 1) * check_strength("off_diagonal", self.off_diagonal)
        on_shift = strength * check_strength("intercept", self.intercept)
        sample, logs = self._first_step(sample, threads, start)
        if k == 2:
            found = _fit_two_by_two(sample, logs, on_diagonal, off_diagonal, on_shift)
            self.matrix_, self.intercepts_ = found
            return
        penalties = off_diagonal, on_diagonal, on_shift
        matrix, self.intercepts_ = fit_matrix(logs, sample, penalties, 1.0, MATRIX)
        self.matrix_ = _least_penalty(matrix, on_diagonal, off_diagonal)


def _least_penalty(matrix: Array, on_diagonal: float, off_diagonal: float) -> Array:
    """Return the matrix with the smallest penalty of all that predict the same.

    What is added to all entries of a column changes no prediction.
    """
    k = len(matrix)
    if on_diagonal + off_diagonal == 0:
        on_diagonal = off_diagonal = 1.0
    away = matrix - np.eye(k)
    pull = off_diagonal * away.sum(axis=0) + (on_diagonal - off_diagonal) * np.diagonal(away)
    return np.asarray(matrix - pull / (off_diagonal * (k - 1) + on_diagonal))


def _fit_two(
    sample: Sample, logs: Array, on_scale: float, on_shift: float, advice: Advice
) -> tuple[Array, Array]:
    """Return by how much the scales of two classes differ from 1, and the intercepts."""
    columns, ridge = [-logs[0], logs[1]], [on_scale, on_scale, on_shift / 2]
    return fit_two(sample, columns, ridge, advice, logs[1] - logs[0])


def _fit_two_by_two(
    sample: Sample, logs: Array, on_diagonal: float, off_diagonal: float, on_shift: float
) -> tuple[Array, Array]:
    """Return matrix and intercepts of two classes, of which only differences of rows count.

    A difference D between an entry on the diagonal and the one in its column off it is cheapest as
    D * off / (on + off) and -D * on / (on + off), which costs D**2 * on * off / (on + off).
    """
    both = on_diagonal + off_diagonal
    share = off_diagonal / both if both > 0 else 0.5  # that the diagonal takes
    cost = on_diagonal * share if both > 0 else 0.0
    away, intercepts = _fit_two(sample, logs, cost, on_shift, MATRIX)
    own, other = share * away, (share - 1) * away
    return np.array([[1 + own[0], other[1]], [other[0], 1 + own[1]]]), intercepts
