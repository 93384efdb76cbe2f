"""Where stopping by refinement helps: data sets and trainings sorted by what may make a difference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refinecal.experiments.tabular.differences import (
    VERY_LOW,
    Comparison,
    Index,
    SetComparison,
    Summary,
    compare,
    relative,
    summarise,
)
from refinecal.experiments.tabular.judging import OURS, REFERENCE, Training

__all__ = ["Regime", "of_sets", "of_trainings"]

INF = math.inf
# Upper ends of the classes that sets and trainings are put into, and what they are called.
VALIDATION = (
    (400, "under 400"),
    (1600, "400 to 1599"),
    (6400, "1600 to 6399"),
    (INF, "6400 or more"),
)
RISE = (
    (0.01, "under 1 %"),
    (0.1, "1 to 10 %"),
    (0.5, "10 to 50 %"),
    (2.0, "50 to 200 %"),
    (INF, "over 200 %"),
)
LOSS = ((VERY_LOW, f"under {VERY_LOW}"), (INF, f"{VERY_LOW} or more"))  # of the reference
RATE = (
    (0.01, "under 0.01"),
    (0.05, "0.01 to 0.05"),
    (0.2, "0.05 to 0.2"),
    (INF, "over 0.2"),
)
DEPTH = ((3.5, "1 to 3"), (7.5, "4 to 7"), (INF, "8 or more"))
Classes = Sequence[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Regime:
    """Stopping by refinement against log loss, both with temperature, for some sets or trainings."""

    method: str
    mode: str
    by: str
    name: str
    trainings: int
    summary: Summary


def of_sets(rows: Index, trainings: Iterable[Training], method: str, mode: str) -> list[Regime]:
    """Sort data sets by validation rows, by how far the validation loss turned up, and by their loss."""
    found = compare(rows, method, mode, OURS)
    rises = _rises(rows, trainings, method, mode)
    ways: tuple[tuple[str, Classes, Callable[[SetComparison], float]], ...] = (
        ("validation rows", VALIDATION, lambda each: each.n_val),
        ("rise of validation loss", RISE, lambda each: rises.get(each.set, math.nan)),
        ("test log loss", LOSS, lambda each: each.reference),
    )
    return [each for by, classes, value in ways for each in _sorted_sets(found, by, classes, value)]


def _sorted_sets(
    found: Comparison, by: str, classes: Classes, value: Callable[[SetComparison], float]
) -> Iterable[Regime]:
    for name in (name for _, name in classes):
        kept = found.where(lambda each, name=name: _class(value(each), classes) == name)  # type: ignore[misc]
        if kept.sets:
            count = sum(each.splits for each in kept.sets)
            yield Regime(found.method, found.mode, by, name, count, kept.summary)


def _rises(rows: Index, trainings: Iterable[Training], method: str, mode: str) -> dict[str, float]:
    """Return for each set how far the loss of the training that log loss chose turned up, over splits."""
    chosen = {at: row.config for at, row in rows.get((method, mode, REFERENCE), {}).items()}
    rises: dict[str, list[float]] = {}
    for each in trainings:
        if each.method == method and chosen.get((each.set, each.split)) == each.config:
            rises.setdefault(each.set, []).append(each.rise)
    return {name: float(np.mean(values)) for name, values in rises.items()}


def of_trainings(trainings: Iterable[Training], method: str) -> list[Regime]:
    """Sort the trainings with random parameters by learning rate, depth, and how far the loss turned up.

    In each class the losses of a set are averaged first, so that a set counts once.
    """
    random = [each for each in trainings if each.method == method and each.config]
    ways: tuple[tuple[str, Classes, str], ...] = (
        ("learning rate", RATE, "learning_rate"),
        ("depth", DEPTH, "depth"),
        ("rise of validation loss", RISE, "rise"),
    )
    return [
        Regime(method, "each training", by, name, len(kept), summarise(_by_set(kept)))
        for by, classes, field in ways
        for _, name in classes
        if (kept := [each for each in random if _class(getattr(each, field), classes) == name])
    ]


def _by_set(trainings: Iterable[Training]) -> list[float]:
    sets: dict[str, list[Training]] = {}
    for each in trainings:
        sets.setdefault(each.set, []).append(each)
    return [
        relative(
            float(np.mean([each.refinement for each in some])),
            float(np.mean([each.log_loss for each in some])),
        )
        for some in sets.values()
    ]


def _class(value: Any, classes: Classes) -> str | None:
    """Return the name of the class of a value: the first whose end is above it.

    >>> _class(1600, VALIDATION), _class(float("inf"), RISE), _class(float("nan"), RISE)
    ('1600 to 6399', 'over 200 %', None)
    """
    if math.isnan(value):
        return None
    return next((name for end, name in classes if value < end), classes[-1][1])
