"""The metrics of the paper's experiment and some more, followed from step to step at little cost.

All of them come from a few reads of the validation logits: the search for the temperature starts at the last
step's; derivatives by row give the temperatures without each fold, and without each row; one sort serves
AUROC and isotonic regression. Where a shortcut does not hold, the package's general functions are called.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.errors import fail_choice
from refinecal._core.sample import NOTHING, Sample
from refinecal.experiments.plan import METRIC_NAMES
from refinecal.losses import get_loss, losses_at
from refinecal.metrics import BUILT_IN, Metric, get_metric
from refinecal.metrics.tally import areas_of, mean_area
from refinecal.resampling import SMALL_CHANGE, deal_shuffled, leave_one_out
from refinecal.stopping import RefinementMonitor
from refinecal.temperature.fit import MAX_BETA, KernelReader, fit_sample

Floats = NDArray[np.float64]
LOG = get_loss("log")
BRIER = get_loss("brier")
ONLY_BINARY = ("refinement_isotonic", "refinement_ivap")
FOLDS = 5
FINE = 1e-11  # relative error of beta; the loss has no slope there
# Of the beta without a fold: an upper bound, a hundredth of which is felt in the loss
FINE_WITHOUT = 1e-6
ROUNDING = 1e-9  # steps whose values differ by less, relatively, are equal


class Tracker(RefinementMonitor):
    """A monitor that never stops training, and knows the best step by each metric.

    ``refinement``, ``brier_refinement`` and ``refinement_isotonic`` are fitted and measured on the same rows;
    so are ``refinement_laplace``, temperature scaling with Laplace smoothing inside the estimate as in the
    paper's main experiments, and ``refinement_ivap``, inductive Venn-Abers prediction: these two may exceed
    the loss before calibration. ``refinement_cv5`` is out of fold with Laplace smoothing, in the same
    random folds at every step, and ``refinement_loo`` by approximate leave-one-out, as
    :func:`refinecal.decompose` does with ``cv=``. Logits are rounded to float32, as they will be stored.

    Parameters
    ----------
    labels : ndarray of int64
        Of the validation rows, as columns of the logits; rows with a negative one, of a class without
        training rows, are left out.
    n_classes : int
        Columns of the logits; two may be one column of log-odds.
    names : iterable of str
        Which metrics; isotonic and Venn-Abers ones are left out if there are more than two classes.

    Attributes
    ----------
    logits : dict
        By step, the float32 logits of all validation rows at the best step by each metric.
    seconds : float
        Time spent here.
    """

    def __init__(
        self, labels: NDArray[np.int64], n_classes: int, names: Iterable[str] = METRIC_NAMES
    ) -> None:
        names = list(names)
        chosen = [_metric(name) for name in names if n_classes == 2 or name not in ONLY_BINARY]
        if not chosen:
            raise ValueError(
                f"{' and '.join(names)}: for two classes, not for {n_classes}; track another metric as well"
            )
        super().__init__(chosen[0], chosen[1:], n_threads=1)
        rows = np.flatnonzero(labels >= 0)
        if not len(rows):
            raise ValueError(
                "no validation row has a class of the training rows: use more rows, or another split"
            )
        folds = deal_shuffled(len(rows), min(FOLDS, len(rows)))  # the same for the same number
        order, self._starts = np.concatenate(folds), np.cumsum([0, *map(len, folds)])
        self.folds = list(pairwise(self._starts.tolist()))
        self.rows = rows[order]
        self.labels = np.ascontiguousarray(labels[self.rows])
        self.n_classes = n_classes
        self.logits: dict[int, NDArray[np.float32]] = {}
        self.seconds = 0.0
        self._signs = np.where(self.labels == 1, np.float32(1), np.float32(-1))
        self._ones = self.labels == 1
        self._parts, self._steps = np.empty((4, len(rows))), np.empty(len(rows))
        self._loops = _kernels.tracking

    def update(
        self,
        y_val: Any,
        probs: Any = None,
        *,
        logits: Any = None,
        step: int | None = None,
        sample_weight: Any = None,
    ) -> bool:
        """Record the validation logits of a step; return whether the first metric is the best so far."""
        if logits is None or sample_weight is not None:
            raise TypeError("a tracker takes logits=, and rows that count once each")
        began = time.perf_counter()
        step = self._check_step(step)
        with np.errstate(over="ignore"):  # what is too large for float32 has diverged
            given = np.asarray(logits)
            given = given[:, 1] - given[:, 0] if given.shape[1:] == (2,) else given
            given = given.astype(np.float32, copy=False)
        z = given[self.rows]
        if not np.isfinite(z).all():
            better = self._diverge(step)
        else:
            values = self._two(z) if z.ndim == 1 else self._several(z)
            record = {"step": step, "risk": values["log_loss"]} | values
            better = self._take(record, ROUNDING)  # calibrated later, from the stored logits
            self._keep(given, step)
        self.seconds += time.perf_counter() - began
        return better

    def _keep(self, logits: NDArray[np.float32], step: int) -> None:
        """Keep a copy of the logits of steps that are the best by some metric so far, and no others."""
        wanted = {best.step for best in self.bests.values()}
        if step in wanted:
            self.logits = {at: kept for at, kept in self.logits.items() if at in wanted}
            self.logits[step] = logits.copy()

    def values(self) -> dict[str, Floats]:
        """Return the value of each metric at every step."""
        names = [metric.name for metric in self.metrics]
        return {name: np.array([record[name] for record in self.history]) for name in names}

    # ---- two classes -------------------------------------------------------------------------------------

    def _two(self, z: NDArray[np.float32]) -> dict[str, float]:
        loops, t = self._loops, (self._signs * z).astype(np.float64)

        @cache
        def sample() -> Sample:  # rarely needed
            return Sample(self.labels, np.stack([np.zeros(len(z)), z], axis=1))

        beta = loops.best_beta(t, self._start, FINE)
        if not _is_inside(beta):
            beta = fit_sample(sample(), self._start).beta
        risk, brier = loops.mean_losses(t, 1.0)
        refinement, brier_after = loops.mean_losses(t, beta)
        loops.derivatives(t, beta, self._parts)
        betas = self._betas_without(sample, beta, t)
        losses = [
            loops.smoothed_loss(t[begin:end], without, len(t) - (end - begin))
            for without, (begin, end) in zip(betas, self.folds, strict=True)
        ]
        mass, hits = loops.merge_ties(loops.sort_scores(t, self._ones))
        self._remember(beta)
        return {
            "log_loss": risk,
            "brier": brier,
            "accuracy": np.count_nonzero((z > 0) == self._ones) / len(z),
            "auroc": loops.area(mass, hits),
            "refinement": min(refinement, risk),
            "brier_refinement": min(brier_after, brier),
            "refinement_cv5": sum(losses) / len(z),
            "refinement_isotonic": min(loops.isotonic_loss(mass, hits), risk),
            **self._wanted(
                refinement_laplace=lambda: loops.smoothed_loss(t, beta, len(t)) / len(t),
                refinement_ivap=lambda: loops.venn_abers_loss(mass, hits),
            ),
            "refinement_loo": self._left_out(sample, beta, refinement),
        }

    # ---- several -----------------------------------------------------------------------------------------

    def _several(self, z: NDArray[np.float32]) -> dict[str, float]:
        sample = Sample(self.labels, np.ascontiguousarray(z, dtype=np.float64))
        fit = fit_sample(sample, self._start)
        briers, losses = (losses_at(sample, 1.0, loss) for loss in (BRIER, LOG))
        risk, brier = float(losses.mean()), float(briers.mean())
        brier_after = float(losses_at(sample, fit.beta, BRIER).mean())
        if _is_inside(fit.beta):
            self._parts = KernelReader(sample).rows(fit.beta)[1:]
        betas = self._betas_without(lambda: sample, fit.beta, NOTHING)
        smoothed = [
            _smoothed_loss(sample.take(slice(begin, end)), without, len(z) - (end - begin))
            for without, (begin, end) in zip(betas, self.folds, strict=True)
        ]
        self._remember(fit.beta)
        return {
            "log_loss": risk,
            "brier": brier,
            "accuracy": float(np.mean(z.argmax(axis=1) == self.labels)),
            "auroc": mean_area(areas_of(sample)),
            "refinement": min(fit.loss, risk),
            "brier_refinement": min(brier_after, brier),
            "refinement_cv5": sum(smoothed) / len(z),
            **self._wanted(
                refinement_laplace=lambda: _smoothed_loss(sample, fit.beta, len(z)) / len(z)
            ),
            "refinement_loo": self._left_out(lambda: sample, fit.beta, fit.loss),
        }

    def _wanted(self, **values: Callable[[], float]) -> dict[str, float]:
        """Return the values of the metrics that are tracked."""
        names = {metric.name for metric in self.metrics}
        return {name: value() for name, value in values.items() if name in names}

    # ---- temperatures ------------------------------------------------------------------------------------

    def _remember(self, beta: float) -> None:
        """Start the next search at the beta that was found, unless that says nothing."""
        if _is_inside(beta):
            self._start = beta

    def _betas_without(self, sample: Callable[[], Sample], beta: float, t: Floats) -> list[float]:
        """Return the best beta of all rows but those of each fold."""
        if len(self.folds) < 2:
            return [math.nan] * len(self.folds)
        found = [math.nan] * len(self.folds)
        if _is_inside(beta):
            found = self._loops.betas_without(
                t, self._parts, self._starts, beta, FINE_WITHOUT
            ).tolist()
        return [
            self._fit_without(sample(), fold, beta) if math.isnan(near) else near
            for near, fold in zip(found, self.folds, strict=True)
        ]

    def _fit_without(self, sample: Sample, fold: tuple[int, int], beta: float) -> float:
        kept = np.ones(sample.n, dtype=bool)
        kept[slice(*fold)] = False
        # if all are flat, any beta will do
        is_known = _is_inside(beta) and self._parts[1, kept].any()
        return fit_sample(sample.take(kept), beta if is_known else 1.0).beta

    def _left_out(self, sample: Callable[[], Sample], beta: float, refinement: float) -> float:
        """Return the mean loss of each row under the beta of all others, approximately."""
        if len(self.rows) < 2:
            return math.nan
        if not _is_inside(beta):
            return _left_out_one_by_one(sample(), beta)
        gain, n_far, n_large = self._loops.one_left_out(self._parts, self._steps)
        if n_large:
            return _left_out_one_by_one(sample(), beta)
        if n_far:
            far = np.flatnonzero(np.abs(self._steps) >= SMALL_CHANGE)
            rows, betas = sample().take(far), beta * (1 + self._steps[far])
            gain += float(np.sum(losses_at(rows, betas, LOG) - losses_at(rows, beta, LOG)))
        return refinement + float(gain) / len(self.rows)


@cache
def warm_up(two_classes: bool) -> None:
    """Load the compiled loops, which takes half a second, before anything is timed."""
    labels = np.arange(60) % 3
    logits = np.random.default_rng(0).normal(size=(60, 3)) + np.eye(3)[labels]
    if two_classes:
        labels, logits = labels % 2, logits[:, 1] - logits[:, 0]
    tracker = Tracker(labels, 2 if two_classes else 3)
    for step in range(2):
        tracker.update(labels, logits=logits / (1 + step), step=step)


def _metric(name: str) -> Metric:
    if name not in METRIC_NAMES:
        fail_choice("metric", name, list(METRIC_NAMES), "left out")
    if name in BUILT_IN:
        return get_metric(name)
    return Metric(_never_called, name)


def _never_called(*args: Any) -> NoReturn:
    raise AssertionError("a tracker computes its metrics together")


def _is_inside(beta: float) -> bool:
    """Tell whether a beta is far from the ends of the search, where its derivatives say little."""
    return 1e-6 < beta < MAX_BETA / 2


def _left_out_one_by_one(sample: Sample, beta: float) -> float:
    with warnings.catch_warnings():  # of a loss that is large at this step: the record shows it
        warnings.simplefilter("ignore", RuntimeWarning)
        return leave_one_out(sample, beta, LOG)


def _smoothed_loss(sample: Sample, beta: float, n_fitted: int) -> float:
    """Return the sum of the log losses after scaling by beta and Laplace smoothing."""
    chances = np.exp(-losses_at(sample, beta, LOG))
    return float(-np.log((n_fitted * chances + 1 / sample.k) / (n_fitted + 1)).sum())
