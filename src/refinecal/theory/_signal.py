"""How the signal is spread over the eigenvalues, fitted to what the class means tell.

The equations are those of :mod:`refinecal.theory.estimate`. The noise of what is measured is known: the fit
weighs by it, and knows what it cannot see. So the signal of a direction is taken for a power of its
variance, near the paper's power 0, unless the data insist on another shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refinecal.theory._summary import Points, Summary

Floats = NDArray[np.float64]

EXPONENTS = np.linspace(-3, 3, 61)
PRIOR = 1.0  # standard deviation of the exponent; 0 means no preferred directions
BETTER = 12.0  # by which a free spread must lower chi-squared to be preferred
JITTER = 0.1  # standard deviations of further noise at each z: the limit is not reached


@dataclass(frozen=True)
class Signal:
    """How much signal lies at each node, and how well that is known.

    Attributes
    ----------
    shares : ndarray of shape (q,)
        The squared norm of the mean at each node.
    kind : {"power", "free"}
        Whether the signal of a direction is a power of its eigenvalue, or anything.
    exponent : float
        That power; 0 means no preferred directions.
    misfit : float
        Chi-squared of the measured values.
    strength : float
        The signal of the best power in its standard errors; below 2, none is seen.
    """

    shares: Floats
    kind: str
    exponent: float
    misfit: float
    strength: float


@dataclass(frozen=True)
class SignalFitter:
    """Fits the signal to values measured at some points; knows their noise."""

    summary: Summary
    at: Points
    nodes: Floats
    weights: Floats

    def covariance(self, shares: Floats) -> Floats:
        """Return the covariance of the measured values if this is the signal."""
        n, theta = self.summary.freedom, self.summary.theta
        Q = self.at.equivalent(self.nodes)
        a = (Q * self.nodes**2 * self.weights * self.summary.n_features) @ Q.T
        b = (Q * self.nodes * shares) @ Q.T
        scale = np.outer(self.at.z * self.at.v, self.at.z * self.at.v)
        noise = 4 * theta * b + 2 * theta**2 * a + 2 / n * scale * b**2
        return np.asarray(noise / np.maximum(1 - scale * a / n, 1 / n))  # it is less only by misfit

    def expected(self, shares: Floats) -> Floats:
        """Return the values that this signal would give but for noise."""
        return np.asarray(self.at.equivalent(self.nodes) @ shares)

    def fit(self, values: Floats) -> Signal:
        """Return the signal: a power of the eigenvalue unless the data insist on another shape."""
        from scipy.optimize import nnls

        Q = self.at.equivalent(self.nodes)
        middle = float(self.weights @ self.nodes)
        powers = self.weights[:, None] * (self.nodes[:, None] / middle) ** EXPONENTS
        shares, free = np.zeros_like(self.nodes), np.zeros_like(self.nodes)
        for _ in range(4):  # the noise depends on the signal
            white = self._whitener(shares)
            seen, shapes = white @ values, white @ (Q @ powers)
            length = np.einsum("ij,ij->j", shapes, shapes)
            size = seen @ shapes / length
            strength = size * np.sqrt(length)
            size = np.maximum(size, 0.25 / np.sqrt(length))  # a trace of signal is always assumed
            misfit = ((seen[:, None] - shapes * size) ** 2).sum(axis=0)
            best = int(np.argmin(misfit + (EXPONENTS / PRIOR) ** 2))
            shares = powers[:, best] * size[best]
        white = self._whitener(shares)
        free, root = nnls(white @ Q, white @ values, maxiter=100 * len(self.nodes))
        if free.sum() > 0 and misfit[best] - root**2 > BETTER:
            return Signal(free, "free", float("nan"), float(root**2), float(strength[best]))
        return Signal(
            shares, "power", float(EXPONENTS[best]), float(misfit[best]), float(strength[best])
        )

    def _whitener(self, shares: Floats) -> Floats:
        """Return a matrix that makes the noise white, with a little more of it at each point."""
        cov = self.covariance(shares)
        scale = np.sqrt(np.diag(cov))
        values, vectors = np.linalg.eigh(cov / np.outer(scale, scale))
        spread = np.sqrt(np.maximum(values, 0) + JITTER**2)
        return np.asarray((vectors / spread).T / scale)

    def redraw(self, signal: Signal, rng: np.random.Generator) -> Floats:
        """Return values that other rows with this signal might have given."""
        values, vectors = np.linalg.eigh(self.covariance(signal.shares))
        noise = vectors @ (np.sqrt(np.maximum(values, 0)) * rng.normal(size=len(values)))
        return np.asarray(self.expected(signal.shares) + noise)
