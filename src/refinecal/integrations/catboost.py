"""CatBoost: stop on refinement, keep the best trees and the calibrator that goes with them.

>>> from catboost import CatBoostClassifier
>>> from sklearn.datasets import load_iris
>>> X, y = load_iris(return_X_y=True)
>>> model = CatBoostClassifier(
...     eval_metric=RefinementLoss(), iterations=9, early_stopping_rounds=3,
...     verbose=0, allow_writing_files=False,
... )
>>> model = model.fit(X[::2], y[::2], eval_set=(X[1::2], y[1::2]))
>>> monitor = shrink_to_best(model, X[1::2], y[1::2])
>>> predict_proba(model, X).shape
(150, 3)
"""

from __future__ import annotations  # so that help() shows types by name

import json
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from refinecal._core.checks import check_keywords
from refinecal._core.errors import needs_extra, warn
from refinecal.calibrators import from_dict
from refinecal.calibrators.base import Calibrator
from refinecal.decomposition import decompose
from refinecal.losses import ProperLoss
from refinecal.selection import select
from refinecal.stopping import MonitorOptions, RefinementMonitor

with needs_extra("catboost", package="catboost"):
    from catboost import CatBoost, Pool

__all__ = ["RefinementLoss", "calibrator_of", "predict_proba", "shrink_to_best"]

METADATA_KEY = "refinecal_calibrator"
# Losses with a sigmoid for each class.
NOT_SOFTMAX = ("MultiClassOneVsAll", "MultiLogloss", "MultiCrossEntropy")


class RefinementLoss:
    """An ``eval_metric``: the loss that is left after the best calibration.

    CatBoost logs it as "RefinementLoss". ``early_stopping_rounds`` and ``use_best_model`` then follow it on
    the last of the evaluation sets, as they follow any metric; :func:`shrink_to_best` adds the calibrator.
    An object holds no state, so models and trainings may share one. The training loss must be one whose
    probabilities sum to 1, such as "Logloss" or "MultiClass"; the metric cannot tell.

    CatBoost computes metrics on the training rows too. With ``early_stopping_rounds``, a large
    ``metric_period`` makes that rare, while validation rows are looked at in every round all the same.

    Metrics in Python run on the CPU only. On a GPU, train without and call :func:`shrink_to_best`.

    CatBoost multiplies the weights of validation rows by ``class_weights``, ``auto_class_weights`` and
    ``scale_pos_weight``, while :func:`shrink_to_best` takes the rows as they are. With one of these, pass
    ``use_weights=False``; if validation rows have weights of their own too, train all iterations without this
    metric and call :func:`shrink_to_best`.

    Parameters
    ----------
    loss, calibrator, cv, n_threads
        As for :func:`refinecal.decompose`.
    use_weights : bool, optional
        Whether rows count by their weights, as for CatBoost's own metrics. By default they do, with a warning
        if all rows of a class have the same weight, since that comes from weights of classes.
    """

    no_jit = True  # CatBoost would try to compile evaluate with numba, and warn that it cannot

    @check_keywords()
    def __init__(
        self,
        loss: str | ProperLoss = "log",
        calibrator: Any = "temperature",
        cv: Any = None,
        n_threads: int | None = None,
        use_weights: bool | None = None,
    ) -> None:
        self._use_weights = use_weights
        # Complains of wrong options now rather than in training; and "auto" is not for every round.
        followed = RefinementMonitor(loss=loss, calibrator=calibrator, cv=cv, n_threads=n_threads)
        options: Any = {"calibrator": followed.family, "cv": followed.cv}
        self._decompose: Any = partial(decompose, loss=loss, n_threads=n_threads, **options)

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # CatBoost copies its parameters, and scikit-learn's clone insists on the same object

    def is_max_optimal(self) -> bool:
        """Tell CatBoost that smaller is better."""
        return False

    def evaluate(
        self,
        approxes: Sequence[NDArray[np.float64]],
        target: NDArray[np.float32],
        weight: NDArray[np.float32] | None,
    ) -> tuple[float, float]:
        """Return the refinement error of these raw predictions, and 1 as their weight."""
        logits = approxes[0] if len(approxes) == 1 else np.stack(approxes, axis=1)
        if not np.isfinite(logits).all():
            return (
                math.inf,
                1.0,
            )  # never the best; CatBoost itself ends a training that has diverged
        if self._use_weights is False:
            weight = None
        if self._use_weights is None and weight is not None and _is_of_classes(weight, target):
            self._use_weights = True  # said once
            warn(
                "all rows of a class have the same weight, as class_weights, auto_class_weights and "
                "scale_pos_weight make it: RefinementLoss would measure other rows than shrink_to_best. Pass "
                "RefinementLoss(use_weights=False), or use_weights=True if these weights are meant."
            )
        return self._decompose(target, logits=logits, sample_weight=weight).refinement, 1.0

    def get_final_error(self, error: float, weight: float) -> float:
        """Return the value that is logged."""
        return error


@check_keywords(RefinementMonitor)
def shrink_to_best(
    model: Any,
    X_val: Any,
    y_val: Any = None,
    *,
    sample_weight: Any = None,
    **options: Unpack[MonitorOptions],
) -> RefinementMonitor:
    """Cut a trained model to its best number of trees; keep the calibrator of that number inside it.

    Works with every way to train, on a GPU too: predictions of each number of trees are looked at afterwards.

    Parameters
    ----------
    model : CatBoostClassifier or CatBoost
        Trained with a loss such as "Logloss" or "MultiClass". Changed in place.
    X_val : Pool or array-like
        Validation rows, as for ``model.predict``.
    y_val, sample_weight : array-like, optional
        By default those of the ``Pool``.
    **options
        Keywords of :class:`refinecal.RefinementMonitor`, such as ``metric`` or ``calibrator``.

    Returns
    -------
    RefinementMonitor
        ``best_step`` counts from 0 like CatBoost's ``best_iteration_``: the model keeps ``best_step + 1``
        trees, those of an ``init_model`` included.
    """
    if not isinstance(model, CatBoost):
        raise TypeError(f"model is a {type(model).__name__}: it must be a CatBoostClassifier")
    if not model.is_fitted():
        raise ValueError("model is not trained yet: call model.fit first")
    loss = model.get_all_params()["loss_function"]
    if len(model.classes_) < 2 or loss.split(":")[0] in NOT_SOFTMAX:
        raise ValueError(
            f"model was trained with loss_function={loss!r}: it must give one probability per class that "
            "sum to 1, so train it with 'Logloss' or 'MultiClass'"
        )
    if isinstance(X_val, Pool):
        sample_weight = X_val.get_weight() if sample_weight is None else sample_weight
        y_val = X_val.get_label() if y_val is None else y_val
    if y_val is None:
        raise TypeError("y_val is missing: pass the labels of X_val, or a Pool that holds them")
    options.setdefault("classes", model.classes_)
    staged = model.staged_predict(X_val, prediction_type="RawFormulaVal")
    monitor = select(y_val, logits=staged, sample_weight=sample_weight, **options)
    if monitor.best_step is None:
        raise ValueError(
            f"metric {monitor.metric.name!r} is NaN for every number of trees: it needs other validation rows"
        )
    model.shrink(monitor.best_step + 1)
    store_calibrator(model, monitor.calibrator)
    return monitor


def calibrator_of(model: Any) -> Calibrator:
    """Return the calibrator that :func:`shrink_to_best` left in a model.

    Parameters
    ----------
    model : CatBoostClassifier or CatBoost
        Perhaps by way of ``save_model`` and ``load_model``.

    Returns
    -------
    Calibrator
        Takes raw predictions: ``model.predict(X, prediction_type="RawFormulaVal")``.
    """
    text = model.get_metadata().get(METADATA_KEY, None)
    if text is None:
        raise ValueError(
            "model holds no calibrator: call shrink_to_best(model, X_val, y_val) first. A calibrator that is "
            "not of this package is not stored; it is in the monitor that shrink_to_best returned."
        )
    stored = json.loads(text)
    if stored["of"] != _identity(model):
        raise ValueError(
            "the calibrator in model belongs to other trees, since the model was trained or cut again: "
            "call shrink_to_best(model, X_val, y_val) once more"
        )
    return from_dict(stored["calibrator"])


def predict_proba(model: Any, X: Any) -> NDArray[Any]:
    """Return calibrated probabilities, with the calibrator that :func:`shrink_to_best` left in a model.

    Parameters
    ----------
    model : CatBoostClassifier or CatBoost
    X : Pool or array-like
        What ``model.predict`` takes.

    Returns
    -------
    ndarray of shape (n, k)
        Columns are ``model.classes_``.
    """
    raw = model.predict(X, prediction_type="RawFormulaVal")
    return calibrator_of(model).predict_proba_logits(raw)


def _is_of_classes(weight: NDArray[Any], target: NDArray[Any]) -> bool:
    """Tell whether rows of one class have the same weight, but not all rows."""
    return bool(np.ptp(weight) > 0) and not any(
        np.ptp(weight[target == label]) > 0 for label in np.unique(target)
    )


def store_calibrator(model: Any, calibrator: Any) -> None:
    """Keep the calibrator in the model's metadata, which its files hold too, unless it is a foreign one."""
    metadata = model.get_metadata()
    if isinstance(calibrator, Calibrator):
        stored = {"of": _identity(model), "calibrator": calibrator.to_dict()}
        metadata[METADATA_KEY] = json.dumps(stored)
    elif metadata.get(METADATA_KEY, None) is not None:
        del metadata[METADATA_KEY]


def _identity(model: Any) -> list[Any]:
    """Return what changes when a model is trained or cut again."""
    return [model.get_metadata()["model_guid"], model.tree_count_]
