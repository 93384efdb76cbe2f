"""Temperature scaling, which rescales the logits by one number, and its ensemble."""

from __future__ import annotations  # so that help() shows types by name

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import (
    Sample,
    finite_gaps,
    gap_columns,
    gap_limit,
    log_softmax,
    mix_with_uniform,
    scale_logits,
)
from refinecal.calibrators._newton import even_weights, mixture_weights
from refinecal.calibrators._pairs import Curve, polynomial
from refinecal.calibrators.base import Calibrator
from refinecal.losses import LogLoss, ProperLoss, losses_at
from refinecal.temperature.fit import (
    TemperatureFit,
    fit_sample,
    mix_sample,
    reader_of,
    risk_of,
)

Array = NDArray[np.float64]


class TemperatureScaling(Calibrator):
    r"""Calibrate by one number: ``softmax(beta * logits)``, with Laplace smoothing.

    With smoothing, :math:`g(p) = \frac{n}{n+1} \mathrm{softmax}(\beta \log p) + \frac{1}{n+1} u`, where u is
    uniform and n is the number of calibration samples, so that no probability is 0 even for separable data.

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth.

    Attributes
    ----------
    beta_ : float
        The inverse temperature.
    loss_ : float
        Mean log loss of the calibration samples at ``beta_``, before smoothing.
    smoothing_ : float
        0, unless a calibration sample has a label of probability 0: then predictions are mixed with the
        uniform ones before scaling, weighted as one row next to so many.

    References
    ----------
    Section 3 and appendix D of the paper.

    Examples
    --------
    >>> import refinecal as rc
    >>> probs = [[0.9, 0.1]] * 4
    >>> ts = rc.TemperatureScaling(laplace=False).fit(probs, [0, 0, 0, 1])
    >>> ts.predict_proba(probs)[0].round(6)
    array([0.75, 0.25])
    """

    beta_: float
    loss_: float
    smoothing_: float = 0.0

    def __init__(self, laplace: bool = True) -> None:
        self.laplace = laplace

    @property
    def temperature_(self) -> float:
        """The temperature 1 / beta_."""
        return 1 / self.beta_ if self.beta_ > 0 else math.inf

    @property
    def n_parameters(self) -> int:
        """One: the temperature."""
        return 1

    def _summary(self) -> str:
        more = f", smoothing_={self.smoothing_:g}" if self.smoothing_ else ""
        return f"beta_={self.beta_:.6g}{more}"

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        self._keep(fit_sample(sample, start, threads))

    def _keep(self, fit: TemperatureFit) -> None:
        self.beta_, self.loss_ = fit.beta, fit.loss
        self.__dict__.pop("smoothing_", None)
        if fit.smoothing:
            self.smoothing_ = fit.smoothing

    leaves_one_out = is_smooth = True

    def _copy_unfitted(self) -> Self:
        if type(self) is not TemperatureScaling:
            return super()._copy_unfitted()
        new = object.__new__(type(self))  # called at every step of training: deepcopy is slow
        new.laplace = self.laplace
        return new

    def _warn_if_infinite(self, risk: float, sample: Sample) -> None:
        pass  # the fit warns

    def _losses_in_sample(
        self, sample: Sample, loss: ProperLoss, threads: int | None = None
    ) -> NDArray[Any]:
        """Return the loss at the best beta, without smoothing, which is for new data."""
        return losses_at(mix_sample(sample, self.smoothing_), self.beta_, loss, threads)

    def _loss_in_sample(
        self, sample: Sample, loss: ProperLoss, threads: int | None = None
    ) -> float:
        if type(loss) is LogLoss:
            return self.loss_
        return sample.mean(self._losses_in_sample(sample, loss, threads))

    def _fit_with_risk(self, sample: Sample, threads: int | None, start: float) -> float:
        """Learn from checked data, which may be on another device; the first read also gives the risk."""
        used = sample.drop_weightless()
        reader = reader_of(used, threads)
        risk = risk_of(used, reader=reader)
        self._keep(fit_sample(used, start, threads, reader))
        self._remember(sample)
        return risk

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        return log_softmax(self._scale(logits))

    def _scale(self, logits: NDArray[Any]) -> NDArray[Any]:
        if self.smoothing_:
            logs = log_softmax(logits.astype(np.float64))
            logits = mix_with_uniform(logs, self.smoothing_)
        return scale_logits(logits, self.beta_)

    def _curve(self) -> Curve | None:
        return None if self.smoothing_ else polynomial(0.0, self.beta_)

    def _proba(self, logits: NDArray[Any]) -> NDArray[Any]:
        probs = np.exp(self._scale(logits))
        probs /= probs.sum(axis=1, keepdims=True)
        return self._smooth(probs)


class EnsembleTemperatureScaling(Calibrator):
    r"""Calibrate by a mixture: :math:`w_1 \mathrm{softmax}(\beta z) + w_2 p + w_3 / k`.

    Temperature scaling gives beta; the weights, which are nonnegative and sum to 1, then minimize the mean
    log loss. Accuracy does not change, since no term changes the order of the classes.

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth, as in :class:`refinecal.TemperatureScaling`.

    Attributes
    ----------
    first_beta_ : float
        The inverse temperature.
    weights_ : ndarray of shape (3,)
        The weights of tempered, original and uniform probabilities.
    limit_ : float
        Logits further than this below the largest are clipped in the first term.

    References
    ----------
    J. Zhang, B. Kailkhura, T. Han, Mix-n-match, ICML 2020.

    Examples
    --------
    A model that predicts 88% and is right three times out of four: the mixture predicts 3/4.

    >>> import refinecal as rc
    >>> ensemble = rc.make_calibrator("ensemble-temperature", laplace=False)
    >>> ensemble.fit_logits([[2.0, 0.0]] * 4, [0, 0, 0, 1]).predict_proba_logits([[2.0, 0.0]]).round(6)
    array([[0.75, 0.25]])
    """

    first_beta_: float
    weights_: Array
    limit_: float

    def __init__(self, laplace: bool = True) -> None:
        self.laplace = laplace

    @property
    def n_parameters(self) -> int:
        """Three: the temperature, and two of the weights."""
        return 3

    def _summary(self) -> str:
        return f"first_beta_={self.first_beta_:.4g}, weights_={self.weights_.round(4).tolist()}"

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        self.limit_ = gap_limit(sample)
        self.first_beta_ = best_beta(sample, self.limit_, threads, start)
        tempered = self.first_beta_ * finite_gaps(sample.logits, self.limit_)
        if sample.soft is None:
            rows, labels, share = np.arange(sample.n), sample.labels, np.ones(sample.n)
        else:
            rows, labels = np.nonzero(sample.soft)
            share = sample.soft[rows, labels]
        if sample.weights is not None:
            share = share * even_weights(sample.weights)[rows]
        logs = [log_softmax(tempered), log_softmax(finite_gaps(sample.logits, np.inf))]
        parts = [np.exp(part[rows, labels]) for part in logs]
        parts.append(np.full(len(rows), 1 / sample.k))
        self.weights_ = mixture_weights(np.stack(parts), share / share.sum())

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        tempered, given, uniform = self.weights_
        gaps = gap_columns(logits, self.limit_)
        gaps *= self.first_beta_
        mixed = np.exp(gaps, out=gaps)
        mixed *= tempered / mixed.sum(axis=0)
        probs = np.exp(gap_columns(logits, np.inf))
        probs *= given / probs.sum(axis=0)
        mixed += probs
        mixed += uniform / logits.shape[1]
        with np.errstate(divide="ignore"):
            return np.ascontiguousarray(np.log(mixed, out=mixed).T)


def best_beta(sample: Sample, limit: float, threads: int, start: float) -> float:
    """Return the inverse temperature with the smallest log loss, of logits clipped at the limit."""
    weights = None if sample.weights is None else even_weights(sample.weights)
    gaps = finite_gaps(sample.logits, limit)
    return fit_sample(sample.replace(logits=gaps, weights=weights), start, threads).beta
