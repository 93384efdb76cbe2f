"""Which columns of a table are what, and how they become arrays for models."""

from __future__ import annotations  # so that help() shows types by name

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra, warn
from refinecal._core.format import list_names
from refinecal.tabular.columns import Column, Profile, fail_number, infer_classes, infer_column
from refinecal.tabular.files import check_column, hint
from refinecal.tabular.values import (
    Decimals,
    Texts,
    days_of,
    decode,
    describe_variants,
    find_order,
    numbers_of,
    rows_where,
    texts_of,
)

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa
    import pyarrow.compute as pc

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Column", "Schema"]

VERSION = 2  # of what is stored
READABLE = (1, 2)
OLD = {"order": "ymd", "unit": "", "profile": None}  # of columns that older versions stored
MOST_UNSEEN = 100  # different values of a column that are counted one by one
REST = "…"  # stands for the others
MOST_SHOWN = 10  # classes in an error
MOST_MESSAGES = 5  # about columns, one each


@dataclass(frozen=True, slots=True)
class Schema:
    """What the columns of a table are: learned from training rows, applied to any others.

    The same data give the same arrays from CSV, Parquet and Feather, whole or in chunks. In all methods,
    ``table`` is an Arrow table, and ``first_row`` is the number of its first row, for errors. Rows are
    counted from 1.

    Examples
    --------
    >>> table = pa.table({"size": ["1", "2.5", "NA"], "color": ["red", None, "blue"], "y": [0, 1, 1]})
    >>> schema = Schema.infer(table, "y")
    >>> [(column.name, column.kind) for column in schema.features]
    [('size', 'number'), ('color', 'category')]
    >>> schema.encode(table)["color"].tolist()
    [1, nan, 0]
    """

    columns: tuple[Column, ...]  # all but the target, the weight and the group, in order
    target: str  # the column to predict
    classes: tuple[str, ...]  # by value if all are numbers, else as texts; 1 and 1.0 are the same
    weight: str | None  # the column of sample weights
    group: str | None  # the column of groups of rows that belong together
    n_rows: int  # of the training table, those without a label included
    class_counts: tuple[int, ...] = ()
    weight_decimal: str = ""  # the decimal mark of weights, as in Column

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that models see, in order."""
        return tuple(column for column in self.columns if column.kind != "unused")

    # ---- learning ----------------------------------------------------------------------------------------

    @classmethod
    def infer(
        cls,
        table: pa.Table,
        target: str,
        *,
        weight: str | None = None,
        group: str | None = None,
        drop: Sequence[str] = (),
        categorical: Sequence[str] = (),
        numeric: Sequence[str] = (),
    ) -> Self:
        """Learn what the columns of a table are.

        Numbers, and texts that all are numbers, are numbers; so are true and false (1 and 0), dates (days
        since 1970-01-01, as Arrow's types or as texts like 2024-12-31 23:59) and lengths of time
        (seconds). Other texts are categories, of which the 1000 most frequent are kept. Not used are
        columns that are always missing or always the same, lists, and those that only name the rows:
        texts of which more than nine in ten are different, and whole numbers, all different, called "id".

        Parameters
        ----------
        table : Arrow table
            The training rows.
        target : str
            The column to predict.
        weight, group : str, optional
            The columns of sample weights, and of groups of rows that belong together.
        drop, categorical, numeric : sequence of str
            Columns to leave out, and columns that are categories, or numbers, even if they look different.
        """
        roles, forced = check_given(
            table.column_names, target, weight, group, drop, categorical, numeric
        )
        texts = [each for each in map(decode, table.columns) if pa.types.is_string(each.type)]
        orders = [order for order, is_certain in map(find_order, texts) if is_certain]
        common = Counter(order for order in orders if order != "ymd").most_common(1)
        order = common[0][0] if common else None  # of dates that do not tell theirs
        decimals = Decimals.of_table(table)
        marks = {name: decimals.find(name, decimals.marks) for name in table.column_names}
        columns = tuple(
            infer_column(
                name, table[name], forced.get(name), marks[name], order, decimals.delimiter
            )
            for name in table.column_names
            if name not in roles
        )
        classes, counts = infer_classes(target, table[target])
        if all(column.kind == "unused" for column in columns):
            why = "; ".join(f"{column.name!r}: {column.note}" for column in columns[:5])
            raise ValueError(
                f"besides {target!r}, the table has no column to learn from"
                + f" ({why})" * bool(why)
            )
        decimal = "" if weight is None else marks[weight]
        schema = cls(columns, target, classes, weight, group, table.num_rows, counts, decimal)
        schema.weights(table)
        schema.groups(table)
        return schema

    # ---- applying ----------------------------------------------------------------------------------------

    def check_names(self, names: Sequence[str]) -> list[str]:
        """Return the columns that training rows did not have; raise if any is missing that models need."""
        known = {self.target, self.weight, self.group, *(column.name for column in self.columns)}
        extra = [name for name in names if name not in known]
        given = set(names)
        absent = [column.name for column in self.features if column.name not in given]
        if absent:
            raise ValueError(
                f"the table lacks the column{'s' * (len(absent) > 1)} {list_names(absent)}, which the model "
                f"needs.{hint(absent[0], names, extra)}"
            )
        return extra

    def encode(self, table: pa.Table, *, first_row: int = 1) -> pd.DataFrame:
        """Return what models see of a table: the features, in order.

        Returns
        -------
        DataFrame
            Numbers as float64, NaN where they are missing or, with a warning, infinite. Categories as
            categories 0, 1, ... of pandas, which are places in ``column.categories``; NaN for those that
            are missing or were not seen in training.
        """
        with needs_extra("cli", package="pandas"):
            import pandas as pd

        self.check_names(table.column_names)
        decimals = Decimals.of_table(table)
        numbers = [column.name for column in self.features if column.decimal]
        arrays: dict[str, Any] = {}
        invalid: list[tuple[int, Column]] = []
        for column in self.features:
            values = table[column.name]
            if column.kind == "category":
                dtype = pd.CategoricalDtype(np.arange(len(column.categories)))
                codes = texts_of(values, column.is_truth).places(column.categories)
                arrays[column.name] = pd.Categorical.from_codes(codes, dtype=dtype)
                continue
            if column.form == "date":
                found = days_of(values, column.order)
            else:
                found = numbers_of(values, decimals.find(column.name, numbers, column.decimal))
            arrays[column.name] = found.values
            other = next((unit for unit in found.units if unit != column.unit), None)
            if column.unit and other:
                raise ValueError(
                    f"column {column.name!r} has numbers in {other!r}, but those of the training rows were "
                    f"in {column.unit!r}: convert them"
                )
            if found.bad.size:
                invalid.append((int(found.bad[0]), column))
            if found.infinite:
                warn(f"column {column.name!r} holds infinite numbers, which count as missing")
        if invalid:  # the first of all, so that it is the same for any size of chunk
            row, column = min(invalid, key=lambda each: each[0])
            mark = decimals.find(column.name, numbers, column.decimal)
            fail_number(column, table[column.name], row, first_row, mark)
        return pd.DataFrame(arrays, copy=False)

    def unseen(self, table: pa.Table) -> dict[str, dict[str, int]]:
        """Return categories that training rows did not have, and how often they occur, by column.

        Columns with more categories than are kept are left out: of theirs it is not known. Of a column
        with more than 100 such values, the 100 most frequent are counted, and "…" counts all others.
        """
        self.check_names(table.column_names)
        columns = [c for c in self.features if c.kind == "category" and c.is_complete]
        found = {column.name: _count_unseen(column, table[column.name]) for column in columns}
        return {name: counts for name, counts in found.items() if counts}

    def has_label(self, table: pa.Table) -> NDArray[np.bool_]:
        """Return a mask of the rows whose target is not missing."""
        return self._target_texts(table).codes >= 0

    def _target_texts(self, table: pa.Table) -> Texts:
        check_column(self.target, table.column_names, "the target")
        return texts_of(table[self.target], set(self.classes) <= {"True", "False"})

    def labels(self, table: pa.Table, *, first_row: int = 1) -> NDArray[np.int64]:
        """Return the target, which must not be missing, as places in ``classes``."""
        texts = self._target_texts(table)
        labels = texts.places(self.classes)
        bad = np.flatnonzero(labels < 0)
        if not bad.size:
            return labels
        row, where = bad[0], f"target {self.target!r}, row {first_row + bad[0]}"
        if texts.codes[row] < 0:
            raise ValueError(f"{where} is missing: drop the rows without a label")
        found = texts.values[texts.codes[row]].as_py()
        variants = describe_variants([found, *self.classes])
        fix = f". {variants}: write labels alike." if variants.startswith(repr(found)) else ""
        raise ValueError(
            f"{where} is {found!r}, which training rows did not have: their classes are "
            f"{list_names(self.classes, MOST_SHOWN)}{fix}"
        )

    def weights(
        self, table: pa.Table, *, first_row: int = 1, optional: bool = False
    ) -> NDArray[np.float64] | None:
        """Return the sample weights; ``None`` if there is no such column.

        Rows without a label need none. If ``optional``, the column may be absent from this table.
        """
        if self.weight is None or (optional and self.weight not in table.column_names):
            return None
        check_column(self.weight, table.column_names, "weight")
        mark = Decimals.of_table(table).find(self.weight, learned=self.weight_decimal)
        values = numbers_of(table[self.weight], mark).values
        used = self._are_used(table)
        bad = np.flatnonzero(used & ~(values >= 0))
        if bad.size:
            value = table[self.weight][int(bad[0])].as_py()
            found = "missing" if value is None else repr(value)
            raise ValueError(
                f"weight {self.weight!r}, row {first_row + bad[0]} is {found}: a weight says how often the "
                "row counts, so it must be a finite number of at least 0"
            )
        if not values[used].any():
            raise ValueError(
                f"weight {self.weight!r} is 0 in every row: at least one row must count"
            )
        return values

    def groups(
        self, table: pa.Table, *, first_row: int = 1, optional: bool = False
    ) -> NDArray[np.int64] | None:
        """Return a number for each row's group, as for :meth:`weights`.

        Groups are numbered in the order of their texts, so that the order of the rows does not matter.
        """
        if self.group is None or (optional and self.group not in table.column_names):
            return None
        check_column(self.group, table.column_names, "group")
        texts = texts_of(table[self.group])
        bad = np.flatnonzero((texts.codes < 0) & self._are_used(table))
        if bad.size:
            raise ValueError(
                f"group {self.group!r}, row {first_row + bad[0]} is missing: every row must belong to a "
                "group. Give those without one a group each, or drop them."
            )
        return texts.places(sorted(texts.values.to_pylist()))

    def _are_used(self, table: pa.Table) -> NDArray[np.bool_]:
        """Return a mask of the rows that need a weight and a group: those with a label, if there are any."""
        if self.target not in table.column_names:
            return np.ones(table.num_rows, np.bool_)
        return self.has_label(table)

    # ---- showing and storing -----------------------------------------------------------------------------

    def table_of_kinds(self) -> list[dict[str, str | int]]:
        """Return one row for each column, for people: name, kind, missing, distinct, note."""
        roles = {"target": self.target, "weight": self.weight, "group": self.group}
        rows: list[tuple[Any, ...]] = [
            (name, role, "", "", "") for role, name in roles.items() if name is not None
        ]
        n_missing = self.n_rows - sum(self.class_counts)
        rare = [c for c, n in zip(self.classes, self.class_counts, strict=False) if n == 1]
        notes = [f"a single row: {list_names(rare, 3)}"] if rare else []
        variants = describe_variants(self.classes)
        notes += [f"{variants}: are they one class?"] if variants else []
        rows[0] = (self.target, "target", n_missing, len(self.classes), "; ".join(notes))
        for column in self.columns:
            is_date = column.form == "date" and column.kind == "number"
            kind = "date" if is_date else column.kind
            rows.append((column.name, kind, column.n_missing, column.n_distinct, column.note))
        names = ("name", "kind", "missing", "distinct", "note")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain texts, numbers and tuples, for JSON."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Return the schema that :meth:`to_dict` stored; raise if it is not one."""
        if not isinstance(state, Mapping) or "version" not in state:
            raise ValueError("this is not a schema: it must be what Schema.to_dict() returned")
        if state["version"] not in READABLE:
            raise ValueError(
                f"the schema has version {state['version']!r}, this refinecal reads {READABLE}: use the "
                "refinecal that wrote it"
            )
        try:
            columns = [_restore(Column, OLD | each) for each in state["columns"]]
            found: Self = _restore(cls, {**state, "columns": columns})
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"the stored schema is damaged: {type(error).__name__}: {error}. Fit again to write a new "
                "one."
            ) from error
        return found


def _restore(kind: Any, state: Mapping[str, Any]) -> Any:
    """Return a dataclass from its fields in JSON."""
    values = {each.name: state[each.name] for each in fields(kind)}
    values = {
        name: tuple(each) if isinstance(each, list) else each for name, each in values.items()
    }
    if values.get("profile") is not None:
        values["profile"] = _restore(Profile, values["profile"])
    return kind(**values)


def _count_unseen(column: Column, values: pa.ChunkedArray) -> dict[str, int]:
    """Return how often values occur that are not among the categories, the most frequent first."""
    texts = texts_of(values, column.is_truth)
    known = pc.is_in(texts.values, value_set=pa.array(column.categories, pa.string()))
    new = rows_where(pc.invert(known))
    counts = texts.counts()[new]
    order = np.argsort(-counts, kind="stable")  # the first to appear first
    kept = order[:MOST_UNSEEN]
    names = texts.values.take(pa.array(new[kept])).to_pylist()
    found = dict(zip(names, counts[kept].tolist(), strict=True))
    rest = int(counts[order[MOST_UNSEEN:]].sum())
    return found | {REST: found.get(REST, 0) + rest} if rest else found


# ---- columns that the user names ---------------------------------------------------------------------------


def check_given(
    columns: Sequence[str],
    target: str,
    weight: str | None = None,
    group: str | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    numeric: Sequence[str] = (),
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the roles of columns, of which no column has two, and the kinds that are given, by column."""
    roles: dict[str, str] = {}
    for role, name in (("target", target), ("weight", weight), ("group", group)):
        if name is None:
            continue
        check_column(name, columns, role)
        if name in roles:
            raise ValueError(f"{name!r} is both {roles[name]} and {role}: name two columns")
        roles[name] = role
    given: dict[str, str] = {}
    for what, names in (("drop", drop), ("categorical", categorical), ("numeric", numeric)):
        if isinstance(names, str):
            raise TypeError(f"{what} is the text {names!r}: pass a list of names, [{names!r}]")
        for name in names:
            check_column(name, columns, what)
            other = roles.get(name, given.get(name, what))
            if other != what:
                raise ValueError(f"{name!r} is both {other} and {what}: leave it out of {what}")
            given[name] = what
    kinds = {"drop": "unused", "categorical": "category", "numeric": "number"}
    return roles, {name: kinds[what] for name, what in given.items()}


def shorten(messages: Mapping[str, str], most: int = MOST_MESSAGES) -> list[str]:
    """Return messages about columns, the last of them about all others if there are many.

    >>> shorten({"a": "'a' is empty", "b": "'b' is empty", "c": "'c' is empty"}, most=1)
    ["'a' is empty", "and 2 more columns: 'b', 'c'"]
    """
    texts, others = list(messages.values()), list(messages)[most:]
    if len(others) < 2:
        return texts
    return [*texts[:most], f"and {len(others)} more columns: {list_names(others)}"]
