"""How the signal is spread over the eigenvalues, fitted to what the class means tell.

The equations are those of :mod:`refinecal.theory.estimate`. The noise of what is measured is known: the fit
weighs by it, and knows what it cannot see. So the signal of a direction is taken for a power of its
variance, near the paper's power 0, unless the data insist on another shape.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from refinecal.theory._summary import Points, Summary, symmetric_root

Floats = NDArray[np.float64]

EXPONENTS = np.linspace(-3, 3, 61)
PRIOR = 1.0  # standard deviation of the exponent; 0 means no preferred directions
BETTER = 12.0  # by which a free spread must lower chi-squared to be preferred
SEEN = 2.0  # standard errors: noise alone came above them in 0 to 5 % of 60 sets of nine sizes
TRACE = 0.25  # standard errors of signal that are always assumed
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
        The signal of the best power in its standard errors.
    """

    shares: Floats
    kind: str
    exponent: float
    misfit: float
    strength: float

    @property
    def seen(self) -> bool:
        """Whether there is more than noise might be."""
        return self.strength >= SEEN

    @property
    def possible(self) -> Floats:
        """The shares, or, if no signal is seen, those of the largest that often goes unseen."""
        return self.shares if self.seen else self.shares * SEEN / max(self.strength, TRACE)


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
            size = np.maximum(size, TRACE / np.sqrt(length))
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

    def uneven(self, found: Signal, values: Floats, rng: np.random.Generator) -> Signal:
        """Return a signal of a random direction, where what was found is its mean; its size is fitted anew.

        Along k directions, a random one has a part like chi-squared of k degrees of freedom.
        """
        if found.kind != "power":
            return found
        half = np.maximum(self.weights * self.summary.n_features, 1e-6) / 2
        shape = found.shares * rng.gamma(half) / half
        white = self._whitener(found.shares)
        seen, shaped = white @ values, white @ self.expected(shape)
        length = float(np.linalg.norm(shaped))
        size = max(float(seen @ shaped) / length, TRACE) / length
        return replace(found, shares=shape * size)

    def redraw(self, signal: Signal, rng: np.random.Generator) -> Floats:
        """Return values that other rows might have given: with this signal, or one that goes unseen."""
        shares = signal.possible
        cov = self.covariance(shares)
        noise = symmetric_root(cov, np.sqrt(np.diag(cov))) @ rng.normal(size=len(cov))
        return np.asarray(self.expected(shares) + noise)
