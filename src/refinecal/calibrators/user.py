"""Calibrators of the user's own: any object with ``fit`` and ``predict_proba``."""

from __future__ import annotations  # so that help() shows types by name

from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import Sample
from refinecal._core.softmax import log_softmax
from refinecal.calibrators._registry import make_calibrator
from refinecal.calibrators.base import Calibrator


def as_calibrator(calibrator: Any) -> Calibrator:
    """Return a new calibrator to fit: ours by name, or a copy of the object that is given."""
    if isinstance(calibrator, str):
        return make_calibrator(calibrator)
    if isinstance(calibrator, type) or not all(
        hasattr(calibrator, part) for part in ("fit", "predict_proba")
    ):
        raise TypeError(
            f"calibrator is {calibrator!r}: pass a name such as 'temperature', or an object with "
            "fit(probs, y) and predict_proba(probs)"
        )
    if isinstance(calibrator, Calibrator):
        return deepcopy(calibrator)
    return UserCalibrator(deepcopy(calibrator))


class UserCalibrator(Calibrator):
    """Any object with ``fit(probs, y)`` and ``predict_proba(probs)``, such as a classifier."""

    laplace = False

    def __init__(self, user: Any) -> None:
        self.user = user

    @property
    def n_parameters(self) -> int:
        raise AttributeError(
            "only the calibrators of this package know how many parameters they have"
        )

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        sample = sample.expanded()
        probs = np.exp(log_softmax(sample.logits))
        if sample.weights is None:
            self.user.fit(probs, sample.labels)
            return
        try:
            self.user.fit(probs, sample.labels, sample_weight=sample.weights)
        except TypeError as error:
            raise TypeError(
                f"{type(self.user).__name__}.fit takes no sample_weight: leave out sample_weight= "
                "and soft labels"
            ) from error

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        k = logits.shape[1]
        found = np.asarray(self.user.predict_proba(np.exp(log_softmax(logits))), dtype=np.float64)
        if found.ndim == 1:
            found = np.stack([1 - found, found], axis=1)
        known = np.asarray(getattr(self.user, "classes_", np.arange(k))).astype(int)
        self._check_output(found, (len(logits), len(known)))
        probs = np.zeros((len(logits), k))
        probs[:, known] = found  # a class missing from a fold keeps probability 0
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(probs))

    def _check_output(self, found: NDArray[Any], shape: tuple[int, int]) -> None:
        name = f"{type(self.user).__name__}.predict_proba"
        if found.shape != shape:
            raise ValueError(f"{name} returned shape {found.shape}, expected {shape}")
        good = (found >= 0).all(axis=1) & (np.abs(found.sum(axis=1) - 1) <= 1e-3)
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            raise ValueError(
                f"{name} returned {found[row]} for one row: it must return probabilities that sum to 1"
            )
