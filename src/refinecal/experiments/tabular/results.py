"""From the folder of a run to tables: the test scores of every procedure on every split of every data set."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal.calibrators import make_calibrator
from refinecal.calibrators.temperature import TemperatureScaling
from refinecal.evaluation import paired_difference, row_losses
from refinecal.experiments.folder import RunResults, open_finished, read_failures
from refinecal.experiments.plan import PLACE, Plan, TableKey
from refinecal.metrics import auroc

if TYPE_CHECKING:
    from refinecal.experiments.units import UnitResult

__all__ = ["Results", "check_together", "merge_results", "read_results"]


Floats = NDArray[np.float64]

DEFAULT, TUNED = "default", "tuned"
MODES = (DEFAULT, TUNED)
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
    mode: str  # "default" parameters, or "tuned": the best of the random ones
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
    training: float
    tracking: float
    predicting: float
    peak_memory: int


class Judgements(NamedTuple):
    """All that the test rows say about some training runs."""

    rows: list[Row]
    trainings: list[Training]
    timings: list[Timing]


def judge(units: Iterable[UnitResult], auto: bool = True) -> Judgements:
    """Return the test scores of the training runs of one method on one split of one data set.

    Parameters
    ----------
    units : iterable of UnitResult
        By increasing configuration; each is read once, and only what was chosen is kept.
    auto : bool, default True
        Whether to calibrate by ``"auto"``, too, which takes most of the time.
    """
    modes: dict[str, dict[str, _Choice]] = {mode: {} for mode in MODES}
    trainings, timings = [], []
    for unit in units:
        chosen = modes[TUNED if unit.key.config else DEFAULT]
        for metric, value in unit.value.items():
            if metric not in chosen or _is_better(metric, value, chosen[metric].value):
                chosen[metric] = _Choice.of(unit, metric)
        if {REFERENCE[0], OURS[0]} <= set(unit.best):
            trainings.append(_training(unit))
        training, tracking, predicting = (
            float(unit.seconds.get(name, math.nan)) for name in Timing._fields[4:7]
        )
        timings.append(Timing(*unit.key, training, tracking, predicting, unit.peak_memory))
    rows = [row for mode, chosen in modes.items() for row in _rows(mode, chosen, auto)]
    return Judgements(rows, trainings, timings)


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


def _rows(mode: str, chosen: Mapping[str, _Choice], auto: bool) -> Iterator[Row]:
    """Yield a row for each metric and calibration; choices of the same step are scored once."""
    if REFERENCE[0] not in chosen:
        return
    known: dict[tuple[int, int, str], _Scores] = {}

    def scores(metric: str, calibration: str) -> _Scores:
        choice = chosen[metric]
        at = (choice.config, choice.step, calibration)
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


Progress = Callable[[int, int], None]
SAME = ("seed", "max_steps", "max_rows", "version")  # what runs must share to be one experiment


@dataclass(frozen=True)
class Results(RunResults):
    """All results of a run, in the order of its plan; or several runs together."""

    plans: list[Plan]
    rows: list[Row]  # test scores of each procedure on each split
    trainings: list[Training]  # what stopping by refinement changed in each training run
    timings: list[Timing]  # time and memory of each training run
    failed: dict[TableKey, str]  # training runs that failed, with their errors

    @cached_property
    def methods(self) -> list[str]:
        """Every method of the plans."""
        return _unique(plan.methods for plan in self.plans)

    @property
    def done(self) -> int:
        """Number of training runs with a result."""
        return len(self.timings)

    def at_least(self, rows: int) -> Results:
        """Return the results of data sets with this many rows or more."""
        known = {row.set for row in self.rows if row.n_rows >= rows}
        if not known:
            most = max(row.n_rows for row in self.rows)
            raise ValueError(f"no data set has {rows} rows: the largest has {most}")
        plans = [
            replace(plan, sources=tuple(each for each in plan.sources if each["name"] in known))
            for plan in self.plans
            if known & set(plan.sets)
        ]
        return Results(
            plans,
            [each for each in self.rows if each.set in known],
            [each for each in self.trainings if each.set in known],
            [each for each in self.timings if each.set in known],
            {key: said for key, said in self.failed.items() if key.set in known},
        )


def merge_results(results: Sequence[Results]) -> Results:
    """Return several runs as one: what more than one of them has is taken from the first."""
    plans = [plan for each in results for plan in each.plans]
    check_together(plans)
    order = _order(plans)

    def merge(field: str, identity: Callable[[Any], Any]) -> list[Any]:
        every = (row for each in reversed(results) for row in getattr(each, field))
        unique = {identity(row): row for row in every}.values()
        return sorted(unique, key=lambda row: order(row.set, row.split, row.method, row.config))

    rows = {row[:6]: row for each in reversed(results) for row in each.rows}
    timings = merge("timings", lambda row: row[:4])
    done = {row[:4] for row in timings}
    failed = {key: said for each in reversed(results) for key, said in each.failed.items()}
    return Results(
        plans,
        sorted(rows.values(), key=lambda row: order(row.set, row.split, row.method)),
        merge("trainings", lambda row: row[:4]),
        timings,
        {key: said for key, said in failed.items() if key not in done},
    )


def check_together(plans: Sequence[Plan]) -> None:
    """Raise if runs are not one experiment, or have different data sets of the same name."""
    for other in plans[1:]:
        for name in SAME:
            one, two = getattr(plans[0], name), getattr(other, name)
            if one != two:
                raise ValueError(
                    f"the runs differ in {name}, {one} and {two}: report them separately"
                )
    known: dict[str, Any] = {}
    for source in (source for plan in plans for source in plan.sources):
        content = {name: value for name, value in source.items() if name != PLACE}
        if known.setdefault(source["name"], content) != content:
            raise ValueError(
                f"the runs have different data sets named {source['name']!r}: report the runs separately, or "
                "rename one of the sets and run it again"
            )


def read_results(
    path: str | os.PathLike[str],
    auto: bool = True,
    processes: int = 1,
    progress: Progress | None = None,
) -> Results:
    """Compute the test scores of every training run of a run.

    Parameters
    ----------
    path : str or Path
        The folder of the run.
    auto : bool, default True
        Whether to calibrate what log loss and refinement chose by ``"auto"``, too: about 0.2 s each.
    processes : int, default 1
        Splits computed at the same time; the result does not depend on it.
    progress : callable, optional
        Called with how many groups of training runs are done, and how many there are.
    """
    from joblib import Parallel, delayed, parallel_config  # type: ignore[import-untyped]

    folder, keys = open_finished(path, "tabular")
    groups: dict[tuple[str, int, str], list[Path]] = {}
    for key in keys:  # by increasing configuration
        groups.setdefault((key.set, key.split, key.method), []).append(folder.unit_path(key))
    order = _order([folder.plan])
    found: list[Judgements] = []
    with parallel_config(backend="loky", inner_max_num_threads=1):
        jobs = Parallel(n_jobs=min(processes, len(groups)), return_as="generator")
        names = sorted(groups, key=lambda name: order(*name))
        for each in jobs(delayed(judge_files)(groups[name], auto) for name in names):
            found.append(each)
            if progress is not None:
                progress(len(found), len(groups))
    rows, trainings, timings = ([one for each in found for one in each[part]] for part in range(3))
    return Results([folder.plan], rows, trainings, timings, read_failures(folder))  # type: ignore[arg-type]


def judge_files(paths: Sequence[Path], auto: bool = True) -> Judgements:
    """Return the scores of the training runs in some files: of one method on one split of one set."""
    from refinecal.experiments.units import UnitResult, load_unit

    return judge((load_unit(UnitResult, path) for path in paths), auto)


def _order(plans: Sequence[Plan]) -> Callable[..., tuple[int, ...]]:
    """Return what to sort by: methods, sets and splits as in the plans, then configurations."""
    sets, methods = (
        {name: place for place, name in enumerate(_unique(getattr(plan, field) for plan in plans))}
        for field in ("sets", "methods")
    )
    return lambda name, split, method, config=0: (methods[method], sets[name], split, config)


def _unique(names: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for some in names for name in some))
