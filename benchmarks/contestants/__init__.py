"""One small module per contestant, each with a NAME and a function ``prepare``.

``prepare(task)`` converts the arrays to what the contestant likes best, untimed, and
returns a function without arguments that does one whole fit and returns beta. The
floor fits nothing, and returns None. The runner sets the number of threads of torch,
OpenMP and BLAS for everybody; ``task.n_threads`` is for those who want to be told.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

Fit = Callable[[], float | None]

# In the order of the table: ours, the floor, then the rivals.
MODULES = (
    "refinecal_ts",
    "refinecal_warm",
    "torch_cross_entropy",
    "scikit_learn",
    "probmetrics_ts",
    "probmetrics_guo",
    "probmetrics_torchcal",
    "probmetrics_torchuncertainty",
    "probmetrics_autogluon",
    "netcal_ts",
)
OURS, WARM, FLOOR = MODULES[:3]


@dataclass(frozen=True)
class Task:
    """What every contestant is given."""

    labels: NDArray[np.int64]
    logits: NDArray[np.float32]
    n_threads: int | None  # None: all of them


class Contestant(Protocol):
    """The interface of a contestant's module."""

    NAME: str

    def prepare(self, task: Task) -> Fit:
        """Return a function that does one whole fit."""


def load(module: str) -> Contestant | str:
    """Return the contestant, or the name of the package that it misses."""
    try:
        loaded = importlib.import_module(f"{__name__}.{module}")
    except ModuleNotFoundError as error:
        return error.name or str(error)
    return cast(Contestant, loaded)
