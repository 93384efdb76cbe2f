"""Numbers, eigenvalues and shares as people pass them to spectra, and what to say if they are wrong."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SMALLEST, LARGEST = 1e-100, 1e100  # eigenvalues whose cubes are finite


def check_number(
    value: Any,
    name: str,
    low: float = SMALLEST,
    high: float = LARGEST,
    *,
    zero: bool = False,
    cure: str = "",
) -> float:
    """Return a number between positive bounds, or 0 if that is allowed."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}: it must be a number{cure}") from None
    if not (low <= found <= high or (zero and found == 0)):
        allowed = f"{'0 or ' if zero else ''}between {low:g} and {high:g}"
        raise ValueError(f"{name} is {found:g}: it must be {allowed}{cure}")
    return found


def check_count(n: Any) -> int:
    """Return how many eigenvalues are to be drawn."""
    try:
        found = operator.index(n)
    except TypeError:
        raise TypeError(f"n is {n!r}: it must be a whole number of eigenvalues") from None
    if found < 0:
        raise ValueError(f"n is {found}: it must be 0 or more")
    return found


def check_floats(given: Any, name: str) -> Floats:
    """Return numbers as an array of any shape."""
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {given!r}: it must hold numbers") from None


def check_eigenvalues(given: Any, name: str) -> Floats:
    """Return a vector of positive numbers."""
    array = _vector(given, name)
    bad = np.flatnonzero(~((array >= SMALLEST) & (array <= LARGEST)))
    if bad.size:
        raise ValueError(
            f"{name}[{bad[0]}] is {array[bad[0]]:g}: eigenvalues must lie between {SMALLEST:g} and "
            f"{LARGEST:g}. Drop directions without variance, and rescale features that are extreme."
        )
    return array


def check_shares(given: Any, name: str, n: int) -> Floats:
    """Return one number for each of n eigenvalues, 0 or positive, divided by their sum."""
    array = _vector(given, name)
    if len(array) != n:
        raise ValueError(
            f"{name} has length {len(array)} for {n} eigenvalues: it needs one for each"
        )
    bad = np.flatnonzero(~((array >= 0) & (array <= LARGEST)))
    if bad.size:
        raise ValueError(
            f"{name}[{bad[0]}] is {array[bad[0]]:g}: shares must be finite, 0 or positive"
        )
    if not array.max() > 0:
        raise ValueError(f"{name} is 0 at every eigenvalue: at least one share must be positive")
    scaled = array / array.max()  # so that the sum of tiny shares is no denormal number
    shares: Floats = scaled / scaled.sum()
    return shares


def _vector(given: Any, name: str) -> Floats:
    array = np.atleast_1d(check_floats(given, name))
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"{name} has shape {array.shape}: it must be a list of at least one number"
        )
    return array


def fixed(array: Floats) -> Floats:
    """Return a read-only copy."""
    array = np.array(array, dtype=np.float64)
    array.setflags(write=False)
    return array


def shown(value: Any) -> str:
    """Return a number or an array in a few characters."""
    if isinstance(value, float):
        return f"{value:.12g}"
    few = ", ".join(f"{each:g}" for each in value[:4])
    return f"[{few}]" if len(value) <= 4 else f"[{few}, …, {len(value)} in all]"
