"""Rows of a user's table: split for validation, repeated as weights say, ordered by what they hold.

What is drawn at random is drawn among distinct rows, in an order that depends on their content alone. So
neither the order of the table nor a row of weight 2 written as two rows changes a model, and a few copies
of a row are never on both sides of a split.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEW_ROWS = 10_000  # below, "auto" takes folds
AUTO_FOLDS = 5
MOST_COPIES = (
    10  # equal rows that are taken for copies, not for observations of the same few values
)
MOST_REPEATED = 4  # whole weights are repeated literally up to this many times the rows

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rows:
    """Features, labels, weights and groups of the same rows; ``keys`` tell distinct features apart."""

    X: Any
    y: NDArray[Any]
    weights: NDArray[np.float64] | None = None
    groups: NDArray[Any] | None = None
    keys: NDArray[np.uint64] | None = None

    @property
    def n(self) -> int:
        return len(self.y)

    @property
    def total(self) -> float:
        """The number of rows, each counted as often as its weight says."""
        return float(self.n if self.weights is None else self.weights.sum())

    def take(self, rows: Indices) -> Rows:
        """Return the given rows, in that order."""
        from sklearn.utils import _safe_indexing

        return Rows(
            _safe_indexing(self.X, rows),
            self.y[rows],
            None if self.weights is None else self.weights[rows],
            None if self.groups is None else self.groups[rows],
            None if self.keys is None else self.keys[rows],
        )

    def keyed(self) -> Rows:
        """Return the same rows with keys."""
        return replace(self, keys=content(self.X))

    def in_order(self, repeat: bool) -> Rows:
        """Return the rows that count, ordered by content; weights as repetitions if ``repeat``."""
        assert self.keys is not None, "keyed first"
        rows = np.arange(self.n)
        kept = self
        if self.weights is not None:
            rows = np.flatnonzero(self.weights)
            if repeat:
                rows = np.repeat(np.arange(self.n), self.weights.astype(np.int64))
                kept = replace(self, weights=None)
        order: list[NDArray[Any]] = [_codes(self.y)[rows], self.keys[rows]]
        if kept.weights is not None:
            order.insert(0, kept.weights[rows])
        return kept.take(rows[np.lexsort(order)])

    def repeats(self) -> bool:
        """Tell whether the weights are whole numbers that can be taken as repetitions."""
        if self.weights is None:
            return False
        whole = (self.weights == np.round(self.weights)).all()
        return bool(whole and self.total <= MOST_REPEATED * np.count_nonzero(self.weights))


def _codes(y: NDArray[Any]) -> Indices:
    return np.asarray(np.unique(y, return_inverse=True)[1].reshape(-1), dtype=np.int64)


# ---- splits ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Units:
    """What is drawn: equal rows, whatever their labels. Each unit has a place in a random order of its class.

    Rows that are there more than a few times are no copies but observations of the same few values: each is
    a unit of its own. Else all that is known of some values would be on one side of a split. The class of
    a unit is the rarest of its labels. Places lie in 0..1, so that those below a fraction have that fraction
    of the mass of the class.
    """

    of_row: Indices  # the unit of each row; -1 for rows of weight 0
    places: NDArray[np.float64]
    ranks: Indices  # from 0 within the class
    sizes: Indices  # how many units the class has

    @classmethod
    def drawn(cls, rows: Rows, seed: int) -> _Units:
        weights = np.ones(rows.n) if rows.weights is None else rows.weights
        of_row, label, mass = _together(rows, weights)
        order = np.random.default_rng(seed).permutation(len(mass))
        order = order[np.argsort(label[order], kind="stable")]
        sizes = np.bincount(label)
        firsts = np.cumsum(sizes) - sizes
        totals = np.bincount(label, mass)
        before = np.cumsum(totals) - totals
        places, ranks = np.empty(len(mass)), np.empty(len(mass), dtype=np.int64)
        middle = np.cumsum(mass[order]) - mass[order] / 2
        places[order] = (middle - before[label[order]]) / totals[label[order]]
        ranks[order] = np.arange(len(mass)) - firsts[label[order]]
        return cls(of_row, places, ranks, sizes[label])

    def sides(self, held_out: NDArray[np.bool_]) -> tuple[Indices, Indices]:
        """Return the rows of the units that are not held out, and of those that are."""
        used = self.of_row >= 0
        chosen = held_out[self.of_row]
        return np.flatnonzero(used & ~chosen), np.flatnonzero(used & chosen)


def _together(
    rows: Rows, weights: NDArray[np.float64]
) -> tuple[Indices, Indices, NDArray[np.float64]]:
    """Return the unit of each row, and the class and the mass of each unit."""
    assert rows.keys is not None, "keyed first"
    used = np.flatnonzero(weights)
    keys, labels = rows.keys[used], _codes(rows.y)[used]
    value = np.unique(keys, return_inverse=True)[1]
    # A weight of 2 is two rows.
    counts = np.bincount(value, weights[used] if rows.repeats() else None)
    crowded = counts[value] > MOST_COPIES
    order = np.lexsort([weights[used], labels, keys])  # of content alone
    first = np.r_[True, keys[order][1:] != keys[order][:-1]] | crowded[order]
    of_row: Indices = np.full(rows.n, -1, dtype=np.int64)
    of_row[used[order]] = np.cumsum(first) - 1
    by_rarity = np.argsort(np.bincount(labels, weights[used]), kind="stable")
    rarity = np.argsort(by_rarity)
    label = by_rarity[np.minimum.reduceat(rarity[labels[order]], np.flatnonzero(first))]
    mass = np.bincount(of_row[used], weights[used]).astype(np.float64)
    return of_row, label.astype(np.int64), mass


def hold_out(rows: Rows, fraction: float, seed: int) -> tuple[Indices, Indices]:
    """Return training and validation rows: about this fraction of each class, or of the groups.

    Equal rows stay together, unless there are many. A class of one distinct row is for training only.
    """
    if rows.groups is not None:
        return _hold_out_groups(rows, fraction, seed)
    units = _Units.drawn(rows, seed)
    held_out = (units.places < fraction) | (units.ranks == 0)
    held_out &= units.ranks < units.sizes - 1  # the last is for training, and with it every class
    if not held_out.any():
        raise ValueError(
            f"n_samples={rows.n} is too few to hold some out for validation: a class needs two different "
            "rows or more. Pass X_val= and y_val=."
        )
    train, val = units.sides(held_out)
    lost = np.setdiff1d(rows.y[val], rows.y[train])  # among equal rows of a rarer class
    if lost.size:
        held_out[units.of_row[val[np.isin(rows.y[val], lost)]]] = False
    return units.sides(held_out)


def _hold_out_groups(rows: Rows, fraction: float, seed: int) -> tuple[Indices, Indices]:
    """Hold out groups, in random order, as long as they bring every class closer to the fraction."""
    names, group = np.unique(np.asarray(rows.groups), return_inverse=True)
    label = _codes(rows.y)
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


def most_folds(rows: Rows, wanted: int) -> int | None:
    """Return how many folds there can be, at most ``wanted``; ``None`` if not even two."""
    grouped = rows.groups is not None
    most = (
        len(np.unique(np.asarray(rows.groups)))
        if grouped
        else int(_Units.drawn(rows, 0).sizes.max())
    )
    return min(wanted, most) if most >= 2 else None


def split_folds(rows: Rows, n_folds: Any, seed: int) -> list[tuple[Indices, Indices]]:
    """Return training and validation rows of each fold: stratified, equal rows and groups together.

    A splitter of the user's gets the table as it is.
    """
    if hasattr(n_folds, "split"):
        return list(n_folds.split(rows.X, rows.y, rows.groups))
    if rows.groups is not None:
        from sklearn.model_selection import StratifiedGroupKFold

        splitter = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed)
        with warnings.catch_warnings():  # classes with fewer rows than folds are seen to below
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            return list(splitter.split(np.zeros(rows.n), rows.y, rows.groups))
    units = _Units.drawn(rows, seed)
    fold = (units.places * n_folds).astype(np.int64)
    empty = np.setdiff1d(np.arange(n_folds), fold)
    if empty.size:
        raise ValueError(
            f"n_folds={n_folds} is more than there are different rows in any class, with "
            f"n_samples={rows.n}: use fewer folds"
        )
    return [units.sides(fold == number) for number in range(n_folds)]


def parts(rows: Rows, n_folds: Any, fraction: float, seed: int) -> list[tuple[Rows, Rows]]:
    """Return training and validation rows of each fold, or of the only split if ``n_folds`` is ``None``.

    "auto" takes five folds if there are few rows. What a fold's model cannot know, because a class has too
    few rows, is not among its validation rows.
    """
    if not isinstance(n_folds, str):
        return _checked(_parts(rows, n_folds, fraction, seed))
    most = None if rows.n >= FEW_ROWS else most_folds(rows, AUTO_FOLDS)
    for fewer in range(most or 1, 1, -1):
        found = _parts(rows, fewer, fraction, seed)
        if all(map(_can_learn, found)):
            return found
    return _checked(_parts(rows, None, fraction, seed))


def _parts(rows: Rows, n_folds: Any, fraction: float, seed: int) -> list[tuple[Rows, Rows]]:
    splits = (
        [hold_out(rows, fraction, seed)] if n_folds is None else split_folds(rows, n_folds, seed)
    )
    repeat = rows.repeats()
    found = []
    for train_rows, val_rows in splits:
        ours = rows.take(train_rows).in_order(repeat)
        theirs = rows.take(val_rows).in_order(repeat)
        seen = np.isin(theirs.y, ours.y)
        found.append((ours, theirs if seen.all() else theirs.take(np.flatnonzero(seen))))
    return found


def _can_learn(pair: tuple[Rows, Rows]) -> bool:
    """Tell whether a part has two classes to learn, and rows to look at."""
    train, val = pair
    return len(np.unique(train.y)) > 1 and val.n > 0


def _checked(pairs: list[tuple[Rows, Rows]]) -> list[tuple[Rows, Rows]]:
    for number, pair in enumerate(pairs, start=1):
        if not _can_learn(pair):
            what = "no validation row" if pair[1].n == 0 else "a single class to train on"
            raise ValueError(
                f"part {number} of {len(pairs)} has {what}: use fewer folds, other groups or more rows"
            )
    return pairs


# ---- tables ------------------------------------------------------------------------------------------------


def joined(first: Rows, second: Rows) -> Rows:
    """Return the rows of both."""
    weights = None
    if first.weights is not None or second.weights is not None:
        parts = [np.ones(r.n) if r.weights is None else r.weights for r in (first, second)]
        weights = np.concatenate(parts)
    return Rows(_stacked([first.X, second.X]), np.concatenate([first.y, second.y]), weights)


def _stacked(parts: list[Any]) -> Any:
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
            first[name] = first[name].cat.set_categories([*known, *more])
            second[name] = second[name].cat.set_categories([*known, *more])
    return [first, second]


def content(X: Any) -> NDArray[np.uint64]:
    """Return a number for each row that depends on nothing but what the row holds, whatever holds it."""
    if hasattr(X, "tocsr"):
        return _of_sparse(X.tocsr())
    if hasattr(X, "columns"):
        table = X.iloc if hasattr(X, "iloc") else X  # by position: names may repeat
        columns = [_of_column(table[:, j], j) for j in range(X.shape[1])]
        return _scrambled(np.sum(columns, axis=0, dtype=np.uint64))
    try:
        values = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        return np.array([_of_object(row) for row in X], dtype=np.uint64)
    values = values.reshape(len(values), -1)
    total = np.zeros(len(values), dtype=np.uint64)
    for j in range(values.shape[1]):
        total += _mixed(values[:, j], j)
    return _scrambled(total)


def _of_column(column: Any, j: int) -> NDArray[np.uint64]:
    """Return a number for each entry of a column of a DataFrame."""
    values = column.to_numpy()
    if values.dtype.kind in "biuf":
        return _mixed(values.astype(np.float64), j)
    distinct, place = np.unique(values.astype(str), return_inverse=True)
    numbers = np.array([_of_object(value) for value in distinct.tolist()], dtype=np.uint64)
    return _scrambled(numbers[place] ^ _scrambled(np.asarray(j, dtype=np.uint64)))


def _of_sparse(X: Any) -> NDArray[np.uint64]:
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    kept = X.data != 0
    total = np.zeros(X.shape[0], dtype=np.uint64)
    parts = _mixed(X.data[kept].astype(np.float64), X.indices[kept])
    np.add.at(total, row[kept], parts)
    return _scrambled(total)


def _of_object(row: Any) -> int:
    items = row.tolist() if isinstance(row, np.ndarray) else row
    return int.from_bytes(blake2b(repr(items).encode(), digest_size=8).digest(), "little")


def _mixed(values: NDArray[np.float64], column: Any) -> NDArray[np.uint64]:
    """Return the bits of values, scrambled together with the number of their column."""
    values = np.where(np.isnan(values), np.nan, values + 0.0)  # one NaN, and -0 the same as 0
    bits = values.view(np.uint64)
    columns = np.asarray(column, dtype=np.uint64) + np.uint64(1)
    return _scrambled(bits ^ _scrambled(columns))


def _scrambled(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64 bits: the finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    bits = np.atleast_1d(bits) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits ^ (bits >> np.uint64(31)))
