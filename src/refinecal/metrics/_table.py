"""The table of stopping metrics: each is computed from one step's predictions, read once for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.sample import Sample, on_cpu
from refinecal.decomposition import Decomposition
from refinecal.losses import get_loss
from refinecal.metrics._binned import binned_error, ece, largest_error, mce
from refinecal.metrics._confidence import confidence_parts, overconfidence, underconfidence
from refinecal.metrics._scores import (
    accuracy,
    accuracy_of,
    auroc,
    auroc_of,
    brier_of,
    brier_score,
    error_rate,
    log_loss,
    spherical_loss,
)
from refinecal.metrics._shared import Given, read_sample
from refinecal.metrics._smooth import smooth_ece, smooth_ece_of
from refinecal.metrics._statistics import (
    _excess_of_all,
    _largest,
    _range,
    _walk,
    ks_statistic,
    kuiper_statistic,
    spiegelhalter,
)
from refinecal.metrics._variational import lp_calibration_error, lp_error
from refinecal.resampling import losses_at
from refinecal.temperature.fit import fit_sample, risk_of


class Step:
    """One step's predictions and their decomposition: what metrics are computed from."""

    def __init__(self, y_true: Any, sample: Sample, parts: Decomposition, start: float) -> None:
        self.y_true = y_true
        self.parts = parts
        self._given = sample
        self._start = start

    @cached_property
    def sample(self) -> Sample:
        return on_cpu(self._given)

    @cached_property
    def probs(self) -> NDArray[np.float64]:
        return self.given.probs.copy()  # a function of the user may write to it

    @cached_property
    def given(self) -> Given:
        return read_sample(self.sample)

    @property
    def beta(self) -> float:
        """The best inverse temperature, whatever the calibrator."""
        if self.parts.beta is not None:
            return self.parts.beta
        return fit_sample(self.sample, self._start).beta


# Functions with names, not lambdas, so that monitors can be pickled.


def _step_refinement(step: Step) -> float:
    return step.parts.refinement


def _step_risk(step: Step) -> float:
    return step.parts.risk


def _step_log_loss(step: Step) -> float:
    return step.parts.risk if step.parts.loss == "log" else risk_of(step.sample)


def _step_brier(step: Step) -> float:
    return brier_of(step.sample)


def _step_brier_refinement(step: Step) -> float:
    """Return Brier's score after the temperature that is best for the log loss, as in the paper."""
    loss, sample = get_loss("brier"), step.sample
    return min(sample.mean(losses_at(sample, step.beta, loss)), brier_of(sample))


def _step_error_rate(step: Step) -> float:
    return 1 - accuracy_of(step.sample)


def _step_accuracy(step: Step) -> float:
    return accuracy_of(step.sample)


def _step_auroc(step: Step) -> float:
    return auroc_of(step.sample)


def _step_spherical_loss(step: Step) -> float:
    return 1 - step.given.loss(_kernels.probs.COSINE)


def _step_ece(step: Step) -> float:
    return binned_error(step.given)


def _step_classwise_ece(step: Step) -> float:
    return binned_error(step.given, kind="class-wise")


def _step_debiased_ece(step: Step) -> float:
    return binned_error(step.given, norm="l2", debiased=True)


def _step_mce(step: Step) -> float:
    return largest_error(step.given)


def _step_overconfidence(step: Step) -> float:
    return confidence_parts(step.given)[0]


def _step_underconfidence(step: Step) -> float:
    return confidence_parts(step.given)[1]


def _step_smooth_ece(step: Step) -> float:
    return smooth_ece_of(step.given.events()[0])


def _step_ks(step: Step) -> float:
    (event,) = step.given.events()
    return _largest(_walk(event)) / event.total


def _step_kuiper(step: Step) -> float:
    (event,) = step.given.events()
    return _range(_walk(event)) / event.total


def _step_spiegelhalter(step: Step) -> float:
    """Return how far Spiegelhalter's z is from 0, on either side."""
    excess, variance = _excess_of_all(step.given)
    if variance == 0:
        return math.nan if excess == 0 else math.inf
    return abs(excess) / math.sqrt(variance)


def _step_lp(step: Step) -> float:
    n = step.sample.n
    return lp_error(step.sample, cv=min(5, n)) if n > 1 else math.nan


BUILT_IN: dict[str, tuple[Callable[[Step], float], bool]] = {  # and whether greater is better
    "refinement": (_step_refinement, False),
    "risk": (_step_risk, False),
    "log_loss": (_step_log_loss, False),
    "brier": (_step_brier, False),
    "brier_refinement": (_step_brier_refinement, False),
    "spherical_loss": (_step_spherical_loss, False),
    "error_rate": (_step_error_rate, False),
    "accuracy": (_step_accuracy, True),
    "auroc": (_step_auroc, True),
    "ece": (_step_ece, False),
    "classwise_ece": (_step_classwise_ece, False),
    "debiased_ece": (_step_debiased_ece, False),
    "mce": (_step_mce, False),
    "smooth_ece": (_step_smooth_ece, False),
    "ks": (_step_ks, False),
    "kuiper": (_step_kuiper, False),
    "spiegelhalter": (_step_spiegelhalter, False),
    "overconfidence": (_step_overconfidence, False),
    "underconfidence": (_step_underconfidence, False),
    "lp": (_step_lp, False),
}
OWN: dict[str, Callable[..., Any]] = {  # the functions that mean the same, with the defaults
    "log_loss": log_loss,
    "brier": brier_score,
    "spherical_loss": spherical_loss,
    "error_rate": error_rate,
    "accuracy": accuracy,
    "auroc": auroc,
    "ece": ece,
    "mce": mce,
    "smooth_ece": smooth_ece,
    "ks": ks_statistic,
    "kuiper": kuiper_statistic,
    "spiegelhalter": spiegelhalter,
    "overconfidence": overconfidence,
    "underconfidence": underconfidence,
    "lp": lp_calibration_error,
}
