"""RefineThenCalibrateClassifier: what scikit-learn asks of a classifier, and what the method promises."""

import warnings
from dataclasses import fields, is_dataclass

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from oracle import refinement
from scipy import sparse
from scipy.stats import gmean
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    RepeatedStratifiedKFold,
    cross_val_predict,
    train_test_split,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import refinecal as rc
from refinecal import RefineThenCalibrateClassifier

X_CANCER, Y_CANCER = load_breast_cancer(return_X_y=True)
X_DIGITS, Y_DIGITS = (part[:700] for part in load_digits(return_X_y=True))
BOOSTING = HistGradientBoostingClassifier(max_leaf_nodes=5, learning_rate=0.4)


STEP = f"{type(BOOSTING).__name__.lower()}__random_state"


def model(estimator=BOOSTING, **options):
    usual = {"max_steps": 100, "patience": 5, "random_state": 0, "n_folds": None}
    usual |= {"calibrator": "temperature"}
    return RefineThenCalibrateClassifier(clone(estimator, safe=False), **(usual | options))


TWO_ROWS = "two equal rows may be in different folds, a row of weight 2 may not"
WEIGHTS = {
    f"check_sample_weight_equivalence_on_{kind}_data": TWO_ROWS for kind in ("dense", "sparse")
}


@parametrize_with_checks(
    [RefineThenCalibrateClassifier(LogisticRegression())],
    expected_failed_checks=lambda estimator: WEIGHTS,
)
@pytest.mark.filterwarnings("ignore")  # those of tiny tables, which the checks are made of
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        RefineThenCalibrateClassifier(estimator, max_steps=6)
        for estimator in (GradientBoostingClassifier(), HistGradientBoostingClassifier())
    ],
    expected_failed_checks=lambda estimator: WEIGHTS,
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks_with_steps(estimator, check):
    check(estimator)


# ---- what the method promises ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [BOOSTING, SGDClassifier(loss="log_loss"), MLPClassifier((10,)), LogisticRegression()],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_calibrated_probabilities_are_those_of_the_best_step(estimator):
    X, y = StandardScaler().fit_transform(X_CANCER), Y_CANCER
    fitted = model(estimator).fit(X[:300], y[:300], X_val=X[300:450], y_val=y[300:450])
    best = min(fitted.history_, key=lambda record: record["refinement"])
    assert fitted.best_step_ == best["step"]
    inner, beta = fitted.estimator_, fitted.calibrator_.beta_
    if hasattr(inner, "decision_function"):
        odds = inner.decision_function(X[450:])
    else:
        odds = np.subtract(*np.log(inner.predict_proba(X[450:])).T[::-1])
    n = 150  # validation rows: Laplace smoothing is 1 / (n + 1)
    expected = n / (n + 1) / (1 + np.exp(-beta * odds)) + 0.5 / (n + 1)
    assert fitted.predict_proba(X[450:])[:, 1] == pytest.approx(expected, rel=1e-9)
    assert beta == pytest.approx(best["beta"], rel=1e-9)


def test_the_best_step_is_the_brute_force_one():
    X, y, X_val, y_val = X_DIGITS[:400], Y_DIGITS[:400], X_DIGITS[400:], Y_DIGITS[400:]
    fitted = model(patience=None).fit(X, y, X_val=X_val, y_val=y_val)
    seed = fitted.estimator_.random_state
    whole = clone(BOOSTING).set_params(max_iter=100, early_stopping=False, random_state=seed)
    order = np.argsort([hash_of(row) for row in X])  # rows are ordered by content, see below
    stages = whole.fit(X[order], y[order]).staged_decision_function(X_val)
    values = [refinement(y_val, logits) for logits in stages]
    assert [record["refinement"] for record in fitted.history_] == pytest.approx(values, rel=1e-6)
    assert fitted.best_step_ == int(np.argmin(values)) + 1


def hash_of(row):
    from refinecal._core.arrays import hash_rows

    return hash_rows(row[None])[0]


def test_choosing_regularisation():
    path = {"C": [1e-5, 1e-2, 10.0]}
    X = StandardScaler().fit_transform(X_CANCER)
    fitted = model(LogisticRegression(), candidates=path)
    fitted.fit(X[:300], Y_CANCER[:300], X_val=X[300:], y_val=Y_CANCER[300:])
    values = []
    for C in path["C"]:
        logits = LogisticRegression(C=C).fit(X[:300], Y_CANCER[:300]).decision_function(X[300:])
        values.append(refinement(Y_CANCER[300:], logits))
    assert fitted.best_params_ == {"C": path["C"][int(np.argmin(values))]}
    found = [record["refinement"] for record in fitted.history_]
    assert found == pytest.approx(values, rel=1e-4)
    assert [record["candidate"] for record in fitted.history_] == [0, 1, 2]


def test_candidates_of_a_boosted_model_each_have_their_own_best_step():
    grid = [{"learning_rate": 0.05}, {"learning_rate": 1.0}]
    fitted = model(candidates=grid).fit(X_CANCER, Y_CANCER)
    records = [r for r in fitted.history_ if grid[r["candidate"]] == fitted.best_params_]
    best = min(fitted.history_, key=lambda record: record["refinement"])
    assert best in records
    assert fitted.best_step_ == best["step"]
    assert fitted.monitor_.history == [
        {name: value for name, value in record.items() if name != "candidate"} for record in records
    ]


def test_by_log_loss_the_step_is_that_of_the_smallest_risk():
    fitted = model(metric="log_loss").fit(X_CANCER, Y_CANCER)
    assert fitted.best_step_ == min(fitted.history_, key=lambda record: record["risk"])["step"]


def test_an_overconfident_model_gets_better():
    X, X_test, y, y_test = train_test_split(X_DIGITS, Y_DIGITS, random_state=0)
    estimator = HistGradientBoostingClassifier(learning_rate=1.0, random_state=0)
    fitted = model(estimator).fit(X, y)
    plain = clone(fitted.estimator_)  # the same rounds, all rows, not calibrated
    assert log_loss(y_test, fitted.predict_proba(X_test)) < log_loss(
        y_test, plain.fit(X, y).predict_proba(X_test)
    )


# ---- rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"n_folds": 3}, {"refit": True}], ids=str)
def test_the_order_of_rows_does_not_matter(options):
    order = np.random.default_rng(0).permutation(len(Y_CANCER))
    first = model(**options).fit(X_CANCER, Y_CANCER)
    second = model(**options).fit(X_CANCER[order], Y_CANCER[order])
    assert np.array_equal(first.predict_proba(X_CANCER), second.predict_proba(X_CANCER))


def test_whole_weights_are_repetitions_even_where_the_model_takes_none():
    from sklearn.neighbors import KNeighborsClassifier

    weights = np.random.default_rng(0).integers(0, 4, len(Y_CANCER))
    rows = np.repeat(np.arange(len(Y_CANCER)), weights)
    own = {"X_val": X_CANCER[::2], "y_val": Y_CANCER[::2]}
    weighted = model(KNeighborsClassifier()).fit(X_CANCER, Y_CANCER, sample_weight=weights, **own)
    repeated = model(KNeighborsClassifier()).fit(X_CANCER[rows], Y_CANCER[rows], **own)
    assert np.array_equal(weighted.predict_proba(X_CANCER), repeated.predict_proba(X_CANCER))


@pytest.mark.parametrize("options", [{}, {"n_folds": 3}], ids=["held out", "folds"])
def test_repetitions_do_not_leak_into_validation(options):
    """Of noisy labels, copies that are in training would be known by heart in validation."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 5))
    y = (X[:, 0] + 2 * rng.normal(size=900) > 0).astype(int)
    plain = model(BOOSTING, **options).fit(X[:600], y[:600])
    heavy = model(BOOSTING, **options).fit(X[:600], y[:600], sample_weight=np.full(600, 4))
    losses = [log_loss(y[600:], m.predict_proba(X[600:])) for m in (plain, heavy)]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
    assert min(record["refinement"] for record in heavy.history_) > 0.5


def test_a_splitter_sees_the_rows_as_they_came():
    """Trained on the past only: the last labels are a class of their own, unknown before."""
    from sklearn.model_selection import TimeSeriesSplit

    y = np.where(np.arange(569) < 469, Y_CANCER, 2)
    fitted = model(LogisticRegression(max_iter=10_000), n_folds=TimeSeriesSplit(2)).fit(X_CANCER, y)
    assert [len(m.classes_) for m in fitted.estimators_] == [2, 2]


def test_weights_change_the_model():
    weights = np.where(Y_CANCER == 1, 5.5, 0.25)
    plain, weighted = model(), model()
    plain.fit(X_CANCER, Y_CANCER)
    weighted.fit(X_CANCER, Y_CANCER, sample_weight=weights)
    shift = (
        weighted.predict_proba(X_CANCER)[:, 1].mean() - plain.predict_proba(X_CANCER)[:, 1].mean()
    )
    assert shift > 0.005


def test_groups_are_not_split():
    """With the group as the only feature, a group on both sides would be learned by heart."""
    groups = np.repeat(np.arange(100), 5)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 100)[groups]
    X = np.hstack([np.eye(100)[groups], 0.01 * rng.normal(size=(500, 1))])  # no two rows are equal
    leaky = model(LogisticRegression(C=100)).fit(X, y)
    honest = model(LogisticRegression(C=100)).fit(X, y, groups=groups)
    assert leaky.history_[0]["refinement"] < 0.1
    assert honest.history_[0]["refinement"] > 0.6


@pytest.mark.parametrize("n_folds", [3, GroupKFold(3)], ids=["a number", "a splitter"])
def test_folds_keep_groups_together_too(n_folds):
    groups = np.repeat(np.arange(100), 5)
    y = np.random.default_rng(0).integers(0, 2, 100)[groups]
    fitted = model(LogisticRegression(C=100), n_folds=n_folds)
    fitted.fit(np.eye(100)[groups], y, groups=groups)
    assert min(record["refinement"] for record in fitted.history_) > 0.6
    assert [record["fold"] for record in fitted.history_] == [0, 1, 2]


def test_folds_are_averaged():
    fitted = model(n_folds=3).fit(X_CANCER, Y_CANCER)
    by_hand = [
        fitted.calibrator_.predict_proba_logits(inner.decision_function(X_CANCER))
        for inner in fitted.estimators_
    ]
    assert len(by_hand) == 3
    assert all(each is fitted.calibrator_ for each in fitted.calibrators_)
    assert fitted.pool_beta_ is None  # three folds hold out no row twice
    expected = gmean(by_hand, axis=0)
    expected /= expected.sum(axis=1, keepdims=True)
    assert fitted.predict_proba(X_CANCER) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("folds", ["auto", RepeatedStratifiedKFold(n_splits=3, n_repeats=2)])
def test_the_mean_is_sharpened_where_rows_were_held_out_twice(folds):
    fitted = model(n_folds=folds).fit(X_CANCER, Y_CANCER)
    by_hand = [
        fitted.calibrator_.predict_proba_logits(inner.decision_function(X_CANCER))
        for inner in fitted.estimators_
    ]
    shares = np.bincount(Y_CANCER) / len(Y_CANCER)
    expected = shares * (np.mean(by_hand, axis=0) / shares) ** fitted.pool_beta_
    expected /= expected.sum(axis=1, keepdims=True)
    assert fitted.predict_proba(X_CANCER) == pytest.approx(expected, rel=1e-9)
    assert fitted.pool_beta_ > 1
    assert fitted.calibrator_.n_samples_ == 2 * len(Y_CANCER)  # each row by two models


def test_few_groups_do_not_make_the_same_models_twice():
    X = StandardScaler().fit_transform(X_CANCER)
    fitted = model(LogisticRegression(), n_folds="auto").fit(X, Y_CANCER, groups=np.arange(569) % 5)
    assert len({inner.coef_.tobytes() for inner in fitted.estimators_}) == len(fitted.estimators_)


class Sides:
    """A splitter of one's own, which yields lists or masks."""

    def __init__(self, kind):
        self.kind = kind

    def split(self, X, y=None, groups=None):
        for number in range(2):
            held_out = np.arange(len(y)) % 2 == number
            sides = (~held_out, held_out)
            yield (
                sides if self.kind == "masks" else [np.flatnonzero(side).tolist() for side in sides]
            )


def test_splitters_may_yield_lists_and_masks():
    lists, masks = (
        model(LogisticRegression(max_iter=10_000), n_folds=Sides(kind)).fit(X_CANCER, Y_CANCER)
        for kind in ("lists", "masks")
    )
    assert np.array_equal(lists.predict_proba(X_CANCER), masks.predict_proba(X_CANCER))


def test_one_calibrator_for_all_models_is_fitted_to_all_rows_held_out():
    fitted = model(n_folds=3).fit(X_CANCER, Y_CANCER)
    assert fitted.calibrator_.n_samples_ == len(Y_CANCER)
    once = model(n_folds=3, refit=True).fit(X_CANCER, Y_CANCER)
    assert fitted.calibrator_.beta_ == once.calibrator_.beta_  # of the same held-out predictions


def test_folds_are_cut_twice_over_and_candidates_compared_on_the_first_five():
    line = make_pipeline(StandardScaler(), LogisticRegression())
    path = {"logisticregression__C": [0.01, 1.0]}
    fitted = model(line, candidates=path, n_folds="auto").fit(X_CANCER, Y_CANCER)
    assert len(fitted.estimators_) == 10
    where = [(record["candidate"], record["fold"]) for record in fitted.history_]
    best = int(fitted.best_params_["logisticregression__C"] == 1.0)
    compared = [(candidate, fold) for candidate in (0, 1) for fold in range(5)]
    assert where == compared + [(best, fold) for fold in range(5, 10)]
    assert all(
        inner.get_params()["logisticregression__C"] == path["logisticregression__C"][best]
        for inner in fitted.estimators_
    )
    assert fitted.pool_beta_ > 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_each_model_has_a_seed_of_its_own():
    """Else all would draw the same columns and rows, and err in common."""
    own = clone(BOOSTING).set_params(random_state=7)
    line = make_pipeline(StandardScaler(), own)
    for estimator, name in ((own, "random_state"), (line, STEP)):
        fitted = model(estimator, n_folds=3, max_steps=2).fit(X_CANCER, Y_CANCER)
        assert [inner.get_params()[name] for inner in fitted.estimators_] == [7, 8, 9]
    unset = model(n_folds=3, max_steps=2).fit(X_CANCER, Y_CANCER).estimators_
    seeds = [inner.random_state for inner in unset]
    assert seeds == [seeds[0], seeds[0] + 1, seeds[0] + 2]
    free = model(n_folds=2, max_steps=2, random_state=None).fit(X_CANCER, Y_CANCER).estimators_
    assert free[1].random_state == free[0].random_state + 1  # libraries may take None for 0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_a_user_sets_is_never_changed():
    import xgboost as xgb

    def given(**options):
        booster = xgb.XGBClassifier(n_jobs=1, **options)
        fitted = model(booster, max_steps=2, patience=None).fit(X_CANCER, Y_CANCER)
        found = fitted.estimator_.get_params()
        return found["learning_rate"], found["colsample_bynode"]

    assert given() == (0.1, 0.6)
    assert given(learning_rate=0.3) == (0.3, 0.6)
    assert given(eta=0.2) == (None, 0.6)
    assert given(colsample_bynode=1.0) == (0.1, 1.0)
    assert given(booster="gblinear") == (None, None)
    assert given(tree_method="exact") == (0.1, None)  # which cannot draw columns by node
    assert given(colsample_bytree=0.5) == (0.1, None)  # which it would multiply
    plain = model(xgb.XGBClassifier(), max_steps=2, patience=None, tuned_defaults=False)
    assert plain.fit(X_CANCER, Y_CANCER).estimator_.get_params()["learning_rate"] is None


def test_a_class_with_fewer_rows_than_folds():
    y = np.where(np.arange(len(Y_CANCER)) < 2, 7, Y_CANCER)  # two rows of class 7
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")
        fitted = model(n_folds=4).fit(X_CANCER, y)
    probs = fitted.predict_proba(X_CANCER)
    assert fitted.classes_.tolist() == [0, 1, 7]
    assert probs.sum(axis=1) == pytest.approx(1)
    assert (probs[:, 2] > 0).all()


def test_refitting_uses_all_rows_and_the_same_number_of_steps():
    held_out, again = model().fit(X_CANCER, Y_CANCER), model(refit=True).fit(X_CANCER, Y_CANCER)
    assert again.best_step_ == held_out.best_step_ == again.estimator_.n_iter_
    assert again.calibrator_.beta_ == held_out.calibrator_.beta_
    assert not np.array_equal(
        again.estimator_.predict_proba(X_CANCER), held_out.estimator_.predict_proba(X_CANCER)
    )


def test_refitting_after_folds_takes_the_median_and_all_held_out_predictions():
    fitted = model(n_folds=3, refit=True).fit(X_CANCER, Y_CANCER)
    steps = [
        min((r for r in fitted.history_ if r["fold"] == fold), key=lambda r: r["refinement"])[
            "step"
        ]
        for fold in range(3)
    ]
    assert fitted.best_step_ == np.median(steps)
    assert fitted.calibrator_.n_samples_ == len(Y_CANCER)
    assert len(fitted.estimators_) == 1


def test_refitting_with_validation_data_of_ones_own():
    data = {"X_val": pd.DataFrame(X_CANCER[400:]), "y_val": Y_CANCER[400:]}
    fitted = model(refit=True).fit(pd.DataFrame(X_CANCER[:400]), Y_CANCER[:400], **data)
    assert fitted.predict_proba(pd.DataFrame(X_CANCER)).shape == (569, 2)
    assert fitted.calibrator_.n_samples_ == 169


# ---- tables, pipelines, searches ---------------------------------------------------------------------------


def frame():
    rng = np.random.default_rng(0)
    colour = rng.choice(["red", "green", "blue"], 400)
    size = rng.normal(size=400)
    y = np.where((colour == "red") ^ (size + rng.normal(size=400) > 0), "yes", "no")
    return pd.DataFrame({"colour": pd.Categorical(colour), "size": size}), y


def test_categorical_columns_reach_the_estimator():
    X, y = frame()
    fitted = model(HistGradientBoostingClassifier(categorical_features="from_dtype")).fit(X, y)
    assert fitted.estimator_.is_categorical_.tolist() == [True, False]
    assert fitted.feature_names_in_.tolist() == ["colour", "size"]
    assert log_loss(y, fitted.predict_proba(X)) < 0.6
    with pytest.raises(ValueError, match="columns are missing"):
        fitted.predict_proba(X.rename(columns={"size": "weight"}))


def test_polars_tables():
    X = pl.DataFrame(X_CANCER, schema=[f"x{i}" for i in range(30)])
    assert np.array_equal(
        model().fit(X, Y_CANCER).predict_proba(X),
        model().fit(X_CANCER, Y_CANCER).predict_proba(X_CANCER),
    )


def test_sparse_tables_and_texts():
    texts = ["good film", "bad film", "a good one", "a bad one", "so good", "so bad"] * 10
    labels = [0, 1] * 30
    line = make_pipeline(TfidfVectorizer(), LogisticRegression(C=100))
    assert model(line).fit(texts, labels).predict(["good", "bad"]).tolist() == [0, 1]
    X = TfidfVectorizer().fit_transform(texts)
    assert model(LogisticRegression()).fit(sparse.coo_array(X), labels).score(X, labels) == 1


def test_inside_a_pipeline_and_a_search():
    line = make_pipeline(StandardScaler(), model(MLPClassifier((5,)), max_steps=5))
    grid = {"refinethencalibrateclassifier__estimator__alpha": [1e-4, 1.0]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search = GridSearchCV(line, grid, scoring=rc.refinement_scorer(), cv=2)
        assert search.fit(X_CANCER, Y_CANCER).best_score_ < 0


def test_cross_val_predict_and_clone():
    probs = cross_val_predict(clone(model()), X_CANCER, Y_CANCER, method="predict_proba", cv=3)
    assert log_loss(Y_CANCER, probs) < 0.3


def test_metadata_routing():
    weights = np.where(Y_CANCER == 1, 5.5, 0.25)
    with sklearn.config_context(enable_metadata_routing=True):
        inner = model().set_fit_request(sample_weight=True)
        line = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), inner).fit(
            X_CANCER, Y_CANCER, sample_weight=weights
        )
    direct = model().fit(StandardScaler().fit_transform(X_CANCER), Y_CANCER, sample_weight=weights)
    assert np.array_equal(
        line.predict_proba(X_CANCER),
        direct.predict_proba(StandardScaler().fit_transform(X_CANCER)),
    )


def test_other_calibrators():
    fitted = model(calibrator="isotonic").fit(X_CANCER, Y_CANCER)
    assert type(fitted.calibrator_).__name__ == "IsotonicCalibration"
    assert log_loss(Y_CANCER, fitted.predict_proba(X_CANCER)) < 0.3
    own = model(calibrator=LogisticRegression()).fit(X_CANCER, Y_CANCER)
    assert isinstance(own.calibrator_, LogisticRegression)
    assert log_loss(Y_CANCER, own.predict_proba(X_CANCER)) < 0.3


def test_how_many_models_are_averaged():
    auto = RefineThenCalibrateClassifier(LogisticRegression(), random_state=0)
    scaled = StandardScaler().fit_transform(X_CANCER)
    assert len(auto.fit(scaled, Y_CANCER).estimators_) == 10
    assert (
        len(auto.fit(scaled[:6], [0, 0, 0, 1, 1, 1]).estimators_) == 6
    )  # folds of a row per class
    assert len(auto.fit(scaled, Y_CANCER, groups=np.arange(569) % 2).estimators_) == 2
    assert len(auto.fit(scaled, Y_CANCER, X_val=scaled, y_val=Y_CANCER).estimators_) == 1
    assert len(clone(auto).set_params(n_folds=5).fit(scaled, Y_CANCER).estimators_) == 5
    rng = np.random.default_rng(0)
    many = rng.normal(size=(10_000, 1))
    assert len(auto.fit(many, many[:, 0] > rng.normal(size=10_000)).estimators_) == 7


def test_the_default_estimator_is_boosting():
    fitted = RefineThenCalibrateClassifier(max_steps=5, random_state=0)
    with pytest.warns(ConvergenceWarning, match="the best step is the last of 5: raise max_steps"):
        fitted.fit(X_CANCER, Y_CANCER)
    assert isinstance(fitted.estimator_, HistGradientBoostingClassifier)


def test_forests_work_although_they_vote_none():
    X, X_test, y, y_test = train_test_split(X_DIGITS, Y_DIGITS, random_state=0)
    fitted = model(RandomForestClassifier(random_state=0)).fit(X, y)
    plain = RandomForestClassifier(random_state=0).fit(X, y)
    assert log_loss(y_test, fitted.predict_proba(X_test)) < log_loss(
        y_test, plain.predict_proba(X_test)
    )


def test_the_estimator_given_is_left_alone():
    given = clone(BOOSTING)
    RefineThenCalibrateClassifier(given, max_steps=40, random_state=0).fit(X_CANCER, Y_CANCER)
    assert given.get_params() == BOOSTING.get_params()
    assert not hasattr(given, "classes_")


# ---- wrong use ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "data", "message"),
    [
        ({"estimator": Ridge()}, {}, "estimator is Ridge.*must be a classifier"),
        ({}, {"X_val": X_CANCER}, "X_val and y_val come together"),
        ({"n_folds": 3}, {"X_val": X_CANCER, "y_val": Y_CANCER}, "omit n_folds and groups"),
        (
            {"validation_fraction": 1.5},
            {},
            "validation_fraction is 1.5: it must lie between 0 and 1",
        ),
        ({"n_folds": 1}, {}, "n_folds is 1: it must be a whole number of at least 2"),
        ({"n_folds": "five"}, {}, "n_folds is 'five': it must be a whole number of at least 2"),
        ({"max_steps": 0}, {}, "max_steps is 0: it must be a whole number of at least 1"),
        ({"candidates": []}, {}, "candidates is .*must be a dict of lists"),
        ({"candidates": {"max_iter": [5]}}, {}, "candidates sets the number of rounds"),
        ({"estimator": "xgb"}, {}, "estimator is 'xgb': it must be a classifier"),
        ({}, {"sample_weight_val": np.ones(5)}, "sample_weight_val is for X_val"),
        (
            {"metric": "auroc"},
            {"X_val": X_CANCER[:5], "y_val": np.zeros(5)},
            "never a number on the 5",
        ),
        ({"candidates": {"no_such": [1]}}, {}, "Invalid parameter 'no_such'"),
        ({"metric": "refinment"}, {}, "Did you mean 'refinement'"),
        ({"patience": 0}, {}, "patience is 0"),
        ({}, {"sample_weight": -np.ones(569)}, "sample_weight"),
        ({}, {"groups": np.zeros(5)}, "inconsistent numbers of samples"),
        ({}, {"X_val": X_CANCER, "y_val": Y_CANCER + 1}, "y_val holds 2, which y does not"),
    ],
)
def test_wrong_use_names_the_cure(options, data, message):
    estimator = options.get("estimator", BOOSTING)
    options = {name: value for name, value in options.items() if name != "estimator"}
    with pytest.raises((TypeError, ValueError), match=message):
        model(estimator, **options).fit(X_CANCER, Y_CANCER, **data)


def test_one_class():
    with pytest.raises(ValueError, match="y holds one class only"):
        model().fit(X_CANCER, np.zeros(569))


def test_labels_of_other_types_are_shown_as_they_are():
    names = pd.Series(np.where(Y_CANCER, "yes", "no"), dtype=object)
    with pytest.raises(ValueError, match="y_val holds 'maybe', which y does not"):
        model().fit(X_CANCER, names, X_val=X_CANCER[:2], y_val=["no", "maybe"])
    with pytest.raises(ValueError, match=r"y holds one class only, 0\.0:"):
        model().fit(X_CANCER, np.zeros(569))


def test_a_fit_that_fails_changes_nothing():
    fitted = model().fit(X_CANCER, Y_CANCER)
    before = fitted.predict(X_CANCER)
    with pytest.raises(ValueError, match="too few"):
        fitted.fit(X_CANCER[:3], ["cat", "dog", "cow"])
    assert np.array_equal(fitted.predict(X_CANCER), before)
    never = model()
    with pytest.raises(ValueError, match="too few"):
        never.fit(X_CANCER[:3], ["cat", "dog", "cow"])
    with pytest.raises(NotFittedError):
        never.predict(X_CANCER)


def test_names_of_columns_are_forgotten_with_them():
    fitted = model().fit(pd.DataFrame(X_CANCER).add_prefix("x"), Y_CANCER)
    assert len(fitted.feature_names_in_) == 30
    fitted.fit(X_CANCER[:, :4], Y_CANCER)
    assert not hasattr(fitted, "feature_names_in_")
    assert fitted.n_features_in_ == 4


def test_candidates_that_are_estimators_are_not_shared():
    line = make_pipeline(StandardScaler(), LogisticRegression())
    mine = LogisticRegression(C=0.1)
    fitted = model(line, candidates={"logisticregression": [mine]}, n_folds=3).fit(
        X_CANCER, Y_CANCER
    )
    assert not hasattr(mine, "coef_")
    assert len({id(m[-1]) for m in fitted.estimators_}) == 3


def test_the_smoothing_of_forests_is_the_same_for_all_folds():
    fitted = model(RandomForestClassifier(5, random_state=0), n_folds=4, refit=True)
    fitted.fit(X_DIGITS, Y_DIGITS)
    assert fitted._smoothing == [len(Y_DIGITS)]  # of the one that was refitted


def test_several_labels_at_once_are_not_promised():
    assert not sklearn.utils.get_tags(model(RandomForestClassifier())).classifier_tags.multi_label


def test_not_fitted():
    with pytest.raises(NotFittedError):
        model().predict_proba(X_CANCER)


def test_a_model_that_knows_nothing():
    fitted = model(DummyClassifier(strategy="prior")).fit(X_CANCER, Y_CANCER)
    assert fitted.predict_proba(X_CANCER)[:, 1] == pytest.approx(Y_CANCER.mean(), abs=0.02)


def test_isotonic_is_scikit_learns():
    """The corners kept are those of scikit-learn's own regression, and no more is needed."""
    rng = np.random.default_rng(0)
    odds, y = rng.normal(size=200), rng.integers(0, 2, 200)
    ours = rc.make_calibrator("isotonic", laplace=False).fit_logits(odds, y)
    theirs = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(odds, y)
    new = rng.normal(size=500) * 2
    assert ours.predict_proba_logits(new)[:, 1] == pytest.approx(theirs.predict(new), abs=1e-12)


def test_a_frozen_estimator_is_calibrated_and_left_alone():
    from sklearn.frozen import FrozenEstimator

    X = StandardScaler().fit_transform(X_CANCER)
    sgd = SGDClassifier(loss="log_loss", random_state=0).fit(X[:300], Y_CANCER[:300])
    before = sgd.coef_.copy()
    fitted = model(FrozenEstimator(sgd)).fit(X[300:], Y_CANCER[300:])
    assert np.array_equal(sgd.coef_, before)
    assert fitted.best_step_ == 1
    assert np.array_equal(fitted.predict(X), sgd.predict(X))


class Backwards(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose classes are not in sorted order."""

    def __init__(self, inner=None):
        self.inner = inner

    def __sklearn_is_fitted__(self):
        return True

    def fit(self, X, y):
        raise AssertionError("it is frozen")

    @property
    def classes_(self):
        return self.inner.classes_[::-1]

    def predict_proba(self, X):
        return self.inner.predict_proba(X)[:, ::-1]

    def predict(self, X):
        return self.inner.predict(X)


@pytest.mark.parametrize("calibrator", ["affine", "auto", "temperature"])
@pytest.mark.parametrize("options", [{"n_folds": None}, {"n_folds": 3, "refit": True}, {}], ids=str)
def test_the_order_of_a_frozen_estimators_classes_does_not_matter(options, calibrator):
    from sklearn.frozen import FrozenEstimator

    X, names = StandardScaler().fit_transform(X_CANCER), np.array(["a", "b"])[Y_CANCER]
    forwards = LogisticRegression().fit(X[:300], names[:300])
    probs = [
        model(FrozenEstimator(each), calibrator=calibrator, **options)
        .fit(X[300:], names[300:])
        .predict_proba(X)
        for each in (forwards, Backwards(forwards))
    ]
    assert probs[0] == pytest.approx(probs[1], abs=1e-6)


def test_a_frozen_estimator_must_not_know_classes_without_rows():
    from sklearn.frozen import FrozenEstimator

    frozen = FrozenEstimator(GaussianNB().fit(X_DIGITS, Y_DIGITS))
    some = Y_DIGITS < 9
    with pytest.raises(ValueError, match="knows the class 9, but y has no row of it"):
        model(frozen).fit(X_DIGITS[some], Y_DIGITS[some])


def test_a_calibrator_of_ones_own_may_not_know_every_class():
    """A row that is the only one of its class is in no validation fold of a model that knows the class."""
    y = Y_CANCER.copy()
    y[0] = 2
    own = LogisticRegression()
    fitted = model(n_folds=3, calibrator=own).fit(X_CANCER, y)
    assert type(fitted.calibrator_) is LogisticRegression
    probs = fitted.predict_proba(X_CANCER)
    assert probs.shape == (len(y), 3)
    assert probs.sum(axis=1) == pytest.approx(1)
    assert np.mean(fitted.predict(X_CANCER) == y) > 0.9


def test_candidates_are_compared_on_all_splits_of_a_splitter():
    splitter = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)
    fitted = model(n_folds=splitter, candidates=[{}, {"max_depth": 1}]).fit(X_CANCER, Y_CANCER)
    for candidate in (0, 1):
        records = [r for r in fitted.history_ if r["candidate"] == candidate]
        assert {record["fold"] for record in records} == set(range(6))


def test_what_is_learned_does_not_hold_the_rows_it_was_learned_from():
    """Only the first model's monitor stays, for its history and plot."""
    fitted = model(n_folds=5).fit(X_CANCER, Y_CANCER)
    monitors = {
        id(each) for each in _within(vars(fitted)) if isinstance(each, rc.RefinementMonitor)
    }
    assert monitors == {id(fitted.monitor_)}


def _within(thing):
    """Return everything in containers and dataclasses."""
    if isinstance(thing, dict):
        thing = thing.values()
    elif is_dataclass(thing):
        thing = [getattr(thing, each.name) for each in fields(thing)]
    elif not isinstance(thing, (list, tuple)):
        return [thing]
    return [inner for each in thing for inner in _within(each)]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_catboost_gets_a_seed_for_each_model():
    from catboost import CatBoostClassifier

    def seeds(**params):
        small = CatBoostClassifier(verbose=False, allow_writing_files=False, **params)
        fitted = model(small, n_folds=2, max_steps=40).fit(X_CANCER[:100], Y_CANCER[:100])
        return [each.get_all_params()["random_seed"] for each in fitted.estimators_]

    first, second = seeds()
    assert second == first + 1
    assert seeds(random_seed=7) == [7, 8]


def test_one_row_is_predicted_as_among_others():
    """What turns margins into logits is settled in training, not by the rows to predict."""
    fitted = model(SGDClassifier(loss="log_loss", random_state=0)).fit(X_DIGITS, Y_DIGITS)
    together = fitted.predict_proba(X_DIGITS)
    alone = np.concatenate([fitted.predict_proba(X_DIGITS[i : i + 1]) for i in range(100)])
    assert alone == pytest.approx(together[:100], rel=1e-9)  # matrix products round differently
