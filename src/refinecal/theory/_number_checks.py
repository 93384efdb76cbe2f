"""Checks of the numbers and arrays that users pass to the theory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.arrays import to_floats

Floats = NDArray[np.float64]
Test = Callable[[Floats], NDArray[np.bool_]]

SMALLEST, LARGEST = 1e-100, 1e100  # eigenvalues whose cubes are finite


def check_number(
    value: Any,
    name: str,
    low: float = SMALLEST,
    high: float = LARGEST,
    *,
    zero: bool = False,
    advice: str = "",
) -> float:
    """Return a number between positive bounds, or 0 if that is allowed."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}: it must be a number{advice}") from None
    if not (low <= found <= high or (zero and found == 0)):
        allowed = f"{'0 or ' if zero else ''}between {low:g} and {high:g}"
        raise ValueError(f"{name} is {found:g}: it must be {allowed}{advice}")
    return found


def read_floats(name: str, given: Any) -> Floats:
    """Return an array of numbers of any shape."""
    try:
        return np.asarray(to_floats(given, name), dtype=np.float64)
    except TypeError:
        raise TypeError(
            f"{name} is {given!r}, but must be a number or an array of numbers."
        ) from None


def check_array(name: str, given: Any, is_valid: Test, rule: str) -> Floats:
    """Return an array of numbers, or name the first that breaks a rule."""
    array = read_floats(name, given)
    bad = np.argwhere(~is_valid(array))
    if len(bad):
        place = tuple(bad[0].tolist())
        index = f"[{', '.join(map(str, place))}]" if place else ""
        raise ValueError(f"{name}{index} is {array[place]:.6g}: {rule}")
    return array


def check_vector(
    name: str, array: Floats, form: str = "(k,), at least one number", one: bool = True
) -> Floats:
    """Return an array of one dimension that is not empty; with ``one``, a number is a vector of one."""
    vector = np.atleast_1d(array) if one else array
    if vector.ndim != 1 or not vector.size:
        raise ValueError(f"{name} has shape {vector.shape}: it must be {form}")
    return vector


def check_positive(name: str, given: ArrayLike) -> Floats:
    """Return an array of positive numbers."""
    return check_array(
        name, given, lambda x: (x > 0) & (x < np.inf), f"{name} must be positive and finite."
    )


def check_bayes_error(given: ArrayLike) -> Floats:
    """Return an array of error rates between 0 and 0.5."""
    errors = read_floats("bayes_error", given)
    hint = " Divide by 100 if it is in percent." if np.any((errors >= 1) & (errors < 50)) else ""
    rule = f"it must lie between 0 and 0.5, both excluded.{hint}"
    return check_array("bayes_error", errors, lambda x: (x > 0) & (x < 0.5), rule)


def check_one_of(bayes_error: Any, signal: Any) -> None:
    """Raise a TypeError unless exactly one of the two is given."""
    if (bayes_error is None) == (signal is None):
        raise TypeError(
            "pass exactly one of bayes_error (the error rate of the best classifier) and signal (the norm of "
            f"the class mean), found {'neither' if signal is None else 'both'}: one follows from the other"
        )


def check_eigenvalues(given: Any, name: str) -> Floats:
    """Return a vector of positive eigenvalues."""
    rule = (
        f"eigenvalues must lie between {SMALLEST:g} and {LARGEST:g}. Drop directions without variance, and "
        "rescale extreme features."
    )
    inside = check_array(name, given, lambda x: (x >= SMALLEST) & (x <= LARGEST), rule)
    return check_vector(name, inside)


def check_shares(given: Any, name: str, n: int) -> Floats:
    """Return one non-negative number for each of n eigenvalues, divided by their sum."""
    rule = "shares must be finite, 0 or positive"
    array = check_array(name, given, lambda x: (x >= 0) & (x <= LARGEST), rule)
    array = check_vector(name, array)
    if len(array) != n:
        raise ValueError(
            f"{name} has length {len(array)} for {n} eigenvalues: pass one share for each"
        )
    if not array.max() > 0:
        raise ValueError(f"{name} is 0 at every eigenvalue: at least one share must be positive")
    scaled = array / array.max()  # so that the sum of tiny shares is not a denormal number
    return np.asarray(scaled / scaled.sum())


def freeze(array: Floats) -> Floats:
    """Return a read-only copy."""
    array = np.array(array, dtype=np.float64)
    array.setflags(write=False)
    return array
