"""Predictions of a fitted scikit-learn-like classifier, as logits where it has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import log_softmax

LOOKED_AT = 32  # rows on which to see what a model's margins are
# Fraction of these rows that may have tied votes, where predict and the margins disagree
MOST_TIES = 0.25

# The keywords that make `predict` of each library return margins.
MARGINS: dict[str, dict[str, Any]] = {
    "xgboost": {"output_margin": True},
    "lightgbm": {"raw_score": True},
    "catboost": {"prediction_type": "RawFormulaVal"},
}
NO_PROBABILITIES = ("binary:hinge", "binary:logitraw")  # objectives of XGBoost that give none


Link = Callable[[Any], NDArray[Any]]


class Predictions(NamedTuple):
    """Predictions for rows: ``kind`` says whether they are probs or logits, ``method`` where from.

    ``link`` is what made logits of the model's margins.
    """

    kind: str
    values: NDArray[Any]
    method: str
    link: Link | None = None

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
    def logits(self) -> NDArray[Any]:
        """The predictions as logits: of probabilities, the logarithms."""
        if self.kind == "logits":
            return self.values
        with np.errstate(divide="ignore"):
            return np.log(np.asarray(self.probs, dtype=np.float64))

    @property
    def arguments(self) -> dict[str, Any]:
        """The predictions as keywords: ``{"probs": values}`` or ``{"logits": values}``."""
        return {self.kind: self.values}


# ---- what a model is ------------------------------------------------------------------------------------


def library_of(model: Any) -> str:
    """Return the name of the package that a model's class, or one it derives from, comes from."""
    packages = [base.__module__.split(".")[0] for base in type(model).__mro__]
    return next((name for name in packages if name in MARGINS), packages[0])


def is_frozen(model: Any) -> bool:
    """Tell whether a model is fitted for good; it then forwards all its other methods."""
    from sklearn.frozen import FrozenEstimator

    return isinstance(model, FrozenEstimator)


def is_pipeline(model: Any) -> bool:
    """Tell whether a model is a pipeline, whose last step is the classifier."""
    return hasattr(model, "steps") and not is_frozen(model)


def show_label(label: Any) -> str:
    """Return a label as its user would write it."""
    return repr(label.item() if isinstance(label, np.generic) else label)


# ---- what it predicts -----------------------------------------------------------------------------------


def predictions_of(model: Any, X: Any, like: Predictions | None = None) -> Predictions:
    """Return logits if the model has them, else probabilities; the same as before if ``like`` is given.

    Margins (``decision_function``, or a boosting library's raw scores) are logits if ``predict_proba`` is
    their softmax, or their one-vs-rest probabilities; votes are neither. For models without probabilities,
    decision values are taken as logits if the largest one decides the prediction.
    """
    if is_frozen(model):
        return predictions_of(model.estimator, X, like)
    if is_pipeline(model):
        for _, step in model.steps[:-1]:
            X = X if step in (None, "passthrough") else step.transform(X)
        return predictions_of(model.steps[-1][1], X, like)
    margins_of, method = getattr(model, "decision_function", None), "decision_function"
    if (keywords := MARGINS.get(library_of(model))) is not None:
        margins_of, method = partial(model.predict, **keywords), "predict"
    link = None if like is None else like.link
    if like is None and margins_of is not None:
        link = _link(model, margins_of, X)
    if margins_of is not None and link is not None:
        return Predictions("logits", link(margins_of(X)), method, link)
    if not hasattr(model, "predict_proba"):
        raise TypeError(
            f"{type(model).__name__} has neither predict_proba nor decision_function: use a classifier "
            "that gives probabilities"
        )
    return Predictions("probs", probabilities_of(model, X), "predict_proba")


def probabilities_of(model: Any, X: Any) -> NDArray[Any]:
    """Return ``predict_proba``, scaled to sum to 1, which libraries skip for one-vs-rest."""
    probs = np.asarray(model.predict_proba(X))
    return probs / probs.sum(axis=1, keepdims=True) if library_of(model) in MARGINS else probs


def identity_link(margins: Any) -> NDArray[Any]:
    """Return margins whose softmax is what the model calls its probabilities."""
    return np.asarray(margins)


def one_vs_rest_link(margins: Any) -> NDArray[Any]:
    """Return the logs of the logistic function of each margin: up to a constant, log-probabilities."""
    from scipy.special import log_expit

    return np.asarray(log_expit(margins))


def link_of(margins: Any, probs: Any) -> Link | None:
    """Return the function from a model's margins to its logits; ``None`` if there is none."""
    margins, probs = np.asarray(margins), np.asarray(probs)
    # Not only for the likely classes: where a model is sure, all links give it probability 1.
    exact = 100 * np.finfo(np.result_type(probs, np.float32)).eps
    for link in (identity_link, one_vs_rest_link):
        logits = link(margins)
        if logits.ndim == 1 or logits.shape[1] == 1:
            logits = logits.reshape(-1)
            logits = np.stack([np.zeros_like(logits), logits], axis=1)
        if logits.shape == probs.shape and np.allclose(
            np.exp(log_softmax(logits)), probs, rtol=1e-4, atol=exact
        ):
            return link
    return None


def _link(model: Any, margins_of: Callable[[Any], Any], X: Any) -> Link | None:
    some = some_rows(X)
    if library_of(model) in MARGINS:
        objective = model.get_params().get("objective")
        if callable(objective) or objective in NO_PROBABILITIES:
            return identity_link
    elif not hasattr(model, "predict_proba"):
        _check_decision(model, np.asarray(margins_of(some)), some)
        return identity_link
    return link_of(margins_of(some), probabilities_of(model, some))


def _check_decision(model: Any, values: NDArray[Any], X: Any) -> None:
    """Refuse decision values that are not one for each class, such as those of pairs of classes."""
    classes = np.asarray(model.classes_)
    several = values.ndim == 2
    if not several or values.shape[1] == len(classes):
        decided = classes[values.argmax(axis=1) if several else (values > 0).astype(np.int64)]
        wrong = np.mean(decided != np.asarray(model.predict(X)))
        pairs = several and getattr(model, "decision_function_shape", None) == "ovo"
        if wrong <= MOST_TIES and not pairs:
            return
    raise ValueError(
        f"decision_function of {type(model).__name__} does not give one value for each of its "
        f"{len(classes)} classes, of which the largest decides: if these are pairs of classes, set "
        'decision_function_shape="ovr"'
    )


def some_rows(X: Any) -> Any:
    """Return a few rows, spread over the table."""
    from sklearn.utils import _safe_indexing
    from sklearn.utils.validation import _num_samples

    n = _num_samples(X)
    return _safe_indexing(X, np.linspace(0, n - 1, min(LOOKED_AT, n)).astype(np.int64))


# ---- probabilities of 0 ---------------------------------------------------------------------------------


def smooth_zeros(
    found: Predictions, y: NDArray[Any], classes: NDArray[Any]
) -> tuple[Predictions, int]:
    """Smooth probabilities if an observed label has probability 0, which no temperature corrects.

    Forests and nearest neighbors vote, and no vote does not mean impossible: with n rows,
    ``n / (n + 1) * p + 1 / (n + 1) / k``, as the paper does after calibration. Return n too, 0 if unneeded.
    """
    if found.kind == "logits":
        return found, 0
    order = np.argsort(classes)
    columns = order[np.searchsorted(classes, y, sorter=order)]
    if (found.probs[np.arange(len(y)), columns] > 0).all():
        return found, 0
    return smooth(found, len(y)), len(y)


def smooth(found: Predictions, n: int) -> Predictions:
    """Mix probabilities with the uniform ones, weighted as one row next to n; n = 0 changes nothing."""
    if n == 0 or found.kind == "logits":
        return found
    k = 2 if found.values.ndim == 1 else found.values.shape[1]
    return found._replace(values=n / (n + 1) * found.values + 1 / (n + 1) / k)


def logits_of_votes(votes: NDArray[np.float64], n_val: int) -> NDArray[np.float64]:
    """Return logits, or log-odds of two classes, from sums of votes; no vote does not mean impossible."""
    shares = Predictions("probs", votes / votes.sum(axis=1, keepdims=True), "votes")
    logits = smooth(shares, n_val).logits
    return np.asarray(logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits)
