"""How many threads scikit-learn and the linear algebra below it may use, for the time of a block."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any


def limit_threads(n_threads: int | None) -> AbstractContextManager[Any]:
    """Limit threads inside a ``with`` block; ``None`` leaves everything as it is."""
    if n_threads is None:
        return nullcontext()
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # of scikit-learn

    limits: AbstractContextManager[Any] = threadpool_limits(n_threads)
    return limits
