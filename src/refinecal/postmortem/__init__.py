"""Analyze a finished training run: the step that each metric would have chosen, and its cost."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from refinecal._core.arrays import to_numpy
from refinecal._core.checks import check_keywords
from refinecal._core.errors import fail_choice
from refinecal._core.format import format_fixed, shorten_name
from refinecal._core.step_files import LABELS, Layout, Stage, read_stages
from refinecal.losses import ProperLoss
from refinecal.stopping import Record, RefinementMonitor

if TYPE_CHECKING:
    from refinecal.plots import TrainingCurveDisplay

__all__ = ["PostMortem", "post_mortem"]

METRICS = ("refinement", "log_loss", "brier", "brier_refinement", "accuracy", "auroc")


@dataclass(frozen=True, repr=False)
class PostMortem:
    """The step that each metric would have chosen.

    Attributes
    ----------
    monitor : RefinementMonitor
        After all steps: ``history``, ``bests``, the ``calibrator`` of each.
    """

    monitor: RefinementMonitor

    def table(self) -> list[dict[str, Any]]:
        """Return a record for each metric.

        Returns
        -------
        list of dict
            ``metric``; the ``step`` that it chooses, with its ``value``, ``risk``, ``refinement`` (the loss
            after calibration) and ``beta`` there; and the ``cost``, the refinement minus the smallest of all
            steps. A metric that is always NaN has no step.
        """
        refinements = [record["refinement"] for record in self.monitor.history]
        smallest = float(np.fmin.reduce(refinements))  # ignores NaN
        rows = []
        for metric in self.monitor.metrics:
            best = self.monitor.bests.get(metric.name)
            row: dict[str, Any] = {"metric": metric.name, "step": best and best.step}
            record: Record = {} if best is None else best.record
            row["value"] = record.get(metric.name, np.nan)
            row |= {name: record.get(name, np.nan) for name in ("risk", "refinement", "beta")}
            rows.append({**row, "cost": row["refinement"] - smallest})
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return the name of the loss, the table and the history, as plain numbers, strings and lists."""
        history = [dict(record) for record in self.monitor.history]
        return {"loss": self.monitor.loss.name, "table": self.table(), "history": history}

    def plot(self, ax: Any = None) -> TrainingCurveDisplay:
        """Plot the training curve; as :meth:`RefinementMonitor.plot`."""
        return self.monitor.plot(ax)

    def __repr__(self) -> str:
        table, history = self.table(), self.monitor.history
        names = [shorten_name(row["metric"], 20) for row in table]
        width = max(len("chosen by"), *map(len, names))
        loss = f"{shorten_name(self.monitor.loss.name, 9)} loss"
        first, last = history[0]["step"], history[-1]["step"]
        lines = [f"PostMortem of {len(history)} steps, {first} to {last}"]
        lines.append(f"  {'chosen by':{width}}    step  {loss:>14}  calibrated      beta     cost")
        for name, row in zip(names, table, strict=True):
            if row["step"] is None:
                lines.append(f"  {name:{width}}  never a number")
                continue
            risk, refinement = format_fixed(row["risk"]), format_fixed(row["refinement"])
            lines.append(
                f"  {name:{width}}  {row['step']:6d}  {risk:>14}  {refinement:>10}  {row['beta']:8.4g}  "
                f"{row['cost']:7.5f}"
            )
        return "\n".join(lines)


@check_keywords()
def post_mortem(
    files: str | PathLike[str] | Iterable[str | PathLike[str]],
    y_val: Any = None,
    *,
    kind: Literal["probs", "logits"] | None = None,
    target: str | None = None,
    columns: Sequence[str] | None = None,
    step_column: str | None = None,
    sample_weight: Any = None,
    metrics: Iterable[Any] = METRICS,
    loss: str | ProperLoss = "log",
    calibrator: Any = "temperature",
    cv: Any = None,
    classes: ArrayLike | None = None,
) -> PostMortem:
    """Return which step each metric would have chosen, from stored predictions, and what that costs.

    One step at a time is in memory. Nothing is unpickled.

    Parameters
    ----------
    files : path, or iterable of paths
        A folder, a pattern such as ``"run/epoch_*.npz"``, or files. Either one file per step, with the step
        as the last number of its name or as a number ``step`` or ``epoch`` in it; or one file with all steps.

        An ``.npz`` or ``.safetensors`` file holds ``logits`` or ``probs`` of shape ``(n, k)``, or ``(n,)``
        for two classes; or all steps ``(steps, n, k)``, numbered by an array ``steps`` if there is one; or
        one array per step, such as ``logits_12``. A ``.parquet`` file has one column per class, or one for
        class 1 of two.
    y_val : array-like, optional
        The labels. By default they are in every file, or in the first, under the name ``y``, ``labels``,
        ``target``, ``y_true``, ``y_val`` or ``label``.
    kind : {"probs", "logits"}, optional
        What the predictions are, if their names do not say so.
    target : str, optional
        A different name of the labels.
    columns : sequence of str, optional
        The columns of a Parquet file with predictions; by default all with ``logit`` or ``prob`` in their
        names, else all other columns.
    step_column : str, optional
        The column of a Parquet file with the step, if it holds several; by default ``step`` or ``epoch``.
    sample_weight : array-like, optional
        Sample weights; by default ``sample_weight`` in the files, if there is one.
    metrics : iterable of str, callable or Metric
        The metrics to compare, as for :class:`RefinementMonitor`.
    loss, calibrator, cv, classes
        As for :func:`decompose`.

    Returns
    -------
    PostMortem
        Prints as a table; with ``table()``, ``to_dict()``, ``plot()`` and ``monitor``.

    Examples
    --------
    The last step is better, but overconfident:

    >>> import tempfile
    >>> import numpy as np
    >>> stages = [[0.4, 0.6, 0.5, 0.7], [0.1, 0.7, 0.6, 0.9], [0.0, 0.99, 0.6, 1.0]]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for epoch, probs in enumerate(stages):
    ...         np.savez(f"{folder}/epoch_{epoch}.npz", probs=probs, y=[0, 0, 1, 1])
    ...     found = post_mortem(folder, metrics=["refinement", "log_loss"])
    >>> [(row["metric"], row["step"]) for row in found.table()]
    [('refinement', 2), ('log_loss', 1)]
    """
    if kind not in (None, "probs", "logits"):
        fail_choice("kind", kind, ["probs", "logits"], "omitted")
    chosen = [metrics] if isinstance(metrics, str) else list(metrics)
    if not chosen:
        raise ValueError("metrics is empty: name at least one, such as 'refinement', or omit it")
    monitor = RefinementMonitor(
        chosen[0], chosen[1:], loss=loss, calibrator=calibrator, cv=cv, classes=classes
    )
    first: Stage | None = None
    for stage in read_stages(files, Layout(kind, target, columns, step_column)):
        shape = np.shape(stage.predictions)
        if first is None:
            first, first_shape = stage._replace(predictions=None), shape
        if shape != first_shape:
            what = "classes" if shape[:1] == first_shape[:1] else "rows"
            raise ValueError(
                f"{stage.path}, step {stage.step}, has predictions of shape {shape}, but step {first.step} "
                f"has {first_shape}: every step needs the same {what}"
            )
        labels = _either(y_val, stage.labels, first.labels)
        weights = _either(sample_weight, stage.weights, first.weights)
        _show(monitor, stage, labels, weights)
        if y_val is None and stage.labels is not None:
            _check_labels(stage, first)
        del stage  # before the next is read
    return PostMortem(monitor)


def _either(*found: Any) -> Any:
    """Return the first that is not ``None``."""
    return next((one for one in found if one is not None), None)


def _show(monitor: RefinementMonitor, stage: Stage, labels: Any, weights: Any) -> None:
    if labels is None:
        raise ValueError(
            f"{stage.path} holds no labels: pass y_val=, say what they are called with target=, or save "
            f"them with the first step under one of the names {', '.join(LABELS)}"
        )
    predictions: Any = {stage.kind: stage.predictions}
    try:
        monitor.update(labels, **predictions, step=stage.step, sample_weight=weights)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{stage.path}, step {stage.step}: {error}") from error


def _check_labels(stage: Stage, first: Stage) -> None:
    ours, firsts = (np.sort(to_numpy(one.labels, "labels"), axis=0) for one in (stage, first))
    if not np.array_equal(ours, firsts):
        raise ValueError(
            f"the labels in {stage.path}, step {stage.step}, are not those of step {first.step}: every step "
            "needs predictions for the same rows"
        )
