"""The test scores of every procedure: what each metric chose in some training runs, and calibrated how."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal.calibrators import make_calibrator
from refinecal.calibrators.temperature import TemperatureScaling
from refinecal.evaluation import paired_difference, row_losses
from refinecal.experiments.units import UnitResult
from refinecal.metrics import auroc
from refinecal.training.crossfit import Ensemble, HeldOut, all_classes, average

Floats = NDArray[np.float64]

DEFAULT, TUNED = "default", "tuned"
MODES = (DEFAULT, TUNED)  # and these with folds, see mode_of
NONE, SMOOTH, PLAIN, AUTO = "none", "temperature", "unsmoothed", "auto"
CALIBRATIONS = (NONE, SMOOTH, PLAIN, AUTO)
REFERENCE = ("log_loss", SMOOTH)  # what the paper's figures compare with
OURS = ("refinement", SMOOTH)
BY_AUTO = ("log_loss", "refinement")  # metrics whose choice is calibrated by "auto" too: it is slow
GREATER = frozenset({"accuracy", "auroc"})
DEPTHS = ("max_depth", "depth")
RATES = ("learning_rate", "lr")  # the second is RealMLP's


class Row(NamedTuple):
    """One line of the table of results: a procedure on a split of a data set, with its test scores."""

    set: str
    split: int
    method: str
    mode: str  # "default" parameters, or "tuned": the best of the random ones; then the number of folds
    metric: str  # chose the step and, if tuned, the configuration
    calibration: str
    config: int
    step: int
    steps: int  # of the whole run
    n_rows: int
    n_val: int
    n_classes: int
    log_loss: float
    brier: float
    error: float
    auroc: float
    difference: float  # of the log loss to the reference, on the same rows
    difference_error: float  # its standard error over test rows


class Training(NamedTuple):
    """One training run: what stopping by refinement instead of log loss changed, both with temperature."""

    set: str
    split: int
    method: str
    config: int
    n_rows: int
    n_val: int
    n_classes: int
    steps: int
    step_log_loss: int
    step_refinement: int
    rise: (
        float  # of the validation loss, from its minimum to the last step, relative to the minimum
    )
    log_loss: float  # on test rows, stopped by log loss
    refinement: float  # stopped by refinement
    difference: float
    difference_error: float
    learning_rate: float
    depth: float
    params: str


class Timing(NamedTuple):
    """Seconds and bytes that one training run took."""

    set: str
    split: int
    method: str
    config: int
    folds: int
    fold: int
    training: float
    tracking: float
    predicting: float
    peak_memory: int


class Judgements(NamedTuple):
    """All that the test rows say about some training runs."""

    rows: list[Row]
    trainings: list[Training]
    timings: list[Timing]


def mode_of(config: int, folds: int) -> str:
    """Return how a method is run: with which parameters, and as the average of how many folds.

    >>> mode_of(0, 0), mode_of(3, 5)
    ('default', 'tuned, 5 folds')
    """
    return MODES[config > 0] + (f", {folds} folds" if folds else "")


def folds_in(mode: str) -> int:
    """Return the number of folds of a mode, 0 without.

    >>> folds_in("default"), folds_in("tuned, 5 folds")
    (0, 5)
    """
    return int(mode.split()[-2]) if mode.endswith("folds") else 0


def judge(units: Iterable[UnitResult], auto: bool = True) -> Judgements:
    """Return the test scores of the training runs of one method on one split of one data set.

    Parameters
    ----------
    units : iterable of UnitResult
        By increasing configuration, the folds of one together; each is read once, and only what was chosen
        is kept. Folds of which one is missing are left out.
    auto : bool, default True
        Whether to calibrate by ``"auto"``, too, which takes most of the time.
    """
    modes: dict[str, dict[str, _Choice | _Average]] = {}
    trainings, timings = [], []
    for (config, folds), group in groupby(units, lambda unit: (unit.key.config, unit.key.folds)):
        each = []
        for unit in group:
            training, tracking, predicting = (
                float(unit.seconds.get(name, math.nan)) for name in Timing._fields[6:9]
            )
            timings.append(Timing(*unit.key, training, tracking, predicting, unit.peak_memory))
            each.append(unit)
        if folds and len(each) < folds:
            continue
        chosen = modes.setdefault(mode_of(config, folds), {})
        for metric in each[0].value:
            if not all(metric in unit.value for unit in each):
                continue
            value = float(np.mean([unit.value[metric] for unit in each]))
            if metric not in chosen or _is_better(metric, value, chosen[metric].value):
                made: Any = _Average if folds else _Choice
                chosen[metric] = made.of(each if folds else each[0], metric)
        if not folds and {REFERENCE[0], OURS[0]} <= set(each[0].best):
            trainings.append(_training(each[0]))
    rows = [row for mode in order_modes(modes) for row in _rows(mode, modes[mode], auto)]
    return Judgements(rows, trainings, timings)


def order_modes(modes: Iterable[str]) -> list[str]:
    """Return modes by their number of folds, default ones first."""
    return sorted(modes, key=lambda mode: (folds_in(mode), mode))


def _is_better(metric: str, value: float, than: float) -> bool:
    """Tell whether a value is better: of equal ones, the first stays."""
    if math.isnan(than):
        return not math.isnan(value)
    return value > than if metric in GREATER else value < than


# ---- predictions at one step -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scores:
    losses: Floats  # of each test row
    brier: float
    error: float
    auroc: float


@dataclass(frozen=True, slots=True)
class _Choice:
    """A step of a training run, with its validation and test predictions."""

    about: dict[str, Any]
    config: int
    step: int
    steps: int
    value: float
    y_val: NDArray[np.int64]
    val: NDArray[Any]
    y_test: NDArray[np.int64]
    test: NDArray[Any]

    @property
    def place(self) -> tuple[int, ...]:
        """Which configuration at which step: choices of the same place have the same scores."""
        return self.config, self.step

    @classmethod
    def of(cls, unit: UnitResult, metric: str) -> _Choice:
        key, step = unit.key, unit.best[metric]
        about = {
            **{"set": key.set, "split": key.split, "method": key.method},
            "n_rows": unit.n_train + unit.n_val + unit.n_test,
            "n_val": unit.n_val,
            "n_classes": unit.n_classes,
        }
        steps = len(next(iter(unit.history.values())))
        val = _drop_unseen_classes(unit, unit.y_val, unit.val_logits[step])
        test = _drop_unseen_classes(unit, unit.y_test, unit.test_logits[step])
        return cls(about, key.config, step, steps, unit.value[metric], *val, *test)

    def scores(self, calibration: str) -> _Scores:
        """Return the scores of the test rows after a calibration that was fitted to the validation rows."""
        val, test = self.val.astype(np.float64), self.test.astype(np.float64)
        if calibration == NONE:
            return _score_logits(self.y_test, test)
        if calibration == PLAIN:
            fitted = TemperatureScaling(laplace=False).fit_logits(val, self.y_val)
            return _score_logits(self.y_test, fitted.beta_ * test)
        calibrator: Any = make_calibrator("auto" if calibration == AUTO else "temperature")
        probs = calibrator.fit_logits(val, self.y_val).predict_proba_logits(test)
        scores = _score_probs(self.y_test, np.asarray(probs, np.float64))
        if calibration == AUTO:
            return scores
        # Smoothing changes no order, but in its probabilities large logits are equal.
        return replace(scores, auroc=auroc(self.y_test, logits=calibrator.beta_ * test))


@dataclass(frozen=True, slots=True)
class _Average:
    """The models of all folds at their own steps: calibrated by the rows held out of each, then averaged."""

    about: dict[str, Any]
    config: int
    step: int  # the median
    steps: int
    value: float
    chosen: tuple[int, ...]  # the step of each model
    held_out: list[HeldOut]
    known: list[NDArray[np.int64]]
    y_test: NDArray[np.int64]
    test: list[Floats]  # log-probabilities of all classes

    @property
    def place(self) -> tuple[int, ...]:
        """Which configuration at which steps: choices of the same place have the same scores."""
        return self.config, *self.chosen

    @classmethod
    def of(cls, units: list[UnitResult], metric: str) -> _Average:
        first, k = units[0], units[0].n_classes
        steps = [unit.best[metric] for unit in units]
        known = [unit.classes_known for unit in units]
        seen = np.isin(first.y_test, np.unique(np.concatenate(known)))
        held_out, test = [], []
        for unit, step in zip(units, steps, strict=True):
            y, val = _drop_unseen_classes(unit, unit.y_val, unit.val_logits[step])
            logits = all_classes(val, unit.classes_known, k)
            held_out.append(HeldOut(logits, unit.classes_known[y], None, np.arange(len(y))))
            test.append(all_classes(unit.test_logits[step], unit.classes_known, k)[seen])
        about = _Choice.of(first, metric).about
        about["n_val"] = sum(unit.n_val for unit in units)
        lengths = [len(next(iter(unit.history.values()))) for unit in units]
        value = float(np.mean([unit.value[metric] for unit in units]))
        numbers = (first.key.config, int(np.median(steps)), max(lengths), value)
        return cls(about, *numbers, tuple(steps), held_out, known, first.y_test[seen], test)

    def scores(self, calibration: str) -> _Scores:
        """Return the scores of the test rows, averaged over models after a calibration shared by all."""
        if calibration == NONE:
            probs = average((np.exp(each) for each in self.test), self.known, None)
        else:
            kind: Any = TemperatureScaling(laplace=False) if calibration == PLAIN else "temperature"
            kind = "auto" if calibration == AUTO else kind
            classes = range(self.test[0].shape[1])
            probs = Ensemble.fit(self.held_out, self.known, kind, classes).predict_proba(self.test)
        return _score_probs(self.y_test, np.asarray(probs, np.float64))


def _drop_unseen_classes(
    unit: UnitResult, labels: NDArray[np.int64], logits: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return labels as columns, without rows of classes that are not among the training rows.

    The loss of such rows is infinite for every choice, so they say nothing about the choice.
    """
    columns = np.searchsorted(unit.classes_known, labels)
    columns = np.minimum(columns, len(unit.classes_known) - 1)
    seen = unit.classes_known[columns] == labels
    return (columns, logits) if seen.all() else (columns[seen], logits[seen])


def _score_logits(y: NDArray[np.int64], logits: Floats) -> _Scores:
    losses = row_losses(y, logits=logits, n_threads=1)
    brier = float(row_losses(y, logits=logits, loss="brier", n_threads=1).mean())
    guess = (logits > 0).astype(np.int64) if logits.ndim == 1 else logits.argmax(axis=1)
    return _Scores(losses, brier, float((guess != y).mean()), auroc(y, logits=logits))


def _score_probs(y: NDArray[np.int64], probs: Floats) -> _Scores:
    with np.errstate(divide="ignore"):
        losses = -np.log(probs[np.arange(len(y)), y])
    brier = float(((probs - np.eye(probs.shape[1])[y]) ** 2).sum(axis=1).mean())
    return _Scores(losses, brier, float((probs.argmax(axis=1) != y).mean()), auroc(y, probs))


# ---- rows of the tables ------------------------------------------------------------------------------------


def _rows(mode: str, chosen: Mapping[str, _Choice | _Average], auto: bool) -> Iterator[Row]:
    """Yield a row for each metric and calibration; choices of the same step are scored once."""
    if REFERENCE[0] not in chosen:
        return
    known: dict[Any, _Scores] = {}

    def scores(metric: str, calibration: str) -> _Scores:
        choice = chosen[metric]
        at = (*choice.place, calibration)
        if at not in known:
            known[at] = choice.scores(calibration)
        return known[at]

    reference = scores(*REFERENCE)
    for metric, choice in chosen.items():
        for calibration in CALIBRATIONS:
            if calibration == AUTO and not (auto and metric in BY_AUTO):
                continue
            found = scores(metric, calibration)
            gap, error = _gap(found.losses, reference.losses)
            yield Row(
                **choice.about,
                mode=mode,
                metric=metric,
                calibration=calibration,
                config=choice.config,
                step=choice.step,
                steps=choice.steps,
                log_loss=float(found.losses.mean()),
                brier=found.brier,
                error=found.error,
                auroc=found.auroc,
                difference=gap,
                difference_error=error,
            )


def _gap(ours: Floats, theirs: Floats) -> tuple[float, float]:
    """Return the mean difference over rows, and its standard error; 0 for the very same losses."""
    if ours is theirs:
        return 0.0, 0.0
    found = paired_difference(ours, theirs)
    return found.mean, found.standard_error


def _training(unit: UnitResult) -> Training:
    """Return what stopping by refinement changed in one training run."""
    usual, ours = (_Choice.of(unit, metric) for metric in (REFERENCE[0], OURS[0]))
    losses = usual.scores(SMOOTH).losses
    our_losses = losses if ours.step == usual.step else ours.scores(SMOOTH).losses
    gap, error = _gap(our_losses, losses)
    return Training(
        **usual.about,
        config=unit.key.config,
        steps=usual.steps,
        step_log_loss=usual.step,
        step_refinement=ours.step,
        rise=_rise(unit.history[REFERENCE[0]]),
        log_loss=float(losses.mean()),
        refinement=float(our_losses.mean()),
        difference=gap,
        difference_error=error,
        learning_rate=_number(unit.params, RATES),
        depth=_number(unit.params, DEPTHS),
        params=json.dumps(unit.params, sort_keys=True, ensure_ascii=False),
    )


def _rise(history: Floats) -> float:
    """Return how far a loss rises after its minimum, relative to the minimum.

    >>> _rise(np.array([2.0, 1.0, 1.5]))
    0.5
    """
    finite = history[np.isfinite(history)]
    if not finite.size:
        return math.nan
    low, last = float(finite.min()), float(finite[-1])
    if low <= 0:
        return 0.0 if last == low else math.inf
    return last / low - 1


def _number(params: Mapping[str, Any], names: Iterable[str]) -> float:
    """Return a parameter that has several names; NaN if none of them is there, or not as a number."""
    value: Any = next((params[name] for name in names if name in params), None)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else math.nan
