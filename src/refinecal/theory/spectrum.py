r"""Spectra: laws of the eigenvalues of a covariance.

A law with a density becomes a quadrature rule of some hundred nodes (:mod:`refinecal.theory._quadrature`).
With it :math:`E[\sigma^j / (x + \sigma)^k]`, :math:`j \le k \le 3`, has a relative error below 1e-12
for every :math:`x \ge 0`; if the law reaches 0, for every :math:`x` above 1e-12 of its width and, where that
is finite, for :math:`E[1/\sigma]`. The tests compare it with the hypergeometric functions of the paper's
appendix.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, xlog1py, xlogy

from refinecal._core.errors import fail_choice
from refinecal.theory._eigenvalues import Spectrum
from refinecal.theory._number_checks import SMALLEST, check_eigenvalues, check_number, check_shares
from refinecal.theory._quadrature import FINEST, ORDER, Law, rule

__all__ = [
    "BetaSpectrum",
    "MarchenkoPastur",
    "PointSpectrum",
    "QuadratureSpectrum",
    "Spectrum",
    "UniformSpectrum",
    "parse_spectrum",
]

Floats = NDArray[np.float64]

SHAPES = 1e-6, 1e12  # between which the rule was compared with the exact means
UNRESOLVED = 1e-3  # if a larger share of E[1 / sigma] lies below 100 FINEST, it counts as infinite


# ---- a few eigenvalues -----------------------------------------------------------------------------------


class PointSpectrum(Spectrum):
    """A few eigenvalues with their shares of the directions; equal ones are merged.

    Parameters
    ----------
    values : array of shape (m,)
        Positive eigenvalues in any order.
    weights : array of shape (m,), optional
        Their shares, in any scale; equal if not given.

    >>> PointSpectrum([4, 1, 1, 1])
    PointSpectrum(values=[1, 4], weights=[0.75, 0.25])
    """

    kind = "points"

    def __init__(self, values: ArrayLike, weights: ArrayLike | None = None) -> None:
        sigma = check_eigenvalues(values, "values")
        shares = check_shares(
            np.ones(len(sigma)) if weights is None else weights, "weights", len(sigma)
        )
        nodes, places = np.unique(sigma, return_inverse=True)
        merged = np.bincount(places, shares).astype(np.float64)
        few = [f"{node:g}" for node in nodes[:4]]
        if not np.allclose(merged, merged[0]):
            few = [f"{node} ({share:.3g})" for node, share in zip(few, merged, strict=False)]
        text = ", ".join(few) + ", …" * (len(nodes) > 4)
        label = f"eigenvalues {text}" if len(nodes) > 1 else f"eigenvalue {nodes[0]:g}"
        label = "identity" if nodes.tolist() == [1.0] else label
        super().__init__(nodes, merged, label=label)

    def _arguments(self) -> dict[str, Any]:
        return {"values": self.nodes, "weights": self.weights}


class QuadratureSpectrum(Spectrum):
    """A custom rule: eigenvalues, their weights, and the distribution of the signal over them.

    Parameters
    ----------
    nodes, weights : array of shape (m,)
        Positive eigenvalues, and their shares in any scale. A node of weight 0 may have signal: a few
        directions among very many.
    signal_weights : array of shape (m,), optional
        Shares of the signal in any scale; by default ``weights``.
    label : str, optional
        Name for titles.

    >>> QuadratureSpectrum([1, 2], [3, 1], signal_weights=[0, 1])
    QuadratureSpectrum(nodes=[1, 2], weights=[0.75, 0.25]).with_signal([0, 1])
    """

    def __init__(
        self,
        nodes: ArrayLike,
        weights: ArrayLike,
        signal_weights: ArrayLike | None = None,
        label: str = "",
    ) -> None:
        sigma = check_eigenvalues(nodes, "nodes")
        by_size = np.argsort(sigma, kind="stable")
        shares = check_shares(weights, "weights", len(sigma))[by_size]
        if signal_weights is not None:
            signal_weights = check_shares(signal_weights, "signal_weights", len(sigma))[by_size]
        super().__init__(sigma[by_size], shares, signal_weights, label)


# ---- laws with a density ---------------------------------------------------------------------------------


class _Interval(Spectrum):
    """A law with a density on an interval: ``start + width * u``, with u in [0, 1]."""

    def __init__(self, law: Law, start: float, width: float, label: str) -> None:
        if 0 < law.floor < SMALLEST:
            raise ValueError(
                f"{label} starts at {start:g}, which is too small for its width {width:g}: start at "
                f"{SMALLEST * width:g} or above, or at 0"
            )
        self._law, self._start, self._width = law, start, width
        nodes, weights = self._rule(ORDER)
        super().__init__(nodes, weights, label=label)

    def _rule(self, order: int) -> tuple[Floats, Floats]:
        u, weights = rule(self._law, order)
        nodes, places = np.unique(self._start + self._width * u, return_inverse=True)
        return nodes, np.bincount(places, weights).astype(np.float64)

    @cached_property
    def accuracy(self) -> float:
        """The largest relative change of E[1 / (x + sigma)], x >= 0, when each panel has twice the nodes."""
        least = self._law.floor or 100 * FINEST
        x = np.geomspace(min(least, 1e12), 1e12, 200) * (self._width or 1.0)
        x = x if self._law.diverges else np.append(x, 0.0)
        nodes, weights = self._rule(2 * ORDER)
        finer = (1 / (x[:, None] + nodes)) @ weights
        return float(np.abs((1 / (x[:, None] + self.nodes)) @ self.weights / finer - 1).max())

    @property
    def inverse_mean(self) -> float:
        """The mean of 1 / sigma over the signal; infinite if it is not finite or cannot be resolved."""
        found = super().inverse_mean
        if self._law.floor > 0 or (self.isotropic and not self._law.diverges):
            return found
        low = self.nodes < 100 * FINEST * self._width
        share = (self.signal_weights / self.nodes)[low].sum() / found
        return np.inf if share > UNRESOLVED else found

    def _inside(self, sigma: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
        """Return u, or 1/2 where it lies outside, and where it lies inside."""
        u = (np.asarray(sigma, dtype=np.float64) - self._start) / self._width
        inside = (u >= 0) & (u <= 1)
        return np.where(inside, u, 0.5), inside


class BetaSpectrum(_Interval):
    """A shifted Beta law, ``shift + scale * Beta(shape_a, shape_b)``: the spectra of the paper.

    Parameters
    ----------
    shape_a, shape_b : float
        Shape parameters, 1e-6 to 1e12. Below 1, eigenvalues concentrate at the lower, or upper, end.
    shift : float
        The smallest eigenvalue; 1e-3 in the paper. With 0 and ``shape_a`` of at most 1, the best error rate
        is 0 for any signal, so pass ``signal=``, not ``bayes_error=``.
    scale : float
        Width of the interval.

    >>> law = BetaSpectrum(2, 3, shift=0)
    >>> round(law.mean(lambda sigma: 1 / sigma), 12)  # (a + b - 1) / (a - 1)
    4.0
    """

    kind = "beta"

    def __init__(
        self, shape_a: float, shape_b: float, shift: float = 1e-3, *, scale: float = 1.0
    ) -> None:
        points = ". For a law that is nearly discrete, use PointSpectrum."
        self.shape_a = check_number(shape_a, "shape_a", *SHAPES, advice=points)
        self.shape_b = check_number(shape_b, "shape_b", *SHAPES, advice=points)
        self.shift = check_number(shift, "shift", zero=True)
        self.scale = check_number(scale, "scale")
        factor = "" if self.scale == 1 else f"{self.scale:g} "
        label = f"{factor}Beta({self.shape_a:g}, {self.shape_b:g})"
        label = f"{self.shift:g} + {label}" if self.shift else label
        law = Law(self.shape_a, self.shape_b, self.shift / self.scale)
        super().__init__(law, self.shift, self.scale, label)

    def _draw(self, n: int, rng: np.random.Generator) -> Floats:
        return self.shift + self.scale * rng.beta(self.shape_a, self.shape_b, n)

    def density(self, sigma: ArrayLike) -> Floats:
        """Return the density at these eigenvalues."""
        u, inside = self._inside(sigma)
        logs = xlogy(self.shape_a - 1, u) + xlog1py(self.shape_b - 1, -u)
        logs -= betaln(self.shape_a, self.shape_b) + np.log(self.scale)
        return np.where(inside, np.exp(logs), 0.0)

    def _arguments(self) -> dict[str, Any]:
        found = {"shape_a": self.shape_a, "shape_b": self.shape_b, "shift": self.shift}
        return found if self.scale == 1 else found | {"scale": self.scale}


class UniformSpectrum(_Interval):
    """Eigenvalues uniform between two positive numbers, ``low`` and ``high``.

    >>> law = UniformSpectrum(1, 2)
    >>> bool(np.isclose(law.mean(lambda sigma: 1 / sigma), np.log(2), rtol=1e-14))
    True
    """

    kind = "uniform"

    def __init__(self, low: float, high: float) -> None:
        advice = ". For eigenvalues that reach 0, use BetaSpectrum(1, 1, shift=0, scale=high)."
        self.low, self.high = check_number(low, "low", advice=advice), check_number(high, "high")
        if self.high < self.low:
            raise ValueError(f"low is {self.low:g}, which is above high, {self.high:g}: swap them")
        width = self.high - self.low
        floor = self.low / width if width else 1.0
        label = f"Uniform({self.low:g}, {self.high:g})"
        super().__init__(Law(1.0, 1.0, floor), self.low, width, label)

    def _draw(self, n: int, rng: np.random.Generator) -> Floats:
        return rng.uniform(self.low, self.high, n)

    def density(self, sigma: ArrayLike) -> Floats | None:
        """Return the density at these eigenvalues, or None if there is only one."""
        return np.where(self._inside(sigma)[1], 1 / self._width, 0.0) if self._width else None

    def _arguments(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high}


class MarchenkoPastur(_Interval):
    r"""The spectrum of a sample covariance: ``ratio`` features per sample, all of variance ``scale``.

    With :math:`s` the scale and :math:`r < 1` the ratio, the density is
    :math:`\sqrt{(h - \sigma)(\sigma - l)} / (2 \pi r s \sigma)` between :math:`l = s (1 - \sqrt r)^2` and
    :math:`h = s (1 + \sqrt r)^2`.

    >>> law = MarchenkoPastur(0.5)
    >>> round(law.mean(lambda sigma: 1 / sigma), 12)  # 1 / (s (1 - r))
    2.0
    """

    kind = "marchenko-pastur"

    def __init__(self, ratio: float, scale: float = 1.0) -> None:
        self.ratio, self.scale = check_number(ratio, "ratio"), check_number(scale, "scale")
        if self.ratio >= 1:
            raise ValueError(
                f"ratio is {self.ratio:g}: it must be below 1. From 1 on, eigenvalues are 0 or so close "
                "that the mean of 1 / sigma is infinite. For eigenvalues close to 0, use a ratio such as "
                "0.99, or a BetaSpectrum with a small shift."
            )
        root = np.sqrt(self.ratio)
        low = float((1 - self.ratio) / (1 + root)) ** 2  # (1 - root)^2 without cancellation
        width = float(4 * root)
        factor = "" if self.scale == 1 else f"{self.scale:g} "
        label = f"{factor}Marchenko-Pastur({self.ratio:g})"
        law = Law(1.5, 1.5, low / width, c=-1.0)
        super().__init__(law, self.scale * low, self.scale * width, label)

    def _draw(self, n: int, rng: np.random.Generator) -> Floats:
        """For sigma = l + 4 s sqrt(r) cos^2(t/2), t has the density (2/pi) s sin^2(t) / sigma.

        That is at most 2/pi, since sigma / s - sin^2(t) = (cos(t) + sqrt(r))^2: half of the trials succeed.
        """
        found = np.empty(0)
        while len(found) < n:
            t = rng.uniform(0, np.pi, 2 * n + 100)
            sigma = self._start + self._width * np.cos(t / 2) ** 2
            taken = rng.uniform(0, 1, len(t)) * sigma <= self.scale * np.sin(t) ** 2
            found = np.concatenate([found, sigma[taken]])
        return found[:n]

    def density(self, sigma: ArrayLike) -> Floats:
        """Return the density at these eigenvalues."""
        u, inside = self._inside(sigma)
        root, below = self._width * np.sqrt(u * (1 - u)), self._start + self._width * u
        return np.where(inside, root / (2 * np.pi * self.ratio * self.scale * below), 0.0)

    def _arguments(self) -> dict[str, Any]:
        found = {"ratio": self.ratio}
        return found if self.scale == 1 else found | {"scale": self.scale}


# ---- from a string ---------------------------------------------------------------------------------------

FORMS = {  # name: example, fewest and most numbers
    "beta": ("beta:shape_a,shape_b[,shift[,scale]], such as beta:1,5", 2, 4),
    "identity": ("identity", 0, 0),
    "mp": ("mp:ratio[,scale], such as mp:0.5", 1, 2),
    "points": ("points:value,value,… or points:value*share,…, such as points:1,4", 1, np.inf),
    "uniform": ("uniform:low,high, such as uniform:0.1,2", 2, 2),
}


def parse_spectrum(text: str) -> Spectrum:
    """Return the spectrum that a string describes, as on the command line.

    >>> parse_spectrum("beta:1,5")
    BetaSpectrum(shape_a=1, shape_b=5, shift=0.001)
    >>> parse_spectrum("points:1*0.75,4*0.25")
    PointSpectrum(values=[1, 4], weights=[0.75, 0.25])
    """
    if not isinstance(text, str):
        raise TypeError(f"spectrum is {text!r}: it must be a string, such as 'beta:1,5'")
    name, _, rest = (part.strip() for part in text.partition(":"))
    name = "mp" if name.lower() == MarchenkoPastur.kind else name.lower()
    if name not in FORMS:
        fail_choice("spectrum", name, sorted(FORMS), "one with its numbers, such as 'beta:1,5'")
    form, fewest, most = FORMS[name]
    parts = [part.strip() for part in rest.split(",")] if rest else []
    if not fewest <= len(parts) <= most:
        raise ValueError(f"spectrum is {text!r}, with {len(parts)} numbers: write {form}")
    pairs = [part.split("*") if name == "points" else [part] for part in parts]
    try:
        numbers = [[float(number) for number in pair] for pair in pairs]
    except ValueError:
        raise ValueError(
            f"spectrum is {text!r}, which has parts that are not numbers: write {form}"
        ) from None
    if len({len(pair) for pair in pairs}) > 1 or any(len(pair) > 2 for pair in pairs):
        raise ValueError(
            f"spectrum is {text!r}, which needs one share for each value: write {form}"
        )
    return _make_law(name, numbers)


def _make_law(name: str, numbers: list[list[float]]) -> Spectrum:
    columns = [list(column) for column in zip(*numbers, strict=True)]
    first = columns[0] if columns else []
    if name == "beta":
        scale = first[3] if len(first) > 3 else 1.0
        return BetaSpectrum(*first[:3], scale=scale)
    if name == "mp":
        return MarchenkoPastur(*first)
    if name == "uniform":
        low, high = first
        if not low and high > 0:
            raise ValueError(
                f"spectrum is uniform from 0: start above 0, such as uniform:{high / 1000:g},{high:g}, or "
                f"use beta:1,1,0,{high:g} for eigenvalues that reach 0 (with a signal, not a Bayes error)"
            )
        return UniformSpectrum(low, high)
    return PointSpectrum(*(columns or [[1.0]]))
