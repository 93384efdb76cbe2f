"""An ensemble: one calibrator for all models, and the sharpened mean of their probabilities.

The mean of calibrated models is underconfident: errors that they do not share cancel. How much sharper it
should be follows from how far models disagree on rows that none of them was trained on; labels are not
needed. Take the log-odds of a calibrated model, relative to the class frequencies, as a part that all models
share, of variance c, and a separate error, of variance o. To be calibrated, the model has shrunk them by
c / (c + o); the mean of m models needs to be shrunk by c / (c + o / m) only. The quotient of the two is the
inverse temperature that the mean needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import log_softmax
from refinecal.calibrators.base import Calibrator
from refinecal.calibrators.registry import as_calibrator
from refinecal.metrics import Metric

UNKNOWN = -30.0  # log-probability of a class that a model has not seen, before calibration
SMALLEST = 1e-9  # probabilities are clipped here before taking logarithms
MOST = 1.5  # largest inverse temperature of a mean
PRIOR_ROWS = (
    300  # this many rows halve the sharpening: a calibrator fitted to few rows is unreliable
)
MOST_ROWS = 20_000  # on which disagreement is measured
HUGE = 1e300  # a logit that stands for an infinite one

Floats = NDArray[Any]


# ---- which candidate ------------------------------------------------------------------------------------


class FoldRecord(Protocol):
    """A model that was trained on one fold."""

    @property
    def values(self) -> Mapping[str, float]:
        """The best value of each metric on its validation rows."""

    @property
    def size(self) -> float:
        """The total weight of these rows."""


Record = TypeVar("Record", bound=FoldRecord)


def choose(
    candidates: Iterable[list[Record]], metrics: Iterable[Metric]
) -> dict[str, tuple[float, list[Record]]]:
    """Return, for each metric, the best mean over folds, and the folds of the candidate that has it.

    A metric that was never a number on some fold, such as AUROC where there is one class, chooses nothing.
    """
    best: dict[str, tuple[float, list[Record]]] = {}
    for records in candidates:
        sizes = [each.size for each in records]
        for metric in metrics:
            if all(metric.name in each.values for each in records):
                values = [each.values[metric.name] for each in records]
                value = float(np.average(values, weights=sizes))
                if metric.name not in best or metric.better(value, best[metric.name][0]):
                    best[metric.name] = value, records
    return best


# ---- how far models disagree -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Variances of calibrated log-odds on new rows: of what models share, and of what each has alone."""

    shared: float
    own: float

    @classmethod
    def measure(
        cls, probs: Sequence[Floats], frequencies: Floats, weights: Floats | None = None
    ) -> Disagreement:
        """Compare the calibrated probabilities ``(n, k)`` of several models for the same new rows."""
        some = slice(None, None, 1 + len(probs[0]) // MOST_ROWS)
        weights = None if weights is None else weights[some]
        prior = np.log(frequencies)
        logs = np.log(np.maximum([each[some] for each in probs], SMALLEST)) - prior
        mean = logs.mean(axis=0)
        shares = np.exp(log_softmax(mean + prior))

        def variance(logs: Floats) -> float:
            """Return the mean over rows of the variance over classes, each with its share."""
            centered = logs - np.sum(shares * logs, axis=1, keepdims=True)
            return float(np.average(np.sum(shares * centered**2, axis=1), weights=weights))

        m = len(logs)
        own = float(np.mean([variance(each - mean) for each in logs])) * m / (m - 1)
        return cls(max(variance(mean) - own / m, 0.0), own)

    def sharpening(self, m: int, n: float = np.inf) -> float:
        """Return the inverse temperature of the mean of ``m`` models, calibrated by ``n`` rows."""
        rest = self.shared + self.own / m
        if m == 1 or not rest > 0:
            return 1.0
        asked = min((self.shared + self.own) / rest, MOST)
        return float(1 + (asked - 1) / (1 + PRIOR_ROWS / n))


# ---- held-out predictions ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The rows held out of a model's training, and its predictions for them."""

    logits: Floats  # of all classes, see all_classes
    y: NDArray[Any]
    weights: NDArray[np.float64] | None
    places: NDArray[np.int64]


def all_classes(logits: Floats, known: NDArray[np.int64], k: int) -> Floats:
    """Return log-probabilities ``(n, k)`` of all classes from log-odds or logits of the known ones."""
    logits = np.clip(np.asarray(logits, dtype=np.float64), -HUGE, HUGE)
    if logits.ndim == 1:
        logits = np.stack([np.zeros_like(logits), logits], axis=1)
    found = log_softmax(logits)
    if np.array_equal(known, np.arange(k)):
        return np.asarray(found)
    wide = np.full((len(logits), k), UNKNOWN)
    wide[:, known] = found
    return wide


# ---- the models together -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Several models, calibrated and averaged.

    Attributes
    ----------
    calibrator : Calibrator
        One for all of them.
    known : tuple of ndarray
        The columns of the classes that each model knows.
    frequencies : ndarray of shape (k,)
        Of the classes; the mean is sharpened relative to them.
    beta : float or None
        The inverse temperature of the mean. ``None`` if it is not known how far models disagree: then the
        mean is the geometric one, which is sharper where they do.
    """

    calibrator: Calibrator
    known: tuple[NDArray[np.int64], ...]
    frequencies: Floats
    beta: float | None = 1.0

    @classmethod
    def fit(
        cls,
        held_out: Sequence[HeldOut],
        known: Iterable[NDArray[np.int64]],
        calibrator: Any,
        classes: Any,
        n_first: int | None = None,
    ) -> Ensemble:
        """Calibrate models on the rows held out of each, and sharpen their mean.

        Parameters
        ----------
        held_out : sequence of HeldOut
            Of each model.
        known : iterable of ndarray
            The columns of the classes that each model knows.
        calibrator
            As for :func:`decompose`.
        classes
            The labels, in the order of the columns.
        n_first : int, optional
            Each row was held out of one of the first ``n_first`` models, by default of one of all. If rows
            were held out of later models too, they count once for each, and show how far models disagree.
        """
        y = np.concatenate([part.y for part in held_out])
        logits = np.concatenate([part.logits for part in held_out])
        given = [part.weights for part in held_out if part.weights is not None]
        weights = np.concatenate(given) if given else None
        fitted = as_calibrator(calibrator).fit_logits(logits, y, weights, classes=classes)
        each = np.ones(len(y)) if weights is None else weights
        counts = np.array([each[y == label].sum() for label in classes])
        counts = np.maximum(counts, each.mean())  # one row of a class that was never held out
        ensemble = cls(fitted, tuple(known), counts / counts.sum())
        if len(held_out) == 1:
            return ensemble
        if n_first is None or n_first >= len(held_out):
            return replace(ensemble, beta=None)
        places = np.concatenate([part.places for part in held_out])
        disagreement = ensemble._disagreement_of_two(held_out, n_first)
        return ensemble.sharpen(disagreement, len(np.unique(places[each > 0])))

    def sharpen(self, disagreement: Disagreement, n: float) -> Ensemble:
        """Return the same models with a mean sharpened by their disagreement; n rows calibrate them."""
        return replace(self, beta=disagreement.sharpening(len(self.known), n))

    def predict_proba(self, logits: Iterable[Floats]) -> Floats:
        """Return probabilities from the logits ``(n, k)`` of each model, taken one by one."""
        pairs = zip(logits, self.known, strict=True)
        found = average(
            (self.calibrate(each, known) for each, known in pairs), self.known, self.beta
        )
        if self.beta is None or self.beta == 1:
            return found
        with np.errstate(divide="ignore"):
            logs = self.beta * np.log(found) + (1 - self.beta) * np.log(self.frequencies)
        return np.asarray(np.exp(log_softmax(logs)))

    def calibrate(self, logits: Floats, known: NDArray[np.int64]) -> Floats:
        """Return the calibrated probabilities of one model; 0 for classes that it does not know."""
        probs = self.calibrator.predict_proba_logits(logits)
        if len(known) == len(self.frequencies):
            return probs
        kept = np.zeros_like(probs)
        kept[:, known] = probs[:, known]
        return np.asarray(kept / np.maximum(kept.sum(axis=1, keepdims=True), SMALLEST))

    def disagreement(self, logits: Sequence[Floats], weights: Floats | None = None) -> Disagreement:
        """Measure how far models disagree on rows that were not used to train any of them."""
        pairs = zip(logits, self.known, strict=True)
        probs = [self.calibrate(each, known) for each, known in pairs]
        return Disagreement.measure(probs, self.frequencies, weights)

    def _disagreement_of_two(self, held_out: Sequence[HeldOut], n_first: int) -> Disagreement:
        """Measure it on the rows that were held out of one of the first models and of one of the others."""
        probs, places = [], []
        for some in (slice(n_first), slice(n_first, None)):
            parts = list(zip(held_out, self.known, strict=True))[some]
            probs.append(np.concatenate([self.calibrate(p.logits, known) for p, known in parts]))
            places.append(np.concatenate([part.places for part, _ in parts]))
        order = np.argsort(places[1], kind="stable")
        found = np.searchsorted(places[1], places[0], sorter=order)
        second = order[np.minimum(found, len(order) - 1)]
        in_both = places[1][second] == places[0]
        weights = None
        if held_out[0].weights is not None:
            given = [np.asarray(part.weights) for part in held_out[:n_first]]
            weights = np.concatenate(given)[in_both]
        both = [probs[0][in_both], probs[1][second[in_both]]]
        return Disagreement.measure(both, self.frequencies, weights)


def average(
    probs: Iterable[Floats], known: Sequence[NDArray[np.int64]], beta: float | None = 1.0
) -> Floats:
    """Return the mean of several models' probabilities ``(n, k)``; the geometric one if beta is ``None``.

    A model does not count for classes that it does not know.
    """
    total: Any = 0.0
    count: Any = 0
    for each, columns in zip(probs, known, strict=True):
        if len(known) == 1:
            return each
        values = each if beta is not None else np.log(np.maximum(each, SMALLEST))
        counts = np.isin(np.arange(each.shape[1]), columns)
        total, count = total + np.where(counts, values, 0), count + counts
    means = np.asarray(total / np.maximum(count, 1))
    if beta is None:
        return np.asarray(np.exp(log_softmax(np.where(count > 0, means, -np.inf))))
    return np.asarray(means / means.sum(axis=1, keepdims=True))
