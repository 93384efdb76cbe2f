"""Labels, logits and weights that have passed every check: what the package computes with."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.arrays import Array, is_on_device, is_torch

CHUNK = 2**20  # elements looked at together: bounds the memory of every check and of every mean


@dataclass(frozen=True, slots=True)
class Sample:
    """Labels, logits and weights that have passed every check."""

    labels: NDArray[np.int64]
    logits: Array  # (n, k) float32 or float64, C-contiguous; or a torch tensor on another device
    weights: NDArray[np.float64] | None = None
    soft: NDArray[np.float64] | None = None  # (n, k) rows summing to 1, if any label is soft
    classes: Array | None = None  # the label of each column, if labels were not 0..k-1 already
    columns: list[Any] | None = None  # column names of a DataFrame

    @property
    def n(self) -> int:
        return int(self.logits.shape[0])

    @property
    def k(self) -> int:
        return int(self.logits.shape[1])

    @property
    def total(self) -> float:
        """The number of rows, each counted as often as its weight says."""
        return float(self.n) if self.weights is None else float(self.weights.sum())

    @property
    def frequencies(self) -> NDArray[np.float64]:
        """The share of each class."""
        if self.soft is not None:
            return np.asarray(np.average(self.soft, axis=0, weights=self.weights))
        return np.asarray(np.bincount(self.labels, self.weights, minlength=self.k) / self.total)

    def take(self, rows: Any) -> "Sample":
        """Return the given rows (indices or a slice), as another sample."""
        logits = self.logits[rows]
        return replace(
            self,
            labels=np.ascontiguousarray(self.labels[rows]),
            logits=logits if is_torch(logits) else np.ascontiguousarray(logits),
            weights=None if self.weights is None else np.ascontiguousarray(self.weights[rows]),
            soft=None if self.soft is None else self.soft[rows],
        )

    def chunks(self) -> Iterator[tuple[slice, "Sample"]]:
        """Cut the sample into runs of rows small enough to make temporaries of."""
        for rows in row_slices(self.n, self.k):
            yield rows, self.take(rows)

    def mean(self, values: Array) -> float:
        """Return the weighted mean of one value per row; a row of weight 0 is gone, whatever its value."""
        if self.weights is None:
            return float(np.mean(values))
        return float(np.average(np.where(self.weights > 0, values, 0.0), weights=self.weights))

    def expanded(self) -> "Sample":
        """Return soft labels as one weighted row for each possible label."""
        if self.soft is None:
            return self
        rows, labels = np.nonzero(self.soft)
        weights = self.soft[rows, labels] * (1 if self.weights is None else self.weights[rows])
        return replace(
            self, labels=labels, logits=self.logits[rows], weights=weights, soft=None, columns=None
        )

    def counted(self) -> "Sample":
        """Return the rows that count: those of weight 0 are gone."""
        if self.weights is None or self.weights.all():
            return self
        return self.take(np.flatnonzero(self.weights))


def on_cpu(sample: Sample) -> Sample:
    """Return the sample with its logits in NumPy."""
    if not is_on_device(sample.logits):
        return sample
    logits: Any = sample.logits
    return replace(sample, logits=np.ascontiguousarray(logits.cpu().numpy()))


def row_slices(n: int, k: int) -> Iterator[slice]:
    """Cut n rows of k numbers into runs of about CHUNK numbers."""
    step = max(1, CHUNK // max(k, 1))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))
