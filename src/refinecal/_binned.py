"""Calibration errors by binning: how far probabilities are from frequencies, bin by bin."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
STRATEGIES = ("uniform", "quantile")
KINDS = ("auto", "binary", "top-label", "class-wise")


def binned_error(
    columns: Floats,
    labels: NDArray[np.int64],
    weights: Floats,
    n_bins: int,
    strategy: str,
    kind: str,
) -> float:
    """Return the calibration error of probabilities (k, n); empty weights count every row once."""
    if kind == "class-wise":
        each = [
            _error(column, labels == j, weights, n_bins, strategy)
            for j, column in enumerate(columns)
        ]
        return float(np.mean(each))
    if kind == "binary":
        return _error(columns[1], labels == 1, weights, n_bins, strategy)
    top = columns.argmax(axis=0)
    scores = np.take_along_axis(columns, top[None], axis=0)[0]
    return _error(scores, top == labels, weights, n_bins, strategy)


def _error(
    scores: Floats, hits: NDArray[np.bool_], weights: Floats, n_bins: int, strategy: str
) -> float:
    gaps = scores - hits
    mass = weights if weights.size else np.ones(len(scores))
    bins = (
        uniform_bins(scores, n_bins)
        if strategy == "uniform"
        else quantile_bins(scores, mass, n_bins)
    )
    return float(np.abs(np.bincount(bins, mass * gaps)).sum() / mass.sum())


def uniform_bins(scores: Floats, n_bins: int) -> NDArray[np.int64]:
    """Return the bin of each probability: b/n < p <= (b + 1)/n, and 0 in the first."""
    places = np.ceil(scores * n_bins).astype(np.int64) - 1
    return np.clip(places, 0, n_bins - 1)


def quantile_bins(scores: Floats, mass: Floats, n_bins: int) -> NDArray[np.int64]:
    """Return bins of equal mass: all rows of one score are in the bin of the middle of their mass."""
    _, inverse = np.unique(scores, return_inverse=True)
    own = np.bincount(inverse, mass)
    middle = (np.cumsum(own) - own / 2) / mass.sum()
    bins = np.minimum((middle * n_bins).astype(np.int64), n_bins - 1)
    return np.asarray(bins[inverse])
