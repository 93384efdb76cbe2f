"""Columns that give the target away: each predicts it nearly perfectly, all by itself."""

from __future__ import annotations

from math import floor
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal.training.rows import hash_rows

if TYPE_CHECKING:
    from refinecal.training.rows import Rows

# Wrong labels that a column which holds the answer may suggest, per row that is not of the largest class, one
# more counted than there are: so with fewer than 50 such rows nothing is suspected, but a column with one
# value for each label, from 10 rows on. The best honest column of 49 real tables leaves 6% wrong (occupancy
# of a room, by its light), that of iris 7%, of breast cancer 30%.
MOST_ERRORS = 0.02
FEW = 10
MOST_ROWS = 20_000  # are looked at


class Leak(NamedTuple):
    """A column that gives the target away, and the part of the rows whose label it predicts."""

    column: str
    accuracy: float

    def message(self, target: str) -> str:
        """Return what to say of it on the command line."""
        percent = floor(self.accuracy * 1000) / 10
        share = "every row" if self.accuracy == 1 else f"{percent}% of the rows"
        return (
            f"{self.column!r} alone predicts {target!r} for {share}: does it hold the answer? If it is not "
            f"known at prediction time, pass --drop {quote(self.column)}"
        )


def find_leaks(rows: Rows) -> tuple[Leak, ...]:
    """Return the columns that predict the label of nearly every row, the most accurate first.

    Each half of the rows is predicted from the other: by the most frequent label of the same category, or of
    the nearest number. So a value that occurs once, as that of an id, predicts nothing. Groups and equal rows
    stay in one half, and the order of the rows does not matter.
    """
    assert rows.keys is not None, "keyed first"
    some = np.argsort(rows.keys, kind="stable")[:MOST_ROWS]
    X, labels = rows.X.iloc[some], rows.y[some]
    keys = rows.keys if rows.groups is None else hash_rows(rows.groups.reshape(-1, 1))
    half = keys[some] % 2 == 1
    n_others = len(labels) - np.bincount(labels).max()
    if n_others < FEW or half.all() or not half.any():
        return ()
    found = []
    for name in X.columns:
        is_category = hasattr(X[name], "cat")
        values = (X[name].cat.codes if is_category else X[name]).to_numpy(np.float64)
        wrong = 0
        for part in (half, ~half):
            guess = _guess(values[~part], labels[~part], values[part], is_category)
            wrong += int((guess != labels[part]).sum())
        is_copy = not wrong and len(np.unique(values)) == len(np.unique(labels))
        if wrong <= MOST_ERRORS * n_others - 1 or is_copy:
            found.append(Leak(str(name), 1 - wrong / len(labels)))
    return tuple(sorted(found, key=lambda leak: -leak.accuracy))


def _guess(
    known: NDArray[np.float64],
    labels: NDArray[np.int64],
    new: NDArray[np.float64],
    is_category: bool,
) -> NDArray[np.int64]:
    """Return the most frequent label of the same or nearest known value; NaN is nearest to NaN."""
    values, place = np.unique(known, return_inverse=True)
    k = labels.max() + 1
    pairs, counts = np.unique(place.reshape(-1) * k + labels, return_counts=True)
    pairs = pairs[np.lexsort([counts, pairs // k])]
    last = np.flatnonzero(np.diff(pairs // k, append=len(values)))
    usual = pairs[last] % k  # the most frequent label of each value
    above = np.searchsorted(values, new).clip(max=len(values) - 1)
    if is_category:
        return np.where(values[above] == new, usual[above], np.bincount(labels).argmax())
    below = (above - 1).clip(min=0)
    is_nearer = (values[above] - new < new - values[below]) | np.isnan(new)
    return np.asarray(usual[np.where(is_nearer, above, below)])
