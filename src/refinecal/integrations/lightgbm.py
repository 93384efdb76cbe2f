"""Stop LightGBM where refinement is best: one callback for ``lgb.train`` and ``LGBMClassifier.fit``.

LightGBM's model file has no room for a calibrator. Save it next to the file with
``stopping.calibrator.to_json()``, and load it with :func:`refinecal.calibrators.from_json`; its
``predict_proba`` takes the probabilities of the loaded model.
"""

from __future__ import annotations  # so that help() shows types by name

import math
import pickle
import sys
from collections.abc import Collection
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from refinecal._core.checks import check_keywords
from refinecal._core.errors import needs_extra
from refinecal.calibrators.base import Calibrator
from refinecal.integrations._adapter import (
    BoosterStopping,
    check_booster,
    from_stored,
    to_integers,
    to_stored,
)
from refinecal.stopping import MonitorOptions, RefinementMonitor, check_patience

with needs_extra("lightgbm", package="lightgbm"):
    import lightgbm as lgb
    from lightgbm.callback import CallbackEnv, EarlyStopException

__all__ = ["RefinementStopping", "calibrator_of", "predict_proba"]

PROBABILITIES = ("binary", "cross_entropy", "xentropy", "multiclass", "softmax")
BOOSTING = ("boosting", "boosting_type", "boost")  # names of one parameter
MARGINS = "none"  # LightGBM's name for a custom objective
LARGEST = 53 * math.log(2.0)  # log-odds of the largest float64 below 1


class RefinementStopping(BoosterStopping):
    """Stop boosting when refinement no longer improves; keep the best round and its calibrator.

    Replaces ``lgb.early_stopping``: pass it in ``callbacks``, and validation data in ``valid_sets`` of
    ``lgb.train``, or in ``eval_set`` or ``eval_X`` and ``eval_y`` of ``fit``. Its labels and weights are
    used; the training set is ignored. The model keeps the rounds up to the best. The values are added to
    LightGBM's own for ``log_evaluation``, ``record_evaluation`` and ``evals_result_``, except those of the
    round at which training stops. They include the log loss, so ``metric="None"`` saves a little time.
    Works with dart too. To train further from ``init_model``, pass the same object again.

    LightGBM returns validation predictions as float64 probabilities: log-odds of two classes are clipped at
    36.7.

    Parameters
    ----------
    stopping_rounds : int, optional
        Stop after this many rounds in a row without improvement; by default train all rounds.
    valid_name : str, optional
        The name of the validation set to follow; only needed if there are several.
    **options
        Keywords of :class:`refinecal.RefinementMonitor`, such as ``metric`` or ``calibrator``. Only labels
        -1 and 1 of ``lgb.train`` need ``classes``.

    Attributes
    ----------
    monitor : RefinementMonitor
        With the ``history`` of all rounds.

    Examples
    --------
    >>> import lightgbm as lgb
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> stopping = RefinementStopping(stopping_rounds=5)
    >>> model = lgb.LGBMClassifier(n_estimators=200, n_jobs=1, verbose=-1)
    >>> model = model.fit(X[:400], y[:400], eval_X=X[400:], eval_y=y[400:], callbacks=[stopping])
    >>> model.best_iteration_ == stopping.best_iteration
    True
    >>> predict_proba(model, X[400:]).shape  # calibrated
    (169, 2)
    """

    first_round = 1  # as LightGBM counts

    @check_keywords(MonitorOptions)
    def __init__(
        self,
        stopping_rounds: int | None = None,
        *,
        valid_name: str | None = None,
        **options: Unpack[MonitorOptions],
    ) -> None:
        self.monitor = RefinementMonitor(
            patience=check_patience(stopping_rounds, "stopping_rounds"), **options
        )
        self.valid_name = valid_name
        self.order = -1000  # LightGBM calls it before the callbacks that log
        self.before_iteration = False
        self._snapshot = ""

    # ---- what LightGBM calls -----------------------------------------------------------------------------

    def __call__(self, env: CallbackEnv) -> None:
        """Evaluate the new round, log it, and stop training if it is time."""
        if env.iteration == env.begin_iteration:
            self._start(env)
        better = self.monitor.update(
            self._labels,
            logits=self._look(env.model),
            step=env.iteration + self.first_step,
            sample_weight=self._weights,
        )
        greater = {metric.key for metric in self.monitor.metrics if metric.greater_is_better}
        assert env.evaluation_result_list is not None
        for key, value in self.monitor.logs().items():
            result = lgb.EvalResult(self._name, key, value, key in greater)
            env.evaluation_result_list.append(result)
        results = list(env.evaluation_result_list)
        if better:
            self._best_results = results
            self._snapshot = env.model.model_to_string(num_iteration=-1) if self._is_dart else ""
        if self.monitor.should_stop or env.iteration + 1 == env.end_iteration:
            self._finish(env, results)

    def _start(self, env: CallbackEnv) -> None:
        check_booster(env.model, lgb.Booster, "lgb")
        self._check(env.params)
        _refuse_early_stopping(self)
        self._name, data = self._find_data(env.model)
        self._labels, self._weights = to_integers(data.get_label()), data.get_weight()
        self._returns_margins = env.params["objective"] == MARGINS
        smooth = self.monitor.family.is_smooth  # so rounding does no harm
        self._precision = np.float32 if smooth else np.float64
        self._is_dart = "dart" in [env.params.get(alias) for alias in BOOSTING]
        before, best = env.begin_iteration - 1, self.monitor.best_step
        if best is None or before not in (best, self.monitor.last_step):
            self.monitor.reset()
        elif before == best:
            _rewind(self.monitor, best)

    def _check(self, params: dict[str, Any]) -> None:
        objective = params.get("objective")
        if objective not in (*PROBABILITIES, MARGINS):
            raise ValueError(
                f"the objective is {objective!r}, which does not give probabilities of classes: it must be "
                f"one of {', '.join(map(repr, PROBABILITIES))}, or a custom function"
            )
        if (params.get("early_stopping_round") or 0) > 0:
            raise ValueError(
                f"early_stopping_round is {params['early_stopping_round']}, but RefinementStopping decides "
                "when to stop: omit it, and pass stopping_rounds= to RefinementStopping"
            )

    def _find_data(self, model: Any) -> tuple[str, Any]:
        names = list(model.name_valid_sets)
        if not names:
            raise ValueError(
                "there is no validation data: pass valid_sets=[Dataset(X_val, y_val, reference=train_set)] "
                "to lgb.train, or eval_X=X_val, eval_y=y_val to fit"
            )
        if self.valid_name is None and len(names) > 1:
            raise ValueError(
                f"there are several validation sets, {', '.join(map(repr, names))}: name the one to follow, "
                f"as in valid_name={names[0]!r}"
            )
        name = names[0] if self.valid_name is None else self.valid_name
        if name not in names:
            raise ValueError(
                f"valid_name is {name!r}: it must be one of {', '.join(map(repr, names))}"
            )
        return name, model.valid_sets[names.index(name)]

    def _look(self, model: Any) -> NDArray[Any]:
        seen: list[NDArray[np.float64]] = []

        def see(predictions: NDArray[np.float64], _: Any) -> tuple[str, float, bool]:
            seen.append(predictions)
            return "seen", 0.0, False

        data = model.valid_sets[model.name_valid_sets.index(self._name)]
        model.eval(data, self._name, see)  # the public way to the predictions that it keeps
        return seen[0] if self._returns_margins else _log_odds(seen[0], self._precision)

    def _finish(self, env: CallbackEnv, results: list[Any]) -> None:
        model: Any = env.model
        best = self.monitor.best
        if best is None:  # the metric was never a number: nothing to go back to
            raise EarlyStopException(env.iteration, results)
        stored = to_stored(best.calibrator)
        if stored is not None:
            model.refinecal = {"calibrator": stored, "margins": self._returns_margins}
            model.__class__ = CalibratedBooster
        model.best_iteration = n_rounds = best.step - self.first_step + 1
        if n_rounds == env.end_iteration:
            return  # nothing to go back to, and this round has to be logged
        if self._snapshot:  # dart changes earlier trees, so cutting would not restore them
            model.model_from_string(self._snapshot)
        raise EarlyStopException(n_rounds - 1, self._best_results)


class CalibratedBooster(lgb.Booster):
    """A ``Booster`` whose copies and pickles keep the calibrator and the best round."""

    def __deepcopy__(self, *_: Any) -> Any:
        return pickle.loads(pickle.dumps(self))


def calibrator_of(model: Any) -> Calibrator:
    """Return the calibrator that was stored in a model trained with :class:`RefinementStopping`.

    It takes what the model predicts: ``calibrator.predict_proba(probs)``.

    Parameters
    ----------
    model : Booster or LGBMClassifier
        As trained, copied or pickled; LightGBM's own files lose the calibrator.
    """
    return from_stored(
        getattr(_booster_of(model), "refinecal", {}).get("calibrator"),
        "model holds no calibrator: train it with callbacks=[RefinementStopping(...)]. LightGBM's files "
        "lose it, and custom calibrators are not stored: use RefinementStopping.calibrator.",
    )


def predict_proba(model: Any, X: Any) -> NDArray[Any]:
    """Return calibrated probabilities ``(n, k)`` of the best round.

    Parameters
    ----------
    model : Booster or LGBMClassifier
        Trained with :class:`RefinementStopping`.
    X : array-like
        What ``model.predict`` takes.
    """
    calibrator, booster = calibrator_of(model), _booster_of(model)
    predictions = booster.predict(X)
    is_margin = booster.refinecal["margins"]
    return calibrator.predict_proba_logits(predictions if is_margin else _log_odds(predictions))


def _booster_of(model: Any) -> Any:
    return model if isinstance(model, lgb.Booster) else model.booster_


def _refuse_early_stopping(stopping: RefinementStopping) -> None:
    """Raise if LightGBM's own callback is used too; only the caller's frame knows all callbacks."""
    frame: Any = sys._getframe()
    while frame is not None:
        callbacks = frame.f_locals.get("callbacks")  # an argument of lgb.train
        if isinstance(callbacks, Collection) and any(one is stopping for one in callbacks):
            own = type(lgb.early_stopping(1, verbose=False))
            if any(isinstance(one, own) and one.stopping_rounds > 0 for one in callbacks):
                raise ValueError(
                    "callbacks holds lgb.early_stopping, but RefinementStopping decides when to stop: leave "
                    "out lgb.early_stopping, and pass stopping_rounds= to RefinementStopping"
                )
            return
        frame = frame.f_back


def _log_odds(probs: NDArray[np.float64], dtype: Any = np.float64) -> NDArray[Any]:
    """Return logits of probabilities, none of them infinite."""
    if probs.ndim == 2:
        least = np.finfo(dtype).tiny
        if probs.min() < least:  # only then is float64 needed
            return np.asarray(np.log(np.maximum(probs, np.finfo(np.float64).tiny)))
        return np.asarray(np.log(probs.astype(dtype)))
    odds = 1 - probs
    with np.errstate(divide="ignore"):
        np.divide(probs, odds, out=odds)
        logits = odds.astype(dtype, copy=False)  # odds are exact up to rounding, so logits are too
        np.log(logits, out=logits)
    return np.clip(logits, -LARGEST, LARGEST, out=logits)


def _rewind(monitor: RefinementMonitor, step: int) -> None:
    """Forget the steps after the best, which LightGBM has cut off."""
    state, later = monitor.state_dict(), monitor.history[-1]["step"] - step
    state["history"] = [record for record in state["history"] if record["step"] <= step]
    state["bests"] = {name: best for name, best in state["bests"].items() if best["step"] <= step}
    state["waited"] = {name: max(0, waited - later) for name, waited in state["waited"].items()}
    monitor.load_state_dict(state)
