"""Trains real boosters; the best round is checked against staged predictions and a search by SciPy."""

import json

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

import refinecal as rc
from refinecal.integrations.xgboost import RefinementStopping, calibrator_of, predict_proba

N = 300  # rows to train on
BINARY = {"objective": "binary:logistic", "nthread": 1, "seed": 0, "eta": 0.5}
THREE = BINARY | {"objective": "multi:softprob", "num_class": 3}


def table(k=2):
    return make_classification(
        600, 8, n_informative=4, n_classes=k, flip_y=0.2, class_sep=0.7, random_state=k
    )


def matrices(k=2, weight=None):
    X, y = table(k)
    dval = xgb.DMatrix(X[N:], y[N:], weight=None if weight is None else weight[N:])
    return xgb.DMatrix(X[:N], y[:N]), dval


def train(params, dtrain, rounds=30, **options):
    return xgb.train(params, dtrain, rounds, verbose_eval=False, **options)


def refinement(labels, margins, weights=None):
    """Return the log loss after the best temperature, found by a search that shares no code with ours."""
    z = np.asarray(margins, dtype=np.float64)
    z = np.stack([np.zeros(len(z)), z], axis=1) if z.ndim == 1 else z
    rows = np.arange(len(z)), np.asarray(labels, dtype=int)

    def loss(log_beta):
        return -np.average(log_softmax(np.exp(log_beta) * z, axis=1)[rows], weights=weights)

    return minimize_scalar(loss, bounds=(-10, 10), method="bounded", options={"xatol": 1e-9}).fun


def staged(model, dval):
    """Return the validation margins after each round."""
    rounds = range(1, model.num_boosted_rounds() + 1)
    return [model[:r].predict(dval, output_margin=True) for r in rounds]


# ---- the best round --------------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [BINARY, THREE, THREE | {"objective": "multi:softmax"}])
def test_the_best_round_is_the_one_with_the_smallest_refinement(params):
    dtrain, dval = matrices(params.get("num_class", 2))
    stopping = RefinementStopping(dval)
    model = train(params, dtrain, callbacks=[stopping])
    losses = [refinement(dval.get_label(), z) for z in staged(train(params, dtrain), dval)]
    assert len(losses) == len(stopping.monitor.history) == 30
    assert 0 < np.argmin(losses) < 29
    assert stopping.best_iteration == model.best_iteration == np.argmin(losses)
    assert stopping.best_score == model.best_score == pytest.approx(min(losses), rel=1e-6)
    assert [r["refinement"] for r in stopping.monitor.history] == pytest.approx(losses, rel=1e-6)


@pytest.mark.parametrize(
    "extra",
    [
        {"subsample": 0.8},
        {"num_parallel_tree": 2},
        {"booster": "dart", "rate_drop": 0.3, "one_drop": 1},
        {"booster": "gblinear", "updater": "coord_descent"},
        {"multi_strategy": "multi_output_tree"},
    ],
)
def test_replay_without_the_callback_gives_the_same_model(extra):
    dtrain, dval = matrices(3)
    stopping = RefinementStopping(dval, rounds=5, metric="error_rate")
    model = train(THREE | extra, dtrain, callbacks=[stopping])
    assert stopping.best_iteration < stopping.monitor.last_step  # there is something to go back to
    plain = train(THREE | extra, dtrain, stopping.best_iteration + 1)
    assert model.num_boosted_rounds() == plain.num_boosted_rounds() == stopping.best_iteration + 1
    assert np.array_equal(model.predict(dval), plain.predict(dval))
    margins = model.predict(dval, output_margin=True)
    expected = refinement(dval.get_label(), margins)
    assert stopping.monitor.best.record["refinement"] == pytest.approx(expected, rel=1e-5)


def test_boosting_stops_when_patience_has_run_out():
    dtrain, dval = matrices()
    best = RefinementStopping(dval)
    train(BINARY, dtrain, callbacks=[best])
    values = [record["refinement"] for record in best.monitor.history]
    stopping = RefinementStopping(dval, rounds=3, save_best=False)
    model = train(BINARY, dtrain, callbacks=[stopping])
    leaders = np.minimum.accumulate(values)
    waits = [step - int(np.argmin(values[: step + 1])) for step in range(len(leaders))]
    assert model.num_boosted_rounds() == waits.index(3) + 1 < 30
    assert model.best_iteration == stopping.best_iteration == waits.index(3) - 3


def test_weights_count_rows_and_come_from_the_matrix_or_the_argument():
    weight = np.random.default_rng(0).integers(0, 4, 600).astype(float)
    dtrain, dval = matrices(weight=weight)
    of_matrix, of_argument = (
        RefinementStopping(dval),
        RefinementStopping(matrices()[1], sample_weight=weight[N:]),
    )
    model = train(BINARY, dtrain, callbacks=[of_matrix, of_argument])
    losses = [
        refinement(dval.get_label(), z, weight[N:]) for z in staged(train(BINARY, dtrain), dval)
    ]
    assert of_matrix.monitor.history == of_argument.monitor.history
    assert model.best_iteration == of_matrix.best_iteration == np.argmin(losses)
    assert of_matrix.best_score == pytest.approx(min(losses), rel=1e-6)


@pytest.mark.parametrize("start", [{}, {"base_score": 0.0}])
def test_an_objective_of_ones_own_gives_margins(start):
    def log_loss(margins, dtrain):
        probs = 1 / (1 + np.exp(-margins))
        return probs - dtrain.get_label(), probs * (1 - probs)

    dtrain, dval = matrices()
    params = {"nthread": 1, "eta": 0.5, **start}
    stopping = RefinementStopping(dval)
    model = train(params, dtrain, obj=log_loss, callbacks=[stopping])
    losses = [
        refinement(dval.get_label(), z) for z in staged(train(params, dtrain, obj=log_loss), dval)
    ]
    assert model.best_iteration == np.argmin(losses)
    assert predict_proba(model, dval).sum(axis=1) == pytest.approx(1)


def test_any_metric_decides():
    dtrain, dval = matrices()
    by_loss = RefinementStopping(dval, metric="log_loss", also=["accuracy"])
    model = train(BINARY, dtrain, callbacks=[by_loss])
    results = {}
    train(BINARY, dtrain, evals=[(dval, "val")], evals_result=results)
    assert model.best_iteration == np.argmin(results["val"]["logloss"])
    assert model.best_iteration != by_loss.monitor.bests["accuracy"].step


# ---- training again, and further -------------------------------------------------------------------------


def test_a_callback_used_twice_starts_afresh():
    dtrain, dval = matrices()
    stopping = RefinementStopping(dval, rounds=4)
    first = train(BINARY, dtrain, callbacks=[stopping])
    history = stopping.monitor.history
    second = train(BINARY, dtrain, callbacks=[stopping])
    assert stopping.monitor.history == history
    assert second.save_raw() == first.save_raw()


@pytest.mark.parametrize("first", [5, 20])  # before the best round and after it
@pytest.mark.parametrize("save_best", [True, False])
def test_training_in_two_parts_equals_training_in_one(first, save_best):
    dtrain, dval = matrices(3)
    whole, parts = RefinementStopping(dval), RefinementStopping(dval, save_best=save_best)
    model = train(THREE, dtrain, callbacks=[whole])
    started = train(THREE, dtrain, first, callbacks=[parts])
    left = 30 - started.num_boosted_rounds()
    resumed = train(THREE, dtrain, left, callbacks=[parts], xgb_model=started)
    assert parts.monitor.history == whole.monitor.history
    assert resumed.best_iteration == model.best_iteration
    assert np.array_equal(predict_proba(resumed, dval), predict_proba(model, dval))


def test_dart_trained_further_starts_from_what_is_there():
    dtrain, dval = matrices()
    params = BINARY | {"booster": "dart", "rate_drop": 0.3}
    stopping = RefinementStopping(dval)
    start = train(params, dtrain, 5)
    model = train(params, dtrain, 10, callbacks=[stopping], xgb_model=start)
    assert [record["step"] for record in stopping.monitor.history] == list(range(4, 15))
    margins = model.predict(dval, output_margin=True)
    assert model.best_score == pytest.approx(refinement(dval.get_label(), margins), rel=1e-5)


# ---- scikit-learn's way ----------------------------------------------------------------------------------


def classifier(stopping, **options):
    return xgb.XGBClassifier(
        n_estimators=30, learning_rate=0.5, n_jobs=1, callbacks=[stopping], **options
    )


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("save_best", [True, False])
def test_classifier(k, save_best):
    X, y = table(k)
    stopping = RefinementStopping(X[N:], y[N:], rounds=10, save_best=save_best)
    model = classifier(stopping).fit(X[:N], y[:N], verbose=False)
    margins = model.predict(X[N:], output_margin=True)
    assert model.best_iteration == stopping.best_iteration
    assert stopping.best_score == pytest.approx(refinement(y[N:], margins), rel=1e-6)
    calibrated = predict_proba(model, X[N:])
    assert np.array_equal(calibrated, stopping.calibrator.predict_proba_logits(margins))
    logs = model.evals_result()["val"]
    assert logs["refinement_loss"] == [r["refinement"] for r in stopping.monitor.history]


def test_named_labels_in_any_order():
    X, y = table(3)
    names = np.array(["low", "high", "mid"])  # not sorted: numbered by the user
    stopping = RefinementStopping(X[N:], names[y[N:]], classes=names)
    numbers = RefinementStopping(X[N:], y[N:])
    classifier(stopping).fit(X[:N], y[:N], verbose=False)
    model = classifier(numbers).fit(X[:N], y[:N], verbose=False)
    assert stopping.monitor.history == numbers.monitor.history
    assert stopping.calibrator.classes_.tolist() == names.tolist()
    assert calibrator_of(model).classes_.tolist() == [0, 1, 2]


def test_categories_and_missing_values():
    X, y = table()
    frame = pd.DataFrame(X[:, :4], columns=list("abcd"))
    frame["e"] = pd.Categorical(np.where(X[:, 4] > 0, "yes", "no"))
    frame["a"] = frame["a"].where(frame["a"] > -1, -999.0)
    stopping = RefinementStopping(frame[N:], y[N:], missing=-999.0)
    model = classifier(stopping, missing=-999.0, enable_categorical=True)
    model.fit(frame[:N], y[:N], verbose=False)
    margins = model.predict(frame[N:], output_margin=True)
    assert stopping.best_score == pytest.approx(refinement(y[N:], margins), rel=1e-6)
    assert predict_proba(model, frame[N:]).shape == (N, 2)


def lettered():
    """Return rows with a letter that tells much of the label, and some with three of the letters only."""
    rng = np.random.default_rng(0)
    letters, noise = rng.choice(list("abcdef"), 600), rng.normal(size=(600, 6))
    y = (rng.random(600) < np.where(np.isin(letters, list("bdf")), 0.9, 0.2)).astype(int)
    frame = pd.DataFrame(noise).rename(columns=str)
    frame["letter"] = pd.Categorical(letters)
    few = frame[N:][np.isin(letters[N:], list("bcf"))].copy()
    fewer = few.assign(letter=few["letter"].cat.remove_unused_categories())
    return frame, y, few, fewer


@pytest.mark.parametrize("booster", ["gbtree", "dart"])
def test_categories_keep_their_codes(tmp_path, booster):
    frame, y, few, fewer = lettered()
    stopping = RefinementStopping(frame[N:], y[N:])
    model = classifier(stopping, enable_categorical=True, booster=booster)
    model.fit(frame[:N], y[:N], verbose=False)
    assert stopping.best_iteration < stopping.monitor.last_step
    assert stopping.best_score == pytest.approx(
        refinement(y[N:], model.predict(frame[N:], output_margin=True)), rel=1e-6
    )
    model.save_model(tmp_path / "model.json")
    loaded = xgb.XGBClassifier(enable_categorical=True)
    loaded.load_model(tmp_path / "model.json")
    for found in (model, loaded):
        assert np.array_equal(found.predict_proba(fewer), model.predict_proba(few))
        assert np.array_equal(predict_proba(found, fewer), predict_proba(model, few))
        margins = found.predict(fewer, output_margin=True)
        calibrated = calibrator_of(found).predict_proba_logits(margins)
        assert np.array_equal(calibrated, predict_proba(found, fewer))


def test_a_booster_with_categories_keeps_all_rounds():
    frame, y, few, fewer = lettered()
    dtrain = xgb.DMatrix(frame[:N], y[:N], enable_categorical=True)
    stopping = RefinementStopping(frame[N:], y[N:])
    model = train(BINARY, dtrain, callbacks=[stopping])
    best = slice(0, model.best_iteration + 1)
    few, fewer = (xgb.DMatrix(rows, enable_categorical=True) for rows in (few, fewer))
    assert model.best_iteration == stopping.best_iteration < 29
    assert model.num_boosted_rounds() == 30
    expected = model[best].predict(few)  # which has the codes of training
    assert np.array_equal(model.predict(fewer, iteration_range=(0, best.stop)), expected)
    assert np.array_equal(predict_proba(model, fewer), predict_proba(model, few))


def test_clones_train_alike():
    X, y = table()
    model = classifier(RefinementStopping(X[N:], y[N:])).fit(X[:N], y[:N], verbose=False)
    copy = clone(model).fit(X[:N], y[:N], verbose=False)
    assert np.array_equal(predict_proba(copy, X), predict_proba(model, X))


def test_refinement_error_is_a_metric_where_no_callback_can_be_passed():
    X, y = table(3)
    options = {"n_estimators": 30, "learning_rate": 0.5, "n_jobs": 1}
    model = xgb.XGBClassifier(
        eval_metric=rc.refinement_error, early_stopping_rounds=10, **options
    ).fit(X[:N], y[:N], eval_set=[(X[N:], y[N:])], verbose=False)
    stopping = RefinementStopping(X[N:], y[N:], rounds=10)
    other = xgb.XGBClassifier(callbacks=[stopping], **options).fit(X[:N], y[:N], verbose=False)
    assert model.best_iteration == other.best_iteration


# ---- what is written down --------------------------------------------------------------------------------


def test_the_log_goes_through_xgboost():
    dtrain, dval = matrices()
    lines, results = [], {}
    stopping = RefinementStopping(dval, data_name="held_out", also=["auroc"])
    printer = xgb.callback.EvaluationMonitor(logger=lines.append)
    train(
        BINARY,
        dtrain,
        3,
        evals=[(dtrain, "train"), (dval, "held_out")],
        evals_result=results,
        callbacks=[stopping, printer],
    )
    ours = ["calibration_loss", "log_loss", "beta", "auroc", "refinement_loss"]
    assert list(results) == ["train", "held_out"]
    assert list(results["held_out"]) == ["logloss", *ours]
    assert results["held_out"]["log_loss"] == pytest.approx(
        results["held_out"]["logloss"], rel=1e-5
    )
    for line, record in zip(lines, stopping.monitor.history, strict=True):
        assert f"held_out-refinement_loss:{record['refinement']:.5f}" in line


def test_early_stopping_of_xgboost_can_follow_the_logged_refinement():
    dtrain, dval = matrices()
    stopping = RefinementStopping(dval)
    train(BINARY, dtrain, callbacks=[stopping], early_stopping_rounds=4)
    assert len(stopping.monitor.history) == stopping.best_iteration + 4 + 1


@pytest.mark.parametrize("data_name", ["val", "watched"])
def test_early_stopping_of_xgboost_before_the_callback_goes_on_with_its_own_metric(data_name):
    dtrain, dval = matrices()
    evals = {"evals": [(dtrain, "train"), (dval, "watched")]}
    alone = train(BINARY, dtrain, early_stopping_rounds=4, **evals)
    stopping, log = RefinementStopping(dval, data_name=data_name), {}
    other = xgb.callback.EarlyStopping(rounds=4)
    model = train(BINARY, dtrain, callbacks=[other, stopping], evals_result=log, **evals)
    rounds = alone.num_boosted_rounds()
    assert other.best_scores["watched"]["logloss"][-1] == alone.best_score
    assert len(stopping.monitor.history) == rounds == alone.best_iteration + 4 + 1
    losses = [refinement(dval.get_label(), z) for z in staged(alone, dval)]
    assert model.best_iteration == stopping.best_iteration == np.argmin(losses)
    assert log[data_name]["refinement_loss"] == pytest.approx(losses[:-1], rel=1e-6)
    assert len(log["watched"]["logloss"]) == rounds


def test_a_round_at_which_another_callback_stops_is_looked_at():
    class Stop(xgb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            return epoch == 2

    dtrain, dval = matrices()
    stopping = RefinementStopping(dval)
    model = train(BINARY, dtrain, callbacks=[Stop(), stopping])
    assert model.best_iteration == stopping.best_iteration == 2
    assert predict_proba(model, dval).shape == (300, 2)


@pytest.mark.parametrize("calibrator", ["temperature", "isotonic"])
@pytest.mark.parametrize("suffix", ["json", "ubj"])
def test_the_calibrator_survives_saving(tmp_path, calibrator, suffix):
    dtrain, dval = matrices()
    stopping = RefinementStopping(dval, calibrator=calibrator)
    model = train(BINARY, dtrain, callbacks=[stopping])
    model.save_model(tmp_path / f"model.{suffix}")
    loaded = xgb.Booster(model_file=tmp_path / f"model.{suffix}")
    assert calibrator_of(loaded).to_dict() == stopping.calibrator.to_dict()
    assert np.array_equal(predict_proba(loaded, dval), predict_proba(model, dval))
    json.dumps(calibrator_of(loaded).to_dict())


def test_a_foreign_calibrator_stays_with_the_callback():
    dtrain, dval = matrices()
    stopping = RefinementStopping(dval, calibrator=LogisticRegression())
    model = train(BINARY, dtrain, 5, callbacks=[stopping])
    assert isinstance(stopping.calibrator, LogisticRegression)
    with pytest.raises(ValueError, match="not stored: use RefinementStopping.calibrator"):
        calibrator_of(model)


# ---- wrong use -------------------------------------------------------------------------------------------


def test_validation_data_without_labels():
    X, _ = table()
    with pytest.raises(TypeError, match="y_val is missing: pass RefinementStopping"):
        RefinementStopping(X)
    with pytest.raises(ValueError, match="X_val is a DMatrix without labels"):
        RefinementStopping(xgb.DMatrix(X))


def test_unknown_metric():
    with pytest.raises(ValueError, match="metric is 'refinment'.*Did you mean 'refinement'"):
        RefinementStopping(matrices()[1], metric="refinment")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"objective": "count:poisson"},
            "objective is 'count:poisson'.*must be one of 'binary:log",
        ),
        ({}, "objective is 'reg:squarederror', XGBoost's default, which does not give log-odds"),
        (BINARY | {"booster": "dart"}, "save_best is False, but with booster='dart'"),
    ],
)
def test_models_that_cannot_be_followed(params, message):
    dtrain, dval = matrices()
    with pytest.raises(ValueError, match=message):
        train(params, dtrain, callbacks=[RefinementStopping(dval, save_best=False)])


def test_patience_under_another_name():
    with pytest.raises(TypeError, match="patience is called rounds here: pass rounds=50"):
        RefinementStopping(matrices()[1], patience=50)
    with pytest.raises(ValueError, match="rounds is 0: it must be a whole number of at least 1"):
        RefinementStopping(matrices()[1], rounds=0)


def test_several_targets():
    X, y = table()
    both = np.stack([y, 1 - y], axis=1)
    with pytest.raises(
        ValueError, match="2 targets with objective 'binary:logistic'.*one model per"
    ):
        train(BINARY, xgb.DMatrix(X, both), callbacks=[RefinementStopping(X, both)])


def test_cross_validation_is_refused():
    dtrain, dval = matrices()
    with pytest.raises(TypeError, match="call xgb.train for each fold"):
        xgb.cv(BINARY, dtrain, 3, callbacks=[RefinementStopping(dval)])


def test_a_model_cut_by_another_callback():
    dtrain, dval = matrices()
    stopping = RefinementStopping(dval)
    other = xgb.callback.EarlyStopping(rounds=3, data_name="train", save_best=True, maximize=True)
    with pytest.raises(ValueError, match="another callback has cut the model to 1 rounds"):
        train(BINARY, dtrain, evals=[(dtrain, "train")], callbacks=[other, stopping])


def test_labels_that_the_model_does_not_know():
    X, y = table()
    with pytest.raises(ValueError, match=r"y_val\[0\] is 5, but logits has 2 columns"):
        train(BINARY, matrices()[0], callbacks=[RefinementStopping(X, y * 0 + 5)])


def test_margins_that_are_not_finite_stop_the_training():
    dtrain, dval = matrices()
    stopping = RefinementStopping(dval)
    blow_up = xgb.callback.LearningRateScheduler(lambda epoch: 0.5 if epoch < 3 else np.nan)
    with pytest.warns(RuntimeWarning, match="not finite: training has diverged"):
        model = train(BINARY, dtrain, callbacks=[blow_up, stopping])
    assert stopping.monitor.diverged
    assert model.num_boosted_rounds() == stopping.best_iteration + 1 < 6


def test_a_model_without_calibrator():
    model = train(BINARY, matrices()[0], 2)
    with pytest.raises(ValueError, match="holds no calibrator: train it with callbacks"):
        calibrator_of(model)
