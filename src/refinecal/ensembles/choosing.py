"""The kind of pool and the number of picks, chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import log_softmax
from refinecal.ensembles.greedy import (
    TOLERANCE,
    Kind,
    Pick,
    Pool,
    Stack,
    from_tiles,
    is_refinement,
    measure,
    pick_members,
)
from refinecal.evaluation import paired_difference
from refinecal.metrics import Metric

Floats = NDArray[np.float64]
FEW_ROWS = 50  # for each member
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, slots=True)
class Trial:
    """A kind of pool on held-out rows.

    Attributes
    ----------
    kind : Kind
    values : ndarray of shape (folds, picks + 1)
        The metric on each fold after each pick; last, of the uniform average. NaN where it is undefined.
    shares : ndarray of shape (folds,)
        The weight of each fold.
    losses : ndarray of shape (picks + 1, n)
        The log loss of each row, in the order of the tiles, after calibration on the other rows.
    """

    kind: Kind
    values: Floats
    shares: Floats
    losses: Floats

    def mean(self, without: int | None = None) -> Floats:
        """Return the mean of the metric over the folds where it is a number, if need be without one."""
        known = ~np.isnan(self.values)
        if without is not None:
            known[without] = False
        total = self.shares @ known
        mean = self.shares @ np.where(known, self.values, 0) / np.maximum(total, TINY)
        return np.where(total > 0, mean, np.nan)


@dataclass(frozen=True, slots=True)
class Choice:
    """The kind of pool, and the number of picks of at most ``most``; 0 for the uniform average."""

    kind: Kind
    n_picks: int
    most: int
    trials: list[Trial] = field(default_factory=list)

    @property
    def trial(self) -> Trial | None:
        """What cross-validation says of the kind that is chosen."""
        return next((trial for trial in self.trials if trial.kind == self.kind), None)


def choose(stack: Stack, kinds: list[Kind], metric: Metric, most: int) -> Choice:
    """Choose the kind of pool and the number of picks by cross-validation, where there is any.

    On few rows, where picking is mostly noise, the uniform average is preferred to several picks unless these
    are better by more than a standard error. On many, an ensemble of few members is as good and faster.
    """
    if stack.m == 1:
        return Choice(kinds[0], 1, 1)
    if stack.n_folds < 2:
        return Choice(kinds[0], most if stack.n_folds == 0 else 1, most)  # 1: there is one unit
    trials = [try_kind(stack, kind, metric, most) for kind in kinds]
    best, place = find_best(stack, trials, metric)
    return Choice(best.kind, 0 if place == most else place + 1, most, trials)


def find_best(
    stack: Stack, trials: list[Trial], metric: Metric, without: int | None = None
) -> tuple[Trial, int]:
    """Return the best kind of pool and the place of its best value, if need be without the rows of a fold.

    Of values that are equal up to rounding, as where a member is picked again, that of fewer picks is best.
    """
    means = np.stack([trial.mean(without) for trial in trials])
    signed = np.where(np.isnan(means), np.inf, -means if metric.greater_is_better else means)
    equal = signed <= signed.min() + TOLERANCE * abs(signed.min())
    most, place = means.shape[1] - 1, int(equal.any(axis=0).argmax())
    best = int(equal[:, place].argmax())
    if is_refinement(metric) and place > 0 and stack.members.total < FEW_ROWS * stack.m:
        uniform = int(means[:, -1].argmin())
        each = from_tiles(stack.others(without), stack.n)
        units = stack.units[stack.order]
        pair = trials[uniform].losses[-1], trials[best].losses[place]
        loss = paired_difference(*pair, each, units)
        if loss.mean <= loss.standard_error:
            best, place = uniform, most
    return trials[best], place


def losses_held_out(stack: Stack, trials: list[Trial], metric: Metric) -> tuple[Floats, Floats]:
    """Return the log loss of each row with the ensemble and with the best member, chosen on the other folds.

    For the rows of each fold, the members, the kind of pool and the number of picks are those that are best
    by the metric on the other folds. These values come from members picked with the rows of the fold among
    others; otherwise no row has a say in a choice that it evaluates.
    """
    fold_of = from_tiles(stack.folds, stack.n)
    ours, theirs = np.empty((2, stack.n))
    for fold in range(stack.n_folds):
        trial, place = find_best(stack, trials, metric, fold)
        rows = fold_of == fold
        ours[rows], theirs[rows] = trial.losses[place, rows], trial.losses[0, rows]
    return ours, theirs


def try_kind(stack: Stack, kind: Kind, metric: Metric, most: int) -> Trial:
    """Pick members on all folds but one, and evaluate the pools on that one, in turn."""
    losses = np.empty((most + 1, stack.n))
    values = np.empty((stack.n_folds, most + 1))
    shares = np.empty(stack.n_folds)
    fold_of = from_tiles(stack.folds, stack.n)
    each = from_tiles(stack.weights, stack.n).astype(np.float64)
    for fold in range(stack.n_folds):
        pool = stack.pool(kind, fold)
        own = stack.weights - pool.weights
        picks = pick_members(pool, metric, most)
        rows = np.flatnonzero(fold_of == fold)
        shares[fold] = each[rows].sum()
        for t, (total, count, start) in enumerate(growing(pool, picks)):
            beta = pool.fit(total, count)[1] if np.isnan(start) else start
            losses[t, rows] = row_losses(pool, total, count, beta, rows)
            if not is_refinement(metric):  # NaN, such as AUROC where a class is missing
                values[fold, t] = measure(pool, total, count, own, metric)
        if is_refinement(metric):
            values[fold] = losses[:, rows] @ each[rows] / shares[fold]
    return Trial(kind, values, shares, losses)


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
