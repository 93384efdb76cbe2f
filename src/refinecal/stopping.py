"""Follow refinement from step to step and decide when to stop, independent of any framework."""

from __future__ import annotations  # so that help() shows types by name

import math
import numbers
import sys
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from refinecal._core.arrays import check_threads, to_floats
from refinecal._core.checks import (
    KnownLabels,
    check_keywords,
    check_number,
    check_sample,
    check_whole,
)
from refinecal._core.errors import fail_choice, needs_extra, warn
from refinecal._core.format import format_fixed, shorten_name
from refinecal._core.sample import Sample, on_cpu
from refinecal.calibrators import from_dict
from refinecal.calibrators.base import Calibrator, as_calibrator, make_calibrator
from refinecal.decomposition import TERMS, check_cv, decompose_sample
from refinecal.losses import ProperLoss, get_loss
from refinecal.metrics import Metric, Step, get_metrics, value_of
from refinecal.temperature.fit import MAX_BETA

if TYPE_CHECKING:
    import pandas as pd

    from refinecal.plots import TrainingCurveDisplay

__all__ = ["Best", "MonitorOptions", "RefinementMonitor"]

STATE_VERSION = 1
NEVER_WRONG = 1e-9  # refinement of perfect predictions with a large beta
LARGEST = sys.float_info.max  # finite values are better than infinite ones
ROUNDING = {4: 2e-7, 8: 1e-14}  # relative error of a mean loss, by bytes per logit

Record = dict[str, float]


@dataclass(frozen=True, slots=True)
class Best:
    """The best step by one metric: its number, value and record, and the calibrator fitted there."""

    step: int
    value: float
    record: Record
    found: Any  # the calibrator, or a DeferredCalibrator

    @property
    def calibrator(self) -> Any:
        """The calibrator of this step."""
        return self.found.resolve() if isinstance(self.found, DeferredCalibrator) else self.found


class MonitorOptions(TypedDict, total=False):
    """The keywords of :class:`RefinementMonitor` that every integration takes too."""

    metric: Any
    also: Iterable[Any]
    min_delta: float
    stop_on: Literal["metric", "all"] | Iterable[str]
    loss: str | ProperLoss
    calibrator: Any
    final: Any
    cv: Any
    classes: ArrayLike | None
    n_threads: int | None


class RefinementMonitor:
    """Follow validation predictions from step to step; find the best step and when to stop.

    The predictions of each step are decomposed as by :func:`decompose`, starting from the last beta; only
    numbers are kept, except for ``final``.

    Parameters
    ----------
    metric : str, callable or Metric, default "refinement"
        The metric that decides: "refinement", "risk", "brier_refinement", the name of a metric of
        :mod:`refinecal.metrics` ("log_loss", "brier", "accuracy", "auroc", "ece", "smooth_ece" ...), or a
        function of ``(y_true, probs)`` where smaller is better; wrap others in
        :class:`refinecal.metrics.Metric`.
    also : iterable of metrics, default ()
        Further metrics to record, each with its own best step in :attr:`bests`.
    patience : int, optional
        Stop after this many steps in a row without improvement; by default never.
    min_delta : float, default 0
        Smaller improvements do not reset the patience, but still change the best step.
    stop_on : {"metric", "all"} or iterable of names, default "metric"
        Stop when ``metric`` has run out of patience, when all have, or when the named ones have.
    loss, calibrator, cv, classes, n_threads
        As for :func:`decompose`; "refinement" and "risk" are those of ``loss``.
    final : str or object, optional
        A different calibrator to fit at the best step. It is fitted when first used; until then a copy of the
        predictions of that step is kept. ``calibrator="auto"`` means
        ``calibrator="temperature", final="auto"``.

    Attributes
    ----------
    history : list of dict
        One record per step: ``step``, the five terms of the decomposition, ``beta``, and the metrics.
    bests : dict
        The :class:`Best` step by each metric: the first of those that are equal up to rounding. If several
        steps have refinement 0, the one with the smallest risk.

    Examples
    --------
    >>> import refinecal as rc
    >>> y_val = [0, 0, 1, 1]
    >>> monitor = rc.RefinementMonitor(patience=1)
    >>> monitor.update(y_val, [0.4, 0.6, 0.5, 0.7])
    True
    >>> monitor.update(y_val, [0.1, 0.7, 0.6, 0.9])  # better, but overconfident
    True
    >>> monitor.update(y_val, [0.6, 0.7, 0.3, 0.9]), monitor.should_stop, monitor.best_step
    (False, True, 1)

    References
    ----------
    Section 4 of the paper.
    """

    _start: float  # of the next search for beta
    _known: KnownLabels

    @check_keywords()
    def __init__(
        self,
        metric: Any = "refinement",
        also: Iterable[Any] = (),
        patience: int | None = None,
        min_delta: float = 0.0,
        *,
        stop_on: Literal["metric", "all"] | Iterable[str] = "metric",
        loss: str | ProperLoss = "log",
        calibrator: Any = "temperature",
        final: Any = None,
        cv: Any = None,
        classes: ArrayLike | None = None,
        n_threads: int | None = None,
    ) -> None:
        if isinstance(also, str | Metric) or callable(also):
            also = (also,)
        self.metrics = get_metrics([metric, *also], reserved=("step", *TERMS, "beta"))
        self.patience = check_patience(patience)
        self.min_delta = check_number("min_delta", min_delta)
        self.stop_on = stop_on
        names = [metric.name for metric in self.metrics]
        if isinstance(stop_on, str):
            stop_on = {"metric": names[:1], "all": names}.get(stop_on, [stop_on])
        self.followed = list(stop_on)
        for name in self.followed:
            if name not in names:
                fail_choice("stop_on", name, ["metric", "all", *names], "omitted")
        if not self.followed:
            raise ValueError("stop_on names no metric: name one, or omit it")
        self.loss = get_loss(loss)
        given = as_calibrator(calibrator)
        # What compares steps:
        self.family = given if given._steps_by is None else make_calibrator(given._steps_by)
        self.calibration = given if final is None else as_calibrator(final)  # for the best step
        check_cv(cv, None, self.family)
        self.cv = list(cv) if isinstance(cv, Iterator) else cv  # used at every step
        self.classes = classes
        self._threads = check_threads(n_threads)
        self.reset()

    # ---- input -------------------------------------------------------------------------------------------

    def update(
        self,
        y_val: Any,
        probs: Any = None,
        *,
        logits: Any = None,
        step: int | None = None,
        sample_weight: Any = None,
    ) -> bool:
        """Add the predictions of one step; return whether they are the best so far.

        Parameters
        ----------
        y_val, probs, logits, sample_weight
            As for :func:`decompose`.
        step : int, optional
            Its number, greater than the last; by default the next.

        Returns
        -------
        bool
            Whether ``metric`` is better than at all earlier steps.
        """
        step = self._check_step(step)
        try:
            sample = check_sample(
                y_val,
                probs,
                logits,
                sample_weight,
                self.classes,
                "y_val",
                devices=True,
                strict=True,
                quiet=bool(self.history),
                known=self._known,
                threads=self._threads,
            )
        except ValueError:
            if not _has_diverged(probs if logits is None else logits):
                raise
            return self._diverge(step)
        parts = decompose_sample(
            sample,
            self.family._copy_unfitted(),
            self.loss,
            self.cv,
            threads=self._threads,
            start=self._start,
            uncertainty=self._known.uncertainty(sample, self.loss.entropy),
        )
        seen = Step(y_val, sample, parts, self._start)
        record: Record = {"step": step}
        record |= {term: float(getattr(parts, term)) for term in TERMS}
        record["beta"] = math.nan if parts.beta is None else parts.beta
        for metric in self.metrics:
            record[metric.name] = value_of(metric, seen, sample_weight)
        if parts.beta is not None and 1e-6 < parts.beta < MAX_BETA / 2:
            self._start = parts.beta
        rounding = ROUNDING[sample.logits.dtype.itemsize]
        if self.family is self.calibration:
            return self._take(record, rounding, parts.calibrator)
        return self._take(record, rounding, sample=sample)

    def _check_step(self, step: Any) -> int:
        last = self.last_step
        if step is None:
            return 0 if last is None else last + 1
        if not isinstance(step, numbers.Integral):
            raise TypeError(f"step is {step!r}: it must be a whole number, such as the epoch")
        if last is not None and step <= last:
            raise ValueError(
                f"step is {step}, but the last step was {last}: steps must increase. For a new run call "
                "reset(); to resume one call load_state_dict with its state."
            )
        return int(step)

    def _diverge(self, step: int) -> bool:
        warn(
            f"the predictions of step {step} are not finite: training has diverged, so should_stop is set. "
            "Lower the learning rate."
        )
        names = [*TERMS, "beta", *(metric.name for metric in self.metrics)]
        self.diverged = True
        return self._take({"step": step, **dict.fromkeys(names, math.nan)}, 0.0)

    def _take(
        self, record: Record, rounding: float, fitted: Any = None, sample: Sample | None = None
    ) -> bool:
        """Keep a record; for metrics that improved, the calibrator too: ``fitted``, or one of the sample."""
        self.history.append(record)
        improved = []
        for metric in self.metrics:
            name, value = metric.name, record[metric.name]
            best, mark = self.bests.get(name), self._marks.get(name, math.nan)
            before = math.nan if best is None else best.value
            surer = (  # both have refinement 0, and this one a smaller risk
                name == "refinement"
                and best is not None
                and max(value, best.value) <= NEVER_WRONG
                and best.record["risk"] - record["risk"] > max(self.min_delta, NEVER_WRONG)
            )
            improved.append(
                surer or metric.better(value, before, rounding * min(abs(before), LARGEST))
            )
            if improved[-1]:
                if sample is not None:
                    fitted = DeferredCalibrator(self.calibration, sample, self._threads)
                    sample = None
                self.bests[name] = Best(int(record["step"]), value, record, fitted)
            if surer or metric.better(
                value, mark, max(self.min_delta, rounding * min(abs(mark), LARGEST))
            ):
                self._marks[name], self._waited[name] = value, 0
            else:
                self._waited[name] = self._waited.get(name, 0) + 1
        return improved[0]

    def reset(self) -> None:
        """Forget all steps, for a new training run."""
        self.history: list[Record] = []
        self.bests: dict[str, Best] = {}
        self.diverged = False
        self._start = 1.0
        self._known = KnownLabels()
        self._marks: dict[str, float] = {}  # the value that last reset the patience
        self._waited: dict[str, int] = {}  # the number of steps since then

    # ---- results -----------------------------------------------------------------------------------------

    @property
    def metric(self) -> Metric:
        """The metric that decides."""
        return self.metrics[0]

    @property
    def should_stop(self) -> bool:
        """Whether patience has run out, or predictions have become NaN."""
        return self.diverged or self.is_out_of_patience

    @property
    def is_out_of_patience(self) -> bool:
        """Whether there was no improvement for ``patience`` steps."""
        if self.patience is None or not self.history:
            return False
        return all(self._waited[name] >= self.patience for name in self.followed)

    @property
    def best(self) -> Best | None:
        """The best step by ``metric``; ``None`` before the first."""
        return self.bests.get(self.metric.name)

    @property
    def best_step(self) -> int | None:
        """The number of the best step; ``None`` before the first."""
        return None if self.best is None else self.best.step

    @property
    def best_value(self) -> float | None:
        """The value of ``metric`` at the best step; ``None`` before the first."""
        return None if self.best is None else self.best.value

    @property
    def calibrator(self) -> Any:
        """The calibrator fitted at the best step; ``None`` before the first."""
        return None if self.best is None else self.best.calibrator

    @property
    def last_step(self) -> int | None:
        """The number of the last step; ``None`` before the first."""
        return int(self.history[-1]["step"]) if self.history else None

    @property
    def key(self) -> str:
        """The name of ``metric`` in training logs; ends in ``loss`` if smaller is better."""
        return self._keys()[self.metric.name]

    def logs(self, prefix: str = "") -> dict[str, float]:
        """Return the last record with names for a training log, such as ``val_refinement_loss``.

        ``prefix`` is put before each name. Names end in ``loss`` if smaller is better, a hint for frameworks.
        """
        if not self.history:
            return {}
        last = self.history[-1]
        return {prefix + key: last[name] for name, key in self._keys().items() if name in last}

    def _keys(self) -> dict[str, str]:
        keys = {"refinement": "refinement_loss", "calibration": "calibration_loss"}
        keys |= {"risk": f"{self.loss.name}_loss", "beta": "beta"}
        for metric in reversed(self.metrics):  # the deciding metric last: it keeps its key
            keys.setdefault(metric.name, metric.key)
        return keys

    def to_frame(self) -> pd.DataFrame:
        """Return the history as a pandas DataFrame, indexed by step."""
        with needs_extra("pandas", package="pandas"):
            import pandas as pd
        columns = ["step", *TERMS, "beta", *(metric.name for metric in self.metrics)]
        frame = pd.DataFrame(self.history, columns=list(dict.fromkeys(columns)))
        return frame.set_index("step")

    def plot(self, ax: Any = None) -> TrainingCurveDisplay:
        """Plot risk, calibration and refinement by step, with their minima (figure 1 of the paper).

        Parameters
        ----------
        ax : matplotlib Axes, optional
            By default a new figure.

        Returns
        -------
        TrainingCurveDisplay
            With ``figure_`` and ``ax_``.
        """
        from refinecal.plots import TrainingCurveDisplay

        return TrainingCurveDisplay.from_monitor(self, ax=ax)

    def __repr__(self) -> str:
        if not self.history:
            return f"RefinementMonitor(metric={self.metric.name!r}): no step yet"
        names = {metric.name: shorten_name(metric.name, 32) for metric in self.metrics}
        width = max(6, *map(len, names.values()))
        first, last = int(self.history[0]["step"]), self.last_step
        lines = [f"RefinementMonitor, steps {first} to {last}{self._state()}"]
        lines.append(f"  {'metric':{width}}  best step      value    refinement      beta")
        for metric in self.metrics:
            best = self.bests.get(metric.name)
            if best is None:
                lines.append(f"  {names[metric.name]:{width}}  never a number")
                continue
            name, value = names[metric.name], format_fixed(best.value)
            refinement, beta = format_fixed(best.record["refinement"]), best.record["beta"]
            lines.append(f"  {name:{width}}  {best.step:9d}  {value}     {refinement}  {beta:8.4g}")
        return "\n".join(lines)

    def _state(self) -> str:
        if self.diverged:
            return ": predictions became NaN or infinite"
        if self.should_stop:
            gain = f" of {self.min_delta:g}" if self.min_delta else ""
            return f": stopped after {self.patience} without improvement{gain}"
        return ""

    # ---- resuming ----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the state for resuming, as plain numbers, strings and lists.

        Only a custom calibrator is kept as an object.
        """
        bests = {}
        for name, best in self.bests.items():
            found = best.calibrator
            state = found.to_dict() if isinstance(found, Calibrator) else found
            bests[name] = {"step": best.step, "value": best.value, "calibrator": state}
        return {
            "version": STATE_VERSION,
            "metrics": [metric.name for metric in self.metrics],
            "kind": self._kind(),
            "history": deepcopy(self.history),
            "bests": bests,
            "marks": dict(self._marks),
            "waited": dict(self._waited),
            "start": self._start,
            "diverged": self.diverged,
        }

    def _kind(self) -> dict[str, str]:
        """Return the options that must agree for values to be comparable."""
        return {
            "loss": self.loss.name,
            "calibrator": ", then ".join(
                type(getattr(one, "user", one)).__name__
                for one in dict.fromkeys((self.family, self.calibration))
            ),
            "cv": self.cv if isinstance(self.cv, str) else type(self.cv).__name__,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, of a monitor with the same options."""
        version = state.get("version") if isinstance(state, Mapping) else None
        if version != STATE_VERSION:
            raise ValueError(
                f"the state has version {version!r}, expected {STATE_VERSION}: it must come from "
                "RefinementMonitor.state_dict()"
            )
        names = [metric.name for metric in self.metrics]
        if list(state["metrics"]) != names:
            raise ValueError(
                f"the state follows the metrics {list(state['metrics'])}, this monitor {names}: use the "
                "same metric= and also="
            )
        if state["kind"] != self._kind():
            raise ValueError(
                f"the state is of {state['kind']}, this monitor of {self._kind()}: use the same loss=, "
                "calibrator= and cv="
            )
        self.reset()
        self.history = deepcopy(list(state["history"]))
        records = {record["step"]: record for record in self.history}
        for name, best in state["bests"].items():
            found = best["calibrator"]
            found = from_dict(found) if isinstance(found, dict) else found
            self.bests[name] = Best(best["step"], best["value"], records[best["step"]], found)
        self._marks, self._waited = dict(state["marks"]), dict(state["waited"])
        self._start, self.diverged = state["start"], state["diverged"]


def _has_diverged(given: Any) -> bool:
    """Return whether predictions hold NaN, or +inf in several columns; log-odds may be infinite."""
    try:
        values = to_floats(given, "predictions")
    except (TypeError, ValueError):
        return False  # another error
    if values.size == 0:
        return False
    columns = values.shape[1] if values.ndim == 2 else 1
    return bool(np.isnan(values).any() or (columns > 1 and values.max() == np.inf))


def check_patience(patience: Any, name: str = "patience") -> int | None:
    """Return a number of steps; ``name`` is that of the framework."""
    if patience is None:
        return None
    return check_whole(name, patience, otherwise=", or None to never stop")


class DeferredCalibrator:
    """A calibrator that is fitted when first used; until then it keeps a copy of the predictions."""

    def __init__(self, calibrator: Calibrator, sample: Sample, threads: int) -> None:
        own = on_cpu(sample)
        self._sample: Sample | None = own.replace(
            logits=own.logits.copy(), labels=own.labels.copy()
        )
        self._calibrator = deepcopy(calibrator)
        self._threads = threads

    def resolve(self) -> Calibrator:
        """Return the fitted calibrator; release the predictions."""
        if self._sample is not None:
            self._calibrator._fit_sample(self._sample, self._threads)
            self._sample = None
        return self._calibrator
