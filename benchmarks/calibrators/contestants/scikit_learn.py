"""scikit-learn's CalibratedClassifierCV around a model that is fitted already."""

from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from benchmarks.calibrators.contestants import Method, Part, Predict


class Scores(ClassifierMixin, BaseEstimator):
    """A classifier whose features are its own logits."""

    def __init__(self, k: int = 2) -> None:
        self.k = k
        self.classes_ = np.arange(k)

    def fit(self, X: Any, y: Any) -> "Scores":
        """Learn nothing."""
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Return the logits, in the shape that scikit-learn wants of two classes."""
        return X[:, 1] - X[:, 0] if self.k == 2 else X

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the likeliest classes."""
        return X.argmax(axis=1)


def fit(method: str, part: Part) -> Predict:
    """Fit on logits."""
    model = CalibratedClassifierCV(FrozenEstimator(Scores(part.k)), method=method)
    model.fit(part.logits, part.labels)
    return lambda new: model.predict_proba(new.logits)


METHODS: dict[str, Method] = {
    f"scikit-learn {method}": partial(fit, method)
    for method in ("sigmoid", "isotonic", "temperature")
}
