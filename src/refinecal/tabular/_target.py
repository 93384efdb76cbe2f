"""The classes of a target, if it has any to learn."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal.tabular._columns import sort_texts
from refinecal.tabular._names import listed
from refinecal.tabular._values import Texts, texts_of

with needs_extra("cli", package="pyarrow"):
    import pyarrow as pa

MOST_FRACTIONS = 20  # so many different fractions may be classes; more are measurements
MOST_WHOLE = 1000  # so many different whole numbers
MOST_SHOWN = 10  # classes in an error
FRACTION = re.compile(r"[+-]?(?:\d*[.,]\d+(?:[eE][+-]?\d+)?|\d+\.?[eE]-\d+)")
WHOLE = re.compile(r"[+-]?\d+")


def infer_classes(name: str, column: pa.ChunkedArray) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the classes in order and how often each occurs, or say why there is nothing to learn."""
    try:
        texts = texts_of(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(f"target {name!r} holds {column.type}, which cannot be a class") from None
    values = texts.values.to_pylist()
    if len(values) < 2:
        raise ValueError(f"target {name!r} is {_describe_single_class(texts, values)}")
    _check_few(name, texts, values)
    counts = dict(zip(values, texts.counts().tolist(), strict=True))
    classes = tuple(sort_texts(values))
    return classes, tuple(counts[each] for each in classes)


def _describe_single_class(texts: Texts, values: list[str]) -> str:
    """Say what a target is that has no two classes."""
    missing = int((texts.codes < 0).sum())
    nothing = ": there is nothing to learn"
    if not values:
        return f"missing in every row{nothing}"
    if not missing:
        return f"always {values[0]!r}{nothing}"
    return (
        f"always {values[0]!r}, or missing (empty, NA and the like) in {missing} of {len(texts.codes)} "
        f"rows{nothing}. If to be missing is a class, write a word for it."
    )


def _check_few(name: str, texts: Texts, values: list[str]) -> None:
    """Refuse a target that looks like a measurement, or like the name of each row."""
    n, k = int((texts.codes >= 0).sum()), len(values)
    fractions = sum(FRACTION.fullmatch(value) is not None for value in values)
    numbers = fractions + sum(WHOLE.fullmatch(value) is not None for value in values)
    what = f"target {name!r} has {k} different values in {n} rows"
    if (fractions and numbers == k > MOST_FRACTIONS) or (numbers == k > MOST_WHOLE):
        raise ValueError(
            f"{what}, such as {values[0]!r}: it looks like a number to be measured, but refinecal predicts "
            "classes. Cut it into classes first, or name another target."
        )
    if k > 2 and k > n / 2:
        raise ValueError(
            f"{what}, such as {values[0]!r}: classes need several rows each. Name another target, or put "
            "rare classes together."
        )


def labels_of(
    texts: Texts, name: str, classes: tuple[str, ...], first_row: int
) -> NDArray[np.int64]:
    """Return the places of a target's values among its classes, or say which row has none."""
    labels = texts.places(classes)
    bad = np.flatnonzero(labels < 0)
    if not bad.size:
        return labels
    row, where = bad[0], f"target {name!r}, row {first_row + bad[0]}"
    if texts.codes[row] < 0:
        raise ValueError(f"{where} is missing: drop the rows without a label")
    value = texts.values[texts.codes[row]].as_py()
    raise ValueError(
        f"{where} is {value!r}, which training rows did not have: their classes are "
        f"{listed(classes, MOST_SHOWN)}"
    )
