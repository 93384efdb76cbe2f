"""What the adapters share."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal.stopping import MonitorOptions, RefinementMonitor, check_patience


def new_monitor(options: MonitorOptions, **patience: int | None) -> RefinementMonitor:
    """Return an adapter's monitor, with its framework's word for patience.

    >>> new_monitor({}, rounds=0)
    Traceback (most recent call last):
    ValueError: rounds is 0: it must be a whole number of at least 1, or None to never stop
    """
    ((word, value),) = patience.items()
    return RefinementMonitor(patience=check_patience(value, word), **options)


def whole_numbers(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels that a library keeps as floats as the integers that they are, once for all steps."""
    numbers = labels.astype(np.int64)
    return numbers if np.array_equal(numbers, labels) else labels
