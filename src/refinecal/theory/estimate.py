r"""Estimates of spectrum and signal from a user's data.

Let S be the covariance of n rows within their classes (N = n - 2 degrees of freedom), p features, r = p/N.
Its eigenvalues are biased estimates of those of :math:`\Sigma`: small ones are too small, large ones too
large. They do determine, for each z > 0, the companion transform :math:`v(z)`, which solves the equation of
Marchenko, Pastur and Silverstein,

.. math:: v(z) = \frac{1-r}{z} + \frac{r}{p} \operatorname{tr}(S + z)^{-1}, \qquad
          \frac1{v(z)} = z + r\, E_F\Big[\frac{\sigma}{1 + \sigma v(z)}\Big],

which is linear in F: non-negative least squares over many z gives the spectrum (El Karoui, 2008).

Half the difference of the class means is :math:`\hat\mu \sim N(\mu, \theta\Sigma)`, independent of S, with
:math:`\theta = (1/n_0 + 1/n_1)/4`. Because :math:`(S + z)^{-1}` acts like :math:`Q = (z + z v \Sigma)^{-1}`,

.. math:: \hat\mu^\top (S + z)^{-1} \hat\mu - \theta N \Big(\frac1{z v} - 1\Big)
          \approx \sum_i \frac{\mu_i^2}{z (1 + v \sigma_i)},

which is linear in the signal :math:`c^2 G`. Its noise at two points z, z' has the covariance

.. math:: \frac{4\theta b + 2\theta^2 a + \frac2N (zv)(z'v') b^2}{1 - (zv)(z'v') a/N}, \qquad
          a = \operatorname{tr} Q\Sigma Q'\Sigma, \quad b = \mu^\top Q\Sigma Q'\mu,

from the class means and from S. The theory of logistic regression needs only values of the right-hand side
and its slope at :math:`v = \tau/\lambda`, which are measured well. The best error rate is not, with more
features than rows, since it needs :math:`v \to \infty`. The fit of the signal is weighted by this noise. The
signal of a direction is modeled as a power of its variance, close to the paper's power 0, unless the data
clearly favor another shape.
"""

from __future__ import annotations  # so that help() shows types by name

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal.theory._sample_covariance import Fluctuation, Points, Summary, symmetric_root
from refinecal.theory.feature_rows import check_rows
from refinecal.theory.spectrum import Spectrum

Floats = NDArray[np.float64]

PER_DECADE = 20  # candidates for eigenvalues
LOWEST = 1e-5  # of the mean eigenvalue: the smallest candidate with fewer rows than features
LEAST_PER_DECADE = 1.6
MANY = 0.8  # features per degree of freedom, from which small eigenvalues are not resolved
SLACK = 0.5  # of the mean eigenvalue's noise: how much worse a fit without small ones may be
EXPONENTS = np.linspace(-3, 3, 61)
PRIOR = 1.0  # standard deviation of the exponent; 0 means no preferred directions
BETTER = 12.0  # by which a free spread must lower chi-squared to be preferred
SEEN = 2.0  # standard errors: noise alone exceeded them in 0 to 5% of 60 sets of nine sizes
TRACE = 0.25  # standard errors of signal that are always assumed
JITTER = 0.1  # standard deviations of additional noise at each z, since n is finite


@dataclass(frozen=True)
class Signal:
    """The signal at each node, and how well it is known."""

    shares: Floats  # (q,): the squared norm of the mean at each node
    kind: str  # "power" if the signal of a direction is a power of its eigenvalue, else "free"
    exponent: float  # that power; 0 means no preferred directions
    misfit: float  # chi-squared of the measured values
    strength: float  # the signal of the best power in its standard errors

    @property
    def seen(self) -> bool:
        """Whether the signal exceeds noise."""
        return self.strength >= SEEN


@dataclass(frozen=True)
class SignalFitter:
    """Fits the signal to values measured at some points, weighted by their noise."""

    summary: Summary
    at: Points
    nodes: Floats
    weights: Floats

    def covariance(self, shares: Floats) -> Floats:
        """Return the covariance of the measured values for a signal."""
        n, theta = self.summary.freedom, self.summary.theta
        Q = self.at.equivalent(self.nodes)
        a = (Q * self.nodes**2 * self.weights * self.summary.n_features) @ Q.T
        b = (Q * self.nodes * shares) @ Q.T
        scale = np.outer(self.at.z * self.at.v, self.at.z * self.at.v)
        noise = 4 * theta * b + 2 * theta**2 * a + 2 / n * scale * b**2
        return np.asarray(noise / np.maximum(1 - scale * a / n, 1 / n))  # it is less only by misfit

    def predict(self, shares: Floats) -> Floats:
        """Return the values that a signal gives without noise."""
        return np.asarray(self.at.equivalent(self.nodes) @ shares)

    def fit(self, values: Floats) -> Signal:
        """Return the signal: a power of the eigenvalue, unless the data clearly favor another shape."""
        from scipy.optimize import nnls

        Q = self.at.equivalent(self.nodes)
        middle = float(self.weights @ self.nodes)
        powers = self.weights[:, None] * (self.nodes[:, None] / middle) ** EXPONENTS
        shares = np.zeros_like(self.nodes)
        for _ in range(4):  # the noise depends on the signal
            white = self._whitener(shares)
            seen, shapes = white @ values, white @ (Q @ powers)
            length = np.einsum("ij,ij->j", shapes, shapes)
            size = seen @ shapes / length
            strength = size * np.sqrt(length)
            size = np.maximum(size, TRACE / np.sqrt(length))
            misfit = ((seen[:, None] - shapes * size) ** 2).sum(axis=0)
            best = int(np.argmin(misfit + (EXPONENTS / PRIOR) ** 2))
            shares = powers[:, best] * size[best]
        white = self._whitener(shares)
        free, root = nnls(white @ Q, white @ values, maxiter=100 * len(self.nodes))
        least, strongest = float(misfit[best]), float(strength[best])
        if free.sum() > 0 and least - root**2 > BETTER:
            return Signal(free, "free", float("nan"), float(root**2), strongest)
        return Signal(shares, "power", float(EXPONENTS[best]), least, strongest)

    def _whitener(self, shares: Floats) -> Floats:
        """Return a matrix that whitens the noise, plus a little noise at each point."""
        cov = self.covariance(shares)
        scale = np.sqrt(np.diag(cov))
        values, vectors = np.linalg.eigh(cov / np.outer(scale, scale))
        spread = np.sqrt(np.maximum(values, 0) + JITTER**2)
        return np.asarray((vectors / spread).T / scale)

    def draw_uneven(self, found: Signal, values: Floats, rng: np.random.Generator) -> Signal:
        """Return a signal with a random direction and the mean ``found``, rescaled to fit.

        Its part along k directions is chi-squared with k degrees of freedom.
        """
        if found.kind != "power":
            return found
        half = np.maximum(self.weights * self.summary.n_features, 1e-6) / 2
        shape = found.shares * rng.gamma(half) / half
        white = self._whitener(found.shares)
        seen, shaped = white @ values, white @ self.predict(shape)
        length = float(np.linalg.norm(shaped))
        size = max(float(seen @ shaped) / length, TRACE) / length
        return replace(found, shares=shape * size)

    def redraw(self, signal: Signal, rng: np.random.Generator) -> Floats:
        """Return simulated values for this signal or, if it is not seen, the largest that often is not."""
        larger = 1.0 if signal.seen else SEEN / max(signal.strength, TRACE)
        cov = self.covariance(shares := signal.shares * larger)
        noise = symmetric_root(cov, np.sqrt(np.diag(cov))) @ rng.normal(size=len(cov))
        return np.asarray(self.predict(shares) + noise)


class EmpiricalSpectrum(Spectrum):
    """A spectrum estimated from rows, and the distribution of the signal over it.

    Create it with :meth:`from_data`.

    Attributes
    ----------
    signal : float or None
        Norm of half the difference of the class means, corrected for noise; None without labels.
    n_rows, n_features : int
        Number of rows, and of directions in which they vary.
    fitter, found : SignalFitter and Signal, or None
        How the signal was estimated, and the estimate.

    Examples
    --------
    Sample eigenvalues range from 0.2 to 2.6 although all true ones are 1; the estimate corrects this:

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 200))
    >>> spectrum = EmpiricalSpectrum.from_data(X)
    >>> bool(abs(spectrum.mean(lambda sigma: sigma**2) - 1) < 0.05)  # the sample's is 1.3
    True
    """

    kind = "empirical"

    def __init__(
        self,
        summary: Summary,
        nodes: Floats,
        weights: Floats,
        fitter: SignalFitter | None = None,
        found: Signal | None = None,
    ) -> None:
        shares = weights if found is None else found.shares
        used = (weights > 0) | (shares > 0)
        signal = None if found is None else shares[used] / shares.sum()
        label = f"estimated from {summary.n_rows} x {summary.n_features}"
        super().__init__(nodes[used], weights[used], signal, label)
        self.n_rows, self.n_features = summary.n_rows, summary.n_features
        self.fitter, self.found = fitter, found

    @property
    def seen(self) -> bool:
        """Whether the classes differ by more than noise; False without labels."""
        return self.found is not None and self.found.seen

    @property
    def signal(self) -> float | None:
        """Norm of half the difference of the class means, corrected for noise."""
        return None if self.found is None else float(np.sqrt(self.found.shares.sum()))

    @classmethod
    def from_data(cls, X: Any, y: Any = None, *, standardize: bool = False) -> Self:
        """Estimate the spectrum of the covariance within classes, and the signal if there are labels.

        Parameters
        ----------
        X : array_like of shape (n, p)
            Features: numbers without missing values. Constant columns are dropped.
        y : array_like of shape (n,), optional
            Labels of two classes. Without them, all rows form one class.
        standardize : bool, default False
            Divide columns by their standard deviation first.
        """
        rows, labels, _ = check_rows(X, y, standardize=standardize)
        return cls.of(Summary.of(rows, labels))

    def redrawn(self, rng: np.random.Generator) -> Self:
        """Return an estimate of spectrum and signal from simulated rows of this law.

        The variation of the signal between directions, which data do not show, is drawn as well. If no
        signal is detected, the law has the largest one that often goes undetected.
        """
        if self.fitter is None or self.found is None:
            raise ValueError(
                "the spectrum was estimated without labels, so it has no signal: pass y to "
                "EmpiricalSpectrum.from_data"
            )
        values = self.fitter.redraw(self.found, rng)
        at = self._fluctuation.draw(rng)
        nodes, weights = fit_spectrum(self.fitter.summary, at)
        fitter = SignalFitter(self.fitter.summary, at, nodes, weights)
        found = fitter.draw_uneven(fitter.fit(values), values, rng)
        return type(self)(fitter.summary, nodes, weights, fitter, found)

    @cached_property
    def _fluctuation(self) -> Fluctuation:
        assert self.fitter is not None, "redrawn looks"
        law = self.fitter
        return Fluctuation.of(law.at.z, law.nodes, law.weights, law.summary)

    @classmethod
    def of(cls, summary: Summary) -> Self:
        """Estimate from a summary of the rows."""
        at = summary.points()
        nodes, weights = fit_spectrum(summary, at)
        if not summary.theta:
            return cls(summary, nodes, weights)
        fitter = SignalFitter(summary, at, nodes, weights)
        return cls(summary, nodes, weights, fitter, fitter.fit(summary.signal_values(at)))


def fit_spectrum(summary: Summary, at: Points) -> tuple[Floats, Floats]:
    """Return eigenvalues and their weights that solve the equation of v best.

    With more features than rows, small eigenvalues are not resolved: then none are smaller than the data
    require.
    """
    e, mean = summary.eigenvalues, summary.mean
    if summary.n_features < MANY * summary.freedom:
        return _solve_weights(at, _candidates(e[0], e[-1]))[:2]
    noise = np.sqrt(2 / (summary.n_features * summary.freedom))
    least = LOWEST * summary.scale
    count = round(LEAST_PER_DECADE * np.log10(mean / least)) + 1
    fits = [
        _solve_weights(at, _candidates(low, e[-1]))
        for low in np.geomspace(min(mean, 0.99 * e[-1]), least, count)
    ]
    best = min(misfit for *_, misfit in fits)
    enough = max(1.3 * best, best + SLACK * noise)
    return next((nodes, weights) for nodes, weights, misfit in fits if misfit <= enough)


def _candidates(low: float, high: float) -> Floats:
    count = int(np.clip(PER_DECADE * np.log10(high / low), 30, 200)) if high > low else 1
    return np.geomspace(low, high, count)


def _solve_weights(at: Points, nodes: Floats) -> tuple[Floats, Floats, float]:
    """Return nodes, weights and the root mean square of the relative misfit."""
    from scipy.optimize import nnls

    A = nodes / (1 + nodes * at.v[:, None]) / at.mean[:, None]
    heavy = 1e3  # a row that makes the weights sum to 1
    rows = np.concatenate([A, np.full((1, len(nodes)), heavy)])
    weights, _ = nnls(rows, np.append(np.ones(len(A)), heavy), maxiter=100 * len(nodes))
    weights /= weights.sum()
    return nodes, weights, float(np.sqrt(np.mean((A @ weights - 1) ** 2)))
