"""How many threads to use, and work that is shared out to them."""

import numbers
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

THREAD_ELEMENTS = 2**21  # fewer numbers than this are read by one thread sooner than shared out


def check_threads(n_threads: int | None) -> int:
    """Return the number of threads to use; OMP_NUM_THREADS, which joblib sets, is respected."""
    if n_threads is None:
        limit = os.environ.get("OMP_NUM_THREADS", "")
        cores = (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
        return min(cores, int(limit)) if limit.isdigit() and int(limit) > 0 else cores
    if not isinstance(n_threads, numbers.Integral) or n_threads < 1:
        raise ValueError(
            f"n_threads is {n_threads!r}: it must be a whole number of at least 1, or None"
        )
    return int(n_threads)


def map_threads(
    function: Callable[[Any], Any], items: Iterable[Any], size: int, threads: int | None = None
) -> list[Any]:
    """Return the function of each item, in several threads if there are numbers enough to pay for them."""
    n = 1 if size < THREAD_ELEMENTS else check_threads(threads)
    if n == 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(function, items))
