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

Params = dict[str, Any]


def draw(name: str, rng: np.random.Generator) -> Params:
    """Return random parameters of a model, for ``train``.

    >>> sorted(draw("mlp", np.random.default_rng(0)))
    ['dropout', 'learning_rate', 'weight_decay']
    """
    if name not in SPACES:
        fail_choice("model", name, list(SPACES), "left out")
    return SPACES[name](rng)


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def _log_integer(rng: np.random.Generator, low: float, high: float) -> int:
    """Return a log-uniform number, rounded: 0 is common if ``low`` is less than a half."""
    return round(_log_uniform(rng, low, high))


def _choice(rng: np.random.Generator, *values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def _weighted(rng: np.random.Generator, values: list[Any], probs: list[float] | None = None) -> Any:
    return values[int(rng.choice(len(values), p=probs))]


def _xgboost(rng: np.random.Generator) -> Params:
    return {
        "max_depth": int(rng.integers(1, 12)),
        "learning_rate": _log_uniform(rng, 1e-3, 0.7),
        "subsample": float(rng.uniform(0.5, 1)),
        "colsample_bytree": float(rng.uniform(0.5, 1)),
        "colsample_bylevel": float(rng.uniform(0.5, 1)),
        "min_child_weight": _log_integer(rng, 1e-5, 100),
        "alpha": _log_uniform(rng, 1e-5, 5),
        "lambda": _log_uniform(rng, 1e-5, 5),
        "gamma": _log_uniform(rng, 1e-5, 5),
    }


def _lightgbm(rng: np.random.Generator) -> Params:
    return {
        "num_leaves": _log_integer(rng, 4, 256),
        "learning_rate": _log_uniform(rng, 1e-3, 0.7),
        "bagging_freq": 1,  # without which bagging_fraction has no effect
        "bagging_fraction": float(rng.uniform(0.5, 1)),
        "feature_fraction": float(rng.uniform(0.5, 1)),
        "min_data_in_leaf": _log_integer(rng, 1, 100),
        "lambda_l1": _log_uniform(rng, 1e-5, 5),
        "lambda_l2": _log_uniform(rng, 1e-5, 5),
        "min_gain_to_split": _log_uniform(rng, 1e-5, 5),
    }


def _catboost(rng: np.random.Generator) -> Params:
    return {
        "depth": int(rng.integers(2, 9)),  # symmetric trees: time and memory double with each level
        "learning_rate": _log_uniform(rng, 1e-2, 0.5),
        "l2_leaf_reg": _log_uniform(rng, 0.1, 30),  # around CatBoost's 3
        "random_strength": _log_uniform(rng, 0.01, 10),  # around CatBoost's 1
        "rsm": float(rng.uniform(0.5, 1)),
        "bagging_temperature": float(rng.uniform(0, 1)),
    }


def _hist_gb(rng: np.random.Generator) -> Params:
    return {
        "max_leaf_nodes": _log_integer(rng, 4, 256),
        "learning_rate": _log_uniform(rng, 1e-3, 0.7),
        "max_features": float(rng.uniform(0.5, 1)),
        "min_samples_leaf": _log_integer(rng, 1, 100),
        "l2_regularization": _log_uniform(rng, 1e-5, 5),
    }


def _logistic(rng: np.random.Generator) -> Params:
    return {"scaling": _choice(rng, "standard", "quantile")}  # the penalty is what steps go through


def _mlp(rng: np.random.Generator) -> Params:
    return {
        "learning_rate": _log_uniform(rng, 1e-4, 1e-2),
        "dropout": _choice(rng, 0.0, 0.1, 0.2, 0.3),
        "weight_decay": _choice(rng, 0.0, 1e-5, 1e-4, 1e-3),
    }


def _realmlp(rng: np.random.Generator) -> Params:
    return {
        "num_emb_type": _weighted(rng, ["none", "pbld", "pl", "plr"]),
        "add_front_scale": _weighted(rng, [True, False], [0.6, 0.4]),
        "lr": _log_uniform(rng, 2e-2, 3e-1),
        "p_drop": _weighted(rng, [0.0, 0.15, 0.3], [0.3, 0.5, 0.2]),
        "act": _weighted(rng, ["relu", "selu", "mish"]),
        "hidden_sizes": _weighted(rng, [[256] * 3, [64] * 5, [512]], [0.6, 0.2, 0.2]),
        "wd": _weighted(rng, [0.0, 2e-3, 2e-2]),
        "plr_sigma": _log_uniform(rng, 0.05, 0.5),
        "ls_eps": _weighted(rng, [0.0, 0.1]),
    }


SPACES: dict[str, Callable[[np.random.Generator], Params]] = {
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
    "catboost": _catboost,
    "hist-gb": _hist_gb,
    "logistic": _logistic,
    "mlp": _mlp,
    "realmlp": _realmlp,
}
