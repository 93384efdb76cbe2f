"""What the adapters share: a monitor, and what it found at the best step."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal.stopping import RefinementMonitor


class Stopping:
    """An adapter: it shows validation predictions to a monitor, and tells its framework what that says."""

    monitor: RefinementMonitor

    @property
    def calibrator(self) -> Any:
        """The calibrator fitted at the best step; ``None`` before the first."""
        return self.monitor.calibrator


class BoosterStopping(Stopping):
    """An adapter of a library that trains one booster, round by round."""

    @property
    def best_score(self) -> float | None:
        """The value of the metric at the best round; ``None`` before the first."""
        return self.monitor.best_value


def check_booster(model: Any, kind: type, library: str) -> None:
    """Refuse cross-validation, which shows callbacks the boosters of all folds as one."""
    if not isinstance(model, kind):
        raise TypeError(
            f"{library}.cv trains one model per fold, but refinement is that of one model: call "
            f"{library}.train for each fold with a RefinementStopping of its own"
        )


def to_integers(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels that a library keeps as floats as the integers that they are, once for all steps."""
    numbers = labels.astype(np.int64)
    return numbers if np.array_equal(numbers, labels) else labels
