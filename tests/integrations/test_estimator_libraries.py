"""XGBoost, LightGBM and CatBoost, trained by us: their models, at their best round."""

import catboost
import lightgbm
import numpy as np
import optuna
import pandas as pd
import pytest
import xgboost
from oracle import best_step, refinement
from retraining import refit
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.pipeline import make_pipeline

from refinecal import RefinementMonitor, RefineThenCalibrateClassifier
from refinecal.integrations import catboost as catboost_integration
from refinecal.integrations import lightgbm as lightgbm_integration
from refinecal.integrations import xgboost as xgboost_integration
from refinecal.integrations.optuna import TrialMonitor
from refinecal.integrations.sklearn import train

X_DIGITS, Y_DIGITS = (part[:700] for part in load_digits(return_X_y=True))
X_CANCER, Y_CANCER = load_breast_cancer(return_X_y=True)
DATA = pytest.mark.parametrize(
    ("X", "y"), [(X_CANCER, Y_CANCER), (X_DIGITS, Y_DIGITS)], ids=["two classes", "ten classes"]
)


def xgb(**params):
    return xgboost.XGBClassifier(n_jobs=1, max_depth=3, learning_rate=0.5, **params)


def lgbm(**params):
    return lightgbm.LGBMClassifier(
        n_jobs=1, num_leaves=5, learning_rate=0.3, verbose=-1, deterministic=True, **params
    )


def cat(**params):
    return catboost.CatBoostClassifier(thread_count=1, depth=3, learning_rate=0.5, **params)


QUIET = {"verbose": False, "allow_writing_files": False}
LIBRARIES = pytest.mark.parametrize(
    "make", [xgb, lgbm, cat], ids=["XGBoost", "LightGBM", "CatBoost"]
)
MARGINS = {
    xgb: {"output_margin": True},
    lgbm: {"raw_score": True},
    cat: {"prediction_type": "RawFormulaVal"},
}


def split(X, y):
    return X[:400], y[:400], X[400:], y[400:]


CANCER, DIGITS = split(X_CANCER, Y_CANCER), split(X_DIGITS, Y_DIGITS)


def trained(model, data, max_steps=300, **options):
    monitor = RefinementMonitor(**{"patience": 5, **options})
    return train(model, *data, monitor=monitor, max_steps=max_steps), monitor


def fit(make, X, y, patience=5, max_steps=300, options=None, **data):
    options = {"n_folds": None, "random_state": 0, **(options or {})}
    options |= {"patience": patience, "max_steps": max_steps}
    return RefineThenCalibrateClassifier(make(), **options).fit(X, y, **data)


@DATA
@LIBRARIES
def test_the_model_is_that_of_the_best_round(make, X, y):
    """Its margins give the refinement that was smallest, by brute force, and one round less gives another."""
    names = np.array(list("abcdefghij"))[y]
    fitted = fit(make, X[:400], names[:400], X_val=X[400:], y_val=names[400:])
    best = min(fitted.history_, key=lambda record: record["refinement"])
    margins = fitted.estimator_.predict(X[400:], **MARGINS[make])
    assert best["refinement"] == pytest.approx(refinement(y[400:], margins), rel=1e-5)
    assert fitted.best_step_ == best["step"]
    assert len(fitted.history_) == best["step"] + 5
    probs = fitted.calibrator_.predict_proba_logits(margins)
    assert fitted.predict_proba(X[400:]) == pytest.approx(probs, rel=1e-6)
    assert fitted.classes_.tolist() == sorted(set(names))
    assert set(fitted.predict(X)) <= set(names)


@LIBRARIES
def test_refitting_on_the_same_rows_is_a_replay(make):
    """Refitted with nothing new, the model is the one that was cut at its best round."""
    fitted, monitor = trained(make(random_state=7), CANCER)
    again = refit(make(random_state=7), *CANCER[:2], monitor.best_step, like=fitted)
    assert np.array_equal(
        again.predict(X_CANCER, **MARGINS[make]), fitted.predict(X_CANCER, **MARGINS[make])
    )


@LIBRARIES
def test_weights_and_folds_and_refit(make):
    weights = np.where(Y_CANCER == 1, 5.5, 0.25)
    options = {"n_folds": 2, "refit": True}
    fitted = fit(make, X_CANCER, Y_CANCER, options=options, sample_weight=weights)
    assert fitted.calibrator_.n_samples_ == pytest.approx(weights.sum())
    plain = fit(make, X_CANCER, Y_CANCER, options=options)
    shift = fitted.predict_proba(X_CANCER)[:, 1].mean() - plain.predict_proba(X_CANCER)[:, 1].mean()
    assert shift > 0


@LIBRARIES
def test_by_another_metric(make):
    fitted = fit(make, X_CANCER, Y_CANCER, options={"metric": "log_loss"})
    assert fitted.best_step_ == min(fitted.history_, key=lambda record: record["risk"])["step"]


@LIBRARIES
def test_categorical_columns(make, capfd):
    rng = np.random.default_rng(0)
    colour, size = rng.choice(["red", "green", "blue"], 500), rng.normal(size=500)
    y = (colour == "red") ^ (size + rng.normal(size=500) > 0)
    X = pd.DataFrame({"colour": pd.Categorical(colour), "size": size})
    wishes = {xgb: {"enable_categorical": True}, lgbm: {}, cat: {"cat_features": ["colour"]}}[make]
    fitted = fit(lambda: make(**wishes), X, y)
    assert fitted.score(X, y) > 0.65
    assert capfd.readouterr().out == ""


def test_class_weights_of_lightgbm_are_those_of_the_labels():
    names = np.array(["benign", "malign"])[1 - Y_CANCER]
    heavy = fit(lambda: lgbm(class_weight={"benign": 1, "malign": 50}), X_CANCER, names)
    light = fit(lambda: lgbm(class_weight={"benign": 50, "malign": 1}), X_CANCER, names)
    malign = [m.estimator_.predict_proba(X_CANCER)[:, 1].mean() for m in (heavy, light)]
    assert malign[0] > malign[1]


def test_the_learning_rate_of_catboost_is_not_that_of_fewer_rounds():
    def automatic():
        return catboost.CatBoostClassifier(thread_count=1)

    val = {"X_val": X_CANCER[400:], "y_val": Y_CANCER[400:]}
    data = (X_CANCER[:400], Y_CANCER[:400])
    first = fit(automatic, *data, **val)
    again = fit(automatic, *data, options={"refit": True}, **val)
    rates = [m.estimator_.get_all_params()["learning_rate"] for m in (first, again)]
    assert rates[0] == pytest.approx(rates[1])


# ---- one rule for all ------------------------------------------------------------------------------------


@LIBRARIES
def test_a_monitor_that_prunes_sees_every_round(make):
    class Third(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.last_step == 3

    study = optuna.create_study(pruner=Third())
    monitor = TrialMonitor(study.ask())
    with pytest.raises(optuna.TrialPruned, match="step 3"):
        train(make(), *CANCER, monitor=monitor, max_steps=9)
    reported = study.trials[0].intermediate_values
    assert reported == {record["step"]: record["refinement"] for record in monitor.history}
    assert list(reported) == [1, 2, 3]
    assert monitor.classes is None


@LIBRARIES
def test_a_used_monitor_is_refused(make):
    _, monitor = trained(make(), CANCER, max_steps=3)
    with pytest.raises(ValueError, match="has seen 3 steps of another training"):
        train(make(), *CANCER, monitor=monitor, max_steps=3)


@LIBRARIES
@pytest.mark.parametrize("in_pipeline", [False, True])
def test_the_estimator_given_is_left_alone(make, in_pipeline):
    model = make(n_estimators=4).set_params(**(QUIET if make is cat else {}))
    model.fit(X_CANCER, 1 - Y_CANCER)
    before, params = model.predict_proba(X_CANCER), model.get_params()
    given = make_pipeline("passthrough", model) if in_pipeline else model
    fitted, monitor = trained(given, CANCER, max_steps=10)
    _, reference = trained(make(), CANCER, max_steps=10)
    assert monitor.history == reference.history
    assert np.array_equal(model.predict_proba(X_CANCER), before)
    assert repr(model.get_params()) == repr(params)
    assert fitted is not given


INTEGRATIONS = {xgb: xgboost_integration, lgbm: lightgbm_integration, cat: catboost_integration}


@LIBRARIES
def test_the_calibrator_is_in_the_model_too(make):
    fitted, monitor = trained(make(), DIGITS, max_steps=5)
    stored = INTEGRATIONS[make].calibrator_of(fitted)
    assert stored.beta_ == monitor.calibrator.beta_
    assert stored.classes_.tolist() == list(range(10))


@LIBRARIES
def test_labels_stay_those_of_the_user(make):
    names = np.array(list("abcdefghij"), dtype=object)
    seen = []

    def wrong(labels, probs):
        seen.append(set(labels))
        return np.mean(names[probs.argmax(axis=1)] != labels)

    data = (DIGITS[0], names[DIGITS[1]], DIGITS[2], names[DIGITS[3]])
    fitted, monitor = trained(make(), data, metric=wrong, max_steps=4)
    assert all(labels == set(names) for labels in seen)
    assert monitor.best_value < 0.7  # guessing would give 0.9
    assert monitor.calibrator.classes_.tolist() == names.tolist()
    if make is xgb:  # which takes nothing but numbers
        assert fitted.classes_.tolist() == list(range(10))
    else:
        assert fitted.classes_.tolist() == names.tolist()
        assert set(np.ravel(fitted.predict(DIGITS[2]))) <= set(names)


@LIBRARIES
def test_weights_of_validation_rows(make):
    weights = np.random.default_rng(0).integers(0, 3, len(CANCER[3]))
    monitor = RefinementMonitor()
    fitted = train(make(), *CANCER, monitor=monitor, max_steps=8, sample_weight_val=weights)
    rows = np.repeat(np.arange(len(weights)), weights)
    margins = fitted.predict(CANCER[2][rows], **MARGINS[make])
    assert monitor.best_value == pytest.approx(refinement(CANCER[3][rows], margins), rel=1e-5)


OWN_STOPPING = [
    (xgb, {"early_stopping_rounds": 1}),
    (xgb, {"callbacks": [xgboost.callback.EarlyStopping(rounds=1)]}),
    (lgbm, {"early_stopping_round": 1}),
    (lgbm, {"early_stopping_rounds": 1}),
    (lgbm, {"n_iter_no_change": 1}),
    (lgbm, {"early_stopping": 1}),
    (cat, {"early_stopping_rounds": 1}),
    (cat, {"od_type": "IncToDec", "od_pval": 0.9}),
    (cat, {"od_wait": 1, "use_best_model": True}),
]


@pytest.mark.parametrize(("make", "params"), OWN_STOPPING)
@pytest.mark.parametrize("metric", ["refinement", "log_loss"])
@pytest.mark.sweep(2)
def test_their_own_stopping_is_switched_off(make, params, metric):
    options = {"max_steps": 40, "patience": 12, "metric": metric}
    fitted, monitor = trained(make(**params), CANCER, **options)
    _, reference = trained(make(), CANCER, **options)
    assert monitor.history == reference.history
    refit(make(**params), *CANCER[:2], 3, like=fitted)


def test_other_names_of_the_number_of_rounds():
    for make, name in ((lgbm, "num_iterations"), (lgbm, "max_iter"), (cat, "num_trees")):
        _, monitor = trained(make(**{name: 3}), CANCER, patience=None, max_steps=6)
        assert monitor.last_step == 6


# ---- one against the rest ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "params"),
    [(lgbm, {"objective": "multiclassova"}), (cat, {"loss_function": "MultiClassOneVsAll"})],
)
def test_one_against_rest_is_not_softmax(make, params):
    fitted, monitor = trained(make(**params), DIGITS, max_steps=6)
    probs = fitted.predict_proba(DIGITS[2])
    logits = np.log(probs / probs.sum(axis=1, keepdims=True))
    assert monitor.best_value == pytest.approx(refinement(DIGITS[3], logits), rel=1e-6)
    model = fit(lambda: make(**params), X_DIGITS, Y_DIGITS)
    assert model.score(X_DIGITS, Y_DIGITS) > 0.9


# ---- CatBoost ----------------------------------------------------------------------------------------------


def staged_margins(max_steps):
    whole = cat(iterations=max_steps, **QUIET).fit(*DIGITS[:2])
    return list(whole.staged_predict(DIGITS[2], prediction_type="RawFormulaVal"))


def test_catboost_obeys_patience_and_min_delta():
    """The record is that of a monitor which is shown one number of trees after the other."""
    stages = staged_margins(60)
    for options in ({"min_delta": 0.05}, {"metric": "log_loss"}, {"metric": "accuracy"}):
        expected = RefinementMonitor(**{"patience": 4, **options})
        for step, margins in enumerate(stages, 1):
            expected.update(DIGITS[3], logits=margins, step=step)
            if expected.should_stop:
                break
        fitted, monitor = trained(cat(), DIGITS, max_steps=60, patience=4, **options)
        assert monitor.history == expected.history
        assert len(monitor.history) < 60
        assert fitted.tree_count_ == monitor.best_step == expected.best_step


def test_catboost_trains_on_if_the_monitor_wants_more():
    class FiftySteps(RefinementMonitor):
        @property
        def should_stop(self):
            return len(self.history) >= 50

    monitor = FiftySteps(patience=1)
    fitted = train(cat(), *DIGITS, monitor=monitor, max_steps=60)
    stages = staged_margins(60)[:50]
    step, value = best_step(DIGITS[3], stages)
    assert monitor.last_step == 50
    assert (monitor.best_step, monitor.best_value) == (step + 1, pytest.approx(value, rel=1e-6))
    margins = fitted.predict(DIGITS[2], prediction_type="RawFormulaVal")
    assert np.array_equal(margins, stages[step])


def test_catboost_reads_texts_and_embeddings():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    words = np.where(rng.random(300) < 0.9, y, 1 - y)
    X = pd.DataFrame({"text": np.array(["dull grey rain", "bright blue sky"])[words]})
    X["place"] = [list(row) for row in rng.normal(y[:, None], 1, (300, 3))]
    X["size"] = rng.normal(size=300)
    model = cat(text_features=["text"], embedding_features=["place"])
    data = (X[:200], y[:200], X[200:], y[200:])
    fitted, monitor = trained(model, data, max_steps=10)
    assert np.mean(fitted.predict(X[200:]) == y[200:]) > 0.8
    assert monitor.best_value < 0.5


@pytest.mark.parametrize(
    "params",
    [
        {"class_weights": {"malign": 3, "benign": 1}},
        {"class_names": ["malign", "benign"], "class_weights": [3, 1]},
    ],
    ids=["dict", "list"],
)
def test_columns_of_catboost_are_in_order(params):
    """CatBoost orders its columns as its user orders the weights; everybody else sorts them."""
    names = np.array(["malign", "benign"])
    X, y, X_val, y_val = CANCER
    fitted, monitor = trained(cat(**params), (X, names[y], X_val, names[y_val]), max_steps=20)
    reference, expected = trained(cat(class_weights=[1, 3]), (X, 1 - y, X_val, 1 - y_val), 20)
    assert fitted.classes_.tolist() == ["benign", "malign"]
    assert monitor.history == expected.history
    assert np.array_equal(fitted.predict_proba(X_val), reference.predict_proba(X_val))
