"""Trees as plain arrays, and the walk down them: what scikit-learn has no file format for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._kernels.trees import add_trees
from refinecal.tabular.models._storage import Arrays, check

NODE = {  # one entry per node, all trees one behind the other
    "feature": "int32",  # -1 for a leaf
    "threshold": "float64",  # numbers up to it go left
    "left": "int32",  # counted from the first node of the tree
    "right": "int32",
    "missing_left": "uint8",  # whether NaN goes left
    "bitset": "int32",  # of a split by category, which row of bitsets goes left; else -1
    "value": "float64",  # of a leaf
}
LIKE = {name: (dtype, 1) for name, dtype in NODE.items()} | {
    "starts": ("int64", 1),  # the first node of each tree, and the number of nodes
    "bitsets": ("uint32", 2),
}
WORDS = 8  # of 32 categories each


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

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], n_features: int) -> Self:
        """Return trees that were read from a file, once it is sure that no walk leaves the arrays."""
        own = {name: np.ascontiguousarray(arrays[name]) for name in LIKE}
        starts, n = own["starts"], len(own["feature"])
        check(all(len(own[name]) == n for name in NODE), "nodes differ in number")
        check(
            len(starts) > 1 and starts[0] == 0 and starts[-1] == n, "trees do not cover the nodes"
        )
        check((np.diff(starts) > 0).all(), "a tree has no nodes")
        check(own["bitsets"].shape[1] == WORDS, "bitsets have the wrong width")
        inner = own["feature"] >= 0
        size = np.repeat(np.diff(starts), np.diff(starts))
        here = np.arange(n) - np.repeat(starts[:-1], np.diff(starts))
        for side in ("left", "right"):  # children behind their parents: every walk comes to an end
            child = own[side]
            check(((child > here) & (child < size))[inner].all(), "a node has no such child")
        check((own["feature"] < n_features).all(), "a node asks for a column that is not there")
        check((own["bitset"] < len(own["bitsets"])).all(), "a node asks for a missing bitset")
        return cls(own)

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
        """Add what trees ``first`` to ``last - 1`` say of each row to the columns of ``out`` in turn."""
        a = self.arrays
        add_trees(
            rows,
            first,
            last,
            a["starts"],
            a["feature"],
            a["threshold"],
            a["left"],
            a["right"],
            a["missing_left"],
            a["bitset"],
            a["bitsets"],
            a["value"],
            out,
        )


def _columns(nodes: NDArray[Any], offset: int) -> Arrays:
    """Return a tree's nodes in our words; its bitsets come after ``offset`` others."""
    is_leaf, is_category = nodes["is_leaf"] == 1, nodes["is_categorical"] == 1
    by_category = is_category & ~is_leaf
    return {
        "feature": np.where(is_leaf, -1, nodes["feature_idx"]),
        "threshold": nodes["num_threshold"],
        "left": nodes["left"],
        "right": nodes["right"],
        "missing_left": nodes["missing_go_to_left"],
        "bitset": np.where(by_category, nodes["bitset_idx"].astype(np.int64) + offset, -1),
        "value": nodes["value"],
    }
