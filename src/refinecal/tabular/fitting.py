"""Fit a model to a table: split, train, choose by refinement, calibrate, evaluate on test rows."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol

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
from refinecal.tabular.clock import Clock, duration
from refinecal.tabular.data import Data, Options
from refinecal.tabular.fit_folder import UNDER_WAY, FitFolder
from refinecal.training.crossfit import (
    Best,
    BestStep,
    Cancelled,
    CrossFit,
    Ensemble,
    FoldModel,
    average,
)
from refinecal.training.pool import Pool
from refinecal.training.rows import Parts, Rows
from refinecal.training.spaces import draw
from refinecal.training.table_model import TableModel, get_model
from refinecal.training.trainer import DEFAULTS, TrainingRun

CHOSEN_BY, USUAL = "refinement", "log_loss"  # how we choose, and early stopping on validation loss
FEW_NUMBERS = 200_000  # cells of a table for which one thread is enough
MOST_NUMBERS = 100_000_000  # cells of the tables of all models that are trained at once
LONG = 30.0  # seconds: a shorter rest is not worth announcing
TRAINING_SHARE = 0.9  # of the time of a run; predictions and files take the rest
FEW_ROWS = 50  # too few to measure how far models disagree, or how a loss changes
TRACKED = (USUAL, "brier", "accuracy", "auroc")


class Progress(Protocol):
    """Follows a fit. Several threads call it if several models train at once."""

    def say(self, text: str) -> None:
        """Tell the user what is planned, and how long it takes."""
        return

    def start(self, run: int, name: str, max_steps: int) -> None:
        """Start a training run; ``run`` counts from 1, ``name`` is such as "xgboost 3 of 10"."""
        return

    def step(self, run: int, number: int, record: Mapping[str, float]) -> None:
        """Finish a step of it, with what the monitor recorded."""
        return

    def finish(self, run: int) -> None:
        """Finish the run."""
        return


class NullProgress(Progress):
    """Shows nothing."""


class Candidate(NamedTuple):
    """A kind of model and its parameters."""

    kind: str
    params: dict[str, Any]
    is_random: bool = False  # instead of the defaults
    # Unless options say otherwise; by default those of its kind.
    patience: int | None = None
    max_steps: int | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The result of choosing by one metric: the candidate, the step of each fold, test probabilities.

    A pool of several candidates is one too; then the candidate and the steps are those of the best.
    """

    metric: str
    candidate: int
    steps: list[int]
    value: float
    ensemble: Ensemble | Pool
    # By loss, for each test row: the mean of the single models' losses.
    single: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    before: NDArray[np.float64] | None = None  # mean test probabilities before calibration
    after: NDArray[np.float64] | None = None  # and after


@dataclass(frozen=True, slots=True)
class Member:
    """A candidate next to the others."""

    name: str
    weight: float  # in the pool
    refinement: float  # on validation rows, as is the log loss, before calibration
    log_loss: float
    units: list[FoldModel]
    tested: Selection

    @property
    def average(self) -> Ensemble:
        """Its models as pools take them, which are sharpened as a whole."""
        assert isinstance(self.tested.ensemble, Ensemble), "of one candidate"
        return plain_mean(self.tested.ensemble)

    @property
    def seconds(self) -> float:
        """How long its training runs took."""
        return sum(unit.seconds for unit in self.units)


def plain_mean(ensemble: Ensemble) -> Ensemble:
    """Return an ensemble that is not sharpened; a geometric mean, whose sharpness is not known, stays one."""
    return ensemble if ensemble.beta is None else replace(ensemble, beta=1.0)


def by_weight(members: Sequence[Member]) -> list[Member]:
    """Return the members of the pool, the heaviest first: the order of its models everywhere."""
    return sorted((each for each in members if each.weight > 0), key=lambda each: -each.weight)


@dataclass(slots=True)
class Fit:
    """A finished fit: what each metric chose, test results, and the delivered models."""

    data: Data
    options: Options
    candidates: list[Candidate]
    units: list[FoldModel]  # of the chosen candidate
    outcomes: dict[str, Selection]
    history: list[dict[str, float]]
    delivered: list[FoldModel]  # the same as the units, or models of all rows
    ensemble: Ensemble | Pool  # of those
    pooled: Selection | None = None  # of several candidates, if they are pooled
    members: tuple[Member, ...] = ()  # of the leaderboard, the best first
    n_retrained: int = 1  # members of the pool that were trained again on all rows
    plan: tuple[str, ...] = ()  # what was said of the time
    most_rows: int | None = None  # that a model was trained on, if there was no time for more

    chosen: Selection = field(init=False)  # the best candidate by refinement
    final: Selection = field(
        init=False
    )  # what is delivered, as it was judged: the pool, or the best
    kind: str = field(init=False)  # of the chosen candidate, as are the next two
    step_name: str = field(init=False)
    max_steps: int = field(init=False)
    used: list[Member] = field(init=False)  # members of the pool
    tested: list[FoldModel] = field(init=False)  # the models that were judged, member by member
    groups: Mapping[str, Ensemble] = field(init=False)  # of the delivered models, by member

    def __post_init__(self) -> None:
        pool, self.chosen = self.ensemble, self.outcomes[CHOSEN_BY]
        self.final = self.chosen if self.pooled is None else self.pooled
        self.kind = self.candidates[self.chosen.candidate].kind
        model = get_model(self.kind)
        steps = self.candidates[self.chosen.candidate].max_steps
        self.step_name = model.step_name
        self.max_steps = self.options.max_steps or steps or model.default_steps
        self.used = by_weight(self.members)
        of_members = [unit for member in self.used for unit in member.units]
        self.tested = self.units if self.pooled is None else of_members
        self.groups = pool.groups if isinstance(pool, Pool) else {"": pool}

    @property
    def usual(self) -> Selection:
        """The result of stopping and choosing by validation loss."""
        return self.outcomes[USUAL]

    @property
    def validation_loss(self) -> float:
        """The log loss of the held-out rows, each predicted by one model, calibrated as the others are."""
        losses, _, weights = self._held_out(self.tested, self.data.pairs, self.final.ensemble)
        return float(np.average(losses, weights=weights))

    @property
    def change_with_all_rows(self) -> Difference | None:
        """How the validation loss changes when models are also trained on the test rows.

        ``None`` if that is unknown: the same models are delivered, or few rows are held out in both passes.
        """
        if self.data.everything is None or self.data.test is None:
            return None
        if self.n_retrained < max(1, len(self.used)):
            return None
        first, places, weights = self._held_out(self.tested, self.data.pairs, self.final.ensemble)
        last, others, _ = self._held_out(self.delivered, self.data.everything, self.ensemble)
        _, in_first, in_last = np.intersect1d(places, others, return_indices=True)
        if len(in_first) < FEW_ROWS:
            return None
        weights = None if weights is None else weights[in_first]
        return paired_difference(last[in_last], first[in_first], weights)

    def _held_out(
        self, units: list[FoldModel], parts: Parts, ensemble: Ensemble | Pool
    ) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.float64] | None]:
        """Return the loss of each row that was held out of one model, its place, and its weight."""
        k, groups = (
            self.data.k,
            [ensemble] if isinstance(ensemble, Ensemble) else ensemble.groups.values(),
        )
        n = min(parts.n_first, *(len(each.known) for each in groups))
        probs = ensemble.predict_held_out(units, CHOSEN_BY, n)
        y = np.concatenate([unit.y for unit in units[:n]])
        weights = [unit.weights for unit in units[:n] if unit.weights is not None]
        return (
            row_losses(y, np.concatenate(probs), classes=range(k)),
            np.concatenate([unit.places for unit in units[:n]]),
            np.concatenate(weights) if weights else None,
        )

    @property
    def hit_the_end(self) -> bool:
        """Whether the best step is the last that was allowed, so that more might be better."""
        is_patient = get_model(self.kind).default_patience is None  # all steps are looked at
        is_planned = (
            self.candidates[self.chosen.candidate].max_steps is not None
        )  # for its schedule
        is_last = bool(np.median(self.chosen.steps) == self.max_steps)
        return is_last and not is_patient and not is_planned


def plan(data: Data, options: Options) -> dict[str, Any]:
    """Return what must be unchanged for an unfinished fit to be resumed."""
    found = {"data": data.key, "refinecal": refinecal.__version__, **asdict(options)}
    del found["time_limit"]  # more time may be given
    return found


def fit(
    data: Data,
    options: Options,
    folder: FitFolder,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Fit:
    """Train every candidate on every fold; keep what each metric would choose.

    The folder keeps training runs until all are done; ``progress`` is called at every step.
    """
    progress, clock = progress or NullProgress(), clock or Clock()
    candidates = draw_candidates(options)
    folds = TableFolds(data, options, candidates, folder, progress, clock)
    metrics = [get_metric(name) for name in (CHOSEN_BY, *TRACKED)]
    trained = folds.train_all(data.pairs, len(candidates), len(data.pairs))
    best = folds.search(data.pairs, trained, metrics)
    outcomes = folds.select(best, options.calibrator)
    return folds.deliver(outcomes, best[CHOSEN_BY][1], options.calibrator)


def draw_candidates(options: Options) -> list[Candidate]:
    """Return what to choose from: the model's default, then as many random ones as asked for."""
    rng, kind = np.random.default_rng(options.seed), options.model
    random = [Candidate(kind, draw(kind, rng), True) for _ in range(options.tune - 1)]
    return [Candidate(kind, dict(DEFAULTS.get(kind, {}))), *random]


@dataclass(slots=True)
class TableFolds(CrossFit):
    """Trains the models of a table, several at once, or loads them from an unfinished run."""

    data: Data
    options: Options
    candidates: list[Candidate]
    folder: FitFolder
    progress: Progress
    clock: Clock
    most_rows: int | None = None  # that a model is trained on,
    folds: Sequence[int] = ()  # that are trained one after the other until the clock's deadline
    n_done: int = field(default=0, init=False)  # training runs of this process

    # ---- choosing ------------------------------------------------------------------------------------------

    @property
    def tracked(self) -> tuple[str, ...]:
        """The metrics that refinement is compared with; fewer take less time, since each has a best step."""
        return (USUAL,) if self.options.model == "auto" else TRACKED

    def deliver(
        self,
        outcomes: dict[str, Selection],
        units: list[FoldModel],
        calibrator: Any,
        n_again: int | None = None,
    ) -> Fit:
        """Return the fit that delivers the chosen models.

        They are trained again on all rows, on all folds or the first of them, if options ask for it.
        """
        chosen, everything = outcomes[CHOSEN_BY], self.data.everything
        delivered, ensemble = units, chosen.ensemble
        if everything is not None and n_again != 0:
            folds = range(len(everything))[:n_again]
            delivered = self.train_folds(everything, chosen.candidate, folds, record=False)
            ensemble = self.join(delivered, calibrator, everything, tested=(chosen, units))
        found = (units, outcomes, self.history, delivered, ensemble)
        return Fit(self.data, self.options, self.candidates, *found)

    def join(
        self,
        units: list[FoldModel],
        calibrator: Any,
        parts: Parts,
        metric: str = CHOSEN_BY,
        tested: tuple[Selection, list[FoldModel]] | None = None,
    ) -> Ensemble:
        """Calibrate models on the rows held out of each, and sharpen their mean.

        If it is not known how far they disagree, test rows show it, without their labels: those of the same
        models, or if these have been trained on test rows, of the ``tested`` ones. Few test rows do not.
        """
        k, test = self.data.k, self.data.test
        ensemble = self.calibrate(units, calibrator, parts, metric)
        judged, seen = ensemble, units
        if tested is not None:
            judged, seen = tested[0].ensemble, tested[1]  # type: ignore[assignment]  # of one candidate
        if ensemble.beta is not None or len(seen) == 1 or test is None or test.n_used < FEW_ROWS:
            return ensemble
        logits = [unit.test_logits(metric, k) for unit in seen]
        disagreement = judged.disagreement(logits, test.weights)
        return ensemble.sharpen(disagreement, sum(len(unit.y) for unit in seen))

    def calibrate(
        self, units: list[FoldModel], calibrator: Any, parts: Parts, metric: str = CHOSEN_BY
    ) -> Ensemble:
        """Calibrate models on the rows held out of each."""
        held_out = [unit.held_out(metric, self.data.k) for unit in units]
        known, n_first = [unit.known for unit in units], min(parts.n_first, len(units))
        return Ensemble.fit(held_out, known, calibrator, range(self.data.k), n_first)

    def select(self, best: Best, calibrator: Any) -> dict[str, Selection]:
        """Return the result of choosing by each metric; metrics with the same choice share it.

        Log loss, which refinement is compared with, gets a calibrator fitted in the same way. The other
        metrics reuse the blend of calibrators found for refinement, which saves time.
        """
        found: dict[str, Selection] = {}
        seen: dict[tuple[int, ...], Selection] = {}
        if self.data.test is None:  # no rows to compare metrics on
            best = {CHOSEN_BY: best[CHOSEN_BY]}
        for name, (value, units) in best.items():
            which = units[0].candidate, *(each.choices[name].step for each in units)
            if which in seen:
                found[name] = replace(seen[which], metric=name, value=value)
                continue
            if name not in (CHOSEN_BY, USUAL):
                ours: Any = found[CHOSEN_BY].ensemble
                if isinstance(ours.calibrator, AutoCalibrator):
                    calibrator = AutoCalibrator(weights=ours.calibrator.weights_.tolist())
            ensemble = self.join(units, calibrator, self.data.pairs, name)
            found[name] = seen[which] = self.select_one(name, value, units, ensemble)
        return found

    def select_one(
        self, metric: str, value: float, units: list[FoldModel], ensemble: Ensemble
    ) -> Selection:
        """Return what the models of a candidate say of the test rows, at the steps that a metric chose."""
        test, columns = self.data.test, range(self.data.k)
        steps = [each.choices[metric].step for each in units]
        choice = Selection(metric, units[0].candidate, steps, value, ensemble)
        if test is None:
            return choice
        logits = [unit.test_logits(metric, self.data.k) for unit in units]
        probs = [np.exp(log_softmax(each)) for each in logits]
        single = {
            loss: np.mean(
                [row_losses(test.y, p, loss=loss, classes=columns) for p in probs], axis=0
            )
            for loss in ("log", "brier")
        }
        before, after = average(probs, ensemble.known), ensemble.predict_proba(logits)
        return replace(choice, single=single, before=before, after=after)

    def skip(self, candidate: int, error: ValueError) -> None:
        """Skip a configuration, unless it is the default: then something is wrong with the table."""
        if candidate == 0:
            raise error
        warn(f"configuration {candidate} is skipped: {error}")

    # ---- training ------------------------------------------------------------------------------------------

    def share_cores(self, parts: Any, candidate: int) -> tuple[int, int | None]:
        """Return how many models to train at once, and how many threads each gets (None: the default)."""
        numbers, n_threads = parts.rows.X.size, self.options.n_threads
        cores, is_small = check_threads(n_threads), numbers < FEW_NUMBERS
        most = len(self.folds) or len(parts)
        n_workers = min(cores, most, len(parts), max(1, MOST_NUMBERS // max(1, numbers)))
        kind = get_model(self.candidates[candidate].kind)
        if not kind.frees_the_interpreter or n_workers == 1:
            return 1, 1 if is_small and n_threads is None else n_threads
        return n_workers, 1 if is_small else cores // n_workers

    def train(self, parts: Any, candidate: int, fold: int) -> FoldModel:
        """Return a training run, loaded if it was finished before."""
        if self.cancel.is_set():
            raise Cancelled
        everything, is_judged = self.data.everything, parts is self.data.pairs
        n_judged = len(self.candidates) * len(self.data.pairs)
        number = (candidate * len(self.data.pairs) if is_judged else n_judged) + fold + 1
        total = n_judged + (0 if everything is None else len(everything))
        kind, steps = self.candidates[candidate].kind, self.candidates[candidate].max_steps
        label = kind + f" {number} of {total}" * (total > 1 and self.clock.limit == np.inf)
        if self.n_done and number < total and self.clock.limit == np.inf:
            used = self.clock.now() - self.clock.start
            rest = used / self.n_done * (total - number + 1)
            label += f", about {duration(rest)} left" if rest >= LONG else ""
        most = self.options.max_steps or steps or get_model(kind).default_steps
        self.progress.start(number, label, most)
        name = self._run_name(parts, candidate, fold)
        try:
            found = self.folder.load(name)
            if found is None:
                trained = get_model(kind)
                trained.check_library()  # which may take a second, the first time
                start, run = self.clock.now(), self._new_run(parts, candidate, fold, number, most)
                model = trained.train(run)
                unit = self._keep(model, run, candidate, fold, is_judged)
                unit = replace(unit, seconds=self.clock.now() - start)
                found = self.folder.keep(unit, name, self.clock.elapsed)
                self.n_done += 1
            return found
        finally:
            self.progress.finish(number)

    def _run_name(self, parts: Any, candidate: int, fold: int) -> str:
        return f"{'candidate' if parts is self.data.pairs else 'delivered'}-{candidate}-fold-{fold}"

    def is_stored(self, parts: Any, candidate: int, fold: int) -> bool:
        """Tell whether a training run was finished before."""
        return (self.folder.path / self._run_name(parts, candidate, fold)).exists()

    def _new_run(
        self, parts: Any, candidate: int, fold: int, number: int, max_steps: int
    ) -> TrainingRun:
        """Return what one model is trained on, with a monitor."""
        options, (rows, val) = self.options, parts[fold]
        kind, params, _, patience, _ = self.candidates[candidate]
        known = np.unique(rows.y)
        monitor = RefinementMonitor(
            CHOSEN_BY,
            also=self.tracked if parts is self.data.pairs else (USUAL,),
            patience=options.patience or patience or get_model(kind).default_patience,
            stop_on=(CHOSEN_BY, USUAL),
        )

        deadline = self._deadline(parts, candidate, fold)

        def report(step: int) -> None:
            if self.cancel.is_set():
                raise Cancelled
            self.progress.step(number, step, monitor.history[-1])
            if self.clock.now() >= deadline:
                run.max_steps = step  # and the best step until now is taken

        if self.most_rows is not None:
            rows = take_some(rows, self.most_rows, options.seed)
        run = TrainingRun(
            replace(rows, y=np.searchsorted(known, rows.y)),
            replace(val, y=np.searchsorted(known, val.y)),
            known,
            monitor,
            max_steps,
            params,
            options.seed + fold,
            self.share_cores(parts, candidate)[1],
            report,
            None if deadline == np.inf else lambda: deadline - self.clock.now(),
        )
        return run

    def _deadline(self, parts: Any, candidate: int, fold: int) -> float:
        """Return until when a run may take, so that the folds that wait for it get their share."""
        now, end = self.clock.now(), self.clock.deadline
        behind = self.folds[self.folds.index(fold) :] if fold in self.folds else [fold]
        n_waves = -(-len(behind) // self.share_cores(parts, candidate)[0])
        return end if end == np.inf else now + TRAINING_SHARE * (end - now) / n_waves

    def _keep(
        self, model: TableModel, run: TrainingRun, candidate: int, fold: int, is_judged: bool
    ) -> FoldModel:
        """Save a model at its step of smallest refinement error; return it with its predictions."""
        bests, val, test = run.monitor.bests, run.val, self.data.test
        assert val.places is not None, "keyed"
        if CHOSEN_BY not in bests:
            raise ValueError(
                f"{model.name} predicted no finite numbers: lower its learning rate, or try another --model"
            )
        folder = self.folder.new(f"{UNDER_WAY}-{fold}")
        model.save(folder, bests[CHOSEN_BY].step)
        steps = {best.step for best in bests.values()}
        logits = model.logits_at(val.X, steps)
        on_test = {} if test is None or not is_judged else model.logits_at(test.X, steps)
        choices = {
            name: BestStep(best.step, best.value, logits[best.step], on_test.get(best.step))
            for name, best in bests.items()
        }
        about = (candidate, fold, run.classes, run.monitor.history, choices, folder)
        return FoldModel(*about, run.classes[val.y], val.weights, val.places)


def take_some(rows: Rows, most: int, seed: int) -> Rows:
    """Return at most so many rows, drawn at random, and one of each class."""
    if rows.n <= most:
        return rows
    order = np.random.default_rng(seed).permutation(rows.n)
    firsts = np.unique(rows.y[order], return_index=True)[1]
    return rows.take(np.union1d(order[:most], order[firsts]))
