"""Predictions in files: the label of each row, and the probability or logit of each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra, warn
from refinecal._core.format import list_names
from refinecal._core.sample import log_softmax
from refinecal.tabular._prediction_columns import choose_columns
from refinecal.tabular._prediction_values import (
    align_labels,
    groups_of,
    labels_of,
    values_of,
    weights_of,
)
from refinecal.tabular._sources import ParquetSource, Source, explain_errors
from refinecal.tabular.files import open_table
from refinecal.tabular.names import check_column

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa

__all__ = ["Predictions", "read_predictions", "read_same_rows"]

LABELS = (
    " The labels must be in the same table as the predictions: add them as a column. (`refinecal predict` "
    "copies the target if the new rows have it.)"
)


@dataclass(frozen=True)
class Predictions:
    """What a file of predictions holds.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        The class of each row, as its place in ``classes``.
    values : ndarray of shape (n, k), or (n,) for a single column
        Probabilities or logits; a single column is that of the second of two classes.
    classes : tuple of str
        Names of the classes: numbers by size, texts by letter.
    logits : bool
        Whether the values are logits.
    weights : ndarray or None
        How often each row counts.
    groups : ndarray or None
        The subgroup of each row, ``None`` where it is missing.
    names : tuple of str
        The columns that the values were in.
    """

    labels: NDArray[np.int64]
    values: NDArray[Any]
    classes: tuple[str, ...]
    logits: bool
    weights: NDArray[np.float64] | None
    groups: NDArray[Any] | None
    names: tuple[str, ...]

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.labels)

    @property
    def arguments(self) -> dict[str, NDArray[Any]]:
        """The values under the name by which :func:`refinecal.decompose` takes them."""
        return {"logits" if self.logits else "probs": self.values}

    @cached_property
    def probs(self) -> NDArray[Any]:
        """The values as probabilities."""
        if not self.logits:
            return self.values
        z = self.values
        if z.ndim == 1:  # shifted so that the infinite ones are -inf
            z = np.stack([-np.maximum(z, 0), np.minimum(z, 0)], axis=1)
        return np.asarray(np.exp(log_softmax(z)))


def read_predictions(
    path: str | Path,
    target: str,
    *,
    columns: Sequence[str] | None = None,
    logits: bool = False,
    weight: str | None = None,
    by: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
) -> Predictions:
    """Read the labels and predictions of a model.

    Parameters
    ----------
    path : str or Path
        A table as for :func:`refinecal.tabular.files.open_table`.
    target : str
        The column of labels. Rows without one are left out, with a warning.
    columns : sequence of str, optional
        The columns of predictions: those that have the class in their name in any order, others in the
        order of the sorted classes; one column for the second of two classes. By default those named after
        classes, such as ``p_yes`` and ``p_no``, or simply ``yes`` and ``no``.
    logits : bool, default False
        They are logits.
    weight : str, optional
        A column that says how often each row counts.
    by : str, optional
        A column of subgroups.
    delimiter, decimal : str, optional
        As for :func:`refinecal.tabular.files.open_table`.

    Returns
    -------
    Predictions
    """
    source = open_table(path, delimiter, decimal)
    where = str(source.path)
    roles = {"target": target, "weight": weight, "by": by}
    for role, name in roles.items():
        if name is not None:
            check_column(name, source.names, role, where, LABELS if role == "target" else "")
    table = _read(source, [name for name in dict.fromkeys(roles.values()) if name is not None])
    labels, known = labels_of(table[target], target, where)
    others = [name for name in source.names if name not in roles.values()]
    choice = choose_columns(others, known, columns, logits, where)
    values = values_of(_read(source, choice.columns), choice, logits, where)
    found = Predictions(
        labels=align_labels(labels, known, choice.classes),
        values=values,
        classes=choice.classes,
        logits=logits,
        weights=None if weight is None else weights_of(table, weight, where),
        groups=None if by is None else groups_of(table[by]),
        names=choice.columns,
    )
    return _drop_unlabelled(found, target, where)


def read_same_rows(
    paths: Sequence[str | Path],
    target: str,
    *,
    logits: bool = False,
    weight: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
) -> dict[str, Predictions]:
    """Read the predictions of several models for the same rows, by the names of their files.

    Parameters
    ----------
    paths : sequence of str or Path
        One file for each model: the same rows in the same order.
    target, logits, weight, delimiter, decimal
        As for :func:`read_predictions`; weights are those of the first file.

    Returns
    -------
    dict of str to Predictions
        All with the same classes in the same order.
    """
    names = _model_names([Path(path) for path in paths])
    found: dict[str, Predictions] = {}
    for name, path in zip(names, paths, strict=True):
        one = read_predictions(
            path,
            target,
            logits=logits,
            weight=None if found else weight,
            delimiter=delimiter,
            decimal=decimal,
        )
        if found:
            one = _align_classes(one, found[names[0]], str(path), str(paths[0]))
        found[name] = one
    return found


def _read(source: Source, columns: Sequence[str]) -> pa.Table:
    if not isinstance(source, ParquetSource):
        return source.read(columns)
    from pyarrow import parquet

    # At once, in all threads; parquet.read_table would import pandas first.
    with (
        explain_errors(source.path, "Parquet"),
        parquet.ParquetFile(source.path, memory_map=True) as file,
    ):
        return file.read(columns=list(columns))


def _drop_unlabelled(found: Predictions, target: str, where: str) -> Predictions:
    """Return the rows that have a label."""
    there = found.labels >= 0
    if there.all():
        return found
    first, lost = int(np.flatnonzero(~there)[0]), int((~there).sum())
    warn(
        f"target {target!r} is missing in {lost} of {len(there)} rows of {where}, the first of which is row "
        f"{first + 1}: they are left out",
        UserWarning,
    )
    weights, groups = found.weights, found.groups
    return replace(
        found,
        labels=found.labels[there],
        values=found.values[there],
        weights=None if weights is None else weights[there],
        groups=None if groups is None else groups[there],
    )


# ---- several files -----------------------------------------------------------------------------------------


def _model_names(paths: Sequence[Path]) -> list[str]:
    """Return a name for each file: without folder and ending if that tells them apart."""
    shapes = (
        [path.name.split(".")[0] for path in paths],
        [path.name for path in paths],
        [f"{path.parent.name}/{path.name}" for path in paths],
        [str(path) for path in paths],
    )
    for names in shapes:
        if len(set(names)) == len(names) and all(names):
            return names
    raise ValueError(f"the same file is named twice: {list_names(shapes[-1])}")


def _align_classes(
    found: Predictions, first: Predictions, path: str, first_path: str
) -> Predictions:
    """Return predictions with the classes of the first file in its order, if the rows are the same."""
    if set(found.classes) != set(first.classes):
        raise ValueError(
            f"{path} has the classes {list_names(found.classes)}, but {first_path} has "
            f"{list_names(first.classes)}: compare models of the same classes"
        )
    if found.n != first.n:
        raise ValueError(
            f"{path} has {found.n} rows with a label, but {first_path} has {first.n}: compare models on the "
            "same rows"
        )
    own = np.array(found.classes)[found.labels]
    other = np.array(first.classes)[first.labels]
    differ = np.flatnonzero(own != other)
    if differ.size:
        row = int(differ[0])
        raise ValueError(
            f"row {row + 1} of {path} has the label {own[row]!s}, but that of {first_path} has "
            f"{other[row]!s}: compare models on the same rows in the same order"
        )
    return found  # classes are sorted in every file, so their order is the same
