"""Packages with few calibrators each: venn-abers, betacal, splinecalib, uncertainty-calibration."""

from functools import partial

import numpy as np
from betacal import BetaCalibration
from calibration import HistogramCalibrator, PlattBinnerCalibrator
from splinecalib import SplineCalib
from venn_abers import VennAbersCalibrator

from benchmarks.calibrators.contestants import Method, Part, Predict, one_vs_rest

N_BINS = 15


def venn_abers(pairs: str, part: Part) -> Predict:
    """Return the prediction of venn-abers for a fitted model, which does all its work when it predicts."""

    def predict(new: Part) -> np.ndarray:
        found = VennAbersCalibrator().predict_proba(
            p_cal=part.probs, y_cal=part.labels, p_test=new.probs, va_type=pairs
        )
        return np.asarray(found)

    return predict


def betacal(parameters: str, part: Part) -> Predict:
    """Fit on the probability of class 1."""
    calibrator = BetaCalibration(parameters=parameters)
    calibrator.fit(part.probs[:, 1], part.labels)
    return lambda new: _two(calibrator.predict(new.probs[:, 1]))


def spline(part: Part) -> Predict:
    """Fit on the probability of class 1."""
    calibrator = SplineCalib()
    calibrator.fit(part.probs[:, 1], part.labels)
    return lambda new: _two(calibrator.calibrate(new.probs[:, 1]))


def binned(kind: type, part: Part) -> Predict:
    """Fit on the probability of class 1; a bin for every so many rows, at most as many as ours."""
    calibrator = kind(len(part.labels), N_BINS)
    calibrator.train_calibration(part.probs[:, 1], part.labels)
    return lambda new: _two(np.asarray(calibrator.calibrate(new.probs[:, 1])))


def _two(prob: np.ndarray) -> np.ndarray:
    return np.stack([1 - prob, prob], axis=1)


METHODS: dict[str, Method] = {
    "venn-abers one-vs-all": partial(venn_abers, "one_vs_all"),
    "venn-abers one-vs-one": partial(venn_abers, "one_vs_one"),
    "betacal abm": one_vs_rest(partial(betacal, "abm")),
    "splinecalib": one_vs_rest(spline),
    "uncertainty-calibration histogram": one_vs_rest(partial(binned, HistogramCalibrator)),
    "uncertainty-calibration platt-binner": one_vs_rest(partial(binned, PlattBinnerCalibrator)),
}
