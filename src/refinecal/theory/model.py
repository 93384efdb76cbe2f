r"""The Gaussian data model (section 6 of the paper), for sampling and for evaluating linear models.

Features are :math:`X \sim N(m + \mu, \Sigma)` for label 1 and :math:`N(m - \mu, \Sigma)` for label 0, with a
center m and a prevalence :math:`\pi = P(Y = 1)`. The log-odds of the label are linear in x,

.. math:: w^{*\top} (x - m) + \mathrm{logit}(\pi), \qquad w^* = 2 \Sigma^{-1} \mu,

and a linear score :math:`w^\top x + b` has expertise
:math:`a = \langle w, w^*\rangle_\Sigma / \|w\|_\Sigma = 2 w^\top \mu / \|w\|_\Sigma`, confidence
:math:`\|w\|_\Sigma = \sqrt{w^\top \Sigma w}` and shift :math:`w^\top m + b`, the arguments of
:func:`gaussian_decomposition`.
"""

from __future__ import annotations  # so that help() shows types by name

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit, ndtri

from refinecal._core.checks import check_whole
from refinecal.losses import ProperLoss
from refinecal.theory._eigenvalues import check_spectrum
from refinecal.theory._number_checks import (
    check_array,
    check_bayes_error,
    check_one_of,
    check_positive,
    check_vector,
    freeze,
    read_floats,
)
from refinecal.theory.gaussian import GaussianDecomposition, error_rate, gaussian_decomposition
from refinecal.theory.spectrum import Spectrum

__all__ = ["GaussianModel", "sample"]

Floats = NDArray[np.float64]
Seed = int | np.random.Generator | None

ASYMMETRY = 1e-8  # of a covariance, relative to its largest entry, that rounding explains
ROUNDING = float(np.finfo(np.float64).eps)


class GaussianModel:
    r"""Two Gaussian classes of the same covariance.

    Parameters
    ----------
    mu : array-like of shape (p,)
        Half the difference between the means of the classes.
    sigma : array-like of shape (p,) or (p, p)
        Covariance within a class; one dimension is the diagonal, that is, variances.
    prevalence : float, default 0.5
        Probability of label 1.
    centre : array-like of shape (p,), optional
        Midpoint between the means; by default 0.

    Attributes
    ----------
    n_features : int
        The number of features p.
    weights : ndarray of shape (p,)
        Weights of the true log-odds, :math:`w^* = 2 \Sigma^{-1} \mu`.
    intercept : float
        Intercept of the true log-odds.
    bayes_error : float
        Error rate of the best classifier.

    Examples
    --------
    One feature, with means 1 and -1 and variance 1:

    >>> from refinecal.theory import GaussianModel
    >>> model = GaussianModel([1.0], [1.0])
    >>> model.weights, round(model.bayes_error, 4)  # the normal law beyond one standard deviation
    (array([2.]), 0.1587)

    Doubling the weights keeps the expertise and doubles the confidence:

    >>> found = model.decompose([4.0])
    >>> float(found.expertise), float(found.confidence)
    (2.0, 4.0)
    """

    def __init__(
        self,
        mu: ArrayLike,
        sigma: ArrayLike,
        *,
        prevalence: float = 0.5,
        centre: ArrayLike | None = None,
    ) -> None:
        form = "(p,), one number for each feature"
        self.mu = freeze(check_vector("mu", _read_finite("mu", mu), form, one=False))
        centre = np.zeros_like(self.mu) if centre is None else _read_finite("centre", centre)
        self.centre = freeze(check_vector("centre", centre, form, one=False))
        if self.centre.shape != self.mu.shape:
            raise ValueError(
                f"centre has {len(self.centre)} entries, but mu has {len(self.mu)}: pass one for each feature"
            )
        self.sigma = freeze(_check_covariance(sigma, len(self.mu)))
        self._root = np.sqrt(self.sigma) if self.sigma.ndim == 1 else _cholesky(self.sigma)
        rule = "it must be one number strictly between 0 and 1"
        self.prevalence = check_array(
            "prevalence", prevalence, lambda x: (x > 0) & (x < 1) & (x.size == 1), rule
        ).item()

    @classmethod
    def from_spectrum(
        cls,
        spectrum: Spectrum,
        n_features: int,
        *,
        bayes_error: float | None = None,
        signal: float | None = None,
        seed: Seed = None,
        exact: bool = True,
    ) -> GaussianModel:
        r"""Draw a model as in section 7 of the paper.

        Eigenvalues are independent draws from the spectrum, and :math:`\mu_i` are normal with
        :math:`E \mu_i^2 = c^2 / p`, or as the spectrum spreads its signal.

        Parameters
        ----------
        spectrum : Spectrum
            Law of the eigenvalues, which form a diagonal covariance.
        n_features : int
            Number of features p.
        bayes_error, signal : float
            One of the two: the error rate of the best classifier, or the norm c of the mean.
        seed : int or Generator, optional
            Random seed.
        exact : bool, default True
            Rescale the mean so that the model has exactly this Bayes error or norm. Otherwise it has them in
            the limit of many features, as in the paper.

        Examples
        --------
        >>> from refinecal.theory import BetaSpectrum, GaussianModel
        >>> model = GaussianModel.from_spectrum(BetaSpectrum(1, 1), 200, bayes_error=0.1, seed=0)
        >>> model.n_features, round(model.bayes_error, 12)
        (200, 0.1)
        """
        n_features = check_whole("n_features", n_features, 1)
        check_spectrum("spectrum", spectrum, "refinecal.theory.BetaSpectrum(1, 1)")
        check_one_of(bayes_error, signal)
        is_norm = signal is not None
        value = check_positive("signal", signal) if is_norm else check_bayes_error(bayes_error)  # type: ignore[arg-type]
        if value.ndim:
            name = "signal" if is_norm else "bayes_error"
            raise TypeError(f"{name} has shape {value.shape}: pass one number")
        given = float(value)
        rng = np.random.default_rng(seed)
        sigma = spectrum.draw(n_features, rng)
        mu = rng.standard_normal(n_features) * np.sqrt(spectrum.signal_ratio(sigma))
        if exact and not is_norm:
            norm, length = -float(ndtri(given)), float(np.linalg.norm(mu / np.sqrt(sigma)))
        else:
            norm = given if is_norm else float(spectrum.signal_for(given))
            length = float(np.linalg.norm(mu)) if exact else np.sqrt(n_features)
        if not length > 0:
            raise ValueError(
                "the drawn directions have no signal: use more features, or another seed"
            )
        return cls(mu * (norm / length), sigma)

    # ---- truth -------------------------------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.mu)

    @cached_property
    def weights(self) -> Floats:
        """Weights of the true log-odds."""
        if self.sigma.ndim == 1:
            return 2 * self.mu / self.sigma
        from scipy.linalg import cho_solve

        return np.asarray(2 * cho_solve((self._root, True), self.mu))

    @property
    def intercept(self) -> float:
        """Intercept of the true log-odds."""
        return float(logit(self.prevalence) - self.weights @ self.centre)

    @property
    def bayes_error(self) -> float:
        """Error rate of the best classifier."""
        expertise = self.expertise(self.weights)
        return float(error_rate(expertise, expertise, self.prevalence, logit(self.prevalence)))

    def log_odds(self, X: ArrayLike) -> Floats:
        """Return the true log-odds of label 1 for each row."""
        return np.asarray(self._rows(X, "X") @ self.weights + self.intercept)

    # ---- linear models -----------------------------------------------------------------------------------

    def confidence(self, w: ArrayLike) -> Any:
        r"""Return :math:`\|w\|_\Sigma`, the standard deviation of the score within a class.

        Here and below, w may hold one weight vector in each row.
        """
        _, largest, norm = self._measure(w)
        return (largest * norm)[()]

    def expertise(self, w: ArrayLike) -> Any:
        r"""Return :math:`\langle w, w^*\rangle_\Sigma / \|w\|_\Sigma`; 0 for weights that are all 0."""
        unit, _, norm = self._measure(w)
        inner = np.asarray(2 * (unit @ self.mu))
        return np.divide(inner, norm, out=np.zeros(norm.shape), where=norm > 0)[()]

    def decompose(
        self, w: ArrayLike, intercept: ArrayLike = 0.0, loss: str | ProperLoss = "log"
    ) -> GaussianDecomposition:
        """Return the exact decomposition of the loss of a linear model on this distribution.

        Parameters
        ----------
        w : array-like of shape (p,) or (m, p)
            Weights of the score, one model in each row.
        intercept : float or array-like of shape (m,)
            Added to the score.
        loss : {"log", "brier", "spherical"} or a loss object
            See :func:`gaussian_decomposition`.
        """
        shift = self._rows(w, "w") @ self.centre + read_floats("intercept", intercept)
        return gaussian_decomposition(
            self.expertise(w), self.confidence(w), loss, prevalence=self.prevalence, shift=shift
        )

    def _measure(self, w: ArrayLike) -> tuple[Floats, Floats, Floats]:
        """Return weights divided by their largest entry, the entry, and the norm of the divided weights.

        So squares neither vanish nor overflow.
        """
        rows = self._rows(w, "w")
        largest = np.abs(rows).max(axis=-1)
        unit = rows / np.where(largest > 0, largest, 1)[..., None]
        scaled = unit * self._root if self.sigma.ndim == 1 else unit @ self._root
        return unit, largest, np.asarray(np.linalg.norm(scaled, axis=-1))

    def _rows(self, given: ArrayLike, name: str) -> Floats:
        if hasattr(given, "coef_"):
            raise TypeError(f"{name} is a fitted model: pass its weights, such as model.coef_[0]")
        rows = _read_finite(name, given)
        if rows.ndim not in (1, 2) or rows.shape[-1] != self.n_features:
            raise ValueError(
                f"{name} has shape {rows.shape}: it must be ({self.n_features},) or (m, {self.n_features}), "
                "one number for each feature"
            )
        return rows

    # ---- samples -----------------------------------------------------------------------------------------

    def sample(
        self, n: int, seed: Seed = None, *, balanced: bool = False
    ) -> tuple[Floats, NDArray[np.int64]]:
        """Draw features and labels.

        Parameters
        ----------
        n : int
            Number of rows.
        seed : int or Generator, optional
            Random seed.
        balanced : bool, default False
            Give label 1 to exactly ``n * prevalence`` rows (rounded), rather than on average.

        Returns
        -------
        X, y : ndarray of shape (n, p) and (n,)
            Features, and labels 0 and 1.

        Examples
        --------
        >>> from refinecal.theory import GaussianModel
        >>> X, y = GaussianModel([1.0, 0.0], [1.0, 4.0]).sample(6, seed=0, balanced=True)
        >>> X.shape, y.sum().item()
        ((6, 2), 3)
        """
        n = check_whole("n", n, 1)
        rng = np.random.default_rng(seed)
        if balanced:
            y = rng.permutation(np.arange(n) < round(n * self.prevalence)).astype(np.int64)
        else:
            y = (rng.random(n) < self.prevalence).astype(np.int64)
        X = rng.standard_normal((n, self.n_features))
        X = np.multiply(X, self._root, out=X) if self.sigma.ndim == 1 else X @ self._root.T
        X += self.centre
        X[y == 1] += self.mu
        X[y == 0] -= self.mu
        return X, y

    def __repr__(self) -> str:
        kind = "variances" if self.sigma.ndim == 1 else "covariance"
        return (
            f"GaussianModel({self.n_features} features, {kind} given, prevalence {self.prevalence:g}, "
            f"Bayes error {self.bayes_error:.4g})"
        )


def sample(
    n: int,
    mu: ArrayLike,
    sigma: ArrayLike,
    *,
    prevalence: float = 0.5,
    centre: ArrayLike | None = None,
    balanced: bool = False,
    seed: Seed = None,
) -> tuple[Floats, NDArray[np.int64]]:
    """Draw features and labels from a Gaussian model: :meth:`GaussianModel.sample` in one call.

    >>> from refinecal.theory import sample
    >>> X, y = sample(4, mu=[1.0, 0.0], sigma=[[1.0, 0.5], [0.5, 2.0]], seed=0)
    >>> X.shape, set(y.tolist()) <= {0, 1}
    ((4, 2), True)
    """
    model = GaussianModel(mu, sigma, prevalence=prevalence, centre=centre)
    return model.sample(n, seed, balanced=balanced)


# ---- checks ----------------------------------------------------------------------------------------------


def _read_finite(name: str, given: ArrayLike) -> Floats:
    return check_array(name, given, np.isfinite, "all entries must be finite")


def _check_covariance(given: ArrayLike, n_features: int) -> Floats:
    """Return variances or a symmetric matrix."""
    sigma = _read_finite("sigma", given)
    if sigma.shape not in ((n_features,), (n_features, n_features)):
        raise ValueError(
            f"sigma has shape {sigma.shape}, but mu has {n_features} entries: pass ({n_features},) variances "
            f"or a ({n_features}, {n_features}) covariance matrix"
        )
    variances = sigma if sigma.ndim == 1 else sigma.diagonal()
    bad = np.flatnonzero(~(variances > 0))
    if bad.size:
        raise ValueError(
            f"the variance of feature {bad[0]} in sigma is {variances[bad[0]]:.6g}: it must be positive. "
            "Drop features that are constant within classes."
        )
    if sigma.ndim == 1:
        return sigma
    gap = np.abs(sigma - sigma.T)
    i, j = np.unravel_index(gap.argmax(), gap.shape)
    if gap[i, j] > ASYMMETRY * np.abs(sigma).max():
        raise ValueError(
            f"sigma is not symmetric: sigma[{i}, {j}] is {sigma[i, j]:.6g}, but sigma[{j}, {i}] is "
            f"{sigma[j, i]:.6g}. If that is rounding, pass (sigma + sigma.T) / 2."
        )
    return (sigma + sigma.T) / 2


def _cholesky(sigma: Floats) -> Floats:
    """Return the lower factor of a matrix, which must be positive definite beyond rounding."""
    try:
        root = np.linalg.cholesky(sigma)
    except np.linalg.LinAlgError:
        root = np.zeros_like(sigma)
    left = root.diagonal() ** 2 / sigma.diagonal()  # variance that earlier features do not explain
    if left.min() <= len(sigma) * ROUNDING:
        smallest = np.linalg.eigvalsh(sigma)[0]
        raise ValueError(
            f"sigma is not positive definite: its smallest eigenvalue is {smallest:.3g}. Drop features that "
            "repeat others, or add a small number to the diagonal: sigma + 1e-6 * np.eye(p)."
        )
    return np.asarray(root)
