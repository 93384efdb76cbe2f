"""Fit a model to a table: split, train, choose by refinement, calibrate, evaluate on test rows."""

from __future__ import annotations  # so that help() shows types by name

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import refinecal
from refinecal._core.arrays import check_threads
from refinecal._core.errors import warn
from refinecal._core.sample import log_softmax
from refinecal.calibrators import AutoCalibrator
from refinecal.evaluation import Difference, paired_difference, row_losses
from refinecal.metrics import get_metric
from refinecal.stopping import RefinementMonitor
from refinecal.tabular.data import Data, Options
from refinecal.tabular.units import UNDER_WAY, BestStep, FoldFit, UnfinishedRun
from refinecal.training.pool import Ensemble, average, choose
from refinecal.training.rows import Parts, Rows
from refinecal.training.spaces import draw
from refinecal.training.table_model import TableModel, get_model
from refinecal.training.trainer import DEFAULTS

CHOSEN_BY, USUAL = "refinement", "log_loss"  # how we choose, and early stopping on validation loss
FEW_NUMBERS = 200_000  # cells of a table for which one thread is enough
MOST_NUMBERS = 100_000_000  # cells of the tables of all models that are trained at once
FEW_ROWS = 50  # too few to measure how far models disagree, or how a loss changes
TRACKED = (USUAL, "brier", "accuracy", "auroc")


class Progress(Protocol):
    """Is told how far a fit is, by several threads if several models are trained at once."""

    def start(self, run: int, total: int, max_steps: int) -> None:
        """A training run begins; ``run`` counts from 1."""
        return

    def step(self, run: int, number: int, record: Mapping[str, float] | None) -> None:
        """A step of it is done; its record, if validation rows were looked at already."""
        return

    def finish(self, run: int) -> None:
        """All its steps are done."""
        return


class NullProgress(Progress):
    """Shows nothing."""


# ---- the whole ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selection:
    """The result of choosing by one metric: the candidate, the step of each fold, test probabilities."""

    metric: str
    candidate: int
    steps: list[int]
    value: float
    ensemble: Ensemble
    # By loss, for each test row: the mean of the single models' losses.
    single: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    before: NDArray[np.float64] | None = None  # mean test probabilities before calibration
    after: NDArray[np.float64] | None = None  # and after


@dataclass(frozen=True, slots=True)
class Fit:
    """A finished fit: what each metric chose, test results, and the delivered models."""

    options: Options
    data: Data
    candidates: list[dict[str, Any]]
    units: list[FoldFit]  # of the chosen candidate
    outcomes: dict[str, Selection]
    history: list[dict[str, float]]
    max_steps: int
    delivered: list[FoldFit]  # the same, or models of all rows
    ensemble: Ensemble  # of those

    @property
    def chosen(self) -> Selection:
        return self.outcomes[CHOSEN_BY]

    @property
    def usual(self) -> Selection:
        """The result of stopping and choosing by validation loss."""
        return self.outcomes[USUAL]

    @property
    def model(self) -> type[TableModel]:
        return get_model(self.options.model)

    @property
    def validation_loss(self) -> float:
        """The log loss of the held-out rows, each predicted by one model, calibrated as the others are."""
        losses, _, weights = self._held_out(self.units, self.data.pairs, self.chosen.ensemble)
        return float(np.average(losses, weights=weights))

    @property
    def change_with_all_rows(self) -> Difference | None:
        """How the validation loss changes when models are also trained on the test rows.

        ``None`` if that is unknown: the same models are delivered, or few rows are held out in both passes.
        """
        if self.data.everything is None or self.data.test is None:
            return None
        first, places, weights = self._held_out(self.units, self.data.pairs, self.chosen.ensemble)
        last, others, _ = self._held_out(self.delivered, self.data.everything, self.ensemble)
        _, in_first, in_last = np.intersect1d(places, others, return_indices=True)
        if len(in_first) < FEW_ROWS:
            return None
        weights = None if weights is None else weights[in_first]
        return paired_difference(last[in_last], first[in_first], weights)

    def _held_out(
        self, units: list[FoldFit], parts: Parts, ensemble: Ensemble
    ) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.float64] | None]:
        """Return the loss of each row that was held out of one model, its place, and its weight."""
        k, units = self.data.k, units[: parts.n_first]
        found = [unit.held_out(CHOSEN_BY, k) for unit in units]
        probs = [ensemble.calibrate(p.logits, u.known) for p, u in zip(found, units, strict=True)]
        y = np.concatenate([part.y for part in found])
        weights = [part.weights for part in found if part.weights is not None]
        return (
            row_losses(y, np.concatenate(probs), classes=range(k)),
            np.concatenate([part.places for part in found]),
            np.concatenate(weights) if weights else None,
        )

    @property
    def hit_the_end(self) -> bool:
        """Whether the best step is the last that was allowed, so that more might be better."""
        return bool(np.median(self.chosen.steps) == self.max_steps)


def plan(data: Data, options: Options) -> dict[str, Any]:
    """Return what must be unchanged for an unfinished fit to be resumed."""
    version = {"refinecal": refinecal.__version__}
    return {"data": data.key, **version, **asdict(options)}


def fit(
    data: Data, options: Options, unfinished: UnfinishedRun, progress: Progress | None = None
) -> Fit:
    """Train every candidate on every fold; keep what each metric would choose.

    Parameters
    ----------
    data : Data
        From :func:`prepare`.
    options : Options
        How to fit.
    unfinished : UnfinishedRun
        Keeps training runs until all are done.
    progress : Progress, optional
        Is told of every step.

    Returns
    -------
    Fit
    """
    candidates = draw_candidates(options)
    n_final = 0 if data.everything is None else len(data.everything)
    trainer = Trainer(
        data,
        options,
        unfinished,
        progress or NullProgress(),
        len(candidates) * len(data.pairs) + n_final,
    )
    history: list[dict[str, float]] = []

    def train_all() -> Iterator[list[FoldFit]]:
        for number, params in enumerate(candidates):
            try:
                units = trainer.units(data.pairs, params, number)
            except ValueError as error:
                if number == 0:  # the default parameters: something is wrong with the table
                    raise
                warn(f"configuration {number} is skipped: {error}")
                continue
            for unit in units:
                where = {"candidate": float(number), "fold": float(unit.fold)}
                history.extend(where | record for record in unit.history)
            yield units

    best = choose(train_all(), [get_metric(name) for name in (CHOSEN_BY, *TRACKED)])
    if data.test is None:  # no rows to compare metrics on
        best = {CHOSEN_BY: best[CHOSEN_BY]}
    outcomes = _selections(best, data, options)
    units = best[CHOSEN_BY][1]
    delivered, ensemble = units, outcomes[CHOSEN_BY].ensemble
    if data.everything is not None:
        params = candidates[outcomes[CHOSEN_BY].candidate]
        delivered = trainer.units(data.everything, params, None)
        n_first = data.everything.n_first
        ensemble = _ensemble(delivered, CHOSEN_BY, data, options.calibrator, n_first)
        if len(units) > 1:  # if the new models do not show how far they disagree
            ensemble = _sharpen(ensemble, outcomes[CHOSEN_BY].ensemble, units, CHOSEN_BY, data)
    return Fit(
        options,
        data,
        candidates,
        units,
        outcomes,
        history,
        _max_steps(options),
        delivered,
        ensemble,
    )


def draw_candidates(options: Options) -> list[dict[str, Any]]:
    """Return the parameters to choose from: the default, then as many random ones as asked for."""
    rng = np.random.default_rng(options.seed)
    default = dict(DEFAULTS.get(options.model, {}))
    return [default] + [draw(options.model, rng) for _ in range(options.tune - 1)]


# ---- choosing ----------------------------------------------------------------------------------------------


def _selections(
    best: dict[str, tuple[float, list[FoldFit]]], data: Data, options: Options
) -> dict[str, Selection]:
    """Return the result of choosing by each metric; metrics with the same choice share it.

    Log loss, which refinement is compared with, gets a calibrator fitted in the same way. The other metrics
    reuse the blend of calibrators found for refinement, which saves time.
    """
    found: dict[str, Selection] = {}
    seen: dict[tuple[int, ...], Selection] = {}
    for name, (value, units) in best.items():
        same = (units[0].candidate or 0, *(unit.choices[name].step for unit in units))
        calibrator: Any = options.calibrator
        if name not in (CHOSEN_BY, USUAL):
            ours = found[CHOSEN_BY].ensemble.calibrator
            if isinstance(ours, AutoCalibrator):
                calibrator = AutoCalibrator(weights=ours.weights_.tolist())
        if same not in seen:
            seen[same] = _selection(name, value, units, data, calibrator)
        found[name] = replace(seen[same], metric=name, value=value)
    return found


def _selection(
    name: str, value: float, units: list[FoldFit], data: Data, calibrator: Any
) -> Selection:
    ensemble = _ensemble(units, name, data, calibrator, data.pairs.n_first)
    ensemble = _sharpen(ensemble, ensemble, units, name, data)
    steps, candidate = [unit.choices[name].step for unit in units], units[0].candidate
    assert candidate is not None, "not delivered models"
    if data.test is None:
        return Selection(name, candidate, steps, value, ensemble)
    logits = [unit.test_logits(name, data.k) for unit in units]
    probs = [np.exp(log_softmax(each)) for each in logits]
    single = {}
    for loss in ("log", "brier"):
        about: dict[str, Any] = {"loss": loss, "classes": range(data.k)}
        single[loss] = np.mean([row_losses(data.test.y, p, **about) for p in probs], axis=0)
    before, after = average(probs, ensemble.known), ensemble.predict_proba(logits)
    return Selection(name, candidate, steps, value, ensemble, single, before, after)


def _ensemble(
    units: list[FoldFit], metric: str, data: Data, calibrator: Any, n_first: int
) -> Ensemble:
    """Calibrate and average the models at the steps that a metric chose."""
    held_out = [unit.held_out(metric, data.k) for unit in units]
    known = [unit.known for unit in units]
    return Ensemble.fit(held_out, known, calibrator, range(data.k), n_first)


def _sharpen(
    ensemble: Ensemble, judged: Ensemble, units: list[FoldFit], metric: str, data: Data
) -> Ensemble:
    """Sharpen the mean of an ensemble by how far the judged models disagree on test rows.

    Their labels are not used. Nothing changes if the mean is sharpened already, or with few test rows.
    """
    if ensemble.beta is not None or data.test is None or data.test.n_used < FEW_ROWS:
        return ensemble
    logits = [unit.test_logits(metric, data.k) for unit in units]
    disagreement = judged.disagreement(logits, data.test.weights)
    return ensemble.sharpen(disagreement, sum(len(unit.y) for unit in units))


# ---- training ----------------------------------------------------------------------------------------------


class Cancelled(Exception):
    """Another training run has failed, or the user has interrupted the fit."""


@dataclass(slots=True)
class Trainer:
    """Trains the models of all folds, several at once, or loads them from an unfinished run."""

    data: Data
    options: Options
    unfinished: UnfinishedRun
    progress: Progress
    total: int
    begun: int = 0

    def units(
        self, pairs: Parts, params: Mapping[str, Any], candidate: int | None
    ) -> list[FoldFit]:
        """Return the training runs of a candidate, or of the delivered models, by fold."""
        n_workers, n_threads = self._share_cores(pairs)
        first, self.begun = self.begun + 1, self.begun + len(pairs)
        cancel = threading.Event()

        def unit(fold: int) -> FoldFit:
            try:
                return self._unit(pairs, params, (candidate, fold), first + fold, n_threads, cancel)
            except BaseException:
                cancel.set()  # the others end at their next step
                raise

        if n_workers == 1:
            return [unit(fold) for fold in range(len(pairs))]
        with ThreadPoolExecutor(n_workers) as pool:  # boosting libraries free the interpreter
            runs = [pool.submit(unit, fold) for fold in range(len(pairs))]
            try:
                for run in as_completed(runs):
                    if not isinstance(run.exception(), Cancelled):
                        run.result()  # raises what went wrong
            except BaseException:  # ctrl-C among them
                cancel.set()
                raise
        return [run.result() for run in runs]

    def _share_cores(self, pairs: Parts) -> tuple[int, int | None]:
        """Return how many models to train at once, and how many threads each gets (None: the default)."""
        kind, numbers = get_model(self.options.model), pairs.rows.X.size
        cores = check_threads(self.options.n_threads)
        n_workers = min(cores, len(pairs), max(1, MOST_NUMBERS // max(1, numbers)))
        if not kind.frees_the_interpreter or n_workers == 1:
            few = self.options.n_threads is None and numbers < FEW_NUMBERS
            return 1, 1 if few else self.options.n_threads
        return n_workers, 1 if numbers < FEW_NUMBERS else cores // n_workers

    def _unit(
        self,
        pairs: Parts,
        params: Mapping[str, Any],
        where: tuple[int | None, int],
        run: int,
        n_threads: int | None,
        cancel: threading.Event,
    ) -> FoldFit:
        if cancel.is_set():
            raise Cancelled
        self.progress.start(run, self.total, _max_steps(self.options))
        found = self.unfinished.load(*where)

        def report(step: int, monitor: RefinementMonitor) -> None:
            if cancel.is_set():
                raise Cancelled
            seen = monitor.history and monitor.last_step == step
            self.progress.step(run, step, monitor.history[-1] if seen else None)

        try:
            if found is None:
                test = None if where[0] is None else self.data.test
                rows = pairs[where[1]]
                found = _train(
                    rows, test, self.options, params, where, self.unfinished, n_threads, report
                )
        finally:
            self.progress.finish(run)
        return found


def _max_steps(options: Options) -> int:
    return (
        get_model(options.model).default_steps if options.max_steps is None else options.max_steps
    )


def _train(
    pair: tuple[Rows, Rows],
    test: Rows | None,
    options: Options,
    params: Mapping[str, Any],
    where: tuple[int | None, int],
    unfinished: UnfinishedRun,
    n_threads: int | None,
    report: Callable[[int, RefinementMonitor], None],
) -> FoldFit:
    """Train one model; store it at the step of smallest refinement error."""
    kind, (rows, val) = get_model(options.model), pair
    known = np.unique(rows.y)
    is_final = where[0] is None
    monitor = RefinementMonitor(
        CHOSEN_BY,
        also=(USUAL,) if is_final else TRACKED,
        patience=kind.default_patience if options.patience is None else options.patience,
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
        seed=options.seed + where[1],
        n_threads=n_threads,
        on_step=lambda step: report(step, monitor),
    )
    if monitor.best is None:
        raise ValueError(
            f"{options.model} predicted no finite numbers: lower its learning rate, or try "
            "another --model"
        )
    folder = unfinished.new(f"{UNDER_WAY}-{where[1]}")
    model.save(folder, monitor.best.step)
    steps = {best.step for best in monitor.bests.values()}
    logits = model.logits_at(val.X, steps)
    on_test = {} if test is None else model.logits_at(test.X, steps)
    choices = {
        name: BestStep(best.step, best.value, logits[best.step], on_test.get(best.step))
        for name, best in monitor.bests.items()
    }
    assert val.places is not None, "rows of a table"
    candidate, fold = where
    history, (y, weights, places) = monitor.history, (val.y, val.weights, val.places)
    return unfinished.keep(
        FoldFit(candidate, fold, known, history, choices, folder, y, weights, places)
    )
