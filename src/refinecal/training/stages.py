"""Models made of stages, each of which can be asked for: ``staged_decision_function`` and its like."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from itertools import islice
from typing import Any

import numpy as np
from sklearn.base import clone

from refinecal.training.parameters import length_name, switch_off_stopping, weights_for
from refinecal.training.predictions import Link, Predictions, identity_link, link_of, some_rows
from refinecal.training.rows import Rows
from refinecal.training.task import Task, TrainingMethod

FIRST_STAGES = 64  # rounds before the first look; doubled as long as they still improve
PER_STAGE = ("_predictors", "estimators_", "estimator_weights_", "estimator_errors_")
SCORES = ("train_score_", "oob_improvement_", "oob_scores_")


def train_monitored(model: Any, task: Task) -> Any:
    """Train gradient boosting that calls back after every round."""
    switch_off_stopping(model)
    model.set_params(n_estimators=task.max_steps)
    stages: Iterator[Predictions] = iter(())

    def look(i: int, growing: Any, variables: Any) -> bool:
        nonlocal stages
        if i == 0:
            stages = staged_predictions(growing, task.val.X)
        task.show(next(stages), i + 1)
        return task.monitor.should_stop

    model.fit(task.rows.X, task.rows.y, monitor=look, **weights_for(model.fit, task.rows))
    return _at_best(model, task)


def train_staged(model: Any, task: Task) -> Any:
    """Train in one go, or in runs of doubling length if the model can go on from where it is."""
    switch_off_stopping(model)
    name, params = length_name(model), model.get_params(deep=False)
    grows = "warm_start" in params and task.monitor.patience is not None
    length, step = min(FIRST_STAGES, task.max_steps) if grows else task.max_steps, 0
    if grows:
        model.set_params(warm_start=True)
    while True:
        model.set_params(**{name: length})
        model.fit(task.rows.X, task.rows.y, **weights_for(model.fit, task.rows))
        for found in islice(staged_predictions(model, task.val.X), step, None):
            step += 1
            task.show(found, step)
            if task.monitor.should_stop:
                break
        if task.monitor.should_stop or step < length or length >= task.max_steps:
            break
        length = min(2 * length, task.max_steps)
    if grows:
        model.set_params(warm_start=params["warm_start"])
    return _at_best(model, task)


def retrain(model: Any, rows: Rows, n_steps: int, like: Any) -> Any:
    """Train so many rounds."""
    switch_off_stopping(model)
    model.set_params(**{length_name(model): n_steps})
    return model.fit(rows.X, rows.y, **weights_for(model.fit, rows))


def staged_predictions(model: Any, X: Any) -> Iterator[Predictions]:
    """Yield the predictions of each stage, as logits if the model has them."""
    link: Link | None = None
    if not hasattr(model, "staged_predict_proba"):
        link = identity_link
    elif hasattr(model, "staged_decision_function"):
        some = some_rows(X)
        margins, probs = model.staged_decision_function(some), model.staged_predict_proba(some)
        link = link_of(next(margins), next(probs))
    if link is None:
        for probs in model.staged_predict_proba(X):
            yield Predictions("probs", probs, "staged_predict_proba")
    else:
        for margins in model.staged_decision_function(X):
            yield Predictions("logits", link(margins), "staged_decision_function")


def _at_best(model: Any, task: Task) -> Any:
    """Return the model at its best step: cut if that can be done exactly, else trained again."""
    best = task.find_best()
    try:
        return cut(model, best, task.val.X)
    except ValueError:
        return retrain(clone(model), task.rows, best, None)


def cut(model: Any, n_steps: int, X: Any) -> Any:
    """Cut a model made of stages to its first ``n_steps``, in place, and check its predictions."""
    some = some_rows(X)
    method = "decision_function" if hasattr(model, "staged_decision_function") else "predict_proba"
    expected = next(islice(getattr(model, f"staged_{method}")(some), n_steps - 1, None))
    for name in (*PER_STAGE, *SCORES):
        if getattr(model, name, None) is not None:
            # A copy, since a view would hold on to all stages.
            setattr(model, name, copy(getattr(model, name)[:n_steps]))
    if hasattr(model, "n_estimators_"):
        model.n_estimators_ = n_steps
    model.set_params(**{length_name(model): n_steps})
    found = getattr(model, method)(some).reshape(expected.shape)
    if not np.allclose(found, expected, rtol=1e-6, atol=1e-9):  # the same but for rounding
        raise ValueError(f"{type(model).__name__} cannot be cut to its first {n_steps} stages")
    return model


MONITORED = TrainingMethod(train_monitored, retrain)
STAGED = TrainingMethod(train_staged, retrain)
