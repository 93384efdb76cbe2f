"""Greedy selection with replacement: the pool grows by the member that makes it best (Caruana et al. 2004)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.sample import Sample, log_softmax
from refinecal.calibrators.temperature import TemperatureScaling
from refinecal.decomposition import decompose_sample
from refinecal.ensembles.members import Members
from refinecal.losses import LogLoss
from refinecal.metrics import Metric, Step, is_built_in, value_of
from refinecal.temperature.fit import MAX_BETA, ROUNDING_32, Point, best_step, search

Tiles = NDArray[np.float32]
TILE = 128  # rows of a tile, as in the kernel
CLOSE = 1e-4  # relative error of beta; that of the loss is of the order of its square
TOLERANCE = 1e-6  # of a search, in float32
NEAR_ZERO = 1e-6  # beta at which the slope at 0 is read
FAST_METRICS = ("refinement", "risk", "log_loss")


# ---- rows in tiles -----------------------------------------------------------------------------------------


def to_tiles(values: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    """Return rows (n, ...) in this order as tiles (tiles, ..., TILE), the last one filled with zeros."""
    n = len(order)
    padded = np.zeros((-(-n // TILE) * TILE, *values.shape[1:]), values.dtype)
    padded[:n] = values[order]
    return np.ascontiguousarray(np.moveaxis(padded.reshape(-1, TILE, *values.shape[1:]), 1, -1))


def from_tiles(tiles: NDArray[Any], n: int) -> NDArray[Any]:
    """Return rows (n, ...) of tiles (tiles, ..., TILE)."""
    rows = np.moveaxis(tiles, -1, 1)
    return np.ascontiguousarray(rows.reshape(-1, *rows.shape[2:])[:n])


class Stack:
    """The members' log-probabilities, ordered by fold and by content, in tiles.

    Attributes
    ----------
    logs : ndarray of shape (tiles, m, k, TILE)
    labels, weights, folds : ndarray of shape (tiles, TILE)
        Weights are at most 1, and 0 where there is no row, where the fold is -1.
    order : ndarray of shape (n,)
        The place of each row among those given.
    """

    def __init__(self, members: Members, n_folds: int, seed: int) -> None:
        order, units = members.find_units()
        weights = np.ones(len(order)) if members.weights is None else members.weights
        folds, self.n_folds = deal_units(members.labels, weights, order, units, n_folds, seed)
        self.order = order = order[np.argsort(folds[order], kind="stable")]
        self.members, self.n, self.m = members, len(order), len(members.logs)
        self.k = members.logs[0].shape[1]
        self.labels = to_tiles(members.labels, order)
        self.weights = to_tiles((weights / weights.max()).astype(np.float32), order)
        self.folds = np.where(to_tiles(np.ones(self.n, bool), order), to_tiles(folds, order), -1)
        self.units = units
        shape = (len(self.labels), self.m, self.k, TILE)
        self.logs = np.empty(shape, np.float32)
        for i, each in enumerate(members.logs):
            self.logs[:, i] = to_tiles(each, order)

    @cached_property
    def probs(self) -> Tiles:
        """The probabilities of the members, as they were given."""
        return np.exp(self.logs)

    def calibrate(self, weights: Tiles) -> NDArray[np.float64]:
        """Return the best inverse temperature of each member."""
        alone = np.zeros((len(self.logs), self.k, TILE), np.float32)
        factors = np.ones(self.m, np.float32)
        reader = PoolReader(self.logs, factors, alone, 1.0, False, self.labels, weights)
        return reader.fit(np.ones(self.m))[1]

    def pool(self, kind: Kind, betas: NDArray[np.float64]) -> Pool:
        """Return a pool without members yet."""
        if kind.pool == "geometric":
            return Pool(self, False, self.logs, betas)
        if kind.members == "raw":
            return Pool(self, True, self.probs, np.ones(len(betas)))
        scaled = self.logs * betas.astype(np.float32)[:, None, None]
        scaled -= scaled.max(axis=2, keepdims=True)
        np.exp(scaled, out=scaled)
        scaled /= scaled.sum(axis=2, keepdims=True)
        return Pool(self, True, scaled, np.ones(len(betas)))


def deal_units(
    labels: NDArray[np.int64],
    weights: NDArray[np.float64],
    order: NDArray[np.int64],
    units: NDArray[np.int64],
    n_folds: int,
    seed: int,
) -> tuple[NDArray[np.int64], int]:
    """Return the fold of each row, and the number of folds, at most that of units.

    Units, of similar labels one after the other and otherwise at random, go to the fold that is lightest.
    """
    n_units = int(units.max()) + 1
    n_folds = min(n_folds, n_units)
    if n_folds < 2:
        return np.zeros(len(units), dtype=np.int64), 0
    heavy = np.bincount(units[order], weights[order])
    label = np.full(n_units, -1)
    label[units[order[::-1]]] = labels[order[::-1]]
    chance = np.random.default_rng(seed).permutation(n_units)
    large = heavy >= 2 * heavy.mean()
    turn = np.lexsort((chance, label, np.where(large, -heavy, 0)))
    fold, filled = np.empty(n_units, dtype=np.int64), np.zeros(n_folds)
    for unit in turn.tolist():
        lightest = int(filled.argmin())
        fold[unit] = lightest
        filled[lightest] += heavy[unit]
    return fold[units], n_folds


# ---- pools -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """How members are pooled, and whether each is calibrated before."""

    pool: str  # "arithmetic" or "geometric"
    members: str  # "raw" or "calibrated"

    def __str__(self) -> str:
        return f"{self.pool} pool of {self.members} members"


@dataclass(frozen=True, slots=True)
class PoolReader:
    """Reads the loss of a pool with each of some members added, and its derivatives in beta."""

    values: Tiles
    factors: NDArray[np.float32]
    total: Tiles
    share: float
    arithmetic: bool
    labels: NDArray[np.int64]
    weights: Tiles

    def points(self, betas: NDArray[np.float64]) -> list[Point]:
        """Return the mean loss with each member, at a beta for each."""
        out = np.empty((len(betas), 6))
        share = np.float32(self.share)
        pool = (self.values, self.total, self.factors, share, self.arithmetic)
        _kernels.pooling.read(*pool, self.labels, self.weights, betas, out)
        pairs = zip(betas.tolist(), (out[:, 1:] / out[:, :1]).tolist(), strict=True)
        return [Point(beta, *row) for beta, row in pairs]

    def fit(self, starts: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the smallest loss with each member, and the beta that has it.

        Near the best beta, one read and its derivatives are enough; other members are searched one by one.
        """
        losses, betas = np.empty(len(starts)), np.empty(len(starts))
        for i, (beta, loss, a, b, c, d) in enumerate(self.points(starts)):
            step, error = best_step(a, b, c, d)
            if error < CLOSE and -0.9 < step < 9 and beta * (1 + step) < MAX_BETA:
                losses[i] = loss + step * (a + step * (b / 2 + step * (c / 6 + step * d / 24)))
                betas[i] = beta * (1 + step)
            else:
                values = np.ascontiguousarray(self.values[:, i : i + 1])
                alone = replace(self, values=values, factors=self.factors[i : i + 1])
                losses[i], betas[i] = _OneMember(alone).fit(beta)
        return losses, betas


class _OneMember:
    """Reads the pool with one member, for the search of its beta."""

    tolerance, rounding = TOLERANCE, ROUNDING_32

    def __init__(self, reader: PoolReader) -> None:
        self.reader = reader
        self.shape = reader.labels.size, reader.values.shape[2]

    def at(self, beta: float) -> Point:
        return self.reader.points(np.array([beta]))[0]

    def at_zero(self) -> tuple[float, float]:
        point = self.at(NEAR_ZERO)
        return point.a / NEAR_ZERO, point.b / NEAR_ZERO**2

    def every(self, stride: int) -> _OneMember:
        return self  # a pool has a start

    def fit(self, start: float) -> tuple[float, float]:
        """Return the smallest loss and its beta."""
        found = search(self, start, self.tolerance, rounding=self.rounding)
        flat = found.beta == 0  # no better than chance
        return (math.log(self.shape[1]), 0.0) if flat else (found.loss, found.beta)


class Pool:
    """The members of a kind of pool, and the sum of those picked so far."""

    def __init__(
        self, stack: Stack, arithmetic: bool, values: Tiles, factors: NDArray[np.float64]
    ) -> None:
        self.stack, self.arithmetic, self.values = stack, arithmetic, values
        self.factors = factors.astype(np.float32)

    def empty(self) -> Tiles:
        return np.zeros((len(self.values), *self.values.shape[2:]), np.float32)

    def member(self, i: int) -> Tiles:
        """Return what member i adds to the sum."""
        return np.asarray(self.values[:, i] * self.factors[i])

    def weighted(self, weights: NDArray[np.float64]) -> Tiles:
        """Return the weighted sum of the members."""
        total = self.empty()
        for i in np.flatnonzero(weights).tolist():
            total += np.float32(weights[i]) * self.member(i)
        return total

    def reader(self, total: Tiles, count: float, weights: Tiles) -> PoolReader:
        """Return a reader of the pool of ``count`` members, the last of which is any."""
        rest = total, 1 / count, self.arithmetic, self.stack.labels, weights
        return PoolReader(self.values, self.factors, *rest)

    def fit(self, total: Tiles, count: float, weights: Tiles) -> tuple[float, float]:
        """Return the smallest loss of the pool of ``count`` members, and its inverse temperature."""
        rest = 1 / count, self.arithmetic, self.stack.labels, weights
        nothing = np.zeros_like(total)
        reader = PoolReader(total[:, None], np.ones(1, np.float32), nothing, *rest)
        loss, beta = reader.fit(np.ones(1))
        return loss.item(), beta.item()

    def logits(self, total: Tiles, count: float) -> NDArray[np.float64]:
        """Return the logits of a pool, in the order of the tiles."""
        mean = from_tiles(total, self.stack.n).astype(np.float64) / count
        if self.arithmetic:
            return np.asarray(np.log(np.maximum(mean, np.finfo(np.float32).tiny)))
        return log_softmax(mean)


@dataclass(frozen=True, slots=True)
class Pick:
    """A member that was picked, the metric of the pool with it, and the inverse temperature of the pool."""

    member: int
    value: float
    beta: float


def pick_members(
    pool: Pool, weights: Tiles, metric: Metric, most: int, allowed: Sequence[int] | None = None
) -> list[Pick]:
    """Return the members picked one after the other, some of them again."""
    total, picks = pool.empty(), list[Pick]()
    m = pool.values.shape[1]
    open_to = np.arange(m) if allowed is None else np.asarray(allowed)
    starts = np.ones(m)
    for count in range(1, most + 1):
        values, betas = score(pool, total, count, weights, metric, starts)
        signed = -values if metric.greater_is_better else values
        signed = np.where(np.isnan(signed), np.inf, signed)[open_to]
        best = int(open_to[int(signed.argmin())])
        total += pool.member(best)
        picks.append(Pick(best, float(values[best]), float(betas[best])))
        if 1e-6 < betas[best] < MAX_BETA / 2:
            starts = np.full(m, betas[best])
    return picks


def score(
    pool: Pool, total: Tiles, count: int, weights: Tiles, metric: Metric, starts: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the metric of the pool with each member added, and its inverse temperature, NaN if unknown."""
    if is_built_in(metric) and metric.name in FAST_METRICS:
        reader = pool.reader(total, count, weights)
        if metric.name == "refinement":
            return reader.fit(starts)
        losses = [point.loss for point in reader.points(np.ones(len(starts)))]
        return np.array(losses), np.full(len(starts), np.nan)
    m = pool.values.shape[1]
    values = [measure(pool, total + pool.member(i), count, weights, metric) for i in range(m)]
    return np.array(values), np.full(m, np.nan)


def measure(pool: Pool, total: Tiles, count: float, weights: Tiles, metric: Metric) -> float:
    """Return any metric of a pool on the rows of positive weight."""
    stack = pool.stack
    weight = from_tiles(weights, stack.n).astype(np.float64)
    rows = np.flatnonzero(weight)
    logits = np.ascontiguousarray(pool.logits(total, count)[rows])
    given = None if stack.members.weights is None else weight[rows]
    y = np.asarray(stack.members.y)[stack.order[rows]]
    sample = Sample(from_tiles(stack.labels, stack.n)[rows], logits, given)
    if is_built_in(metric) and metric.name == "brier_refinement":
        parts: Any = decompose_sample(sample, TemperatureScaling(laplace=False), LogLoss())
    else:
        parts = _NoParts
    return value_of(metric, Step(y, sample, parts, 1.0), given)


class _NoParts:
    """In place of a decomposition, where the metric needs none."""

    loss = None
