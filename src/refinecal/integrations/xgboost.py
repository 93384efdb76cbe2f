"""Stop XGBoost where refinement is best: one callback for ``xgb.train`` and ``XGBClassifier``.

Where no callback can be passed, use ``XGBClassifier(eval_metric=refinecal.refinement_error)``: it computes
the same from float32 probabilities, without calibration.
"""

from __future__ import annotations  # so that help() shows types by name

import json
import math
from collections import OrderedDict
from typing import Any, Unpack

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

with needs_extra("xgboost", package="xgboost"):
    import xgboost as xgb

__all__ = ["RefinementStopping", "calibrator_of", "predict_proba"]

ATTRIBUTE = "refinecal_calibrator"  # of the booster, next to best_iteration and best_score
ONE_TARGET = ("binary:logistic", "binary:logitraw", "binary:hinge", "reg:logistic")
ALLOWED = (*ONE_TARGET, "multi:softprob", "multi:softmax")
UNKNOWN = "reg:squarederror"  # XGBoost's name for a custom objective


class RefinementStopping(BoosterStopping, xgb.callback.TrainingCallback):
    """Stop boosting when refinement no longer improves; keep the best round and its calibrator.

    Pass it in ``callbacks``. After every round the booster predicts the validation data, one new tree at a
    time, so the set need not be in ``evals`` or ``eval_set``. The values appear in ``evals_result`` and in
    XGBoost's log, which ``verbose_eval=False`` or ``verbose=False`` silences. Training that continues from
    ``xgb_model`` starts with the rounds of that model. XGBoost's own ``EarlyStopping`` may stop too: after
    this callback it follows refinement, before it the last metric of ``evals``, unless it names one.

    Parameters
    ----------
    X_val : DMatrix or array-like
        Validation data.
    y_val : array-like, optional
        Its labels, encoded as in training or listed in ``classes``; by default those of the ``DMatrix``.
    rounds : int, optional
        Stop after this many rounds in a row without improvement; by default train all rounds.
    sample_weight : array-like, optional
        Sample weights; by default those of the ``DMatrix``.
    missing : float, default nan
        The value in an array ``X_val`` that means missing, as for ``XGBClassifier``.
    save_best : bool, default True
        Whether to drop the rounds after the best. XGBoost loses the category codes of models trained on
        data frames with categorical columns when it cuts them, so these keep all rounds.
    data_name : str, default "val"
        The data set's name in the log.
    **options
        Keywords of :class:`refinecal.RefinementMonitor`, such as ``metric`` or ``calibrator``.

    Attributes
    ----------
    monitor : RefinementMonitor
        With the ``history`` of all rounds.

    Notes
    -----
    ``XGBClassifier`` and :func:`predict_proba` ignore rounds after the best that were kept; for
    ``Booster.predict`` pass ``iteration_range=(0, booster.best_iteration + 1)``.

    A custom objective must give log-odds or logits. XGBoost reports it as 'reg:squarederror', its default
    objective. The default is rejected after the first round, but cannot be recognized if ``base_score`` is
    given or the mean of the training labels is 1/2.

    Examples
    --------
    >>> import xgboost as xgb
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> stopping = RefinementStopping(X[400:], y[400:], rounds=5)
    >>> model = xgb.XGBClassifier(n_estimators=200, callbacks=[stopping], n_jobs=1)
    >>> model = model.fit(X[:400], y[:400], verbose=False)
    >>> model.best_iteration == stopping.best_iteration
    True
    >>> predict_proba(model, X[400:]).shape  # calibrated
    (169, 2)
    """

    @check_keywords(MonitorOptions)
    def __init__(
        self,
        X_val: Any,
        y_val: Any = None,
        *,
        rounds: int | None = None,
        sample_weight: Any = None,
        missing: float = math.nan,
        save_best: bool = True,
        data_name: str = "val",
        **options: Unpack[MonitorOptions],
    ) -> None:
        super().__init__()
        self.monitor = RefinementMonitor(patience=check_patience(rounds, "rounds"), **options)
        self.X_val = X_val
        self.y_val = _labels_of(X_val) if y_val is None else y_val
        if sample_weight is None and isinstance(X_val, xgb.DMatrix) and len(X_val.get_weight()):
            sample_weight = X_val.get_weight()
        self.sample_weight = sample_weight
        self.missing = missing
        self.save_best = save_best
        self.data_name = data_name
        self._dval: xgb.DMatrix | None = None  # made for each run: it cannot be copied
        self._snapshot: bytearray | None = None

    # ---- what XGBoost calls ------------------------------------------------------------------------------

    def before_training(self, model: Any) -> Any:
        """Start over; evaluate the rounds of a model that is trained further."""
        self.monitor.reset()
        self._snapshot = None
        self._check(model)
        self._dval = self.X_val
        if not isinstance(self.X_val, xgb.DMatrix):
            self._dval = xgb.DMatrix(self.X_val, missing=self.missing, enable_categorical=True)
        done = model.num_boosted_rounds()
        for step in range(done) if self._can_cut else range(done)[-1:]:
            self._look(model, step)
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Evaluate the new round, log it, and return whether to stop."""
        if epoch == 0 and self._objective == UNKNOWN and _base_score_of(model) != self._base_score:
            # Only a built-in objective fits the base score, so this is not a custom one.
            raise ValueError(
                f"the objective is {UNKNOWN!r}, XGBoost's default, which does not give log-odds of classes: "
                f"pass objective=, one of {', '.join(map(repr, ALLOWED))}"
            )
        self._look(model, model.num_boosted_rounds() - 1)
        logs = self.monitor.logs()
        # Last, since XGBoost's own EarlyStopping follows the last metric of the last data set.
        logs["refinement_loss"] = logs.pop("refinement_loss")
        record = evals_log.setdefault(self.data_name, OrderedDict())
        for name, value in logs.items():
            record.setdefault(name, []).append(value)
        if epoch == 0 and model.attr("best_iteration") == str(self._last_round):
            # An EarlyStopping before us has chosen its metric: let that stay last.
            if len(record) == len(logs):  # no other metric of these data
                evals_log.move_to_end(self.data_name, last=False)
            for name in logs:
                record.move_to_end(name, last=False)
        return self.monitor.should_stop

    def after_training(self, model: Any) -> Any:
        """Return the model of the best round, with its number, value and calibrator as attributes."""
        rounds = model.num_boosted_rounds()
        if self._last_round == rounds - 2:  # a callback before us stopped after the last
            self._look(model, rounds - 1)
        self._dval = None
        best = self.monitor.best
        best_round = self.best_iteration
        if best is None or best_round is None:
            return model
        if best_round >= rounds:
            raise ValueError(
                f"the best round is {best_round}, but another callback has cut the model to {rounds} "
                "rounds: omit EarlyStopping(save_best=True)"
            )
        if self._snapshot is not None:
            model.load_model(self._snapshot)
        elif self.save_best:
            cut = model[: best_round + 1]
            has_codes = hasattr(model, "get_categories") and not model.get_categories().empty()
            if not (has_codes and cut.get_categories().empty()):  # XGBoost would lose them
                model = cut
        model.set_attr(best_iteration=str(best_round), best_score=str(best.value))
        stored = to_stored(best.calibrator)
        if stored is not None:
            model.set_attr(**{ATTRIBUTE: json.dumps(stored)})
        return model

    def _look(self, model: Any, step: int) -> None:
        margins = model.predict(self._dval, output_margin=True, iteration_range=(0, step + 1))
        if margins.ndim == 2 and self._objective in ONE_TARGET:
            raise ValueError(
                f"the model has {margins.shape[1]} targets with objective {self._objective!r}: refinement "
                "is measured on one. Train one model per target, or 'multi:softprob' for classes."
            )
        better = self.monitor.update(
            self.y_val,
            logits=margins,
            step=step + self.first_step,
            sample_weight=self.sample_weight,
        )
        if better and not self._can_cut:
            self._snapshot = model.save_raw()

    def _check(self, model: Any) -> None:
        """Store the objective, and whether cutting the model gives that of an earlier round."""
        check_booster(model, xgb.Booster, "xgb")
        config = json.loads(model.save_config())["learner"]
        objective, booster = config["objective"]["name"], config["gradient_booster"]["name"]
        if objective not in (*ALLOWED, UNKNOWN):
            raise ValueError(
                f"the objective is {objective!r}, which does not give log-odds of classes: it must be one "
                f"of {', '.join(map(repr, ALLOWED))}, or a custom function"
            )
        self._objective, self._can_cut = objective, booster == "gbtree"
        self._base_score = _base_score_of(model)
        if not (self._can_cut or self.save_best):
            raise ValueError(
                f"save_best is False, but with booster={booster!r} later rounds change earlier "
                "ones, so the best round would be lost: omit save_best"
            )

    @property
    def _last_round(self) -> int | None:
        last = self.monitor.last_step
        return None if last is None else last - self.first_step


def calibrator_of(model: Any) -> Calibrator:
    """Return the calibrator that was stored in a model trained with :class:`RefinementStopping`.

    It takes margins: ``calibrator.predict_proba_logits(margins)``.

    Parameters
    ----------
    model : Booster or XGBClassifier
        As trained, or saved and loaded.
    """
    return from_stored(
        json.loads(_booster_of(model).attr(ATTRIBUTE) or "null"),
        "model holds no calibrator: train it with callbacks=[RefinementStopping(...)]. Custom calibrators "
        "are not stored: use RefinementStopping.calibrator.",
    )


def predict_proba(model: Any, X: Any) -> NDArray[Any]:
    """Return calibrated probabilities ``(n, k)`` of the best round.

    Parameters
    ----------
    model : Booster or XGBClassifier
        Trained with :class:`RefinementStopping`.
    X : DMatrix or array-like
        What ``model.predict`` takes: a ``DMatrix`` for a ``Booster``.
    """
    calibrator = calibrator_of(model)
    margins = model.predict(
        X, output_margin=True, iteration_range=(0, _booster_of(model).best_iteration + 1)
    )
    return calibrator.predict_proba_logits(margins)


def _booster_of(model: Any) -> Any:
    return model if isinstance(model, xgb.Booster) else model.get_booster()


def _base_score_of(model: Any) -> str:
    found: str = json.loads(model.save_config())["learner"]["learner_model_param"]["base_score"]
    return found


def _labels_of(X_val: Any) -> Any:
    if not isinstance(X_val, xgb.DMatrix):
        raise TypeError(
            "y_val is missing: pass RefinementStopping(X_val, y_val) or a labeled DMatrix"
        )
    labels = X_val.get_label()
    if not len(labels):
        raise ValueError(
            "X_val is a DMatrix without labels: make it as DMatrix(X_val, y_val), or pass y_val"
        )
    return to_integers(labels)
