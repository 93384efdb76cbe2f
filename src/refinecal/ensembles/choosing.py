"""The kind of pool and the number of picks, chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import log_softmax
from refinecal.ensembles.greedy import (
    Kind,
    Pick,
    Pool,
    Stack,
    from_tiles,
    is_refinement,
    measure,
    pick_members,
)
from refinecal.metrics import Metric

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trial:
    """A kind of pool on held-out rows.

    Attributes
    ----------
    kind : Kind
    values : ndarray of shape (picks + 1,)
        The metric after each pick; last, of the uniform average.
    losses : ndarray of shape (picks + 1, n)
        The log loss of each row, in the order of the tiles, after calibration on the other rows.
    """

    kind: Kind
    values: Floats
    losses: Floats


def try_kind(stack: Stack, kind: Kind, metric: Metric, most: int) -> Trial:
    """Pick members on all folds but one, and evaluate the pools on that one, in turn."""
    losses = np.empty((most + 1, stack.n))
    values, weights = np.zeros(most + 1), np.zeros(most + 1)
    fold_of = from_tiles(stack.folds, stack.n)
    for fold in range(stack.n_folds):
        pool = stack.pool(kind, fold)
        own = stack.weights - pool.weights
        picks = pick_members(pool, metric, most)
        rows = np.flatnonzero(fold_of == fold)
        for t, (total, count, start) in enumerate(growing(pool, picks)):
            beta = pool.fit(total, count)[1] if np.isnan(start) else start
            losses[t, rows] = row_losses(pool, total, count, beta, rows)
            if not is_refinement(metric):
                value, weight = measure(pool, total, count, own, metric), float(own.sum())
                values[t] += weight * value
                weights[t] += weight
    if is_refinement(metric):
        each = from_tiles(stack.weights, stack.n).astype(np.float64)
        return Trial(kind, losses @ each / each.sum(), losses)
    return Trial(kind, values / weights, losses)


def growing(pool: Pool, picks: list[Pick]) -> Iterable[tuple[NDArray[np.float32], int, float]]:
    """Yield the sum of the members after each pick, their number and beta; last, of all members."""
    total = pool.empty()
    for count, pick in enumerate(picks, 1):
        total += pool.member(pick.member)
        yield total, count, pick.beta
    m = pool.stack.m
    total = pool.empty()
    for i in range(m):
        total += pool.member(i)
    yield total, m, np.nan


def row_losses(
    pool: Pool, total: NDArray[np.float32], count: float, beta: float, rows: NDArray[np.int64]
) -> Floats:
    """Return the log loss of some rows, in the order of the tiles, at an inverse temperature."""
    logs = log_softmax(beta * pool.logits(total, count)[rows])
    labels = from_tiles(pool.stack.labels, pool.stack.n)[rows]
    return np.asarray(-logs[np.arange(len(rows)), labels])
