"""Stop CatBoost where refinement is best; keep the best trees and their calibrator.

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
from refinecal.calibrators.base import Calibrator
from refinecal.decomposition import decompose
from refinecal.integrations._adapter import from_stored, to_stored
from refinecal.losses import ProperLoss
from refinecal.selection import select
from refinecal.stopping import MonitorOptions, RefinementMonitor

with needs_extra("catboost", package="catboost"):
    from catboost import CatBoost, Pool

__all__ = ["RefinementLoss", "calibrator_of", "predict_proba", "shrink_to_best"]

METADATA_KEY = "refinecal_calibrator"
NOT_SOFTMAX = ("MultiClassOneVsAll", "MultiLogloss", "MultiCrossEntropy")  # one sigmoid per class


class RefinementLoss:
    """An ``eval_metric``: the loss left after the best calibration.

    CatBoost logs it as "RefinementLoss". ``early_stopping_rounds`` and ``use_best_model`` follow it on the
    last evaluation set; :func:`shrink_to_best` adds the calibrator. Models may share one object, which has
    no state. The training loss must give probabilities that sum to 1, such as "Logloss" or "MultiClass"; the
    metric cannot check that.

    CatBoost computes metrics on the training rows too; with ``early_stopping_rounds``, a large
    ``metric_period`` makes that rare without skipping validation rounds. Python metrics run on the CPU only:
    on a GPU, train without this metric and call :func:`shrink_to_best`.

    CatBoost multiplies validation weights by ``class_weights``, ``auto_class_weights`` and
    ``scale_pos_weight``; :func:`shrink_to_best` does not. With one of these, pass ``use_weights=False``; if
    validation rows also have sample weights, train without this metric and call :func:`shrink_to_best`.

    Parameters
    ----------
    loss, calibrator, cv, n_threads
        As for :func:`refinecal.decompose`.
    use_weights : bool, optional
        Whether to use weights, as CatBoost's own metrics do. By default yes, with a warning if all rows of
        a class have the same weight, since that suggests class weights.
    """

    no_jit = True  # else CatBoost tries to compile evaluate with numba, and warns

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
        # Raises for wrong options now, not during training; and "auto" is too slow for every round.
        followed = RefinementMonitor(loss=loss, calibrator=calibrator, cv=cv, n_threads=n_threads)
        options: Any = {"calibrator": followed.family, "cv": followed.cv}
        self._decompose: Any = partial(decompose, loss=loss, n_threads=n_threads, **options)

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # CatBoost copies parameters; scikit-learn's clone needs the same object

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
            return math.inf, 1.0  # never the best; CatBoost stops a diverged run by itself
        if self._use_weights is False:
            weight = None
        if self._use_weights is None and weight is not None and _is_of_classes(weight, target):
            self._use_weights = True  # warn once
            warn(
                "all rows of a class have the same weight, as with class_weights, auto_class_weights or "
                "scale_pos_weight: RefinementLoss would weight rows differently from shrink_to_best. Pass "
                "RefinementLoss(use_weights=False), or use_weights=True to keep these weights."
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
    """Cut a trained model to its best number of trees, and store their calibrator in it.

    Works after any training, also on a GPU: it evaluates the predictions of each number of trees. Returns
    the monitor, whose ``best_step`` counts from 0 like ``best_iteration_``: the model keeps ``best_step + 1``
    trees, including those of an ``init_model``.

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
            f"metric {monitor.metric.name!r} is NaN for every number of trees: use other validation rows"
        )
    model.shrink(monitor.best_step + 1)
    store_calibrator(model, monitor.calibrator)
    return monitor


def calibrator_of(model: Any) -> Calibrator:
    """Return the calibrator that :func:`shrink_to_best` stored in a model.

    It takes raw predictions: ``model.predict(X, prediction_type="RawFormulaVal")``.

    Parameters
    ----------
    model : CatBoostClassifier or CatBoost
        As trained, or saved and loaded.
    """
    stored = json.loads(model.get_metadata().get(METADATA_KEY, None) or "{}")
    if stored and stored["of"] != _identity(model):
        raise ValueError(
            "the calibrator in model belongs to other trees, since the model was trained or cut again: "
            "call shrink_to_best(model, X_val, y_val) again"
        )
    return from_stored(
        stored.get("calibrator"),
        "model holds no calibrator: call shrink_to_best(model, X_val, y_val) first. Custom calibrators are "
        "not stored: use the monitor that shrink_to_best returned.",
    )


def predict_proba(model: Any, X: Any) -> NDArray[Any]:
    """Return calibrated probabilities, one column for each of ``model.classes_``.

    Parameters
    ----------
    model : CatBoostClassifier or CatBoost
        After :func:`shrink_to_best`.
    X : Pool or array-like
        What ``model.predict`` takes.
    """
    raw = model.predict(X, prediction_type="RawFormulaVal")
    return calibrator_of(model).predict_proba_logits(raw)


def _is_of_classes(weight: NDArray[Any], target: NDArray[Any]) -> bool:
    """Return whether weights differ between classes, but not within."""
    return bool(np.ptp(weight) > 0) and not any(
        np.ptp(weight[target == label]) > 0 for label in np.unique(target)
    )


def store_calibrator(model: Any, calibrator: Any) -> None:
    """Store the calibrator in the model's metadata, which its files include, unless it is a custom one."""
    metadata, stored = model.get_metadata(), to_stored(calibrator)
    if stored is not None:
        metadata[METADATA_KEY] = json.dumps({"of": _identity(model), "calibrator": stored})
    elif metadata.get(METADATA_KEY, None) is not None:
        del metadata[METADATA_KEY]


def _identity(model: Any) -> list[Any]:
    """Return an identity that changes when a model is trained or cut again."""
    return [model.get_metadata()["model_guid"], model.tree_count_]
