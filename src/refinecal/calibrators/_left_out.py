"""The loss of calibrators on rows that they were not fitted on."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from copy import deepcopy

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import Sample
from refinecal.calibrators._dealing import at_random
from refinecal.calibrators.base import Calibrator
from refinecal.losses import get_loss
from refinecal.resampling import row_keys, row_losses

Floats = NDArray[np.float64]
FEW_ROWS = 20  # below which there is nothing to compare
LARGEST = 700.0  # of a loss: the probability is then the smallest that float64 holds


def left_out(
    families: Collection[Calibrator], sample: Sample, cv: int, most: int, threads: int
) -> tuple[Floats, Floats] | None:
    """Return the loss of each row under each family fitted on other folds, and how often each row counts.

    At most so many different rows are looked at. ``None`` if there are too few rows, or not two labels.
    """
    rows, parts = deal(sample, cv, most)
    total = parts.sum(axis=1)
    if total.sum() < max(FEW_ROWS, 2 * cv) or np.count_nonzero(rows.frequencies) < 2:
        return None
    losses: list[Floats] = []
    counts: list[Floats] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the fit to all rows says it once
        for part in parts.T:
            known = rows.replace(weights=total - part).counted()
            new = rows.replace(weights=part).counted().expanded()
            losses.append(np.stack([_losses(one, known, new, threads) for one in families], axis=1))
            counts.append(np.asarray(new.weights))
    return np.minimum(np.concatenate(losses), LARGEST), np.concatenate(counts)


def _losses(family: Calibrator, known: Sample, new: Sample, threads: int) -> Floats:
    fitted = deepcopy(family)._fit_sample(known, threads)
    return row_losses(new, get_loss("log"), lambda logits, _: fitted._log_proba(logits))


def deal(sample: Sample, cv: int, most: int) -> tuple[Sample, Floats]:
    """Return different rows, at most so many, and how often each counts in each fold.

    Rows are dealt to the folds in turn, each label by itself, and copies of a row at random. A weight of 2
    is a row twice. The order of rows and the numbers of labels decide nothing.
    """
    rows, copies = _different(sample)
    pack = np.random.default_rng(0).permutation(rows.n)[:most]
    rows, copies = rows.take(np.sort(pack)), copies[np.sort(pack)]
    pack = np.argsort(np.argsort(pack))  # the place of each row in the pack
    first = np.empty(rows.n, dtype=np.int64)  # the fold of a single copy
    for label in np.unique(rows.labels):
        own = np.flatnonzero(rows.labels == label)
        own = own[np.argsort(pack[own])]
        first[own] = pack[own[0]] + np.arange(len(own))
    turn = (np.arange(cv) - first[:, None]) % cv
    parts = np.where(turn == 0, copies[:, None], 0.0)
    several = copies >= 2
    parts[several] = at_random(copies[several], cv)
    return rows, parts


def _different(sample: Sample) -> tuple[Sample, Floats]:
    """Return every row once, in an order of their own, and how often it counts."""
    plain = sample.replace(weights=None)
    keys = np.stack(row_keys(plain))
    order = np.lexsort(keys)
    new = np.ones(sample.n, dtype=bool)
    new[1:] = (np.diff(keys[:, order]) != 0).any(axis=0)
    weights = np.ones(sample.n) if sample.weights is None else sample.weights
    copies: Floats = np.bincount(np.cumsum(new) - 1, weights[order]).astype(np.float64)
    return plain.take(order[new]), copies
