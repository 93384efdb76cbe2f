"""Every compiled loop of the package, in modules that are imported, and Numba with them, when first used."""

from importlib import import_module
from typing import Any

LAZY = (
    *("bins", "cholesky", "coupling", "curves", "logistic", "pav", "pooling", "probs", "ranking"),
    *("rows", "smoothing", "softmax_linear", "splines", "temperature", "tracking", "trees"),
)
BORDER = 2.0**-20  # 8 epsilons of float32: sums of 60 equal parts in single precision err by less


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
