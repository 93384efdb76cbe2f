"""Scaled log-probabilities in plain NumPy, safe for -inf."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def scaled(logits: NDArray[Any], beta: float | NDArray[Any]) -> NDArray[Any]:
    """Return beta * logits relative to the row's largest; beta = 0 makes every class equally likely."""
    with np.errstate(over="ignore"):  # a gap beyond the largest float is as good as infinite
        gaps = logits - logits.max(axis=1, keepdims=True)
        if np.ndim(beta) == 0:
            tiny = np.finfo(gaps.dtype).tiny  # a positive beta stays positive: -inf * 0 is NaN
            return np.zeros_like(gaps) if beta == 0 else gaps * gaps.dtype.type(max(beta, tiny))
    column = np.asarray(beta, dtype=gaps.dtype)[:, None]
    with np.errstate(invalid="ignore"):
        return np.where(column == 0, 0, gaps * column)


def log_softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """Return the logarithms of softmax along each row."""
    gaps = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(gaps - np.log(np.exp(gaps).sum(axis=1, keepdims=True)))
