"""Rows of a user's table: split for validation, repeated by weight, ordered by content.

What is drawn at random is drawn from rows in an order that depends on their content alone, so that the order
of the table does not change a model. Rows that are equal are drawn one by one: new rows may well equal old
ones, too, and folds should be like them. A row of weight 2 is one row, on one side of a split.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.arrays import hash_rows

AUTO_FOLDS = 5
FEW = 20_000  # rows times classes: below, there is time for twice as many models
MOST_REPEATED = 4  # whole weights are repeated literally up to this many times the rows

Indices = NDArray[np.int64]
Split = tuple[Indices, Indices]  # training and validation rows


@dataclass(frozen=True, slots=True)
class Rows:
    """Features, labels, weights and groups of the same rows.

    ``keys`` tell distinct features apart, ``places`` say where in its table a row is.
    """

    X: Any
    y: NDArray[Any]
    weights: NDArray[np.float64] | None = None
    groups: NDArray[Any] | None = None
    keys: NDArray[np.uint64] | None = None
    places: Indices | None = None

    @property
    def n(self) -> int:
        return len(self.y)

    @property
    def n_used(self) -> int:
        """The number of rows with nonzero weight."""
        return self.n if self.weights is None else int(np.count_nonzero(self.weights))

    def classes(self, rows: Any = slice(None)) -> NDArray[Any]:
        """Return the labels of some rows, or of all, that have a weight."""
        used = slice(None) if self.weights is None else self.weights[rows] > 0
        return np.unique(self.y[rows][used])

    @property
    def total(self) -> float:
        """The total weight of the rows."""
        return float(self.n if self.weights is None else self.weights.sum())

    def take(self, rows: Indices) -> Rows:
        """Return the given rows, in that order."""
        from sklearn.utils import _safe_indexing

        others = (self.y, self.weights, self.groups, self.keys, self.places)
        taken = (None if each is None else each[rows] for each in others)
        return Rows(_safe_indexing(self.X, rows), *taken)  # type: ignore[arg-type]

    def with_keys(self) -> Rows:
        """Return the same rows with keys and places."""
        return replace(self, keys=hash_rows(self.X), places=np.arange(self.n))

    def in_order(self, rows: Indices | None = None) -> Rows:
        """Return the rows that count, all or some, by content.

        Whole weights are taken as repetitions, unless there would be far more rows.
        """
        assert self.keys is not None, "keyed first"
        rows = np.arange(self.n) if rows is None else rows
        kept, weights = self, self.weights
        if weights is not None:
            rows = rows[weights[rows] > 0]
            is_whole = bool((weights == np.round(weights)).all())
            if is_whole and self.total <= MOST_REPEATED * self.n_used:
                rows = np.repeat(rows, weights[rows].astype(np.int64))
                kept = replace(self, weights=None)
        codes = np.unique(self.y, return_inverse=True)[1]
        order: list[NDArray[Any]] = [codes[rows], self.keys[rows]]
        if kept.weights is not None:
            order.insert(0, kept.weights[rows])
        return kept.take(rows[np.lexsort(order)])


# ---- splits ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Draw:
    """The rows that count, each with a place in a random order of its class.

    Places lie in 0..1, so that those below a fraction have that fraction of the mass of the class.
    """

    rows: Indices
    places: NDArray[np.float64]
    ranks: Indices  # from 0 within the class
    sizes: Indices  # how many rows the class has


def _draw(rows: Rows, seed: int) -> _Draw:
    assert rows.keys is not None, "keyed first"
    weights = np.ones(rows.n) if rows.weights is None else rows.weights
    labels = np.unique(rows.y, return_inverse=True)[1]
    used = np.flatnonzero(weights)
    used = used[np.lexsort([weights[used], labels[used], rows.keys[used]])]  # content alone
    label, mass = labels[used], weights[used]
    order = np.random.default_rng(seed).permutation(len(used))
    order = order[np.argsort(label[order], kind="stable")]
    sizes = np.bincount(label, minlength=labels.max() + 1)
    totals = np.bincount(label, mass, minlength=len(sizes))
    firsts, before = np.cumsum(sizes) - sizes, np.cumsum(totals) - totals
    places, ranks = np.empty(len(used)), np.empty(len(used), dtype=np.int64)
    middle = np.cumsum(mass[order]) - mass[order] / 2
    places[order] = (middle - before[label[order]]) / totals[label[order]]
    ranks[order] = np.arange(len(used)) - firsts[label[order]]
    return _Draw(used, places, ranks, sizes[label])


def hold_out(rows: Rows, fraction: float, seed: int) -> Split:
    """Return training and validation rows: about this fraction of each class, or of the groups.

    A class of one row is for training only.
    """
    if rows.groups is not None:
        return _hold_out_groups(rows, fraction, seed)
    draw = _draw(rows, seed)
    held_out = (draw.places < fraction) | (draw.ranks == 0)
    held_out &= draw.ranks < draw.sizes - 1  # the last is for training, and with it every class
    if not held_out.any():
        raise ValueError(
            f"n_samples={rows.n} is too few to hold some out for validation: a class needs two rows or "
            "more. Pass X_val= and y_val=."
        )
    return np.sort(draw.rows[~held_out]), np.sort(draw.rows[held_out])


def _hold_out_groups(rows: Rows, fraction: float, seed: int) -> Split:
    """Hold out groups, in random order, as long as they bring every class closer to the fraction."""
    names, group = np.unique(np.asarray(rows.groups), return_inverse=True)
    label = np.unique(rows.y, return_inverse=True)[1]
    weights = np.ones(rows.n) if rows.weights is None else rows.weights
    mass = np.zeros((len(names), label.max() + 1))
    np.add.at(mass, (group.reshape(-1), label), weights)
    whole, held = mass.sum(axis=0), np.zeros(mass.shape[1])
    chosen = np.zeros(len(names), dtype=bool)
    allowed = [g for g in range(len(names)) if (mass[g] < whole).all()]  # the rest has every class
    order = np.random.default_rng(seed).permutation(allowed).astype(np.int64)

    def distance(part: NDArray[np.float64]) -> float:
        return float(((part / whole - fraction) ** 2).sum())

    for g in order:
        if distance(held + mass[g]) < distance(held) and (held + mass[g] < whole).all():
            chosen[g], held = True, held + mass[g]
    if not chosen.any() and len(order):
        chosen[min(order, key=lambda g: distance(mass[g]))] = True
    if not chosen.any():
        raise ValueError(
            f"groups holds {len(names)} groups, of which none can be held out: training would lose a class. "
            "Pass X_val= and y_val=, or finer groups."
        )
    used, side = weights > 0, chosen[group.reshape(-1)]
    return np.flatnonzero(used & ~side), np.flatnonzero(used & side)


def split_folds(rows: Rows, n_folds: Any, seed: int) -> list[Split]:
    """Return training and validation rows of each fold: stratified, groups together.

    A splitter of the user's gets the table as it is.
    """
    if hasattr(n_folds, "split"):
        everything = np.arange(rows.n)
        splits = n_folds.split(rows.X, rows.y, rows.groups)  # of indices, lists or masks
        return [(everything[np.asarray(a)], everything[np.asarray(b)]) for a, b in splits]
    if rows.groups is not None:
        from sklearn.model_selection import StratifiedGroupKFold

        splitter = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed)
        with warnings.catch_warnings():  # classes with fewer rows than folds are seen to below
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            return list(splitter.split(np.zeros(rows.n), rows.y, rows.groups))
    draw = _draw(rows, seed)
    fold = (draw.places * n_folds).astype(np.int64)
    empty = np.setdiff1d(np.arange(n_folds), fold)
    if empty.size:
        raise ValueError(
            f"n_folds={n_folds} is more than there are rows in any class, with n_samples={rows.n}: use "
            "fewer folds"
        )
    held_out = [fold == number for number in range(n_folds)]
    return [(np.sort(draw.rows[~part]), np.sort(draw.rows[part])) for part in held_out]


@dataclass(frozen=True, slots=True)
class Parts(Sequence[tuple[Rows, Rows]]):
    """Training and validation rows of each fold, taken from the table when they are asked for.

    Each row is held out in one of the first ``n_first``; those that come after hold rows out again. A fold's
    validation rows exclude classes that its model has not seen because they have too few rows.
    """

    rows: Rows
    splits: list[Split]
    n_first: int

    @classmethod
    def of(cls, rows: Rows, splits: list[Split]) -> Parts:
        """Return parts that each have something to learn and something to look at."""
        n_first = len(splits)
        seen = np.zeros(1 + max(int(val.max(initial=0)) for _, val in splits), dtype=bool)
        for number, (_, val) in enumerate(splits):
            if seen[val].any():  # the others hold rows out again, if they hold out no new ones
                if all(seen[later].all() for _, later in splits[number:]):
                    n_first = number
                break
            seen[val] = True
        kept = []
        for number, (train, val) in enumerate(splits):
            learned = rows.classes(train)
            kept.append((train, val[np.isin(rows.y[val], learned)]))
            seen_by = rows.classes(kept[-1][1])
            if not (len(seen_by) and len(learned) > 1):
                what = "a single class to train on" if len(seen_by) else "no validation row"
                raise ValueError(
                    f"part {number + 1} of {len(splits)} has {what}: use fewer folds, other groups or more "
                    "rows"
                )
        return cls(rows, kept, n_first)

    def __len__(self) -> int:
        return len(self.splits)

    def first(self, n: int) -> Parts:
        """Return the first n folds."""
        return replace(self, splits=self.splits[:n], n_first=min(self.n_first, n))

    def __getitem__(self, number: Any) -> Any:
        return tuple(self.rows.in_order(each) for each in self.splits[number])

    def know(self, n_classes: int) -> NDArray[np.bool_]:
        """Tell which of the classes 0..n_classes-1 every fold's model has seen."""
        learned = (self.rows.classes(train) for train, _ in self.splits)
        knows = [np.isin(np.arange(n_classes), each) for each in learned]
        return np.asarray(np.all(knows, axis=0))


def parts(rows: Rows, n_folds: Any, fraction: float, seed: int, n_more: int = 0) -> Parts:
    """Return the folds of a table, or the only split if ``n_folds`` is ``None``.

    "auto" takes five folds, or as many as there can be, and then ``n_more`` folds of another random cut.
    """
    if n_folds is not None and not isinstance(n_folds, str):
        return Parts.of(rows, split_folds(rows, n_folds, seed))
    most = 1
    if n_folds is not None and rows.groups is not None:
        most = len(np.unique(rows.groups))
    elif n_folds is not None:
        most = int(_draw(rows, 0).sizes.max())
    for n in range(min(AUTO_FOLDS, most), 1, -1):
        cuts: list[list[Split]] = []
        with suppress(ValueError):  # a fold without rows, or a model with nothing to learn
            for shift in range(2 if n_more else 1):
                splits = split_folds(rows, n, seed + shift)
                Parts.of(rows, splits)
                cuts.append(splits)
        if cuts:
            first, *others = cuts
            held_out = {val.tobytes() for _, val in first}
            # Few groups may make the same folds again, and the same models.
            more = [part for each in others for part in each if part[1].tobytes() not in held_out]
            return Parts.of(rows, first + more[:n_more])
    return Parts.of(rows, [hold_out(rows, fraction, seed)])


# ---- tables ------------------------------------------------------------------------------------------------


def concat_rows(first: Rows, second: Rows) -> Rows:
    """Return the rows of both."""
    weights = None
    if first.weights is not None or second.weights is not None:
        parts = [np.ones(r.n) if r.weights is None else r.weights for r in (first, second)]
        weights = np.concatenate(parts)
    return Rows(_stack_tables([first.X, second.X]), np.concatenate([first.y, second.y]), weights)


def _stack_tables(parts: list[Any]) -> Any:
    """Return tables of one kind, one below the other."""
    for name in ("pandas", "polars"):
        package = sys.modules.get(name)
        if package is not None and isinstance(parts[0], package.DataFrame):
            return package.concat(_with_same_categories(parts) if name == "pandas" else parts)
    if hasattr(parts[0], "tocsr"):
        from scipy.sparse import vstack

        return vstack(parts, format="csr")
    return np.concatenate([np.asarray(part) for part in parts])


def _with_same_categories(parts: list[Any]) -> list[Any]:
    """Return pandas tables whose categorical columns have all categories of both."""
    first, second = (part.copy() for part in parts)
    for name in first.columns.intersection(second.columns):
        if first[name].dtype == "category" and second[name].dtype == "category":
            known = first[name].cat.categories
            more = second[name].cat.categories.difference(known, sort=False)
            for part in (first, second):
                part[name] = part[name].cat.set_categories([*known, *more])
    return [first, second]
