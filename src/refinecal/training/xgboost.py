"""XGBoost: as a model of a table, with its own default parameters as in the paper, and as an estimator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal.training.encoding import category_mask, to_matrix
from refinecal.training.rows import Rows
from refinecal.training.table_model import TableModel, Weights
from refinecal.training.trainer import Trainer, TrainingRun, fit

if TYPE_CHECKING:
    import pandas as pd

with needs_extra("xgboost", package="xgboost"):
    import xgboost as xgb
    from xgboost.callback import EarlyStopping


class XGBoostModel(TableModel):
    """Boosted trees of XGBoost; a step is a round, saved in XGBoost's UBJSON format."""

    name = "xgboost"
    frees_the_interpreter = True

    def __init__(self, booster: xgb.Booster, n_classes: int, n_threads: int | None = None) -> None:
        self.booster = booster
        self.n_classes = n_classes
        self.n_features = booster.num_features()
        self.n_steps = booster.num_boosted_rounds()
        self.n_threads = n_threads

    @classmethod
    def _train(cls, run: TrainingRun) -> Self:
        several = {"objective": "multi:softprob", "num_class": len(run.classes)}
        objective = {"objective": "binary:logistic"} if len(run.classes) == 2 else several
        threads = {} if run.n_threads is None else {"nthread": run.n_threads}
        own = {"tree_method": "hist", "seed": run.seed}
        params: dict[str, Any] = {**own, **run.params, **objective, **threads}
        data = _data(run.rows.X, run.n_threads, run.rows.y, run.rows.weights)
        data_val = _data(run.val.X, run.n_threads)
        # In the cache, the predictions of a data set grow by one tree per round.
        booster = xgb.Booster(params, cache=[data, data_val])

        def rounds() -> Iterator[NDArray[Any]]:
            for step in count():
                booster.update(data, step)
                yield booster.predict(
                    data_val,
                    output_margin=True,
                    iteration_range=(0, step + 1),
                    validate_features=False,
                )

        run.follow(rounds())
        return cls(booster, len(run.classes), run.n_threads)

    def _logits(self, X: pd.DataFrame, step: int) -> NDArray[Any]:
        return self._logits_at(X, [step])[step]

    def _logits_at(self, X: pd.DataFrame, steps: list[int]) -> dict[int, NDArray[Any]]:
        data = _data(X, self.n_threads)  # XGBoost keeps its predictions: each step adds to the last
        return {
            step: np.asarray(
                self.booster.predict(data, output_margin=True, iteration_range=(0, step))
            )
            for step in steps
        }

    def _to_bytes(self, step: int) -> bytes:
        return bytes(self.booster[:step].save_raw("ubj"))

    @classmethod
    def _load(cls, path: Path) -> Self:
        booster = xgb.Booster(model_file=bytearray(path.read_bytes()))
        own = json.loads(booster.save_config())["learner"]["learner_model_param"]
        return cls(booster, int(own["num_class"]) or 2)  # 0 stands for two classes


def _data(
    X: pd.DataFrame, n_threads: int | None, y: Any = None, weights: Weights = None
) -> xgb.DMatrix:
    """Return a table of codes, since XGBoost loses the names of categories when a model is cut."""
    return xgb.DMatrix(
        to_matrix(X).astype(np.float32),
        y,
        weight=weights,
        feature_types=["c" if is_category else "q" for is_category in category_mask(X)],
        enable_categorical=True,
        nthread=n_threads,
    )


# ---- XGBClassifier ---------------------------------------------------------------------------------------


class EstimatorTrainer(Trainer):
    """Trains ``XGBClassifier`` with the callback of :mod:`refinecal.integrations.xgboost`."""

    is_iterative = True

    def train(self, model: Any, run: TrainingRun) -> Any:
        """Train until the callback stops it; the callback goes back to the best round."""
        from refinecal.integrations.xgboost import RefinementStopping

        stopping = RefinementStopping(
            run.val.X, run.val.y, sample_weight=run.val.weights, missing=model.missing
        )
        stopping.monitor, stopping.first_step = run.monitor, 1
        others = _set_rounds(model, run.max_steps)
        model.set_params(callbacks=[*others, stopping])
        _fit(model, run.rows)
        return model.set_params(n_estimators=run.find_best(), callbacks=others or None)

    def retrain(self, model: Any, rows: Rows, n_steps: int, like: Any) -> Any:
        """Train for this many rounds."""
        _set_rounds(model, n_steps)
        return _fit(model, rows)


def _set_rounds(model: Any, n: int) -> list[Any]:
    """Let XGBoost train for n rounds, without early stopping; return the user's other callbacks."""
    callbacks = [each for each in model.callbacks or [] if not isinstance(each, EarlyStopping)]
    model.set_params(n_estimators=n, early_stopping_rounds=None, callbacks=callbacks or None)
    return callbacks


def _fit(model: Any, rows: Rows) -> Any:
    """Fit to labels as numbers, since XGBoost takes no others."""
    numbers = np.unique(rows.y, return_inverse=True)[1]
    return fit(model, replace(rows, y=numbers), verbose=False)
