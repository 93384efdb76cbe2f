"""The models that ``refinecal fit --model auto`` can choose from: kinds, good parameters, other ones."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import numpy as np

from refinecal.tabular.data import Options
from refinecal.tabular.fitting import Candidate, draw_candidates
from refinecal.training.spaces import draw
from refinecal.training.trainer import DEFAULTS

PACKAGES = {  # that each kind needs, in the order of their training
    "xgboost": ("xgboost",),
    "lightgbm": ("lightgbm",),
    "extra-trees": (),
    "mlp": ("torch", "safetensors"),
    "knn": (),
    "catboost": ("catboost",),
    "logistic": (),
    "random-forest": (),
}
BOOSTING = ("xgboost", "lightgbm", "hist-gb", "catboost")
MANY_CLASSES = 8  # with more, boosting comes last: it grows a tree per class
INSTEAD = ("hist-gb", "lightgbm")  # much like each other
# Those of Holzmueller et al. (2024), "Better by Default", where the libraries' own are worse.
TUNED: dict[str, dict[str, Any]] = {
    **DEFAULTS,
    "random-forest": {"min_samples_leaf": 2},
    "lightgbm": {
        "learning_rate": 0.04,
        "num_leaves": 50,
        "bagging_freq": 1,
        "bagging_fraction": 0.75,
        "min_data_in_leaf": 40,
        "min_sum_hessian_in_leaf": 1e-7,
    },
    "catboost": {
        "learning_rate": 0.08,
        "depth": 7,
        "l2_leaf_reg": 1e-5,
        "boosting_type": "Plain",
        "bootstrap_type": "Bernoulli",
        "subsample": 0.9,
        "random_strength": 0.8,
        "one_hot_max_size": 15,
        "leaf_estimation_iterations": 1,
    },
    "mlp": {
        "n_layers": 3,
        "learning_rate": 3e-3,
        "dropout": 0.1,
        "n_frequencies": 16,
        "schedule": "cosine",
    },
}
# The second configuration of each kind, meant to differ from the first; the others are random.
SECOND: dict[str, dict[str, Any]] = {
    "xgboost": {
        "learning_rate": 0.06,
        "max_depth": 9,
        "min_child_weight": 4,
        "subsample": 0.7,
        "colsample_bynode": 0.3,
    },
    "lightgbm": {**TUNED["lightgbm"], "extra_trees": True, "num_leaves": 80, "learning_rate": 0.07},
    "catboost": {"learning_rate": 0.06, "depth": 6, "boosting_type": "Plain"},
    "hist-gb": {"learning_rate": 0.06, "max_leaf_nodes": 63, "l2_regularization": 1.0},
    "extra-trees": {"max_features": 0.7},
    "random-forest": {"max_features": 0.4, "min_samples_leaf": 3},
    "knn": {"scaling": "standard"},
    "logistic": {"scaling": "quantile"},
    "mlp": {**TUNED["mlp"], "n_frequencies": 0, "dropout": 0.25, "hidden_size": 384},
}
FAST = 0.1  # LightGBM's learning rate for many classes
SMALL = ("logistic", "knn")  # have two configurations
MORE = 6  # configurations of each kind that are tried at most if time is left
PATIENCE = {"logistic": 4}  # its last steps take longest, and are rarely the best
STEPS = {"extra-trees": 15, "random-forest": 15, "logistic": 12}  # the folds are averaged
# Of a network, whose schedule ends then: as many as it takes for so many rows, more for many classes.
EPOCHS, EPOCH_ROWS = (15, 100), 250_000
WAVES = 1000  # columns times their frequencies, at most


def installed_kinds() -> list[str]:
    """Return the kinds of models whose libraries are installed, in the order of their training."""
    kinds = [kind for kind, needed in PACKAGES.items() if all(map(find_spec, needed))]
    return kinds if INSTEAD[1] in kinds else [INSTEAD[0], *kinds]


def missing_kinds() -> list[str]:
    """Return the kinds of models whose libraries are not installed."""
    return [kind for kind, needed in PACKAGES.items() if not all(map(find_spec, needed))]


def draw_all(options: Options, shape: tuple[int, int] = (0, 0), k: int = 2) -> list[Candidate]:
    """Return the candidates: each kind with its defaults, then with others, of each kind in turn."""
    if options.model != "auto":
        return draw_candidates(options)
    rng, kinds = np.random.default_rng(options.seed), installed_kinds()
    if k > MANY_CLASSES:
        kinds.sort(key=BOOSTING.__contains__)
    n_turns = MORE if options.tune == 1 and options.time_limit is not None else options.tune

    def params(kind: str, turn: int) -> dict[str, Any]:
        found = TUNED.get(kind, {}) if turn == 0 else SECOND.get(kind, {})
        found = found if turn < 2 else draw(kind, rng, near=True)
        if kind == "lightgbm" and k > MANY_CLASSES:  # a tree per class and round: fewer rounds
            found = {**found, "learning_rate": max(FAST, found.get("learning_rate", FAST))}
        if "n_frequencies" in found:  # which take time for each column
            most = WAVES // max(1, shape[1])
            found = {**found, "n_frequencies": min(found["n_frequencies"], most)}
        return found

    steps = {"mlp": int(np.clip(EPOCH_ROWS * math.sqrt(k) / max(1, shape[0]), *EPOCHS)), **STEPS}
    return [
        Candidate(kind, params(kind, turn), turn > 0, PATIENCE.get(kind), steps.get(kind))
        for turn in range(n_turns)
        for kind in kinds
        if turn < 2 or kind not in SMALL
    ]
