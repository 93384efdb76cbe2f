"""Logits that look like those of an overconfident classifier, drawn with a seed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ROWS_AT_A_TIME = 1000  # small temporaries, so that drawing hides no peak of memory

SPREAD = 1.5  # keeps accuracy between chance and certainty for every k
NOISE = 0.25  # what the classifier got wrong, relative to the spread of the truth
OVERCONFIDENCE = 1.6  # with the noise, puts the best beta near 0.5


@dataclass(frozen=True)
class Sample:
    """Labels in ``0..k-1`` and float32 logits of shape ``(n, k)``."""

    labels: NDArray[np.int64]
    logits: NDArray[np.float32]


def draw(n: int, k: int, seed: int = 0) -> Sample:
    """Return labels drawn from softmax(truth), and a multiple of (truth + noise)."""
    rng = np.random.default_rng(seed)
    sample = Sample(np.empty(n, np.int64), np.empty((n, k), np.float32))
    # The largest of k normals grows like sqrt(2 log k) and has to stand out.
    scale = np.float32(SPREAD * np.sqrt(2 * np.log(k)))
    for first in range(0, n, ROWS_AT_A_TIME):
        rows = slice(first, min(first + ROWS_AT_A_TIME, n))
        shape = sample.logits[rows].shape
        truth = scale * rng.standard_normal(shape, np.float32)
        sample.labels[rows] = _draw_labels(truth, rng)
        noise = NOISE * scale * rng.standard_normal(shape, np.float32)
        sample.logits[rows] = OVERCONFIDENCE * (truth + noise)
    return sample


def _draw_labels(truth: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return one label per row, drawn from softmax(truth)."""
    weights = np.exp(truth - truth.max(axis=1, keepdims=True))
    cumulative = np.cumsum(weights, axis=1, dtype=np.float64)
    target = rng.random((len(truth), 1)) * cumulative[:, -1:]
    labels: NDArray[np.int64] = (cumulative <= target).sum(axis=1)
    return labels


def perturb(sample: Sample, relative: float = 0.01, seed: int = 1) -> Sample:
    """Return the sample with noise on its logits, as one epoch later."""
    rng = np.random.default_rng(seed)
    size = np.float32(relative * sample.logits.std())
    noise = size * rng.standard_normal(sample.logits.shape, np.float32)
    return Sample(sample.labels, sample.logits + noise)


def accuracy(sample: Sample) -> float:
    """Return the share of rows whose largest logit is that of the label."""
    return float((sample.logits.argmax(axis=1) == sample.labels).mean())
