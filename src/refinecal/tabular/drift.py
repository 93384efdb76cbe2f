"""Columns of new rows that are unlike those of the training rows: empty, constant, or with other values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

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
        found = {name: each.describe_drift(self.n_rows) for name, each in self._columns.items()}
        return {name: text for name, text in found.items() if text}


class _NewColumn:
    """What one column of the new rows holds."""

    def __init__(self, column: Column, n_training: int) -> None:
        self.column, self.n_training = column, n_training
        self.profile = column.profile or Profile(n_training, n_training)  # an old run has none
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
        if self.profile.bounds:
            low, high = self.profile.bounds
            # New dates lie beyond the old ones as a rule; by more than the span of the old ones is too far.
            margin = high - low if self.column.form == "date" else 0.0
            others = numbers if self.profile.mode is None else numbers[numbers != self.profile.mode]
            self.n_others += len(others)
            self.n_outside += int(((others < low - margin) | (others > high + margin)).sum())

    def describe_drift(self, n_rows: int) -> str:
        """Say how the column is unlike training; "" if it is not."""
        column, profile, n_unseen = self.column, self.profile, self.unseen.total()
        n_filled = self.n_training - column.n_missing
        n_here = self.n_known + n_unseen
        n_lost = 0 if column.profile is None or column.is_complete else profile.n_rare
        if is_odd(n_rows - n_here, n_rows, column.n_missing + n_lost, self.n_training):
            filled = _share(n_filled, self.n_training, "training rows")
            rows = "every row" if not n_here else _share(n_rows - n_here, n_rows, "rows")
            return f"{column.name!r} is empty in {rows}, but {filled} have a value"
        if is_odd(n_unseen, n_here, profile.n_rare, n_filled):
            return (
                f"{_share(n_unseen, n_here, 'values')} of {column.name!r} were never seen in training "
                f"({examples(self.unseen)}): they count as missing"
            )
        n_usual = n_filled - (0 if profile.mode is None else profile.n_mode)
        if is_odd(self.n_outside, self.n_others, profile.n_rare, n_usual):
            return self._describe_range(n_usual)
        if is_odd(self.n_known - 1, self.n_known - 1, profile.n_mode, n_filled):
            return self._describe_constant(n_rows)
        return ""

    def _describe_range(self, n_usual: int) -> str:
        low, high = self.profile.bounds
        mode, n_rare = self.profile.mode, self.profile.n_rare
        besides = "" if mode is None else f" other than {self._format(mode)}"
        far = "far " if self.column.form == "date" else ""
        meaning = "has its unit or meaning changed?"
        is_near = self.least >= 2 * low - high and self.most <= 2 * high - low
        if is_near and self.is_whole:  # such as the next year
            meaning = "predictions extrapolate there"
        return (
            f"{_share(self.n_outside, self.n_others, 'values')} of {self.column.name!r}{besides} lie "
            f"{far}outside {self._format(low)} to {self._format(high)}, the range of "
            f"{_share(n_usual - n_rare, n_usual, 'training values')}: {meaning}"
        )

    def _describe_constant(self, n_rows: int) -> str:
        n, column = self.n_known, self.column
        if n < n_rows and column.kind == "category" and not column.is_complete:
            return ""  # the others may have values that were not kept
        if self.unseen or self.least < self.most or n < FEW or column.form == "date":
            return ""  # a date may well be that of today in every row
        rows = "every row" if n == n_rows else f"all {n} rows that have a value"
        return f"{column.name!r} is {self._format(self.least)} in {rows}, but varies in training"

    def _format(self, number: float) -> str:
        """Return a value of the column for people."""
        if self.column.kind == "category":
            return repr(self.column.categories[int(number)])
        if self.column.form != "date":
            return f"{number:.6g}"
        try:
            return str((datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=number)).date())
        except OverflowError:
            return f"day {number:.0f}"


def is_odd(count: int, n: int, seen: int, n_training: int) -> bool:
    """Tell whether most of n new rows do what some of the training rows did, beyond chance."""
    if n <= 0 or count < MOST * n:
        return False
    from scipy.special import betaln, gammaln  # rarely needed, and slow to import

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
