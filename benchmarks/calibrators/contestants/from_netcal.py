"""The calibrators of netcal with their default methods."""

from functools import partial

import numpy as np
from netcal.binning import BBQ, HistogramBinning, IsotonicRegression
from netcal.scaling import BetaCalibration, LogisticCalibration, TemperatureScaling

from benchmarks.calibrators.contestants import Method, Part, Predict

KINDS = {
    "temperature": TemperatureScaling,
    "logistic": LogisticCalibration,
    "beta": BetaCalibration,
    "histogram": HistogramBinning,
    "isotonic": IsotonicRegression,
    "bbq": BBQ,
}


def fit(kind: type, part: Part) -> Predict:
    """Fit on probabilities in double precision; of two classes, on those of class 1."""
    calibrator = kind()
    calibrator.fit(_given(part), part.labels)

    def predict(new: Part) -> np.ndarray:
        found = np.asarray(calibrator.transform(_given(new)), dtype=np.float64)
        return np.stack([1 - found, found], axis=1) if found.ndim == 1 else found

    return predict


def _given(part: Part) -> np.ndarray:
    return part.probs[:, 1] if part.k == 2 else part.probs


METHODS: dict[str, Method] = {f"netcal {name}": partial(fit, kind) for name, kind in KINDS.items()}
