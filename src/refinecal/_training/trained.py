"""A model that has been trained, with all it takes to predict with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._calibrator import Calibrator
from refinecal._predictions import Predictions, predictions_of, smoothed, widened
from refinecal.stopping import RefinementMonitor


@dataclass(frozen=True, slots=True)
class Trained:
    """A model at its best step, and all it takes to predict with it."""

    estimator: Any
    monitor: RefinementMonitor
    calibrator: Any
    known: NDArray[Any]  # the classes of its training rows
    like: Predictions  # how its predictions are had; without values
    smoothing: int  # see refinecal._predictions.mended
    params: dict[str, Any]
    n_steps: int

    @property
    def value(self) -> float:
        assert self.monitor.best_value is not None, "checked by _train"
        return self.monitor.best_value

    def predictions(self, X: Any) -> Predictions:
        return smoothed(predictions_of(self.estimator, X, self.like), self.smoothing)

    def logits(self, X: Any, classes: NDArray[Any]) -> NDArray[Any]:
        """Return uncalibrated logits of all classes; -inf for a class that the model does not know."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(widened(self.predictions(X).probs, self.known, classes)))

    def proba(self, X: Any, classes: NDArray[Any]) -> NDArray[Any]:
        """Return calibrated probabilities of all classes; 0 for a class that the model does not know."""
        found = self.predictions(X)
        if not isinstance(self.calibrator, Calibrator):
            probs = np.asarray(self.calibrator.predict_proba(found.probs))
        elif found.kind == "logits":
            probs = self.calibrator.predict_proba_logits(found.values)
        else:
            probs = self.calibrator.predict_proba(found.values)
        return widened(probs, self.known, classes)
