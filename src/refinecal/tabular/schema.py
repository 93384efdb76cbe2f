"""Which columns of a table are what, and how they become arrays for models."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._checks import warn
from refinecal._optional import needs_extra
from refinecal.tabular._columns import Column, fail_number, infer_column
from refinecal.tabular._names import check_column, hint, listed
from refinecal.tabular._roles import check_lists, check_roles, groups_of, weights_of
from refinecal.tabular._stored import read_schema
from refinecal.tabular._target import infer_classes
from refinecal.tabular._values import Texts, days_of, has_decimal_comma, numbers_of, texts_of

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Column", "Schema"]

VERSION = 1  # of what to_dict returns
FIELDS = ("target", "classes", "class_counts", "weight", "group", "n_rows")
COLUMN_FIELDS = ("name", "kind", "form", "categories", "note", "n_missing", "n_distinct")
MOST_SHOWN = 10  # classes in an error


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
        roles = check_roles(table, target, weight, group)
        forced = check_lists(table, roles, drop, categorical, numeric)
        comma = has_decimal_comma(table)
        columns = tuple(
            Column(name, "unused", note="left out on request")
            if name in drop
            else infer_column(name, table[name], forced.get(name), comma)
            for name in table.column_names
            if name not in roles
        )
        classes, counts = infer_classes(target, table[target])
        found = cls(columns, target, classes, weight, group, table.num_rows, counts)
        found._check_features()
        labelled = found.has_label(table)  # the others may lack a weight or a group too
        if weight is not None:
            weights_of(table, weight, used=labelled)
        if group is not None:
            groups_of(table, group, used=labelled)
        return found

    def _check_features(self) -> None:
        if not self.features:
            why = "; ".join(f"{column.name!r}: {column.note}" for column in self.columns[:5])
            raise ValueError(
                f"beside {self.target!r}, the table has no column to learn from"
                + f" ({why})" * bool(why)
            )

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
        given, known = set(names), self._known()
        absent = [column.name for column in self.features if column.name not in given]
        extra = [name for name in names if name not in known]
        if absent:
            lacks = "column" if len(absent) == 1 else "columns"
            raise ValueError(
                f"the table lacks the {lacks} {listed(absent)}, which the model needs."
                f"{hint(absent[0], extra or list(names))}"
            )
        return extra

    def _known(self) -> set[str | None]:
        return {self.target, self.weight, self.group, *(column.name for column in self.columns)}

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
        comma = has_decimal_comma(table)
        arrays: dict[str, Any] = {}
        for column in self.features:
            values = table[column.name]
            if column.kind == "number":
                arrays[column.name] = _numbers(column, values, comma, first_row)
                continue
            codes = texts_of(values, column.is_truth).places(column.categories)
            dtype = pd.CategoricalDtype(np.arange(len(column.categories)))
            arrays[column.name] = pd.Categorical.from_codes(codes, dtype=dtype)
        return pd.DataFrame(arrays, copy=False)

    def unseen(self, table: pa.Table) -> dict[str, dict[str, int]]:
        """Return categories that training rows did not have, and how often, by column.

        Columns with more categories than are kept are left out: of theirs it is not known.

        Parameters
        ----------
        table : Arrow table
            As for :meth:`encode`.

        Returns
        -------
        dict of dict of int
        """
        self.check_names(table.column_names)
        found = {}
        for column in self.features:
            if column.kind == "category" and column.is_complete:
                texts = texts_of(table[column.name], column.is_truth)
                counts = zip(texts.values.to_pylist(), texts.counts().tolist(), strict=True)
                new = {text: n for text, n in counts if text not in set(column.categories)}
                if new:
                    found[column.name] = new
        return found

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
        texts = self._target_texts(table)
        labels = texts.places(self.classes)
        bad = np.flatnonzero(labels < 0)
        if bad.size:
            row, where = bad[0], f"target {self.target!r}, row {first_row + bad[0]}"
            if texts.codes[row] < 0:
                raise ValueError(f"{where} is missing: drop the rows without a label")
            value = texts.values[texts.codes[row]].as_py()
            raise ValueError(
                f"{where} is {value!r}, which training rows did not have: their classes are "
                f"{listed(self.classes, MOST_SHOWN)}"
            )
        return labels

    def weights(self, table: pa.Table, *, first_row: int = 1) -> NDArray[np.float64] | None:
        """Return how often each row counts; ``None`` if no column says it.

        Parameters
        ----------
        table, first_row
            As for :meth:`labels`.

        Returns
        -------
        ndarray of float, or None
        """
        return None if self.weight is None else weights_of(table, self.weight, first_row)

    def groups(self, table: pa.Table, *, first_row: int = 1) -> NDArray[np.int64] | None:
        """Return a number for each row's group; ``None`` if no column says it.

        Parameters
        ----------
        table, first_row
            As for :meth:`labels`.

        Returns
        -------
        ndarray of int, or None
            Groups are numbered in the order of their texts, so that the order of the rows does not matter.
        """
        return None if self.group is None else groups_of(table, self.group, first_row)

    # ---- showing and storing -----------------------------------------------------------------------------

    def table_of_kinds(self) -> list[dict[str, str | int]]:
        """Return one row for each column, for people: name, kind, missing, distinct, note."""
        roles = {"target": self.target, "weight": self.weight, "group": self.group}
        rows: list[dict[str, str | int]] = [
            {"name": name, "kind": kind, "missing": "", "distinct": "", "note": ""}
            for kind, name in roles.items()
            if name is not None
        ]
        rare = listed(self.rare_classes, 3)
        labelled = sum(self.class_counts)
        rows[0] |= {"missing": self.n_rows - labelled, "distinct": len(self.classes)}
        rows[0] |= {"note": f"a single row: {rare}" if rare else ""}
        return rows + [
            {
                "name": column.name,
                "kind": "date"
                if column.form == "date" and column.kind == "number"
                else column.kind,
                "missing": column.n_missing,
                "distinct": column.n_distinct,
                "note": column.note,
            }
            for column in self.columns
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain texts, numbers and lists, for JSON."""
        columns = [
            {key: _plain(getattr(column, key)) for key in COLUMN_FIELDS} for column in self.columns
        ]
        return {
            "version": VERSION,
            **{key: _plain(getattr(self, key)) for key in FIELDS},
            "columns": columns,
        }

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
        return cls(**read_schema(state, VERSION))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _numbers(
    column: Column, values: pa.ChunkedArray, comma: bool, first_row: int
) -> NDArray[np.float64]:
    found = days_of(values) if column.form == "date" else numbers_of(values, comma)
    if found.bad.size:
        fail_number(column.name, values, int(found.bad[0]), first_row, comma, column.form)
    if found.infinite:
        warn(f"column {column.name!r} holds infinite numbers, which count as missing")
    return found.values
