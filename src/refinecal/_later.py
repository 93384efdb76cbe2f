"""A calibrator that is worth its time only once: fitted when it is asked for, not at every better step."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

from refinecal._calibrator import Calibrator
from refinecal._sample import Sample, on_cpu


class Later:
    """A calibrator and the predictions of one step, of which it keeps a copy until it is fitted."""

    def __init__(self, calibrator: Calibrator, sample: Sample, threads: int) -> None:
        own = on_cpu(sample)
        self._sample: Sample | None = replace(
            own, logits=own.logits.copy(), labels=own.labels.copy()
        )
        self._calibrator = deepcopy(calibrator)
        self._threads = threads

    def fitted(self) -> Calibrator:
        """Return the fitted calibrator; the predictions are then let go."""
        if self._sample is not None:
            self._calibrator._fit_sample(self._sample, self._threads)
            self._sample = None
        return self._calibrator
