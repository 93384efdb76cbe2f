r"""Sample eigenvalues and class means, from which spectrum and signal are estimated.

The equations are those of :mod:`refinecal.theory.estimate`. For Gaussian rows, the traces
:math:`T(z) = \operatorname{tr}(S + z)^{-1}` are jointly normal in the limit (Bai and Silverstein, 2004), with

.. math:: \operatorname{Cov}(T_1, T_2) = 2 \Big(\frac{v_1' v_2'}{(v_1 - v_2)^2} - \frac1{(z_1 - z_2)^2}\Big)
          \quad\text{and}\quad \operatorname{Var} T = \frac{v^{(3)}}{3 v'} - \frac{(v^{(2)})^2}{2 v'^2}.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FEWEST_POINTS, PER_DECADE = 24, 4  # values of z
DEEPEST = 1e-4  # of the mean eigenvalue: z need not be smaller, unless eigenvalues are far apart
LOW = 0.05  # share of the eigenvalues that are called low
FAR = 1e-3  # times the mean: what is called far below
HALVINGS = 80
ZERO = 1e-10  # of the largest eigenvalue: smaller ones are rounding errors
UNSEEN = 1e-8  # of the largest variance of a draw: rounding errors reach 5e-11 of it
ROUNDING = 1e-24  # of the mean square: the same, if no class varies


@dataclass(frozen=True)
class Summary:
    """The statistics of the rows that the estimates need."""

    n_rows: int
    n_features: int  # directions in which rows vary
    freedom: int  # degrees of freedom of their covariance
    eigenvalues: Floats  # positive ones of the covariance within classes
    along: Floats  # squared length of half the difference of the class means along each eigenvector
    beyond: float  # its squared length outside of all of them
    theta: float  # times the covariance: noise of that half difference; 1 / n for equal classes

    @classmethod
    def of(cls, X: Floats, labels: NDArray[np.int64]) -> Self:
        """Summarize checked rows of one or two classes."""
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

    @property
    def scale(self) -> float:
        """The mean eigenvalue, or less if many are far below it, since columns have different units."""
        return min(self.mean, float(np.quantile(self.eigenvalues, LOW)) / FAR)

    def points(self) -> Points:
        """Measure the spectrum on a grid of z."""
        e, n = self.eigenvalues, self.freedom
        least = max(e[0], DEEPEST * self.scale)
        count = int(PER_DECADE * np.log10(100 * e[-1] / least))
        z = np.geomspace(0.1 * least, 10 * e[-1], max(count, FEWEST_POINTS))
        seen = (e / (e + z[:, None])).sum(axis=1)  # tr S (S + z)^-1
        return Points.of(z, (n - seen) / (n * z), self.n_features / n)

    def signal_values(self, at: Points) -> Floats:
        """Return the unbiased measurements of the signal at each z."""
        raw = (self.along / (self.eigenvalues + at.z[:, None])).sum(axis=1) + self.beyond / at.z
        return np.asarray(raw - self.theta * self.freedom * (1 / (at.z * at.v) - 1))


@dataclass(frozen=True)
class Points:
    """The spectrum as measured: z, v(z), and the mean of sigma / (1 + sigma v) over F."""

    z: Floats
    v: Floats
    mean: Floats

    @classmethod
    def of(cls, z: Floats, v: Floats, ratio: float) -> Self:
        """Return points with the mean that the equation of v gives."""
        return cls(z, v, (1 / v - z) / ratio)

    def equivalent(self, nodes: Floats) -> Floats:
        """Return the eigenvalues of Q, one row for each z."""
        return np.asarray(1 / (self.z[:, None] * (1 + self.v[:, None] * nodes)))


@dataclass(frozen=True)
class Fluctuation:
    """The sampling noise of the measured spectrum."""

    z: Floats  # (k,): where it is measured
    v: Floats  # (k,): what comes out in the limit of many rows
    root: Floats  # (k, k): the symmetric root of the covariance of v
    ratio: float  # features for each degree of freedom

    @classmethod
    def of(cls, z: Floats, nodes: Floats, weights: Floats, summary: Summary) -> Self:
        """Return the noise for a law of the eigenvalues."""
        ratio = summary.n_features / summary.freedom
        v = transform(z, nodes, weights, ratio)
        part = 1 / (1 / nodes + v[:, None])  # sigma / (1 + sigma v)
        slope = -(1 / v**2) + ratio * part**2 @ weights  # of z as a function of v, and so on
        second = 2 / v**3 - 2 * ratio * part**3 @ weights
        third = -6 / v**4 + 6 * ratio * part**4 @ weights
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = np.outer(slope, slope) * np.subtract.outer(v, v) ** 2
            cov = 2 / inverse - 2 / np.subtract.outer(z, z) ** 2
        np.fill_diagonal(cov, -(third / slope - 1.5 * (second / slope) ** 2) / (3 * slope**2))
        return cls(z, v, symmetric_root(cov / summary.freedom**2, v), ratio)

    def draw(self, rng: np.random.Generator) -> Points:
        """Return simulated measurements from other rows."""
        v = self.v + self.root @ rng.normal(size=len(self.v))
        least = np.maximum(1 - self.ratio, 0) / self.z
        inside = 1e-9 * (1 / self.z - least)  # measurements lie between these two
        return Points.of(self.z, np.clip(v, least + inside, 1 / self.z - inside), self.ratio)


def transform(z: Floats, nodes: Floats, weights: Floats, ratio: float) -> Floats:
    """Return v(z), the root of 1/v - z - r E[sigma / (1 + sigma v)], by halving."""
    low, high = 1 / (z + ratio * float(weights @ nodes)), 1 / z
    for _ in range(HALVINGS):
        v = np.sqrt(low * high)
        above = 1 / v - z < ratio * (1 / (1 / nodes + v[:, None])) @ weights
        low, high = np.where(above, low, v), np.where(above, v, high)
    return np.asarray(np.sqrt(low * high))


def symmetric_root(cov: Floats, scale: Floats) -> Floats:
    """Return the symmetric square root of a covariance, without directions that rounding decides."""
    values, vectors = np.linalg.eigh(cov / np.outer(scale, scale))
    root = (vectors * np.sqrt(np.where(values > UNSEEN * values[-1], values, 0))) @ vectors.T
    return np.asarray(scale[:, None] * root)


def _refuse_giveaway(beyond: float, length: float, X: Floats) -> None:
    """Refuse classes that differ in a direction without variance: nothing is left to predict."""
    if beyond <= 1e-6 * length:
        return
    distinct = len(np.unique(X, axis=0))
    if distinct <= X.shape[1]:
        raise ValueError(
            f"X has only {distinct} different rows, but {X.shape[1]} features: drop the duplicates, which "
            "add no information."
        )
    raise ValueError(
        "X gives the label away: in some direction, rows of a class are all equal, but the two classes "
        "differ. Drop the column that repeats the label."
    )
