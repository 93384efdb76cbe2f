"""Stopping metrics: functions of this package with their directions, or custom ones."""

from __future__ import annotations  # so that help() shows types by name

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import fail_choice
from refinecal._core.sample import Sample, on_cpu
from refinecal.decomposition import Decomposition
from refinecal.losses import get_loss, losses_at
from refinecal.metrics._scores import (
    accuracy,
    auroc,
    brier_score,
    error_rate,
    log_loss,
    spherical_loss,
)
from refinecal.metrics._statistics import ks_statistic, kuiper_statistic, spiegelhalter
from refinecal.metrics._variational import lp_calibration_error
from refinecal.metrics.bins import ece, mce, overconfidence, underconfidence
from refinecal.metrics.smoothing import smooth_ece
from refinecal.temperature.fit import fit_sample

# ---- one step's predictions --------------------------------------------------------------------------------


@dataclass(eq=False)
class Step:
    """The predictions of one step and their decomposition, from which metrics are computed."""

    y_true: Any
    given: Sample
    parts: Decomposition
    start: float  # of the search for beta

    @cached_property
    def sample(self) -> Sample:
        return on_cpu(self.given)

    @cached_property
    def probs(self) -> NDArray[np.float64]:
        return self.sample.probs / self.sample.row_sums[:, None]  # a copy, for users

    @property
    def beta(self) -> float:
        """The best inverse temperature, for any calibrator."""
        if self.parts.beta is not None:
            return self.parts.beta
        return fit_sample(self.sample, self.start).beta


# Named functions, not lambdas, so that monitors can be pickled.


def refinement(step: Step) -> float:
    """Return the loss left after calibration."""
    return step.parts.refinement


def risk(step: Step) -> float:
    """Return the loss that is decomposed."""
    return step.parts.risk


def brier_refinement(step: Step) -> float:
    """Return the Brier score at the temperature that is best for the log loss, as in the paper."""
    sample = step.sample
    after = sample.mean(losses_at(sample, step.beta, get_loss("brier")))
    return min(after, brier_score(sample))


def classwise_ece(sample: Sample) -> float:
    """Return the calibration error in bins, over all classes."""
    return ece(sample, kind="class-wise")


def debiased_ece(sample: Sample) -> float:
    """Return the debiased calibration error in bins."""
    return ece(sample, norm="l2", debiased=True)


def spiegelhalter_distance(sample: Sample) -> float:
    """Return the absolute value of Spiegelhalter's z."""
    return abs(spiegelhalter(sample).statistic)


def lp(sample: Sample) -> float:
    """Return the L1 calibration error, with at most 5 folds."""
    return lp_calibration_error(sample, cv=min(5, sample.n)) if sample.n > 1 else math.nan


OF_STEPS = ("refinement", "risk", "brier_refinement")
BUILT_IN: dict[str, tuple[Callable[..., float], bool]] = {  # with whether greater is better
    "refinement": (refinement, False),
    "risk": (risk, False),
    "log_loss": (log_loss, False),
    "brier": (brier_score, False),
    "brier_refinement": (brier_refinement, False),
    "spherical_loss": (spherical_loss, False),
    "error_rate": (error_rate, False),
    "accuracy": (accuracy, True),
    "auroc": (auroc, True),
    "ece": (ece, False),
    "classwise_ece": (classwise_ece, False),
    "debiased_ece": (debiased_ece, False),
    "mce": (mce, False),
    "smooth_ece": (smooth_ece, False),
    "ks": (ks_statistic, False),
    "kuiper": (kuiper_statistic, False),
    "spiegelhalter": (spiegelhalter_distance, False),
    "overconfidence": (overconfidence, False),
    "underconfidence": (underconfidence, False),
    "lp": (lp, False),
}
OWN: dict[str, Callable[..., Any]] = {  # public functions by metric
    **{name: each for name, (each, _) in BUILT_IN.items() if each.__module__ != __name__},
    "spiegelhalter": spiegelhalter,
    "lp": lp_calibration_error,
}


# ---- metrics -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metric:
    """A custom metric with its direction.

    Attributes
    ----------
    function : callable
        ``function(y_true, probs) -> float``, as in :mod:`sklearn.metrics`; ``probs`` is ``(n, k)``, also for
        two classes. ``sample_weight=`` is passed if the monitor has weights.
    name : str
        Its name in records.
    greater_is_better : bool, default False

    Examples
    --------
    >>> from sklearn.metrics import f1_score
    >>> f1 = Metric(lambda y, probs: f1_score(y, probs.argmax(axis=1)), "f1", greater_is_better=True)
    >>> f1.key
    'f1'
    """

    function: Callable[..., float]
    name: str
    greater_is_better: bool = False

    @property
    def key(self) -> str:
        """Its name in a training log, which ends in ``loss`` if smaller is better."""
        if self.greater_is_better or self.name.endswith("loss"):
            return self.name
        return f"{self.name}_loss"

    def better(self, value: float, than: float, by: float = 0.0) -> bool:
        """Return whether a value is better than another by more than ``by``; NaN never is."""
        if math.isnan(than):
            return not math.isnan(value)
        return value - than > by if self.greater_is_better else than - value > by


def get_metrics(given: Iterable[Any], reserved: Sequence[str] = ()) -> list[Metric]:
    """Return the metrics of these names, functions or ``Metric`` objects, each once.

    Custom metrics must not have ``reserved`` names.
    """
    found: dict[str, Metric] = {}
    for one in given:
        metric = get_metric(one)
        if metric.name in reserved and not is_built_in(metric):
            raise ValueError(
                f"a metric is called {metric.name!r}, a name that the records already use: rename it, as in "
                "refinecal.metrics.Metric(function, name='other')"
            )
        if metric.name in found and found[metric.name].function is not metric.function:
            raise ValueError(
                f"two metrics are called {metric.name!r}: name one of them, as in "
                f"refinecal.metrics.Metric(function, name='other')"
            )
        found[metric.name] = metric
    return list(found.values())


def get_metric(given: Any) -> Metric:
    """Return the metric of that name, or a function as a metric for which smaller is better."""
    if isinstance(given, Metric):
        return given
    if callable(given) and not isinstance(given, type):
        given = next((name for name, each in OWN.items() if each is given), given)
    if isinstance(given, str):
        if given not in BUILT_IN:
            fail_choice("metric", given, list(BUILT_IN), "a function of (y_true, probs)")
        function, greater = BUILT_IN[given]
        return Metric(function, given, greater)
    if not callable(given) or isinstance(given, type):
        raise TypeError(
            f"metric is {given!r}: pass a name such as 'refinement', a function of (y_true, probs), or "
            "refinecal.metrics.Metric(function, name, greater_is_better=True)"
        )
    name = getattr(given, "__name__", type(given).__name__)
    if name == "<lambda>":
        raise ValueError(
            "metric is a lambda, which has no name: pass refinecal.metrics.Metric(function, name='...')"
        )
    if name.endswith("_score"):  # scikit-learn's suffix if greater is better
        raise ValueError(
            f"metric is the function {name}: say whether greater is better, as in "
            f"refinecal.metrics.Metric({name}, {name!r}, greater_is_better=True)"
        )
    return Metric(given, name)


def is_built_in(metric: Metric) -> bool:
    """Return whether a metric is one of ``BUILT_IN``, not a custom one of the same name."""
    return metric.name in BUILT_IN and metric.function is BUILT_IN[metric.name][0]


def value_of(metric: Metric, step: Step, sample_weight: Any = None) -> float:
    """Return the metric of one step's predictions."""
    if is_built_in(metric):
        if metric.name == "log_loss" and step.parts.loss == "log":
            return float(step.parts.risk)
        return float(metric.function(step if metric.name in OF_STEPS else step.sample))
    options = {} if sample_weight is None else {"sample_weight": sample_weight}
    value = metric.function(step.y_true, step.probs, **options)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"metric {metric.name!r} returned {value!r}: it must return one number"
        ) from None
