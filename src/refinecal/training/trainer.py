"""The one training loop: after each step, a monitor sees the validation predictions and says when to stop.

A step is a boosting round, an epoch, a pass over the data or one penalty. Steps are counted from 1
everywhere: step n is the model after n rounds. Only callbacks of :mod:`refinecal.integrations.xgboost` and
:mod:`~refinecal.integrations.lightgbm` count rounds from 0 in users' own loops, as those libraries do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from numpy.typing import NDArray
from sklearn.base import clone

from refinecal.stopping import RefinementMonitor
from refinecal.training.predictions import (
    Predictions,
    is_frozen,
    is_pipeline,
    library_of,
    predictions_of,
    smooth_zeros,
)
from refinecal.training.rows import Rows

# The best of those tried on 49 tables, averaged and chosen by refinement, within the libraries' own time.
DEFAULTS: dict[str, dict[str, Any]] = {
    "xgboost": {"learning_rate": 0.1, "colsample_bynode": 0.6},
}


@dataclass(slots=True)
class TrainingRun:
    """One run: rows to train on, rows to validate on, and the monitor that watches."""

    rows: Rows
    val: Rows
    classes: NDArray[Any]  # of the columns of predictions
    monitor: RefinementMonitor
    max_steps: int
    params: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    n_threads: int | None = None
    on_step: Callable[[int], None] | None = None  # for a progress bar
    step: int = 0  # how many were shown

    def show(self, found: Predictions | NDArray[Any]) -> bool:
        """Show the monitor the next step's validation predictions; return whether to continue."""
        if not isinstance(found, Predictions):
            found = Predictions("logits", found, "predict")
        found, _ = smooth_zeros(found, self.val.y, self.classes)
        self.step += 1
        self.monitor.update(
            self.val.y, **found.arguments, step=self.step, sample_weight=self.val.weights
        )
        if self.on_step is not None:
            self.on_step(self.step)
        return not self.monitor.should_stop and self.step < self.max_steps

    def follow(self, steps: Iterable[Predictions | NDArray[Any]]) -> bool:
        """Show step after step; return whether to continue when there are no more."""
        return all(self.show(found) for found in steps)

    def grow(self, fit_to: Callable[[int], Iterable[Any]], length: int, factor: float) -> None:
        """Train to growing numbers of rounds, and show each new one.

        ``fit_to(length)`` trains up to ``length`` rounds in all, and returns the predictions from step
        ``self.step + 1`` on.
        """
        length = min(length, self.max_steps)
        # A model with fewer rounds than asked for has no more to learn.
        while self.follow(fit_to(length)) and self.step == length:
            length = min(int(length * factor), self.max_steps)

    @property
    def best_steps(self) -> set[int]:
        """The best step so far by each of the monitor's metrics."""
        return {best.step for best in self.monitor.bests.values()}

    def find_best(self) -> int:
        """Return the number of the best step; complain if there is none."""
        if self.monitor.best_step is None:
            raise ValueError(
                f"metric {self.monitor.metric.name!r} was never a number on the {self.val.n} validation "
                "rows: it needs other rows, or the estimator's predictions are NaN"
            )
        return self.monitor.best_step


class Trainer:
    """Trains new estimators of one kind. This one fits them once; a frozen model ignores ``fit``."""

    is_iterative = False

    def train(self, model: Any, run: TrainingRun) -> Any:
        """Train a new model as long as the monitor wants; return it at its best step."""
        fit(model, run.rows)
        run.show(predictions_of(model, run.val.X))
        return model

    def retrain(self, model: Any, rows: Rows, n_steps: int, like: Any) -> Any:
        """Train a new model for this many steps, the number chosen for the model ``like``."""
        return fit(model, rows)


def train(model: Any, run: TrainingRun) -> Any:
    """Train a new model; of a pipeline, the transformers first, then the last step."""
    if not is_pipeline(model):
        return find_trainer(model).train(model, run)
    head, (name, last) = model[:-1], model.steps[-1]
    if len(head.steps):
        X = head.fit_transform(run.rows.X, run.rows.y)
        val = replace(run.val, X=head.transform(run.val.X))
        run = replace(run, rows=Rows(X, run.rows.y, run.rows.weights), val=val)
    model.steps = [*head.steps, (name, train(last, run))]
    return model


def retrain(model: Any, rows: Rows, n_steps: int, like: Any) -> Any:
    """Train a new model, or a pipeline that ends in one, for exactly this many steps."""
    if not is_pipeline(model):
        return find_trainer(model).retrain(model, rows, n_steps, like)
    head, (name, last) = model[:-1], model.steps[-1]
    if len(head.steps):
        rows = replace(rows, X=head.fit_transform(rows.X, rows.y))
    like = None if like is None else like.steps[-1][1]
    model.steps = [*head.steps, (name, retrain(last, rows, n_steps, like))]
    return model


def find_trainer(model: Any) -> Trainer:
    """Return what trains an estimator that is not a pipeline."""
    library = library_of(model)
    is_bayes = any(base.__module__ == "sklearn.naive_bayes" for base in type(model).__mro__)
    if is_frozen(model) or is_bayes:  # whose partial_fit would count the rows again
        return Trainer()
    if library in ("xgboost", "lightgbm", "catboost"):
        found: Trainer = import_module(f"refinecal.training.{library}").EstimatorTrainer()
        return found
    from refinecal.training.stages import CallbackTrainer, PassTrainer, StageTrainer

    if hasattr(model, "staged_decision_function") or hasattr(model, "staged_predict_proba"):
        return CallbackTrainer() if takes(model.fit, "monitor") else StageTrainer()
    return PassTrainer() if hasattr(model, "partial_fit") else Trainer()


# ---- estimators ------------------------------------------------------------------------------------------


def is_iterative(estimator: Any) -> bool:
    """Tell whether the model is trained in steps."""
    return find_trainer(last_of(estimator)).is_iterative


def last_of(model: Any) -> Any:
    """Return the classifier at the end of a pipeline, or of a pipeline within; else the model itself."""
    return last_of(model.steps[-1][1]) if is_pipeline(model) else model


def new_model(model: Any) -> Any:
    """Return a new model with the same parameters; a frozen one is returned as it is."""
    if is_pipeline(model):
        new = copy(model)
        new.steps = [(name, new_model(step)) for name, step in model.steps]
        return new
    if library_of(model) == "catboost":  # copies lists among its parameters, which clone refuses
        return type(model)(**model.get_params())
    return clone(model, safe=False)  # a step may be the word "passthrough"


def unset_defaults(model: Any) -> dict[str, Any]:
    """Return our defaults for what a user has left unset, which ``XGBClassifier`` marks by ``None``."""
    params = model.get_params()
    given = {name for name, value in params.items() if value is not None}
    if library_of(model) not in DEFAULTS or params.get("booster") not in (None, "gbtree"):
        return {}
    found = {
        name: value
        for name, value in DEFAULTS[library_of(model)].items()
        if name in params and name not in given
    }
    if "eta" in given:
        found.pop("learning_rate", None)
    samples = any(name.startswith("colsample_") for name in given)
    if samples or params.get("tree_method") == "exact":  # shares multiply; not by node there
        found.pop("colsample_bynode", None)
    return found


def takes(method: Any, name: str) -> bool:
    """Tell whether a method has a parameter of this name."""
    return name in inspect.signature(method).parameters


def fit(model: Any, rows: Rows, **options: Any) -> Any:
    """Fit a model to rows, with their weights if there are any."""
    return model.fit(rows.X, rows.y, **options, **weights_for(model.fit, rows))


def weights_for(method: Any, rows: Rows) -> dict[str, Any]:
    """Return the weights as a keyword of ``fit`` or ``partial_fit``, if there are any.

    A method that takes any keyword passes them to the models inside, or says itself that it cannot.
    """
    if rows.weights is None:
        return {}
    kinds = [parameter.kind for parameter in inspect.signature(method).parameters.values()]
    if not (takes(method, "sample_weight") or inspect.Parameter.VAR_KEYWORD in kinds):
        raise TypeError(
            f"{type(method.__self__).__name__}.{method.__name__} takes no sample_weight: omit it, or "
            "pass whole numbers of at most 4 on average, which are taken as repetitions"
        )
    return {"sample_weight": rows.weights}
