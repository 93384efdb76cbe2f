r"""The base class of spectra: means, signal, draws.

In the limit of many features and samples, the covariance :math:`\Sigma` enters only through the law
:math:`F` of its eigenvalues :math:`\sigma`, and the law :math:`G`, the distribution of
:math:`\|\mu\|^2 = c^2` over the eigenvalues. Theory needs only means,

.. math:: E_F[f(\sigma)] \approx \sum_i w_i f(\sigma_i), \qquad E_G[f(\sigma)] \approx \sum_i g_i f(\sigma_i),

of rational functions :math:`f` with poles at :math:`\sigma \le 0`. The error rate of the best classifier
is :math:`e^* = \Phi(-c \sqrt{E_G[1/\sigma]})` (paper, section 7).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from refinecal._core.checks import check_whole
from refinecal.theory._number_checks import (
    check_array,
    check_bayes_error,
    check_shares,
    freeze,
    read_floats,
)

Floats = NDArray[np.float64]
Function = Callable[[Floats], ArrayLike]


class Spectrum:
    """The law of the eigenvalues of a covariance, held as a quadrature rule.

    Attributes
    ----------
    nodes : ndarray of shape (q,)
        Eigenvalues in increasing order, all positive.
    weights : ndarray of shape (q,)
        Share of the directions at each node, with sum 1.
    signal_weights : ndarray of shape (q,)
        Share of the squared norm of the mean at each node; equal to ``weights`` if the mean has no
        preferred direction, as in the paper.
    label : str
        Name for titles.
    """

    kind = "quadrature"
    _names: tuple[str, ...] = ("nodes", "weights")

    def __init__(
        self, nodes: Floats, weights: Floats, signal_weights: Floats | None = None, label: str = ""
    ) -> None:
        self.nodes, self.weights = freeze(nodes), freeze(weights)
        self.signal_weights = self.weights if signal_weights is None else freeze(signal_weights)
        self.label = label or f"{len(self.nodes)} eigenvalues"

    # ---- means -------------------------------------------------------------------------------------------

    def mean(self, function: Function) -> float:
        """Return the mean of a function of the eigenvalue over the directions.

        >>> from refinecal.theory import PointSpectrum
        >>> PointSpectrum([1, 3]).mean(lambda sigma: sigma**2)  # (1 + 9) / 2
        5.0
        """
        return float(np.sum(self.weights * self._values(function, "function(nodes)")))

    def signal_mean(self, function: Function) -> float:
        """Return the mean of a function of the eigenvalue over the signal."""
        return float(np.sum(self.signal_weights * self._values(function, "function(nodes)")))

    def _values(self, function: Function, name: str) -> Floats:
        values = read_floats(name, function(self.nodes))
        if values.shape not in ((), self.nodes.shape):
            raise ValueError(
                f"{name} has shape {values.shape} for {len(self.nodes)} eigenvalues: pass one value each"
            )
        return np.broadcast_to(values, self.nodes.shape)

    @property
    def accuracy(self) -> float:
        """The relative error of means of 1 / (x + sigma), x >= 0; 0 if the rule itself is the law."""
        return 0.0

    @property
    def inverse_mean(self) -> float:
        """The mean of 1 / sigma over the signal; infinite if eigenvalues come too close to 0."""
        return self.signal_mean(lambda sigma: 1 / sigma)

    @property
    def bulk(self) -> tuple[float, float]:
        """The smallest and largest eigenvalue, except for 0.1% of the directions and of the signal.

        >>> from refinecal.theory import PointSpectrum
        >>> PointSpectrum([1, 4, 9]).bulk
        (1.0, 9.0)
        """
        places = [
            np.searchsorted(np.cumsum(shares), [1e-3, 1 - 1e-3])
            for shares in (self.weights, self.signal_weights)
        ]
        ends = self.nodes[np.minimum(places, len(self.nodes) - 1)]
        return float(ends.min()), float(ends.max())

    # ---- signal ------------------------------------------------------------------------------------------

    @property
    def isotropic(self) -> bool:
        """Whether the mean has no preferred direction."""
        return np.allclose(self.signal_weights, self.weights, rtol=1e-13, atol=0)

    def with_signal(self, signal: ArrayLike | Function) -> Self:
        """Return the same spectrum with another distribution of the signal over the directions.

        Parameters
        ----------
        signal : array of shape (q,) or function
            The share of the signal at each node; or a smooth function of the eigenvalue, the signal of a
            direction, which is evaluated at the nodes. Only proportions matter.

        >>> from refinecal.theory import PointSpectrum
        >>> strong = PointSpectrum([1, 4]).with_signal(lambda sigma: sigma)
        >>> strong.signal_weights.tolist()
        [0.2, 0.8]
        """
        n, name = len(self.nodes), "signal"
        if callable(signal):
            name = "signal(nodes)"
            found = self.weights * check_shares(self._values(signal, name), name, n)
        else:
            found = read_floats(name, signal)
        other = copy.copy(self)
        other.signal_weights = freeze(check_shares(found, name, n))
        return other

    def signal_ratio(self, sigma: ArrayLike) -> Floats:
        """Return the signal of directions with these eigenvalues, relative to the average.

        It is 1 if the signal has no preferred direction, else interpolated between nodes.
        """
        logs = np.log(read_floats("sigma", sigma))
        if self.isotropic:
            return np.ones_like(logs)
        some = self.weights > 0
        if np.any(self.signal_weights[~some] > 0):
            node = self.nodes[~some & (self.signal_weights > 0)][0]
            raise ValueError(
                f"the eigenvalue {node:g} has signal but weight 0, so no direction is ever drawn there: give "
                "it a small weight"
            )
        ratio = self.signal_weights[some] / self.weights[some]
        return np.asarray(np.interp(logs, np.log(self.nodes[some]), ratio))

    def signal_for(self, bayes_error: ArrayLike) -> Any:
        r"""Return the norm c of the mean for which the best error rate is ``bayes_error``.

        Solves :math:`e^* = \Phi(-c \sqrt{E_G[1/\sigma]})`, elementwise.

        >>> from scipy.special import ndtr
        >>> from refinecal.theory import PointSpectrum
        >>> float(PointSpectrum([4.0]).signal_for(ndtr(-1.0)))  # 1 standard deviation is 2
        2.0
        """
        errors = check_bayes_error(bayes_error)
        inverse = self.inverse_mean
        if np.isinf(inverse):
            raise ValueError(
                f"bayes_error cannot be set for {self.label}: its signal lies at eigenvalues so close to 0 "
                "that the mean of 1 / sigma is infinite, or cannot be resolved, and the best error rate is 0 "
                "for any signal. Pass signal= instead, or give the spectrum a shift."
            )
        return -ndtri(errors) / np.sqrt(inverse)

    def bayes_error_of(self, signal: ArrayLike) -> Any:
        r"""Return the best error rate for a mean of norm ``signal``, :math:`\Phi(-c \sqrt{E_G[1/\sigma]})`.

        >>> from refinecal.theory import PointSpectrum
        >>> float(PointSpectrum([1.0]).bayes_error_of(0.0))
        0.5
        """
        rule = "it must be finite, 0 or positive"
        norms = check_array("signal", signal, lambda x: (x >= 0) & (x < np.inf), rule)
        inverse = self.inverse_mean
        if np.isinf(inverse):  # perfect, unless there is no signal
            return np.where(norms > 0, 0.0, 0.5)[()]
        return ndtr(-norms * np.sqrt(inverse))

    # ---- the law -----------------------------------------------------------------------------------------

    def draw(self, n: int, rng: np.random.Generator | int | None = None) -> Floats:
        """Return n independent eigenvalues."""
        return self._draw(check_whole("n", n, 0), np.random.default_rng(rng))

    def _draw(self, n: int, rng: np.random.Generator) -> Floats:
        return np.asarray(rng.choice(self.nodes, size=n, p=self.weights))

    def density(self, sigma: ArrayLike) -> Floats | None:
        """Return the density at these eigenvalues, or None if the law has none."""
        return None

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor, except for the signal and a scale of 1."""
        found = {name: getattr(self, name) for name in self._names}
        if found.get("scale") == 1:
            del found["scale"]
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the law as plain numbers and lists.

        >>> from refinecal.theory import UniformSpectrum
        >>> UniformSpectrum(1, 2).to_dict()
        {'kind': 'uniform', 'label': 'Uniform(1, 2)', 'low': 1.0, 'high': 2.0}
        """
        found = self._arguments()
        if not self.isotropic:
            found |= {"nodes": self.nodes, "signal_weights": self.signal_weights}
        plain = {key: np.asarray(value).tolist() for key, value in found.items()}
        return {"kind": self.kind, "label": self.label, **plain}

    def __repr__(self) -> str:
        arguments = ", ".join(
            f"{key}={_shorten(value)}" for key, value in self._arguments().items()
        )
        signal = "" if self.isotropic else f".with_signal({_shorten(self.signal_weights)})"
        return f"{type(self).__name__}({arguments}){signal}"

    def _key(self) -> tuple[Any, ...]:
        arrays = self.nodes, self.weights, self.signal_weights
        return type(self), *(array.tobytes() for array in arrays)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Spectrum) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copy or a pickle, with read-only arrays."""
        arrays = {name: freeze(state[name]) for name in ("nodes", "weights", "signal_weights")}
        self.__dict__.update(state | arrays)


def check_spectrum(name: str, given: Any, such_as: str) -> None:
    """Raise a TypeError unless ``given`` is a spectrum."""
    if not isinstance(given, Spectrum):
        kind = type(given).__name__
        raise TypeError(f"{name} is a {kind}, but must be a law of eigenvalues, such as {such_as}")


def _shorten(value: Any) -> str:
    """Return a number or an array in a few characters."""
    if isinstance(value, float):
        return f"{value:.12g}"
    few = ", ".join(f"{each:g}" for each in value[:4])
    return f"[{few}]" if len(value) <= 4 else f"[{few}, …, {len(value)} in all]"
