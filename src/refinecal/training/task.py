"""What every kind of training is given, and what it must be able to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from refinecal.stopping import RefinementMonitor
from refinecal.training.predictions import Predictions, smooth_zeros
from refinecal.training.rows import Rows


@dataclass(frozen=True, slots=True)
class Task:
    """Rows to train on, rows to look at, and who looks."""

    rows: Rows
    val: Rows
    classes: NDArray[Any]  # of the columns of predictions
    monitor: RefinementMonitor
    max_steps: int

    def show(self, found: Predictions, step: int) -> bool:
        """Show one step's predictions to the monitor; return whether they are the best so far."""
        found, _ = smooth_zeros(found, self.val.y, self.classes)
        return self.monitor.update(
            self.val.y, **found.arguments, step=step, sample_weight=self.val.weights
        )

    def find_best(self) -> int:
        """Return the number of the best step; complain if there is none."""
        if self.monitor.best_step is None:
            raise ValueError(
                f"metric {self.monitor.metric.name!r} was never a number on the {self.val.n} validation "
                "rows: it needs other rows, or the estimator's predictions are NaN"
            )
        return self.monitor.best_step

    def after_transformers(self, transformers: Any) -> Task:
        """Return the task as it is behind transformers, which are fitted to the training rows."""
        rows, val = self.rows, self.val
        X = transformers.fit_transform(rows.X, rows.y)
        return replace(
            self,
            rows=Rows(X, rows.y, rows.weights),
            val=replace(val, X=transformers.transform(val.X)),
        )


@dataclass(frozen=True, slots=True)
class TrainingMethod:
    """A way to train: models that are new go in, and come out fitted."""

    train: Callable[[Any, Task], Any]  # a new model, while the monitor looks on
    retrain: Callable[[Any, Rows, int, Any], Any]  # for so many steps, like another model
    is_iterative: bool = True
