"""RefineThenCalibrateClassifier with several classifiers: one is chosen, or they are pooled."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import refinecal as rc
from refinecal.training.trainer import last_of

X_CANCER, Y_CANCER = load_breast_cancer(return_X_y=True)
pytestmark = pytest.mark.filterwarnings("ignore:the best step is the last")

KINDS = [
    make_pipeline(StandardScaler(), LogisticRegression(C=0.05)),
    (DecisionTreeClassifier(random_state=0), {"max_depth": [2, 5]}),
    {"max_leaf_nodes": 4},
]


def pooled(**options):
    defaults = {"max_steps": 10, "patience": 5, "random_state": 0, "n_folds": 3, "ensemble": True}
    return rc.RefineThenCalibrateClassifier(**(defaults | options))


def test_a_pool_is_the_weighted_mean_of_its_members():
    fitted = pooled(candidates=KINDS).fit(X_CANCER, Y_CANCER)
    selected = fitted.ensemble_
    names = ("LogisticRegression", *(f"DecisionTreeClassifier(max_depth={n})" for n in (2, 5)))
    assert selected.names == (*names, "HistGradientBoostingClassifier(max_leaf_nodes=4)")
    assert selected.weights.sum() == pytest.approx(1)
    used = int((selected.weights > 0).sum())
    assert len(fitted.estimators_) == len(fitted.calibrators_) == 3 * used
    by_name, rest = {}, list(zip(fitted.estimators_, fitted.calibrators_, strict=True))
    weights = dict(zip(selected.names, selected.weights, strict=True))
    for name in sorted(fitted._ensemble.groups, key=weights.get, reverse=True):
        logs = []
        for estimator, calibrator in rest[:3]:
            probs = np.clip(estimator.predict_proba(X_CANCER), 1e-300, 1)
            if type(estimator) is DecisionTreeClassifier:  # which votes
                n = len(Y_CANCER)
                probs = n / (n + 1) * probs + 1 / (n + 1) / 2
            logs.append(np.log(calibrator.predict_proba_logits(np.log(probs))))
        mean = np.exp(np.mean(logs, axis=0))  # rows are held out once: the geometric mean
        by_name[name], rest = mean / mean.sum(axis=1, keepdims=True), rest[3:]
    np.testing.assert_allclose(
        fitted.predict_proba(X_CANCER), selected.predict_proba(by_name), rtol=1e-5, atol=1e-7
    )


def test_classifiers_as_candidates_are_chosen_by_refinement():
    fitted = pooled(candidates=KINDS, ensemble=False).fit(X_CANCER, Y_CANCER)
    assert not hasattr(fitted, "ensemble_")
    assert fitted.best_params_ in ({}, {"max_depth": 2}, {"max_depth": 5}, {"max_leaf_nodes": 4})
    values = {}
    for record in fitted.history_:
        key = record["candidate"], record["fold"]
        values[key] = min(values.get(key, np.inf), record["refinement"])
    means = [np.mean([values[number, fold] for fold in range(3)]) for number in range(4)]
    chosen = {0: LogisticRegression, 1: DecisionTreeClassifier, 2: DecisionTreeClassifier}
    expected = chosen.get(int(np.argmin(means)), HistGradientBoostingClassifier)
    assert isinstance(last_of(fitted.estimator_), expected)


def test_members_are_trained_on_all_folds_and_the_others_are_not():
    fitted = pooled(candidates=KINDS, n_folds="auto").fit(X_CANCER, Y_CANCER)
    used = {
        name
        for name, w in zip(fitted.ensemble_.names, fitted.ensemble_.weights, strict=True)
        if w > 0
    }
    folds = {}
    for record in fitted.history_:
        folds.setdefault(record["candidate"], set()).add(record["fold"])
    for number, name in enumerate(fitted.ensemble_.names):
        assert len(folds[number]) == (10 if name in used else 5)


def test_a_pool_can_be_refitted_cloned_and_pickled():
    fitted = pooled(candidates=KINDS, refit=True).fit(X_CANCER, Y_CANCER)
    assert len(fitted.estimators_) == int((fitted.ensemble_.weights > 0).sum())
    again = clone(fitted)
    assert again.get_params()["ensemble"] is True
    assert not hasattr(again, "estimators_")
    probs = fitted.predict_proba(X_CANCER)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X_CANCER), probs)
    np.testing.assert_array_equal(again.fit(X_CANCER, Y_CANCER).predict_proba(X_CANCER), probs)
    inside = make_pipeline(StandardScaler(), clone(fitted)).fit(X_CANCER, Y_CANCER)
    assert inside.predict_proba(X_CANCER).shape == (len(Y_CANCER), 2)


def test_a_pool_takes_weights_groups_and_labels_of_any_kind():
    labels = np.array(["benign", "malignant"])[Y_CANCER]
    weights = np.random.default_rng(0).uniform(0.2, 2, len(labels))
    groups = np.arange(len(labels)) // 5
    fitted = pooled(candidates=KINDS[:2]).fit(X_CANCER, labels, weights, groups=groups)
    assert set(fitted.predict(X_CANCER)) == {"benign", "malignant"}
    assert fitted.score(X_CANCER, labels) > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": [3]}, "candidates is .*must be a dict of lists"),
        ({"candidates": [(LogisticRegression(), [3])]}, "candidates is .*must be a dict of lists"),
        ({"candidates": [LogisticRegression]}, "candidates is .*must be a dict of lists"),
        ({"candidates": [HistGradientBoostingClassifier(), {"max_iter": 5}]}, "number of rounds"),
        ({"ensemble": "yes"}, "ensemble is 'yes': it must be True or False"),
    ],
)
def test_wrong_candidates_of_a_pool_are_explained(options, message):
    with pytest.raises(ValueError, match=message):
        pooled(**options).fit(X_CANCER, Y_CANCER)


def test_fitted_models_cannot_be_candidates():
    frozen = FrozenEstimator(LogisticRegression(max_iter=5000).fit(X_CANCER, Y_CANCER))
    with pytest.raises(ValueError, match="frozen estimator.*select_ensemble"):
        pooled(candidates=[frozen, LogisticRegression()]).fit(X_CANCER, Y_CANCER)
    for alone in (frozen, make_pipeline(StandardScaler(), frozen), (frozen, {})):
        with pytest.raises(ValueError, match="frozen estimator.*select_ensemble"):
            rc.RefineThenCalibrateClassifier(candidates=[alone]).fit(X_CANCER, Y_CANCER)


POOLED = pooled(
    candidates=[LogisticRegression(), DecisionTreeClassifier(max_depth=2, random_state=0)],
    n_folds=2,
)
TWO_ROWS = "two equal rows may be in different folds, a row of weight 2 may not"
EXPECTED = {
    f"check_sample_weight_equivalence_on_{kind}_data": TWO_ROWS for kind in ("dense", "sparse")
}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([POOLED], expected_failed_checks=lambda _: EXPECTED)
def test_scikit_learn_checks_a_pool(estimator, check):
    check(estimator)
