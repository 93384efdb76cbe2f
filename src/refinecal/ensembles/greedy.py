"""Greedy selection with replacement: add the member that makes the pool best (Caruana et al. 2004)."""

from __future__ import annotations

import math
from copy import copy
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
CLOSE = 1e-3  # relative error of beta; that of the loss is of the order of its square
TOLERANCE = 1e-6  # of a search, in float32
NEAR_ZERO = 1e-6  # beta at which the slope at 0 is read
LOG_LOSSES = ("risk", "log_loss")


@dataclass(frozen=True, slots=True)
class Kind:
    """How members are pooled, and whether each is calibrated before."""

    pool: str  # "arithmetic" or "geometric"
    members: str  # "raw" or "calibrated"

    def __str__(self) -> str:
        return f"{self.pool} pool of {self.members} members"


RAW = Kind("geometric", "raw")  # of one member: the member itself


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
        self._alone: dict[int | None, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        for i, each in enumerate(members.logs):
            self.logs[:, i] = to_tiles(each, order)

    @cached_property
    def probs(self) -> Tiles:
        """The probabilities of the members, as they were given."""
        return np.exp(self.logs)

    def others(self, fold: int | None) -> Tiles:
        """Return the weights of the rows outside of a fold; ``None`` for all rows."""
        return np.where(self.folds == fold, np.float32(0), self.weights)

    def alone(self, fold: int | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the refinement and inverse temperature of each member on the rows outside of a fold."""
        if fold not in self._alone:
            pool = self.pool(RAW, fold)
            self._alone[fold] = pool.reader(pool.empty(), 1).fit(np.ones(self.m))
        return self._alone[fold]

    def pool(self, kind: Kind, fold: int | None) -> Pool:
        """Return a pool whose members are calibrated, if at all, on the rows outside of a fold."""
        ones = np.ones(self.m)
        betas = self.alone(fold)[1] if kind.members == "calibrated" else ones
        if kind.pool == "geometric":
            return Pool(self, kind, fold, self.logs, betas)
        if kind.members == "raw":
            return Pool(self, kind, fold, self.probs, ones)
        scaled = self.logs * betas.astype(np.float32)[:, None, None]
        scaled -= scaled.max(axis=2, keepdims=True)
        np.exp(scaled, out=scaled)
        scaled /= scaled.sum(axis=2, keepdims=True)
        return Pool(self, kind, fold, scaled, ones)


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
        starts = np.where(starts > NEAR_ZERO, starts, 1.0)
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
    """The members of a kind of pool, to be added up on the rows outside of a fold."""

    def __init__(
        self, stack: Stack, kind: Kind, fold: int | None, values: Tiles, factors: NDArray[Any]
    ) -> None:
        self.stack, self.kind, self.fold, self.values = stack, kind, fold, values
        self.factors = factors.astype(np.float32)
        self.weights = stack.others(fold)
        self.arithmetic = kind.pool == "arithmetic"

    def draw(self, rng: np.random.Generator) -> Pool:
        """Return the pool with the weights of a bootstrap sample; rows of a unit are drawn together."""
        stack, bag = self.stack, copy(self)
        n_units = int(stack.units.max()) + 1
        counts = rng.multinomial(n_units, np.full(n_units, 1 / n_units))[stack.units]
        bag.weights = self.weights * to_tiles(counts.astype(np.float32), stack.order)
        return bag

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

    def reader(self, total: Tiles, count: float) -> PoolReader:
        """Return a reader of the pool of ``count`` members, the last of which is any."""
        rest = total, 1 / count, self.arithmetic, self.stack.labels, self.weights
        return PoolReader(self.values, self.factors, *rest)

    def fit(self, total: Tiles, count: float) -> tuple[float, float]:
        """Return the smallest loss of the pool of ``count`` members, and its inverse temperature."""
        reader = self.reader(np.zeros_like(total), count)
        reader = replace(reader, values=total[:, None], factors=np.ones(1, np.float32))
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


def pick_members(pool: Pool, metric: Metric, most: int) -> list[Pick]:
    """Return the members picked one after the other, some of them again."""
    stack, total, picks = pool.stack, pool.empty(), list[Pick]()
    starts = stack.alone(pool.fold)[1] if pool.kind.members == "raw" else np.ones(stack.m)
    for count in range(1, most + 1):
        values, betas = score(pool, total, count, metric, starts)
        signed = -values if metric.greater_is_better else values
        best = int(np.where(np.isnan(signed), np.inf, signed).argmin())
        total += pool.member(best)
        picks.append(Pick(best, float(values[best]), float(betas[best])))
        if 1e-6 < betas[best] < MAX_BETA / 2:  # the more picks, the less each changes
            change = np.clip(betas, 1e-6, MAX_BETA / 2) / betas[best]
            starts = betas[best] * change ** (count / (count + 1))
    return picks


def score(
    pool: Pool, total: Tiles, count: int, metric: Metric, starts: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the metric of the pool with each member added, and its inverse temperature, NaN if unknown."""
    unknown = np.full(pool.stack.m, np.nan)
    if is_refinement(metric):
        return pool.reader(total, count).fit(starts)
    if is_built_in(metric) and metric.name in LOG_LOSSES:
        points = pool.reader(total, count).points(np.ones(pool.stack.m))
        return np.array([point.loss for point in points]), unknown
    pools = (total + pool.member(i) for i in range(pool.stack.m))
    return np.array([measure(pool, each, count, pool.weights, metric) for each in pools]), unknown


def is_refinement(metric: Metric) -> bool:
    """Return whether pools are compared by their log loss after temperature scaling."""
    return metric.name == "refinement" and is_built_in(metric)


def value_of_pool(pool: Pool, weights: NDArray[np.float64], metric: Metric) -> float:
    """Return the metric of a weighted pool on its rows."""
    total = pool.weighted(weights)
    if is_refinement(metric):
        return pool.fit(total, 1)[0]
    return measure(pool, total, 1, pool.weights, metric)


def measure(pool: Pool, total: Tiles, count: float, weights: Tiles, metric: Metric) -> float:
    """Return any metric of a pool on the rows of positive weight."""
    stack = pool.stack
    weight = from_tiles(weights, stack.n).astype(np.float64)
    rows = np.flatnonzero(weight)
    logits = np.ascontiguousarray(pool.logits(total, count)[rows])
    given = None if stack.members.weights is None else weight[rows]
    sample = Sample(from_tiles(stack.labels, stack.n)[rows], logits, given)
    parts: Any = _NoParts
    if is_built_in(metric) and metric.name == "brier_refinement":
        parts = decompose_sample(sample, TemperatureScaling(laplace=False), LogLoss())
    y = np.asarray(stack.members.y)[stack.order[rows]]
    return value_of(metric, Step(y, sample, parts, 1.0), given)


class _NoParts:
    """In place of a decomposition, where the metric needs none."""

    loss = None
