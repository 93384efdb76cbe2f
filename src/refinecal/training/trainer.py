"""The one training loop: after each step, a monitor sees the validation predictions and says when to stop.

A step is a boosting round, an epoch, a pass over the data or one penalty. Steps are counted from 1
everywhere: step n is the model after n rounds. Only callbacks of :mod:`refinecal.integrations.xgboost` and
:mod:`~refinecal.integrations.lightgbm` count rounds from 0 in users' own loops, as those libraries do.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import warn
from refinecal.metrics import Metric
from refinecal.stopping import RefinementMonitor
from refinecal.training.crossfit import BestStep, CrossFit, Ensemble, FoldModel
from refinecal.training.predictions import (
    Link,
    Predictions,
    identity_link,
    is_frozen,
    is_pipeline,
    library_of,
    link_of,
    predictions_of,
    show_label,
    smooth_zeros,
    some_rows,
)
from refinecal.training.rows import Parts, Rows

if TYPE_CHECKING:
    from refinecal.training.pool import Pool

# The best of those tried on 49 tables, averaged and chosen by refinement, within the libraries' own time.
DEFAULTS: dict[str, dict[str, Any]] = {"xgboost": {"learning_rate": 0.1, "colsample_bynode": 0.6}}
FIRST_STAGES = 64  # rounds before the first look; doubled as long as they still improve
PER_STAGE = ("_predictors", "estimators_", "estimator_weights_", "estimator_errors_")
SCORES = ("train_score_", "oob_improvement_", "oob_scores_")
LENGTHS = ("n_estimators", "max_iter")
ROUNDS = (*LENGTHS, "iterations")  # that training chooses itself
SEEDS = ("random_state", "random_seed", "seed")


@dataclass(slots=True)
class TrainingRun:
    """One run: rows to train on, rows to validate on, and the monitor that watches."""

    rows: Rows
    val: Rows
    classes: NDArray[
        Any
    ]  # of the columns of predictions; a table's labels are their positions here
    monitor: RefinementMonitor
    max_steps: int
    params: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    n_threads: int | None = None
    on_step: Callable[[int], None] | None = None  # for a progress bar
    seconds_left: Callable[[], float] | None = None  # if there is a deadline, after which it ends
    step: int = 0  # how many were shown

    def follow(self, steps: Iterable[Predictions | NDArray[Any]]) -> bool:
        """Show the monitor validation predictions step by step; return whether it still wants more."""
        for found in steps:
            if isinstance(found, Predictions):
                shown = smooth_zeros(found, self.val.y, self.classes)[0].arguments
            else:
                shown = {"logits": found}
            self.step += 1
            self.monitor.update(self.val.y, **shown, step=self.step, sample_weight=self.val.weights)
            if self.on_step is not None:
                self.on_step(self.step)
            if self.monitor.should_stop or self.step >= self.max_steps:
                return False
        return True

    def show(self, found: Predictions | NDArray[Any]) -> bool:
        """Show the next step alone, for models that call back after each."""
        return self.follow([found])

    def grow(self, fit_to: Callable[[int], Iterable[Any]], length: int, factor: float) -> None:
        """Train to growing numbers of rounds, and show each new one.

        ``fit_to(length)`` trains up to ``length`` rounds in all, and returns the predictions from step
        ``self.step + 1`` on.
        """
        length = min(length, self.max_steps)
        # A model with fewer rounds than asked for has no more to learn.
        while self.follow(fit_to(length)) and self.step == length:
            length = min(int(length * factor), self.max_steps)

    def keep_best(
        self, steps: Iterable[Any], predict: Callable[[], Any], copy_model: Callable[[], Any]
    ) -> dict[int, Any]:
        """Show each step of a model that keeps changing; return copies of the best step by each metric."""
        kept: dict[int, Any] = {}
        for _ in steps:
            continues = self.show(predict())
            best = {each.step for each in self.monitor.bests.values()}
            kept = {step: each for step, each in kept.items() if step in best}
            if self.step in best:
                kept[self.step] = copy_model()
            if not continues:
                break
        return kept

    def find_best(self) -> int:
        """Return the number of the best step; raise if there is none."""
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
    if hasattr(model, "staged_decision_function") or hasattr(model, "staged_predict_proba"):
        return CallbackTrainer() if takes(model.fit, "monitor") else StageTrainer()
    return PassTrainer() if hasattr(model, "partial_fit") else Trainer()


# ---- estimators --------------------------------------------------------------------------------------------


def check_known(y_val: NDArray[Any], classes: NDArray[Any]) -> None:
    """Refuse validation labels that the model cannot learn."""
    unknown = np.setdiff1d(y_val, classes)
    if unknown.size:
        raise ValueError(
            f"y_val holds {show_label(unknown[0])}, which y does not: the model cannot learn it. Drop these "
            "rows."
        )


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
    from sklearn.base import clone

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


# ---- scikit-learn's stages (boosting) and passes over the data (partial_fit) ------------------------------


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
            return self.retrain(new_model(model), run.rows, best, None)


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
        passes = _passes(model, run.rows, run.classes)
        kept = run.keep_best(
            passes, lambda: predictions_of(model, run.val.X), lambda: deepcopy(model)
        )
        return kept.get(run.monitor.best_step or 0, model)

    def retrain(self, model: Any, rows: Rows, n_steps: int, like: Any) -> Any:
        """Pass over the data this many times."""
        for _ in islice(_passes(model, rows, np.unique(rows.y)), n_steps):
            pass
        return model


def _passes(model: Any, rows: Rows, classes: NDArray[Any]) -> Iterator[None]:
    """Train without end; pause after each pass."""
    switch_off_stopping(model)
    if getattr(model, "class_weight", None) == "balanced":  # which partial_fit cannot know
        from sklearn.utils.class_weight import compute_class_weight

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


# ---- candidates on folds -----------------------------------------------------------------------------------


class Candidate(NamedTuple):
    """A classifier, and parameters to be set."""

    base: Any
    params: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What to call it, such as "LogisticRegression(C=1)"."""
        params = ", ".join(f"{name}={value!r}" for name, value in self.params.items())
        return type(last_of(self.base)).__name__ + (f"({params})" if params else "")


@dataclass(slots=True)
class EstimatorFolds(CrossFit):
    """Trains clones of the estimator of a :class:`RefineThenCalibrateClassifier`."""

    owner: Any  # with the parameters
    classes: NDArray[Any]
    candidates: Sequence[Candidate]
    seed: int
    metric: Metric
    n_first: int

    def search_pool(
        self, pairs: Sequence[tuple[Rows, Rows]], n_compared: int
    ) -> tuple[Pool, dict[str, list[FoldModel]]]:
        """Return a pool of the candidates, and the models of its members on all folds, the heaviest first."""
        from refinecal.training.pool import Pool

        names: dict[str, int] = {}
        found = {}
        for trained in self.train_all(pairs, len(self.candidates), n_compared):
            models = self.smooth(trained)
            name = self.candidates[models[0].candidate].name
            names[name] = names.get(name, 0) + 1
            name += f" {names[name]}" * (names[name] > 1)
            found[name] = self.join(models, "temperature"), models
        rows = pairs.rows if isinstance(pairs, Parts) else None
        pool = Pool.select(found, self.metric, self.classes, rows)
        members = {}
        for name in sorted(pool.groups, key=pool.weights.__getitem__, reverse=True):
            models = found[name][1]
            others = range(len(models), len(pairs))
            models += self.train_folds(pairs, models[0].candidate, others)
            members[name] = self.smooth(models)
        return pool, members

    def smooth(self, models: list[FoldModel]) -> list[FoldModel]:
        """Smooth the probabilities of models if one of them calls an observed label impossible."""
        zeros = [
            smooth_zeros(each.choices[self.metric.name].logits, each.y, self.classes[each.known])[1]
            for each in models
        ]
        n = sum(len(each.y) for each in models[: self.n_first]) if any(zeros) else 0
        return [replace(each, smoothing=n) for each in models]

    def join(self, models: list[FoldModel], calibrator: Any) -> Ensemble:
        """Calibrate models on the rows held out of each."""
        held_out = [each.held_out(self.metric.name, len(self.classes)) for each in models]
        known = [each.known for each in models]
        return Ensemble.fit(held_out, known, calibrator, self.classes, self.n_first)

    def median_step(self, models: list[FoldModel]) -> int:
        """Return how many steps to train a model on all rows for."""
        return int(np.median([each.choices[self.metric.name].step for each in models]))

    def retrain(self, models: list[FoldModel], rows: Rows) -> FoldModel:
        """Train a candidate on all rows."""
        first, n_steps = models[0], self.median_step(models)
        new = self.new_model(first.candidate)
        return replace(first, model=retrain(new, rows, n_steps, first.model))

    def new_model(self, candidate: int, fold: int = 0) -> Any:
        """Return a new estimator with its parameters, and another seed for each fold."""
        from sklearn.base import clone

        base, given = self.candidates[candidate]
        model, seed = new_model(base), self.seed
        params = given.items()
        model.set_params(**{name: clone(value, safe=False) for name, value in params})
        if self.owner.tuned_defaults:
            last = last_of(model)
            last.set_params(**unset_defaults(last))
        if is_frozen(last_of(model)):
            return model
        last, named = last_of(model), last_of(model).get_params()
        if library_of(last) == "catboost" and not any(name in named for name in SEEDS):
            last.set_params(random_seed=seed % 2**31)  # CatBoost does not list what is not set
        for name, value in model.get_params().items():
            word = name.rsplit("__", 1)[-1]
            if value is None and word == "random_state":
                model.set_params(**{name: (seed + fold) % 2**31})
            elif fold and word in SEEDS and isinstance(value, numbers.Integral):
                model.set_params(**{name: (int(value) + fold) % 2**31})
        return model

    def train(self, parts: Any, candidate: int, fold: int) -> FoldModel:
        """Train one candidate on one fold, back to its best step."""
        owner, (rows, val) = self.owner, parts[fold]
        monitor = RefinementMonitor(
            owner.metric,
            patience=owner.patience,
            min_delta=owner.min_delta,
            calibrator=owner.calibrator,
        )
        base = last_of(self.candidates[candidate].base)
        monitor.classes = known = np.asarray(
            base.classes_ if is_frozen(base) else np.unique(rows.y)
        )
        run = TrainingRun(rows, val, known, monitor, owner.max_steps)
        model = train(self.new_model(candidate, fold), run)
        n_steps = run.find_best()
        if is_iterative(model) and n_steps == owner.max_steps:
            from sklearn.exceptions import ConvergenceWarning

            message = f"the best step is the last of {owner.max_steps}: raise max_steps"
            warn(message, ConvergenceWarning)
        predictions = predictions_of(model, val.X)
        choices = {
            name: BestStep(best.step, best.value, predictions)
            for name, best in monitor.bests.items()
        }
        places = np.arange(val.n) if val.places is None else val.places
        columns = np.searchsorted(self.classes, known)
        about = (candidate, fold, columns, monitor.history, choices, model)
        return FoldModel(*about, val.y, val.weights, places, monitor)
