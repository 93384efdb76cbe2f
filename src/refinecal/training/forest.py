"""Extra trees and random forests of scikit-learn, grown in rounds and stored as plain arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._kernels.trees import add_votes
from refinecal.training.encoding import Arrays, to_matrix
from refinecal.training.predictions import logits_of_votes
from refinecal.training.table_model import TableModel, read_npz, to_npz
from refinecal.training.trainer import TrainingRun

if TYPE_CHECKING:
    import pandas as pd

PER_ROUND = 10  # trees
NODE = {  # one entry per node, tree after tree; the left child comes right after its parent
    "feature": "int32",  # -1 for a leaf
    "threshold": "float32",  # numbers up to it go left
    "right": "int32",  # counted from the first node of the tree; of a leaf, its row of leaves
    "missing_left": "uint8",  # whether NaN goes left
}
KERNEL = ("starts", *NODE, "leaves")  # the arrays in the order of add_votes
MOST_BYTES = 30_000_000  # of one model: a forest of many rows has fewer trees


class ForestModel(TableModel):
    """Trees that vote; a step is a round of 10, and more trees are rarely worse.

    Categories are ordered by their code. No vote does not mean impossible: the shares of votes are mixed
    with the uniform ones, which count as one row next to the validation rows.
    """

    default_steps = 30
    default_patience = None
    frees_the_interpreter = True
    estimator: ClassVar[str]  # of sklearn.ensemble

    def __init__(self, trees: Votes, n_features: int, n_val: int) -> None:
        self.trees, self.n_features, self.n_val = trees, n_features, n_val
        self.n_classes = trees.arrays["leaves"].shape[1]
        self.n_steps = len(trees) // PER_ROUND

    @classmethod
    def _train(cls, run: TrainingRun) -> Self:
        from sklearn import ensemble

        params = {"random_state": run.seed, "n_jobs": run.n_threads, **run.params}
        forest = getattr(ensemble, cls.estimator)(**params, warm_start=True)
        rows, rows_val = _matrix(run.rows.X), _matrix(run.val.X)
        k, n_val = len(run.classes), len(run.val.y)
        parts = [Votes.of([], k)]

        def rounds() -> Iterator[NDArray[Any]]:
            votes = np.zeros((n_val, k))
            while sum(part.n_bytes for part in parts) < MOST_BYTES:
                n = len(forest) if run.step else 0
                forest.set_params(n_estimators=n + PER_ROUND)
                forest.fit(rows, run.rows.y, sample_weight=run.rows.weights)
                parts.append(Votes.of(forest.estimators_[n:], k))
                parts[-1].add(rows_val, 0, PER_ROUND, votes)
                yield logits_of_votes(votes, n_val)

        run.follow(rounds())
        return cls(Votes.join(parts), rows.shape[1], n_val)

    def _logits(self, X: pd.DataFrame, step: int) -> NDArray[Any]:
        return self._logits_at(X, [step])[step]

    def _logits_at(self, X: pd.DataFrame, steps: list[int]) -> dict[int, NDArray[Any]]:
        rows, first, found = _matrix(X), 0, {}
        votes = np.zeros((len(rows), self.n_classes))
        for step in steps:
            self.trees.add(rows, first, step * PER_ROUND, votes)
            found[step], first = logits_of_votes(votes, self.n_val), step * PER_ROUND
        return found

    def _to_bytes(self, step: int) -> bytes:
        sizes = {"n_features": np.array(self.n_features), "n_val": np.array(self.n_val)}
        return to_npz(self.trees.first(step * PER_ROUND).arrays | sizes)

    @classmethod
    def _load(cls, path: Path) -> Self:
        arrays = read_npz(path)
        trees = Votes({name: arrays[name] for name in KERNEL})
        return cls(trees, int(arrays["n_features"]), int(arrays["n_val"]))


class ExtraTreesModel(ForestModel):
    """Extremely randomized trees: splits at random numbers, each tree on all rows."""

    name = "extra-trees"
    estimator = "ExtraTreesClassifier"


class RandomForestModel(ForestModel):
    """A random forest: the best splits, each tree on a bootstrap sample."""

    name = "random-forest"
    estimator = "RandomForestClassifier"


@dataclass(frozen=True, slots=True)
class Votes:
    """Trees whose leaves hold shares of classes."""

    arrays: Arrays

    @classmethod
    def of(cls, trees: Sequence[Any], k: int) -> Self:
        """Copy the trees of scikit-learn."""
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in NODE}
        leaves, n_leaves = [np.empty((0, k), np.float32)], 0
        for tree in (each.tree_ for each in trees):
            is_leaf = tree.children_left < 0
            right = tree.children_right.copy()
            right[is_leaf] = n_leaves + np.arange(is_leaf.sum())
            n_leaves += int(is_leaf.sum())
            parts["feature"].append(np.where(is_leaf, -1, tree.feature))
            parts["threshold"].append(_round_down(tree.threshold))
            parts["right"].append(right)
            parts["missing_left"].append(tree.missing_go_to_left)
            leaves.append(tree.value[is_leaf, 0].astype(np.float32))
        arrays = {
            name: np.concatenate([np.empty(0), *values]).astype(NODE[name])
            for name, values in parts.items()
        }
        starts = np.cumsum([0, *(len(each) for each in parts["feature"])], dtype=np.int64)
        return cls(arrays | {"starts": starts, "leaves": np.concatenate(leaves)})

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Return the trees of all parts."""
        found: dict[str, list[NDArray[Any]]] = {name: [] for name in KERNEL}
        n_nodes = n_leaves = 0
        for each in (part.arrays for part in parts):
            is_leaf = each["feature"] < 0
            right = np.where(is_leaf, each["right"] + n_leaves, each["right"]).astype(np.int32)
            moved = {"right": right, "starts": each["starts"][:-1] + n_nodes}
            for name in KERNEL:
                found[name].append((each | moved)[name])
            n_nodes, n_leaves = n_nodes + len(right), n_leaves + len(each["leaves"])
        found["starts"].append(np.array([n_nodes], np.int64))
        return cls({name: np.concatenate(values) for name, values in found.items()})

    def __len__(self) -> int:
        return len(self.arrays["starts"]) - 1

    @property
    def n_bytes(self) -> int:
        """How much room they take."""
        return sum(each.nbytes for each in self.arrays.values())

    def first(self, n_trees: int) -> Self:
        """Return the first trees only."""
        starts = self.arrays["starts"][: n_trees + 1]
        nodes = {name: self.arrays[name][: starts[-1]] for name in NODE}
        n_leaves = int((nodes["feature"] < 0).sum())
        return type(self)(nodes | {"starts": starts, "leaves": self.arrays["leaves"][:n_leaves]})

    def add(self, rows: NDArray[np.float32], first: int, last: int, out: NDArray[Any]) -> None:
        """Add the shares of trees ``first`` to ``last - 1`` to ``out``."""
        add_votes(rows, first, last, *(self.arrays[name] for name in KERNEL), out)


def _round_down(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the largest float32 up to each threshold: columns are float32, so nothing changes sides."""
    rounded = thresholds.astype(np.float32)
    below = np.nextafter(rounded, np.float32(-np.inf))
    return np.where(rounded > thresholds, below, rounded)


def _matrix(X: pd.DataFrame) -> NDArray[np.float32]:
    return to_matrix(X).astype(np.float32)
