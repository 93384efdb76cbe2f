"""Numbers, eigenvalues and shares as people pass them, and what to say if they are wrong."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.arrays import to_floats

Floats = NDArray[np.float64]

SMALLEST, LARGEST = 1e-100, 1e100  # eigenvalues whose cubes are finite
WHOLE = "it must be a whole number"


# ---- one number --------------------------------------------------------------------------------------------


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


def check_whole(name: str, value: Any, least: int, kind: str = WHOLE, enough: str = "") -> int:
    """Return a whole number that is large enough; ``kind`` and ``enough`` say what is allowed."""
    try:
        found = operator.index(value)
    except TypeError:
        found = None
    if found is None or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}: {kind}")
    if found < least:
        raise ValueError(f"{name} is {found}: {enough or f'it must be at least {least}'}")
    return found


# ---- arrays ------------------------------------------------------------------------------------------------


def read_floats(name: str, given: ArrayLike | None) -> Floats:
    """Return an array of numbers, or say that it is none."""
    try:
        return np.asarray(to_floats(given, name), dtype=np.float64)
    except TypeError:
        raise TypeError(
            f"{name} is {given!r}, but must be a number or an array of numbers."
        ) from None


def check_positive(name: str, given: ArrayLike) -> Floats:
    """Return an array of positive numbers, or say which is not."""
    array = read_floats(name, given)
    place = find_place(~(np.isfinite(array) & (array > 0)))
    if place is not None:
        where = f"{name}{show_place(place)}"
        raise ValueError(f"{where} is {array[place]:g}, but {name} must be positive and finite.")
    return array


def check_axis(name: str, given: ArrayLike, what: str, one: bool = False) -> Floats:
    """Return a vector of positive numbers; with ``one``, a number is a vector of one."""
    values = check_positive(name, given)
    values = np.atleast_1d(values) if one else values
    if values.ndim != 1 or not values.size:
        raise ValueError(f"{name} has shape {values.shape}: it must be (k,), one {what} at least")
    return values


def find_place(bad: NDArray[np.bool_]) -> tuple[int, ...] | None:
    """Return the index of the first element that is bad, if there is one."""
    places = np.argwhere(bad)
    return tuple(places[0].tolist()) if len(places) else None


def show_place(place: tuple[int, ...]) -> str:
    """Return an index as it is written; nothing for a number.

    >>> show_place((1, 2)), show_place(())
    ('[1, 2]', '')
    """
    return f"[{', '.join(map(str, place))}]" if place else ""


def freeze(array: Floats) -> Floats:
    """Return a copy that cannot be written to."""
    array = np.array(array, dtype=np.float64)
    array.setflags(write=False)
    return array


# ---- spectra -----------------------------------------------------------------------------------------------


def check_law(given: Any, name: str) -> Floats:
    """Return the numbers of a law, an array of any shape."""
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {given!r}: it must hold numbers") from None


def check_eigenvalues(given: Any, name: str) -> Floats:
    """Return a vector of positive numbers."""
    array = _check_vector(given, name)
    bad = np.flatnonzero(~((array >= SMALLEST) & (array <= LARGEST)))
    if bad.size:
        raise ValueError(
            f"{name}[{bad[0]}] is {array[bad[0]]:g}: eigenvalues must lie between {SMALLEST:g} and "
            f"{LARGEST:g}. Drop directions without variance, and rescale features that are extreme."
        )
    return array


def check_shares(given: Any, name: str, n: int) -> Floats:
    """Return one number for each of n eigenvalues, 0 or positive, divided by their sum."""
    array = _check_vector(given, name)
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
    return np.asarray(scaled / scaled.sum())


def _check_vector(given: Any, name: str) -> Floats:
    array = np.atleast_1d(check_law(given, name))
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"{name} has shape {array.shape}: it must be a list of at least one number"
        )
    return array
