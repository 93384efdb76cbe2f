"""Predictions of a fitted scikit-learn-like classifier, as logits where it has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal._softmax import log_softmax

LOOKED_AT = 32  # rows on which to see whether decision_function gives logits

# The keywords that make `predict` of each library return margins.
MARGINS: dict[str, dict[str, Any]] = {
    "xgboost": {"output_margin": True},
    "lightgbm": {"raw_score": True},
    "catboost": {"prediction_type": "RawFormulaVal"},
}


class Predictions(NamedTuple):
    """Predictions for rows: ``kind`` says whether they are probs or logits, ``method`` where from."""

    kind: str
    values: NDArray[Any]
    method: str

    @property
    def probs(self) -> NDArray[Any]:
        """The predictions as probabilities ``(n, k)``."""
        values = self.values
        if self.kind == "probs":
            return values if values.ndim == 2 else np.stack([1 - values, values], axis=1)
        if values.ndim == 1:
            values = np.stack([np.zeros_like(values), values], axis=1)
        return np.asarray(np.exp(log_softmax(values)))

    @property
    def arguments(self) -> dict[str, Any]:
        """The predictions as keywords: ``{"probs": values}`` or ``{"logits": values}``."""
        return {self.kind: self.values}


def library_of(model: Any) -> str:
    """Return the name of the package that a model's class, or one it derives from, comes from."""
    packages = [base.__module__.split(".")[0] for base in type(model).__mro__]
    return next((name for name in packages if name in MARGINS), packages[0])


def predictions_of(model: Any, X: Any) -> Predictions:
    """Return logits if the model has them, else probabilities.

    ``decision_function`` gives logits if ``predict_proba`` is their softmax, or that of one against the
    rest; votes are neither. Models without probabilities are taken at their decision values.
    """
    margins = MARGINS.get(library_of(model))
    if margins is not None:
        return Predictions("logits", np.asarray(model.predict(X, **margins)), "predict")
    if hasattr(model, "steps"):  # a pipeline
        for _, step in model.steps[:-1]:
            X = X if step in (None, "passthrough") else step.transform(X)
        return predictions_of(model.steps[-1][1], X)
    decides, has_probs = hasattr(model, "decision_function"), hasattr(model, "predict_proba")
    if not (decides or has_probs):
        raise TypeError(
            f"{type(model).__name__} has neither predict_proba nor decision_function: use a classifier "
            "that gives probabilities"
        )
    link = _link(model, X) if decides and has_probs else as_they_are
    if decides and link is not None:
        return Predictions("logits", link(model.decision_function(X)), "decision_function")
    return Predictions("probs", np.asarray(model.predict_proba(X)), "predict_proba")


Link = Callable[[Any], NDArray[Any]]


def as_they_are(margins: Any) -> NDArray[Any]:
    """Return margins whose softmax is what the model calls its probabilities."""
    return np.asarray(margins)


def one_against_rest(margins: Any) -> NDArray[Any]:
    """Return the logs of the logistic function of each margin: up to a constant, log-probabilities."""
    from scipy.special import log_expit

    return np.asarray(log_expit(margins))


def link_of(margins: Any, probs: Any) -> Link | None:
    """Return what turns a model's margins into its logits; ``None`` if they have nothing to do with them."""
    margins, probs = np.asarray(margins), np.asarray(probs)
    for link in (as_they_are, one_against_rest):
        logits = link(margins)
        if logits.ndim == 1 or logits.shape[1] == 1:
            logits = logits.reshape(-1)
            logits = np.stack([np.zeros_like(logits), logits], axis=1)
        if logits.shape == probs.shape and np.allclose(
            np.exp(log_softmax(logits)), probs, rtol=1e-4, atol=1e-6
        ):
            return link
    return None


def _link(model: Any, X: Any) -> Link | None:
    some = first_rows(X)
    return link_of(model.decision_function(some), model.predict_proba(some))


def first_rows(X: Any) -> Any:
    """Return a few rows to look at."""
    from sklearn.utils import _safe_indexing
    from sklearn.utils.validation import _num_samples

    return _safe_indexing(X, np.arange(min(LOOKED_AT, _num_samples(X))))


def mended(found: Predictions, y: NDArray[Any], classes: NDArray[Any]) -> tuple[Predictions, int]:
    """Smooth probabilities if a label has probability 0, which no temperature mends.

    Forests and neighbours vote, and a vote of none is not impossibility: with n rows,
    ``n / (n + 1) * p + 1 / (n + 1) / k``, as the paper does after calibration. Return n too, 0 if unneeded.
    """
    if found.kind == "logits":
        return found, 0
    if (found.probs[np.arange(len(y)), np.searchsorted(classes, y)] > 0).all():
        return found, 0
    return smoothed(found, len(y)), len(y)


def smoothed(found: Predictions, n: int) -> Predictions:
    """Return probabilities mixed with the flat ones as if seen once beside n rows; n = 0 leaves them."""
    if n == 0:
        return found
    k = 2 if found.values.ndim == 1 else found.values.shape[1]
    return found._replace(values=n / (n + 1) * found.values + 1 / (n + 1) / k)


def widened(probs: NDArray[Any], known: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """Return one column for each of ``classes``, in order: 0 for those not known."""
    if len(known) == len(classes):
        return probs
    wide = np.zeros((len(probs), len(classes)), dtype=probs.dtype)
    wide[:, np.searchsorted(classes, known)] = probs
    return wide
