"""Calibrators restored from JSON."""

from __future__ import annotations  # so that help() shows types by name

import re
from typing import Any

import numpy as np

from refinecal._core.errors import fail_choice
from refinecal.calibrators.base import KINDS, Calibrator, make_calibrator

LEARNED = re.compile(r"[a-z][a-z0-9_]*[a-z0-9]_")  # names of learned attributes
STATE = {"kind", "params", "learned"}
PROBES = (-1e3, -30.0, -1.0, 0.0, 1.0, 30.0, 1e3)  # log-odds at which a restored map is tested
MOST_BYTES = 4096  # of one class name
LARGEST = 1e301  # of a learned number


def from_json(text: str | bytes) -> Calibrator:
    """Return the fitted calibrator that :meth:`Calibrator.to_json` wrote.

    Examples
    --------
    >>> import refinecal as rc
    >>> fitted = rc.TemperatureScaling().fit([0.2, 0.9, 0.6], [0, 1, 0])
    >>> rc.calibrators.from_json(fitted.to_json()).beta_ == fitted.beta_
    True
    """
    return Calibrator.from_json(text)


def from_dict(state: dict[str, Any]) -> Calibrator:
    """Return the fitted calibrator that :meth:`Calibrator.to_dict` described.

    Examples
    --------
    >>> import json
    >>> import refinecal as rc
    >>> fitted = rc.TemperatureScaling().fit([0.2, 0.9, 0.6], [0, 1, 0])
    >>> text = json.dumps(fitted.to_dict())
    >>> rc.calibrators.from_dict(json.loads(text)).beta_ == fitted.beta_
    True
    """
    try:
        fitted = _restore(state)
        _check_restored(fitted)
    except Exception as error:  # anything that a damaged or malicious file may cause
        raise ValueError(
            f"this is not the state of a calibrator, or it is damaged ({error}): pass what to_dict() "
            "returned"
        ) from error
    return fitted


def _check_restored(fitted: Calibrator) -> None:
    """Raise for an inconsistent state now, not in a later prediction."""
    classes = getattr(fitted, "classes_", None)
    if not isinstance(classes, np.ndarray) or classes.ndim != 1:
        raise ValueError("classes_ is not an array of one dimension")
    k = len(classes)
    if k < 2 or len(set(classes.tolist())) != k:
        raise ValueError("classes_ must name two classes or more, each once")
    if not (isinstance(fitted.n_samples_, int | float) and fitted.n_samples_ > 0):
        raise ValueError("n_samples_ must be a number above 0")
    if getattr(fitted, "beta_", 0.0) < 0:
        raise ValueError("beta_ is below 0")
    repr(fitted), fitted.n_parameters
    with np.errstate(all="ignore"):
        probs = np.exp(fitted._log_proba(np.outer(PROBES, np.arange(k) % 2)))
    if probs.shape != (len(PROBES), k) or not np.allclose(probs.sum(axis=1), 1):
        raise ValueError("its predictions are not probabilities that sum to 1")


def _restore(state: Any) -> Calibrator:
    """Return a calibrator with the attributes of its state."""
    kinds = {kind: name for name, (_, kind, _) in KINDS.items()}
    if not isinstance(state, dict) or not set(state) >= STATE:
        raise ValueError("it must have the entries kind, params and learned")
    if state["kind"] not in kinds:
        fail_choice("kind", state["kind"], list(kinds), "the name of a calibrator of this package")
    params = {name: _from_plain(value) for name, value in state["params"].items()}
    if not isinstance(params.get("laplace", True), bool):
        raise ValueError("laplace must be true or false")
    fitted = make_calibrator(kinds[state["kind"]], **params)
    for name, value in state["learned"].items():
        is_computed = isinstance(getattr(type(fitted), name, None), property)
        if is_computed or not LEARNED.fullmatch(name):  # nothing else may be set by untrusted files
            raise ValueError(f"{name!r} is not an attribute that fitting sets")
        learned = _from_plain(value)
        if not _is_in_range(learned, name):
            raise ValueError(f"{name} is not finite, or out of range")
        setattr(fitted, name, learned)
    return fitted


def _from_plain(value: Any) -> Any:
    """Return an attribute from its JSON form."""
    if isinstance(value, dict) and set(value) >= STATE:
        return _restore(value)
    if isinstance(value, dict) and set(value) == {"dtype", "values"}:
        dtype = np.dtype(value["dtype"])
        if dtype.kind not in "biufU" or dtype.itemsize > MOST_BYTES:
            raise ValueError(f"fitting never stores an array of {dtype}")
        return np.array(value["values"], dtype=dtype)
    if isinstance(value, list):
        return [_from_plain(part) for part in value]
    return value


def _is_in_range(value: Any, name: str) -> bool:
    """Return whether numbers are finite and in range; other values pass."""
    if isinstance(value, list):
        return all(_is_in_range(part, name) for part in value)
    if not isinstance(value, np.ndarray | float) or np.asarray(value).dtype.kind != "f":
        return True
    low, high = (0.0, 1.0) if name.endswith("shares_") else (-LARGEST, LARGEST)
    return bool(np.all((value >= low) & (value <= high)))
