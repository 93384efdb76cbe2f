"""Several models as one: one calibrator for all, the mean of their probabilities, one temperature for it.

The mean of calibrated models is less sure than it may be: what they err in separately cancels. How much
sharper it should be follows from how far they disagree on rows that none of them was trained on, without
labels. Let the calibrated log-odds of each model be a common part and an error of its own. A calibrated
model has shrunk its log-odds by common / (common + own), in variances; the mean of m models would have to be
shrunk by common / (common + own / m) only. The quotient is the inverse temperature that the mean needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._calibrator import Calibrator
from refinecal._softmax import log_softmax
from refinecal.decomposition import decompose

UNKNOWN = -30.0  # log-probability of a class that a model does not know, before calibration
SMALLEST = 1e-9  # probability whose logarithm counts
MOST = 2.0  # inverse temperature of a mean

Floats = NDArray[Any]


# ---- how far models disagree -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Variances of calibrated log-odds on new rows: what models have in common, and what each has alone."""

    common: float
    own: float

    @classmethod
    def of(cls, probs: Sequence[Floats], weights: Floats | None = None) -> Disagreement:
        """Measure it on calibrated probabilities ``(n, k)`` of several models for the same new rows."""
        logs = np.log(np.maximum(np.stack(probs), SMALLEST))
        mean = logs.mean(axis=0)
        shares = np.exp(log_softmax(mean))

        def variance(logs: Floats) -> float:
            """Return the mean over rows of the variance over classes, each with its share."""
            centred = logs - np.sum(shares * logs, axis=1, keepdims=True)
            return float(np.average(np.sum(shares * centred**2, axis=1), weights=weights))

        m = len(logs)
        own = float(np.mean([variance(each - mean) for each in logs])) * m / (m - 1)
        return cls(variance(mean) - own / m, own)

    def sharpening(self, m: int) -> float:
        """Return the inverse temperature that the mean of ``m`` models needs."""
        common, rest = max(self.common, 0.0), self.own / m
        if m == 1 or not common + rest > 0:
            return 1.0
        return min((common + self.own) / (common + rest), MOST)


TYPICAL = Disagreement(common=1.0, own=0.09)  # the median of tables, where it cannot be measured


# ---- what models say of rows that were held out ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What a model says of the rows held out of its training, and what they are."""

    logits: Floats  # of all classes, see all_classes
    y: NDArray[Any]
    weights: NDArray[np.float64] | None
    places: NDArray[np.int64]


def all_classes(logits: Floats, known: NDArray[np.int64], k: int) -> Floats:
    """Return log-probabilities ``(n, k)`` of all classes from log-odds or logits of the known ones."""
    logits = np.asarray(logits, dtype=np.float64)
    if logits.ndim == 1:
        logits = np.stack([np.zeros_like(logits), logits], axis=1)
    found = log_softmax(logits)
    if len(known) == k:
        return np.asarray(found)
    wide = np.full((len(logits), k), UNKNOWN)
    wide[:, known] = found
    return wide


def fit_calibrator(parts: Sequence[HeldOut], calibrator: Any, classes: Any) -> Any:
    """Return one calibrator for all models: fitted to what each says of the rows held out of it."""
    weights = [part.weights for part in parts if part.weights is not None]
    return decompose(
        np.concatenate([part.y for part in parts]),
        logits=np.concatenate([part.logits for part in parts]),
        calibrator=calibrator,
        sample_weight=np.concatenate(weights) if weights else None,
        classes=classes,
    ).calibrator


# ---- the models together -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The calibrator of several models, the columns that each knows, and how sharp their mean is."""

    calibrator: Any
    known: tuple[NDArray[np.int64], ...]
    k: int
    beta: float = 1.0

    @classmethod
    def fit(
        cls,
        held_out: Sequence[HeldOut],
        known: Iterable[NDArray[np.int64]],
        calibrator: Any,
        classes: Any,
        n_first: int | None = None,
        new: Sequence[Floats] = (),
    ) -> Ensemble:
        """Calibrate several models, and their mean.

        Parameters
        ----------
        held_out : sequence of HeldOut
            Of each model.
        known : iterable of ndarray
            The columns that each model knows.
        calibrator
            As for :func:`decompose`.
        classes
            The labels, in the order of the columns.
        n_first : int, optional
            The number of models of which each row was held out once; rows were held out of others again. By
            default all.
        new : sequence of ndarray, default ()
            Logits ``(n, k)`` of each model for rows that none was trained on, if there are such rows.
        """
        fitted = fit_calibrator(held_out[:n_first], calibrator, classes)  # each row once
        found = cls(fitted, tuple(known), len(classes))
        m = len(held_out)
        return found.sharpened(found._disagreement(held_out, n_first, new).sharpening(m))

    def sharpened(self, beta: float) -> Ensemble:
        """Return the same models with another inverse temperature of their mean."""
        return Ensemble(self.calibrator, self.known, self.k, beta)

    def predict_proba(self, logits: Sequence[Floats]) -> Floats:
        """Return probabilities from the logits ``(n, k)`` of each model."""
        found = [
            self.calibrated(each, known) for each, known in zip(logits, self.known, strict=True)
        ]
        return sharpened(mean_of(found, self.known), self.beta)

    def calibrated(self, logits: Floats, known: NDArray[np.int64]) -> Floats:
        """Return the calibrated probabilities of one model; 0 for classes that it does not know."""
        if isinstance(self.calibrator, Calibrator):
            probs = self.calibrator.predict_proba_logits(logits)
        else:
            probs = np.asarray(self.calibrator.predict_proba(np.exp(log_softmax(logits))))
        if len(known) == self.k:
            return probs
        kept = np.zeros_like(probs)
        kept[:, known] = probs[:, known]
        return np.asarray(kept / np.maximum(kept.sum(axis=1, keepdims=True), SMALLEST))

    def disagreement(self, logits: Sequence[Floats]) -> Disagreement:
        """Return how far the models disagree on rows that none of them was trained on."""
        pairs = zip(logits, self.known, strict=True)
        return Disagreement.of([self.calibrated(each, known) for each, known in pairs])

    def _disagreement(
        self, held_out: Sequence[HeldOut], n_first: int | None, new: Sequence[Floats]
    ) -> Disagreement:
        """Measure it on new rows, or on rows that were held out of two models."""
        if len(held_out) > 1 and len(new):
            return self.disagreement(new)
        if n_first is None or n_first == len(held_out):
            return TYPICAL
        probs, places = [], []
        for some in (slice(n_first), slice(n_first, None)):
            parts = list(zip(held_out, self.known, strict=True))[some]
            probs.append(np.concatenate([self.calibrated(p.logits, known) for p, known in parts]))
            places.append(np.concatenate([part.places for part, _ in parts]))
        order = np.argsort(places[1], kind="stable")
        found = np.searchsorted(places[1], places[0], sorter=order)
        second = order[np.minimum(found, len(order) - 1)]
        in_both = places[1][second] == places[0]
        weights = None
        if held_out[0].weights is not None:
            given = [np.asarray(part.weights) for part in held_out[:n_first]]
            weights = np.concatenate(given)[in_both]
        return Disagreement.of([probs[0][in_both], probs[1][second[in_both]]], weights)


def mean_of(probs: Sequence[Floats], known: Sequence[NDArray[np.int64]]) -> Floats:
    """Return the mean of several models' probabilities ``(n, k)``.

    A model has no say of classes that it does not know.
    """
    if len(probs) == 1:
        return probs[0]
    has_say = np.zeros((len(probs), 1, probs[0].shape[1]), dtype=bool)
    for mask, columns in zip(has_say, known, strict=True):
        mask[0, columns] = True
    if has_say.all():
        return np.asarray(np.mean(probs, axis=0))
    total = np.where(has_say, np.stack(probs), 0).sum(axis=0) / np.maximum(has_say.sum(axis=0), 1)
    return np.asarray(total / total.sum(axis=1, keepdims=True))


def sharpened(probs: Floats, beta: float) -> Floats:
    """Return probabilities to the power beta, scaled to sum to 1."""
    if beta == 1:
        return probs
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp(log_softmax(beta * np.log(probs))))
