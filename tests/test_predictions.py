"""Predictions of fitted models: logits where there are any, in whatever way a model has them."""

import catboost
import lightgbm
import numpy as np
import pytest
import xgboost
from scipy.special import expit, log_softmax, softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.multiclass import OneVsOneClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from refinecal.training.predictions import (
    Predictions,
    identity_link,
    link_of,
    one_vs_rest_link,
    predictions_of,
    show_label,
    smooth,
    smooth_zeros,
)

X_IRIS, Y_IRIS = load_iris(return_X_y=True)
X_CANCER, Y_CANCER = load_breast_cancer(return_X_y=True)


def lgbm(**params):
    return lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, num_leaves=4, verbose=-1, **params)


def cat(**params):
    return catboost.CatBoostClassifier(
        iterations=5, thread_count=1, verbose=False, allow_writing_files=False, **params
    )


def xgb(**params):
    return xgboost.XGBClassifier(n_estimators=5, n_jobs=1, **params)


# ---- margins and probabilities ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(max_iter=1000),
        SGDClassifier(loss="log_loss", random_state=0),
        lgbm(),
        lgbm(objective="multiclassova"),
        cat(),
        cat(loss_function="MultiClassOneVsAll"),
        xgb(),
        xgb(objective="multi:softmax"),
    ],
)
def test_logits_are_logarithms_of_the_probabilities(model):
    found = predictions_of(model.fit(X_IRIS, Y_IRIS), X_IRIS)
    probs = model.predict_proba(X_IRIS)
    assert found.kind == "logits"
    expected = np.log(probs / probs.sum(axis=1, keepdims=True))
    assert log_softmax(found.values, axis=1) == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_margins_of_another_scale_are_not_taken():
    """LightGBM's sigmoid=2 makes the log-odds twice the margins."""
    model = lgbm(sigmoid=2.0).fit(X_CANCER, Y_CANCER)
    assert predictions_of(model, X_CANCER).kind == "probs"
    model = lgbm(objective="multiclassova", sigmoid=2.0).fit(X_IRIS, Y_IRIS)
    found = predictions_of(model, X_IRIS)
    assert found.kind == "probs"
    assert found.values.sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize("objective", ["binary:hinge", "binary:logitraw"])
def test_objectives_without_probabilities_give_their_margins(objective):
    model = xgb(objective=objective).fit(X_CANCER, Y_CANCER)
    found = predictions_of(model, X_CANCER)
    assert found.kind == "logits"
    assert np.array_equal(found.values, model.predict(X_CANCER, output_margin=True))


def test_an_objective_of_the_user_gives_its_margins():
    def logistic(y, margins):
        p = 1 / (1 + np.exp(-margins))
        return p - y, p * (1 - p)

    model = lgbm(objective=logistic).fit(X_CANCER, Y_CANCER)
    found = predictions_of(model, X_CANCER)
    assert np.array_equal(found.values, model.predict(X_CANCER, raw_score=True))


def test_the_link_is_found_where_the_model_is_sure():
    """Softmax and one against the rest agree on who has probability 1, not on what is left."""
    margins = np.array([[20.0, -20.0, -21.0]])
    odds = expit(margins)
    assert link_of(margins, odds / odds.sum()) is one_vs_rest_link
    assert link_of(margins, softmax(margins, axis=1)) is identity_link
    assert link_of(margins, [[0.9, 0.1, 0.0]]) is None


# ---- decisions without probabilities ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [SVC(decision_function_shape="ovo"), make_pipeline(SVC(decision_function_shape="ovo"))]
)
@pytest.mark.parametrize("rows", [slice(None), slice(0, 50), slice(100, 150)])
def test_values_of_pairs_are_refused(model, rows):
    """Whatever the rows: three classes have three pairs, and one class alone may look right."""
    model.fit(X_IRIS, Y_IRIS)
    message = (
        'SVC does not give one value for each of its 3 classes.*set decision_function_shape="ovr"'
    )
    with pytest.raises(ValueError, match=message):
        predictions_of(model, X_IRIS[rows])


def test_six_pairs_of_four_classes_are_refused():
    labels = np.where(X_IRIS[:, 0] > 7, 3, Y_IRIS)
    with pytest.raises(ValueError, match="each of its 4 classes"):
        predictions_of(SVC(decision_function_shape="ovo").fit(X_IRIS, labels), X_IRIS)


def test_values_that_decide_otherwise_are_refused():
    class Contrary(LinearSVC):
        def decision_function(self, X):
            return -super().decision_function(X)

        def predict(self, X):
            return self.classes_[(-self.decision_function(X)).argmax(axis=1)]

    with pytest.raises(ValueError, match="Contrary does not give one value"):
        predictions_of(Contrary().fit(X_IRIS, Y_IRIS), X_IRIS)


@pytest.mark.parametrize(
    "model", [SVC(), LinearSVC(), RidgeClassifier(), OneVsOneClassifier(LinearSVC())]
)
def test_values_of_classes_are_taken(model):
    model.fit(X_IRIS, Y_IRIS)
    assert np.array_equal(predictions_of(model, X_IRIS).values, model.decision_function(X_IRIS))


def test_two_classes_are_one_pair():
    model = SVC(decision_function_shape="ovo").fit(X_CANCER, Y_CANCER)
    assert np.array_equal(predictions_of(model, X_CANCER).values, model.decision_function(X_CANCER))


# ---- models in models --------------------------------------------------------------------------------------


def test_a_pipeline_in_a_pipeline():
    inner = make_pipeline(StandardScaler(), LogisticRegression())
    model = make_pipeline("passthrough", StandardScaler(), inner).fit(X_IRIS, Y_IRIS)
    found = predictions_of(model, X_IRIS)
    assert np.array_equal(found.values, model.decision_function(X_IRIS))


def test_a_frozen_model_gives_what_the_model_gives():
    for model in (xgb(), make_pipeline(StandardScaler(), LogisticRegression())):
        model.fit(X_IRIS, Y_IRIS)
        frozen, plain = (predictions_of(m, X_IRIS) for m in (FrozenEstimator(model), model))
        assert frozen.kind == plain.kind == "logits"
        assert np.array_equal(frozen.values, plain.values)


def test_votes_and_averages_have_no_logits():
    model = CalibratedClassifierCV(LinearSVC(), cv=2).fit(X_IRIS, Y_IRIS)
    assert predictions_of(model, X_IRIS).method == "predict_proba"


# ---- columns ---------------------------------------------------------------------------------------------


def test_a_label_of_probability_0_is_found_in_its_column():
    found = Predictions("probs", np.array([[0.0, 1.0], [0.5, 0.5]]), "predict_proba")
    classes = np.array(["b", "a"])  # as CatBoost may have them
    assert smooth_zeros(found, np.array(["a", "b"]), classes) == (found, 0)
    mixed, n = smooth_zeros(found, np.array(["b", "b"]), classes)
    assert n == 2
    assert mixed.values == pytest.approx(np.array([[1 / 6, 5 / 6], [1 / 2, 1 / 2]]))


@pytest.mark.parametrize(
    "labels", [np.array(["x"]), np.array(["x"], dtype=object), np.array([np.str_("x")])]
)
def test_labels_are_shown_as_they_are_written(labels):
    assert show_label(labels[0]) == "'x'"


def test_logits_are_never_smoothed():
    """One fold may have logits where another has probabilities, which are then smoothed for all folds."""
    found = Predictions("logits", np.array([-800.0, 0.0]), "predict")
    assert smooth(found, 10) is found
    probs = smooth(Predictions("probs", np.array([[1.0, 0.0]]), "predict_proba"), 9)
    np.testing.assert_allclose(probs.values, [[0.95, 0.05]])  # 9 / 10 * (1, 0) + 1 / 10 / 2
