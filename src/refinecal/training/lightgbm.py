"""LightGBM: as a model of a table, with its own default parameters, and as an estimator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal.training.encoding import category_mask, to_matrix
from refinecal.training.rows import Rows
from refinecal.training.table_model import TableModel
from refinecal.training.trainer import Trainer, TrainingRun, fit

if TYPE_CHECKING:
    import pandas as pd

with needs_extra("lightgbm", package="lightgbm"):
    import lightgbm as lgb

# LightGBM otherwise picks the faster of two ways to sum by a stopwatch, and rounds accordingly.
REPEATABLE = {"deterministic": True, "force_col_wise": True}


class LightGBMModel(TableModel):
    """Boosted trees of LightGBM; a step is a round, saved in LightGBM's text format."""

    name = "lightgbm"
    frees_the_interpreter = True

    def __init__(self, booster: lgb.Booster, n_threads: int | None = None) -> None:
        self.booster = booster
        per_round = booster.num_model_per_iteration()
        self.n_classes = 2 if per_round == 1 else per_round
        self.n_features = booster.num_feature()
        self.n_steps = booster.current_iteration()
        self.n_threads = n_threads

    @classmethod
    def _train(cls, run: TrainingRun) -> Self:
        several = {"objective": "multiclass", "num_class": len(run.classes)}
        objective = {"objective": "binary"} if len(run.classes) == 2 else several
        threads = {} if run.n_threads is None else {"num_threads": run.n_threads}
        own = {"verbosity": -1, "metric": "None", "seed": run.seed, **REPEATABLE}
        params: dict[str, Any] = {**own, **run.params, **objective, **threads}
        with _explain_errors():
            categories = np.flatnonzero(category_mask(run.rows.X)).tolist()
            data = lgb.Dataset(
                *(to_matrix(run.rows.X), run.rows.y),
                weight=run.rows.weights,
                categorical_feature=categories,
                params=params,
            )
            booster = lgb.Booster(params, data)
        rows = to_matrix(run.val.X)

        def rounds() -> Iterator[NDArray[Any]]:
            margins: Any = 0.0
            is_finished = False
            while not is_finished:
                with _explain_errors():
                    is_finished = booster.update()
                if booster.current_iteration() == run.step:  # no leaf could be split
                    return
                # The first tree holds the intercept, so that the trees add up to the whole.
                margins = margins + _predict(booster, rows, run.n_threads, run.step, 1)
                yield margins

        run.follow(rounds())
        return cls(booster, run.n_threads)

    def _logits(self, X: pd.DataFrame, step: int) -> NDArray[Any]:
        return _predict(self.booster, to_matrix(X), self.n_threads, 0, step)

    def _to_bytes(self, step: int) -> bytes:
        text: str = self.booster.model_to_string(num_iteration=step)
        return text.encode()

    @classmethod
    def _load(cls, path: Path) -> Self:
        return cls(lgb.Booster(model_str=path.read_text(encoding="ascii")))


@contextmanager
def _explain_errors() -> Iterator[None]:
    """Turn an error of LightGBM into one that suggests a fix."""
    try:
        yield
    except lgb.basic.LightGBMError as error:
        raise ValueError(
            f"LightGBM cannot be trained on these rows: {str(error).strip()} Give it more rows, columns that "
            "differ between them or other parameters, or choose another model"
        ) from error


def _predict(
    booster: lgb.Booster, rows: NDArray[Any], n_threads: int | None, first: int, n: int
) -> NDArray[Any]:
    """Return what ``n`` rounds from ``first`` on add to the logits."""
    threads: Any = {} if n_threads is None else {"num_threads": n_threads}
    margins = booster.predict(
        rows, raw_score=True, start_iteration=first, num_iteration=n, **threads
    )
    return np.asarray(margins)


# ---- LGBMClassifier --------------------------------------------------------------------------------------

# LightGBM's names for one parameter each; the one that a user sets takes precedence.
ROUNDS = (
    *("n_estimators", "num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees"),
    *("num_round", "num_rounds", "nrounds", "num_boost_round", "max_iter"),
)
OWN_STOPPING = (
    *("early_stopping_round", "early_stopping_rounds", "early_stopping", "n_iter_no_change"),
)
ONE_VS_REST = ("multiclassova", "multiclass_ova", "ova", "ovr")


class EstimatorTrainer(Trainer):
    """Trains ``LGBMClassifier`` with the callback of :mod:`refinecal.integrations.lightgbm`."""

    is_iterative = True

    def train(self, model: Any, run: TrainingRun) -> Any:
        """Train until the callback stops it; the callback goes back to the best round."""
        from refinecal.integrations.lightgbm import RefinementStopping

        class Stopping(RefinementStopping):
            first_step = 1

            def __call__(self, env: Any) -> None:
                if env.params["objective"] in ONE_VS_REST:
                    # The logarithms of its probabilities are logits of the same kind as those of softmax.
                    env = replace(env, params={**env.params, "objective": "multiclass"})
                super().__call__(env)

            def _start(self, env: Any) -> None:
                super()._start(env)
                self._labels, self._weights = run.val.y, run.val.weights

        stopping = Stopping()
        stopping.monitor = run.monitor
        numbers = np.searchsorted(run.classes, run.val.y)  # LightGBM encodes those to train on
        val = {"eval_X": run.val.X, "eval_y": numbers, "eval_metric": "None"}
        _set_rounds(model, run.max_steps)
        fit(model, run.rows, callbacks=[stopping], **val)
        _set_rounds(model, run.find_best())
        return model

    def retrain(self, model: Any, rows: Rows, n_steps: int, like: Any) -> Any:
        """Train for this many rounds."""
        _set_rounds(model, n_steps)
        return fit(model, rows)


def _set_rounds(model: Any, n: int) -> None:
    """Let LightGBM train for n rounds, without early stopping."""
    params = model.get_params()
    model.set_params(**{name: n for name in ROUNDS if name in params})
    model.set_params(**{name: None for name in OWN_STOPPING if name in params})
