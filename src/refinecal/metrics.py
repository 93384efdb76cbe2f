"""What a model can be stopped on: plain functions, and the table of stopping metrics.

Every function is called as ``metric(y_true, probs)`` or ``metric(y_true, logits=z)``, as
:func:`refinecal.decompose` is.
"""

from __future__ import annotations  # so that help() shows types by name

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from refinecal._checks import check_sample, fail_choice
from refinecal._sample import Sample, on_cpu
from refinecal._softmax import log_softmax
from refinecal.decomposition import Decomposition
from refinecal.losses import get_loss
from refinecal.resampling import losses_at
from refinecal.temperature import fit_sample, risk_of

__all__ = ["Metric", "accuracy", "auroc", "brier_score", "log_loss"]


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
    return _auroc(check_sample(y_true, probs, **inputs))


def _brier(sample: Sample) -> float:
    return sample.mean(losses_at(sample, 1.0, get_loss("brier")))


def _accuracy(sample: Sample) -> float:
    top = sample.logits.argmax(axis=1)
    if sample.soft is None:
        return sample.mean(top == sample.labels)
    return sample.mean(sample.soft[np.arange(sample.n), top])


def _auroc(sample: Sample) -> float:
    from sklearn.metrics import roc_auc_score

    weights = np.ones(sample.n) if sample.weights is None else sample.weights
    shares = np.eye(sample.k)[sample.labels] if sample.soft is None else sample.soft
    odds = _log_odds(sample.logits.astype(np.float64))
    rounding = _rounding(sample.logits)
    areas = []
    for j in range(1, 2) if sample.k == 2 else range(sample.k):
        mass = np.concatenate([weights * (1 - shares[:, j]), weights * shares[:, j]])
        used = mass > 0
        truth = np.repeat([0, 1], sample.n)[used]
        if 0 < truth.sum() < truth.size:
            ranks = np.tile(_ranks(odds[:, j], rounding), 2)[used]
            areas.append(roc_auc_score(truth, ranks, sample_weight=mass[used]))
    return float(np.mean(areas)) if areas else math.nan


def _log_odds(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log-odds of each class against the rest, exact for the surest predictions too."""
    if logits.shape[1] == 2:
        return logits - logits[:, ::-1]
    rows, top = np.arange(len(logits)), logits.argmax(axis=1)
    gaps = logits - logits[rows, top][:, None]
    rest = gaps.copy()  # beside the likeliest class, which has 0
    rest[rows, top] = -np.inf
    odds = np.exp(rest)
    against = np.log1p(odds.sum(axis=1)[:, None] - odds)
    against[rows, top] = logsumexp(rest, axis=1)
    return np.asarray(gaps - against)


def _rounding(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Return how far apart rounding may put equal log-odds of each row: relative to its largest logit."""
    sizes = np.abs(np.where(np.isfinite(logits), logits, 0)).max(axis=1).astype(np.float64)
    if logits.dtype != np.float64:
        sizes *= 1e7  # times the rounding of float64 is 8 units in the last place of float32
    if logits.shape[1] > 2:
        sizes = np.maximum(sizes, 1)  # sums of exponentials are of this size
    return np.asarray(1e-13 * sizes)


def _ranks(scores: NDArray[np.float64], rounding: NDArray[np.float64]) -> NDArray[np.int64]:
    """Number scores by size; those that rounding alone tells apart have the same number."""
    order = np.argsort(scores)
    ordered, rounding = scores[order], rounding[order]
    with np.errstate(invalid="ignore"):  # infinite scores are equal: their gap, NaN, is not above 0
        gaps = np.diff(ordered)
        near = ~(gaps > np.minimum(rounding[1:], rounding[:-1]))
        first = np.flatnonzero(np.r_[True, ~near])  # of each run of near neighbours
        last = np.r_[first[1:], len(scores)] - 1
        # A run wider than rounding is no tie: these scores only lie close.
        wide = ordered[last] - ordered[first] > np.minimum.reduceat(rounding, first)
    in_wide = np.repeat(wide, last - first + 1)[1:]
    ranks = np.zeros(len(scores), dtype=np.int64)
    ranks[order[1:]] = np.cumsum(~near | (in_wide & (gaps > 0)))
    return ranks


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
