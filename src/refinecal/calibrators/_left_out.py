"""The loss of calibrators on rows that they were not fitted on."""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from refinecal._calibrator import Calibrator
from refinecal._sample import Sample
from refinecal.losses import get_loss
from refinecal.resampling import _row_keys, row_losses

Floats = NDArray[np.float64]
FEW_ROWS = 20  # different ones, below which there is nothing to compare
LARGEST = 700.0  # of a loss: the probability is then the smallest that float64 holds


def left_out(
    families: Collection[Calibrator], sample: Sample, cv: int, most: int, threads: int
) -> tuple[Floats, Floats] | None:
    """Return the loss of each row under each family fitted on other folds, and how often each row counts.

    Returns ``None`` if there are too few different rows, or not two labels that occur often enough.
    """
    rows = sample.expanded()
    folds = _folds(rows, cv, most)
    if folds is None:
        return None
    rows, fold = rows.take(np.flatnonzero(folds >= 0)), folds[folds >= 0]
    losses = np.empty((rows.n, len(families)))
    for number in range(cv):
        known, new = rows.take(np.flatnonzero(fold != number)), np.flatnonzero(fold == number)
        for j, family in enumerate(families):
            fitted = deepcopy(family)._fit_sample(known, threads)
            losses[new, j] = _losses(fitted, rows.take(new))
    counts = np.ones(rows.n) if rows.weights is None else rows.weights
    return np.minimum(losses, LARGEST), counts


def _losses(fitted: Calibrator, rows: Sample) -> Floats:
    return row_losses(rows, get_loss("log"), lambda logits, _: fitted._log_proba(logits))


def _folds(rows: Sample, cv: int, most: int) -> NDArray[np.int64] | None:
    """Return the fold of each row, -1 for those that are not needed.

    Each label is shared out evenly. Rows that are equal stay together, so that a weight of 2 is the same as
    a row twice; the order of rows and the numbers of labels decide nothing.
    """
    keys = np.stack(_row_keys(replace(rows, weights=None)))
    order = np.lexsort(keys)
    new = np.ones(rows.n, dtype=bool)
    new[1:] = (np.diff(keys[:, order]) != 0).any(axis=0)
    unit = np.empty(rows.n, dtype=np.int64)
    unit[order] = np.cumsum(new) - 1
    n_units = int(new.sum())
    labels = np.empty(n_units, dtype=np.int64)
    labels[unit] = rows.labels
    if n_units < max(FEW_ROWS, 2 * cv) or len(np.unique(labels)) < 2:
        return None
    shuffled = np.random.default_rng(0).permutation(n_units)[:most]
    fold = np.full(n_units, -1)
    for label in np.unique(labels[shuffled]):
        places = np.flatnonzero(labels[shuffled] == label)
        fold[shuffled[places]] = (places[0] + np.arange(len(places))) % cv
    return fold[unit]
