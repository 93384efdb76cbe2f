"""scikit-learn: train step by step, stop on refinement, keep the model of the best step.

A step is a boosting round (models with ``staged_decision_function`` or ``staged_predict_proba``) or a pass
over the data (models with ``partial_fit``); anything else is fitted once. Steps are counted from 1: step n
is the model after n rounds.
"""

from __future__ import annotations  # so that help() shows types by name

import inspect
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import islice
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from refinecal._calibrator import Calibrator
from refinecal._predictions import (
    Link,
    Predictions,
    as_they_are,
    first_rows,
    library_of,
    link_of,
    mended,
    predictions_of,
)
from refinecal._rows import Rows
from refinecal.stopping import MonitorOptions, RefinementMonitor

__all__ = ["RefinementStopping", "train"]

FIRST_STAGES = 64  # rounds before the first look; doubled as long as they still improve


class RefinementStopping:
    """Stop ``GradientBoostingClassifier`` on refinement.

    Passed as ``model.fit(X, y, monitor=...)``; afterwards :meth:`restore` cuts the model to its best round.

    Parameters
    ----------
    X_val, y_val : array-like
        Validation data.
    patience : int, optional
        Rounds without improvement after which to stop.
    sample_weight : array-like, optional
        Weights of the validation rows.
    **options
        Keywords of :class:`refinecal.RefinementMonitor`.

    Attributes
    ----------
    monitor : RefinementMonitor
        Its steps count rounds from 1.
    calibrator : Calibrator
        Fitted at the best round.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> stopping = RefinementStopping(X[::2], y[::2], patience=5)
    >>> model = GradientBoostingClassifier(n_estimators=500, random_state=0)
    >>> model = stopping.restore(model.fit(X[1::2], y[1::2], monitor=stopping))
    >>> model.n_estimators_ == stopping.monitor.best_step < 500
    True
    """

    def __init__(
        self,
        X_val: Any,
        y_val: Any,
        *,
        patience: int | None = None,
        sample_weight: Any = None,
        **options: Unpack[MonitorOptions],
    ) -> None:
        self.monitor = RefinementMonitor(patience=patience, **options)
        self._val = (X_val, y_val, sample_weight)
        self._stages: Iterator[Any] = iter(())

    @property
    def calibrator(self) -> Any:
        """The calibrator fitted at the best round."""
        return self.monitor.calibrator

    def __call__(self, i: int, model: Any, variables: Any = None) -> bool:
        """Take the predictions of round ``i``, from 0; return whether to stop."""
        X_val, y_val, weights = self._val
        if i == 0:
            self.monitor.reset()
            self._stages = iter(())
        elif self.monitor.last_step not in (None, i):
            raise ValueError(
                f"round {i + 1} cannot follow round {self.monitor.last_step}: use a new RefinementStopping "
                "for another model"
            )
        logits = next(self._stages, None)
        if logits is None:  # a new training, or more room for rounds since the last one
            self._stages = islice(model.staged_decision_function(X_val), i, None)
            logits = next(self._stages)
        if self.monitor.classes is None:
            self.monitor.classes = model.classes_
        self.monitor.update(y_val, logits=logits, step=i + 1, sample_weight=weights)
        return self.monitor.should_stop

    def restore(self, model: Any) -> Any:
        """Cut the model to its best round, in place, and return it."""
        if self.monitor.best_step is None:
            raise ValueError(
                "no round was seen: call model.fit(X, y, monitor=...) with this object"
            )
        return _cut(model, self.monitor.best_step, self._val[0])


def train(
    estimator: Any,
    X: Any,
    y: Any,
    X_val: Any,
    y_val: Any,
    *,
    monitor: RefinementMonitor,
    max_steps: int = 1000,
    sample_weight: Any = None,
    sample_weight_val: Any = None,
) -> Any:
    """Fit a classifier as long as ``monitor`` sees it improve; return it as it was at the best step.

    Parameters
    ----------
    estimator : classifier
        Fitted in place: any scikit-learn classifier, a pipeline that ends in one, or the scikit-learn
        classifiers of XGBoost, LightGBM and CatBoost. Its own early stopping is switched off.
    X, y, X_val, y_val : array-like
        Training and validation data.
    monitor : RefinementMonitor
        Sees the validation predictions of every step; its ``patience`` says when to stop.
    max_steps : int, default 1000
        Rounds or passes at most; takes the place of ``n_estimators`` or ``max_iter``.
    sample_weight, sample_weight_val : array-like, optional
        Weights of the rows.

    Returns
    -------
    classifier
        The fitted estimator at ``monitor.best_step``. For models with ``partial_fit`` a copy.

    Examples
    --------
    >>> import refinecal as rc
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import SGDClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> monitor = rc.RefinementMonitor(patience=3)
    >>> sgd = SGDClassifier(loss="log_loss", random_state=0)
    >>> model = train(sgd, X[::2], y[::2], X[1::2], y[1::2], monitor=monitor)
    >>> model.t_ == 1 + 899 * monitor.best_step  # passes over the 899 rows
    True
    """
    y, y_val = np.asarray(y), np.asarray(y_val)
    classes = np.unique(y)
    strange = np.setdiff1d(y_val, classes)
    if strange.size:
        raise ValueError(
            f"y_val holds {strange[0].item()!r}, which y does not: the model cannot learn it. Drop these "
            "rows."
        )
    if monitor.classes is None:
        monitor.classes = classes
    rows = Rows(X, y, sample_weight)
    val = Rows(X_val, y_val, sample_weight_val)
    if hasattr(estimator, "steps"):  # a pipeline: its transformers first, then its last step
        head, (name, last) = estimator[:-1], estimator.steps[-1]
        if len(estimator.steps) > 1:
            rows = Rows(head.fit_transform(X, y), y, sample_weight)
            val = Rows(head.transform(X_val), y_val, sample_weight_val)
        estimator.steps[-1] = (name, _trainer_of(last)(last, rows, val, monitor, max_steps))
        return estimator
    return _trainer_of(estimator)(estimator, rows, val, monitor, max_steps)


Trainer = Callable[[Any, Rows, Rows, RefinementMonitor, int], Any]


def _trainer_of(estimator: Any) -> Trainer:
    """Return how this kind of model is trained step by step."""
    libraries: dict[str, Trainer] = {
        "xgboost": _train_xgboost,
        "lightgbm": _train_lightgbm,
        "catboost": _train_catboost,
    }
    if library_of(estimator) in libraries:
        return libraries[library_of(estimator)]
    if hasattr(estimator, "staged_decision_function") or hasattr(estimator, "staged_predict_proba"):
        return _train_monitored if "monitor" in _parameters(estimator.fit) else _train_staged
    return _train_passes if hasattr(estimator, "partial_fit") else _train_once


def is_iterative(estimator: Any) -> bool:
    """Tell whether the model is trained in steps."""
    last = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
    return _trainer_of(last) is not _train_once


def refit(
    estimator: Any, X: Any, y: Any, n_steps: int, sample_weight: Any = None, like: Any = None
) -> Any:
    """Fit in place for exactly this many steps, with nothing held out; return the estimator.

    ``like`` is the model whose number of steps it is.
    """
    rows = Rows(X, y, sample_weight)
    if hasattr(estimator, "steps"):
        head, (name, last) = estimator[:-1], estimator.steps[-1]
        if len(estimator.steps) > 1:
            rows = Rows(head.fit_transform(X, y), y, sample_weight)
        like = None if like is None else like.steps[-1][1]
        last = refit(last, rows.X, rows.y, n_steps, rows.weights, like)
        estimator.steps[-1] = (name, last)
        return estimator
    _switch_off_stopping(estimator)
    if _trainer_of(estimator) is _train_passes:
        for _ in range(n_steps):
            _one_pass(estimator, rows, np.unique(y))
        return estimator
    if _trainer_of(estimator) is not _train_once:
        estimator.set_params(**{str(_length_name(estimator)): n_steps})
    if library_of(estimator) == "catboost":
        _quieten(estimator)
        if like is not None:  # else CatBoost fits the learning rate to the number of rounds
            estimator.set_params(learning_rate=like.get_all_params()["learning_rate"])
    return estimator.fit(rows.X, _numbered(estimator, rows.y), **_weights(estimator, rows))


# ---- models that are fitted once ------------------------------------------------------------------------


def _train_once(
    estimator: Any, rows: Rows, val: Rows, monitor: RefinementMonitor, max_steps: int
) -> Any:
    estimator.fit(rows.X, rows.y, **_weights(estimator, rows))
    _follow(monitor, predictions_of(estimator, val.X), val, 1)
    return estimator


def _follow(monitor: RefinementMonitor, found: Predictions, val: Rows, step: int) -> bool:
    """Show one step's predictions to the monitor; return whether they are the best so far."""
    found, _ = mended(found, val.y, np.asarray(monitor.classes))
    return monitor.update(val.y, **found.arguments, step=step, sample_weight=val.weights)


# ---- models that pass over the data ---------------------------------------------------------------------


def _train_passes(
    estimator: Any, rows: Rows, val: Rows, monitor: RefinementMonitor, max_steps: int
) -> Any:
    _switch_off_stopping(estimator)
    classes, best = np.unique(rows.y), estimator
    for step in range(1, max_steps + 1):
        _one_pass(estimator, rows, classes)
        if _follow(monitor, predictions_of(estimator, val.X), val, step):
            best = deepcopy(estimator)
        if monitor.should_stop:
            break
    return best


def _one_pass(estimator: Any, rows: Rows, classes: NDArray[Any]) -> None:
    if getattr(estimator, "class_weight", None) == "balanced":  # which partial_fit cannot know
        from sklearn.utils.class_weight import compute_class_weight

        weights = compute_class_weight("balanced", classes=classes, y=rows.y)
        estimator.set_params(
            class_weight=dict(zip(classes.tolist(), weights.tolist(), strict=True))
        )
    options = _weights(estimator, rows, "partial_fit")
    if "classes" in _parameters(estimator.partial_fit):
        options["classes"] = classes
    estimator.partial_fit(rows.X, rows.y, **options)


# ---- models made of stages ------------------------------------------------------------------------------


def _train_monitored(
    estimator: Any, rows: Rows, val: Rows, monitor: RefinementMonitor, max_steps: int
) -> Any:
    """Train gradient boosting that calls back after every round."""
    _switch_off_stopping(estimator)
    estimator.set_params(n_estimators=max_steps, warm_start=False)
    stages: Iterator[Any] = iter(())

    def look(i: int, model: Any, variables: Any) -> bool:
        nonlocal stages
        if i == 0:
            stages = _stages(model, val.X)
        _follow(monitor, next(stages), val, i + 1)
        return monitor.should_stop

    estimator.fit(rows.X, rows.y, monitor=look, **_weights(estimator, rows))
    return _finish(estimator, rows, val, monitor)


def _train_staged(
    estimator: Any, rows: Rows, val: Rows, monitor: RefinementMonitor, max_steps: int
) -> Any:
    """Train in one go, or in runs of doubling length if the model can go on from where it is."""
    _switch_off_stopping(estimator)
    name = _length_name(estimator)
    if name is None:
        raise TypeError(
            f"{type(estimator).__name__} has stages, but neither n_estimators nor max_iter"
        )
    params = estimator.get_params(deep=False)
    grows = "warm_start" in params and monitor.patience is not None
    length, step = min(FIRST_STAGES, max_steps) if grows else max_steps, 0
    while True:
        estimator.set_params(**{name: length, **({"warm_start": True} if grows else {})})
        estimator.fit(rows.X, rows.y, **_weights(estimator, rows))
        for found in islice(_stages(estimator, val.X), step, None):
            step += 1
            _follow(monitor, found, val, step)
            if monitor.should_stop:
                break
        if monitor.should_stop or step < length or length >= max_steps:
            break
        length = min(2 * length, max_steps)
    if grows:
        estimator.set_params(warm_start=params["warm_start"])
    return _finish(estimator, rows, val, monitor)


def _stages(model: Any, X: Any) -> Iterator[Predictions]:
    """Yield the predictions of each stage, as logits if the model has them."""
    link: Link | None = None
    if not hasattr(model, "staged_predict_proba"):
        link = as_they_are
    elif hasattr(model, "staged_decision_function"):
        some = first_rows(X)
        margins, probs = model.staged_decision_function(some), model.staged_predict_proba(some)
        link = link_of(next(margins), next(probs))
    if link is None:
        for probs in model.staged_predict_proba(X):
            yield Predictions("probs", probs, "staged_predict_proba")
    else:
        for margins in model.staged_decision_function(X):
            yield Predictions("logits", link(margins), "staged_decision_function")


def _finish(estimator: Any, rows: Rows, val: Rows, monitor: RefinementMonitor) -> Any:
    """Return the model at its best step: cut if that can be done exactly, else trained again."""
    best = monitor.best_step
    assert best is not None, "at least one step was seen"
    try:
        return _cut(estimator, best, val.X)
    except ValueError:
        return refit(estimator, rows.X, rows.y, best, rows.weights)


def _cut(model: Any, n_steps: int, X: Any) -> Any:
    """Cut a model made of stages to its first ``n_steps``, in place, and check its predictions."""
    some = first_rows(X)
    method = "decision_function" if hasattr(model, "staged_decision_function") else "predict_proba"
    expected = next(islice(getattr(model, f"staged_{method}")(some), n_steps - 1, None))
    name = _length_name(model)
    for parts in ("_predictors", "estimators_", "estimator_weights_", "estimator_errors_"):
        if hasattr(model, parts):
            setattr(model, parts, getattr(model, parts)[:n_steps])
    for scores in ("train_score_", "oob_improvement_", "oob_scores_"):
        if getattr(model, scores, None) is not None:
            setattr(model, scores, getattr(model, scores)[:n_steps])
    if hasattr(model, "n_estimators_"):
        model.n_estimators_ = n_steps
    if name is not None:
        model.set_params(**{name: n_steps})
    found = getattr(model, method)(some).reshape(expected.shape)
    if not np.allclose(found, expected, rtol=1e-6, atol=1e-9):  # the same but for rounding
        raise ValueError(f"{type(model).__name__} cannot be cut to its first {n_steps} stages")
    return model


# ---- boosting libraries ---------------------------------------------------------------------------------


def _train_xgboost(
    estimator: Any, rows: Rows, val: Rows, monitor: RefinementMonitor, max_steps: int
) -> Any:
    from refinecal.integrations.xgboost import RefinementStopping as Stopping

    stopping = Stopping(val.X, val.y, sample_weight=val.weights, missing=estimator.missing)
    stopping.monitor = _twin(monitor)
    others = estimator.callbacks or []
    _switch_off_stopping(estimator)
    estimator.set_params(n_estimators=max_steps, callbacks=[*others, stopping])
    labels = _numbered(estimator, rows.y)
    estimator.fit(rows.X, labels, verbose=False, **_weights(estimator, rows))
    estimator.set_params(callbacks=others or None)
    return _adopt(estimator, monitor, stopping.monitor)


def _train_lightgbm(
    estimator: Any, rows: Rows, val: Rows, monitor: RefinementMonitor, max_steps: int
) -> Any:
    from refinecal.integrations.lightgbm import RefinementStopping as Stopping

    stopping = Stopping()
    stopping.monitor = _twin(monitor, classes=None)  # labels are numbers to LightGBM
    numbers = np.searchsorted(np.unique(rows.y), val.y)
    data: dict[str, Any] = {"eval_X": val.X, "eval_y": numbers, "eval_metric": "None"}
    if val.weights is not None:
        data["eval_sample_weight"] = [val.weights]
    estimator.set_params(n_estimators=max_steps)
    labels = _numbered(estimator, rows.y)
    estimator.fit(rows.X, labels, callbacks=[stopping], **data, **_weights(estimator, rows))
    return _adopt(estimator, monitor, stopping.monitor)


def _train_catboost(
    estimator: Any, rows: Rows, val: Rows, monitor: RefinementMonitor, max_steps: int
) -> Any:
    from catboost import Pool

    from refinecal.integrations.catboost import RefinementLoss, shrink_to_best

    options: Any = {"loss": monitor.loss, "calibrator": monitor.family, "cv": monitor.cv}
    params = estimator.get_params()
    estimator.set_params(**{str(_length_name(estimator)): max_steps})
    _quieten(estimator)
    stopping: dict[str, Any] = {}
    if monitor.patience is not None and monitor.metric.name == "refinement":
        estimator.set_params(eval_metric=RefinementLoss(**options))
        stopping = {"early_stopping_rounds": monitor.patience, "use_best_model": False}
    pool = Pool(val.X, val.y, weight=val.weights, cat_features=params.get("cat_features"))
    if stopping:
        stopping["eval_set"] = pool
    estimator.fit(rows.X, rows.y, **stopping, **_weights(estimator, rows))
    seen = shrink_to_best(
        estimator, pool, metric=monitor.metric, also=monitor.metrics[1:], **options
    )
    return _adopt(estimator, monitor, seen)


def _twin(monitor: RefinementMonitor, **changes: Any) -> RefinementMonitor:
    """Return a monitor like this one that has seen nothing."""
    twin = deepcopy(monitor)
    twin.reset()
    for name, value in changes.items():
        setattr(twin, name, value)
    return twin


def _adopt(model: Any, monitor: RefinementMonitor, seen: RefinementMonitor) -> Any:
    """Take over what a library's own monitor saw, counting its rounds from 1; return the model."""
    state = seen.state_dict()
    for numbered in (*state["history"], *state["bests"].values()):
        numbered["step"] += 1
    monitor.load_state_dict(state)
    for best in monitor.bests.values():
        if isinstance(best.calibrator, Calibrator):
            best.calibrator.classes_ = np.asarray(monitor.classes)
    if library_of(model) != "catboost":  # which does not let a trained model be changed
        model.set_params(n_estimators=monitor.best_step)
    return model


# ---- parameters -----------------------------------------------------------------------------------------


def _length_name(estimator: Any) -> str | None:
    """Return the parameter that says how many rounds to train."""
    params = estimator.get_params(deep=False)
    names = ("n_estimators", "max_iter", "iterations", "num_boost_round", "num_trees")
    default = (
        "iterations" if library_of(estimator) == "catboost" else None
    )  # which lists what is set
    return next((name for name in names if name in params), default)


def _quieten(catboost: Any) -> None:
    """Let CatBoost print and write nothing, unless its user said what it should."""
    params = catboost.get_params()
    if not {"verbose", "verbose_eval", "silent", "logging_level"} & set(params):
        catboost.set_params(verbose=False)
    if "allow_writing_files" not in params:
        catboost.set_params(allow_writing_files=False)


def _switch_off_stopping(estimator: Any) -> None:
    """Let the estimator train as long as it is told."""
    params = estimator.get_params(deep=False)
    if "early_stopping" in params:
        estimator.set_params(early_stopping=False)
    elif "n_iter_no_change" in params:
        estimator.set_params(n_iter_no_change=None)
    elif params.get("early_stopping_rounds") is not None:
        estimator.set_params(early_stopping_rounds=None)


def _numbered(estimator: Any, y: NDArray[Any]) -> NDArray[Any]:
    """Return labels as the estimator takes them: XGBoost 0..k-1, LightGBM too in validation data."""
    if library_of(estimator) not in ("xgboost", "lightgbm"):
        return y
    classes, numbers = np.unique(y, return_inverse=True)
    weights = getattr(estimator, "class_weight", None)
    if isinstance(weights, dict):
        numbered = {
            j: weights[label] for j, label in enumerate(classes.tolist()) if label in weights
        }
        estimator.set_params(class_weight=numbered)
    return np.asarray(numbers)


def _parameters(method: Any) -> list[str]:
    return list(inspect.signature(method).parameters)


def _weights(estimator: Any, rows: Rows, method: str = "fit") -> dict[str, Any]:
    """Return the weights as a keyword of ``fit``, if there are any."""
    if rows.weights is None:
        return {}
    if "sample_weight" not in _parameters(getattr(estimator, method)):
        raise TypeError(
            f"{type(estimator).__name__}.{method} takes no sample_weight: leave it out, or pass whole "
            "numbers of at most 4 on average, which are taken as repetitions"
        )
    return {"sample_weight": rows.weights}
