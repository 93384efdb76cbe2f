"""Calibrators: maps from probabilities to better ones, each with ``fit`` and ``predict_proba``."""

import re
from typing import Any

import numpy as np

from refinecal._calibrator import Calibrator, restored
from refinecal._checks import fail_choice
from refinecal.calibrators.isotonic import IsotonicCalibration
from refinecal.temperature import TemperatureScaling

__all__ = [
    "Calibrator",
    "IsotonicCalibration",
    "TemperatureScaling",
    "from_dict",
    "make_calibrator",
]

LEARNED = re.compile(r"[a-z][a-z0-9_]*[a-z0-9]_")  # scikit-learn's names for what was learned
_KINDS: dict[str, type[Calibrator]] = {
    "temperature": TemperatureScaling,
    "isotonic": IsotonicCalibration,
}


def make_calibrator(name: str, **params: Any) -> Calibrator:
    """Return a new calibrator by name.

    Parameters
    ----------
    name : {"temperature", "isotonic"}
        Isotonic regression is for two classes.
    **params
        Parameters of its constructor, such as ``laplace``.

    Returns
    -------
    Calibrator
        Not fitted yet.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.make_calibrator("temperature", laplace=False)
    TemperatureScaling(laplace=False)
    """
    if name not in _KINDS:
        fail_choice("calibrator", name, list(_KINDS), "an object with fit and predict_proba")
    return _KINDS[name](**params)


def from_dict(state: dict[str, Any]) -> Calibrator:
    """Return the calibrator that ``to_dict`` described.

    Parameters
    ----------
    state : dict
        What :meth:`Calibrator.to_dict` returned, perhaps by way of a JSON file.

    Returns
    -------
    Calibrator
        Fitted.

    Examples
    --------
    >>> import json
    >>> import refinecal as rc
    >>> fitted = rc.TemperatureScaling().fit([0.2, 0.9, 0.6], [0, 1, 0])
    >>> text = json.dumps(fitted.to_dict())
    >>> rc.calibrators.from_dict(json.loads(text)).beta_ == fitted.beta_
    True
    """
    kinds = {kind.__name__: kind for kind in _KINDS.values()}
    if not isinstance(state, dict) or not {"kind", "params", "learned"} <= set(state):
        raise ValueError(
            "the state of a calibrator has the entries kind, params and learned: pass what to_dict() "
            "returned"
        )
    if state["kind"] not in kinds:
        fail_choice("kind", state["kind"], list(kinds), "the name of a calibrator of this package")
    fitted = kinds[state["kind"]](**state["params"])
    for name, value in state["learned"].items():
        if not LEARNED.fullmatch(name):  # a stranger's file may set what was learned, nothing else
            raise ValueError(
                f"the state of a calibrator has no {name!r}: pass what to_dict() returned"
            )
        setattr(fitted, name, restored(value))
        if not _is_finite(getattr(fitted, name)):
            raise ValueError(
                f"{name} of the state of a calibrator is not finite: it was never fitted so"
            )
    if not isinstance(getattr(fitted, "classes_", None), np.ndarray):
        raise ValueError(
            "classes_ of the state of a calibrator is no array: pass what to_dict() returned"
        )
    return fitted


def _is_finite(value: Any) -> bool:
    """Tell numbers that are all finite, and what is no number, from NaN and infinities."""
    values = np.asarray(value)
    return values.dtype.kind not in "fc" or bool(np.isfinite(values).all())
