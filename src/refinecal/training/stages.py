"""scikit-learn's models that train in stages (boosting) or in passes over the data (``partial_fit``)."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy, deepcopy
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.class_weight import compute_class_weight

from refinecal.training.predictions import (
    Link,
    Predictions,
    identity_link,
    link_of,
    predictions_of,
    some_rows,
)
from refinecal.training.rows import Rows
from refinecal.training.trainer import Trainer, TrainingRun, fit, takes, weights_for

FIRST_STAGES = 64  # rounds before the first look; doubled as long as they still improve
PER_STAGE = ("_predictors", "estimators_", "estimator_weights_", "estimator_errors_")
SCORES = ("train_score_", "oob_improvement_", "oob_scores_")
LENGTHS = ("n_estimators", "max_iter")


class StageTrainer(Trainer):
    """Trains in one go, or in runs of doubling length if the model has a warm start."""

    is_iterative = True

    def train(self, model: Any, run: TrainingRun) -> Any:
        """Train, look at each stage, go back to the best."""
        switch_off_stopping(model)
        name, params = length_name(model), model.get_params(deep=False)
        grows = "warm_start" in params and run.monitor.patience is not None
        if grows:
            model.set_params(warm_start=True)

        def fit_to(length: int) -> Iterator[Predictions]:
            fit(model.set_params(**{name: length}), run.rows)
            return islice(staged_predictions(model, run.val.X), run.step, None)

        run.grow(fit_to, FIRST_STAGES if grows else run.max_steps, 2)
        if grows:
            model.set_params(warm_start=params["warm_start"])
        return self.restore(model, run)

    def retrain(self, model: Any, rows: Rows, n_steps: int, like: Any) -> Any:
        """Train for this many rounds."""
        switch_off_stopping(model)
        return fit(model.set_params(**{length_name(model): n_steps}), rows)

    def restore(self, model: Any, run: TrainingRun) -> Any:
        """Return the model at its best step: cut if that is exact, else trained again."""
        best = run.find_best()
        try:
            return cut(model, best, run.val.X)
        except ValueError:
            return self.retrain(clone(model), run.rows, best, None)


class CallbackTrainer(StageTrainer):
    """Trains gradient boosting that calls back after every round."""

    def train(self, model: Any, run: TrainingRun) -> Any:
        """Train until the monitor stops it, and go back to the best round."""
        switch_off_stopping(model)
        stages: Iterator[Predictions] = iter(())

        def look(i: int, growing: Any, variables: Any) -> bool:
            nonlocal stages
            if i == 0:
                stages = staged_predictions(growing, run.val.X)
            return not run.show(next(stages))

        fit(model.set_params(n_estimators=run.max_steps), run.rows, monitor=look)
        return self.restore(model, run)


class PassTrainer(Trainer):
    """Trains by passes over the data, and keeps a copy of the model made at the best step."""

    is_iterative = True

    def train(self, model: Any, run: TrainingRun) -> Any:
        """Pass over the data as long as the monitor wants; return the copy."""
        best = model
        for _ in _passes(model, run.rows, run.classes):
            goes_on = run.show(predictions_of(model, run.val.X))
            if run.monitor.best_step == run.step:
                best = deepcopy(model)
            if not goes_on:
                break
        return best

    def retrain(self, model: Any, rows: Rows, n_steps: int, like: Any) -> Any:
        """Pass over the data this many times."""
        for _ in islice(_passes(model, rows, np.unique(rows.y)), n_steps):
            pass
        return model


def _passes(model: Any, rows: Rows, classes: NDArray[Any]) -> Iterator[None]:
    """Train without end; pause after each pass."""
    switch_off_stopping(model)
    if getattr(model, "class_weight", None) == "balanced":  # which partial_fit cannot know
        weights = compute_class_weight("balanced", classes=classes, y=rows.y)
        model.set_params(class_weight=dict(zip(classes.tolist(), weights.tolist(), strict=True)))
    options = weights_for(model.partial_fit, rows)
    if takes(model.partial_fit, "classes"):
        options["classes"] = classes
    while True:
        model.partial_fit(rows.X, rows.y, **options)
        yield


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


def length_name(estimator: Any) -> str:
    """Return the parameter that sets the number of rounds."""
    params = estimator.get_params(deep=False)
    found = [name for name in LENGTHS if name in params]
    if not found:
        raise TypeError(
            f"{type(estimator).__name__} has stages, but neither n_estimators nor max_iter"
        )
    return found[0]


def switch_off_stopping(estimator: Any) -> None:
    """Switch off the early stopping of a scikit-learn estimator."""
    params = estimator.get_params(deep=False)
    if "early_stopping" in params:
        estimator.set_params(early_stopping=False)
    elif "n_iter_no_change" in params:
        estimator.set_params(n_iter_no_change=None)
