"""A model that has been trained, with all it takes to predict with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._ensemble import HeldOut, all_classes
from refinecal._predictions import Predictions, predictions_of, smoothed
from refinecal._rows import Rows
from refinecal.stopping import RefinementMonitor


@dataclass(frozen=True, slots=True)
class Trained:
    """A model at its best step, and all it takes to predict with it."""

    estimator: Any
    monitor: RefinementMonitor
    known: NDArray[Any]  # the classes of its training rows
    like: Predictions  # how its predictions are had; without values
    smoothing: int  # see refinecal._predictions.mended
    params: dict[str, Any]
    n_steps: int
    size: float  # of its validation rows

    @property
    def value(self) -> float:
        assert self.monitor.best_value is not None, "checked by _train"
        return self.monitor.best_value

    def columns(self, classes: NDArray[Any]) -> NDArray[np.int64]:
        """Return which of all classes the model knows."""
        return np.searchsorted(classes, self.known)

    def logits(self, X: Any, classes: NDArray[Any]) -> NDArray[Any]:
        """Return uncalibrated log-probabilities of all classes."""
        found = smoothed(predictions_of(self.estimator, X, self.like), self.smoothing)
        if found.kind == "logits":
            return all_classes(found.values, self.columns(classes), len(classes))
        with np.errstate(divide="ignore"):
            logs = np.log(np.asarray(found.probs, dtype=np.float64))
        return all_classes(logs, self.columns(classes), len(classes))

    def held_out(self, val: Rows, classes: NDArray[Any]) -> HeldOut:
        """Return what the model says of its validation rows."""
        places = np.arange(val.n) if val.places is None else val.places
        return HeldOut(self.logits(val.X, classes), val.y, val.weights, places)
