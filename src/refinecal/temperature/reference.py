"""The sums of ``_kernels`` in plain NumPy, row by row: the reference that the fused loops are tested against.

It also serves where the loops cannot: beta = 0, infinite losses, and the targets of soft labels.
"""

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import Sample

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


def rows(sample: Sample, beta: float) -> tuple[Floats, ...]:
    """Return the loss of each row and its first four derivatives in beta (>= 0)."""
    parts = [_rows_chunk(chunk, beta) for _, chunk in sample.chunks()]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def _rows_chunk(sample: Sample, beta: float) -> tuple[Floats, ...]:
    logits = sample.logits.astype(np.float64)
    gaps = logits - logits.max(axis=1, keepdims=True)
    possible = ~np.isneginf(gaps)
    gaps = np.where(possible, gaps, 0)
    probs = np.where(possible, np.exp(np.maximum(gaps * beta, -700)), 0)
    m0 = probs.sum(axis=1, keepdims=True)
    probs /= m0
    mean = (probs * gaps).sum(axis=1, keepdims=True)
    variance, third, fourth = ((probs * (gaps - mean) ** m).sum(axis=1) for m in (2, 3, 4))
    own = _at_label_chunk(sample)
    loss = np.log(m0[:, 0]) - (beta * own if beta > 0 else 0)
    return loss, mean[:, 0] - own, variance, third, fourth - 3 * variance**2
