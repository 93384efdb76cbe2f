"""Linear maps of the logits: vector scaling, matrix scaling and Dirichlet calibration."""

from __future__ import annotations  # so that help() shows types by name

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import Sample, on_cpu
from refinecal.calibrators._features import (
    LARGEST,
    best_beta,
    check_strength,
    gap_columns,
    gap_limit,
    log_odds,
    log_softmax_rows,
)
from refinecal.calibrators._logistic_regression import fit_two
from refinecal.calibrators._newton import Advice
from refinecal.calibrators._softmax_fits import fit_matrix, fit_vector
from refinecal.calibrators.base import Calibrator

Array = NDArray[np.float64]

SMALLEST = 1e-300  # of features that are not 0: what is learned stays finite
VECTOR = Advice("vector scaling", "use calibrator='structured-vector', which has penalties")


class LinearCalibrator(Calibrator):
    """Softmax of a linear map of features, of which ``_features`` says what they are."""

    intercepts_: Array
    limit_: float

    @abstractmethod
    def _features(self, logits: NDArray[Any]) -> Array:
        """Return what is multiplied by scales or a matrix, (k, n)."""

    @abstractmethod
    def _multiply(self, features: Array) -> Array:
        """Return the scores (k, n), but for the intercepts; the features may be lost."""

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        scores = self._multiply(self._features(logits))
        scores += self.intercepts_[:, None]
        return log_softmax_rows(scores)


class DiagonalCalibrator(LinearCalibrator):
    """A linear map by one scale for each class."""

    scales_: Array

    @property
    def n_parameters(self) -> int:
        """Two for each class."""
        return 2 * len(self.scales_)

    def _multiply(self, features: Array) -> Array:
        features *= self.scales_[:, None]
        return features


class MatrixCalibrator(LinearCalibrator):
    """A linear map by a matrix."""

    matrix_: Array
    _weighs_rows = True  # against penalties

    @property
    def n_parameters(self) -> int:
        """The entries of the matrix and the intercepts: k² + k."""
        return self.matrix_.size + len(self.matrix_)

    def _multiply(self, features: Array) -> Array:
        return np.asarray(self.matrix_ @ features)


class VectorScaling(DiagonalCalibrator):
    r"""Calibrate by a scale and an intercept for each class: ``softmax(w * z + b)``.

    The logits z are centred, each row to the sum 0, so that a constant added to a row changes nothing and
    two classes give affine scaling. The mean log loss is the smallest; there is no penalty.

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth, as in :class:`refinecal.TemperatureScaling`.

    Attributes
    ----------
    scales_, intercepts_ : ndarray of shape (k,)
        w and b; the intercepts sum to 0.
    limit_ : float
        Logits further than this below the largest are cut: what a probability of 0 stands for.

    References
    ----------
    C. Guo, G. Pleiss, Y. Sun, K. Weinberger, On calibration of modern neural networks, ICML 2017.

    Examples
    --------
    All classes look alike, but class 0 is half of the samples: only the intercepts can say so.

    >>> import refinecal as rc
    >>> vector = rc.make_calibrator("vector", laplace=False)
    >>> vector.fit_logits([[1.0, 1.0, 1.0]] * 4, [0, 0, 1, 2]).predict_proba_logits([[0, 0, 0]]).round(6)
    array([[0.5 , 0.25, 0.25]])
    """

    def __init__(self, laplace: bool = True) -> None:
        self.laplace = laplace

    def _features(self, logits: NDArray[Any]) -> Array:
        return _centre_columns(logits, self.limit_)

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        sample = on_cpu(sample).drop_weightless()
        self.limit_ = gap_limit(sample)
        if sample.k == 2:
            slope, self.intercepts_ = _fit_affine(sample, self.limit_, 0.0, VECTOR)
            self.scales_ = np.full(2, slope)
            return
        features = self._features(sample.logits)
        unit = _unit(sample, self.limit_, features, threads, start)
        features *= unit
        middle = features.mean(axis=1)
        features -= middle[:, None]
        begin = np.concatenate([np.ones(sample.k), middle])
        slopes, shifts = fit_vector(features, sample, np.zeros(len(begin)), begin, VECTOR)
        shifts -= slopes * middle
        self.scales_, self.intercepts_ = slopes * unit, shifts - shifts.mean()


class _PenalizedMatrix(MatrixCalibrator):
    """What matrix scaling and Dirichlet calibration share: a matrix, an intercept and their penalties."""

    _sums_to_zero: bool  # whether the features sum to 0 over the classes
    _advice: Advice

    def __init__(
        self, laplace: bool = True, off_diagonal: float = 1.0, intercept: float = 1.0
    ) -> None:
        self.laplace = laplace
        self.off_diagonal = off_diagonal
        self.intercept = intercept

    @abstractmethod
    def _learn_two(self, sample: Sample) -> None:
        """Learn from two classes, where off the diagonal there is nothing that the diagonal cannot do."""

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        check_strength("off_diagonal", self.off_diagonal)
        check_strength("intercept", self.intercept)
        sample = on_cpu(sample).drop_weightless()
        self.limit_ = gap_limit(sample)
        if sample.k == 2:
            self._learn_two(sample)
            return
        features = self._features(sample.logits)
        unit = _unit(sample, self.limit_, features, threads, start)
        features *= unit
        strength = sample.k / sample.total
        off = strength * self.off_diagonal * min(unit, LARGEST) ** 2
        penalties = off, 0.0, strength * self.intercept
        matrix, self.intercepts_ = fit_matrix(features, sample, penalties, 0.0, self._advice)
        self.matrix_ = _least_off_diagonal(matrix * unit, self._sums_to_zero)


class MatrixScaling(_PenalizedMatrix):
    r"""Calibrate by a matrix and an intercept: ``softmax(W @ z + b)``.

    The logits z are centred, each row to the sum 0. The loss is the mean log loss plus
    :math:`\frac{k}{n} (\lambda \sum_{i \ne j} W_{ij}^2 + \mu \sum_j b_j^2)`: off-diagonal and intercept
    regularisation (ODIR), which vanishes as n grows. Without it k² + k parameters learn small sets by
    heart. :class:`refinecal.calibrators.StructuredMatrixScaling` shrinks more and to temperature scaling.

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth, as in :class:`refinecal.TemperatureScaling`.
    off_diagonal, intercept : float, default 1
        The strengths :math:`\lambda` and :math:`\mu`. Kull et al. write :math:`\lambda' / (k (k - 1))` and
        :math:`\mu' / k` for what is :math:`\lambda k / n` and :math:`\mu k / n` here.

    Attributes
    ----------
    matrix_ : ndarray of shape (k, k)
        W, of all that predict the same the one with the smallest entries off the diagonal.
    intercepts_ : ndarray of shape (k,)
        b; they sum to 0.
    limit_ : float
        Logits further than this below the largest are cut: what a probability of 0 stands for.

    References
    ----------
    C. Guo, G. Pleiss, Y. Sun, K. Weinberger, On calibration of modern neural networks, ICML 2017;
    M. Kull et al., Beyond temperature scaling, NeurIPS 2019.

    Examples
    --------
    Two classes whose log-odds are twice too large: the matrix is half the identity.

    >>> import refinecal as rc
    >>> logits = 2 * np.log([[0.75, 0.25]] * 4 + [[0.25, 0.75]] * 4)
    >>> rc.make_calibrator("matrix").fit_logits(logits, [0, 0, 0, 1, 0, 1, 1, 1]).matrix_.round(6)
    array([[0.5, 0. ],
           [0. , 0.5]])
    """

    _sums_to_zero = True
    _advice = Advice("matrix scaling", "raise off_diagonal and intercept")

    def _features(self, logits: NDArray[Any]) -> Array:
        return _centre_columns(logits, self.limit_)

    def _learn_two(self, sample: Sample) -> None:
        slope, self.intercepts_ = _fit_affine(sample, self.limit_, self.intercept, self._advice)
        self.matrix_ = slope * np.eye(2)


class DirichletCalibration(_PenalizedMatrix):
    r"""Calibrate by the map that is right when predictions follow a Dirichlet law in each class.

    That is ``softmax(W @ log(p) + b)``: matrix scaling of log-probabilities, and for two classes beta
    calibration whose a and b may be negative. The loss is the mean log loss plus
    :math:`\frac{k}{n} (\lambda \sum_{i \ne j} W_{ij}^2 + \mu \sum_j b_j^2)`: off-diagonal and intercept
    regularisation (ODIR).

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth, as in :class:`refinecal.TemperatureScaling`.
    off_diagonal, intercept : float, default 1
        The strengths :math:`\lambda` and :math:`\mu`. Kull et al. write :math:`\lambda' / (k (k - 1))` and
        :math:`\mu' / k` for what is :math:`\lambda k / n` and :math:`\mu k / n` here.

    Attributes
    ----------
    matrix_ : ndarray of shape (k, k)
        W, of all that predict the same the one with the smallest entries off the diagonal.
    intercepts_ : ndarray of shape (k,)
        b; they sum to 0.
    limit_ : float
        Logits further than this below the largest are cut: what a probability of 0 stands for.

    References
    ----------
    M. Kull et al., Beyond temperature scaling, NeurIPS 2019.

    Examples
    --------
    Log-odds that are twice too large: the matrix is half the identity.

    >>> import refinecal as rc
    >>> probs = np.array([[0.9, 0.1]] * 4 + [[0.1, 0.9]] * 4)  # 3/4 and 1/4, squared and rescaled
    >>> fitted = rc.make_calibrator("dirichlet", laplace=False).fit(probs, [0, 0, 0, 1, 0, 1, 1, 1])
    >>> fitted.predict_proba([[0.9, 0.1]]).round(6)
    array([[0.75, 0.25]])
    """

    _sums_to_zero = False
    _advice = Advice("Dirichlet calibration", "raise off_diagonal and intercept")

    def _features(self, logits: NDArray[Any]) -> Array:
        gaps = gap_columns(logits, self.limit_)
        gaps -= np.log(np.exp(gaps).sum(axis=0))
        return gaps

    def _learn_two(self, sample: Sample) -> None:
        logs = self._features(sample.logits)
        ridge = [0.0, 0.0, self.intercept / sample.total]
        found, self.intercepts_ = fit_two(sample, [-logs[0], logs[1]], ridge, self._advice)
        self.matrix_ = np.diag(found)


def _centre_columns(logits: NDArray[Any], limit: float) -> Array:
    """Return finite logits (k, n) that sum to 0 over the classes."""
    gaps = gap_columns(logits, limit)
    gaps -= gaps.mean(axis=0)
    return gaps


def _unit(sample: Sample, limit: float, features: Array, threads: int, start: float) -> float:
    """Return the best inverse temperature; where that is no scale to start from, that of the features."""
    largest = max(float(features.max()), -float(features.min()))
    if largest < SMALLEST:
        return 1.0
    beta = best_beta(sample, limit, threads, start)
    return beta if 0.1 <= beta * largest <= 1e3 else 1 / largest


def _fit_affine(sample: Sample, limit: float, shift: float, advice: Advice) -> tuple[float, Array]:
    """Return slope and intercepts of two classes: (k / n) |b|**2 is their difference squared, over n."""
    odds = log_odds(sample.logits, limit)
    slope, intercepts = fit_two(sample, [odds], [0.0, shift / sample.total], advice)
    return float(slope[0]), intercepts


def _least_off_diagonal(matrix: Array, centred: bool) -> Array:
    """Return the matrix that predicts the same and has the smallest entries off the diagonal.

    What is added to all entries of a column changes no prediction; nor, for centred logits, to a row.
    """
    k = len(matrix)
    off = matrix * (1 - np.eye(k))
    if not centred:
        return np.asarray(matrix - off.sum(axis=0) / (k - 1))
    ones = np.ones((k, k)) - np.eye(k)
    system = np.block([[(k - 1) * np.eye(k), ones], [ones, (k - 1) * np.eye(k)]])
    right = np.concatenate([off.sum(axis=1), off.sum(axis=0)])
    rows, columns = np.split(np.linalg.lstsq(system, right)[0], 2)
    return np.asarray(matrix - rows[:, None] - columns)
