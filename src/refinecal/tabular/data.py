"""The rows of a fit: a table split into training, validation and test rows."""

from __future__ import annotations  # so that help() shows types by name

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import warn
from refinecal.tabular.leakage import Leak, find_leaks
from refinecal.tabular.names import shorten
from refinecal.tabular.values import describe_variants
from refinecal.training.rows import AUTO_FOLDS, Parts, Rows, hold_out, is_small, parts

if TYPE_CHECKING:
    import pyarrow as pa

    from refinecal.tabular.schema import Schema


SEEN = 0.05  # part of the test rows of another table that may be in the training table by chance
REPEATED = 0.2  # and of test rows of the same table
FEW_FEATURES = 3  # with this few, rows are often equal
MOST_RARE = 3  # classes that are named
LEAST_ROWS = 20  # with a label: fewer cannot be trained on, validated on and calibrated by


@dataclass(frozen=True, slots=True)
class Options:
    """How to fit: the options of ``refinecal fit``; ``None`` leaves a choice to the model."""

    model: str = "xgboost"
    calibrator: str = "auto"
    tune: int = 1
    max_steps: int | None = None
    patience: int | None = None
    folds: int | str | None = "auto"
    validation_fraction: float = 0.2
    test_fraction: float = 0.2
    refit: bool = True
    seed: int = 0
    n_threads: int | None = None


@dataclass(frozen=True, slots=True)
class Data:
    """A table split into training, validation and test rows."""

    schema: Schema
    pairs: Parts  # without the test rows
    n_train: int  # rows that are not test rows
    test: Rows | None
    test_places: NDArray[np.int64] | None  # of the test rows in their table
    key: str  # a digest of it all
    everything: Parts | None = None  # with the test rows, for the models that are delivered
    leaks: tuple[Leak, ...] = ()  # columns that give the target away

    @property
    def k(self) -> int:
        return len(self.schema.classes)

    @property
    def delivered(self) -> Parts:
        """The folds of the models that are delivered."""
        return self.pairs if self.everything is None else self.everything

    @property
    def n_delivered(self) -> int:
        """How many rows the delivered models were trained on, between them."""
        seen = np.unique(np.concatenate([train for train, _ in self.delivered.splits]))
        weights = self.delivered.rows.weights
        return len(seen) if weights is None else int(np.count_nonzero(weights[seen]))

    @property
    def n_used(self) -> int:
        """How many rows they could have been trained on: those whose weight is not 0."""
        return self.delivered.rows.n_used


def prepare(
    table: pa.Table, schema: Schema, options: Options, test_table: pa.Table | None = None
) -> Data:
    """Split a table, whose rows must all have a label.

    Test rows are those of ``test_table``, or a part of the table: a fraction of each class, or of the
    groups. The order of the rows does not matter.
    """
    rows = _rows(table, schema).with_keys()
    if rows.n < LEAST_ROWS:
        raise ValueError(
            f"target {schema.target!r} has a value in {rows.n} rows, but at least {LEAST_ROWS} are needed to "
            "train, validate and calibrate: collect more"
        )
    per_class = np.bincount(rows.y, minlength=len(schema.classes))
    places: NDArray[np.int64] | None = None
    test: Rows | None = None
    whole, refit = rows, False
    if test_table is not None:
        test = _rows(test_table, schema, optional=True).with_keys()
        places = np.arange(test.n)
        _warn_if_seen(rows, test, SEEN)
    elif options.test_fraction > 0:
        try:
            kept, places = hold_out(rows, options.test_fraction, options.seed)
        except ValueError as error:
            raise ValueError(
                f"the table has too few rows ({rows.n}) or groups to set some aside for the test: pass "
                "--test TABLE, or --test-fraction 0 to do without"
            ) from error
        test, rows = rows.take(places), rows.take(kept)
        _warn_if_seen(rows, test, REPEATED)
        refit = options.refit
    small = is_small(whole.n, len(schema.classes))

    def cut(rows: Rows, seed: int, n_more: int) -> Parts:
        return parts(rows, options.folds, options.validation_fraction, seed, n_more)

    # Another seed each time, else the same draw would decide twice. Rows that are held out twice show how far
    # models disagree; test rows do so, too.
    n_more = AUTO_FOLDS if small else 0 if test is not None else 2
    refit = refit or (test is None and options.tune > 1)  # more models of the one that is chosen
    pairs = cut(rows, options.seed + 1, 0 if refit or options.tune > 1 else n_more)
    _check_classes(schema, per_class, pairs)
    everything = cut(whole, options.seed + 2, n_more) if refit else None
    leaks = find_leaks(rows)
    for message in shorten({leak.column: leak.message(schema.target) for leak in leaks}):
        warn(message)
    return Data(schema, pairs, rows.n, test, places, _digest(rows, test), everything, leaks)


def _check_classes(schema: Schema, per_class: NDArray[np.int64], pairs: Parts) -> None:
    """Refuse classes with fewer rows than there are folds, or that some models would never see."""
    folds = pairs.n_first
    rare = np.flatnonzero((per_class < folds) | ~pairs.know(len(per_class)))
    if folds == 1 or not rare.size:
        return
    if (per_class[rare] >= folds).all():  # all in groups that are held out together
        raise ValueError(
            f"target {schema.target!r}: the rows of {schema.classes[rare[0]]!r} are in so few groups that "
            f"some of {folds} models would never see the class: pass fewer --folds, merge the class with "
            "another, or use finer groups"
        )
    few = [f"{schema.classes[i]!r} has {per_class[i]} rows" for i in rare[:MOST_RARE]]
    more = [f"{len(rare) - MOST_RARE} more classes have too few"] * (len(rare) > MOST_RARE)
    variants = describe_variants(schema.classes)
    raise ValueError(
        f"target {schema.target!r}: {', '.join(few + more)}, but {folds}-fold cross-validation needs at "
        f"least {folds} rows of each class. {f'{variants}: are they one class? ' if variants else ''}"
        f"Merge rare classes, drop their rows, collect more, or pass --folds {per_class.min()}."
    )


def _warn_if_seen(rows: Rows, test: Rows, most: float) -> None:
    """Warn of test rows that are training rows too, on which every model looks good."""
    assert rows.keys is not None, "keyed"
    assert test.keys is not None, "keyed"
    seen = np.isin(test.keys, rows.keys) & (rows.X.shape[1] > FEW_FEATURES)
    if seen.mean() > most:
        warn(
            f"{seen.mean():.0%} of the test rows have the same features as training rows: if they are the "
            "same rows and new ones will not be, the test is too easy; drop copies, or name them by --group"
        )


def _rows(table: pa.Table, schema: Schema, optional: bool = False) -> Rows:
    """Return a table as rows; test rows may lack weights and groups."""
    return Rows(
        schema.encode(table),
        schema.labels(table),
        schema.weights(table, optional=optional),
        schema.groups(table, optional=optional),
    )


def _digest(*parts: Rows | None) -> str:
    """Return a text that is another one if any row of any part is."""
    digest = blake2b(digest_size=16)
    for part in parts:
        for values in () if part is None else (part.keys, part.y, part.weights, part.groups):
            if values is not None:
                plain = values if values.dtype.kind in "biuf" else values.astype(str)
                digest.update(np.ascontiguousarray(plain).tobytes())
        digest.update(b"next part")
    return digest.hexdigest()
