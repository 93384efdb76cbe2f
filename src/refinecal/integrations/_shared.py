"""What the adapters share."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal.stopping import RefinementMonitor

PATIENCE = ("patience", "rounds", "stopping_rounds", "early_stopping_rounds")


def new_monitor(options: Any, **patience: int | None) -> RefinementMonitor:
    """Return an adapter's monitor; say which word it has for patience to who uses another framework's.

    >>> new_monitor({"patience": 50}, rounds=None)
    Traceback (most recent call last):
    TypeError: patience is called rounds here: pass rounds=50
    """
    ((word, value),) = patience.items()
    for other in PATIENCE:
        if other in options:
            raise TypeError(f"{other} is called {word} here: pass {word}={options[other]!r}")
    return RefinementMonitor(patience=value, **options)


def whole_numbers(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels that a library keeps as floats as the integers that they are, once for all steps."""
    numbers = labels.astype(np.int64)
    return numbers if np.array_equal(numbers, labels) else labels
