"""Permutation importance: how much worse predictions become when the values of a column are shuffled."""

from __future__ import annotations  # so that help() shows types by name

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.arrays import hash_rows
from refinecal._core.checks import check_group_of_rows, check_keywords, check_sample, check_whole
from refinecal._core.files import plain
from refinecal._core.format import shorten_name
from refinecal._core.sample import Sample
from refinecal.decomposition import Decomposition, decompose
from refinecal.evaluation._paired import Difference, paired_difference, row_losses

Floats = NDArray[np.float64]
Progress = Callable[
    [int, int], object
]  # called with how many predictions are done, and of how many
MOST_LINES = 20


@dataclass(frozen=True, slots=True)
class ColumnImportance:
    """What shuffling one column costs, as the mean over permutations; errors are over rows.

    Attributes
    ----------
    column : object
        Its name, or its place in an array.
    loss : Difference
        By how much the log loss rises.
    refinement : Difference
        By how much the refinement error rises: the loss if predictions were recalibrated after shuffling.
    """

    column: Any
    loss: Difference
    refinement: Difference

    @property
    def calibration(self) -> float:
        """By how much the calibration error rises: ``loss - refinement``."""
        return self.loss.mean - self.refinement.mean

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        terms = {name: getattr(self, name).to_dict() for name in ("loss", "refinement")}
        return {"column": plain(self.column), **terms, "calibration": plain(self.calibration)}


@dataclass(frozen=True, slots=True)
class Importance:
    """The importance of every column, the largest rise of the refinement error first.

    Attributes
    ----------
    columns : tuple of ColumnImportance
    log : Decomposition
        The log loss of the predictions without shuffling.
    n_repeats : int
        Permutations per column.
    """

    columns: tuple[ColumnImportance, ...]
    log: Decomposition
    n_repeats: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        terms = {name: getattr(self.log, name) for name in ("risk", "calibration", "refinement")}
        columns = [each.to_dict() for each in self.columns]
        return {"n": self.log.n, "n_repeats": self.n_repeats, "log": terms, "columns": columns}

    def __repr__(self) -> str:
        lines = [
            f"Importance of {len(self.columns)} columns ({self.log.n} rows, {self.n_repeats} permutations)",
            f"  {'column':<24}{'refinement':>12}{'± s.e.':>9}{'log loss':>12}{'± s.e.':>9}",
        ]
        for each in self.columns[:MOST_LINES]:
            pairs = (
                f"{term.mean:>+12.4f}{term.standard_error:>9.4f}"
                for term in (each.refinement, each.loss)
            )
            lines.append(f"  {shorten_name(str(each.column), 23):<24}{''.join(pairs)}")
        more = len(self.columns) - MOST_LINES
        return "\n".join([*lines, f"  ... and {more} more"] if more > 0 else lines)


@check_keywords()
def permutation_importance(
    model: Any,
    X: Any,
    y_true: Any,
    *,
    n_repeats: int = 5,
    random_state: int = 0,
    sample_weight: Any = None,
    groups: Any = None,
    classes: ArrayLike | None = None,
    columns: Sequence[Any] | None = None,
    progress: Progress | None = None,
) -> Importance:
    """Return how much the log loss and the refinement error rise when each column is shuffled.

    The rise of the loss is that of the refinement error plus that of the calibration error. The first is
    information about the label that the predictions lose. The second is overconfidence, since the model
    trusts wrong values: it is part of what a silent fault of the column would cost, but recalibration, or a
    model without the column, would not pay it. If both rank columns differently, refinement is closer to
    what the column is worth, and the loss to the harm that its faults do.

    Columns that carry the same information share it: shuffling one of them leaves the others.

    Parameters
    ----------
    model : object or callable
        A fitted model with ``predict_proba``, such as a :class:`refinecal.tabular.run.Run`, or that method.
    X : DataFrame or array of shape (n, d)
        Rows that the model was not trained on.
    y_true, sample_weight, classes
        As for :func:`refinecal.decompose`. ``classes`` are by default those of the model, if it has any.
    n_repeats : int, default 5
        Permutations per column.
    random_state : int, default 0
        The random seed. Rows are first put in the order of their labels, predictions and contents, so that
        the result does not depend on theirs.
    groups : array-like, optional
        The group of each row, if rows are not independent, for the standard errors.
    columns : sequence, optional
        The columns to shuffle, by name or, in an array, by place; by default all.
        A name that several columns share is refused.
    progress : callable, optional
        Called with the number of predictions that are done and that of all.

    Examples
    --------
    >>> import numpy as np
    >>> from refinecal.evaluation import permutation_importance
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> p = 1 / (1 + np.exp(-X[:, 0]))  # the second column has no influence
    >>> found = permutation_importance(lambda X: 1 / (1 + np.exp(-X[:, 0])), X, rng.random(500) < p)
    >>> [each.column for each in found.columns if each.refinement.low > 0]
    [0]
    """
    repeats = check_whole("n_repeats", n_repeats, 1)
    predict = getattr(model, "predict_proba", model)
    if not callable(predict):
        raise TypeError(
            f"model is {type(model).__name__}: pass a fitted model with predict_proba, or a function that "
            "returns probabilities"
        )
    X = X.to_pandas() if hasattr(X, "to_pandas") else X
    X = X if hasattr(X, "iloc") else np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X has shape {X.shape}: pass rows and columns, (n, d)")
    if groups is not None:
        groups = check_group_of_rows(groups, len(X))
    names, places = _places_of(X, columns)
    if classes is None:
        classes = getattr(model, "classes_", getattr(model, "classes", None))
    about: dict[str, Any] = {"sample_weight": sample_weight, "classes": classes}
    sample = check_sample(y_true, predict(X), **about)
    base = _Losses.of(sample)
    if not math.isfinite(base.terms.risk):
        raise ValueError(
            "the log loss is infinite: a label has probability 0, so nothing can be worse"
        )
    order = _order_of(X, sample, groups)
    found = []
    for n_done, (name, j) in enumerate(zip(names, places, strict=True)):
        sums = np.zeros((2, sample.n))
        for repeat, shuffled in enumerate(_shuffle(X, j, order, repeats, random_state)):
            changed = check_sample(y_true, predict(shuffled), **about)
            sums += _Losses.of(changed).rows / repeats
            if progress is not None:
                progress(n_done * repeats + repeat + 1, len(names) * repeats)
        both = (
            paired_difference(after, before, sample.weights, groups)
            for after, before in zip(sums, base.rows, strict=True)
        )
        found.append(ColumnImportance(name, *both))
    found.sort(key=lambda each: -each.refinement.mean)
    return Importance(tuple(found), base.terms, repeats)


@dataclass(frozen=True, slots=True)
class _Losses:
    """The decomposition of the log loss, and the loss of each row before and after calibration."""

    terms: Decomposition
    rows: Floats

    @classmethod
    def of(cls, sample: Sample) -> _Losses:
        y = sample.labels if sample.soft is None else sample.soft
        classes = None if sample.soft is not None else range(sample.k)
        given: Any = {"classes": classes}
        terms = decompose(y, sample.probs, sample_weight=sample.weights, **given)
        before = row_losses(y, sample.probs, **given)
        after = (
            before
            if terms.beta is None or terms.refinement == terms.risk
            else row_losses(y, sample.probs, beta=terms.beta, **given)
        )
        return cls(terms, np.stack([before, after]))


def _places_of(X: Any, columns: Sequence[Any] | None) -> tuple[list[Any], list[int]]:
    """Return the names of columns and their places."""
    known = list(X.columns) if hasattr(X, "columns") else list(range(X.shape[1]))
    if columns is None:
        return known, list(range(len(known)))
    for name in columns:
        if name not in known:
            raise ValueError(f"columns names {name!r}, which X does not have: it has {known}")
        if known.count(name) > 1:
            raise ValueError(
                f"columns names {name!r}, but X has {known.count(name)} columns of this name: rename them"
            )
    return list(columns), [known.index(name) for name in columns]


def _order_of(X: Any, sample: Sample, groups: Any) -> NDArray[np.int64]:
    """Return an order of rows that depends on what they hold alone: by label, prediction, then the rest."""
    others = (sample.soft, sample.weights, groups)
    tables = (X, *(each.reshape(sample.n, -1) for each in others if each is not None))
    return np.lexsort([*map(hash_rows, tables), *sample.probs.T, sample.labels])


def _shuffle(X: Any, j: int, order: NDArray[np.int64], repeats: int, seed: int) -> Iterator[Any]:
    """Yield copies of a table with one column shuffled."""
    for repeat in range(repeats):
        taken = np.empty_like(order)
        taken[order] = order[np.random.default_rng([seed, j, repeat]).permutation(len(order))]
        copy = X.copy()
        if hasattr(X, "iloc"):
            copy.isetitem(j, X.iloc[:, j].array.take(taken))
        else:
            copy[:, j] = X[taken, j]
        yield copy
