"""Histogram gradient boosting of scikit-learn, with its own default parameters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal.tabular.models import FILES
from refinecal.tabular.models._base import Job, TableModel
from refinecal.tabular.models._inputs import (
    category_mask,
    most_frequent,
    positions_in,
    to_codes,
    to_numbers,
)
from refinecal.tabular.models._storage import check, explain_read_errors, read_npz, to_npz
from refinecal.tabular.models._trees import LIKE as TREES_LIKE
from refinecal.tabular.models._trees import Trees

if TYPE_CHECKING:
    import pandas as pd

FIRST_ROUNDS = 16  # before the first look,
GROWTH = 1.5  # and by how much training goes on from there: a look costs a pass over all trees
MOST_CATEGORIES = 254  # of a column: scikit-learn has 255 bins; the others count as missing
LIKE = TREES_LIKE | {
    "is_category": ("bool", 1),
    "codes": ("int64", 1),  # of all categorical columns, one behind the other
    "code_starts": ("int64", 1),
    "baseline": ("float64", 1),
}


class HistGradientBoostingModel(TableModel):
    """Boosted trees of scikit-learn; a step is a round, saved as plain arrays.

    Columns of categories come first, numbered 0, 1, 2... by the codes seen in training, so that
    scikit-learn's own numbering changes nothing and trees speak of the very columns that they are given.
    """

    name = "hist-gb"
    file_name = FILES[name]

    def __init__(
        self,
        trees: Trees,
        baseline: NDArray[np.float64],
        is_category: NDArray[np.bool_],
        known: list[NDArray[np.int64]],
    ) -> None:
        self.trees, self.baseline = trees, baseline
        self.is_category, self.known = is_category, known
        self.n_classes = max(2, len(baseline))
        self.n_features = len(is_category)
        self.n_steps = len(trees) // len(baseline)

    @classmethod
    def _train(cls, job: Job) -> Self:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # of scikit-learn

        mask = category_mask(job.X)
        codes = [to_codes(job.X.iloc[:, j]) for j in np.flatnonzero(mask)]
        known = [most_frequent(each, MOST_CATEGORIES) for each in codes]
        rows, rows_val = _rows(job.X, mask, known), _rows(job.X_val, mask, known)
        rows[:, np.isnan(rows).all(axis=0)] = (
            0.0  # nothing to split either way, but no special case
        )
        with threadpool_limits(job.n_threads):
            trees, baseline = _grow(job, rows, rows_val, len(known))
        return cls(trees, baseline, mask, known)

    def _logits(self, X: pd.DataFrame, step: int) -> NDArray[Any]:
        rows = _rows(X, self.is_category, self.known)
        out = np.tile(self.baseline, (len(rows), 1))
        self.trees.add(rows, 0, step * len(self.baseline), out)
        return _to_logits(out)

    def _to_bytes(self, step: int) -> bytes:
        own = {
            "is_category": self.is_category,
            "codes": np.concatenate([np.empty(0, np.int64), *self.known]),
            "code_starts": np.cumsum([0, *map(len, self.known)], dtype=np.int64),
            "baseline": self.baseline,
        }
        return to_npz(self.trees.first(step * len(self.baseline)).arrays | own)

    @classmethod
    def _load(cls, path: Path) -> Self:
        with explain_read_errors(path, "a model of hist-gb"):
            arrays = read_npz(path, LIKE)
            mask, baseline = arrays["is_category"], arrays["baseline"]
            starts, codes = arrays["code_starts"], arrays["codes"]
            check(len(starts) == mask.sum() + 1, "the number of categorical columns differs")
            check(starts[0] == 0 and starts[-1] == len(codes), "codes are missing")
            check((np.diff(starts) >= 0).all(), "codes are in disorder")
            known = np.split(codes, starts[1:-1]) if mask.any() else []
            check(all((np.diff(each) > 0).all() for each in known), "codes are in disorder")
            trees = Trees.from_arrays(arrays, len(mask))
            check(len(baseline) and len(trees) % len(baseline) == 0, "rounds are not whole")
        return cls(trees, baseline, mask, known)


def _grow(
    job: Job, rows: NDArray[Any], rows_val: NDArray[Any], n_categories: int
) -> tuple[Trees, NDArray[np.float64]]:
    """Train in runs of growing length, look at each round of a run; return trees and baseline."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    categories = {"categorical_features": np.arange(n_categories)} if n_categories else {}
    estimator = HistGradientBoostingClassifier(
        **{"random_state": job.seed, **job.params},
        **categories,
        early_stopping=False,
        warm_start=True,
    )
    length, step, goes_on = min(FIRST_ROUNDS, job.max_steps), 0, True
    while True:
        estimator.set_params(max_iter=length).fit(rows, job.y, sample_weight=job.weights)
        trees = Trees.of([tree for one_round in estimator._predictors for tree in one_round])
        baseline = np.asarray(estimator._baseline_prediction, np.float64).reshape(-1)
        if step == 0:
            out, k = np.tile(baseline, (len(rows_val), 1)), len(baseline)
        while goes_on and step < length:
            trees.add(rows_val, step * k, (step + 1) * k, out)
            step += 1
            goes_on = job.show(_to_logits(out), step)
        if not goes_on or length >= job.max_steps:
            # Rounds that nobody has looked at are left out.
            return trees.first(step * k), baseline
        length = min(int(length * GROWTH), job.max_steps)


def _rows(
    X: pd.DataFrame, mask: NDArray[np.bool_], known: list[NDArray[np.int64]]
) -> NDArray[np.float64]:
    """Return categories by their number among those known, then numbers; NaN where missing."""
    rows = np.empty(X.shape, dtype=np.float64)
    columns, numbers = np.flatnonzero(mask), np.flatnonzero(~mask)
    for i, (j, codes) in enumerate(zip(columns, known, strict=True)):
        places = positions_in(codes, to_codes(X.iloc[:, j]))
        rows[:, i] = np.where(places < 0, np.nan, places)
    for i, j in enumerate(numbers, start=len(columns)):
        rows[:, i] = to_numbers(X.iloc[:, j])
    return rows


def _to_logits(out: NDArray[Any]) -> NDArray[Any]:
    """Return a copy in the form of logits: one column of log-odds is flat."""
    return out[:, 0].copy() if out.shape[1] == 1 else out.copy()
