"""CatBoost, which hands out no predictions while it trains: every number of trees is looked at afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from refinecal.training.parameters import weights_for
from refinecal.training.predictions import Predictions, link_of, probabilities_of, some_rows
from refinecal.training.rows import Rows
from refinecal.training.task import Task, TrainingMethod

# CatBoost's names for one parameter each, or for parts of what is left out.
ROUNDS = ("iterations", "num_boost_round", "n_estimators", "num_trees")
OWN_STOPPING = ("use_best_model", "early_stopping_rounds", "od_type", "od_wait", "od_pval")
OUTPUT = ("verbose", "verbose_eval", "silent", "logging_level")
RATES = ("learning_rate", "eta")
SPECIAL_FEATURES = ("cat_features", "text_features", "embedding_features")
RAW = {"prediction_type": "RawFormulaVal"}


def train(model: Any, task: Task) -> Any:
    """Train until CatBoost's measure of refinement is out of patience, or to the end; then look.

    What CatBoost measures is rounded differently, and knows neither ``min_delta`` nor other metrics: if the
    monitor wants more trees than it left, all are trained.
    """
    from catboost import Pool

    from refinecal.integrations.catboost import store_calibrator

    params, rows, val = model.get_params(), task.rows, task.val
    features = {name: params[name] for name in SPECIAL_FEATURES if params.get(name) is not None}
    pool = Pool(val.X, val.y, weight=val.weights, **features)
    seen = 0
    for stopping in (_stopping(params, task), {}):
        trained = _new(model, task.max_steps, **stopping)
        watched = {"eval_set": pool} if stopping else {}
        trained.fit(rows.X, rows.y, **watched, **weights_for(trained.fit, rows))
        for found in islice(_staged_predictions(trained, val.X, pool), seen, None):
            seen += 1
            task.show(found, seen)
            if task.monitor.should_stop:
                break
        if task.monitor.should_stop or not stopping or seen == task.max_steps:
            break
    trained.shrink(task.find_best())
    store_calibrator(trained, task.monitor.calibrator)
    return trained


def retrain(model: Any, rows: Rows, n_steps: int, like: Any) -> Any:
    """Train so many rounds, at the learning rate of the model whose number of rounds it is."""
    rate = {}
    if like is not None and not set(RATES) & set(model.get_params()):
        # Else CatBoost fits it to the number of rounds.
        rate["learning_rate"] = like.get_all_params()["learning_rate"]
    model = _new(model, n_steps, **rate)
    return model.fit(rows.X, rows.y, **weights_for(model.fit, rows))


def _new(model: Any, n_steps: int, **changes: Any) -> Any:
    """Return a new model for so many rounds that stops, prints and writes only if told to."""
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


def _stopping(params: dict[str, Any], task: Task) -> dict[str, Any]:
    """Return what lets CatBoost stop by itself at about the right moment, if it can."""
    from refinecal.integrations.catboost import RefinementLoss

    monitor, loss = task.monitor, params.get("loss_function", params.get("objective"))
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
        use_weights=task.val.weights is not None,  # else they could only be those of classes
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


CATBOOST = TrainingMethod(train, retrain)
