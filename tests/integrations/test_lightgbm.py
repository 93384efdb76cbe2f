"""Trains real boosters; the best round is checked against staged predictions and a search by SciPy."""

import copy
import json
import pickle
from functools import partial

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

import refinecal as rc
from refinecal.integrations.lightgbm import RefinementStopping, calibrator_of, predict_proba

N = 300  # rows to train on
BINARY = {
    "objective": "binary",
    "num_threads": 1,
    "seed": 0,
    "learning_rate": 0.4,
    "num_leaves": 8,
    "min_data_in_leaf": 5,
    "deterministic": True,
    "verbose": -1,
}
THREE = BINARY | {"objective": "multiclass", "num_class": 3}


def table(k=2):
    return make_classification(
        600, 8, n_informative=4, n_classes=k, flip_y=0.2, class_sep=0.7, random_state=3
    )


def train(params, rounds=30, stopping=None, weight=None, **options):
    """Train on the first rows of the table, with the others as validation data."""
    X, y = table(params.get("num_class", 2))
    data = lgb.Dataset(X[:N], y[:N], params=params, free_raw_data=False)
    valid = data.create_valid(X[N:], y[N:], weight=None if weight is None else weight[N:])
    options = {"valid_sets": [valid]} | options
    options["valid_sets"] = [data if one == "train" else one for one in options["valid_sets"]]
    callbacks = [*options.pop("callbacks", ()), *([] if stopping is None else [stopping])]
    return lgb.train(params, data, rounds, callbacks=callbacks, **options)


def validation(params):
    X, y = table(params.get("num_class", 2))
    return X[N:], y[N:]


def refinement(labels, margins, weights=None):
    """Return the log loss after the best temperature, found by a search that shares no code with ours."""
    z = np.asarray(margins, dtype=np.float64)
    z = np.stack([np.zeros(len(z)), z], axis=1) if z.ndim == 1 else z
    rows = np.arange(len(z)), np.asarray(labels, dtype=int)

    def loss(log_beta):
        return -np.average(log_softmax(np.exp(log_beta) * z, axis=1)[rows], weights=weights)

    return minimize_scalar(loss, bounds=(-10, 10), method="bounded", options={"xatol": 1e-9}).fun


def staged_refinement(params, rounds=30, weights=None, **options):
    """Return the refinement after each round of a training without the callback."""
    model, (X, y) = train(params, rounds, **options), validation(params)
    stages = [model.predict(X, raw_score=True, num_iteration=r + 1) for r in range(rounds)]
    return [refinement(y, margins, weights) for margins in stages]


# ---- the best round --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params", [BINARY, BINARY | {"objective": "xentropy"}, BINARY | {"sigmoid": 0.5}, THREE]
)
def test_the_best_round_is_the_one_with_the_smallest_refinement(params):
    stopping = RefinementStopping()
    model, losses = train(params, stopping=stopping), staged_refinement(params)
    assert 0 < np.argmin(losses) < 29
    assert stopping.best_iteration == model.best_iteration == np.argmin(losses) + 1
    assert stopping.best_score == pytest.approx(min(losses), rel=1e-7)  # float32 log-odds
    assert model.best_score["valid_0"]["refinement_loss"] == stopping.best_score
    assert [r["refinement"] for r in stopping.monitor.history] == pytest.approx(losses, rel=1e-6)


@pytest.mark.parametrize(
    "extra",
    [
        {"bagging_fraction": 0.8, "bagging_freq": 1},
        {"boosting": "dart", "drop_rate": 0.5},
        {"boosting": "rf", "bagging_fraction": 0.8, "bagging_freq": 1},
    ],
)
@pytest.mark.parametrize("patience", [5, None])
def test_replay_without_the_callback_gives_the_same_model(extra, patience):
    stopping, (X, y) = RefinementStopping(patience), validation(THREE)
    model = train(THREE | extra, stopping=stopping)
    assert stopping.best_iteration <= stopping.monitor.last_step  # there is something to go back to
    plain = train(THREE | extra, stopping.best_iteration)
    assert model.num_trees() == plain.num_trees() == 3 * stopping.best_iteration
    assert np.array_equal(model.predict(X), plain.predict(X))
    margins = model.predict(X, raw_score=True)
    assert stopping.best_score == pytest.approx(refinement(y, margins), rel=1e-6)


def test_boosting_stops_when_patience_has_run_out():
    losses = staged_refinement(BINARY)
    stopping = RefinementStopping(3)
    model = train(BINARY, stopping=stopping, keep_training_booster=True)
    waits = [step - int(np.argmin(losses[: step + 1])) for step in range(30)]
    assert model.current_iteration() == waits.index(3) + 1 < 30
    assert model.best_iteration == stopping.best_iteration == waits.index(3) - 3 + 1


def test_the_last_round_can_be_the_best():
    rounds = int(np.argmin(staged_refinement(THREE))) + 1
    results, stopping = {}, RefinementStopping()
    model = train(THREE, rounds, stopping, callbacks=[lgb.record_evaluation(results)])
    assert model.best_iteration == rounds == len(results["valid_0"]["refinement_loss"])
    assert model.best_score["valid_0"]["refinement_loss"] == stopping.best_score


def test_a_small_improvement_is_the_best_but_does_not_renew_patience():
    losses = staged_refinement(BINARY)
    stopping = RefinementStopping(2, min_delta=10.0)
    model = train(BINARY, stopping=stopping)
    assert losses[0] > losses[1] > losses[2]
    assert [record["step"] for record in stopping.monitor.history] == [0, 1, 2]
    assert model.best_iteration == 3


def test_weights_count_rows():
    weight = np.random.default_rng(0).integers(0, 4, 600).astype(float)
    stopping = RefinementStopping()
    model = train(BINARY, stopping=stopping, weight=weight)
    losses = staged_refinement(BINARY, weights=weight[N:])
    assert model.best_iteration == np.argmin(losses) + 1
    assert stopping.best_score == pytest.approx(min(losses), rel=1e-7)  # float32 log-odds


def test_an_objective_of_ones_own_gives_margins():
    def log_loss(margins, data):
        probs = 1 / (1 + np.exp(-margins))
        return probs - data.get_label(), probs * (1 - probs)

    params, stopping = BINARY | {"objective": log_loss}, RefinementStopping()
    model, losses = train(params, stopping=stopping), staged_refinement(params)
    X, _ = validation(params)
    assert model.best_iteration == np.argmin(losses) + 1
    calibrated = stopping.calibrator.predict_proba_logits(model.predict(X, raw_score=True))
    assert np.array_equal(predict_proba(model, X), calibrated)


@pytest.mark.parametrize("params", [BINARY, THREE])
def test_margins_too_large_for_a_probability_are_finite(params):
    X, y = validation(params)
    k = params.get("num_class", 2)
    sure = 800.0 * np.eye(k)[y]
    wrong = np.vstack([800.0 * np.eye(k)[(y[:1] + 1) % k], sure[1:]])  # of one row
    scores = [z[:, 1] - z[:, 0] if k == 2 else z for z in (sure, wrong)]
    data = lgb.Dataset(X, y, init_score=scores[0])
    valid = data.create_valid(X, y, init_score=scores[1])
    stopping = RefinementStopping()
    lgb.train(params, data, 3, valid_sets=[valid], callbacks=[stopping])
    assert stopping.best_score == pytest.approx(refinement(y, wrong / 800), rel=1e-6)


def test_any_metric_decides():
    by_loss = RefinementStopping(metric="log_loss", also=["auroc"])
    results = {}
    train(BINARY, callbacks=[lgb.record_evaluation(results)])
    model = train(BINARY, stopping=by_loss)
    assert model.best_iteration == np.argmin(results["valid_0"]["binary_logloss"]) + 1


# ---- which data ------------------------------------------------------------------------------------------


def test_of_several_validation_sets_one_is_named_and_the_training_set_ignored():
    X, y = validation(BINARY)
    one = RefinementStopping()
    model = train(BINARY, stopping=one)
    named = RefinementStopping(valid_name="held out")
    sets = {"valid_sets": ["train", lgb.Dataset(X[:50], y[:50]), lgb.Dataset(X, y)]}
    names = {"valid_names": ["train", "other", "held out"]}
    other = train(BINARY, stopping=named, **sets, **names)
    assert other.best_iteration == model.best_iteration
    assert named.monitor.history == one.monitor.history
    assert other.best_score["held out"]["refinement_loss"] == one.best_score


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            None,
            "sets, 'valid_0', 'valid_1': name the one to follow, as in valid_name='valid_0'",
        ),
        ("val", "valid_name is 'val': it must be one of 'valid_0', 'valid_1'"),
    ],
)
def test_several_validation_sets_without_the_right_name(name, message):
    sets = [lgb.Dataset(*validation(BINARY)) for _ in range(2)]
    with pytest.raises(ValueError, match=message):
        train(BINARY, stopping=RefinementStopping(valid_name=name), valid_sets=sets)


@pytest.mark.parametrize("sets", [[], ["train"]])
def test_no_validation_data(sets):
    with pytest.raises(ValueError, match=r"no validation data: pass valid_sets=.* eval_X=X_val"):
        train(BINARY, stopping=RefinementStopping(), valid_sets=sets)


# ---- training again, and further -------------------------------------------------------------------------


def test_a_callback_used_twice_starts_afresh():
    stopping = RefinementStopping(4)
    first = train(BINARY, stopping=stopping)
    history = stopping.monitor.history
    second = train(BINARY, stopping=stopping)
    assert stopping.monitor.history == history
    assert second.model_to_string() == first.model_to_string()


@pytest.mark.parametrize(
    ("first", "patience", "keep"),  # keep all rounds, or those up to the best
    [(3, 6, True), (3, 6, False), (20, None, True), (20, None, False), (20, 6, False)],
)
def test_training_in_two_parts_equals_training_in_one(first, patience, keep):
    whole, parts = RefinementStopping(patience), RefinementStopping(patience)
    X, _ = validation(THREE)
    model = train(THREE, stopping=whole)
    start = train(THREE, first, parts, keep_training_booster=keep)
    resumed = train(THREE, 30 - start.current_iteration(), parts, init_model=start)
    steps = [[record["step"] for record in way.monitor.history] for way in (whole, parts)]
    values = [[record["refinement"] for record in way.monitor.history] for way in (whole, parts)]
    assert steps[0] == steps[1]
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    assert resumed.best_iteration == model.best_iteration
    assert predict_proba(resumed, X) == pytest.approx(predict_proba(model, X), rel=1e-6)


def test_a_model_of_another_training_starts_afresh():
    stopping = RefinementStopping()
    train(THREE, stopping=stopping)
    train(THREE, 3, stopping, init_model=train(THREE, 12))
    assert [record["step"] for record in stopping.monitor.history] == [12, 13, 14]


def test_a_new_callback_counts_on_from_the_model():
    stopping = RefinementStopping()
    train(BINARY, 4, stopping, init_model=train(BINARY, 5))
    assert [record["step"] for record in stopping.monitor.history] == [5, 6, 7, 8]


# ---- scikit-learn's way ----------------------------------------------------------------------------------


def fit(stopping, X, y, **options):
    model = lgb.LGBMClassifier(n_estimators=30, learning_rate=0.4, n_jobs=1, verbose=-1)
    return model.fit(X[:N], y[:N], callbacks=[stopping], **options)


# LightGBM 4.7.0 wants eval_X and eval_y, but numbers the classes of eval_set only.
@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")
@pytest.mark.parametrize("k", [2, 3])
def test_classifier_with_named_labels(k):
    X, y = table(k)
    names = np.array(["low", "high", "mid"])[:k]
    stopping = RefinementStopping(10)
    model = fit(stopping, X, names[y], eval_set=[(X[N:], names[y[N:]])])
    margins, labels = (
        model.predict(X[N:], raw_score=True),
        model.classes_.searchsorted(names[y[N:]]),
    )
    assert model.best_iteration_ == stopping.best_iteration
    assert stopping.best_score == pytest.approx(refinement(labels, margins), rel=1e-6)
    logs = model.evals_result_["valid_0"]["refinement_loss"]  # all but the round that stops
    assert logs == [r["refinement"] for r in stopping.monitor.history][: len(logs)]
    assert len(logs) == len(stopping.monitor.history) - 1
    calibrated = stopping.calibrator.predict_proba(model.predict_proba(X[N:]))
    assert predict_proba(model, X[N:]) == pytest.approx(calibrated, rel=1e-6)


def test_categories_and_weights():
    X, y = table()
    frame = pd.DataFrame(X[:, :4], columns=list("abcd"))
    frame["e"] = pd.Categorical(np.where(X[:, 4] > 0, "yes", "no"))
    weight = np.random.default_rng(0).integers(0, 4, 600).astype(float)
    stopping = RefinementStopping()
    held_out = {"eval_X": frame[N:], "eval_y": y[N:], "eval_sample_weight": [weight[N:]]}
    model = fit(stopping, frame, y, **held_out)
    margins = model.predict(frame[N:], raw_score=True)
    assert stopping.best_score == pytest.approx(refinement(y[N:], margins, weight[N:]), rel=1e-6)
    assert predict_proba(model, frame[N:]).shape == (N, 2)


# ---- what is written down --------------------------------------------------------------------------------


def test_the_log_goes_through_lightgbm(capsys):
    results, seen = {}, []
    params = BINARY | {"verbose": 1}
    stopping = RefinementStopping(also=["auroc"])
    loggers = [
        lambda env: seen.append({result[1]: result[3] for result in env.evaluation_result_list}),
        lgb.log_evaluation(),
        lgb.record_evaluation(results),
    ]
    train(params, 3, stopping, callbacks=loggers)
    names = ["binary_logloss", "refinement_loss", "calibration_loss", "log_loss", "beta", "auroc"]
    assert list(results["valid_0"]) == names
    assert seen == [{name: name == "auroc" for name in names}] * 3  # whether greater is better
    assert results["valid_0"]["log_loss"] == pytest.approx(results["valid_0"]["binary_logloss"])
    value = results["valid_0"]["refinement_loss"][-1]
    assert f"valid_0's refinement_loss: {value:g}" in capsys.readouterr().out


@pytest.mark.parametrize("calibrator", ["temperature", "isotonic"])
def test_the_calibrator_goes_with_the_model_and_beside_its_file(tmp_path, calibrator):
    stopping, (X, _) = RefinementStopping(calibrator=calibrator), validation(BINARY)
    model = train(BINARY, stopping=stopping)
    pickled = pickle.loads(pickle.dumps(model))
    assert calibrator_of(pickled).to_dict() == stopping.calibrator.to_dict()
    assert np.array_equal(predict_proba(pickled, X), predict_proba(model, X))

    model.save_model(tmp_path / "model.txt")
    (tmp_path / "model.json").write_text(json.dumps(stopping.calibrator.to_dict()))
    loaded = lgb.Booster(model_file=tmp_path / "model.txt")
    beside = rc.calibrators.from_dict(json.loads((tmp_path / "model.json").read_text()))
    calibrated = beside.predict_proba(loaded.predict(X))
    assert calibrated == pytest.approx(predict_proba(model, X), rel=1e-6)
    with pytest.raises(ValueError, match="holds no calibrator.*LightGBM's files"):
        calibrator_of(loaded)


@pytest.mark.parametrize("keep", [False, True])
def test_copies_keep_the_calibrator_and_the_best_round(keep):
    stopping, (X, _) = RefinementStopping(5), validation(BINARY)
    model = train(BINARY, stopping=stopping, keep_training_booster=keep)
    assert isinstance(model, lgb.Booster)
    for copied in (copy.copy(model), copy.deepcopy(model), copy.deepcopy(copy.deepcopy(model))):
        assert calibrator_of(copied).to_dict() == stopping.calibrator.to_dict()
        assert copied.best_iteration == model.best_iteration
        assert np.array_equal(predict_proba(copied, X), predict_proba(model, X))


def test_copies_of_a_classifier_keep_the_calibrator():
    X, y = table()
    model = fit(RefinementStopping(5), X, y, eval_X=X[N:], eval_y=y[N:])
    copied = copy.deepcopy(model)
    assert np.array_equal(predict_proba(copied, X), predict_proba(model, X))


def test_labels_of_minus_1_and_1_need_classes():
    X, y = table()
    data = lgb.Dataset(X[:N], 2 * y[:N] - 1, params=BINARY)
    valid = data.create_valid(X[N:], 2 * y[N:] - 1)
    stopping = RefinementStopping(classes=[-1, 1])
    lgb.train(BINARY, data, 3, valid_sets=[valid], callbacks=[stopping])
    numbered = RefinementStopping()
    train(BINARY, 3, numbered)
    assert stopping.best_score == numbered.best_score


def test_a_foreign_calibrator_stays_with_the_callback():
    stopping = RefinementStopping(calibrator=LogisticRegression())
    model = train(BINARY, 5, stopping)
    assert isinstance(stopping.calibrator, LogisticRegression)
    with pytest.raises(
        ValueError, match="custom calibrators are not stored: use RefinementStopping.calibrator"
    ):
        calibrator_of(model)


# ---- wrong use -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (BINARY | {"objective": "poisson"}, "objective is 'poisson'.*must be one of 'binary'"),
        (THREE | {"objective": "multiclassova"}, "objective is 'multiclassova'.*'multiclass'"),
        (BINARY | {"early_stopping_round": 5}, "early_stopping_round is 5.*omit it"),
    ],
)
def test_models_that_cannot_be_followed(params, message):
    with pytest.raises(ValueError, match=message):
        train(params, stopping=RefinementStopping())


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("way", ["train", "fit"])
def test_early_stopping_of_lightgbm_must_be_left_out(way, order):
    X, y = table()
    given = {"callbacks": [RefinementStopping(), lgb.early_stopping(1, verbose=False)][::order]}
    model = lgb.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1)
    call = partial(model.fit, X, y, eval_X=X, eval_y=y) if way == "fit" else partial(train, BINARY)
    with pytest.raises(ValueError, match="callbacks holds lgb.early_stopping.*: leave out lgb.ear"):
        call(**given)


def test_early_stopping_of_lightgbm_that_is_switched_off_does_no_harm():
    stopping = RefinementStopping()
    model = train(BINARY, 3, stopping, callbacks=[lgb.early_stopping(0, verbose=False)])
    assert calibrator_of(model).to_dict() == stopping.calibrator.to_dict()


def test_unknown_metric():
    with pytest.raises(ValueError, match="metric is 'refinment'.*Did you mean 'refinement'"):
        RefinementStopping(metric="refinment")


def test_patience_under_another_name():
    with pytest.raises(TypeError, match="patience is called stopping_rounds here: pass stopping_r"):
        RefinementStopping(patience=50)
    with pytest.raises(ValueError, match="stopping_rounds is 0: it must be a whole number"):
        RefinementStopping(0)


def test_cross_validation_is_refused():
    with pytest.raises(TypeError, match="call lgb.train for each fold"):
        lgb.cv(BINARY, lgb.Dataset(*table()), 3, callbacks=[RefinementStopping()])


def test_labels_that_lightgbm_has_not_numbered():
    X, y = table()
    with pytest.raises(ValueError, match=r"y_val\[\d+\] is 2, but logits has 2 columns"):
        fit(RefinementStopping(), X, y + 1, eval_X=X[N:], eval_y=y[N:] + 1)


def test_a_metric_that_is_never_a_number():
    nothing = rc.metrics.Metric(lambda y, probs: np.nan, "nothing")
    stopping = RefinementStopping(metric=nothing)
    model = train(BINARY, 5, stopping)
    assert model.num_trees() == 5
    assert stopping.best_iteration is stopping.best_score is stopping.calibrator is None
