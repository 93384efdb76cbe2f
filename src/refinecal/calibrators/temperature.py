"""Temperature scaling as a calibrator: one number that resets how confident a classifier sounds."""

from __future__ import annotations  # so that help() shows types by name

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import Sample
from refinecal._core.softmax import log_softmax, scale_logits
from refinecal.calibrators._pairs import Curve, polynomial
from refinecal.calibrators.base import Calibrator
from refinecal.losses import LogLoss, ProperLoss
from refinecal.resampling import losses_at
from refinecal.temperature.fit import fit_sample, fit_with_risk


class TemperatureScaling(Calibrator):
    r"""Calibrate by one number: ``softmax(beta * logits)``, with Laplace smoothing.

    With smoothing, :math:`g(p) = \frac{n}{n+1} \mathrm{softmax}(\beta \log p) + \frac{1}{n+1} u`, where u is
    uniform and n counts the calibration samples, so that no probability is 0 however separable they are.

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
    n_samples_ : float
        Number of calibration samples (the sum of their weights).
    classes_ : ndarray
        The label of each column.

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
        return f"beta_={self.beta_:.6g}"

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        fit = fit_sample(sample, start, threads)
        self.beta_, self.loss_ = fit.beta, fit.loss

    leaves_one_out = is_smooth = True

    def _copy_unfitted(self) -> Self:
        if type(self) is not TemperatureScaling:
            return super()._copy_unfitted()
        new = object.__new__(type(self))  # at every step of a training: deepcopy takes its time
        new.laplace = self.laplace
        return new

    def _warn_if_infinite(self, risk: float, sample: Sample) -> None:
        pass  # the fit warns by itself

    def _losses_in_sample(
        self, sample: Sample, loss: ProperLoss, threads: int | None = None
    ) -> NDArray[Any]:
        """Return the loss at the best beta, without the smoothing that new data needs."""
        return losses_at(sample, self.beta_, loss, threads)

    def _loss_in_sample(
        self, sample: Sample, loss: ProperLoss, threads: int | None = None
    ) -> float:
        is_log = type(loss) is LogLoss
        return self.loss_ if is_log else super()._loss_in_sample(sample, loss, threads)

    def _fit_with_risk(self, sample: Sample, threads: int | None, start: float) -> float:
        """Learn from checked data, which may be on another device; one read gives the risk too."""
        fit, risk = fit_with_risk(sample, start, threads)
        self.beta_, self.loss_ = fit.beta, fit.loss
        self._remember(sample)
        return risk

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        return log_softmax(scale_logits(logits, self.beta_))

    def _curve(self) -> Curve:
        return polynomial(0.0, self.beta_)

    def _proba(self, logits: NDArray[Any]) -> NDArray[Any]:
        probs = np.exp(scale_logits(logits, self.beta_))
        probs /= probs.sum(axis=1, keepdims=True)
        return self._smooth_probs(probs)
