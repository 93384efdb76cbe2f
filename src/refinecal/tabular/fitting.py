"""Fit a model to a table: split, train long, choose by refinement, calibrate, judge by test rows."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import refinecal
from refinecal._checks import warn
from refinecal._predictions import averaged
from refinecal._rows import Rows
from refinecal.metrics import get_metric
from refinecal.stopping import RefinementMonitor
from refinecal.tabular.data import Data, Options
from refinecal.tabular.models import get_model
from refinecal.tabular.models._base import TableModel
from refinecal.tabular.spaces import draw
from refinecal.tabular.units import Choice, Unit, Workshop

CHOSEN_BY, USUAL = "refinement", "log_loss"  # how we choose, and how it is usually done
FEW_NUMBERS = 200_000  # in a table that one thread trains on
TRACKED = (USUAL, "brier", "accuracy", "auroc")


class Watcher(Protocol):
    """Who is told how far a fit is."""

    def training(self, number: int, total: int, max_steps: int) -> None:
        """One of several trainings begins; ``number`` counts from 1."""

    def step(self, number: int, record: Mapping[str, float] | None) -> None:
        """A step of it is done; its record, if validation rows were looked at already."""


class Nobody:
    """A watcher who does not look."""

    def training(self, number: int, total: int, max_steps: int) -> None:
        """Do nothing."""

    def step(self, number: int, record: Mapping[str, float] | None) -> None:
        """Do nothing."""


# ---- training --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What choosing by one metric leads to: the candidate, the step of each fold, test probabilities."""

    metric: str
    candidate: int
    steps: list[int]
    value: float
    before: (
        NDArray[np.float64] | None
    )  # test probabilities, averaged over folds, as the models give them
    after: NDArray[np.float64] | None  # and calibrated


@dataclass(frozen=True, slots=True)
class Fit:
    """A finished fit: the trainings that refinement chose, and what other metrics would have led to."""

    options: Options
    data: Data
    candidates: list[dict[str, Any]]
    units: list[Unit]
    outcomes: dict[str, Outcome]
    history: list[dict[str, float]]
    max_steps: int

    @property
    def chosen(self) -> Outcome:
        return self.outcomes[CHOSEN_BY]

    @property
    def usual(self) -> Outcome:
        """What stopping and choosing by validation loss leads to."""
        return self.outcomes[USUAL]

    @property
    def model(self) -> type[TableModel]:
        return get_model(self.options.model)

    @property
    def hit_the_end(self) -> bool:
        """Whether the best step is the last that was allowed, so that more might be better."""
        return bool(np.median(self.chosen.steps) == self.max_steps)


def plan(data: Data, options: Options) -> dict[str, Any]:
    """Return what has to be the same for an unfinished fit to be gone on with."""
    version = {"refinecal": refinecal.__version__}
    return {"data": data.key, **version, **asdict(options)}


def fit(data: Data, options: Options, workshop: Workshop, watcher: Watcher | None = None) -> Fit:
    """Train every candidate on every fold; keep what each metric would choose.

    Parameters
    ----------
    data : Data
        From :func:`prepare`.
    options : Options
        How to fit.
    workshop : Workshop
        Where trainings are kept until all are done.
    watcher : Watcher, optional
        Is told of every step.

    Returns
    -------
    Fit
    """
    candidates = draw_candidates(options)
    chooser = Chooser(data)
    history: list[dict[str, float]] = []
    for trained in _trainings(data, options, candidates, workshop, watcher):
        for unit in trained:
            where = {"candidate": float(unit.candidate), "fold": float(unit.fold)}
            history += [where | record for record in unit.history]
        chooser.consider(trained)
    return Fit(
        options,
        data,
        candidates,
        chooser.units,
        chooser.outcomes,
        history,
        _max_steps(options),
    )


def draw_candidates(options: Options) -> list[dict[str, Any]]:
    """Return the parameters to choose from: the model's own, then as many random ones as asked for."""
    rng = np.random.default_rng(options.seed)
    return [{}] + [draw(options.model, rng) for _ in range(options.tune - 1)]


def _trainings(
    data: Data,
    options: Options,
    candidates: list[dict[str, Any]],
    workshop: Workshop,
    watcher: Watcher | None,
) -> Iterator[list[Unit]]:
    """Train every candidate on every fold; one that cannot be trained is left out if there are others."""
    watcher = Nobody() if watcher is None else watcher
    total = len(candidates) * len(data.pairs)
    for number, params in enumerate(candidates):
        units = []
        try:
            for fold in range(len(data.pairs)):
                watcher.training(number * len(data.pairs) + fold + 1, total, _max_steps(options))
                unit = workshop.finished(number, fold)
                if unit is None:
                    unit = _train(data, options, params, number, fold, workshop, watcher)
                units.append(unit)
        except ValueError as error:
            if number == 0:  # the default parameters: something is wrong with the table
                raise
            warn(f"configuration {number} is left out: {error}")
            continue
        yield units


def _max_steps(options: Options) -> int:
    return (
        get_model(options.model).default_steps if options.max_steps is None else options.max_steps
    )


def _train(
    data: Data,
    options: Options,
    params: Mapping[str, Any],
    number: int,
    fold: int,
    workshop: Workshop,
    watcher: Watcher,
) -> Unit:
    """Train one candidate on one fold; keep the model at the step of smallest refinement."""
    kind, (rows, val) = get_model(options.model), data.pairs[fold]
    known = np.unique(rows.y)
    monitor = RefinementMonitor(
        CHOSEN_BY,
        also=TRACKED,
        patience=kind.default_patience if options.patience is None else options.patience,
        final=None if options.calibrator == "temperature" else options.calibrator,
        stop_on=(CHOSEN_BY, USUAL),
    )
    model = kind.train(
        rows.X,
        np.searchsorted(known, rows.y),
        val.X,
        np.searchsorted(known, val.y),
        n_classes=len(known),
        monitor=monitor,
        max_steps=_max_steps(options),
        params=params,
        weights=rows.weights,
        weights_val=val.weights,
        seed=options.seed,
        n_threads=_threads(options, rows),
        on_step=_reporter(monitor, watcher),
    )
    if monitor.best is None:
        raise ValueError(
            f"{options.model} gave no predictions that are numbers: lower its learning rate, or try "
            "another --model"
        )
    folder = workshop.new()
    model.save(folder, monitor.best.step)
    choices = _choices(model, monitor, data.test)
    return workshop.keep(Unit(number, fold, val.total, known, monitor.history, choices, folder))


def _threads(options: Options, rows: Rows) -> int | None:
    """Return how many threads to train with: few numbers are not worth sharing out."""
    if options.n_threads is None and rows.X.shape[0] * rows.X.shape[1] < FEW_NUMBERS:
        return 1
    return options.n_threads


def _reporter(monitor: RefinementMonitor, watcher: Watcher) -> Callable[[int], None]:
    def report(step: int) -> None:
        seen = monitor.history and monitor.last_step == step
        watcher.step(step, monitor.history[-1] if seen else None)

    return report


def _choices(model: TableModel, monitor: RefinementMonitor, test: Rows | None) -> dict[str, Choice]:
    """Return the best step by every metric, with what the model says of the test rows there."""
    logits = {
        step: None if test is None else model.logits(test.X, step)
        for step in {best.step for best in monitor.bests.values()}
    }
    return {
        name: Choice(best.step, best.value, best.calibrator, logits[best.step])
        for name, best in monitor.bests.items()
    }


class Chooser:
    """Keeps, for every metric, the best candidate so far: by its mean over folds."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.outcomes: dict[str, Outcome] = {}
        self.units: list[Unit] = []

    def consider(self, units: list[Unit]) -> None:
        """Look at the trainings of one candidate."""
        for name in (CHOSEN_BY, *TRACKED):
            if not all(name in unit.choices for unit in units):
                continue  # never a number, such as AUROC where there is one class
            sizes = [unit.size for unit in units]
            value = float(np.average([unit.choices[name].value for unit in units], weights=sizes))
            best = self.outcomes.get(name)
            if best is None or get_metric(name).better(value, best.value):
                self.outcomes[name] = self._outcome(name, units, value)
                if name == CHOSEN_BY:
                    self.units = units

    def _outcome(self, name: str, units: list[Unit], value: float) -> Outcome:
        before = after = None
        if self.data.test is not None:
            found = [unit.choices[name].test_probs(unit.known, self.data.k) for unit in units]
            known = [unit.known for unit in units]
            before, after = (averaged(each, known) for each in zip(*found, strict=True))
        steps = [unit.choices[name].step for unit in units]
        return Outcome(name, units[0].candidate, steps, value, before, after)
