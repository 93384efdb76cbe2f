"""Cross-fitting: train candidates on folds, choose one, calibrate on held-out rows, average the models.

:class:`CrossFit` is the one procedure behind ``RefineThenCalibrateClassifier`` and ``refinecal fit``; they
differ in how one model is trained.

The mean of calibrated models is underconfident: errors that they do not share cancel. How much sharper it
should be follows from how far models disagree on rows that none of them was trained on; labels are not
needed. Take the log-odds of a calibrated model, relative to the class frequencies, as a part that all models
share, of variance c, and a separate error, of variance o. To be calibrated, the model has shrunk them by
c / (c + o); the mean of m models needs to be shrunk by c / (c + o / m) only. The quotient of the two is the
inverse temperature that the mean needs.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import log_softmax
from refinecal.calibrators.base import Calibrator, as_calibrator
from refinecal.metrics import Metric
from refinecal.stopping import RefinementMonitor
from refinecal.training.predictions import Predictions, smooth
from refinecal.training.rows import Rows

UNKNOWN = -30.0  # log-probability of a class that a model has not seen, before calibration
SMALLEST = 1e-9  # probabilities are clipped here before taking logarithms
MOST = 1.5  # largest inverse temperature of a mean
# This many rows halve the sharpening: a calibrator fitted to few rows is unreliable.
PRIOR_ROWS = 300
MOST_ROWS = 20_000  # on which disagreement is measured
HUGE = 1e300  # a logit that stands for an infinite one

Floats = NDArray[Any]
Pairs = Sequence[tuple[Rows, Rows]]  # training and validation rows of each fold


# ---- the models of the folds -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BestStep:
    """The best step by one metric, with the model's validation and test predictions at that step."""

    step: int
    value: float
    logits: Any  # an array, or an estimator's Predictions
    test_logits: Floats | None = None


@dataclass(frozen=True, slots=True)
class FoldModel:
    """A model trained on one fold, and its predictions for the rows held out."""

    candidate: int
    fold: int
    known: NDArray[np.int64]  # columns of the classes of its training rows
    history: list[dict[str, float]]
    choices: dict[str, BestStep]  # by metric
    model: Any  # a fitted estimator, or the folder of a saved model
    y: NDArray[Any]  # of the validation rows, as are the weights and places
    weights: NDArray[np.float64] | None
    places: NDArray[np.int64]
    monitor: RefinementMonitor | None = None
    seconds: float = 0.0  # of training
    smoothing: int = 0  # of its probabilities, see refinecal.training.predictions.smooth_zeros

    def held_out(self, metric: str, k: int) -> HeldOut:
        """Return the validation rows, with the predictions at the step that a metric chose."""
        logits = all_classes(self.choices[metric].logits, self.known, k, self.smoothing)
        return HeldOut(logits, self.y, self.weights, self.places)

    def test_logits(self, metric: str, k: int) -> Floats:
        """Return the predictions for the test rows at that step."""
        logits = self.choices[metric].test_logits
        assert logits is not None, "there are test rows"
        return all_classes(logits, self.known, k)


Best = dict[str, tuple[float, list[FoldModel]]]  # by metric: its mean over folds, and the models


class Cancelled(Exception):
    """Another training run has failed, or the user has interrupted the fit."""


@dataclass(slots=True)
class CrossFit(ABC):
    """Trains candidates on folds, and finds the best by each metric; an :class:`Ensemble` joins its models.

    A subclass trains one model; candidates are known by their number.
    """

    history: list[dict[str, float]] = field(default_factory=list, init=False)
    cancel: threading.Event = field(default_factory=threading.Event, init=False)

    @abstractmethod
    def train(self, parts: Pairs, candidate: int, fold: int) -> FoldModel:
        """Train a candidate on one fold; raise :class:`Cancelled` soon after ``cancel`` is set."""

    def share_cores(self, parts: Pairs, candidate: int) -> tuple[int, int | None]:
        """Return how many models to train at once, and how many threads each gets (None: the default)."""
        return 1, None

    def skip(self, candidate: int, error: ValueError) -> None:
        """Decide about a candidate that cannot be trained: by default the error is raised."""
        raise error

    def train_folds(
        self, parts: Pairs, candidate: int, folds: Sequence[int], record: bool = True
    ) -> list[FoldModel]:
        """Train a candidate on some folds; record its steps if it is one to choose."""
        self.cancel.clear()  # an earlier candidate may have failed
        n_workers, _ = self.share_cores(parts, candidate)

        def train(fold: int) -> FoldModel:
            try:
                return self.train(parts, candidate, fold)
            except BaseException:
                self.cancel.set()  # the others end at their next step
                raise

        if n_workers == 1:
            models = [self.train(parts, candidate, fold) for fold in folds]
        else:
            with ThreadPoolExecutor(n_workers) as pool:  # boosting libraries free the interpreter
                try:
                    runs = [pool.submit(train, fold) for fold in folds]
                    for run in as_completed(runs):
                        if not isinstance(run.exception(), Cancelled):
                            run.result()  # raises what went wrong
                except BaseException:  # ctrl-C among them
                    self.cancel.set()
                    raise
            models = [run.result() for run in runs]
        for each in models if record else ():
            where = {"candidate": candidate, "fold": each.fold}
            self.history.extend(where | step for step in each.history)
        return models

    def train_all(
        self, parts: Pairs, n_candidates: int, n_compared: int
    ) -> Iterator[list[FoldModel]]:
        """Yield the models of each candidate on the first folds."""
        for number in range(n_candidates):
            try:
                yield self.train_folds(parts, number, range(n_compared))
            except ValueError as error:
                self.skip(number, error)

    def search(
        self, parts: Pairs, trained: Iterable[list[FoldModel]], metrics: Sequence[Metric]
    ) -> Best:
        """Return, for each metric, the best mean over folds, and the models of the candidate that has it.

        Candidates are compared on the folds that they were trained on; those chosen are trained on all.
        """
        best: Best = {}
        for models in trained:
            weights = [len(m.y) if m.weights is None else m.weights.sum() for m in models]
            for metric in metrics:
                # One that was never a number on some fold, such as AUROC with one class, chooses nothing.
                name = metric.name
                if all(name in each.choices for each in models):
                    values = [each.choices[name].value for each in models]
                    value = float(np.average(values, weights=weights))
                    if name not in best or metric.better(value, best[name][0]):
                        best[name] = value, models
        for _, models in best.values():
            others = range(len(models), len(parts))
            models.extend(self.train_folds(parts, models[0].candidate, others))
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


# ---- held-out predictions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The rows held out of a model's training, and its predictions for them."""

    logits: Floats  # of all classes, see all_classes
    y: NDArray[Any]
    weights: NDArray[np.float64] | None
    places: NDArray[np.int64]


def all_classes(
    found: Floats | Predictions, known: NDArray[np.int64], k: int, smoothing: int = 0
) -> Floats:
    """Return log-probabilities ``(n, k)`` of all classes from log-odds or logits of the known ones.

    Predictions of an estimator may be probabilities; for ``smoothing``, see
    :func:`refinecal.training.predictions.smooth_zeros`.
    """
    if isinstance(found, Predictions):
        found = smooth(found, smoothing).logits
    logits = np.clip(np.asarray(found, dtype=np.float64), -HUGE, HUGE)
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

    ``beta`` is the inverse temperature of the mean. It is ``None`` if it is not known how far models
    disagree: then the mean is the geometric one, which is sharper where they do.
    """

    calibrator: Calibrator  # one for all of them
    known: tuple[NDArray[np.int64], ...]  # the columns of the classes that each model knows
    frequencies: Floats  # of the classes: the mean is sharpened relative to them
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

        Each row was held out of one of the first ``n_first`` models, by default of one of all. If rows were
        held out of later models too, they count once for each, and show how far models disagree.
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

    def single(self, known: NDArray[np.int64]) -> Ensemble:
        """Return one model with the same calibrator."""
        return replace(self, known=(known,), beta=1.0)

    def predict_proba(self, logits: Iterable[Floats]) -> Floats:
        """Return probabilities from the logits ``(n, k)`` of each model, taken one by one."""
        pairs = zip(logits, self.known, strict=True)
        found = average(
            (self.calibrate(each, known) for each, known in pairs), self.known, self.beta
        )
        return found if self.beta is None else sharpen(found, self.beta, self.frequencies)

    def calibrate(self, logits: Floats, known: NDArray[np.int64]) -> Floats:
        """Return the calibrated probabilities of one model; 0 for classes that it does not know."""
        probs = self.calibrator.predict_proba_logits(logits)
        if len(known) == len(self.frequencies):
            return probs
        kept = np.zeros_like(probs)
        kept[:, known] = probs[:, known]
        return np.asarray(kept / np.maximum(kept.sum(axis=1, keepdims=True), SMALLEST))

    def predict_held_out(
        self, models: Sequence[FoldModel], metric: str, n: int | None = None
    ) -> list[Floats]:
        """Return the calibrated probabilities of the rows held out of each of the first n models."""
        k = len(self.frequencies)
        return [
            self.calibrate(model.held_out(metric, k).logits, model.known) for model in models[:n]
        ]

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


def sharpen(probs: Floats, beta: float, frequencies: Floats) -> Floats:
    """Multiply the log-odds of probabilities, relative to the class frequencies, by beta."""
    if beta == 1:
        return probs
    with np.errstate(divide="ignore"):
        logs = beta * np.log(probs) + (1 - beta) * np.log(frequencies)
    return np.asarray(np.exp(log_softmax(logs)))


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
