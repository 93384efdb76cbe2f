"""Sums over bins of probability, from which calibration errors and reliability diagrams are made."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.errors import fail_choice
from refinecal._core.sample import NOTHING, readonly

Floats = NDArray[np.float64]
STRATEGIES = ("uniform", "quantile")
ROUNDING = 1e-12  # of a mean that is 1/2


def check_bins(n_bins: Any, strategy: str) -> None:
    """Complain of a number of bins or a strategy that there is not."""
    if isinstance(n_bins, bool) or not isinstance(n_bins, numbers.Integral) or n_bins < 1:
        raise ValueError(f"n_bins is {n_bins!r}: it must be a whole number of at least 1")
    if strategy not in STRATEGIES:
        fail_choice("strategy", strategy, list(STRATEGIES), "left out")


def bin_numbers(
    scores: Floats, n_bins: int, strategy: str = "uniform", weights: Floats = NOTHING
) -> NDArray[np.int32]:
    """Return the bin of each score."""
    found = np.empty(len(scores), np.int32)
    if strategy == "uniform":
        _kernels.bins.uniform_bins(readonly(scores), n_bins, found)
    else:
        single = scores.astype(np.float32)
        order = np.argsort(single)
        _kernels.bins.quantile_bins(
            readonly(order), readonly(single), readonly(weights), n_bins, found
        )
    return found


def bin_sums(
    scores: Floats, hits: Floats, weights: Floats, n_bins: int, strategy: str = "uniform"
) -> Floats:
    """Return the mass of each bin, its scores and its hits added up; (3, n_bins)."""
    bins = bin_numbers(scores, n_bins, strategy, weights)
    sums = np.zeros((_kernels.bins.N_KINDS, n_bins))
    _kernels.bins.add_rows(*(readonly(each) for each in (bins, scores, hits, weights)), sums)
    return sums


def mean_distance(sums: Floats) -> float:
    """Return the expected calibration error: the mean distance of scores and hits over rows."""
    mass, scores, hits = sums[:, sums[0] > 0]
    return float(np.abs(scores - hits).sum() / mass.sum())


def confidence_parts(sums: Floats, binary: bool) -> tuple[float, float]:
    """Return over- and underconfidence, from the mass, scores and hits of each bin; (3, n_bins)."""
    mass, scores, hits = sums
    gaps = scores - hits
    if binary:  # below 1/2 the model speaks for the other class; at 1/2 it cannot be too sure
        side = scores - mass / 2
        side = np.where(np.abs(side) <= ROUNDING * mass, 0.0, np.sign(side))
        gaps = np.where(side == 0, -np.abs(gaps), side * gaps)
    total = mass.sum()
    return float(np.maximum(gaps, 0).sum() / total), float(np.maximum(-gaps, 0).sum() / total)
