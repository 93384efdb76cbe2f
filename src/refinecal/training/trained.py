"""A model that has been trained, with all it takes to predict with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal.stopping import RefinementMonitor
from refinecal.training.pool import HeldOut, all_classes
from refinecal.training.predictions import Predictions, predictions_of, smooth


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model at its best step, and all it takes to predict with it."""

    estimator: Any
    known: NDArray[Any]  # the classes of its training rows
    like: Predictions  # how its predictions are had; without values
    smoothing: int  # see refinecal.training.predictions.smooth_zeros
    params: dict[str, Any]
    n_steps: int

    def columns(self, classes: NDArray[Any]) -> NDArray[np.int64]:
        """Return which of all classes the model knows."""
        return np.searchsorted(classes, self.known)

    def logits(self, X: Any, classes: NDArray[Any]) -> NDArray[Any]:
        """Return uncalibrated log-probabilities of all classes."""
        return self.logits_of(predictions_of(self.estimator, X, self.like), classes)

    def logits_of(self, found: Predictions, classes: NDArray[Any]) -> NDArray[Any]:
        """Return its predictions as log-probabilities of all classes."""
        found = smooth(found, self.smoothing)
        values = found.values
        if found.kind != "logits":
            with np.errstate(divide="ignore"):
                values = np.log(np.asarray(found.probs, dtype=np.float64))
        return all_classes(values, self.columns(classes), len(classes))


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """What a model went through, and what it predicts for its validation rows in the end."""

    monitor: RefinementMonitor
    predictions: Predictions
    y: NDArray[Any]
    weights: NDArray[np.float64] | None
    places: NDArray[np.int64] | None

    @property
    def value(self) -> float:
        """The metric at the best step."""
        assert self.monitor.best_value is not None, "there is a best step"
        return self.monitor.best_value

    @property
    def size(self) -> float:
        """The number of validation rows, each counted as often as its weight says."""
        return float(len(self.y) if self.weights is None else self.weights.sum())

    def held_out(self, model: TrainedModel, classes: NDArray[Any]) -> HeldOut:
        """Return them in the terms of an ensemble."""
        places = np.arange(len(self.y)) if self.places is None else self.places
        return HeldOut(model.logits_of(self.predictions, classes), self.y, self.weights, places)
