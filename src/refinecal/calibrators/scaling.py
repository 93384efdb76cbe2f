"""Linear maps of the logits: affine, vector, matrix, Dirichlet and structured scaling."""

from __future__ import annotations  # so that help() shows types by name

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.checks import check_number
from refinecal._core.sample import (
    LARGEST,
    Sample,
    clipped_odds,
    gap_columns,
    gap_limit,
    log_rows_of_odds,
)
from refinecal.calibrators._fits import fit_matrix, fit_vector
from refinecal.calibrators._newton import STRONGEST, Advice, fit_logistic, fit_two
from refinecal.calibrators._pairs import Curve, polynomial
from refinecal.calibrators.base import Calibrator, Floats, check_two_classes
from refinecal.calibrators.temperature import best_beta

SMALLEST = 1e-300  # of nonzero features: what is learned stays finite
VECTOR = Advice("vector scaling", "use calibrator='structured-vector', which has penalties")
STRUCTURED_VECTOR = Advice("structured vector scaling", "raise diagonal and intercept")
STRUCTURED_MATRIX = Advice(
    "structured matrix scaling", "raise diagonal, off_diagonal and intercept"
)


class PolynomialScaling(Calibrator):
    """A sigmoid of a polynomial in the log-odds; ``_main`` names its coefficients, lowest power first."""

    limit_: float
    _kind: str

    def __init__(self, laplace: bool = True, ridge: float = 0.0) -> None:
        self.laplace = laplace
        self.ridge = ridge

    @property
    def n_parameters(self) -> int:
        """The number of its coefficients."""
        return len(self._main)

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        check_two_classes(sample, f"{self._kind} scaling", self._kind, "vector")
        self.limit_ = gap_limit(sample)
        strength, d = check_number("ridge", self.ridge), len(self._main)
        x = clipped_odds(sample.logits, self.limit_)
        found = fit_logistic(
            sample,
            [x**power for power in range(d)],
            Advice(f"{self._kind} scaling", "raise ridge, say to 1"),
            ridge=2 * strength / sample.total,
            center=np.eye(d)[1],  # which leaves x unchanged
        )
        for name, value in zip(self._main, found.tolist(), strict=True):
            setattr(self, name, value)

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        x, (highest, *lower) = clipped_odds(logits, self.limit_), self._main[::-1]
        odds = getattr(self, highest)
        for name in lower:  # Horner's rule
            odds = getattr(self, name) + odds * x
        return log_rows_of_odds(odds)

    def _curve(self) -> Curve:
        return polynomial(*(getattr(self, name) for name in self._main), limit=self.limit_)


class AffineScaling(PolynomialScaling):
    r"""Calibrate two classes by an intercept and a slope: Platt scaling of the log-odds x.

    The probability of class 1 is :math:`\sigma(a + b x)`. Minimizes the mean log loss plus
    :math:`\frac{\rho}{n} (a^2 + (b - 1)^2)`. Unlike temperature scaling it can correct a wrong class
    frequency.

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth, as in :class:`refinecal.TemperatureScaling`.
    ridge : float, default 0
        The strength :math:`\rho` of the penalty, which pulls toward the uncalibrated predictions.

    Attributes
    ----------
    intercept_, slope_ : float
        a and b.
    limit_ : float
        Log-odds beyond this are clipped, so that a probability of 0 stays finite.

    References
    ----------
    J. Platt, Probabilistic outputs for support vector machines, 1999.

    Examples
    --------
    At log-odds 0, one sample in four is of class 1; at log-odds 1, three in four. So the log-odds should be
    -log(3) and log(3).

    >>> import refinecal as rc
    >>> affine = rc.make_calibrator("affine")
    >>> affine = affine.fit_logits([0.0] * 4 + [1.0] * 4, [0, 0, 0, 1, 0, 1, 1, 1])
    >>> print(round(affine.intercept_ / np.log(3), 6), round(affine.slope_ / np.log(3), 6))
    -1.0 2.0
    """

    intercept_: float
    slope_: float
    _kind, _main = "affine", ("intercept_", "slope_")


class LinearCalibrator(Calibrator):
    """Softmax of a linear map of the features that ``_features`` returns."""

    intercepts_: Floats
    limit_: float

    @abstractmethod
    def _features(self, logits: NDArray[Any]) -> Floats:
        """Return the features (k, n) that scales or a matrix multiply."""

    @abstractmethod
    def _multiply(self, features: Floats) -> Floats:
        """Return the scores (k, n) without intercepts; may overwrite the features."""

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        scores = self._multiply(self._features(logits))
        scores += self.intercepts_[:, None]
        logs = np.empty(logits.shape)
        _kernels.softmax_linear.fill_logs(scores, logs)
        return logs


class DiagonalCalibrator(LinearCalibrator):
    """A linear map by one scale for each class."""

    scales_: Floats

    @property
    def n_parameters(self) -> int:
        """Two for each class."""
        return 2 * len(self.scales_)

    def _multiply(self, features: Floats) -> Floats:
        features *= self.scales_[:, None]
        return features


class MatrixCalibrator(LinearCalibrator):
    """A linear map by a matrix."""

    matrix_: Floats
    _weighs_rows = True  # against penalties

    @property
    def n_parameters(self) -> int:
        """The entries of the matrix and the intercepts: k² + k."""
        return self.matrix_.size + len(self.matrix_)

    def _multiply(self, features: Floats) -> Floats:
        return np.asarray(self.matrix_ @ features)


class CenteredCalibrator(LinearCalibrator):
    """A linear map of finite logits that sum to 0 over the classes."""

    def _features(self, logits: NDArray[Any]) -> Floats:
        gaps = gap_columns(logits, self.limit_)
        gaps -= gaps.mean(axis=0)
        return gaps


class VectorScaling(CenteredCalibrator, DiagonalCalibrator):
    r"""Calibrate by a scale and an intercept for each class: ``softmax(w * z + b)``.

    The logits z are centered, each row to the sum 0, so that adding a constant to a row changes nothing and
    two classes give affine scaling. Minimizes the mean log loss, without a penalty.

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth, as in :class:`refinecal.TemperatureScaling`.

    Attributes
    ----------
    scales_, intercepts_ : ndarray of shape (k,)
        w and b; the intercepts sum to 0.
    limit_ : float
        Logits further than this below the largest are clipped, so that a probability of 0 stays finite.

    References
    ----------
    C. Guo, G. Pleiss, Y. Sun, K. Weinberger, On calibration of modern neural networks, ICML 2017.

    Examples
    --------
    All classes look alike, but half of the samples belong to class 0: the intercepts learn that.

    >>> import refinecal as rc
    >>> vector = rc.make_calibrator("vector", laplace=False)
    >>> vector.fit_logits([[1.0, 1.0, 1.0]] * 4, [0, 0, 1, 2]).predict_proba_logits([[0, 0, 0]]).round(6)
    array([[0.5 , 0.25, 0.25]])
    """

    def __init__(self, laplace: bool = True) -> None:
        self.laplace = laplace

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        self.limit_ = gap_limit(sample)
        if sample.k == 2:
            odds = clipped_odds(sample.logits, self.limit_)
            slope, self.intercepts_ = fit_two(sample, [odds], [0.0, 0.0], VECTOR)
            self.scales_ = np.repeat(slope, 2)
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
    """Matrix scaling and Dirichlet calibration: a matrix and intercepts, both penalized."""

    _sums_to_zero: bool  # whether the features sum to 0 over the classes
    _advice: Advice

    def __init__(
        self, laplace: bool = True, off_diagonal: float = 1.0, intercept: float = 1.0
    ) -> None:
        self.laplace = laplace
        self.off_diagonal = off_diagonal
        self.intercept = intercept

    @abstractmethod
    def _columns_of_two(self, logits: NDArray[Any]) -> list[Floats]:
        """Return what a diagonal matrix multiplies, which is enough for two classes."""

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        check_number("off_diagonal", self.off_diagonal)
        check_number("intercept", self.intercept)
        self.limit_ = gap_limit(sample)
        if sample.k == 2:
            columns = self._columns_of_two(sample.logits)
            ridge = [0.0] * len(columns) + [self.intercept / sample.total]  # k / n * |b|**2
            found, self.intercepts_ = fit_two(sample, columns, ridge, self._advice)
            self.matrix_ = np.diag(np.broadcast_to(found, 2))
            return
        features = self._features(sample.logits)
        unit = _unit(sample, self.limit_, features, threads, start)
        features *= unit
        strength = sample.k / sample.total
        off = strength * self.off_diagonal * min(unit, LARGEST) ** 2
        penalties = off, 0.0, strength * self.intercept
        matrix, self.intercepts_ = fit_matrix(features, sample, penalties, 0.0, self._advice)
        self.matrix_ = _least_off_diagonal(matrix * unit, self._sums_to_zero)


class MatrixScaling(CenteredCalibrator, _PenalizedMatrix):
    r"""Calibrate by a matrix and an intercept: ``softmax(W @ z + b)``.

    The logits z are centered, each row to the sum 0. Minimizes the mean log loss plus
    :math:`\frac{k}{n} (\lambda \sum_{i \ne j} W_{ij}^2 + \mu \sum_j b_j^2)`: off-diagonal and intercept
    regularization (ODIR), which vanishes as n grows. Without it, k² + k parameters overfit small samples.
    :class:`StructuredMatrixScaling` shrinks more, toward temperature scaling.

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
        W. Among matrices that predict the same, the one with the smallest off-diagonal entries.
    intercepts_ : ndarray of shape (k,)
        b; they sum to 0.
    limit_ : float
        As for :class:`VectorScaling`.

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

    def _columns_of_two(self, logits: NDArray[Any]) -> list[Floats]:
        return [clipped_odds(logits, self.limit_)]


class DirichletCalibration(_PenalizedMatrix):
    r"""Calibrate by the map that is correct if the predictions in each class follow a Dirichlet distribution.

    That is ``softmax(W @ log(p) + b)``: matrix scaling of log-probabilities, and for two classes beta
    calibration whose a and b may be negative. The penalty is that of :class:`MatrixScaling`.

    Parameters
    ----------
    laplace, off_diagonal, intercept
        As for :class:`MatrixScaling`.

    Attributes
    ----------
    matrix_, intercepts_, limit_
        As for :class:`MatrixScaling`.

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

    def _features(self, logits: NDArray[Any]) -> Floats:
        gaps = gap_columns(logits, self.limit_)
        gaps -= np.log(np.exp(gaps).sum(axis=0))
        return gaps

    def _columns_of_two(self, logits: NDArray[Any]) -> list[Floats]:
        logs = self._features(logits)
        return [-logs[0], logs[1]]


class _Structured(LinearCalibrator):
    """Temperature scaling with smoothing as a first step, whose log-probabilities are the features."""

    first_beta_: float
    _weighs_rows = True  # against penalties

    def _features(self, logits: NDArray[Any]) -> Floats:
        """Return log(n / (n + 1) * softmax(beta * logits) + 1 / (n + 1) / k)."""
        gaps, n = gap_columns(logits, self.limit_), self.n_samples_
        gaps *= self.first_beta_
        probs = np.exp(gaps, out=gaps)
        probs *= (n / (n + 1)) / probs.sum(axis=0)
        probs += 1 / ((n + 1) * len(gaps))
        return np.asarray(np.log(probs, out=probs))

    def _first_step(self, sample: Sample, threads: int, start: float) -> Floats:
        """Learn the temperature; return the features of the rows."""
        self.limit_, self.n_samples_ = gap_limit(sample), sample.total
        self.first_beta_ = best_beta(sample, self.limit_, threads, start)
        return self._features(sample.logits)


class StructuredVectorScaling(_Structured, DiagonalCalibrator):
    r"""Calibrate by temperature, then by a scale and an intercept for each class, shrunk toward 1 and 0.

    Temperature scaling with Laplace smoothing gives :math:`z' = \log g(p)`. Then
    :math:`\mathrm{softmax}((1 + \delta) z' + b)` minimizes the mean log loss plus
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
        As for :class:`VectorScaling`.

    References
    ----------
    E. Berta, D. Holzmüller, M. Jordan, F. Bach, Structured matrix scaling, arXiv 2511.03685.

    Examples
    --------
    Such strong penalties leave temperature scaling: right three times out of four.

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
        on_scale = strength * check_number("diagonal", self.diagonal)
        on_shift = strength * check_number("intercept", self.intercept)
        logs = self._first_step(sample, threads, start)
        if k == 2:
            away, self.intercepts_ = _fit_two_scales(
                sample, logs, on_scale, on_shift, STRUCTURED_VECTOR
            )
            self.scales_ = 1 + away
            return
        begin = np.repeat([1.0, 0.0], k)
        ridge = np.minimum(np.repeat([2 * on_scale, 2 * on_shift], k), STRONGEST)
        self.scales_, shifts = fit_vector(logs, sample, ridge, begin, STRUCTURED_VECTOR)
        self.intercepts_ = shifts - shifts.mean()


class StructuredMatrixScaling(_Structured, MatrixCalibrator):
    r"""Calibrate by temperature, then by a matrix and intercepts, shrunk toward the identity and 0.

    Temperature scaling with Laplace smoothing gives :math:`z' = \log g(p)`. Then
    :math:`\mathrm{softmax}((I + \Delta) z' + b)` minimizes the mean log loss plus

    .. math::
        \frac{k}{n} \rho_b \|b\|^2 + \frac{k}{n} \rho_d \|\mathrm{diag} \Delta\|^2
        + \frac{k (k - 1)}{n} \rho_o \|\mathrm{offdiag} \Delta\|^2.

    The penalties vanish as n grows and tighten as k grows.

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth the result; the first step is always smoothed.
    diagonal, off_diagonal, intercept : float, default 1
        The strengths :math:`\rho_d`, :math:`\rho_o` and :math:`\rho_b`.

    Attributes
    ----------
    matrix_ : ndarray of shape (k, k)
        :math:`I + \Delta`.
    first_beta_, intercepts_, limit_
        As for :class:`StructuredVectorScaling`.

    References
    ----------
    E. Berta, D. Holzmüller, M. Jordan, F. Bach, Structured matrix scaling, arXiv 2511.03685.

    Examples
    --------
    Such strong penalties leave temperature scaling: right three times out of four.

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
        on_diagonal = strength * check_number("diagonal", self.diagonal)
        off_diagonal = strength * (k - 1) * check_number("off_diagonal", self.off_diagonal)
        on_shift = strength * check_number("intercept", self.intercept)
        logs = self._first_step(sample, threads, start)
        if k == 2:
            # Only differences D between an entry on the diagonal and the other in its column matter: D is
            # cheapest as D * off / (on + off) and -D * on / (on + off), at D**2 * on * off / (on + off).
            both = on_diagonal + off_diagonal
            share = off_diagonal / both if both > 0 else 0.5  # that the diagonal takes
            cost = on_diagonal * share if both > 0 else 0.0
            away, self.intercepts_ = _fit_two_scales(
                sample, logs, cost, on_shift, STRUCTURED_MATRIX
            )
            own, other = share * away, (share - 1) * away
            self.matrix_ = np.array([[1 + own[0], other[1]], [other[0], 1 + own[1]]])
            return
        penalties = off_diagonal, on_diagonal, on_shift
        matrix, self.intercepts_ = fit_matrix(logs, sample, penalties, 1.0, STRUCTURED_MATRIX)
        # Adding a constant to a column changes no prediction: take the matrix with the smallest penalty.
        if on_diagonal + off_diagonal == 0:
            on_diagonal = off_diagonal = 1.0
        away = matrix - np.eye(k)
        pull = off_diagonal * away.sum(axis=0) + (on_diagonal - off_diagonal) * np.diagonal(away)
        self.matrix_ = matrix - pull / (off_diagonal * (k - 1) + on_diagonal)


def _unit(sample: Sample, limit: float, features: Floats, threads: int, start: float) -> float:
    """Return the best inverse temperature, or 1 over the largest feature where that is a bad scale."""
    largest = max(float(features.max()), -float(features.min()))
    if largest < SMALLEST:
        return 1.0
    beta = best_beta(sample, limit, threads, start)
    return beta if 0.1 <= beta * largest <= 1e3 else 1 / largest


def _least_off_diagonal(matrix: Floats, centered: bool) -> Floats:
    """Return the matrix that predicts the same and has the smallest off-diagonal entries.

    Adding a constant to a column changes no prediction; nor, for centered logits, to a row.
    """
    k = len(matrix)
    off = matrix * (1 - np.eye(k))
    if not centered:
        return np.asarray(matrix - off.sum(axis=0) / (k - 1))
    ones = np.ones((k, k)) - np.eye(k)
    system = np.block([[(k - 1) * np.eye(k), ones], [ones, (k - 1) * np.eye(k)]])
    right = np.concatenate([off.sum(axis=1), off.sum(axis=0)])
    rows, columns = np.split(np.linalg.lstsq(system, right)[0], 2)
    return np.asarray(matrix - rows[:, None] - columns)


def _fit_two_scales(
    sample: Sample, logs: Floats, on_scale: float, on_shift: float, advice: Advice
) -> tuple[Floats, Floats]:
    """Return the scales of two classes minus 1, and the intercepts."""
    columns, ridge = [-logs[0], logs[1]], [on_scale, on_scale, on_shift / 2]
    return fit_two(sample, columns, ridge, advice, logs[1] - logs[0])
