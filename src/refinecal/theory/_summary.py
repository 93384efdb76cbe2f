"""What rows tell of spectrum and signal: eigenvalues, and the class means seen from them.

The equations are those of :mod:`refinecal.theory.estimate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

N_POINTS = 24  # values of z
DEEPEST = 1e-4  # of the mean eigenvalue: z need not be smaller
ZERO = 1e-10  # of the largest eigenvalue: what is smaller is rounding
ROUNDING = 1e-24  # of the mean square: the same, if no class varies


@dataclass(frozen=True)
class Summary:
    """What the estimates need of the rows.

    Attributes
    ----------
    n_rows, n_features, freedom : int
        Rows; directions in which they vary; degrees of freedom of their covariance.
    eigenvalues, along : ndarray
        Positive eigenvalues of the covariance within classes, and the squared length of half the difference
        of the class means along each eigenvector.
    beyond : float
        Its squared length outside of all of them.
    theta : float
        What multiplies the covariance in the noise of that half difference; 1 / n if classes are equal.
    """

    n_rows: int
    n_features: int
    freedom: int
    eigenvalues: Floats
    along: Floats
    beyond: float
    theta: float

    @classmethod
    def of(cls, X: Floats, labels: NDArray[np.int64]) -> Self:
        """Summarise checked rows of one or two classes."""
        n, p = X.shape
        counts = np.bincount(labels)
        means = np.stack([X[labels == k].mean(axis=0) for k in range(len(counts))])
        within, freedom = X - means[labels], n - len(counts)
        half = (means[-1] - means[0]) / 2  # 0 if there is one class
        theta = float((1 / counts).sum() / 4) if len(counts) == 2 else 0.0
        if p <= n:
            values, vectors = np.linalg.eigh(within.T @ within / freedom)
            along = (vectors.T @ half) ** 2
        else:
            values, vectors = np.linalg.eigh(within @ within.T / freedom)
            with np.errstate(divide="ignore", invalid="ignore"):
                along = (vectors.T @ (within @ half)) ** 2 / (values * freedom)
        some = values > max(ZERO * values[-1], ROUNDING * float(np.mean(X**2)))
        values, along = values[some], along[some]
        beyond = max(float(half @ half - along.sum()), 0.0)
        if len(values) < min(freedom, p):  # columns depend on others: the rest of space is empty
            p = len(values)
            _refuse_giveaway(beyond, float(half @ half), X)
        return cls(n, p, freedom, values, along, beyond if p > freedom else 0.0, theta)

    @property
    def mean(self) -> float:
        """The mean eigenvalue over all directions."""
        return float(self.eigenvalues.sum() / self.n_features)

    def points(self) -> Points:
        """Measure the spectrum on a grid of z."""
        e, p, n = self.eigenvalues, self.n_features, self.freedom
        z = np.geomspace(0.1 * max(e[0], DEEPEST * self.mean), 10 * e[-1], N_POINTS)
        seen = (e / (e + z[:, None])).sum(axis=1)  # tr S (S + z)^-1
        v = (n - seen) / (n * z)
        return Points(z, v, seen / (p * v))

    def signal_values(self, at: Points) -> Floats:
        """Return what the class means tell of the signal at each z, freed from bias."""
        raw = (self.along / (self.eigenvalues + at.z[:, None])).sum(axis=1) + self.beyond / at.z
        return np.asarray(raw - self.theta * self.freedom * (1 / (at.z * at.v) - 1))


@dataclass(frozen=True)
class Points:
    """The spectrum as measured: z, v(z), and the mean of sigma / (1 + sigma v) over F."""

    z: Floats
    v: Floats
    mean: Floats

    def equivalent(self, nodes: Floats) -> Floats:
        """Return the eigenvalues of Q, one row for each z."""
        return np.asarray(1 / (self.z[:, None] * (1 + self.v[:, None] * nodes)))


def _refuse_giveaway(beyond: float, length: float, X: Floats) -> None:
    """Raise if classes differ where no class varies: nothing is left to predict then."""
    if beyond <= 1e-6 * length:
        return
    distinct = len(np.unique(X, axis=0))
    if distinct <= X.shape[1]:
        raise ValueError(
            f"X has only {distinct} different rows, but {X.shape[1]} features: the others are repetitions, "
            "which tell nothing new. Drop them."
        )
    raise ValueError(
        "X gives the label away: in some direction the rows of each class are all the same, but those of "
        "the two classes differ. Drop the column that repeats the label."
    )
