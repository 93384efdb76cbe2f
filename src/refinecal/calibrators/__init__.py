"""Calibrators: maps from probabilities to better ones, each with ``fit`` and ``predict_proba``."""

from typing import Any

from refinecal._checks import fail_choice
from refinecal.calibrators._base import Calibrator
from refinecal.calibrators.isotonic import IsotonicCalibration

__all__ = ["Calibrator", "IsotonicCalibration", "make_calibrator"]


def make_calibrator(name: str, **params: Any) -> Calibrator:
    """Return a new calibrator of that name: ``"temperature"`` or ``"isotonic"`` (two classes).

    >>> make_calibrator("temperature", laplace=False)
    TemperatureScaling(laplace=False)
    """
    from refinecal.temperature import TemperatureScaling

    kinds: dict[str, type[Calibrator]] = {
        "temperature": TemperatureScaling,
        "isotonic": IsotonicCalibration,
    }
    if name not in kinds:
        fail_choice("calibrator", name, list(kinds), "an object with fit and predict_proba")
    return kinds[name](**params)
