"""Labels that are the same at every step of a training: checked once, looked at no more than needed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._checks import look_like_probabilities
from refinecal._sample import Sample
from refinecal.losses import ProperLoss


class KnownLabels:
    """The labels of the last step without weights, and what was found out about them."""

    def __init__(self) -> None:
        self._labels: NDArray[np.int64] = np.empty(0, np.int64)  # a copy, which nobody changes
        self._k = 0
        self._uncertainty = math.nan

    def sample(self, y_val: Any, logits: Any) -> Sample | None:
        """Return plain arrays with these labels as a sample; ``None`` if they have to be checked."""
        if type(y_val) is not np.ndarray or type(logits) is not np.ndarray:
            return None
        same = y_val.dtype == np.int64 and np.array_equal(y_val, self._labels)
        if not same or logits.dtype.char not in "fd" or len(logits) != len(y_val):
            return None
        if not np.isfinite(logits.sum()):  # whatever it is, somebody should look at it
            return None
        if logits.ndim == 1 and self._k == 2:
            columns = np.zeros((len(logits), 2), logits.dtype)
            columns[:, 1] = logits
            return Sample(self._labels, columns)
        fits = logits.shape[1:] == (self._k,) and not look_like_probabilities(logits)
        return Sample(self._labels, np.ascontiguousarray(logits)) if fits else None

    def uncertainty(self, sample: Sample, loss: ProperLoss) -> float:
        """Return the uncertainty of a sample, computed anew only if its labels are others."""
        if sample.weights is not None or sample.soft is not None:
            return float(loss.entropy(sample.frequencies))
        labels = sample.labels
        if sample.k != self._k or not (
            labels is self._labels or np.array_equal(labels, self._labels)
        ):
            self._labels, self._k = labels.copy(), sample.k
            self._uncertainty = float(loss.entropy(sample.frequencies))
        return self._uncertainty
