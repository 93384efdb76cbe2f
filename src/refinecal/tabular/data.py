"""The rows of a fit: a table split into training, validation and test rows."""

from __future__ import annotations  # so that help() shows types by name

from dataclasses import dataclass
from hashlib import blake2b
from math import floor
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal._core.arrays import hash_rows
from refinecal._core.errors import warn
from refinecal.tabular.schema import Schema, shorten
from refinecal.tabular.values import describe_variants
from refinecal.training.rows import AUTO_FOLDS, FEW, Parts, Rows, hold_out, parts

if TYPE_CHECKING:
    import pyarrow as pa

SEEN = 0.05  # part of the test rows of another table that may be in the training table by chance
REPEATED = 0.2  # and of test rows of the same table
FEW_FEATURES = 3  # with this few, rows are often equal
MOST_RARE = 3  # classes that are named
TEST_FRACTION = 0.2
MOST_TEST = 2000  # test rows for several kinds of models, whose time is limited
LEAST_ROWS = 20  # with a label: fewer cannot be trained on, validated on and calibrated by
# Wrong labels that a column which holds the answer may suggest, per row that is not of the largest class, one
# more counted than there are: so with fewer than 50 such rows nothing is suspected, but a column with one
# value for each label, from 10 rows on. The best honest column of 49 real tables leaves 6% wrong (occupancy
# of a room, by its light), that of iris 7%, of breast cancer 30%.
MOST_ERRORS = 0.02
FEW_OTHERS = 10  # rows that are not of the largest class
MOST_ROWS = 20_000  # are looked at


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
    test_fraction: float | None = None  # by default a fifth; fewer rows for several kinds of models
    refit: bool = True
    seed: int = 0
    n_threads: int | None = None
    time_limit: float | None = None  # seconds
    ensemble: bool = True  # of the kinds of models of "auto"


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
    fraction = options.test_fraction
    if fraction is None:
        most = MOST_TEST / rows.n if options.model == "auto" else 1.0
        fraction = min(TEST_FRACTION, most)
    if test_table is not None:
        test = _rows(test_table, schema, optional=True).with_keys()
        places = np.arange(test.n)
    elif fraction > 0:
        try:
            kept, places = hold_out(rows, fraction, options.seed)
        except ValueError as error:
            raise ValueError(
                f"the table has too few rows ({rows.n}) or groups to set some aside for the test: pass "
                "--test TABLE, or --test-fraction 0 to do without"
            ) from error
        test, rows = rows.take(places), rows.take(kept)
        refit = options.refit
    if test is not None:
        _warn_if_seen(rows, test, REPEATED if test_table is None else SEEN)
    small = whole.n * len(schema.classes) < FEW
    how = (options.folds, options.validation_fraction)
    # Another seed each time, else the same draw would decide twice. Rows that are held out twice show how far
    # models disagree; test rows do so, too.
    n_more = AUTO_FOLDS if small else 0 if test is not None else 2
    is_timed = options.model == "auto" or options.time_limit is not None
    # More models of the one that is chosen.
    refit = refit or (test is None and options.tune > 1 and not is_timed)
    n_here = 0 if refit or options.tune > 1 or is_timed else n_more
    pairs = parts(rows, *how, options.seed + 1, n_here)
    _check_classes(schema, per_class, pairs)
    everything = parts(whole, *how, options.seed + 2, n_more) if refit else None
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


# ---- columns that give the target away ---------------------------------------------------------------------


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
    if n_others < FEW_OTHERS or half.all() or not half.any():
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
