"""What the adapters share: a monitor, its results at the best step, and stored calibrators."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal.calibrators import Calibrator, from_dict
from refinecal.stopping import RefinementMonitor


class Stopping:
    """An adapter: it passes validation predictions to a monitor and the answer to its framework."""

    monitor: RefinementMonitor

    @property
    def calibrator(self) -> Any:
        """The calibrator fitted at the best step; ``None`` before the first."""
        return self.monitor.calibrator


class BoosterStopping(Stopping):
    """An adapter of a library that trains one booster, round by round."""

    first_step = 0  # the monitor's number of the first round,
    first_round = 0  # and the library's

    @property
    def best_iteration(self) -> int | None:
        """The best round, counted as the library does; ``None`` before the first."""
        best = self.monitor.best_step
        return None if best is None else best - self.first_step + self.first_round

    @property
    def best_score(self) -> float | None:
        """The value of the metric at the best round; ``None`` before the first."""
        return self.monitor.best_value


def check_booster(model: Any, kind: type, library: str) -> None:
    """Raise for cross-validation, which passes the boosters of all folds to callbacks as one."""
    if not isinstance(model, kind):
        raise TypeError(
            f"{library}.cv trains one model per fold, but refinement is measured for one model: call "
            f"{library}.train for each fold with its own RefinementStopping"
        )


def to_integers(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels that a library stores as floats as integers, if they are whole numbers."""
    numbers = labels.astype(np.int64)
    return numbers if np.array_equal(numbers, labels) else labels


def to_stored(calibrator: Any) -> dict[str, Any] | None:
    """Return what is stored of a calibrator: its ``to_dict``; ``None`` if it is not of this package."""
    return calibrator.to_dict() if isinstance(calibrator, Calibrator) else None


def from_stored(stored: Any, message: str) -> Calibrator:
    """Return a stored calibrator; raise with the message if there is none."""
    if stored is None:
        raise ValueError(message)
    return from_dict(stored)
