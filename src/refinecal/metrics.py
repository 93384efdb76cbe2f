"""What a model can be stopped on: plain functions, and the table of stopping metrics.

Every function is called as ``metric(y_true, probs)`` or ``metric(y_true, logits=z)``, as
:func:`refinecal.decompose` is.
"""

from __future__ import annotations  # so that help() shows types by name

import math
import numbers
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._binned import KINDS, STRATEGIES, binned_error
from refinecal._checks import check_sample, fail_choice
from refinecal._ranking import areas_of_logits, mean_area
from refinecal._readers import check_threads
from refinecal._sample import Sample, on_cpu
from refinecal._scored import N_BINS, Scored, check_scored
from refinecal._softmax import log_softmax
from refinecal.decomposition import Decomposition
from refinecal.losses import get_loss
from refinecal.resampling import losses_at
from refinecal.temperature import fit_sample, risk_of

__all__ = ["Metric", "accuracy", "auroc", "brier_score", "ece", "log_loss"]


class Inputs(TypedDict, total=False):
    """The keywords of every function here."""

    logits: Any
    sample_weight: Any
    classes: ArrayLike | None


# ---- plain functions -------------------------------------------------------------------------------------


def log_loss(y_true: Any, probs: Any = None, **inputs: Unpack[Inputs]) -> float:
    """Return the mean of minus the log-probability of the label, without clipping.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.

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
    return risk_of(check_sample(y_true, probs, devices=True, **inputs))


def brier_score(y_true: Any, probs: Any = None, **inputs: Unpack[Inputs]) -> float:
    """Return the mean squared distance between prediction and label, summed over all classes.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.

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
    return _brier(check_sample(y_true, probs, **inputs))


def accuracy(y_true: Any, probs: Any = None, **inputs: Unpack[Inputs]) -> float:
    """Return the share of rows whose likeliest class is the label.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.

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
    return _accuracy(check_sample(y_true, probs, **inputs))


def auroc(y_true: Any, probs: Any = None, **inputs: Unpack[Inputs]) -> float:
    """Return the area under the ROC curve; for several classes the mean over one against the rest.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.

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
    threads = check_threads(None)
    return mean_area(_check(y_true, probs, threads, **inputs).areas(threads))


def ece(
    y_true: Any,
    probs: Any = None,
    *,
    n_bins: int = N_BINS,
    strategy: str = "uniform",
    kind: str = "auto",
    **inputs: Unpack[Inputs],
) -> float:
    r"""Return the expected calibration error: how far probabilities are from frequencies, in bins.

    With the rows of bin b weighing :math:`w_b`, having mean probability :math:`\bar p_b` and the class in a
    share :math:`\bar y_b` of them, it is :math:`\sum_b w_b |\bar p_b - \bar y_b| / \sum_b w_b`.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    n_bins : int, default 15
        Number of bins.
    strategy : {"uniform", "quantile"}
        Bins of equal width, bin b holding b/n_bins < p <= (b + 1)/n_bins; or of equal mass, equal
        probabilities never in two bins.
    kind : {"auto", "binary", "top-label", "class-wise"}
        Of the second of two classes, of the likeliest class, or the mean over the errors of all classes;
        by default the first for two classes, else the second.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.metrics.ece([0, 1, 1, 1], [0.5] * 4), 12)  # says 1/2, and 3/4 happens
    0.25
    """
    _check_choices(n_bins, strategy, kind)
    scored = _check(y_true, probs, check_threads(None), **inputs)
    kind = ("binary" if scored.sample.k == 2 else "top-label") if kind == "auto" else kind
    if kind == "binary" and scored.sample.k != 2:
        raise ValueError(
            f"kind is 'binary', but there are {scored.sample.k} classes: use 'top-label' or 'class-wise'"
        )
    return binned_error(scored.columns, scored.labels, scored.weights, n_bins, strategy, kind)


def _check(y_true: Any, probs: Any, threads: int, **inputs: Unpack[Inputs]) -> Scored:
    logits, weights = inputs.get("logits"), inputs.get("sample_weight")
    return check_scored(y_true, probs, logits, weights, inputs.get("classes"), threads)


def _check_choices(n_bins: Any, strategy: str, kind: str) -> None:
    if isinstance(n_bins, bool) or not isinstance(n_bins, numbers.Integral) or n_bins < 1:
        raise ValueError(f"n_bins is {n_bins!r}: it must be a whole number of at least 1")
    for name, value, known in (("strategy", strategy, STRATEGIES), ("kind", kind, KINDS)):
        if value not in known:
            fail_choice(name, value, list(known[:-1]), repr(known[-1]))


def _brier(sample: Sample) -> float:
    return sample.mean(losses_at(sample, 1.0, get_loss("brier")))


def _accuracy(sample: Sample) -> float:
    top = sample.logits.argmax(axis=1)
    if sample.soft is None:
        return sample.mean(top == sample.labels)
    return sample.mean(sample.soft[np.arange(sample.n), top])


def _auroc(sample: Sample) -> float:
    return mean_area(areas_of_logits(sample))


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
        self.parts = parts
        self._given = sample
        self._start = start

    @cached_property
    def sample(self) -> Sample:
        return on_cpu(self._given)

    @cached_property
    def probs(self) -> NDArray[np.float64]:
        return np.asarray(np.exp(log_softmax(self.sample.logits.astype(np.float64))))

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
    return _brier(step.sample)


def _step_brier_refinement(step: Step) -> float:
    """Return Brier's score after the temperature that is best for the log loss, as in the paper."""
    loss, sample = get_loss("brier"), step.sample
    return min(sample.mean(losses_at(sample, step.beta, loss)), _brier(sample))


def _step_error_rate(step: Step) -> float:
    return 1 - _accuracy(step.sample)


def _step_accuracy(step: Step) -> float:
    return _accuracy(step.sample)


def _step_auroc(step: Step) -> float:
    return _auroc(step.sample)


BUILT_IN: dict[str, tuple[Callable[[Step], float], bool]] = {  # and whether greater is better
    "refinement": (_step_refinement, False),
    "risk": (_step_risk, False),
    "log_loss": (_step_log_loss, False),
    "brier": (_step_brier, False),
    "brier_refinement": (_step_brier_refinement, False),
    "error_rate": (_step_error_rate, False),
    "accuracy": (_step_accuracy, True),
    "auroc": (_step_auroc, True),
}
OWN = {"log_loss": log_loss, "brier": brier_score, "accuracy": accuracy, "auroc": auroc}


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
    """Return the metric of that name, or a function as a metric for which smaller is better."""
    if isinstance(given, Metric):
        return given
    given = next((name for name, function in OWN.items() if function is given), given)
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
    if name.endswith("_score"):  # scikit-learn's names for what is better when greater
        raise ValueError(
            f"metric is the function {name}: say whether greater is better, as in "
            f"refinecal.metrics.Metric({name}, {name!r}, greater_is_better=True)"
        )
    return Metric(given, name)


def is_built_in(metric: Metric) -> bool:
    """Tell a metric of the table from a user's, even if that has the same name."""
    return metric.name in BUILT_IN and metric.function is BUILT_IN[metric.name][0]


def value_of(metric: Metric, step: Step, sample_weight: Any = None) -> float:
    """Return the metric of one step's predictions."""
    if is_built_in(metric):
        return float(metric.function(step))
    options = {} if sample_weight is None else {"sample_weight": sample_weight}
    value = metric.function(step.y_true, step.probs, **options)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"metric {metric.name!r} returned {value!r}: it must return one number"
        ) from None
