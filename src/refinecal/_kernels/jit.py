"""How loops are compiled: without the GIL, cached on disk, inlined where bits would differ otherwise."""

import math
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from numba import njit

# NaN must survive and -inf is legal, so neither "nnan" nor "ninf" is among the allowed liberties.
FAST = {"reassoc", "contract", "nsz", "arcp"}
LN2 = math.log(2.0)
LOG2_E = 1.0 / LN2


def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile without the GIL, cached on disk; in memory only where no folder can be written to."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return _separate_files(
                njit(cache=True, nogil=True, error_model="numpy", **options)(function)
            )
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            return njit(nogil=True, error_model="numpy", **options)(function)

    return decorate


def _separate_files(kernel: Any) -> Any:
    """Give whatever is compiled a file of its own in the cache.

    Numba numbers these files. Of two processes that compile the same kernel at once for other types, each
    takes the same number, and one then loads and runs the code of the other: a crash, or wrong numbers
    (numba/numba#4807).
    """
    files: Any = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
    pattern = getattr(files, "_data_name_pattern", "")
    if "{number:d}" in pattern:  # as in the versions that we know
        files._data_name = lambda _: pattern.replace("{number:d}", uuid4().hex[:16])
    return kernel


def inline(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a part of other loops, into each of them.

    Otherwise every caller has its own copy, and whichever came first into memory serves them all: the one
    that was compiled now, or the one that the cache has. Where the order of a sum is free, they may differ
    in the last bit, and so would the first run from the second.
    """
    return jit(forceinline=True, **options)
