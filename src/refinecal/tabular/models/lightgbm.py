"""LightGBM, with its own default parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal.tabular.models import FILES
from refinecal.tabular.models._base import Job, TableModel
from refinecal.tabular.models._inputs import category_mask, to_matrix
from refinecal.tabular.models._storage import explain_read_errors

if TYPE_CHECKING:
    import pandas as pd

with needs_extra("lightgbm", package="lightgbm"):
    import lightgbm as lgb

# LightGBM otherwise picks the faster of two ways to sum by a stopwatch, and rounds accordingly.
REPEATABLE = {"deterministic": True, "force_col_wise": True}


class LightGBMModel(TableModel):
    """Boosted trees of LightGBM; a step is a round, saved in LightGBM's text format."""

    name = "lightgbm"
    extra = "lightgbm"
    file_name = FILES[name]
    frees_the_interpreter = True

    def __init__(self, booster: lgb.Booster, n_threads: int | None = None) -> None:
        self.booster = booster
        per_round = booster.num_model_per_iteration()
        self.n_classes = 2 if per_round == 1 else per_round
        self.n_features = booster.num_feature()
        self.n_steps = booster.current_iteration()
        self.n_threads = n_threads

    @classmethod
    def _train(cls, job: Job) -> Self:
        params = _params(job)
        with _explain_errors():
            categories = np.flatnonzero(category_mask(job.X)).tolist()
            data = lgb.Dataset(
                *(to_matrix(job.X), job.y),
                weight=job.weights,
                categorical_feature=categories,
                params=params,
            )
            booster = lgb.Booster(params, data)
        rows = to_matrix(job.X_val)
        margins: Any = 0.0
        for step in range(1, job.max_steps + 1):
            with _explain_errors():
                is_finished = booster.update()
            if booster.current_iteration() < step:  # no leaf can be split: the round was taken back
                break
            # The first tree holds the intercept, so that the trees add up to the whole.
            margins = margins + _predict(booster, rows, job.n_threads, step - 1, 1)
            if not job.show(margins, step) or is_finished:
                break
        return cls(booster, job.n_threads)

    def _logits(self, X: pd.DataFrame, step: int) -> NDArray[Any]:
        return _predict(self.booster, to_matrix(X), self.n_threads, 0, step)

    def _to_bytes(self, step: int) -> bytes:
        text: str = self.booster.model_to_string(num_iteration=step)
        return text.encode()

    @classmethod
    def _load(cls, path: Path) -> Self:
        with explain_read_errors(path, "a LightGBM model"):
            return cls(lgb.Booster(model_str=path.read_text(encoding="ascii")))


def _params(job: Job) -> dict[str, Any]:
    several = {"objective": "multiclass", "num_class": job.n_classes}
    objective = {"objective": "binary"} if job.n_classes == 2 else several
    threads = {} if job.n_threads is None else {"num_threads": job.n_threads}
    own = {"verbosity": -1, "metric": "None", "seed": job.seed, **REPEATABLE}
    return {**own, **job.params, **objective, **threads}


@contextmanager
def _explain_errors() -> Iterator[None]:
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
