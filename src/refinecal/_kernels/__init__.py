"""Every compiled loop of the package, in modules that are imported, and Numba with them, when first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refinecal._kernels import bins as bins
    from refinecal._kernels import pav as pav
    from refinecal._kernels import probs as probs
    from refinecal._kernels import ranking as ranking
    from refinecal._kernels import rows as rows
    from refinecal._kernels import smoothing as smoothing
    from refinecal._kernels import temperature as temperature
    from refinecal._kernels import tracking as tracking

LAZY = ("bins", "pav", "probs", "ranking", "rows", "smoothing", "temperature", "tracking")
BORDER = 2.0**-20  # 8 epsilons of float32: sums of 60 equal parts in single precision err by less


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
