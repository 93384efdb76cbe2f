"""XGBoost, with its own default parameters as in the paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal.tabular.models import FILES
from refinecal.tabular.models._base import Job, TableModel, Weights
from refinecal.tabular.models._inputs import category_mask, to_matrix
from refinecal.tabular.models._storage import explain_read_errors

if TYPE_CHECKING:
    import pandas as pd

with needs_extra("xgboost", package="xgboost"):
    import xgboost as xgb


class XGBoostModel(TableModel):
    """Boosted trees of XGBoost; a step is a round, saved in XGBoost's UBJSON format."""

    name = "xgboost"
    extra = "xgboost"
    file_name = FILES[name]
    frees_the_interpreter = True

    def __init__(self, booster: xgb.Booster, n_classes: int, n_threads: int | None = None) -> None:
        self.booster = booster
        self.n_classes = n_classes
        self.n_features = booster.num_features()
        self.n_steps = booster.num_boosted_rounds()
        self.n_threads = n_threads

    @classmethod
    def _train(cls, job: Job) -> Self:
        data = _data(job.X, job.n_threads, job.y, job.weights)
        data_val = _data(job.X_val, job.n_threads)
        # In the cache, the predictions of a data set grow by one tree per round.
        booster = xgb.Booster(_params(job), cache=[data, data_val])
        for step in range(1, job.max_steps + 1):
            booster.update(data, step - 1)
            margins = booster.predict(
                data_val, output_margin=True, iteration_range=(0, step), validate_features=False
            )
            if not job.show(margins, step):
                break
        return cls(booster, job.n_classes, job.n_threads)

    def _logits(self, X: pd.DataFrame, step: int) -> NDArray[Any]:
        return self._logits_at(X, [step])[step]

    def _logits_at(self, X: pd.DataFrame, steps: list[int]) -> dict[int, NDArray[Any]]:
        data = _data(
            X, self.n_threads
        )  # whose predictions XGBoost keeps: each step goes on from the last
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
        with explain_read_errors(path, "an XGBoost model"):
            booster = xgb.Booster(model_file=bytearray(path.read_bytes()))
            own = json.loads(booster.save_config())["learner"]["learner_model_param"]
            return cls(booster, int(own["num_class"]) or 2)  # 0 stands for two classes


def _params(job: Job) -> dict[str, Any]:
    several = {"objective": "multi:softprob", "num_class": job.n_classes}
    objective = {"objective": "binary:logistic"} if job.n_classes == 2 else several
    threads = {} if job.n_threads is None else {"nthread": job.n_threads}
    return {"tree_method": "hist", "seed": job.seed, **job.params, **objective, **threads}


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
