"""Columns of new rows that are unlike those of the training rows: empty, constant, or with other values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln

from refinecal._core.format import list_names
from refinecal.tabular.columns import Column, Profile
from refinecal.tabular.schema import REST, Schema

if TYPE_CHECKING:
    import pandas as pd

# The rule. Count the new rows that do what few training rows did: lack the value, have one outside the range
# of 98% of the training values, have a category never seen, or have the same value as all others. Report the
# column if at least half of the new rows do so (all, for the first and the last), and if rows from the same
# source would do so less than once in 100,000 times. That chance is exact for any distribution, so skewed and
# heavy-tailed columns raise no alarm: of n rows from the same source, the number beyond the k-th largest of N
# training values is beta-binomial. Few rows, new or old, prove little by the same law.
MOST = 0.5  # of the new rows
CHANCE = 1e-5
FEW = 20  # rows that may well be variants of one, and so are never called constant
ENOUGH = 1000  # rows tell as much as more
MOST_SHOWN = 3  # unseen values of a column


class NewRows:
    """Counts what the columns of new rows hold, chunk by chunk, and says which are unlike training."""

    def __init__(self, schema: Schema) -> None:
        self.n_rows = 0
        self._columns = {c.name: _NewColumn(c, schema.n_rows) for c in schema.features}

    def add(self, X: pd.DataFrame, unseen: Mapping[str, Mapping[str, int]]) -> None:
        """Count more rows, as ``Schema.encode`` and ``Schema.unseen`` return them."""
        self.n_rows += len(X)
        for name, column in self._columns.items():
            column.add(X[name], unseen.get(name, {}))

    @property
    def unseen(self) -> dict[str, Counter[str]]:
        """Categories that training rows did not have, and how often, by column."""
        return {name: each.unseen for name, each in self._columns.items() if each.unseen}

    def describe_drift(self) -> dict[str, str]:
        """Return what to say of each column that is unlike training."""
        found = {name: each.finding(self.n_rows) for name, each in self._columns.items()}
        return {name: text for name, text in found.items() if text}


class _NewColumn:
    """What one column of the new rows holds."""

    def __init__(self, column: Column, n_training: int) -> None:
        self.column, self.profile, self.n_training = column, column.profile, n_training
        self.unseen = Counter[str]()
        self.n_known = 0  # numbers, or categories that were seen
        self.n_others = self.n_outside = 0  # numbers that are not the mode, and those out of bounds
        self.least, self.most = np.inf, -np.inf
        self.is_whole = True

    def add(self, values: pd.Series, unseen: Mapping[str, int]) -> None:
        """Count more values."""
        self.unseen.update(unseen)
        is_category = self.column.kind == "category"
        numbers = (values.cat.codes if is_category else values).to_numpy(np.float64)
        numbers = numbers[numbers >= 0] if is_category else numbers[~np.isnan(numbers)]
        if not len(numbers):
            return
        self.n_known += len(numbers)
        self.least = min(self.least, float(numbers.min()))
        self.most = max(self.most, float(numbers.max()))
        self.is_whole = self.is_whole and bool((numbers % 1 == 0).all())
        if self.profile is None or not self.profile.bounds:
            return
        low, high = self.profile.bounds
        # New dates lie beyond the old ones as a rule; by more than the span of the old ones is too far.
        margin = high - low if self.column.form == "date" else 0.0
        others = numbers if self.profile.mode is None else numbers[numbers != self.profile.mode]
        self.n_others += len(others)
        self.n_outside += int(((others < low - margin) | (others > high + margin)).sum())

    @property
    def n_filled(self) -> int:
        """How many training rows have a value."""
        return self.n_training - self.column.n_missing

    def finding(self, n_rows: int) -> str:
        """Say how the column is unlike training; nothing if it is not."""
        empty = self._empty(n_rows)
        if empty or self.profile is None:  # in a run folder of an earlier version
            return empty
        return self._new_values(self.profile) or self._constant(self.profile, n_rows)

    def _empty(self, n_rows: int) -> str:
        n_lost = 0 if self.profile is None or self.column.is_complete else self.profile.n_rare
        n_empty = n_rows - self.n_known - self.unseen.total()
        if not is_odd(n_empty, n_rows, self.column.n_missing + n_lost, self.n_training):
            return ""
        filled = _share(self.n_filled, self.n_training, "training rows")
        rows = "every row" if n_empty == n_rows else _share(n_empty, n_rows, "rows")
        return f"{self.column.name!r} is empty in {rows}, but {filled} have a value"

    def _new_values(self, profile: Profile) -> str:
        name, n_unseen = self.column.name, self.unseen.total()
        n_here = self.n_known + n_unseen
        if is_odd(n_unseen, n_here, profile.n_rare, self.n_filled):
            return (
                f"{_share(n_unseen, n_here, 'values')} of {name!r} were never seen in training "
                f"({examples(self.unseen)}): they count as missing"
            )
        n_usual = self.n_filled - (0 if profile.mode is None else profile.n_mode)
        if not is_odd(self.n_outside, self.n_others, profile.n_rare, n_usual):
            return ""
        besides = "" if profile.mode is None else f" other than {self._format(profile.mode)}"
        far = "far " if self.column.form == "date" else ""
        low, high = map(self._format, profile.bounds)
        span = profile.bounds[1] - profile.bounds[0]
        is_near = self.least >= profile.bounds[0] - span and self.most <= profile.bounds[1] + span
        meaning = "has its unit or meaning changed?"
        if is_near and self.is_whole:  # such as the next year
            meaning = "predictions extrapolate there"
        usual = _share(n_usual - profile.n_rare, n_usual, "training values")
        return (
            f"{_share(self.n_outside, self.n_others, 'values')} of {name!r}{besides} lie {far}outside {low} "
            f"to {high}, the range of {usual}: {meaning}"
        )

    def _constant(self, profile: Profile, n_rows: int) -> str:
        n = self.n_known
        if n < n_rows and self.column.kind == "category" and not self.column.is_complete:
            return ""  # the others may have values that were not kept
        if self.unseen or self.least < self.most or n < FEW or self.column.form == "date":
            return ""  # a date may well be that of today in every row
        if not is_odd(n - 1, n - 1, profile.n_mode, self.n_filled):
            return ""
        rows = "every row" if n == n_rows else f"all {n} rows that have a value"
        return (
            f"{self.column.name!r} is {self._format(self.least)} in {rows}, but varies in training"
        )

    def _format(self, number: float) -> str:
        """Return a value of the column for people."""
        if self.column.kind == "category":
            return repr(self.column.categories[int(number)])
        return _date(number) if self.column.form == "date" else f"{number:.6g}"


def is_odd(count: int, n: int, seen: int, n_training: int) -> bool:
    """Tell whether most of n new rows do what some of the training rows did, beyond chance."""
    if n == 0 or count < MOST * n:
        return False
    rows = min(n, ENOUGH)
    a, b = seen + 2, max(n_training - seen - 1, 1)  # both ends of the range were chosen by looking
    j = np.arange(count * rows // n, rows + 1)
    ways: Any = gammaln(rows + 1) - gammaln(j + 1) - gammaln(rows - j + 1)
    return bool(np.exp(ways + betaln(a + j, b + rows - j) - betaln(a, b)).sum() < CHANCE)


def examples(unseen: Counter[str]) -> str:
    """Return the most frequent of some unseen values, and how many more there are.

    >>> examples(Counter({REST: 9, "red": 2, "blue": 1}))
    "'red', 'blue' and others"
    """
    named = [value for value, _ in unseen.most_common() if value != REST]
    if REST in unseen:
        return f"{', '.join(map(repr, named[:MOST_SHOWN]))} and others"
    return list_names(named, MOST_SHOWN)


def _share(count: int, n: int, what: str) -> str:
    """Return "all values" or "97% of the values", rounded down."""
    return f"all {what}" if count == n else f"{100 * count // n}% of the {what}"


def _date(days: float) -> str:
    try:
        return str((datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=days)).date())
    except OverflowError:
        return f"day {days:.0f}"
