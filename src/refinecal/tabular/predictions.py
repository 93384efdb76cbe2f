"""Predictions in files: the label of each row, and the probability or logit of each class."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from refinecal._core.arrays import check_threads, map_threads
from refinecal._core.errors import needs_extra, warn
from refinecal._core.format import list_names
from refinecal._core.sample import log_softmax
from refinecal.tabular.files import check_column, open_table
from refinecal.tabular.values import (
    Decimals,
    decode,
    describe_variants,
    is_number,
    numbers_of,
    sort_texts,
    texts_of,
)

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa

__all__ = ["Predictions", "model_names", "read_predictions", "read_same_rows", "read_values"]

LABELS = (
    " The labels must be in the same table as the predictions: add them as a column. (`refinecal predict` "
    "copies the target if the new rows have it.)"
)
MOST_CLASSES = 10_000
MOST_RANGE = 2**20  # integers this close together are counted, not sorted
EITHER = ("score", "scores", "pred", "predicted", "output", "yhat", "y_hat")
PROBS = ("p", "prob", "probs", "proba", "probas", "probability", "predict_proba", "y_prob")
LOGITS = ("logit", "logits", "margin", "z")
# What stands before or after the class in the name of a column, by whether it holds logits.
WORDS = {False: (*PROBS, *EITHER), True: (*LOGITS, *EITHER)}
ALONE = ("score", "y_score", "pred", "output", "yhat", "y_hat")
SINGLE = {  # names of the only column of two classes
    False: (*PROBS, "positive", "p_positive", "prob_positive", *ALONE),
    True: (*LOGITS, "log_odds", "logodds", "decision_function", *ALONE),
}
PAIRS = ({"0", "1"}, {"-1", "1"}, {"False", "True"})  # either label tells the other
WHOLE = re.compile(r"\+?(-?\d+)(?:\.0*)?")


@dataclass(frozen=True)
class Predictions:
    """Labels and predictions of a file."""

    labels: NDArray[np.int64]  # the class of each row, as its place in ``classes``
    values: NDArray[Any]  # (n, k) probabilities or logits; (n,) of the second of two classes
    classes: tuple[str, ...]  # sorted: by value if all are numbers, else as texts
    logits: bool  # whether the values are logits
    weights: NDArray[np.float64] | None
    groups: NDArray[Any] | None  # the subgroup of each row, ``None`` where it is missing
    names: tuple[str, ...]  # of the columns that hold the values

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
    group: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    sheet: str | None = None,
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
        A column of sample weights.
    by, group : str, optional
        A column of subgroups, or of rows that belong together: one of the two.
    delimiter, decimal, sheet : str, optional
        As for :func:`refinecal.tabular.files.open_table`.
    """
    source = open_table(path, delimiter, decimal, sheet)
    where = str(source.path)
    roles = {"target": target, "weight": weight, "by": by, "group": group}
    for role, name in roles.items():
        if name is not None:
            check_column(name, source.names, role, where, LABELS if role == "target" else "")
    others = [name for name in source.names if name not in roles.values()]
    likely = [name for name in others if _is_prediction(name, columns, logits)]
    used = [name for name in source.names if name in roles.values()]
    table = source.read([*used, *likely])  # at once, since text is parsed as a whole
    labels, known = _read_labels(table[target], target, where)
    choice = choose_columns(others, known, columns, logits, where)
    if not set(choice.columns) <= set(likely):
        table = source.read([*used, *choice.columns])
    variants = describe_variants(choice.classes)
    if variants:
        warn(f"the classes {variants}: are they one class?", UserWarning)
    if tuple(known) != choice.classes:
        labels = np.array([*map(choice.classes.index, known), -1], dtype=np.int64)[labels]
    groups = None
    if by is not None or group is not None:
        texts = texts_of(table[by or group])
        groups = np.array([*texts.values.to_pylist(), None], dtype=object)[texts.codes]
    found = Predictions(
        labels=labels,
        values=_read_values(table, choice, logits, where),
        classes=choice.classes,
        logits=logits,
        weights=None if weight is None else _read_numbers(table, weight, where),
        groups=groups,
        names=choice.columns,
    )
    return _drop_unlabeled(found, target, where)


def read_same_rows(
    paths: Sequence[str | Path],
    target: str,
    *,
    weight: str | None = None,
    group: str | None = None,
    **options: Any,
) -> dict[str, Predictions]:
    """Read the predictions of several models for the same rows, by the names of their files.

    Each file has the same rows in the same order. The results have the same classes in the same order;
    weights and groups are read from the first file. Options are as for :func:`read_predictions`.
    """
    names = model_names([Path(path) for path in paths])
    found: dict[str, Predictions] = {}
    for name, path in zip(names, paths, strict=True):
        first_only: Any = {} if found else {"weight": weight, "group": group}
        one = read_predictions(path, target, **first_only, **options)
        if found:
            _check_same_rows(one, found[names[0]], path, paths[0])
        found[name] = one
    return found


def read_values(
    path: str | Path,
    classes: Sequence[str],
    *,
    logits: bool = False,
    delimiter: str | None = None,
    decimal: str | None = None,
) -> NDArray[Any]:
    """Read the predictions of a model for new rows, whose labels need not be known."""
    source = open_table(path, delimiter, decimal)
    where = str(source.path)
    choice = choose_columns(source.names, list(classes), None, logits, where)
    if choice.classes != tuple(classes):
        raise ValueError(
            f"{where} has the classes {list_names(choice.classes)}, expected {list_names(classes)}"
        )
    return _read_values(source.read(choice.columns), choice, logits, where)


def _drop_unlabeled(found: Predictions, target: str, where: str) -> Predictions:
    """Return the rows that have a label."""
    kept = found.labels >= 0
    if kept.all():
        return found
    missing = np.flatnonzero(~kept)
    warn(
        f"target {target!r} is missing in {missing.size} of {len(kept)} rows of {where}, the first of which "
        f"is row {missing[0] + 1}: they are left out",
        UserWarning,
    )
    names = ("labels", "values", "weights", "groups")
    arrays = {name: getattr(found, name) for name in names}
    return replace(found, **{name: x[kept] for name, x in arrays.items() if x is not None})


# ---- which columns ----------------------------------------------------------------------------------------


class Choice(NamedTuple):
    """The classes in order, and the column of each; a single column is that of the second class."""

    classes: tuple[str, ...]
    columns: tuple[str, ...]
    flipped: bool = False  # the single column is that of the first class


def choose_columns(
    names: Sequence[str],
    labels: Sequence[str],
    columns: Sequence[str] | None,
    logits: bool,
    where: str,
) -> Choice:
    """Return the columns of the predictions among ``names``; ``labels`` are those that occur.

    Unless ``columns`` are given, they are named after the classes, each in the same way; or there is a single
    one for two classes, named after one of them or simply 'probability'.
    """
    if columns is not None:
        return _choose_given(names, labels, [name.strip() for name in columns], logits, where)
    families = _group_by_pattern(names, labels, logits)
    for family in families:
        if len(family) > 1 and set(labels) <= set(family):
            return _order(family)
    classes = _two_classes(labels)
    if classes is None:
        _fail(names, labels, families, where)
    for family in families:
        (label, name), *others = family.items()
        if label in classes and not others and name not in labels:
            return Choice(classes, (name,), flipped=label == classes[0])
    usual = [name for name in names if name.strip().lower() in SINGLE[logits]]
    if len(usual) != 1:
        _fail(names, labels, families, where)
    return Choice(classes, (usual[0],))


def _choose_given(
    names: Sequence[str], labels: Sequence[str], columns: list[str], logits: bool, where: str
) -> Choice:
    for name in columns:
        check_column(name, names, "columns", where)
    if len(set(columns)) < len(columns):
        raise ValueError(f"columns names a column twice: {list_names(columns)}")
    classes, what = _two_classes(labels), f"{len(labels)} classes ({list_names(labels)})"
    if len(columns) == 1:  # of the class that it names, else of the second
        if classes is None:
            raise ValueError(
                f"columns has one name, but the target has {what}: name one column for each class"
            )
        families = _group_by_pattern(columns, classes, logits)
        named = {label for family in families for label in family}
        flipped = classes[0] in named and classes[1] not in named
        return Choice(classes, tuple(columns), flipped)
    for family in _group_by_pattern(columns, labels, logits):
        if len(family) == len(columns) and set(labels) <= set(family):
            return _order(family)
    if len(columns) != len(labels):
        raise ValueError(
            f"columns has {len(columns)} names, but the target has {what}: name one column for each class in "
            "this order, or columns that have the classes in their names, and drop the rows of classes that "
            "the model does not know"
        )
    return Choice(tuple(labels), tuple(columns))


def _two_classes(labels: Sequence[str]) -> tuple[str, ...] | None:
    if len(labels) == 2:
        return tuple(labels)
    pair = next((pair for pair in PAIRS if len(labels) == 1 and set(labels) <= pair), None)
    return None if pair is None else tuple(sort_texts(pair))


def _is_prediction(name: str, columns: Sequence[str] | None, logits: bool) -> bool:
    """Return whether a column is one of those given or, if none are, may hold predictions by its name."""
    if columns is not None:
        return name in columns
    return name.strip().lower() in SINGLE[logits] or any(_split_name(name, logits))


def _order(family: dict[str, str]) -> Choice:
    """Return columns, by their classes, in the order of the classes."""
    classes = tuple(sort_texts(family))
    return Choice(classes, tuple(family[each] for each in classes))


def _group_by_pattern(
    names: Iterable[str], labels: Sequence[str], logits: bool
) -> list[dict[str, str]]:
    """Return, for each way to name columns, the classes with their columns; the likeliest way first."""
    known = set(labels)
    found: dict[str, dict[str, str]] = {"": {}}
    are_whole = all(WHOLE.fullmatch(label) for label in labels)
    for name in names:
        label = same_label(name)
        if label in known or (are_whole and WHOLE.fullmatch(name)):
            found[""].setdefault(label, name)
        for way, rest in _split_name(name, logits):
            found.setdefault(way, {}).setdefault(same_label(rest), name)
    families = [family for family in found.values() if family]
    return sorted(families, key=lambda family: -len(known & set(family)))


def _split_name(name: str, logits: bool) -> Iterable[tuple[str, str]]:
    """Yield how a name may be split into a word for predictions and a class, the likeliest words first."""
    for word in WORDS[logits]:
        start = re.fullmatch(rf"(?i)({re.escape(word)})([_ .:(\[=-])(.+?)[)\]]?", name)
        if start:
            yield f"{start[1]}{start[2]}", start[3]
        end = re.fullmatch(rf"(?i)(.+?)([_ .:-])({re.escape(word)})", name)
        if end:
            yield f"{end[2]}{end[3]} after", end[1]


def same_label(text: str) -> str:
    """Return a class's name written one way: '1.0' and '+1' are '1', 'true' is 'True'.

    >>> same_label("1.0"), same_label("true"), same_label("a b")
    ('1', 'True', 'a b')
    """
    text = text.strip()
    whole = WHOLE.fullmatch(text)
    if whole:
        return "0" if whole[1] == "-0" else whole[1]
    return text.capitalize() if text.lower() in ("true", "false") else text


def _fail(
    names: Sequence[str], labels: Sequence[str], families: list[dict[str, str]], where: str
) -> NoReturn:
    variants = describe_variants(labels)
    fix = f" The labels {variants}: write them the same way." if variants else ""
    some = next((each for each in families if len(each) > 1 and set(labels) & set(each)), None)
    if some is not None:
        lost = [label for label in labels if label not in some]
        raise ValueError(
            f"the target has the class {lost[0]!r}, but {where} has no column for it: there are "
            f"{list_names(list(some.values()))}. If the model does not know this class, drop its rows; if "
            f"its column has another name, name all columns of predictions with --columns.{fix}"
        )
    raise ValueError(
        f"{where} has no column named after the classes {list_names(labels)}, such as 'p_{labels[-1]}': name "
        f"those of the predictions with --columns. The columns are {list_names(names)}.{fix}"
    )


# ---- columns as arrays -------------------------------------------------------------------------------------


def _read_labels(
    column: pa.ChunkedArray, target: str, where: str
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the place of each row's label among the sorted labels, -1 where it is missing."""
    if pa.types.is_integer(column.type) and column.null_count == 0 and len(column):
        # Not by to_numpy, which imports pandas.
        values = np.concatenate([np.from_dlpack(chunk) for chunk in column.chunks])
        low, high = int(values.min()), int(values.max())
        if high - low < MOST_RANGE:
            values = values.astype(np.int64) - low
            seen = np.bincount(values) > 0
            if seen.sum() <= MOST_CLASSES:
                known = [str(low + value) for value in np.flatnonzero(seen).tolist()]
                return (values if seen.all() else (np.cumsum(seen) - 1)[values]), known
    texts = texts_of(column)
    if not len(texts.values):
        raise ValueError(f"target {target!r} is missing in every row of {where}")
    known = sort_texts(texts.values.to_pylist())
    if len(known) > MOST_CLASSES:
        raise ValueError(
            f"target {target!r} has {len(known)} different values, such as {known[0]!r}: labels are classes, "
            "not measurements"
        )
    return texts.places(known), known


def _read_values(table: pa.Table, choice: Choice, logits: bool, where: str) -> NDArray[Any]:
    """Return the predictions; in memory, column follows column, as in the file."""
    kinds = {table.schema.field(name).type for name in choice.columns}
    dtype = np.float32 if kinds <= {pa.float32(), pa.float16()} else np.float64
    columns = np.empty((len(choice.columns), len(table)), dtype)

    def fill(j: int) -> None:
        column = table[choice.columns[j]]
        if not (pa.types.is_floating(column.type) and column.null_count == 0):
            columns[j] = _read_numbers(table, choice.columns[j], where, choice.columns, not logits)
            return
        start = 0
        for chunk in column.chunks:  # one after the other: no copy of the whole
            columns[j, start : start + len(chunk)] = np.from_dlpack(chunk)
            start += len(chunk)

    map_threads(fill, range(len(columns)), columns.size, check_threads(None))
    if len(columns) > 1:
        return columns.T
    if not choice.flipped:
        return np.asarray(columns[0])
    return np.asarray(-columns[0] if logits else 1 - columns[0])


def _read_numbers(
    table: pa.Table, name: str, where: str, predictions: Sequence[str] = (), probs: bool = False
) -> NDArray[np.float64]:
    """Return a column of numbers, infinite ones too, or say which row is not one; 5% is 0.05 in ``probs``."""
    column, where = decode(table[name]), f"column {name!r} of {where}"
    if not (pa.types.is_string(column.type) or is_number(column.type)):
        raise ValueError(f"{where} holds {column.type}, not numbers")
    mark = Decimals.of_table(table).find(name, predictions)
    found = numbers_of(column, mark, infinite=True)
    if found.bad.size:
        row = int(found.bad[0])
        fix = ": if this column does not hold predictions, name those that do with --columns"
        raise ValueError(
            f"row {row + 1} of {where} is {column[row].as_py()!r}, which is not a number"
            + fix * bool(predictions)
        )
    missing = np.flatnonzero(np.isnan(found.values))
    if missing.size:
        raise ValueError(
            f"row {missing[0] + 1} of {where} is missing: drop the rows without it "
            f"({missing.size} of {len(column)})"
        )
    if probs and "%" in found.units:
        if found.bare:
            raise ValueError(
                f"{where} has values with a %, but {found.bare!r} without: write all alike"
            )
        return found.values / 100
    return found.values


# ---- several files -----------------------------------------------------------------------------------------


def model_names(paths: Sequence[Path]) -> list[str]:
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


def _check_same_rows(
    found: Predictions, first: Predictions, path: str | Path, first_path: str | Path
) -> None:
    """Raise unless two files have the same classes and labels."""
    if found.classes != first.classes:  # which are sorted
        raise ValueError(
            f"{path} has the classes {list_names(found.classes)}, but {first_path} has "
            f"{list_names(first.classes)}: compare models of the same classes"
        )
    if found.n != first.n:
        raise ValueError(
            f"{path} has {found.n} rows with a label, but {first_path} has {first.n}: compare models on the "
            "same rows"
        )
    differ = np.flatnonzero(found.labels != first.labels)
    if differ.size:
        own, other = (each.classes[each.labels[differ[0]]] for each in (found, first))
        raise ValueError(
            f"row {differ[0] + 1} of {path} has the label {own}, but that of {first_path} has {other}: "
            "compare models on the same rows in the same order"
        )
