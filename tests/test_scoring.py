"""The scorer: minus refinement, from logits where the model has them."""

import numpy as np
import pytest
import sklearn
from oracle import refinement
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    cross_val_score,
    cross_validate,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import refinecal as rc

X_IRIS, Y_IRIS = load_iris(return_X_y=True)
X_IRIS = StandardScaler().fit_transform(X_IRIS)
X_CANCER, Y_CANCER = load_breast_cancer(return_X_y=True)
X_CANCER = StandardScaler().fit_transform(X_CANCER)


@pytest.mark.parametrize(("X", "y"), [(X_CANCER, Y_CANCER), (X_IRIS, Y_IRIS)], ids=["two", "three"])
@pytest.mark.parametrize(
    ("model", "method"),
    [
        (LogisticRegression(C=0.1), "decision_function"),
        (HistGradientBoostingClassifier(max_iter=5), "decision_function"),
        (GaussianNB(), "predict_proba"),
        (LinearSVC(), "decision_function"),
    ],
    ids=["LogisticRegression", "HistGradientBoosting", "GaussianNB", "LinearSVC"],
)
def test_the_score_is_minus_refinement(model, method, X, y):
    fitted = clone(model).fit(X[::2], y[::2])
    scorer = rc.refinement_scorer()
    score = scorer(fitted, X[1::2], y[1::2])
    found = getattr(fitted, method)(X[1::2])
    logits = found if method == "decision_function" else np.log(np.maximum(found, 1e-300))
    assert scorer.method == method
    assert score == pytest.approx(-refinement(y[1::2], logits), rel=1e-7)


def test_margins_of_one_against_the_rest():
    """log p = log expit(z) up to a constant: SGD normalises one logistic function for each class."""
    model = SGDClassifier(loss="log_loss", random_state=0).fit(X_IRIS[::2], Y_IRIS[::2])
    margins = model.decision_function(X_IRIS[1::2])
    logits = -np.logaddexp(0, -margins)
    score = rc.refinement_scorer()(model, X_IRIS[1::2], Y_IRIS[1::2])
    assert score == pytest.approx(-refinement(Y_IRIS[1::2], logits), rel=1e-7)


def test_string_labels_and_other_metrics():
    names = np.array(["setosa", "versicolor", "virginica"])[Y_IRIS]
    model = LogisticRegression().fit(X_IRIS[::2], names[::2])
    score = rc.refinement_scorer(metric="accuracy")(model, X_IRIS[1::2], names[1::2])
    assert score == model.score(X_IRIS[1::2], names[1::2])
    score = rc.refinement_scorer(metric="log_loss")(model, X_IRIS[1::2], names[1::2])
    assert score == pytest.approx(
        -sklearn.metrics.log_loss(names[1::2], model.predict_proba(X_IRIS[1::2])), rel=1e-9
    )


def test_in_searches():
    grid = {"C": [1e-3, 1e-1, 10.0]}
    for search in (GridSearchCV, HalvingGridSearchCV):
        found = search(LogisticRegression(), grid, scoring=rc.refinement_scorer(), cv=3)
        assert found.fit(X_CANCER, Y_CANCER).best_params_["C"] in grid["C"]
    scores = cross_validate(
        LogisticRegression(C=1e-3),
        X_CANCER,
        Y_CANCER,
        scoring={"ref": rc.refinement_scorer(cv="loo")},
    )
    assert (scores["test_ref"] < 0).all()


def test_a_search_chooses_the_smallest_refinement():
    grid = {"C": [1e-4, 1e-2, 1.0]}
    search = GridSearchCV(LogisticRegression(), grid, scoring=rc.refinement_scorer(), cv=3)
    search.fit(X_CANCER, Y_CANCER)
    from sklearn.model_selection import StratifiedKFold

    by_hand = []
    for C in grid["C"]:
        values = []
        for train, test in StratifiedKFold(3).split(X_CANCER, Y_CANCER):
            model = LogisticRegression(C=C).fit(X_CANCER[train], Y_CANCER[train])
            values.append(refinement(Y_CANCER[test], model.decision_function(X_CANCER[test])))
        by_hand.append(-np.mean(values))
    assert search.cv_results_["mean_test_score"] == pytest.approx(by_hand, rel=1e-7)


def test_a_pipeline_gives_its_last_steps_logits():
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X_IRIS[::2], Y_IRIS[::2])
    logits = model.decision_function(X_IRIS[1::2])
    score = rc.refinement_scorer()(model, X_IRIS[1::2], Y_IRIS[1::2])
    assert score == pytest.approx(-refinement(Y_IRIS[1::2], logits), rel=1e-8)


def test_forests_that_vote_none():
    X, y = load_digits(return_X_y=True)
    scores = cross_val_score(
        RandomForestClassifier(10, random_state=0), X, y, scoring=rc.refinement_scorer(), cv=3
    )
    assert (scores > -1).all()  # without smoothing, a label of probability 0 makes it -log 10


def test_classes_missing_from_the_test_rows():
    model = LogisticRegression(max_iter=1000).fit(X_IRIS, Y_IRIS)
    some = Y_IRIS < 2
    score = rc.refinement_scorer()(model, X_IRIS[some], Y_IRIS[some])
    logits = model.decision_function(X_IRIS[some])
    assert score == pytest.approx(-refinement(Y_IRIS[some], logits), rel=1e-6, abs=1e-12)


def test_classes_missing_from_the_training_rows():
    seen = Y_IRIS < 2
    model = LogisticRegression().fit(X_IRIS[seen], Y_IRIS[seen])
    with pytest.warns(
        RuntimeWarning, match=r"dropped 50 rows of \[2\], which the estimator has not seen"
    ):
        score = rc.refinement_scorer()(model, X_IRIS, Y_IRIS)
    assert score == rc.refinement_scorer()(model, X_IRIS[seen], Y_IRIS[seen])
    with pytest.raises(ValueError, match=r"y holds only \[2\], which the estimator has not seen"):
        rc.refinement_scorer()(model, X_IRIS[~seen], Y_IRIS[~seen])


def test_weights_are_repetitions():
    model = LogisticRegression().fit(X_IRIS[::2], Y_IRIS[::2])
    weights = np.random.default_rng(0).integers(0, 3, 75)
    rows = np.repeat(np.arange(1, 150, 2), weights)
    scorer = rc.refinement_scorer()
    score = scorer(model, X_IRIS[1::2], Y_IRIS[1::2], sample_weight=weights)
    assert score == pytest.approx(scorer(model, X_IRIS[rows], Y_IRIS[rows]), rel=1e-9)


def test_metadata_routing():
    weights = np.random.default_rng(0).uniform(0.1, 2, 150)
    with sklearn.config_context(enable_metadata_routing=True):
        model = LogisticRegression().set_fit_request(sample_weight=False)
        scorer = rc.refinement_scorer().set_score_request(sample_weight=True)
        found = cross_validate(
            model, X_IRIS, Y_IRIS, scoring=scorer, params={"sample_weight": weights}
        )
        plain = cross_validate(model, X_IRIS, Y_IRIS, scoring=rc.refinement_scorer())
    assert not np.allclose(found["test_score"], plain["test_score"])


def test_wrong_options_are_refused_when_the_scorer_is_made():
    with pytest.raises(ValueError, match="Did you mean 'refinement'"):
        rc.refinement_scorer(metric="refinment")


def test_repr():
    assert repr(rc.refinement_scorer(cv="loo")) == "refinement_scorer(cv='loo')"
