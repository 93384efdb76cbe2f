"""RefineThenCalibrateClassifier around XGBoost, LightGBM and CatBoost: their models, at their best round."""

import catboost
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from oracle import refinement
from sklearn.datasets import load_breast_cancer, load_digits

from refinecal import RefineThenCalibrateClassifier

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


LIBRARIES = pytest.mark.parametrize(
    "make", [xgb, lgbm, cat], ids=["XGBoost", "LightGBM", "CatBoost"]
)
MARGINS = {
    xgb: {"output_margin": True},
    lgbm: {"raw_score": True},
    cat: {"prediction_type": "RawFormulaVal"},
}


def fit(make, X, y, patience=5, max_steps=300, options=None, **data):
    options = {"random_state": 0, "patience": patience, "max_steps": max_steps, **(options or {})}
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
    X, y = X_CANCER[:400], Y_CANCER[:400]
    val = {"X_val": X_CANCER[400:], "y_val": Y_CANCER[400:]}
    fitted = fit(make, X, y, **val)
    from refinecal._rows import Rows
    from refinecal.integrations.sklearn import refit

    rows = Rows(X, y).in_order()
    seed = fitted.estimator_.get_params().get("random_state")
    seeded = {} if seed is None else {"random_state": seed}  # CatBoost has a fixed seed of its own
    again = refit(make(**seeded), rows.X, rows.y, fitted.best_step_, like=fitted.estimator_)
    assert np.array_equal(
        again.predict(X_CANCER, **MARGINS[make]),
        fitted.estimator_.predict(X_CANCER, **MARGINS[make]),
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
