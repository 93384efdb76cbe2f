"""Models in the formats of XGBoost and LightGBM: checked before those libraries walk their trees.

They believe what a file says of children, columns and categories: a wrong number ends the process, or keeps
it busy for ever. So the file is read here first, and must be such as they write themselves. Fields that play
no part in predictions are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal.tabular.models._storage import Arrays, check, read_ubjson

Tree = Mapping[str, Any]

XGBOOST_NODE = {  # one entry per node
    "left_children": "i4",
    "right_children": "i4",
    "parents": "i4",
    "split_indices": "i4",
    "split_type": "u1",  # 1 for a split by category
    "default_left": "u1",
    "split_conditions": "f4",  # the value of a leaf
    "base_weights": "f4",
    "loss_changes": "f4",
    "sum_hessian": "f4",
}
XGBOOST_SPLIT = {  # one entry per split by category
    "categories_nodes": "i4",
    "categories_segments": "i8",
    "categories_sizes": "i8",
}
XGBOOST_CATEGORY = {"categories": "i4"}
SEVERAL = {"binary:logistic": False, "multi:softprob": True}
MOST_CATEGORIES = 2**24  # of XGBoost

LIGHTGBM_NODE = ("left_child", "right_child", "split_feature", "decision_type", "threshold")
MOST_LINES = 22  # that LightGBM reads of a tree
BY_CATEGORY = 1  # a bit of decision_type


# ---- XGBoost ----------------------------------------------------------------------------------------------


def check_xgboost(data: bytes) -> int:
    """Complain of a model that XGBoost cannot walk in safety; return the number of classes."""
    learner = read_ubjson(data)["learner"]
    booster, kinds = learner["gradient_booster"], learner["feature_types"]
    n_features, n_classes = _xgboost_sizes(learner["learner_model_param"], learner["objective"])
    check(kinds, "it does not say what its columns are")
    check(len(kinds) == n_features and {*kinds} <= {"q", "c"}, "its columns are of unknown kinds")
    check(len(learner["feature_names"]) in (0, n_features), "its columns have too few names")
    check(booster["name"] == "gbtree", f"its booster is {booster['name']!r}, not 'gbtree'")
    _check_rounds(booster["model"], 1 if n_classes == 2 else n_classes)
    _check_xgboost_trees(booster["model"]["trees"], n_features)
    return n_classes


def _xgboost_sizes(own: Tree, goal: Tree) -> tuple[int, int]:
    """Return the numbers of columns and classes."""
    objective = goal["name"]
    n_features, n_classes = _whole(own["num_feature"]), _whole(own["num_class"])
    check(objective in SEVERAL, f"its objective is {objective!r}, not one of {', '.join(SEVERAL)}")
    # With num_class 2, multi:softprob has two columns of logits, which is not what we train.
    right = n_classes > 2 if SEVERAL[objective] else n_classes == 0
    check(right, f"its objective is {objective!r} and num_class {n_classes}")
    if SEVERAL[objective]:
        check(goal["softmax_multiclass_param"]["num_class"] == str(n_classes), "num_class differs")
    check(own.get("num_target", "1") == "1", "it has several targets")
    base = _floats([own["base_score"].strip("[]").replace(",", " ")])
    check(len(base) in (1, n_classes), f"it has {len(base)} base scores")
    return n_features, n_classes or 2


def _check_rounds(model: Tree, per_round: int) -> None:
    own, n = model["gbtree_model_param"], len(model["trees"])
    check(n, "it holds no trees")
    check(n == _whole(own["num_trees"]) and n % per_round == 0, f"{n} trees are not whole rounds")
    check(own["num_parallel_tree"] == "1", "a class has several trees in a round")
    order = {
        "tree_info": (model["tree_info"], np.arange(n) % per_round),
        "iteration_indptr": (model["iteration_indptr"], np.arange(0, n + 1, per_round)),
        "id": ([tree["id"] for tree in model["trees"]], np.arange(n)),
    }
    for name, (found, expected) in order.items():
        check(found == expected.tolist(), f"{name} is wrong")
    # We train on codes, so that XGBoost never learns the names of categories.
    check(not any(map(len, model.get("cats", {}).values())), "it names its categories")


def _check_xgboost_trees(trees: Sequence[Tree], n_features: int) -> None:
    nodes = _joined(trees, XGBOOST_NODE)
    sizes = _lengths(trees, XGBOOST_NODE)
    own = [tree["tree_param"] for tree in trees]
    check(np.array_equal([_whole(a["num_nodes"]) for a in own], sizes), "num_nodes is wrong")
    check({_whole(a["num_feature"]) for a in own} == {n_features}, "num_feature differs by tree")
    check({a["size_leaf_vector"] for a in own} <= {"0", "1"}, "a leaf has several values")
    is_leaf = nodes["left_children"] == -1
    check((nodes["right_children"][is_leaf] == -1).all(), "a leaf has a child")
    check(
        np.isfinite(nodes["split_conditions"][is_leaf]).all(), "the value of a leaf is not finite"
    )
    _check_columns(nodes["split_indices"][~is_leaf], n_features)
    _check_xgboost_children(nodes, sizes, ~is_leaf)
    _check_xgboost_categories(trees, nodes["split_type"], sizes)


def _check_xgboost_children(nodes: Arrays, sizes: NDArray[Any], inner: NDArray[Any]) -> None:
    starts, here = _places(sizes)
    children = [nodes[side].astype(np.int64)[inner] for side in ("left_children", "right_children")]
    for child in children:
        _check_behind(child, here[inner], np.repeat(sizes, sizes)[inner])
        parents = nodes["parents"][starts[inner] + child]
        check((parents == here[inner]).all(), "a node and its parent disagree")
    _check_once(np.concatenate([starts[inner] + child for child in children]))


def _check_xgboost_categories(
    trees: Sequence[Tree], split_type: NDArray[Any], sizes: NDArray[Any]
) -> None:
    splits, counts = _joined(trees, XGBOOST_SPLIT), _lengths(trees, XGBOOST_SPLIT)
    node = splits["categories_nodes"].astype(np.int64)
    check((split_type <= 1).all(), "a split is of an unknown kind")
    check(((node >= 0) & (node < np.repeat(sizes, counts))).all(), "a split has no node")
    starts = np.repeat(np.cumsum(sizes) - sizes, counts)
    check(
        np.array_equal(starts + node, np.flatnonzero(split_type)),
        "splits by category and their nodes disagree",
    )
    begin, size = splits["categories_segments"], splits["categories_sizes"]
    last = np.repeat(_lengths(trees, XGBOOST_CATEGORY), counts) - size
    check(((size > 0) & (begin >= 0) & (begin <= last)).all(), "a split has no such categories")
    codes = _joined(trees, XGBOOST_CATEGORY)["categories"]
    check(((codes >= 0) & (codes < MOST_CATEGORIES)).all(), "a category is out of range")


def _joined(trees: Sequence[Tree], like: Mapping[str, str]) -> Arrays:
    """Return the arrays of all trees one behind the other, once they are of the right type."""
    arrays = {}
    for name, dtype in like.items():
        parts, expected = [tree[name] for tree in trees], np.dtype(dtype).newbyteorder(">")
        check(
            all(isinstance(a, np.ndarray) and a.dtype == expected for a in parts),
            f"{name} is of another type",
        )
        arrays[name] = np.concatenate(parts).astype(dtype)
    return arrays


def _lengths(trees: Sequence[Tree], names: Mapping[str, str]) -> NDArray[np.int64]:
    """Return the length that all these arrays of a tree share."""
    first, *others = [np.array([len(tree[name]) for tree in trees]) for name in names]
    same = all(np.array_equal(first, other) for other in others)
    check(same, f"{', '.join(names)} differ in length")
    return first


# ---- LightGBM ---------------------------------------------------------------------------------------------


def check_lightgbm(text: str) -> str:
    """Complain of a model that LightGBM cannot walk in safety; return the part that predicts."""
    check(text.startswith("tree\n"), "it does not begin with the word tree")
    check("\nend of trees\n" in text, "its end is missing")
    check(not re.search(r"[^\n -~]", text), "it has characters that are not of a text")
    found = re.search(r"^Tree=", text, re.MULTILINE)
    check(found, "it holds no trees")
    start = found.start() if found else 0
    head = _lightgbm_head(text[:start])
    sizes = [_whole(size) for size in head["tree_sizes"].split(" ")]
    ends = start + np.cumsum(sizes)
    check(text.startswith("end of trees\n", int(ends[-1])), "tree_sizes and the trees disagree")
    n_features, per_round = _lightgbm_sizes(head)
    check(len(sizes) % per_round == 0, f"{len(sizes)} trees are not whole rounds")
    trees = [
        _lightgbm_tree(text[end - size : end], i)
        for i, (size, end) in enumerate(zip(sizes, ends.tolist(), strict=True))
    ]
    _check_lightgbm_trees(trees, n_features)
    return text[: int(ends[-1])] + "end of trees\n"


def _lightgbm_head(text: str) -> dict[str, str]:
    lines = [line for line in text.split("\n")[1:] if line]
    fields = [re.fullmatch("([a-z_]+)=([^=]*)", line) for line in lines]
    head = {field[1]: field[2] for field in fields if field}
    check(len(head) == len(lines), "its head has lines without a name, or twice the same")
    return head


def _lightgbm_sizes(head: Mapping[str, str]) -> tuple[int, int]:
    """Return the numbers of columns and of trees in a round."""
    n_features, n_classes = _whole(head["max_feature_idx"]) + 1, _whole(head["num_class"])
    objective = head["objective"].split(" ")
    binary = n_classes == 1 and objective[0] == "binary"
    several = n_classes > 2 and objective == ["multiclass", f"num_class:{n_classes}"]
    check(binary or several, f"its objective is {head['objective']!r} and num_class {n_classes}")
    per_round = _whole(head["num_tree_per_iteration"])
    check(per_round == n_classes, f"a round has {per_round} trees instead of {n_classes}")
    for name in ("feature_names", "feature_infos"):
        check(_count(head[name]) == n_features, f"{name} has not {n_features} entries")
    return n_features, per_round


def _lightgbm_tree(text: str, number: int) -> dict[str, str]:
    body, _, rest = text.partition("\n\n")
    first, *lines = body.split("\n")
    check(first == f"Tree={number}", f"tree {number} is not where tree_sizes says")
    check(rest.strip("\n") == "" and lines, f"tree {number} is cut")
    pairs = [line.split("=") for line in lines]
    check(all(len(pair) == 2 for pair in pairs), f"tree {number} has lines without a name")
    tree = dict(pairs)
    check(len(tree) == len(lines) <= MOST_LINES, f"tree {number} has too many lines")
    check(tree.get("is_linear", "0") == "0", "its leaves are linear models")
    return tree


def _check_lightgbm_trees(trees: Sequence[Mapping[str, str]], n_features: int) -> None:
    n_leaves = np.array([_whole(tree["num_leaves"]) for tree in trees])
    n_splits = np.array([_whole(tree["num_cat"]) for tree in trees])
    check((n_leaves > 0).all(), "a tree has no leaf")
    sizes = n_leaves - 1
    _floats(_column(trees, "leaf_value", n_leaves))
    texts = {name: _column(trees, name, sizes) for name in LIGHTGBM_NODE}
    # A split that only tells missing values from others has the threshold inf.
    threshold = np.array(_entries(texts.pop("threshold"), "-+.0-9einf", float))
    nodes = {name: _integers(values) for name, values in texts.items()}
    _check_columns(nodes["split_feature"], n_features)
    _check_lightgbm_children(nodes, sizes)
    kind = nodes["decision_type"]
    check(((kind >= 0) & (kind < 16)).all(), "a split is of an unknown kind")
    has_set = (threshold >= 0) & (threshold < np.repeat(n_splits, sizes))
    check(has_set[kind & BY_CATEGORY == 1].all(), "a split has no such categories")
    _check_lightgbm_categories(trees, n_splits)


def _check_lightgbm_children(nodes: Arrays, sizes: NDArray[Any]) -> None:
    """A child is a node, or the complement of the number of a leaf, of which there is one more."""
    starts, here = _places(sizes)
    first_leaf = starts + np.repeat(np.arange(len(sizes)), sizes)
    room = np.repeat(sizes, sizes)
    inner, leaves = [], []
    for child in (nodes["left_child"], nodes["right_child"]):
        is_leaf = child < 0
        check((~child <= room)[is_leaf].all(), "a node has no such leaf")
        _check_behind(child[~is_leaf], here[~is_leaf], room[~is_leaf])
        inner.append((starts + child)[~is_leaf])
        leaves.append((first_leaf + ~child)[is_leaf])
    _check_once(np.concatenate(inner))
    _check_once(np.concatenate(leaves))


def _check_lightgbm_categories(trees: Sequence[Mapping[str, str]], n_splits: NDArray[Any]) -> None:
    some = [tree for tree, n in zip(trees, n_splits, strict=True) if n > 0]
    n = n_splits[n_splits > 0] + 1
    bounds = _integers(_column(some, "cat_boundaries", n))
    _, here = _places(n)
    check((bounds[here == 0] == 0).all(), "cat_boundaries does not begin with 0")
    check((np.diff(bounds)[here[1:] > 0] > 0).all(), "cat_boundaries does not rise")
    words = _integers(_column(some, "cat_threshold", bounds[np.cumsum(n) - 1]))
    check(((words >= 0) & (words < 2**32)).all(), "cat_threshold is out of range")


def _column(trees: Sequence[Mapping[str, str]], name: str, sizes: NDArray[Any]) -> list[str]:
    """Return a line of each tree, once it has the right number of entries."""
    values = [tree[name] for tree in trees]
    check(np.array_equal([_count(value) for value in values], sizes), f"{name} has another length")
    return [value for value in values if value]


def _count(text: str) -> int:
    return text.count(" ") + 1 if text else 0


# ---- both -------------------------------------------------------------------------------------------------


def _places(sizes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each node where its tree begins, and its number in the tree."""
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    return starts, np.arange(len(starts)) - starts


def _check_behind(child: NDArray[Any], here: NDArray[Any], size: NDArray[Any]) -> None:
    # Children behind their parents: every walk comes to an end.
    check(((child > here) & (child < size)).all(), "a node has no such child")


def _check_once(reached: NDArray[Any]) -> None:
    check(np.bincount(reached).max(initial=0) <= 1, "two nodes have the same child")


def _check_columns(column: NDArray[Any], n_features: int) -> None:
    check(
        ((column >= 0) & (column < n_features)).all(),
        "a node asks for a column that is not there",
    )


def _whole(text: str) -> int:
    check(re.fullmatch("[0-9]{1,9}", text), f"{text[:30]!r} is no whole number in range")
    return int(text)


def _integers(texts: Sequence[str]) -> NDArray[np.int64]:
    return np.array(_entries(texts, "-0-9", int), np.int64)


def _floats(texts: Sequence[str]) -> NDArray[np.float64]:
    values = np.array(_entries(texts, "-+.0-9eE", float))
    check(np.isfinite(values).all(), "a number is not finite")
    return values


def _entries(texts: Sequence[str], characters: str, of: type) -> list[Any]:
    """Return the entries between single spaces."""
    joined = " ".join(texts)
    check(re.fullmatch(f"[{characters} ]*", joined), f"{joined[:30]!r} ... are not all numbers")
    return list(map(of, joined.split(" "))) if texts else []
