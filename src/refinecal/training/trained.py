"""A model that has been trained, with all it takes to predict with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal.stopping import RefinementMonitor
from refinecal.training.pool import HeldOut, all_classes
from refinecal.training.predictions import Predictions, predictions_of, smooth
from refinecal.training.rows import Rows


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
    """A trained model with its history and its predictions for the validation rows."""

    candidate: int
    model: TrainedModel
    monitor: RefinementMonitor
    predictions: Predictions
    val: Rows

    @property
    def values(self) -> dict[str, float]:
        """The metric at the best step."""
        return {name: best.value for name, best in self.monitor.bests.items()}

    @property
    def size(self) -> float:
        """The total weight of the validation rows."""
        return self.val.total

    def held_out(self, model: TrainedModel, classes: NDArray[Any]) -> HeldOut:
        """Return the validation rows with the model's predictions, smoothed as for new rows."""
        val = self.val
        places = np.arange(val.n) if val.places is None else val.places
        return HeldOut(model.logits_of(self.predictions, classes), val.y, val.weights, places)
