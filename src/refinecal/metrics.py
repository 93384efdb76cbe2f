"""What a model can be stopped on: plain functions, and the table of stopping metrics.

Every function is called as ``metric(y_true, probs)`` or ``metric(y_true, logits=z)``, as
:func:`refinecal.decompose` is.
"""

from __future__ import annotations  # so that help() shows types by name

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._checks import check_sample, fail_choice
from refinecal._sample import Sample, on_cpu
from refinecal._softmax import log_softmax
from refinecal.decomposition import Decomposition
from refinecal.losses import get_loss
from refinecal.resampling import losses_at
from refinecal.temperature import fit_sample, risk_of

__all__ = ["Metric", "accuracy", "auroc", "brier_score", "log_loss"]


# ---- plain functions -------------------------------------------------------------------------------------


def log_loss(
    y_true: Any,
    probs: Any = None,
    *,
    logits: Any = None,
    sample_weight: Any = None,
    classes: ArrayLike | None = None,
) -> float:
    """Return the mean of minus the log-probability of the label, without clipping.

    Parameters
    ----------
    y_true, probs, logits, sample_weight, classes
        As for :func:`refinecal.decompose`.

    Returns
    -------
    float
        Infinite if a label has probability 0.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.metrics.log_loss([0, 1], [[0.5, 0.5]] * 2), 6)  # log 2
    0.693147
    """
    return risk_of(check_sample(y_true, probs, logits, sample_weight, classes, devices=True))


def brier_score(
    y_true: Any,
    probs: Any = None,
    *,
    logits: Any = None,
    sample_weight: Any = None,
    classes: ArrayLike | None = None,
) -> float:
    """Return the mean squared distance between prediction and label, summed over all classes.

    Parameters
    ----------
    y_true, probs, logits, sample_weight, classes
        As for :func:`refinecal.decompose`.

    Returns
    -------
    float
        Between 0 and 2; for two classes twice the one-column form.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.metrics.brier_score([0, 1], [[0.5, 0.5]] * 2)
    0.5
    """
    return _brier(on_cpu(check_sample(y_true, probs, logits, sample_weight, classes)))


def accuracy(
    y_true: Any,
    probs: Any = None,
    *,
    logits: Any = None,
    sample_weight: Any = None,
    classes: ArrayLike | None = None,
) -> float:
    """Return the share of rows whose likeliest class is the label.

    Parameters
    ----------
    y_true, probs, logits, sample_weight, classes
        As for :func:`refinecal.decompose`.

    Returns
    -------
    float
        Between 0 and 1; of classes that tie, the first counts.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.metrics.accuracy([0, 1, 1, 1], [0.2, 0.9, 0.6, 0.4])
    0.75
    """
    return _accuracy(on_cpu(check_sample(y_true, probs, logits, sample_weight, classes)))


def auroc(
    y_true: Any,
    probs: Any = None,
    *,
    logits: Any = None,
    sample_weight: Any = None,
    classes: ArrayLike | None = None,
) -> float:
    """Return the area under the ROC curve; for several classes the mean over one against the rest.

    Parameters
    ----------
    y_true, probs, logits, sample_weight, classes
        As for :func:`refinecal.decompose`.

    Returns
    -------
    float
        A class without rows, or with nothing else beside it, is left out; NaN if no class is left.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.metrics.auroc([0, 1, 0, 1], [0.1, 0.4, 0.35, 0.8])
    1.0
    """
    return _auroc(on_cpu(check_sample(y_true, probs, logits, sample_weight, classes)))


def _brier(sample: Sample) -> float:
    return sample.mean(losses_at(sample, 1.0, get_loss("brier")))


def _accuracy(sample: Sample) -> float:
    top = sample.logits.argmax(axis=1)
    if sample.soft is None:
        return sample.mean(top == sample.labels)
    return sample.mean(sample.soft[np.arange(sample.n), top])


def _auroc(sample: Sample) -> float:
    from sklearn.metrics import roc_auc_score

    sample = sample.counted()
    weights = np.ones(sample.n) if sample.weights is None else sample.weights
    shares = np.eye(sample.k)[sample.labels] if sample.soft is None else sample.soft
    logs = log_softmax(sample.logits.astype(np.float64))
    areas = []
    for j in range(1, 2) if sample.k == 2 else range(sample.k):
        with np.errstate(invalid="ignore"):
            score = logs[:, 1] - logs[:, 0] if sample.k == 2 else logs[:, j]
        score = np.clip(score, -1e300, 1e300)
        mass = np.concatenate([weights * (1 - shares[:, j]), weights * shares[:, j]])
        used = mass > 0
        truth = np.repeat([0, 1], sample.n)[used]
        if 0 < truth.sum() < truth.size:
            areas.append(roc_auc_score(truth, np.tile(score, 2)[used], sample_weight=mass[used]))
    return float(np.mean(areas)) if areas else math.nan


# ---- the table of stopping metrics -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of one's own, with its direction.

    Attributes
    ----------
    function : callable
        ``function(y_true, probs) -> float``, as in :mod:`sklearn.metrics`; ``probs`` is ``(n, k)``, also for
        two classes. ``sample_weight=`` is passed if the monitor was given weights.
    name : str
        What it is called in records.
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
        """Its name in a training log: ends in ``loss`` exactly if smaller is better."""
        if self.greater_is_better or self.name.endswith("loss"):
            return self.name
        return f"{self.name}_loss"

    def better(self, value: float, than: float, by: float = 0.0) -> bool:
        """Tell whether one value is better than another by more than ``by``; NaN never is."""
        if math.isnan(than):
            return not math.isnan(value)
        return value - than > by if self.greater_is_better else than - value > by


class Step:
    """One step's predictions and their decomposition: what metrics are computed from."""

    def __init__(self, y_true: Any, sample: Sample, parts: Decomposition, start: float) -> None:
        self.y_true = y_true
        self.sample = on_cpu(sample)
        self.parts = parts
        self._start = start

    @cached_property
    def probs(self) -> NDArray[np.float64]:
        return np.asarray(np.exp(log_softmax(self.sample.logits.astype(np.float64))))

    @property
    def beta(self) -> float:
        """The best inverse temperature, whatever the calibrator."""
        if self.parts.beta is not None:
            return self.parts.beta
        return fit_sample(self.sample, self._start).beta


def _brier_refinement(step: Step) -> float:
    """Return Brier's score after the temperature that is best for the log loss, as in the paper."""
    loss, sample = get_loss("brier"), step.sample
    return min(sample.mean(losses_at(sample, step.beta, loss)), _brier(sample))


BUILT_IN: dict[str, tuple[Callable[[Step], float], bool]] = {  # and whether greater is better
    "refinement": (lambda step: step.parts.refinement, False),
    "risk": (lambda step: step.parts.risk, False),
    "log_loss": (
        lambda step: step.parts.risk if step.parts.loss == "log" else risk_of(step.sample),
        False,
    ),
    "brier": (lambda step: _brier(step.sample), False),
    "brier_refinement": (_brier_refinement, False),
    "error_rate": (lambda step: 1 - _accuracy(step.sample), False),
    "accuracy": (lambda step: _accuracy(step.sample), True),
    "auroc": (lambda step: _auroc(step.sample), True),
}


def get_metrics(given: Iterable[Any]) -> list[Metric]:
    """Return the metrics of these names, functions or ``Metric`` objects, each once."""
    found: dict[str, Metric] = {}
    for one in given:
        metric = get_metric(one)
        if metric.name in found and found[metric.name].function is not metric.function:
            raise ValueError(
                f"two metrics are called {metric.name!r}: name one of them, as in "
                f"refinecal.metrics.Metric(function, name='other')"
            )
        found[metric.name] = metric
    return list(found.values())


def get_metric(given: Any) -> Metric:
    """Return the metric of that name, or a function as a metric: smaller is better unless it says so."""
    if isinstance(given, Metric):
        return given
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
            "metric is a lambda, which has no name for the records: pass "
            "refinecal.metrics.Metric(function, name='...')"
        )
    return Metric(given, name)


def value_of(metric: Metric, step: Step, sample_weight: Any = None) -> float:
    """Return the metric of one step's predictions."""
    if metric.name in BUILT_IN and metric.function is BUILT_IN[metric.name][0]:
        return float(metric.function(step))
    options = {} if sample_weight is None else {"sample_weight": sample_weight}
    value = metric.function(step.y_true, step.probs, **options)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"metric {metric.name!r} returned {value!r}: it must return one number"
        ) from None
