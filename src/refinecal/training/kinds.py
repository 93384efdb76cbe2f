"""Which kind of training suits a model."""

from __future__ import annotations

from copy import copy
from typing import Any

from sklearn.base import clone

from refinecal.training.callbacks import CALLED_BACK
from refinecal.training.catboost import CATBOOST
from refinecal.training.parameters import takes, weights_for
from refinecal.training.passes import PASSES
from refinecal.training.predictions import is_frozen, is_pipeline, library_of, predictions_of
from refinecal.training.rows import Rows
from refinecal.training.stages import MONITORED, STAGED
from refinecal.training.task import Task, TrainingMethod


def train_once(model: Any, task: Task) -> Any:
    """Fit, and look once; a frozen model takes no notice of being fitted."""
    model.fit(task.rows.X, task.rows.y, **weights_for(model.fit, task.rows))
    task.show(predictions_of(model, task.val.X), 1)
    return model


def retrain_once(model: Any, rows: Rows, n_steps: int, like: Any) -> Any:
    """Fit."""
    return model.fit(rows.X, rows.y, **weights_for(model.fit, rows))


LIBRARIES = {**CALLED_BACK, "catboost": CATBOOST}
ONCE = TrainingMethod(train_once, retrain_once, is_iterative=False)


def kind_of(model: Any) -> TrainingMethod:
    """Return how a model is trained, that is not a pipeline."""
    if is_frozen(model) or _counts_rows(model):
        return ONCE
    if library_of(model) in LIBRARIES:
        return LIBRARIES[library_of(model)]
    if hasattr(model, "staged_decision_function") or hasattr(model, "staged_predict_proba"):
        return MONITORED if takes(model.fit, "monitor") else STAGED
    return PASSES if hasattr(model, "partial_fit") else ONCE


def _counts_rows(model: Any) -> bool:
    """Tell whether ``partial_fit`` counts rows, so that a second pass would count them twice."""
    return any(base.__module__ == "sklearn.naive_bayes" for base in type(model).__mro__)


def last_of(model: Any) -> Any:
    """Return the classifier at the end of a pipeline, or of a pipeline within; else the model itself."""
    return last_of(model.steps[-1][1]) if is_pipeline(model) else model


def new_model(model: Any) -> Any:
    """Return a new model with the same parameters; one that is frozen is itself."""
    if is_pipeline(model):
        new = copy(model)
        new.steps = [(name, new_model(step)) for name, step in model.steps]
        return new
    if library_of(model) == "catboost":  # copies lists among its parameters, which clone refuses
        return type(model)(**model.get_params())
    return clone(model, safe=False)  # a step may be the word "passthrough"
