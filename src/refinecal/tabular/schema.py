"""Which columns of a table are what, and how they become arrays for models."""

from __future__ import annotations  # so that help() shows types by name

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra, warn
from refinecal._core.format import list_names
from refinecal.tabular._drift import REST, Profile
from refinecal.tabular.columns import (
    Column,
    drop_column,
    fail_number,
    find_variants,
    infer_classes,
    infer_column,
    labels_of,
)
from refinecal.tabular.names import check_column, check_there
from refinecal.tabular.values import (
    Decimals,
    Order,
    Texts,
    days_of,
    decode,
    find_order,
    is_text,
    numbers_of,
    texts_of,
)

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Column", "Schema"]

VERSION = 2  # of what is stored
READABLE = (1, 2)
FIELDS = ("target", "classes", "class_counts", "weight", "weight_decimal", "group", "n_rows")
COLUMN_FIELDS = (
    *("name", "kind", "form", "order", "decimal", "unit", "categories", "note"),
    *("n_missing", "n_distinct"),
)
PROFILE_FIELDS = ("n_mode", "n_rare", "bounds", "mode")
MOST_UNSEEN = 100  # different values that are told of a column


@dataclass(frozen=True, slots=True)
class Schema:
    """What the columns of a table are: learnt from training rows, applied to any others.

    The same data give the same arrays whether they come from CSV, Parquet or Feather, whole or in chunks.
    Rows are counted from 1 in errors; ``first_row`` is the number of the first row of a chunk.

    Attributes
    ----------
    columns : tuple of Column
        All columns but the target, the weight and the group, in order.
    target : str
        The column to predict.
    classes : tuple of str
        Its values, by value if all are numbers, else as texts; 1 and 1.0 are the same class.
    weight, group : str or None
        The columns that say how often a row counts, and which rows belong together.
    n_rows : int
        How many rows it was learnt from, those without a label included.
    class_counts : tuple of int
        How often each class occurs.
    weight_decimal : {",", ".", ""}
        What stood before the decimals of weights, as in :class:`Column`.

    Examples
    --------
    >>> table = pa.table({"size": ["1", "2.5", "NA"], "colour": ["red", None, "blue"], "y": [0, 1, 1]})
    >>> schema = Schema.infer(table, "y")
    >>> [(column.name, column.kind) for column in schema.features]
    [('size', 'number'), ('colour', 'category')]
    >>> schema.encode(table)["colour"].tolist()
    [1, nan, 0]
    """

    columns: tuple[Column, ...]
    target: str
    classes: tuple[str, ...]
    weight: str | None
    group: str | None
    n_rows: int
    class_counts: tuple[int, ...] = ()
    weight_decimal: str = ""

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that models see, in order."""
        return tuple(column for column in self.columns if column.kind != "unused")

    @property
    def rare_classes(self) -> tuple[str, ...]:
        """The classes of a single row."""
        pairs = zip(self.classes, self.class_counts, strict=False)
        return tuple(name for name, count in pairs if count == 1)

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
            Columns that say how often a row counts, and which rows belong together.
        drop : sequence of str
            Columns to leave out.
        categorical, numeric : sequence of str
            Columns that are categories, or numbers, whatever they look like.

        Returns
        -------
        Schema
        """
        roles = check_roles(table.column_names, target, weight, group)
        forced = check_lists(table.column_names, roles, drop, categorical, numeric)
        decimals, order = Decimals.read(table), _common_order(table)
        columns = tuple(
            drop_column(name, table[name])
            if name in set(drop)
            else _note_commas(
                infer_column(
                    name, table[name], forced.get(name), decimals.find(name, decimals.marks), order
                ),
                table[name],
                decimals,
            )
            for name in table.column_names
            if name not in roles
        )
        classes, counts = infer_classes(target, table[target])
        if all(column.kind == "unused" for column in columns):
            why = "; ".join(f"{column.name!r}: {column.note}" for column in columns[:5])
            raise ValueError(
                f"beside {target!r}, the table has no column to learn from"
                + f" ({why})" * bool(why)
            )
        decimal = "" if weight is None else decimals.find(weight, decimals.marks)
        n_rows = table.num_rows
        schema = cls(columns, target, classes, weight, group, n_rows, counts, decimal)
        labelled = schema.has_label(table)  # the others may lack a weight or a group too
        if weight is not None:
            weights_of(table, weight, used=labelled, decimal=decimal)
        if group is not None:
            groups_of(table, group, used=labelled)
        return schema

    # ---- applying ----------------------------------------------------------------------------------------

    def check_names(self, names: Sequence[str]) -> list[str]:
        """Return the columns that training rows did not have; raise if any is missing that models need.

        Parameters
        ----------
        names : sequence of str
            The columns of another table. Target, weight and group may be among them.

        Returns
        -------
        list of str
        """
        known = {self.target, self.weight, self.group, *(column.name for column in self.columns)}
        extra = [name for name in names if name not in known]
        check_there([column.name for column in self.features], names, extra)
        return extra

    def encode(self, table: pa.Table, *, first_row: int = 1) -> pd.DataFrame:
        """Return what models see of a table: the features, in order.

        Parameters
        ----------
        table : Arrow table
            With the columns of :attr:`features`, in any order, and perhaps others.
        first_row : int, default 1
            The number of its first row, for errors.

        Returns
        -------
        DataFrame
            Numbers as float64, NaN where they are missing or, with a warning, infinite. Categories as
            pandas' categories 0, 1, ..., which are places in ``column.categories``; NaN for those that are
            missing or were not seen in training.
        """
        with needs_extra("cli", package="pandas"):
            import pandas as pd

        self.check_names(table.column_names)
        decimals = Decimals.read(table)
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
                mark = decimals.find(column.name, numbers, column.decimal)
                found = numbers_of(values, mark)
                check_unit(column, found.units)
            arrays[column.name] = found.values
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
        """Return categories that training rows did not have, and how often, by column.

        Columns with more categories than are kept are left out: of theirs it is not known. Of a column
        with more than 100 such values, the most frequent 100 are told, and "…" counts all others.

        Parameters
        ----------
        table : Arrow table
            As for :meth:`encode`.

        Returns
        -------
        dict of dict of int
        """
        self.check_names(table.column_names)
        columns = [c for c in self.features if c.kind == "category" and c.is_complete]
        found = {column.name: _count_unseen(column, table[column.name]) for column in columns}
        return {name: counts for name, counts in found.items() if counts}

    def has_label(self, table: pa.Table) -> NDArray[np.bool_]:
        """Return a mask of the rows whose target is not missing.

        Parameters
        ----------
        table : Arrow table
            With the target.

        Returns
        -------
        ndarray of bool
        """
        return self._target_texts(table).codes >= 0

    def _target_texts(self, table: pa.Table) -> Texts:
        check_column(self.target, table.column_names, "the target")
        return texts_of(table[self.target], set(self.classes) <= {"True", "False"})

    def labels(self, table: pa.Table, *, first_row: int = 1) -> NDArray[np.int64]:
        """Return the target as places in ``classes``.

        Parameters
        ----------
        table : Arrow table
            With the target, missing nowhere.
        first_row : int, default 1
            The number of its first row, for errors.

        Returns
        -------
        ndarray of int
        """
        return labels_of(self._target_texts(table), self.target, self.classes, first_row)

    def weights(
        self, table: pa.Table, *, first_row: int = 1, optional: bool = False
    ) -> NDArray[np.float64] | None:
        """Return how often each row counts; ``None`` if no column says it.

        Parameters
        ----------
        table, first_row
            As for :meth:`labels`.
        optional : bool, default False
            Whether the column may be absent from this table: then the result is ``None`` too.

        Returns
        -------
        ndarray of float, or None
        """
        if self.weight is None or (optional and self.weight not in table.column_names):
            return None
        return weights_of(table, self.weight, first_row, decimal=self.weight_decimal)

    def groups(
        self, table: pa.Table, *, first_row: int = 1, optional: bool = False
    ) -> NDArray[np.int64] | None:
        """Return a number for each row's group; ``None`` if no column says it.

        Parameters
        ----------
        table, first_row, optional
            As for :meth:`weights`.

        Returns
        -------
        ndarray of int, or None
            Groups are numbered in the order of their texts, so that the order of the rows does not matter.
        """
        if self.group is None or (optional and self.group not in table.column_names):
            return None
        return groups_of(table, self.group, first_row)

    # ---- showing and storing -----------------------------------------------------------------------------

    def table_of_kinds(self) -> list[dict[str, str | int]]:
        """Return one row for each column, for people: name, kind, missing, distinct, note."""
        roles = {"target": self.target, "weight": self.weight, "group": self.group}
        rows: list[dict[str, str | int]] = [
            {"name": name, "kind": kind, "missing": "", "distinct": "", "note": ""}
            for kind, name in roles.items()
            if name is not None
        ]
        rows[0] |= {
            "missing": self.n_rows - sum(self.class_counts),
            "distinct": len(self.classes),
            "note": self._describe_classes(),
        }
        for column in self.columns:
            is_date = column.form == "date" and column.kind == "number"
            rows.append(
                {
                    "name": column.name,
                    "kind": "date" if is_date else column.kind,
                    "missing": column.n_missing,
                    "distinct": column.n_distinct,
                    "note": column.note,
                }
            )
        return rows

    def _describe_classes(self) -> str:
        """Return what to know of the classes."""
        notes = []
        if self.rare_classes:
            notes.append(f"a single row: {list_names(self.rare_classes, 3)}")
        variants = find_variants(self.classes)
        if variants:
            one, other = variants[0]
            more = f" (and {len(variants) - 1} more)" if len(variants) > 1 else ""
            notes.append(
                f"{one!r} and {other!r} differ only by case or blanks{more}: one class or two?"
            )
        return "; ".join(notes)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain texts, numbers and lists, for JSON."""
        columns = []
        for column in self.columns:
            columns.append(_pick(column, COLUMN_FIELDS))
            if column.profile is not None:
                columns[-1]["profile"] = _pick(column.profile, PROFILE_FIELDS)
        return {"version": VERSION, **_pick(self, FIELDS), "columns": columns}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Return the schema that :meth:`to_dict` stored; raise if it is not one.

        Parameters
        ----------
        state : dict
            From JSON.

        Returns
        -------
        Schema
        """
        if not isinstance(state, Mapping) or "version" not in state:
            raise ValueError("the schema is not one: it must be what Schema.to_dict() returned")
        if state["version"] not in READABLE:
            raise ValueError(
                f"the schema has version {state['version']!r}, this refinecal reads {READABLE}: use the "
                "refinecal that wrote it"
            )
        try:
            columns = tuple(_read_column(each) for each in state["columns"])
            return cls(columns=columns, **_unpick(state, FIELDS))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"the stored schema is damaged: {type(error).__name__}: {error}. Fit again to write a new "
                "one."
            ) from error


def _pick(source: Any, names: tuple[str, ...]) -> dict[str, Any]:
    values = ((name, getattr(source, name)) for name in names)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values}


def _read_column(state: Mapping[str, Any]) -> Column:
    profile = state.get("profile")
    if profile is not None:
        profile = Profile(**_unpick(profile, PROFILE_FIELDS))
    state = {"order": "ymd", "unit": "", **state}  # which older versions did not write
    return Column(**_unpick(state, COLUMN_FIELDS), profile=profile)


def _common_order(table: pa.Table) -> Order | None:
    """Return the order of most dates that tell theirs, with the year last; ``None`` if none does."""
    columns = (decode(table[name]) for name in table.column_names)
    found = [find_order(column) for column in columns if is_text(column.type)]
    told = [order for order, is_certain in found if order and is_certain and order != "ymd"]
    return Counter(told).most_common(1)[0][0] if told else None


def _note_commas(column: Column, values: pa.ChunkedArray, decimals: Decimals) -> Column:
    """Point out decimal commas where commas stand between columns, too: lists such as 2,3 look the same."""
    if column.decimal != "," or decimals.delimiter != "," or column.note:
        return column
    first = next((each.as_py() for each in values if each.is_valid and "," in each.as_py()), None)
    if first is None:
        return column
    value = numbers_of(pa.chunked_array([[first]]), ",").values[0]
    return replace(column, note=f"{first!r} is read as {value:.12g}; --categorical if it is a list")


def check_unit(column: Column, units: tuple[str, ...]) -> None:
    """Refuse numbers in other units than those of the training rows."""
    others = [unit for unit in units if column.unit and unit != column.unit]
    if others:
        raise ValueError(
            f"column {column.name!r} has numbers in {others[0]!r}, but those of the training rows were in "
            f"{column.unit!r}: convert them"
        )


def _unpick(state: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    values = ((name, state[name]) for name in names)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values}


# ---- columns with a part of their own, and those named in lists --------------------------------------------


def check_roles(
    columns: Sequence[str], target: str, weight: str | None, group: str | None
) -> dict[str, str]:
    """Return which column has which role; no column has two."""
    roles: dict[str, str] = {}
    for role, name in (("target", target), ("weight", weight), ("group", group)):
        if name is None:
            continue
        check_column(name, columns, role)
        if name in roles:
            raise ValueError(f"{name!r} is both {roles[name]} and {role}: name two columns")
        roles[name] = role
    return roles


def check_lists(
    columns: Sequence[str],
    roles: Mapping[str, str],
    drop: Sequence[str],
    categorical: Sequence[str],
    numeric: Sequence[str],
) -> dict[str, Any]:
    """Return the kinds that are given, by column."""
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
    kinds = {"categorical": "category", "numeric": "number"}
    return {name: kinds[what] for name, what in given.items() if what in kinds}


def weights_of(
    table: pa.Table,
    name: str,
    first_row: int = 1,
    used: NDArray[np.bool_] | None = None,
    decimal: str = "",
) -> NDArray[np.float64]:
    """Return a column as weights, checked in the rows that are used."""
    check_column(name, table.column_names, "weight")
    mark = Decimals.read(table).find(name, learnt=decimal)
    values = numbers_of(table[name], mark).values
    used = np.ones(len(values), np.bool_) if used is None else used
    bad = np.flatnonzero(used & ~(values >= 0))
    if bad.size:
        value = table[name][int(bad[0])].as_py()
        found = "missing" if value is None else repr(value)
        raise ValueError(
            f"weight {name!r}, row {first_row + bad[0]} is {found}: a weight says how often the row counts, "
            "so it must be a finite number of at least 0"
        )
    if not values[used].any():
        raise ValueError(f"weight {name!r} is 0 in every row: at least one row must count")
    return values


def groups_of(
    table: pa.Table, name: str, first_row: int = 1, used: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Return a number for each row's group, missing in no row that is used."""
    check_column(name, table.column_names, "group")
    texts = texts_of(table[name])
    bad = np.flatnonzero((texts.codes < 0) & (True if used is None else used))
    if bad.size:
        raise ValueError(
            f"group {name!r}, row {first_row + bad[0]} is missing: every row must belong to a group. Give "
            "those without one a group each, or drop them."
        )
    return texts.places(sorted(texts.values.to_pylist()))


def _count_unseen(column: Column, values: pa.ChunkedArray) -> dict[str, int]:
    """Return how often values occur that are not among the categories, the most frequent first."""
    texts = texts_of(values, column.is_truth)
    new = np.flatnonzero(texts.known(column.categories) < 0)
    counts = texts.counts()[new]
    order = np.argsort(-counts, kind="stable")  # the first to appear first
    kept = order[:MOST_UNSEEN]
    names = texts.values.take(pa.array(new[kept])).to_pylist()
    found = dict(zip(names, counts[kept].tolist(), strict=True))
    rest = int(counts[order[MOST_UNSEEN:]].sum())
    return found | {REST: found.get(REST, 0) + rest} if rest else found
