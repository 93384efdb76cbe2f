"""XGBoost and LightGBM, which are driven by the callbacks of their integrations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from refinecal.stopping import Best
from refinecal.training.parameters import weights_for
from refinecal.training.predictions import Predictions
from refinecal.training.rows import Rows
from refinecal.training.task import Task, TrainingMethod


class ZeroBasedMonitor:
    """The user's monitor as a library's callback wants it: counting rounds from 0, and new already."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task.monitor, name)

    def reset(self) -> None:
        """Do nothing: a used monitor was refused."""

    def update(self, y_val: Any, *, logits: Any, step: int, sample_weight: Any = None) -> bool:
        """Show the logits, beside labels and weights as the user gave them."""
        return self._task.show(Predictions("logits", logits, "predict"), step + 1)

    @property
    def best(self) -> Best | None:
        best = self._task.monitor.best
        return None if best is None else replace(best, step=best.step - 1)

    @property
    def best_step(self) -> int | None:
        return None if self.best is None else self.best.step

    @property
    def last_step(self) -> int | None:
        last = self._task.monitor.last_step
        return None if last is None else last - 1


# ---- XGBoost --------------------------------------------------------------------------------------------


def train_xgboost(model: Any, task: Task) -> Any:
    """Train with the callback of :mod:`refinecal.integrations.xgboost`."""
    from refinecal.integrations.xgboost import RefinementStopping

    stopping = RefinementStopping(task.val.X, task.val.y, missing=model.missing)
    stopping.monitor = ZeroBasedMonitor(task)  # type: ignore[assignment]
    others = _set_xgboost_rounds(model, task.max_steps)
    model.set_params(callbacks=[*others, stopping])
    _fit_xgboost(model, task.rows)
    return model.set_params(n_estimators=task.find_best(), callbacks=others or None)


def retrain_xgboost(model: Any, rows: Rows, n_steps: int, like: Any) -> Any:
    """Train so many rounds."""
    _set_xgboost_rounds(model, n_steps)
    return _fit_xgboost(model, rows)


def _set_xgboost_rounds(model: Any, n: int) -> list[Any]:
    """Let XGBoost train for so many rounds, without stopping by itself; return its other callbacks."""
    from xgboost.callback import EarlyStopping

    callbacks = [each for each in model.callbacks or [] if not isinstance(each, EarlyStopping)]
    model.set_params(n_estimators=n, early_stopping_rounds=None, callbacks=callbacks or None)
    return callbacks


def _fit_xgboost(model: Any, rows: Rows) -> Any:
    """Fit to labels as numbers, since XGBoost takes no others."""
    numbers = np.unique(rows.y, return_inverse=True)[1]
    return model.fit(rows.X, numbers, verbose=False, **weights_for(model.fit, rows))


# ---- LightGBM -------------------------------------------------------------------------------------------

# LightGBM's names for one parameter, of which a user's takes the place of the first.
ROUNDS = (
    "n_estimators",
    "num_iterations",
    "num_iteration",
    "n_iter",
    "num_tree",
    "num_trees",
    "num_round",
    "num_rounds",
    "nrounds",
    "num_boost_round",
    "max_iter",
)
OWN_STOPPING = (
    "early_stopping_round",
    "early_stopping_rounds",
    "early_stopping",
    "n_iter_no_change",
)
ONE_AGAINST_REST = ("multiclassova", "multiclass_ova", "ova", "ovr")


def train_lightgbm(model: Any, task: Task) -> Any:
    """Train with the callback of :mod:`refinecal.integrations.lightgbm`."""
    from refinecal.integrations.lightgbm import RefinementStopping

    class Stopping(RefinementStopping):
        def __call__(self, env: Any) -> None:
            if env.params["objective"] in ONE_AGAINST_REST:
                # The logarithms of its probabilities are logits of the same kind as those of softmax.
                env = replace(env, params={**env.params, "objective": "multiclass"})
            super().__call__(env)

    rows, val = task.rows, task.val
    stopping = Stopping()
    stopping.monitor = ZeroBasedMonitor(task)  # type: ignore[assignment]
    numbers = np.searchsorted(task.classes, val.y)  # LightGBM numbers all other labels itself
    _set_lightgbm_rounds(model, task.max_steps)
    model.fit(
        rows.X,
        rows.y,
        eval_X=val.X,
        eval_y=numbers,
        eval_metric="None",
        callbacks=[stopping],
        **weights_for(model.fit, rows),
    )
    _set_lightgbm_rounds(model, task.find_best())
    return model


def retrain_lightgbm(model: Any, rows: Rows, n_steps: int, like: Any) -> Any:
    """Train so many rounds."""
    _set_lightgbm_rounds(model, n_steps)
    return model.fit(rows.X, rows.y, **weights_for(model.fit, rows))


def _set_lightgbm_rounds(model: Any, n: int) -> None:
    """Let LightGBM train for so many rounds, without stopping by itself."""
    params = model.get_params()
    model.set_params(**{name: n for name in ROUNDS if name in params})
    model.set_params(**{name: None for name in OWN_STOPPING if name in params})


CALLED_BACK = {
    "xgboost": TrainingMethod(train_xgboost, retrain_xgboost),
    "lightgbm": TrainingMethod(train_lightgbm, retrain_lightgbm),
}
