"""scikit-learn: train step by step, stop on refinement, keep the model of the best step.

A step is a boosting round (models with ``staged_decision_function`` or ``staged_predict_proba``) or a pass
over the data (models with ``partial_fit``); anything else is fitted once. Steps are counted from 1: step n
is the model after n rounds.
"""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from refinecal._core.checks import check_keywords, check_whole
from refinecal.integrations._adapter import Stopping
from refinecal.stopping import MonitorOptions, RefinementMonitor
from refinecal.training import trainer
from refinecal.training.predictions import is_frozen
from refinecal.training.rows import Rows

if TYPE_CHECKING:
    from refinecal.estimator import RefineThenCalibrateClassifier

__all__ = ["RefinementStopping", "ensemble_of", "train"]


class RefinementStopping(Stopping):
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
    >>> model.n_estimators_ == stopping.best_step < 500
    True
    """

    @check_keywords(MonitorOptions)
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
        self._classes = self.monitor.classes
        self._stages: Iterator[Any] = iter(())

    @property
    def best_step(self) -> int | None:
        """The number of rounds at which the metric was best; ``None`` before the first."""
        return self.monitor.best_step

    def __call__(self, i: int, model: Any, variables: Any = None) -> bool:
        """Take the predictions of round ``i``, from 0; return whether to stop."""
        X_val, y_val, weights = self._val
        if i == 0:
            self.monitor.reset()
            self.monitor.classes = model.classes_ if self._classes is None else self._classes
            self._stages = iter(())
        elif self.monitor.last_step not in (None, i):
            raise ValueError(
                f"round {i + 1} cannot follow round {self.monitor.last_step}: use a new RefinementStopping "
                "for another model"
            )
        logits = next(self._stages, None)
        if logits is None:  # a new training run, or n_estimators was raised since the last one
            self._stages = islice(model.staged_decision_function(X_val), i, None)
            logits = next(self._stages)
        self.monitor.update(y_val, logits=logits, step=i + 1, sample_weight=weights)
        return self.monitor.should_stop

    def __getstate__(self) -> dict[str, Any]:
        # A generator cannot be copied; the next call makes a new one.
        return {**self.__dict__, "_stages": iter(())}

    def restore(self, model: Any) -> Any:
        """Cut the model to its best round, in place, and return it."""
        if self.monitor.best_step is None:
            raise ValueError(
                "no round was seen: call model.fit(X, y, monitor=...) with this object"
            )
        return trainer.cut(model, self.monitor.best_step, self._val[0])


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
        Any scikit-learn classifier, a pipeline that ends in one, or the scikit-learn classifiers of XGBoost,
        LightGBM and CatBoost. It is not changed: a clone is trained, with its own early stopping switched
        off. Only a ``FrozenEstimator`` is used as it is.
    X, y, X_val, y_val : array-like
        Training and validation data.
    monitor : RefinementMonitor
        Sees the validation predictions of every step; its ``patience`` says when to stop. It must be new, or
        ``reset()``.
    max_steps : int, default 1000
        Maximum number of rounds or passes; replaces ``n_estimators`` or ``max_iter``.
    sample_weight, sample_weight_val : array-like, optional
        Weights of the rows.

    Returns
    -------
    classifier
        Fitted, at ``monitor.best_step``. XGBoost knows labels as numbers only: ``classes_`` of an
        ``XGBClassifier`` are 0, 1 and so on for the labels in order.

    Notes
    -----
    CatBoost gives predictions only after training. If ``metric`` is "refinement" it stops on its own
    measure of it; with other metrics, losses other than "Logloss" and "MultiClass", or on a GPU, it first
    trains ``max_steps`` rounds. The monitor then sees the same steps as with any other library.

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
    if monitor.history:
        raise ValueError(
            f"monitor has seen {len(monitor.history)} steps of another training run: call "
            "monitor.reset() first"
        )
    rows, val = _rows(X, y, sample_weight), _rows(X_val, y_val, sample_weight_val)
    last = trainer.last_of(estimator)
    classes = np.asarray(last.classes_) if is_frozen(last) else np.unique(rows.y)
    trainer.check_known(val.y, classes)
    given = monitor.classes
    if given is not None and not np.array_equal(np.asarray(given), classes):
        raise ValueError(
            f"monitor.classes are {np.asarray(given).tolist()}, but the columns of the model are those of "
            f"{classes.tolist()}: omit classes"
        )
    monitor.classes = classes  # for this training run
    try:
        run = trainer.TrainingRun(rows, val, classes, monitor, max_steps)
        model = trainer.train(trainer.new_model(estimator), run)
        run.find_best()
    finally:
        monitor.classes = given
    return model


def ensemble_of(
    search: Any,
    X: Any,
    y: Any,
    *,
    n_best: int = 10,
    sample_weight: Any = None,
    groups: Any = None,
    **options: Any,
) -> RefineThenCalibrateClassifier:
    """Return an ensemble of the best configurations that a search has tried.

    A search keeps no predictions, so these configurations are trained again, on the search's folds. Numbers
    of rounds are left out: each training run stops at its best step.

    Parameters
    ----------
    search : GridSearchCV, RandomizedSearchCV or another search
        Fitted, of a classifier; ``refinement_scorer()`` is a good ``scoring``.
    X, y : array-like
        Training data, as a rule that of the search.
    n_best : int, default 10
        The number of configurations, the best first.
    sample_weight, groups : array-like, optional
        Weights of the rows, and their groups, which no fold splits.
    **options
        Parameters of :class:`refinecal.RefineThenCalibrateClassifier`, such as ``random_state``; ``n_folds``
        is by default the search's ``cv``.

    Returns
    -------
    RefineThenCalibrateClassifier
        Fitted; ``ensemble_.weights`` are those of the configurations.

    Examples
    --------
    >>> import refinecal as rc
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> grid = {"max_depth": [1, 2, 3], "min_samples_leaf": [1, 5]}
    >>> search = GridSearchCV(DecisionTreeClassifier(random_state=0), grid, scoring=rc.refinement_scorer())
    >>> pool = ensemble_of(search.fit(X, y), X, y, n_best=4, random_state=0)
    >>> len(pool.ensemble_.names)
    4
    """
    from sklearn.model_selection import check_cv

    from refinecal.estimator import RefineThenCalibrateClassifier

    results = getattr(search, "cv_results_", None)
    if results is None:
        raise ValueError("search has no cv_results_: call search.fit(X, y) first")
    metric = search.refit if isinstance(search.refit, str) else "score"
    if f"mean_test_{metric}" not in results:
        raise ValueError(
            f"search has several scores and refit={search.refit!r}: set search.refit to the name of the "
            "score that ranks its configurations"
        )
    scores = np.asarray(results[f"mean_test_{metric}"], dtype=np.float64)
    steps = trainer.is_iterative(search.estimator)
    found: list[dict[str, Any]] = []
    for place in np.argsort(-scores, kind="stable"):  # NaN, of what failed, comes last
        params = {
            name: value
            for name, value in results["params"][place].items()
            if not (steps and name.rsplit("__", 1)[-1] in trainer.ROUNDS)
        }
        if np.isfinite(scores[place]) and repr(params) not in map(repr, found):
            found.append(params)
    if not found:
        raise ValueError("every configuration of the search has failed: see its error_score")
    options = {"n_folds": check_cv(search.cv, y, classifier=True), **options}
    kept = found[: check_whole("n_best", n_best)]
    pool = RefineThenCalibrateClassifier(
        search.estimator, candidates=kept, ensemble=True, **options
    )
    return pool.fit(X, y, sample_weight=sample_weight, groups=groups)


def _rows(X: Any, y: Any, weights: Any) -> Rows:
    return Rows(X, np.asarray(y), None if weights is None else np.asarray(weights))
