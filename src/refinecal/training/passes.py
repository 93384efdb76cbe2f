"""Models that pass over the data again and again: ``partial_fit``."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_class_weight

from refinecal.training.parameters import switch_off_stopping, takes, weights_for
from refinecal.training.predictions import predictions_of
from refinecal.training.rows import Rows
from refinecal.training.task import Task, TrainingMethod


def train(model: Any, task: Task) -> Any:
    """Pass over the data as long as the monitor wishes; return a copy made at the best step."""
    _prepare(model, task.rows, task.classes)
    best = model
    for step in range(1, task.max_steps + 1):
        _pass(model, task.rows, task.classes)
        if task.show(predictions_of(model, task.val.X), step):
            best = deepcopy(model)
        if task.monitor.should_stop:
            break
    return best


def retrain(model: Any, rows: Rows, n_steps: int, like: Any) -> Any:
    """Pass over the data so many times."""
    classes = np.unique(rows.y)
    _prepare(model, rows, classes)
    for _ in range(n_steps):
        _pass(model, rows, classes)
    return model


def _prepare(model: Any, rows: Rows, classes: NDArray[Any]) -> None:
    switch_off_stopping(model)
    if getattr(model, "class_weight", None) == "balanced":  # which partial_fit cannot know
        weights = compute_class_weight("balanced", classes=classes, y=rows.y)
        model.set_params(class_weight=dict(zip(classes.tolist(), weights.tolist(), strict=True)))


def _pass(model: Any, rows: Rows, classes: NDArray[Any]) -> None:
    options = weights_for(model.partial_fit, rows)
    if takes(model.partial_fit, "classes"):
        options["classes"] = classes
    model.partial_fit(rows.X, rows.y, **options)


PASSES = TrainingMethod(train, retrain)
