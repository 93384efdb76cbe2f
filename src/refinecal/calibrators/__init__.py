"""Calibrators: maps from probabilities to better ones, each with ``fit`` and ``predict_proba``."""

from typing import Any

from refinecal._calibrator import Calibrator
from refinecal._checks import fail_choice
from refinecal.calibrators.isotonic import IsotonicCalibration
from refinecal.temperature import TemperatureScaling

__all__ = ["Calibrator", "IsotonicCalibration", "TemperatureScaling", "make_calibrator"]

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
