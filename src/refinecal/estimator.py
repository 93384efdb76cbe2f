"""Refine, then calibrate, as one scikit-learn classifier."""

from __future__ import annotations  # so that help() shows types by name

import numbers
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import ParameterGrid
from sklearn.utils import check_array, check_random_state, get_tags, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from refinecal._core.checks import check_keywords, check_weights, check_whole
from refinecal.metrics import get_metric
from refinecal.training.crossfit import Ensemble, FoldModel, all_classes
from refinecal.training.pool import Pool
from refinecal.training.predictions import is_frozen, predictions_of, show_label
from refinecal.training.rows import AUTO_FOLDS, FEW, Parts, Rows, concat_rows, parts
from refinecal.training.trainer import (
    ROUNDS,
    Candidate,
    EstimatorFolds,
    check_known,
    is_iterative,
    last_of,
)

__all__ = ["RefineThenCalibrateClassifier"]


class RefineThenCalibrateClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Stop on refinement, calibrate, average.

    The rows are split into folds. On each fold, the estimator is trained step by step (boosting rounds, or
    passes of models with ``partial_fit``) while the refinement error on the held-out rows is monitored, and
    is restored to its best step. Of several ``candidates``, such as regularization strengths, the one with
    the smallest refinement error is kept, or with ``ensemble`` a weighted pool of them. One calibrator is
    fitted to the held-out predictions of all models, and the calibrated probabilities are averaged. Averaging
    cancels errors that the models do not share, so the mean is then sharpened by how far models disagree on
    rows held out of two of them. The result does not depend on the order of the rows.

    Parameters
    ----------
    estimator : classifier, optional
        scikit-learn's, a pipeline that ends in one, or ``XGBClassifier``, ``LGBMClassifier``,
        ``CatBoostClassifier``; by default ``HistGradientBoostingClassifier()``.
    candidates : dict of lists, or list, optional
        Parameters to choose from, as ``ParameterGrid`` takes them; or a list, each element a dict of
        parameters, another classifier, or a pair of a classifier and a dict of lists.
    ensemble : bool, default False
        Pool the candidates by :func:`select_ensemble` instead of choosing one. Each is calibrated (with
        "auto", by a temperature) and averaged over folds; only those with a weight are trained on all folds.
    max_steps : int, default 1000
        Maximum number of rounds or passes; replaces ``n_estimators`` or ``max_iter``.
    patience : int or None, default 50
        Steps without improvement after which training stops.
    metric : str or callable, default "refinement"
        The metric to stop and choose by, as for :class:`RefinementMonitor`.
    min_delta : float, default 0
        As for :class:`RefinementMonitor`.
    calibrator : str or object, default "auto"
        As for :func:`decompose`. With "auto", steps are compared after temperature scaling.
    validation_fraction : float, default 0.2
        The fraction held out if rows are held out once: stratified by label, or whole groups with ``groups``.
    n_folds : int, splitter, None or "auto", default "auto"
        Hold out each fold in turn, and average the models of all folds; a splitter of scikit-learn gets the
        rows in the order in which they came. ``None`` holds out a part once. "auto" is repeated
        5-fold cross-validation: 10 models, or 7 (5 folds and 2 more) if rows times classes are 20,000 or
        more. ``candidates`` are compared on the first 5 folds.
    refit : bool, default False
        Train once more on all rows, for the chosen number of steps and with the chosen candidate, and
        predict with that one model.
    tuned_defaults : bool, default True
        Give ``XGBClassifier`` a learning rate of 0.1 and ``colsample_bynode=0.6``, if they are not set:
        better than the library's defaults on most of 49 tables. Parameters that you set are never changed.
    random_state : int, RandomState or None
        For the split, and for the estimator if its seed is not set. The number of the fold is added to the
        seed of each model.

    Attributes
    ----------
    estimator_ : classifier
        The fitted estimator at its best step (the first fold's, with ``n_folds``).
    calibrator_ : Calibrator
        Fitted on the held-out rows: one for all models.
    pool_beta_ : float
        The inverse temperature of the mean: 1 for a single model, larger for models that disagree. ``None``
        if each row is held out only once, which does not show how far they disagree: then the mean is
        geometric.
    best_step_ : int
        How many steps ``estimator_`` was trained for, counted from 1; 1 for models that are fitted once.
    best_params_ : dict
        The parameters of the chosen candidate, of an ensemble those of its heaviest member.
    ensemble_ : SelectedEnsemble
        With ``ensemble``: the weight of each candidate, what the pool gains, a table. ``estimators_`` has the
        models of all members with a weight, one member after the other.
    history_ : list of dict
        One record per candidate and step: ``candidate``, ``step``, every term of the decomposition, ``beta``,
        the metric; with ``n_folds`` also ``fold``.
    monitor_ : RefinementMonitor
        The monitor of ``estimator_``, for ``monitor_.plot()``.
    estimators_, calibrators_ : list
        One per model; a list of one without folds. The calibrators are all the same.
    classes_ : ndarray
        The labels.

    Examples
    --------
    >>> import refinecal as rc
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = rc.RefineThenCalibrateClassifier(GradientBoostingClassifier(), random_state=0).fit(X, y)
    >>> model.predict_proba(X).shape, model.best_step_ == model.estimator_.n_estimators_
    ((569, 2), True)

    Choose the regularization instead of the step:

    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> path = {"logisticregression__C": [0.01, 0.1, 1, 10]}
    >>> line = make_pipeline(StandardScaler(), LogisticRegression())
    >>> model = rc.RefineThenCalibrateClassifier(line, candidates=path, random_state=0).fit(X, y)
    >>> model.best_params_["logisticregression__C"] in path["logisticregression__C"]
    True

    Pool different classifiers:

    >>> kinds = [line, GradientBoostingClassifier()]
    >>> model = rc.RefineThenCalibrateClassifier(
    ...     candidates=kinds, ensemble=True, n_folds=3, random_state=0
    ... ).fit(X, y)
    >>> model.ensemble_.names, float(model.ensemble_.weights.sum().round(6))
    (('LogisticRegression', 'GradientBoostingClassifier'), 1.0)

    References
    ----------
    Section 4 of "Rethinking Early Stopping: Refine, Then Calibrate".
    """

    estimator_: Any
    calibrator_: Any
    best_step_: int
    best_params_: dict[str, Any]
    history_: list[dict[str, float]]
    classes_: NDArray[Any]

    @check_keywords()
    def __init__(
        self,
        estimator: Any = None,
        *,
        candidates: Any = None,
        ensemble: bool = False,
        max_steps: int = 1000,
        patience: int | None = 50,
        metric: Any = "refinement",
        min_delta: float = 0.0,
        calibrator: Any = "auto",
        validation_fraction: float = 0.2,
        n_folds: Any = "auto",
        refit: bool = False,
        tuned_defaults: bool = True,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.candidates = candidates
        self.ensemble = ensemble
        self.max_steps = max_steps
        self.patience = patience
        self.metric = metric
        self.min_delta = min_delta
        self.calibrator = calibrator
        self.validation_fraction = validation_fraction
        self.n_folds = n_folds
        self.refit = refit
        self.tuned_defaults = tuned_defaults
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
        groups: Any = None,
    ) -> Self:
        """Train, choose, calibrate.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix
            As the estimator takes it.
        y : array-like
            Labels of any type that scikit-learn takes.
        sample_weight : array-like, optional
            Sample weights for training and validation. Whole numbers are taken as repetitions, unless there
            would be more than four times as many rows; all copies are in the same fold. Equal rows may be
            in different folds: pass ``groups`` to keep them together.
        X_val, y_val, sample_weight_val : array-like, optional
            Validation data; then nothing is held out of ``X``.
        groups : array-like, optional
            Rows of the same group are held out together.

        Returns
        -------
        self
        """
        self._check_parameters(X_val, y_val, sample_weight_val, groups)
        rows = _check_rows(X, y, sample_weight, groups)
        classes = rows.classes()
        if len(classes) < 2:
            raise ValueError(
                f"y holds one class only, {show_label(classes[0])}: there is nothing to learn"
            )
        if self._is_frozen():
            unknown = np.setdiff1d(last_of(self.estimator).classes_, classes)
            if unknown.size:
                raise ValueError(
                    f"the frozen estimator knows the class {show_label(unknown[0])}, but y has no row of it: "
                    "pass rows of every class"
                )
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        pairs: Sequence[tuple[Rows, Rows]]
        if X_val is None:
            n_more = AUTO_FOLDS if rows.n * len(classes) < FEW else 2
            n_more = 0 if self.refit or self._is_frozen() else n_more
            pairs = parts(rows, self.n_folds, self.validation_fraction, seed, n_more)
            everything = rows.in_order() if self.refit else rows
        else:
            val = _check_rows(X_val, y_val, sample_weight_val, None, "_val")
            check_known(val.y, classes)
            pairs = [(rows.in_order(), val.in_order())]
            everything = concat_rows(*pairs[0]) if self.refit else rows
        self._fit_folds(pairs, everything, classes, seed)
        return self

    # ---- training ---------------------------------------------------------------------------------------

    def _fit_folds(
        self, pairs: Sequence[tuple[Rows, Rows]], rows: Rows, classes: NDArray[Any], seed: int
    ) -> None:
        """Cross-fit the candidates, or refit the one chosen to all rows; set the fitted attributes."""
        metric, candidates = get_metric(self.metric), self._candidates()
        n_first = pairs.n_first if isinstance(pairs, Parts) else 1
        n_compared = n_first if isinstance(self.n_folds, str) else len(pairs)
        folds = EstimatorFolds(self, classes, candidates, seed, metric, n_first)
        pool: Pool | None = None
        if self.ensemble:
            pool, members = folds.search_pool(pairs, n_compared)
        else:
            trained = folds.train_all(pairs, len(candidates), n_compared)
            best = folds.search(pairs, trained, [metric])
            members = {"": folds.smooth(best[metric.name][1])}
        groups = {
            name: folds.join(
                models, "temperature" if pool and self.calibrator == "auto" else self.calibrator
            )
            for name, models in members.items()
        }
        first = next(iter(members.values()))[0]
        models = [model for each in members.values() for model in each]
        n_steps = first.choices[metric.name].step
        if self._is_frozen():
            models, groups = models[:1], {"": groups[""].single(first.known)}
        elif self.refit:
            n_steps = folds.median_step(next(iter(members.values())))
            models = [folds.retrain(each, rows) for each in members.values()]
            everything = np.arange(len(classes))
            groups = {name: each.single(everything) for name, each in groups.items()}
        # From here on nothing fails: a fit that fails sets no attributes.
        self.classes_, self.history_ = classes, folds.history
        if len(pairs) == 1:
            for record in self.history_:
                del record["fold"]
        self.best_step_, self.monitor_ = n_steps, first.monitor
        self.best_params_ = dict(candidates[first.candidate].params)
        self._set_models(models, groups, pool)

    def _set_models(
        self, models: list[FoldModel], groups: dict[str, Ensemble], pool: Pool | None
    ) -> None:
        """Keep what predicts: the models, and how they are calibrated and averaged."""
        metric = get_metric(self.metric).name
        self._smoothing = [each.smoothing for each in models]
        likes = [each.choices[metric].logits for each in models]
        self._likes = [like._replace(values=np.empty(0)) for like in likes]
        self.estimators_ = [each.model for each in models]
        self.estimator_ = self.estimators_[0]
        self._ensemble: Ensemble | Pool = next(iter(groups.values()))
        self.__dict__.pop("ensemble_", None)
        if pool is not None:
            self.ensemble_ = pool.selected
            self._ensemble = Pool(groups, pool.selected)
        self.pool_beta_ = None if pool is not None else groups[""].beta
        found = self._ensemble.calibrator
        self.calibrator_ = getattr(found, "user", found)
        self.calibrators_ = [
            getattr(each.calibrator, "user", each.calibrator)
            for each in groups.values()
            for _ in each.known
        ]
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))

    def _candidates(self) -> list[Candidate]:
        given = {} if self.candidates is None else self.candidates
        given = ParameterGrid(dict(given)) if isinstance(given, Mapping) else given
        found: list[Candidate] = []
        for each in given:
            base, grid = each if isinstance(each, tuple) and len(each) == 2 else (each, [{}])
            if isinstance(each, Mapping):
                base, grid = self._base(), [each]
            elif isinstance(grid, Mapping):
                grid = ParameterGrid(dict(grid))
            is_known = hasattr(base, "fit") and not isinstance(base, type)
            if not (is_known and all(isinstance(params, Mapping) for params in grid)):
                found = []
                break
            found += [Candidate(base, params) for params in grid]
        if not (found and all(is_classifier(base) for base, _ in found)):
            raise ValueError(
                f"candidates is {self.candidates!r}: it must be a dict of lists, such as "
                "{'C': [0.1, 1]}, or a list of dicts, classifiers, or pairs of a classifier and a dict of "
                "lists"
            )
        for base, params in found:
            named = {name.rsplit("__", 1)[-1] for name in params}
            if named & set(ROUNDS) and is_iterative(base):
                raise ValueError(
                    "candidates sets the number of rounds, which training chooses itself: omit it, and pass "
                    "max_steps= to limit it"
                )
            if is_frozen(last_of(base)) and self.candidates is not None:
                raise ValueError(
                    "candidates holds a frozen estimator: it cannot be trained on folds; to pool fitted "
                    "models pass their predictions to select_ensemble"
                )
        return found

    def _base(self) -> Any:
        return HistGradientBoostingClassifier() if self.estimator is None else self.estimator

    def _is_frozen(self) -> bool:
        return is_frozen(last_of(self._base()))

    # ---- predicting -------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return calibrated probabilities, one column for each of ``classes_``.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix
            As the estimator takes it.

        Returns
        -------
        ndarray of shape (n, k)
        """
        check_is_fitted(self)
        X, k = _check_table(X), len(self.classes_)
        about = (self._likes, self._ensemble.known, self._smoothing)
        models = zip(self.estimators_, *about, strict=True)
        return self._ensemble.predict_proba(
            all_classes(predictions_of(model, X, like), known, k, smoothing)
            for model, like, known, smoothing in models
        )

    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Return the logarithms of :meth:`predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest label of each row.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix
            As the estimator takes it.

        Returns
        -------
        ndarray of shape (n,)
        """
        probs = self.predict_proba(X)
        return np.asarray(self.classes_[probs.argmax(axis=1)])

    # ---- checks -----------------------------------------------------------------------------------------

    def _check_parameters(
        self, X_val: Any, y_val: Any, sample_weight_val: Any, groups: Any
    ) -> None:
        base = self._base()
        if not isinstance(self.ensemble, bool | np.bool_):
            raise ValueError(f"ensemble is {self.ensemble!r}: it must be True or False")
        if isinstance(base, type) or not hasattr(base, "fit") or not is_classifier(base):
            raise TypeError(
                f"estimator is {base!r}: it must be a classifier, such as XGBClassifier()"
            )
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val come together: pass both or neither")
        if X_val is None and sample_weight_val is not None:
            raise ValueError("sample_weight_val is for X_val: pass X_val and y_val with it")
        if X_val is not None and (self.n_folds not in (None, "auto") or groups is not None):
            raise ValueError("with X_val nothing is held out of X: omit n_folds and groups")
        fraction = self.validation_fraction
        if not (isinstance(fraction, numbers.Real) and 0 < float(fraction) < 1):
            raise ValueError(f"validation_fraction is {fraction!r}: it must lie between 0 and 1")
        check_whole("max_steps", self.max_steps)
        n_folds = self.n_folds
        is_number = isinstance(n_folds, numbers.Integral) and n_folds >= 2
        is_word = n_folds is None or (isinstance(n_folds, str) and n_folds == "auto")
        is_splitter = hasattr(n_folds, "split") and not isinstance(n_folds, str)
        if not (is_number or is_word or is_splitter):
            raise ValueError(
                f"n_folds is {n_folds!r}: it must be a whole number of at least 2, or None to hold rows out "
                "once"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        try:
            bases = [get_tags(base) for base in {id(b): b for b, _ in self._candidates()}.values()]
        except (AttributeError, TypeError, ValueError):  # not estimators, which fit will say
            return tags
        tags.input_tags = bases[0].input_tags
        for name in ("allow_nan", "sparse"):
            takes_it = all(getattr(base.input_tags, name) for base in bases)
            setattr(tags.input_tags, name, takes_it)
        kinds = [base.classifier_tags for base in bases if base.classifier_tags is not None]
        tags.classifier_tags.multi_class = all(kind.multi_class for kind in kinds)
        return tags


def _check_rows(X: Any, y: Any, sample_weight: Any, groups: Any, suffix: str = "") -> Rows:
    """Return the arguments of ``fit`` as rows; what X may hold is up to the estimator."""
    if y is None:
        raise ValueError("this classifier requires y to be passed, but the target y is None")
    X, y, groups = indexable(_check_table(X), y, groups)
    y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    weights = check_weights(sample_weight, len(y), f"X{suffix}")
    return Rows(X, y, weights, None if groups is None else np.asarray(groups)).with_keys()


def _check_table(X: Any) -> Any:
    """Return features whose rows can be taken."""
    if hasattr(X, "tocsr"):
        return X.tocsr()
    if hasattr(X, "columns"):  # a DataFrame
        return X
    values = np.asarray(X)
    if values.dtype.kind in "OUT" and values.ndim != 2:  # texts, or rows of several lengths
        return X
    return check_array(values, dtype=None, ensure_all_finite=False)
