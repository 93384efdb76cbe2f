"""Rows of logits as columns, and back: with classes first, every loop runs over samples."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._kernels.softmax_linear import fill_gaps, fill_logs

Array = NDArray[np.float64]


def gap_columns(logits: NDArray[Any], limit: float) -> Array:
    """Return finite gaps, as ``_features.finite_gaps`` does, but as (k, n)."""
    columns = np.empty(logits.shape[::-1])
    fill_gaps(logits, limit, columns)
    return columns


def centred_columns(logits: NDArray[Any], limit: float) -> Array:
    """Return finite logits (k, n) that sum to 0 over the classes."""
    gaps = gap_columns(logits, limit)
    gaps -= gaps.mean(axis=0)
    return gaps


def log_softmax_rows(scores: Array) -> Array:
    """Return the logarithms of softmax of scores (k, n), as (n, k)."""
    logs = np.empty(scores.shape[::-1])
    fill_logs(scores, logs)
    return logs


def normalise(gaps: Array) -> Array:
    """Turn finite gaps (k, n) into log-probabilities, in place."""
    gaps -= np.log(np.exp(gaps).sum(axis=0))
    return gaps


def smooth(gaps: Array, beta: float, n: float) -> Array:
    """Turn gaps (k, n) into log(n / (n + 1) * softmax(beta * gaps) + 1 / (n + 1) / k), in place."""
    gaps *= beta
    probs = np.exp(gaps, out=gaps)
    probs *= (n / (n + 1)) / probs.sum(axis=0)
    probs += 1 / ((n + 1) * len(gaps))
    return np.asarray(np.log(probs, out=probs))
