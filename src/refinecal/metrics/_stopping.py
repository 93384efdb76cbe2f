"""What a model can be stopped on: a metric of the table, or one of one's own."""

from __future__ import annotations  # so that help() shows types by name

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from refinecal._core.errors import fail_choice
from refinecal.metrics._table import BUILT_IN, OWN, Step


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
