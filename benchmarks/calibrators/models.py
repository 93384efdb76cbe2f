"""The models whose predictions are calibrated, each stopped at its best validation accuracy.

A model is a function of a :class:`benchmarks.evidence.Split` and a number of steps that returns
(validation logits, test logits, chosen step). Parameters are the library's own defaults, with one thread;
the network is a plain multilayer perceptron.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.evidence import Split

Trained = tuple[np.ndarray, np.ndarray, int]

MOST_CATEGORIES = 255  # of scikit-learn's histogram trees; columns of more become numbers
BATCH, WIDTH, DROPOUT = 256, 256, 0.1
LEARNING_RATE, WEIGHT_DECAY = 1e-3, 1e-4


def columns(margins: np.ndarray) -> np.ndarray:
    """Return logits with a column per class; one margin z of class 1 becomes (0, z)."""
    margins = np.asarray(margins, dtype=np.float64)
    if margins.ndim == 1:
        margins = np.stack([np.zeros(len(margins)), margins], axis=1)
    return margins


def accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of labels with the largest logit."""
    return float(np.mean(columns(logits).argmax(axis=1) == labels))


def n_classes(split: Split) -> int:
    """Return the number of classes, counted in the training part, which has them all."""
    return len(np.unique(split.y))


def xgboost(split: Split, steps: int) -> Trained:
    """Return XGBoost's margins at the round of the smallest validation error."""
    import xgboost as xgb

    metric = "error" if n_classes(split) == 2 else "merror"
    model = xgb.XGBClassifier(
        n_estimators=steps, eval_metric=metric, enable_categorical=True, n_jobs=1, random_state=0
    )
    model.fit(split.X, split.y, eval_set=[(split.X_val, split.y_val)], verbose=False)
    step = int(np.argmin(model.evals_result()["validation_0"][metric])) + 1
    val, test = (
        columns(model.predict(X, output_margin=True, iteration_range=(0, step)))
        for X in (split.X_val, split.X_test)
    )
    return val, test, step


def lightgbm(split: Split, steps: int) -> Trained:
    """Return LightGBM's raw scores at the round of the smallest validation error."""
    import lightgbm as lgb

    metric = "binary_error" if n_classes(split) == 2 else "multi_error"
    model = lgb.LGBMClassifier(n_estimators=steps, n_jobs=1, random_state=0, verbose=-1)
    model.fit(split.X, split.y, eval_X=split.X_val, eval_y=split.y_val, eval_metric=metric)
    step = int(np.argmin(model.evals_result_["valid_0"][metric])) + 1
    val, test = (
        columns(model.predict(X, raw_score=True, num_iteration=step))
        for X in (split.X_val, split.X_test)
    )
    return val, test, step


def hist_gradient_boosting(split: Split, steps: int) -> Trained:
    """Return the raw scores of scikit-learn's histogram trees at the best validation accuracy."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    parts = [_few_categories(X, split.X) for X in (split.X, split.X_val, split.X_test)]
    model = HistGradientBoostingClassifier(max_iter=steps, early_stopping=False, random_state=0)
    model.fit(parts[0], split.y)
    stages = [_squeezed(scores) for scores in model.staged_decision_function(parts[1])]
    step = int(np.argmax([accuracy(scores, split.y_val) for scores in stages])) + 1
    test = _nth(model.staged_decision_function(parts[2]), step)
    return columns(stages[step - 1]), columns(_squeezed(test)), step


def _squeezed(scores: np.ndarray) -> np.ndarray:
    return scores[:, 0] if scores.ndim == 2 and scores.shape[1] == 1 else scores


def _nth(stages: Iterator[np.ndarray], step: int) -> np.ndarray:
    return next(scores for at, scores in enumerate(stages, start=1) if at == step)


def _few_categories(X: pd.DataFrame, train: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the codes of columns that have too many categories."""
    many = [
        name
        for name in X.select_dtypes("category")
        if train[name].cat.categories.size > MOST_CATEGORIES
    ]
    return X.assign(**{name: X[name].cat.codes for name in many})


def mlp(split: Split, steps: int) -> Trained:
    """Return the logits of a network with two hidden layers at the epoch of the best validation accuracy."""
    import torch

    torch.manual_seed(0)
    encode = _encoder(split.X)
    x, x_val, x_test = (torch.as_tensor(encode(X)) for X in (split.X, split.X_val, split.X_test))
    y = torch.as_tensor(split.y)
    network = _network(x.shape[1], n_classes(split))
    optimiser = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    best: tuple[float, Trained] | None = None
    for epoch in range(1, steps + 1):
        _one_epoch(network, optimiser, x, y)
        val = _logits(network, x_val)
        found = accuracy(val, split.y_val)
        if best is None or found > best[0]:
            best = found, (val, _logits(network, x_test), epoch)
    assert best is not None
    return best[1]


def _network(inputs: int, outputs: int) -> Any:
    from torch import nn

    hidden = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(DROPOUT)]
    first = [nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Dropout(DROPOUT)]
    return nn.Sequential(*first, *hidden, nn.Linear(WIDTH, outputs))


def _one_epoch(network: Any, optimiser: Any, x: Any, y: Any) -> None:
    import torch

    network.train()
    for rows in torch.randperm(len(y)).split(BATCH):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
        optimiser.step()


def _logits(network: Any, x: Any) -> np.ndarray:
    import torch

    network.eval()
    with torch.no_grad():
        return columns(network(x).numpy())


def _encoder(train: pd.DataFrame) -> Callable[[pd.DataFrame], np.ndarray]:
    """Return the map from a table to numbers: normal scores of numbers, one column per category."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.preprocessing import OneHotEncoder, QuantileTransformer

    numbers = QuantileTransformer(
        output_distribution="normal", n_quantiles=min(1000, len(train)), random_state=0
    )
    kinds = OneHotEncoder(handle_unknown="ignore", max_categories=100, sparse_output=False)
    encoder = make_column_transformer(
        (numbers, make_column_selector(dtype_exclude="category")),
        (kinds, make_column_selector(dtype_include="category")),
        sparse_threshold=0,
    ).fit(train)
    return lambda X: np.clip(encoder.transform(X), -5, 5).astype(np.float32)


# The name: how it is trained, and for how many rounds or epochs.
MODELS: dict[str, tuple[Callable[[Split, int], Trained], int]] = {
    "xgboost": (xgboost, 300),
    "lightgbm": (lightgbm, 300),
    "mlp": (mlp, 40),
    "hist-gradient-boosting": (hist_gradient_boosting, 300),
}
