"""Scaled log-probabilities and log-odds, safe for -inf."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.sample import readonly


def scale_logits(logits: NDArray[Any], beta: float | NDArray[Any]) -> NDArray[Any]:
    """Return beta * logits relative to the row's largest, for one beta or one each.

    beta = 0 makes every class equally likely; any other leaves classes at -inf impossible.
    """
    tiny = np.finfo(logits.dtype).tiny  # a positive beta stays positive: -inf * 0 is NaN
    betas = np.asarray(beta, dtype=np.float64)
    column = np.maximum(betas, tiny).astype(logits.dtype).reshape(-1, 1)
    with np.errstate(over="ignore"):  # a gap beyond the largest float is as good as infinite
        gaps = logits - logits.max(axis=1, keepdims=True)
        gaps *= column
    flat = betas.reshape(-1, 1) == 0
    return np.where(flat, gaps.dtype.type(0), gaps) if flat.any() else np.asarray(gaps)


def log_softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """Return the logarithms of softmax along each row."""
    gaps = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(gaps - np.log(np.exp(gaps).sum(axis=1, keepdims=True)))


def log_odds(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log-odds of each class against the rest, exact for the surest predictions too."""
    if logits.shape[1] == 2:
        return logits - logits[:, ::-1]
    odds = np.empty(logits.shape)
    _kernels.ranking.log_odds_rows(readonly(np.ascontiguousarray(logits, dtype=np.float64)), odds)
    return odds
