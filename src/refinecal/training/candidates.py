"""Estimators as candidates: trained on folds, chosen or pooled, for ``RefineThenCalibrateClassifier``."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from refinecal._core.errors import warn
from refinecal.metrics import Metric
from refinecal.stopping import RefinementMonitor
from refinecal.training.crossfit import BestStep, CrossFit, Ensemble, FoldModel
from refinecal.training.pool import Pool
from refinecal.training.predictions import is_frozen, library_of, predictions_of, smooth_zeros
from refinecal.training.rows import Parts, Rows
from refinecal.training.trainer import (
    TrainingRun,
    is_iterative,
    last_of,
    new_model,
    retrain,
    train,
    unset_defaults,
)

SEEDS = ("random_state", "random_seed", "seed")


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
        names: dict[str, int] = {}
        found = {}
        for trained in self.train_all(pairs, len(self.candidates), n_compared):
            models = self.smooth(trained)
            name = self.candidates[models[0].candidate].name
            names[name] = names.get(name, 0) + 1
            name += f" {names[name]}" * (names[name] > 1)
            found[name] = self.join(models, "temperature"), models
        groups = pairs.rows.groups if isinstance(pairs, Parts) else None
        pool = Pool.select(found, self.metric, self.classes, groups)
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
