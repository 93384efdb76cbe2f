"""CatBoost, trained for real: the metric, the cut, the calibrator inside the model."""

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoost, CatBoostClassifier, CatBoostError, Pool, cv
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

import refinecal as rc
from refinecal.integrations.catboost import (
    RefinementLoss,
    calibrator_of,
    predict_proba,
    shrink_to_best,
)

QUIET = {"verbose": 0, "allow_writing_files": False, "random_seed": 0, "thread_count": 1}


def data(k=2, n=600):
    """Return noisy data whose refinement has its minimum long before the last tree."""
    X, y = make_classification(
        n, 8, n_informative=4, n_classes=k, flip_y=0.2, class_sep=0.8, random_state=k
    )
    half = n // 2
    return X[:half], y[:half], X[half:], y[half:]


def classifier(iterations=40, **params):
    return CatBoostClassifier(iterations=iterations, depth=5, learning_rate=0.6, **QUIET | params)


def raw(model, X):
    return model.predict(X, prediction_type="RawFormulaVal")


def staged(model, X):
    return list(model.staged_predict(X, prediction_type="RawFormulaVal"))


def refinement(y, logits, weight=None):
    """Return the refinement error found by a general-purpose minimiser."""
    z = np.stack([np.zeros(len(y)), logits], axis=1) if logits.ndim == 1 else logits

    def risk(log_beta):
        losses = -log_softmax(np.exp(log_beta) * z, axis=1)[np.arange(len(y)), y]
        return np.average(losses, weights=weight)

    return minimize_scalar(risk, bounds=(-9, 5), method="bounded", options={"xatol": 1e-10}).fun


@pytest.mark.parametrize("k", [2, 4])
def test_metric_stops_and_restores(k):
    X, y, X_val, y_val = data(k)
    model = classifier(eval_metric=RefinementLoss(), early_stopping_rounds=8)
    model.fit(X, y, eval_set=(X_val, y_val))
    values = model.evals_result_["validation"]["RefinementLoss"]

    long = classifier().fit(X, y)
    expected = [refinement(y_val, z) for z in staged(long, X_val)]
    assert np.allclose(values, expected[: len(values)], atol=1e-9)
    best = int(np.argmin(expected))
    assert 0 < best < len(expected) - 8  # else the test shows nothing
    assert model.best_iteration_ == best
    assert model.tree_count_ == best + 1
    assert len(values) == best + 1 + 8

    replay = classifier(iterations=best + 1).fit(X, y)
    assert np.array_equal(raw(model, X_val), raw(replay, X_val))


@pytest.mark.parametrize("k", [2, 4])
def test_shrink_to_best(k):
    X, y, X_val, y_val = data(k)
    model = classifier().fit(X, y)
    stages = staged(model, X_val)
    monitor = shrink_to_best(model, X_val, y_val, also=["log_loss"])

    expected = [refinement(y_val, z) for z in stages]
    assert monitor.best_step == np.argmin(expected)
    assert model.tree_count_ == monitor.best_step + 1
    assert np.allclose(monitor.to_frame()["refinement"], expected, atol=1e-9)
    assert "log_loss" in monitor.bests

    replay = classifier(iterations=monitor.best_step + 1).fit(X, y)
    assert np.array_equal(raw(model, X_val), raw(replay, X_val))
    own = rc.TemperatureScaling().fit_logits(stages[monitor.best_step], y_val)
    assert np.allclose(predict_proba(model, X), own.predict_proba_logits(raw(model, X)))
    assert calibrator_of(model).to_dict() == monitor.calibrator.to_dict()


def test_metric_and_shrink_agree():
    X, y, X_val, y_val = data()
    model = classifier(eval_metric=RefinementLoss()).fit(X, y, eval_set=(X_val, y_val))
    kept = model.tree_count_
    assert shrink_to_best(model, X_val, y_val).best_step == kept - 1
    assert model.tree_count_ == kept


CLASS_WEIGHTS = [
    {"auto_class_weights": "Balanced"},
    {"class_weights": [1, 5]},
    {"scale_pos_weight": 3},
]


@pytest.mark.parametrize("weights", CLASS_WEIGHTS)
def test_weights_of_classes_are_warned_of_and_can_be_left_out(weights):
    X, y, X_val, y_val = data()

    def trained(**options):
        metric = RefinementLoss(**options)
        model = classifier(iterations=5, eval_metric=metric, use_best_model=False, **weights)
        return model.fit(X, y, eval_set=(X_val, y_val))

    def logged(model):
        return model.evals_result_["validation"]["RefinementLoss"]

    with pytest.warns(RuntimeWarning, match="class_weights.*Pass RefinementLoss.use_weights=False"):
        weighted = trained()
    assert logged(weighted) == logged(trained(use_weights=True))  # without a word
    model = trained(use_weights=False)
    assert logged(model) != logged(weighted)
    monitor = shrink_to_best(model, X_val, y_val)
    assert logged(model) == pytest.approx([one["refinement"] for one in monitor.history])


def test_weights_of_rows_are_not_warned_of():
    X, y, X_val, y_val = data()
    for weight in (np.arange(len(y_val)) % 3 + 1, np.full(len(y_val), 2.0)):
        model = classifier(iterations=3, eval_metric=RefinementLoss())
        model.fit(X, y, eval_set=Pool(X_val, y_val, weight=weight))


def test_one_metric_object_serves_several_trainings():
    X, y, X_val, y_val = data()
    X3, y3, X3_val, y3_val = data(3)
    shared = RefinementLoss()

    def values(metric, *sets):
        model = classifier(iterations=5, eval_metric=metric)
        return model.fit(*sets[:2], eval_set=sets[2:]).evals_result_

    first = values(shared, X, y, X_val, y_val)
    values(shared, X3, y3, X3_val, y3_val)
    assert (
        values(shared, X, y, X_val, y_val) == first == values(RefinementLoss(), X, y, X_val, y_val)
    )


def test_metric_period_spares_the_training_rows_only():
    X, y, X_val, y_val = data()
    model = classifier(eval_metric=RefinementLoss(), early_stopping_rounds=8, metric_period=10)
    model.fit(X, y, eval_set=(X_val, y_val))
    every = classifier(eval_metric=RefinementLoss(), early_stopping_rounds=8)
    every.fit(X, y, eval_set=(X_val, y_val))
    assert model.best_iteration_ == every.best_iteration_
    assert len(model.evals_result_["learn"]["RefinementLoss"]) < 5


def test_last_of_several_evaluation_sets_decides():
    X, y, X_val, y_val = data()
    sets = [(X_val[:100], y_val[:100]), (X_val[100:], y_val[100:])]
    both = classifier(eval_metric=RefinementLoss()).fit(X, y, eval_set=sets)
    last = classifier(eval_metric=RefinementLoss()).fit(X, y, eval_set=sets[1])
    assert both.tree_count_ == last.tree_count_
    first = both.evals_result_["validation_0"]["RefinementLoss"]
    stages = staged(classifier().fit(X, y), X_val[:100])
    assert np.allclose(first, [refinement(y_val[:100], z) for z in stages], atol=1e-9)


def test_weights_string_labels_and_pools():
    X, y, X_val, y_val = data()
    names = np.array(["yes", "no"])  # not in alphabetical order
    weight = np.random.default_rng(0).integers(1, 4, len(y_val))
    pool = Pool(X_val, names[y_val], weight=weight)
    model = classifier(eval_metric=RefinementLoss(), use_best_model=False)
    model.fit(X, names[y], eval_set=pool)

    assert model.classes_.tolist() == ["no", "yes"]
    expected = [refinement(1 - y_val, z, weight) for z in staged(model, X_val)]
    values = model.evals_result_["validation"]["RefinementLoss"]
    assert np.allclose(values, expected, atol=1e-9)

    monitor = shrink_to_best(model, pool)
    assert monitor.best_step == np.argmin(expected)
    assert monitor.calibrator.classes_.tolist() == ["no", "yes"]
    assert monitor.calibrator.n_samples_ == weight.sum()
    twice = classifier().fit(X, names[y])  # a weight of 3 is a row that comes 3 times
    repeated = np.repeat(np.arange(len(y_val)), weight)
    assert (
        shrink_to_best(twice, X_val[repeated], names[y_val[repeated]]).best_step
        == monitor.best_step
    )


def test_categorical_features():
    X, y, X_val, y_val = data()

    def frame(X):
        return pd.DataFrame({"size": X[:, 0], "colour": np.where(X[:, 1] > 0, "red", "blue")})

    model = classifier(cat_features=["colour"], eval_metric=RefinementLoss())
    model.fit(frame(X), y, eval_set=(frame(X_val), y_val))
    monitor = shrink_to_best(model, frame(X_val), y_val)
    assert np.isclose(monitor.best_value, refinement(y_val, raw(model, frame(X_val))))


def test_class_without_validation_rows():
    X, y, X_val, y_val = data(3)
    seen = y_val != 1
    model = classifier(iterations=10, eval_metric=RefinementLoss())
    model.fit(X, y, eval_set=(X_val[seen], y_val[seen]))
    monitor = shrink_to_best(model, X_val[seen], y_val[seen])
    assert predict_proba(model, X_val).shape == (300, 3)
    assert np.isclose(monitor.best_value, refinement(y_val[seen], raw(model, X_val[seen])))


def test_continued_training_equals_one_go():
    X, y, X_val, y_val = data()
    plain = {"bootstrap_type": "No", "random_strength": 0, "boost_from_average": False}
    whole = classifier(iterations=30, leaf_estimation_iterations=1, **plain).fit(X, y)
    start = classifier(iterations=4, leaf_estimation_iterations=1, **plain).fit(X, y)
    rest = classifier(
        iterations=26, leaf_estimation_iterations=1, eval_metric=RefinementLoss(), **plain
    )
    rest.fit(X, y, init_model=start, eval_set=(X_val, y_val))

    monitors = [shrink_to_best(model, X_val, y_val) for model in (whole, rest)]
    assert monitors[0].best_step == monitors[1].best_step > 4
    assert rest.best_iteration_ == monitors[1].best_step - 4  # CatBoost counts new trees only
    assert np.allclose(raw(whole, X_val), raw(rest, X_val), rtol=1e-12)


def test_files_of_the_training_log(tmp_path):
    X, y, X_val, y_val = data()
    model = classifier(iterations=5, eval_metric=RefinementLoss(), use_best_model=False)
    model.set_params(allow_writing_files=True, train_dir=str(tmp_path))
    model.fit(X, y, eval_set=(X_val, y_val))
    log = pd.read_csv(tmp_path / "test_error.tsv", sep="\t")
    assert np.allclose(log["RefinementLoss"], [refinement(y_val, z) for z in staged(model, X_val)])


def test_cross_validation_and_clone(tmp_path):
    X, y, _, _ = data()
    model = classifier(iterations=5, eval_metric=RefinementLoss())
    params = clone(model).get_params() | {"loss_function": "Logloss", "train_dir": str(tmp_path)}
    table = cv(Pool(X, y), params, fold_count=2)
    assert (table["test-RefinementLoss-mean"] <= table["test-Logloss-mean"]).all()


@pytest.mark.parametrize("kind", ["cbm", "json"])
def test_calibrator_survives_saving(tmp_path, kind):
    X, y, X_val, y_val = data(3)
    model = classifier().fit(X, y)
    shrink_to_best(model, X_val, y_val)
    model.save_model(tmp_path / "model", format=kind)
    loaded = CatBoostClassifier().load_model(tmp_path / "model", format=kind)
    assert calibrator_of(loaded).to_dict() == calibrator_of(model).to_dict()
    assert np.allclose(predict_proba(loaded, X), predict_proba(model, X), rtol=1e-12)


def test_calibrator_of_other_trees_is_refused():
    X, y, X_val, y_val = data()
    model = classifier(iterations=10).fit(X, y)
    with pytest.raises(ValueError, match=r"holds no calibrator: call shrink_to_best"):
        calibrator_of(model)
    shrink_to_best(model, X_val, y_val)
    model.fit(X_val, y_val)
    with pytest.raises(ValueError, match=r"belongs to other trees, since the model was trained"):
        calibrator_of(model)


def test_foreign_calibrator_is_not_stored():
    X, y, X_val, y_val = data()
    model = classifier(iterations=10).fit(X, y)
    shrink_to_best(model, X_val, y_val)
    monitor = shrink_to_best(model, X_val, y_val, calibrator=LogisticRegression())
    assert isinstance(monitor.calibrator, LogisticRegression)
    with pytest.raises(ValueError, match="Custom calibrators are not stored"):
        calibrator_of(model)


def test_options_of_the_metric():
    X, y, X_val, y_val = data()
    metric = RefinementLoss(loss="brier", calibrator="isotonic")
    model = classifier(iterations=5, eval_metric=metric, use_best_model=False)
    model.fit(X, y, eval_set=(X_val, y_val))
    expected = [
        rc.refinement_error(y_val, logits=z, loss="brier", calibrator="isotonic")
        for z in staged(model, X_val)
    ]
    assert np.allclose(model.evals_result_["validation"]["RefinementLoss"], expected)
    with pytest.raises(ValueError, match="calibrator"):
        RefinementLoss(calibrator="temprature")
    with pytest.raises(TypeError, match="Did you mean 'use_weights'"):
        RefinementLoss(use_weight=False)
    broken = np.array([0.0, np.inf, 1.0])
    assert metric.evaluate((broken,), np.array([0, 1, 1], np.float32), None)[0] == np.inf


def test_an_iterator_of_folds_serves_every_round():
    labels, logits = np.array([0, 1, 0, 1]), np.array([-1.0, 0.5, 0.2, 1.0])
    metric = RefinementLoss(cv=iter([([0, 1], [2, 3]), ([2, 3], [0, 1])]))
    assert metric.evaluate([logits], labels, None) == metric.evaluate([logits], labels, None)


def test_wrong_use():
    X, y, X_val, y_val = data()
    with pytest.raises(TypeError, match=r"model is a LogisticRegression: it must be a CatBoost"):
        shrink_to_best(LogisticRegression(), X_val, y_val)
    with pytest.raises(ValueError, match="model is not trained yet: call model.fit first"):
        shrink_to_best(classifier(), X_val, y_val)
    model = classifier(iterations=3).fit(X, y)
    with pytest.raises(TypeError, match="y_val is missing: pass the labels of X_val, or a Pool"):
        shrink_to_best(model, X_val)
    with pytest.raises(TypeError, match="y_val is missing"):
        shrink_to_best(model, Pool(X_val))
    with pytest.raises(ValueError, match=r"y_val\[0\] is 7, which is not among classes \[0, 1\]"):
        shrink_to_best(model, X_val, np.full(len(y_val), 7))
    with pytest.raises(ValueError, match="metric 'auroc' is NaN for every number of trees"):
        shrink_to_best(model, X_val, np.ones(len(y_val)), metric="auroc")
    with pytest.raises(TypeError, match="rounds is called patience here: pass patience=3"):
        shrink_to_best(model, X_val, y_val, rounds=3)
    three = classifier(iterations=3, loss_function="MultiClassOneVsAll").fit(X, y)
    with pytest.raises(ValueError, match="loss_function='MultiClassOneVsAll': it must give one"):
        shrink_to_best(three, X_val, y_val)
    regression = CatBoost({"iterations": 3, "loss_function": "RMSE"} | QUIET).fit(X, y)
    with pytest.raises(ValueError, match="train it with 'Logloss' or 'MultiClass'"):
        shrink_to_best(regression, X_val, y_val)


def test_metric_says_what_is_wrong_in_training():
    X, y, X_val, y_val = data()
    model = CatBoost({"iterations": 3, "eval_metric": RefinementLoss()} | QUIET)
    with pytest.raises(CatBoostError, match="labels must be whole numbers"):
        model.fit(X, y + 0.5, eval_set=(X_val, y_val))
