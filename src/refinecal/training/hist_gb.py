"""Histogram gradient boosting of scikit-learn, with its own default parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._kernels.trees import add_trees
from refinecal.training.encoding import (
    Arrays,
    category_mask,
    code_positions,
    learn_codes,
    number_columns,
)
from refinecal.training.table_model import TableModel, read_npz, to_npz
from refinecal.training.trainer import TrainingRun

if TYPE_CHECKING:
    import pandas as pd

NODE = {  # one entry per node, tree after tree
    "feature": "int32",  # -1 for a leaf
    "threshold": "float64",  # numbers up to it go left
    "left": "int32",  # counted from the first node of the tree
    "right": "int32",
    "missing_left": "uint8",  # whether NaN goes left
    "bitset": "int32",  # of a split by category, which row of bitsets goes left; else -1
    "value": "float64",  # of a leaf
}
KERNEL = (  # the arrays in the order of add_trees
    *("starts", "feature", "threshold", "left", "right", "missing_left"),
    *("bitset", "bitsets", "value"),
)
WORDS = 8  # of 32 categories each, in a bitset
FIRST_ROUNDS = 16  # before the first look,
GROWTH = 1.5  # then the number of rounds grows by this factor: a look costs a pass over all trees
MOST_CATEGORIES = 254  # of a column: scikit-learn has 255 bins; the others count as missing


class HistGradientBoostingModel(TableModel):
    """Boosted trees of scikit-learn; a step is a round, saved as plain arrays.

    Columns of categories come first, numbered 0, 1, 2... by the codes seen in training, so that
    scikit-learn's own numbering changes nothing and trees refer to the columns that they are given.
    """

    name = "hist-gb"

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
    def _train(cls, run: TrainingRun) -> Self:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # of scikit-learn

        mask = category_mask(run.rows.X)
        known = learn_codes(run.rows.X, mask, MOST_CATEGORIES)
        rows, rows_val = _rows(run.rows.X, mask, known), _rows(run.val.X, mask, known)
        rows[:, np.isnan(rows).all(axis=0)] = 0.0  # nothing to split either way: no special case
        with threadpool_limits(run.n_threads):
            trees, baseline = _grow(run, rows, rows_val, len(known))
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
        arrays = read_npz(path)
        mask, baseline = arrays["is_category"], arrays["baseline"]
        known = np.split(arrays["codes"], arrays["code_starts"][1:-1]) if mask.any() else []
        trees = Trees({name: arrays[name] for name in (*NODE, "starts", "bitsets")})
        return cls(trees, baseline, mask, known)


@dataclass(frozen=True, slots=True)
class Trees:
    """Trees of scikit-learn's histogram gradient boosting, round by round, class by class."""

    arrays: Arrays

    @classmethod
    def of(cls, predictors: Sequence[Any]) -> Self:
        """Copy the trees of scikit-learn, given in order."""
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in NODE}
        bitsets: list[NDArray[Any]] = [np.empty((0, WORDS), np.uint32)]
        for tree in predictors:
            offset = sum(map(len, bitsets))
            for name, values in _columns(tree.nodes, offset).items():
                parts[name].append(values.astype(NODE[name]))
            bitsets.append(tree.raw_left_cat_bitsets)
        arrays = {name: np.concatenate(values) for name, values in parts.items()}
        sizes = [len(tree.nodes) for tree in predictors]
        arrays["starts"] = np.cumsum([0, *sizes], dtype=np.int64)
        arrays["bitsets"] = np.ascontiguousarray(np.concatenate(bitsets), dtype=np.uint32)
        return cls(arrays)

    def __len__(self) -> int:
        return len(self.arrays["starts"]) - 1

    def first(self, n_trees: int) -> Self:
        """Return the first trees only."""
        end = self.arrays["starts"][n_trees]
        nodes = {name: self.arrays[name][:end] for name in NODE}
        rows = int(nodes["bitset"].max(initial=-1)) + 1  # in the order of the nodes' trees
        starts = self.arrays["starts"][: n_trees + 1]
        return type(self)(nodes | {"starts": starts, "bitsets": self.arrays["bitsets"][:rows]})

    def add(self, rows: NDArray[np.float64], first: int, last: int, out: NDArray[Any]) -> None:
        """Add the values of trees ``first`` to ``last - 1`` to the columns of ``out`` in turn."""
        add_trees(rows, first, last, *(self.arrays[name] for name in KERNEL), out)


def _columns(nodes: NDArray[Any], offset: int) -> Arrays:
    """Return a tree's nodes under our names; its bitsets come after ``offset`` others."""
    is_leaf = nodes["is_leaf"] == 1
    by_category = (nodes["is_categorical"] == 1) & ~is_leaf
    return {
        "feature": np.where(is_leaf, -1, nodes["feature_idx"]),
        "threshold": nodes["num_threshold"],
        "left": nodes["left"],
        "right": nodes["right"],
        "missing_left": nodes["missing_go_to_left"],
        "bitset": np.where(by_category, nodes["bitset_idx"].astype(np.int64) + offset, -1),
        "value": nodes["value"],
    }


def _grow(
    run: TrainingRun, rows: NDArray[Any], rows_val: NDArray[Any], n_categories: int
) -> tuple[Trees, NDArray[np.float64]]:
    """Train to growing lengths; return the trees of the rounds that were shown, and the baseline."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    categories = {"categorical_features": np.arange(n_categories)} if n_categories else {}
    estimator = HistGradientBoostingClassifier(
        **{"random_state": run.seed, **run.params},
        **categories,
        early_stopping=False,
        warm_start=True,
    )
    trees, baseline = Trees({}), np.empty(0)
    out = np.empty((0, 0))

    def fit_to(length: int) -> Iterator[NDArray[Any]]:
        nonlocal trees, baseline, out
        estimator.set_params(max_iter=length).fit(rows, run.rows.y, sample_weight=run.rows.weights)
        trees = Trees.of([tree for one_round in estimator._predictors for tree in one_round])
        baseline = np.asarray(estimator._baseline_prediction, np.float64).reshape(-1)
        k = len(baseline)
        if run.step == 0:
            out = np.tile(baseline, (len(rows_val), 1))
        while run.step < length:
            trees.add(rows_val, run.step * k, (run.step + 1) * k, out)
            yield _to_logits(out)

    run.grow(fit_to, FIRST_ROUNDS, GROWTH)
    return trees.first(run.step * len(baseline)), baseline


def _rows(
    X: pd.DataFrame, mask: NDArray[np.bool_], known: list[NDArray[np.int64]]
) -> NDArray[np.float64]:
    """Return categories by their number among those known, then numbers; NaN where missing."""
    places = code_positions(X, mask, known)
    return np.concatenate([np.where(places < 0, np.nan, places), number_columns(X, mask)], axis=1)


def _to_logits(out: NDArray[Any]) -> NDArray[Any]:
    """Return a copy in the form of logits: one column of log-odds is flat."""
    return out[:, 0].copy() if out.shape[1] == 1 else out.copy()
