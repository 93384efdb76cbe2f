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
    """Give each compiled function a separate file in the cache.

    Numba numbers these files. Two processes that compile the same kernel at once for different types take the
    same number, and one then runs the code of the other: a crash, or wrong numbers (numba/numba#4807).
    """
    files: Any = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
    pattern = getattr(files, "_data_name_pattern", "")
    if "{number:d}" in pattern:  # in known versions
        files._data_name = lambda _: pattern.replace("{number:d}", uuid4().hex[:16])
    return kernel


def inline(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a part of other loops into each of them.

    Otherwise every caller has its own copy, and the first in memory, newly compiled or cached, serves all.
    Where the order of a sum is free, they may differ in the last bit, and so may two runs.
    """
    return jit(forceinline=True, **options)
