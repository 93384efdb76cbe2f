"""Where ``refinecal fit --tune`` looks for hyper-parameters: random search, one space per model.

The spaces of XGBoost, the MLP and RealMLP are the paper's (its appendix F). The paper has none for
the other models. Theirs are our choice: the ranges of XGBoost in the words of each library, with a number of
leaves where trees grow by leaves, and narrower where a library is slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from refinecal._core.errors import fail_choice

__all__ = ["draw"]

Draw = Callable[[np.random.Generator], Any]


def draw(name: str, rng: np.random.Generator, near: bool = False) -> dict[str, Any]:
    """Return random parameters of a model, for ``train``; if ``near``, from narrower spaces.

    >>> sorted(draw("mlp", np.random.default_rng(0)))
    ['dropout', 'learning_rate', 'weight_decay']
    """
    if name not in SPACES:
        fail_choice("model", name, list(SPACES), "left out")
    space = NEAR.get(name, SPACES[name]) if near else SPACES[name]
    return {parameter: draw_one(rng) for parameter, draw_one in space.items()}


def _uniform(low: float, high: float) -> Draw:
    return lambda rng: float(rng.uniform(low, high))


def _integer(low: int, high: int) -> Draw:
    return lambda rng: int(rng.integers(low, high))


def _log_uniform(low: float, high: float) -> Draw:
    return lambda rng: float(np.exp(rng.uniform(math.log(low), math.log(high))))


def _log_integer(low: float, high: float) -> Draw:
    """Draw a log-uniform number, rounded: 0 is common if ``low`` is less than a half."""
    return lambda rng: round(_log_uniform(low, high)(rng))


def _choice(*values: Any) -> Draw:
    return lambda rng: values[int(rng.integers(len(values)))]


def _weighted(values: list[Any], probs: list[float] | None = None) -> Draw:
    return lambda rng: values[int(rng.choice(len(values), p=probs))]


SPACES: dict[str, dict[str, Draw]] = {
    "xgboost": {
        "max_depth": _integer(1, 12),
        "learning_rate": _log_uniform(1e-3, 0.7),
        "subsample": _uniform(0.5, 1),
        "colsample_bytree": _uniform(0.5, 1),
        "colsample_bylevel": _uniform(0.5, 1),
        "min_child_weight": _log_integer(1e-5, 100),
        "alpha": _log_uniform(1e-5, 5),
        "lambda": _log_uniform(1e-5, 5),
        "gamma": _log_uniform(1e-5, 5),
    },
    "lightgbm": {
        "num_leaves": _log_integer(4, 256),
        "learning_rate": _log_uniform(1e-3, 0.7),
        "bagging_freq": lambda rng: 1,  # without which bagging_fraction has no effect
        "bagging_fraction": _uniform(0.5, 1),
        "feature_fraction": _uniform(0.5, 1),
        "min_data_in_leaf": _log_integer(1, 100),
        "lambda_l1": _log_uniform(1e-5, 5),
        "lambda_l2": _log_uniform(1e-5, 5),
        "min_gain_to_split": _log_uniform(1e-5, 5),
    },
    "catboost": {
        "depth": _integer(2, 9),  # symmetric trees: time and memory double with each level
        "learning_rate": _log_uniform(1e-2, 0.5),
        "l2_leaf_reg": _log_uniform(0.1, 30),  # around CatBoost's 3
        "random_strength": _log_uniform(0.01, 10),  # around CatBoost's 1
        "rsm": _uniform(0.5, 1),
        "bagging_temperature": _uniform(0, 1),
    },
    "hist-gb": {
        "max_leaf_nodes": _log_integer(4, 256),
        "learning_rate": _log_uniform(1e-3, 0.7),
        "max_features": _uniform(0.5, 1),
        "min_samples_leaf": _log_integer(1, 100),
        "l2_regularization": _log_uniform(1e-5, 5),
    },
    "extra-trees": {
        "min_samples_leaf": _log_integer(1, 20),
        "max_features": _uniform(0.1, 1),
    },
    "random-forest": {
        "min_samples_leaf": _log_integer(1, 20),
        "max_features": _uniform(0.1, 0.8),
    },
    "knn": {"scaling": _choice("standard", "quantile")},  # steps go through the sizes
    "logistic": {"scaling": _choice("standard", "quantile")},  # steps go through the penalties
    "mlp": {
        "learning_rate": _log_uniform(1e-4, 1e-2),
        "dropout": _choice(0.0, 0.1, 0.2, 0.3),
        "weight_decay": _choice(0.0, 1e-5, 1e-4, 1e-3),
    },
    "realmlp": {
        "num_emb_type": _weighted(["none", "pbld", "pl", "plr"]),
        "add_front_scale": _weighted([True, False], [0.6, 0.4]),
        "lr": _log_uniform(2e-2, 3e-1),
        "p_drop": _weighted([0.0, 0.15, 0.3], [0.3, 0.5, 0.2]),
        "act": _weighted(["relu", "selu", "mish"]),
        "hidden_sizes": _weighted([[256] * 3, [64] * 5, [512]], [0.6, 0.2, 0.2]),
        "wd": _weighted([0.0, 2e-3, 2e-2]),
        "plr_sigma": _log_uniform(0.05, 0.5),
        "ls_eps": _weighted([0.0, 0.1]),
    },
}
# Around good parameters, quick to train: for the members of an ensemble, which should differ and none be bad.
NEAR: dict[str, dict[str, Draw]] = {
    "xgboost": {
        "max_depth": _integer(4, 10),
        "learning_rate": _log_uniform(0.05, 0.15),
        "subsample": _uniform(0.6, 1),
        "colsample_bynode": _uniform(0.3, 0.9),
        "min_child_weight": _log_integer(0.6, 20),
        "lambda": _log_uniform(0.1, 10),
    },
    "lightgbm": {
        "num_leaves": _log_integer(15, 128),
        "learning_rate": _log_uniform(0.03, 0.1),
        "bagging_freq": lambda rng: 1,
        "bagging_fraction": _uniform(0.6, 1),
        "feature_fraction": _uniform(0.4, 1),
        "min_data_in_leaf": _log_integer(4, 80),
        "extra_trees": _choice(False, True),
    },
    "catboost": {
        "depth": _integer(5, 9),
        "learning_rate": _log_uniform(0.05, 0.15),
        "l2_leaf_reg": _log_uniform(1e-4, 10),
        "random_strength": _log_uniform(0.3, 3),
        "boosting_type": lambda rng: "Plain",
    },
    "hist-gb": {
        "max_leaf_nodes": _log_integer(15, 128),
        "learning_rate": _log_uniform(0.04, 0.15),
        "max_features": _uniform(0.4, 1),
        "min_samples_leaf": _log_integer(4, 80),
        "l2_regularization": _log_uniform(0.01, 10),
    },
    "extra-trees": {"min_samples_leaf": _log_integer(0.6, 5), "max_features": _uniform(0.3, 1)},
    "random-forest": {"min_samples_leaf": _log_integer(0.6, 5), "max_features": _uniform(0.2, 0.7)},
    "mlp": {
        "n_layers": _integer(2, 5),
        "hidden_size": _choice(192, 256, 320),
        "learning_rate": _log_uniform(1e-3, 5e-3),
        "dropout": _uniform(0, 0.3),
        "weight_decay": _choice(0.0, 1e-2),
        "n_frequencies": _choice(0, 16, 32),
        "schedule": lambda rng: "cosine",
    },
}
