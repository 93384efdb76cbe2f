"""Choose among saved predictions, one set per step."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Iterable, Mapping, Sized
from typing import Any

from refinecal._core.checks import check_keywords
from refinecal.stopping import RefinementMonitor

__all__ = ["select"]

_MISSING = object()


@check_keywords(RefinementMonitor)
def select(
    y_val: Any,
    probs: Any = None,
    *,
    logits: Any = None,
    steps: Iterable[int] | None = None,
    sample_weight: Any = None,
    monitor: RefinementMonitor | None = None,
    **options: Any,
) -> RefinementMonitor:
    """Choose the best step from the saved predictions of each.

    Parameters
    ----------
    y_val : array-like
        The labels, the same at every step.
    probs, logits : array-like ``(steps, n, k)`` or ``(steps, n)``, mapping, or iterable
        Predictions of each step: an array, a mapping from step to predictions, or an iterable such as
        ``model.staged_predict_proba(X_val)``, of which one step at a time is in memory.
    steps : iterable of int, optional
        The number of each step; by default 0, 1, 2 and so on.
    sample_weight : array-like, optional
        Sample weights.
    monitor : RefinementMonitor, optional
        Continue with this one instead of a new one.
    **options
        Keywords of :class:`RefinementMonitor`. With ``patience``, later steps are not evaluated.

    Returns
    -------
    RefinementMonitor
        With ``best_step``, ``bests``, ``calibrator``, ``history``, ``plot()``.

    Examples
    --------
    >>> import refinecal as rc
    >>> stages = [[0.4, 0.6, 0.5, 0.7], [0.1, 0.7, 0.6, 0.9], [0.6, 0.7, 0.3, 0.9]]
    >>> rc.select([0, 0, 1, 1], stages).best_step
    1
    """
    if (probs is None) == (logits is None):
        found = "neither" if probs is None else "both"
        raise TypeError(f"pass either probs or logits=, found {found}")
    if monitor is not None and options:
        raise TypeError("pass either monitor= or the options of a new one, not both")
    monitor = RefinementMonitor(**options) if monitor is None else monitor
    kind, staged = ("probs", probs) if logits is None else ("logits", logits)
    if isinstance(staged, Mapping):
        if steps is not None:
            raise TypeError("steps= is for arrays and iterables: a mapping already names its steps")
        steps, staged = list(staged.keys()), staged.values()
    if hasattr(staged, "columns"):
        raise TypeError(
            f"{kind} is a table, which does not name its steps: pass a mapping from each step to its "
            f"predictions, such as {{step: {kind}[name] for step, name in enumerate({kind})}}"
        )
    given: Any = None if steps is None else iter(steps)
    count = 0
    for predictions in staged:
        step: Any = None if given is None else next(given, _MISSING)
        if step is _MISSING:
            raise ValueError(f"steps names {count} steps, but {kind} holds more: name each step")
        chosen: Any = {kind: predictions}
        monitor.update(y_val, **chosen, step=step, sample_weight=sample_weight)
        count += 1
        del predictions, chosen  # before the next step is computed
        if monitor.is_out_of_patience:
            break
    else:
        if isinstance(steps, Sized) and len(steps) > count > 0:
            raise ValueError(
                f"steps names {len(steps)} steps, but {kind} holds {count}: name each step once"
            )
    if count == 0:
        raise ValueError(f"{kind} holds no step: pass the predictions of at least one")
    return monitor
