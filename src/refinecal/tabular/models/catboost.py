"""CatBoost, with its own default parameters, the learning rate among them that it fits to the data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal.tabular.models import FILES
from refinecal.tabular.models._base import Job, TableModel, Weights
from refinecal.tabular.models._inputs import category_mask, to_codes, to_numbers
from refinecal.tabular.models._storage import check, explain_read_errors

if TYPE_CHECKING:
    import pandas as pd

with needs_extra("catboost", package="catboost"):
    from catboost import CatBoost, CatBoostError, Pool


class CatBoostModel(TableModel):
    """Boosted symmetric trees of CatBoost; a step is a tree, saved in CatBoost's binary format."""

    name = "catboost"
    extra = "catboost"
    file_name = FILES[name]
    frees_the_interpreter = True

    def __init__(self, model: CatBoost, n_classes: int, n_threads: int | None = None) -> None:
        self.model = model
        self.n_classes = n_classes
        self.n_features = len(model.feature_names_)
        self.n_steps = model.tree_count_
        self.n_threads = n_threads

    @classmethod
    def _train(cls, job: Job) -> Self:
        metric = _MonitorMetric(job)
        model = CatBoost(_params(job) | {"eval_metric": metric})
        try:
            model.fit(
                _pool(job.X, job.y, job.weights),
                eval_set=metric.pool(),
                callbacks=[_StopCallback(metric)],
            )
        except CatBoostError as error:
            if metric.error is None:
                raise ValueError(_explain(error)) from error
        if metric.error is not None:
            raise metric.error
        return cls(model, job.n_classes, job.n_threads)

    def _logits(self, X: pd.DataFrame, step: int) -> NDArray[Any]:
        threads = -1 if self.n_threads is None else self.n_threads
        margins = self.model.predict(
            _pool(X), prediction_type="RawFormulaVal", ntree_end=step, thread_count=threads
        )
        return np.asarray(margins)

    def _to_bytes(self, step: int) -> bytes:
        model = self.model.copy()
        model.shrink(step)
        content: bytes = model._serialize_model()  # what save_model writes, as pickling has it too
        return content

    @classmethod
    def _load(cls, path: Path) -> Self:
        model = CatBoost()
        with explain_read_errors(path, "a CatBoost model"):
            model.load_model(path, format="cbm")
            check(model.tree_count_, "it holds no trees")
            n_classes = len(model.classes_)
            check(n_classes >= 2, "it is no model of classes")
        return cls(model, n_classes)


class _MonitorMetric:
    """A metric by its form: CatBoost hands its predictions to nobody else while it trains."""

    no_jit = True  # CatBoost would try to compile evaluate with numba, and warn that it cannot

    def __init__(self, job: Job) -> None:
        self.job = job
        self.step = 0
        self.error: BaseException | None = None
        # CatBoost shows the training rows too, and does not say which are which. So that they can be told
        # apart by their number, the first validation row is repeated where there are as many.
        self.n_shown = len(job.y_val) + (len(job.y_val) == len(job.y))

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # CatBoost copies its parameters

    def pool(self) -> Pool:
        rows = np.arange(self.n_shown) % len(self.job.y_val)
        return _pool(self.job.X_val.iloc[rows], self.job.y_val[rows])

    def is_max_optimal(self) -> bool:
        return False

    def evaluate(self, approxes: Sequence[Any], target: Any, weight: Any) -> tuple[float, float]:
        """Show validation logits to the monitor; the value itself is of no use to anyone."""
        if len(target) == self.n_shown and self.error is None:
            n, self.step = len(self.job.y_val), self.step + 1
            margins = np.array(approxes[0] if len(approxes) == 1 else np.stack(approxes, axis=1))
            try:
                self.job.show(margins[:n], self.step)
            except BaseException as error:  # CatBoost would report another one in its place
                self.error = error
        return 0.0, 1.0

    def get_final_error(self, error: float, weight: float) -> float:
        return error


class _StopCallback:
    """A callback that ends the training when the monitor says so."""

    def __init__(self, look: _MonitorMetric) -> None:
        self.look = look

    def after_iteration(self, info: Any) -> bool:
        """Tell CatBoost whether to go on."""
        return self.look.error is None and not self.look.job.monitor.should_stop


def _explain(error: CatBoostError) -> str:
    what, cure = f"{error}", "other rows or parameters"
    if "All features are either constant or ignored" in what:
        what, cure = "every column is constant", "columns that differ between rows, or more rows"
    return (
        f"CatBoost cannot be trained on these rows: {what}. Give it {cure}, or choose another model"
    )


def _params(job: Job) -> dict[str, Any]:
    threads = {} if job.n_threads is None else {"thread_count": job.n_threads}
    return {
        "random_seed": job.seed,
        **job.params,
        **threads,
        "loss_function": "Logloss" if job.n_classes == 2 else "MultiClass",
        "iterations": job.max_steps,
        "use_best_model": False,
        "od_type": "Iter",  # makes CatBoost evaluate the metric after every tree,
        "od_wait": job.max_steps + 1,  # and never stop for it
        "logging_level": "Silent",
        "allow_writing_files": False,
    }


def _pool(X: pd.DataFrame, y: Any = None, weights: Weights = None) -> Pool:
    import pandas as pd

    mask = category_mask(X)
    columns = [(to_codes if mask[j] else to_numbers)(X.iloc[:, j]) for j in range(X.shape[1])]
    frame = pd.DataFrame(dict(enumerate(columns)))
    return Pool(frame, y, weight=weights, cat_features=np.flatnonzero(mask).tolist())
