"""The sums of ``_kernels`` in plain NumPy, row by row: the reference that the fused loops are tested against.

Leave-one-out (``resampling``) uses it too: there every row has a beta of its own.
"""

import numpy as np
from numpy.typing import NDArray

from refinecal._checks import Sample
from refinecal._search import Point

Floats = NDArray[np.float64]


def at_label(sample: Sample) -> Floats:
    """Return z_iy - max_j z_ij of each row; for a soft label, its mean under the label's distribution."""
    parts = [_at_label_chunk(chunk) for _, chunk in sample.chunks()]
    return np.concatenate(parts)


def _at_label_chunk(sample: Sample) -> Floats:
    logits = sample.logits.astype(np.float64)
    gaps = logits - logits.max(axis=1, keepdims=True)
    if sample.soft is None:
        return np.asarray(gaps[np.arange(sample.n), sample.labels])
    possible = sample.soft > 0  # 0 * -inf counts as 0
    return np.asarray(np.where(possible, sample.soft * np.where(possible, gaps, 0), 0).sum(axis=1))


def rows(sample: Sample, beta: float | Floats) -> tuple[Floats, ...]:
    """Return the loss and its derivatives a, b, c, d (``_search``) of each row; beta > 0, one or one each."""
    beta = np.broadcast_to(beta, sample.n)
    parts = [_rows_chunk(chunk, beta[where]) for where, chunk in sample.chunks()]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def _rows_chunk(sample: Sample, beta: Floats) -> tuple[Floats, ...]:
    logits = sample.logits.astype(np.float64)
    x = (logits - logits.max(axis=1, keepdims=True)) * beta[:, None]
    x = np.maximum(x, -700)  # exp(-700) is 0 beside 1; keeps 0 * inf away
    x_label = _at_label_chunk(sample) * beta
    probs = np.exp(x)
    m0 = probs.sum(axis=1, keepdims=True)
    probs /= m0
    mean = (probs * x).sum(axis=1, keepdims=True)
    variance, third, fourth = ((probs * (x - mean) ** m).sum(axis=1) for m in (2, 3, 4))
    loss, a = np.log(m0[:, 0]) - x_label, mean[:, 0] - x_label
    return loss, a, variance, third, fourth - 3 * variance**2


class TwinReader:
    """Reads a sample with NumPy."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample

    def at(self, beta: float) -> Point:
        return Point(beta, *(self.sample.mean(values) for values in rows(self.sample, beta)))

    def at_zero(self) -> tuple[float, float]:
        gaps = self.sample.logits.astype(np.float64)
        gaps -= gaps.max(axis=1, keepdims=True)
        possible = np.where(np.isneginf(gaps), np.nan, gaps)
        slope = np.nanmean(possible, axis=1) - at_label(self.sample)
        return self.sample.mean(slope), self.sample.mean(np.nanvar(possible, axis=1))
