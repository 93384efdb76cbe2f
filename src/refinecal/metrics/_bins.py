"""Sums over bins of probability, from which calibration errors are made."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from refinecal import _kernels
from refinecal._core.arrays import readonly
from refinecal._core.errors import fail_choice
from refinecal.metrics._shared import Event, Floats

STRATEGIES = ("uniform", "quantile")


def check_bins(n_bins: Any, strategy: str) -> None:
    """Complain of a number of bins or a strategy that there is not."""
    if isinstance(n_bins, bool) or not isinstance(n_bins, numbers.Integral) or n_bins < 1:
        raise ValueError(f"n_bins is {n_bins!r}: it must be a whole number of at least 1")
    if strategy not in STRATEGIES:
        fail_choice("strategy", strategy, list(STRATEGIES[:-1]), repr(STRATEGIES[-1]))


def bin_sums(event: Event, n_bins: int, strategy: str) -> Floats:
    """Return the mass of each bin, its scores and its hits added up; (3, n_bins)."""
    scores, hits, weights = (readonly(each) for each in event)
    sums = np.zeros((_kernels.probs.N_KINDS, n_bins))
    if strategy == "uniform":
        _kernels.probs.add_uniform(scores, hits, weights, sums)
    else:
        order = readonly(np.argsort(scores))
        _kernels.probs.add_quantile(order, scores, hits, weights, event.total, sums)
    return sums
