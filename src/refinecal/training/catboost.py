"""CatBoost: as a model of a table, with its own default parameters, and as an estimator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal.training.encoding import category_mask, to_codes, to_numbers
from refinecal.training.predictions import Predictions, link_of, probabilities_of, some_rows
from refinecal.training.rows import Rows
from refinecal.training.table_model import TableModel, Weights
from refinecal.training.trainer import Trainer, TrainingRun, fit

if TYPE_CHECKING:
    import pandas as pd

with needs_extra("catboost", package="catboost"):
    from catboost import CatBoost, CatBoostError, Pool


class CatBoostModel(TableModel):
    """Boosted symmetric trees of CatBoost; a step is a tree, saved in CatBoost's binary format."""

    name = "catboost"
    frees_the_interpreter = True

    def __init__(self, model: CatBoost, n_classes: int, n_threads: int | None = None) -> None:
        self.model = model
        self.n_classes = n_classes
        self.n_features = len(model.feature_names_)
        self.n_steps = model.tree_count_
        self.n_threads = n_threads

    @classmethod
    def _train(cls, run: TrainingRun) -> Self:
        metric = _MonitorMetric(run)
        model = CatBoost(_params(run) | {"eval_metric": metric})
        try:
            model.fit(
                _pool(run.rows.X, run.rows.y, run.rows.weights),
                eval_set=metric.pool(),
                callbacks=[metric],
            )
        except CatBoostError as error:
            if metric.error is None:
                raise ValueError(_explain(error)) from error
        if metric.error is not None:
            raise metric.error
        return cls(model, len(run.classes), run.n_threads)

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
        model.load_model(path, format="cbm")
        return cls(model, len(model.classes_))


class _MonitorMetric:
    """A metric, since CatBoost shows its predictions to metrics only while it trains, and a callback."""

    no_jit = True  # CatBoost would try to compile evaluate with numba, and warn that it cannot

    def __init__(self, run: TrainingRun) -> None:
        self.run = run
        self.error: BaseException | None = None
        # CatBoost also shows the training rows, and does not say which rows it shows. They are distinguished
        # by their number: the first validation row is repeated if both numbers are equal.
        self.n_shown = len(run.val.y) + (len(run.val.y) == len(run.rows.y))

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # CatBoost copies its parameters

    def pool(self) -> Pool:
        rows = np.arange(self.n_shown) % len(self.run.val.y)
        return _pool(self.run.val.X.iloc[rows], self.run.val.y[rows])

    def is_max_optimal(self) -> bool:
        return False

    def evaluate(self, approxes: Sequence[Any], target: Any, weight: Any) -> tuple[float, float]:
        """Show validation logits to the monitor; the value itself is not used."""
        if len(target) == self.n_shown and self.error is None:
            n = len(self.run.val.y)
            margins = np.array(approxes[0] if len(approxes) == 1 else np.stack(approxes, axis=1))
            try:
                self.run.show(margins[:n])
            except BaseException as error:  # CatBoost would report another one in its place
                self.error = error
        return 0.0, 1.0

    def get_final_error(self, error: float, weight: float) -> float:
        return error

    def after_iteration(self, info: Any) -> bool:
        """Tell CatBoost whether to continue."""
        run = self.run
        return self.error is None and not run.monitor.should_stop and run.step < run.max_steps


def _explain(error: CatBoostError) -> str:
    what, fix = f"{error}", "other rows or parameters"
    if "All features are either constant or ignored" in what:
        what, fix = "every column is constant", "columns that differ between rows, or more rows"
    return (
        f"CatBoost cannot be trained on these rows: {what}. Give it {fix}, or choose another model"
    )


def _params(run: TrainingRun) -> dict[str, Any]:
    threads = {} if run.n_threads is None else {"thread_count": run.n_threads}
    return {
        "random_seed": run.seed,
        **run.params,
        **threads,
        "loss_function": "Logloss" if len(run.classes) == 2 else "MultiClass",
        "iterations": run.max_steps,
        "use_best_model": False,
        "od_type": "Iter",  # makes CatBoost evaluate the metric after every tree,
        "od_wait": run.max_steps + 1,  # and never stop for it
        "logging_level": "Silent",
        "allow_writing_files": False,
    }


def _pool(X: pd.DataFrame, y: Any = None, weights: Weights = None) -> Pool:
    import pandas as pd

    mask = category_mask(X)
    columns = [(to_codes if mask[j] else to_numbers)(X.iloc[:, j]) for j in range(X.shape[1])]
    frame = pd.DataFrame(dict(enumerate(columns)))
    return Pool(frame, y, weight=weights, cat_features=np.flatnonzero(mask).tolist())


# ---- CatBoostClassifier ----------------------------------------------------------------------------------

# CatBoost's aliases of one parameter each, or the parameters that we drop.
ROUNDS = ("iterations", "num_boost_round", "n_estimators", "num_trees")
OWN_STOPPING = ("use_best_model", "early_stopping_rounds", "od_type", "od_wait", "od_pval")
OUTPUT = ("verbose", "verbose_eval", "silent", "logging_level")
RATES = ("learning_rate", "eta")
SPECIAL_FEATURES = ("cat_features", "text_features", "embedding_features")
RAW = {"prediction_type": "RawFormulaVal"}


class EstimatorTrainer(Trainer):
    """Trains ``CatBoostClassifier``, whose predictions are looked at when training is done."""

    is_iterative = True

    def train(self, model: Any, run: TrainingRun) -> Any:
        """Train until CatBoost's own measure of refinement runs out of patience, or to the end; then look.

        CatBoost rounds that measure differently, and knows neither ``min_delta`` nor other metrics: if the
        monitor wants more trees than CatBoost has left, all are trained.
        """
        from refinecal.integrations.catboost import store_calibrator

        params = model.get_params()
        features = {name: params[name] for name in SPECIAL_FEATURES if params.get(name) is not None}
        pool = Pool(run.val.X, run.val.y, weight=run.val.weights, **features)
        for stopping in (_stopping(params, run), {}):
            trained = _new(model, run.max_steps, **stopping)
            fit(trained, run.rows, **({"eval_set": pool} if stopping else {}))
            steps = islice(_staged_predictions(trained, run.val.X, pool), run.step, None)
            if not run.follow(steps) or not stopping:
                break
        trained.shrink(run.find_best())
        store_calibrator(trained, run.monitor.calibrator)
        return trained

    def retrain(self, model: Any, rows: Rows, n_steps: int, like: Any) -> Any:
        """Train for this many rounds, at the learning rate of the model that they were chosen for."""
        rate = {}
        if like is not None and not set(RATES) & set(model.get_params()):
            # Else CatBoost derives it from the number of rounds.
            rate["learning_rate"] = like.get_all_params()["learning_rate"]
        return fit(_new(model, n_steps, **rate), rows)


def _new(model: Any, n_steps: int, **changes: Any) -> Any:
    """Return a new model for this many rounds that stops, prints and writes files only if asked to."""
    params = model.get_params()
    params = {name: value for name, value in params.items() if name not in (*ROUNDS, *OWN_STOPPING)}
    if not set(OUTPUT) & set(params):
        params["verbose"] = False
    params.setdefault("allow_writing_files", False)
    names, weights = params.get("class_names"), params.get("class_weights")
    if isinstance(weights, dict):  # columns follow its order: let them be sorted like all others'
        params["class_weights"] = dict(sorted(weights.items()))
    elif names is not None:
        order = sorted(range(len(names)), key=lambda j: names[j])
        params["class_names"] = [names[j] for j in order]
        if weights is not None:
            params["class_weights"] = [weights[j] for j in order]
    return type(model)(**(params | {"iterations": n_steps} | changes))


def _stopping(params: dict[str, Any], run: TrainingRun) -> dict[str, Any]:
    """Return what lets CatBoost stop by itself at about the right moment, if it can."""
    from refinecal.integrations.catboost import RefinementLoss

    monitor, loss = run.monitor, params.get("loss_function", params.get("objective"))
    can_stop = (
        monitor.patience is not None
        and monitor.metric.name == "refinement"
        and params.get("task_type") != "GPU"  # where metrics in Python do not run
        and loss in (None, "Logloss", "CrossEntropy", "MultiClass")
    )
    if not can_stop:
        return {}
    metric = RefinementLoss(
        loss=monitor.loss,
        calibrator=monitor.family,
        cv=monitor.cv,
        use_weights=run.val.weights is not None,  # else they could only be those of classes
    )
    return {
        "eval_metric": metric,
        "od_type": "Iter",
        "od_wait": monitor.patience,
        "use_best_model": False,
    }


def _staged_predictions(model: Any, X: Any, pool: Any) -> Iterator[Predictions]:
    """Yield the predictions of each number of trees, as logits if CatBoost has them."""
    some = some_rows(X)
    link = link_of(model.predict(some, **RAW), probabilities_of(model, some))
    if link is None:
        for probs in model.staged_predict_proba(pool):
            scaled = probs / probs.sum(axis=1, keepdims=True)
            yield Predictions("probs", scaled, "staged_predict_proba")
    else:
        for margins in model.staged_predict(pool, **RAW):
            yield Predictions("logits", link(margins), "staged_predict")
