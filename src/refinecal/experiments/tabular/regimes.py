"""Where stopping by refinement helps: data sets and training runs, classed by what may make a difference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refinecal.experiments.tabular.differences import (
    VERY_LOW,
    Index,
    Summary,
    compare,
    relative,
    summarize,
)
from refinecal.experiments.tabular.judging import OURS, REFERENCE, Training

INF = math.inf
Classes = Sequence[tuple[float, str]]  # the upper end and the name of each class
VALIDATION = (
    (400, "under 400"),
    (1600, "400 to 1599"),
    (6400, "1600 to 6399"),
    (INF, "6400 or more"),
)
RISE = (
    *((0.01, "under 1 %"), (0.1, "1 to 10 %"), (0.5, "10 to 50 %")),
    *((2.0, "50 to 200 %"), (INF, "over 200 %")),
)
LOSS = ((VERY_LOW, f"under {VERY_LOW}"), (INF, f"{VERY_LOW} or more"))  # of the reference
RATE = ((0.01, "under 0.01"), (0.05, "0.01 to 0.05"), (0.2, "0.05 to 0.2"), (INF, "over 0.2"))
DEPTH = ((3.5, "1 to 3"), (7.5, "4 to 7"), (INF, "8 or more"))


@dataclass(frozen=True, slots=True)
class Regime:
    """Stopping by refinement against log loss, both with temperature, for some sets or training runs."""

    method: str
    mode: str
    by: str
    name: str
    trainings: int
    summary: Summary


def of_sets(rows: Index, trainings: Iterable[Training], method: str, mode: str) -> Iterator[Regime]:
    """Class data sets by validation rows, by the rise of the validation loss, and by their loss."""
    found = compare(rows, method, mode, OURS)
    rises = _rises(rows, trainings, method, mode)
    for by, classes, values in (
        ("validation rows", VALIDATION, [each.n_val for each in found.sets]),
        ("rise of validation loss", RISE, [rises.get(each.set, math.nan) for each in found.sets]),
        ("test log loss", LOSS, [each.reference for each in found.sets]),
    ):
        names = [_class(value, classes) for value in values]
        for _, name in classes:
            sets = [each for each, own in zip(found.sets, names, strict=True) if own == name]
            if sets:
                splits = sum(each.splits for each in sets)
                yield Regime(method, mode, by, name, splits, replace(found, sets=sets).summary)


def _rises(rows: Index, trainings: Iterable[Training], method: str, mode: str) -> dict[str, float]:
    """Return for each set the rise in the run that log loss chose, averaged over splits."""
    chosen = {at: row.config for at, row in rows.get((method, mode, REFERENCE), {}).items()}
    rises: dict[str, list[float]] = {}
    for each in trainings:
        if each.method == method and chosen.get((each.set, each.split)) == each.config:
            rises.setdefault(each.set, []).append(each.rise)
    return {name: float(np.mean(values)) for name, values in rises.items()}


def of_trainings(trainings: Iterable[Training], method: str) -> list[Regime]:
    """Class the training runs with random parameters by learning rate, depth and rise of the loss.

    In each class the losses of a set are averaged first, so that a set counts once.
    """
    random = [each for each in trainings if each.method == method and each.config]
    ways: tuple[tuple[str, Classes, str], ...] = (
        ("learning rate", RATE, "learning_rate"),
        ("depth", DEPTH, "depth"),
        ("rise of validation loss", RISE, "rise"),
    )
    return [
        Regime(method, "each training", by, name, len(kept), summarize(_by_set(kept)))
        for by, classes, field in ways
        for _, name in classes
        if (kept := [each for each in random if _class(getattr(each, field), classes) == name])
    ]


def _by_set(trainings: Iterable[Training]) -> list[float]:
    sets: dict[str, list[tuple[float, float]]] = {}
    for each in trainings:
        sets.setdefault(each.set, []).append((each.refinement, each.log_loss))
    return [relative(*np.mean(some, axis=0).tolist()) for some in sets.values()]


def _class(value: Any, classes: Classes) -> str | None:
    """Return the name of the class of a value: the first whose end is above it.

    >>> _class(1600, VALIDATION), _class(float("inf"), RISE), _class(float("nan"), RISE)
    ('1600 to 6399', 'over 200 %', None)
    """
    if math.isnan(value):
        return None
    return next((name for end, name in classes if value < end), classes[-1][1])
