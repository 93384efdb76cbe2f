"""scikit-learn's own models: stopped at the right step, and the model of that step is what is returned."""

import pickle
from copy import deepcopy
from itertools import islice

import numpy as np
import optuna
import pandas as pd
import pytest
from oracle import best_step, refinement
from retraining import refit
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    RandomizedSearchCV,
    StratifiedKFold,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from refinecal import RefinementMonitor, RefineThenCalibrateClassifier, refinement_scorer
from refinecal.integrations.optuna import TrialMonitor
from refinecal.integrations.sklearn import RefinementStopping, ensemble_of, train
from refinecal.training.trainer import is_iterative


def digits():
    X, y = load_digits(return_X_y=True)
    return X[:600] / 16, y[:600], X[600:1000] / 16, y[600:1000]


def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:300], y[:300], X[300:], y[300:]


DATA = pytest.mark.parametrize("data", [cancer(), digits()], ids=["two classes", "ten classes"])
STAGED = pytest.mark.parametrize(
    "model",
    [
        GradientBoostingClassifier(max_depth=2, learning_rate=0.4, subsample=0.7, random_state=0),
        HistGradientBoostingClassifier(max_leaf_nodes=6, learning_rate=0.4, random_state=0),
    ],
    ids=["GradientBoosting", "HistGradientBoosting"],
)


def fit(model, data, patience=5, max_steps=40, **options):
    monitor = RefinementMonitor(patience=patience)
    return train(clone(model), *data, monitor=monitor, max_steps=max_steps, **options), monitor


# ---- models made of stages ---------------------------------------------------------------------------------


@DATA
@STAGED
@pytest.mark.sweep(3)
def test_boosting_is_cut_at_the_brute_force_minimum(model, data):
    fitted, monitor = fit(model, data, patience=None)
    X, y, X_val, y_val = data
    length = "n_estimators" if hasattr(fitted, "n_estimators") else "max_iter"
    whole = clone(model).set_params(**{length: 40})
    whole.set_params(**({"early_stopping": False} if length == "max_iter" else {}))
    stages = list(whole.fit(X, y).staged_decision_function(X_val))
    step, value = best_step(y_val, stages)
    assert monitor.best_step == step + 1
    assert monitor.best_value == pytest.approx(value, rel=1e-6)
    assert len(monitor.history) == 40


@DATA
@STAGED
def test_boosting_replayed_without_us_is_the_same_model(model, data):
    fitted, monitor = fit(model, data)
    again = clone(fitted)  # with n_estimators or max_iter set to the best step
    again.fit(data[0], data[1])
    assert np.array_equal(again.predict_proba(data[2]), fitted.predict_proba(data[2]))
    assert monitor.best_step in (
        getattr(fitted, "n_estimators_", None),
        getattr(fitted, "n_iter_", None),
    )


@STAGED
def test_boosting_stops_when_patience_is_out(model):
    _, monitor = fit(model, digits(), patience=3, max_steps=500)
    assert monitor.last_step == monitor.best_step + 3 < 500


def test_growing_in_runs_is_the_same_as_in_one_go():
    """More than 64 rounds, so that training is continued at least once."""
    model = HistGradientBoostingClassifier(max_leaf_nodes=4, learning_rate=0.02, random_state=0)
    grown, monitor = fit(model, cancer(), patience=200, max_steps=150)
    whole, reference = fit(model, cancer(), patience=None, max_steps=150)
    assert monitor.history == reference.history
    assert np.array_equal(grown.predict_proba(cancer()[2]), whole.predict_proba(cancer()[2]))
    assert grown.get_params() == whole.get_params()


def test_boosting_with_its_own_early_stopping_trains_long_all_the_same():
    model = GradientBoostingClassifier(n_iter_no_change=1, random_state=0)
    _, monitor = fit(model, cancer(), patience=None)
    assert monitor.last_step == 40


def test_votes_are_not_logits():
    """The softmax of what AdaBoost decides by is not its probabilities, so these are taken."""
    fitted, monitor = fit(AdaBoostClassifier(random_state=0), digits(), patience=None, max_steps=15)
    whole = AdaBoostClassifier(n_estimators=15, random_state=0).fit(*digits()[:2])
    stages = [np.log(probs) for probs in whole.staged_predict_proba(digits()[2])]
    step, value = best_step(digits()[3], stages)
    assert (monitor.best_step, monitor.best_value) == (step + 1, pytest.approx(value, rel=1e-6))
    expected = next(islice(whole.staged_predict_proba(digits()[2]), step, None))
    assert fitted.predict_proba(digits()[2]) == pytest.approx(expected, rel=1e-9)


# ---- models that pass over the data ------------------------------------------------------------------------

SGD = SGDClassifier(loss="log_loss", alpha=1e-3, random_state=0)
MLP = MLPClassifier((16,), learning_rate_init=0.1, random_state=0)


@pytest.mark.parametrize("model", [SGD, MLP], ids=["SGD", "MLP"])
def test_passes_replayed_without_us_give_the_same_model(model):
    X, y, X_val, y_val = digits()
    fitted, monitor = fit(model, digits(), patience=5, max_steps=30)
    again = clone(model)
    stages = []
    for _ in range(monitor.last_step):
        again.partial_fit(X, y, classes=np.arange(10))
        stages.append(np.log(again.predict_proba(X_val)))
        if len(stages) == monitor.best_step:
            expected = stages[-1]
    assert np.array_equal(np.log(fitted.predict_proba(X_val)), expected)
    assert monitor.best_step == best_step(y_val, stages)[0] + 1
    assert monitor.last_step == min(monitor.best_step + 5, 30)


def test_one_against_rest_keeps_its_margins():
    """Far from the boundary its probabilities are 0, but the logarithms are known from the margins."""
    model = SGDClassifier(loss="log_loss", random_state=0)
    X, y, X_val, y_val = digits()
    _, monitor = fit(model, (100 * X, y, 100 * X_val, y_val), max_steps=3)
    assert (model.partial_fit(100 * X, y, range(10)).predict_proba(100 * X_val) == 0).any()
    assert np.isfinite([record["risk"] for record in monitor.history]).all()


def test_balanced_class_weights_are_those_of_the_training_rows():
    X, y, X_val, y_val = cancer()
    model = make_pipeline(StandardScaler(), clone(SGD).set_params(class_weight="balanced"))
    fitted, monitor = fit(model, (X, y, X_val, y_val), max_steps=5)
    counts = np.bincount(y)
    weights = dict(enumerate((len(y) / 2 / counts).tolist()))
    again = clone(SGD).set_params(class_weight=weights)
    for _ in range(monitor.best_step):
        again.partial_fit(StandardScaler().fit_transform(X), y, classes=[0, 1])
    assert np.array_equal(fitted[-1].coef_, again.coef_)


# ---- anything else -----------------------------------------------------------------------------------------


def test_a_model_without_steps_is_fitted_once():
    fitted, monitor = fit(LogisticRegression(max_iter=5000), cancer())
    assert (monitor.best_step, len(monitor.history)) == (1, 1)
    logits = fitted.decision_function(cancer()[2])
    assert monitor.best_value == pytest.approx(refinement(cancer()[3], logits), rel=1e-8)


def test_forests_that_vote_none_are_not_sure():
    fitted, monitor = fit(RandomForestClassifier(10, random_state=0), digits())
    X_val, y_val = digits()[2:]
    probs = fitted.predict_proba(X_val)
    assert (probs[np.arange(len(y_val)), y_val] == 0).any()
    n = len(y_val)
    smoothed = np.log(n / (n + 1) * probs + 1 / (n + 1) / 10)
    assert monitor.best_value == pytest.approx(refinement(y_val, smoothed), rel=1e-8)


def test_a_pipeline_is_scaled_by_its_training_rows():
    fitted, monitor = fit(make_pipeline(StandardScaler(), MLP), cancer(), max_steps=10)
    X, y, X_val, _ = cancer()
    scaler = StandardScaler().fit(X)
    again = clone(MLP)
    for _ in range(monitor.best_step):
        again.partial_fit(scaler.transform(X), y, classes=[0, 1])
    assert np.array_equal(fitted.predict_proba(X_val), again.predict_proba(scaler.transform(X_val)))


@pytest.mark.parametrize(
    "model", [SGD, GradientBoostingClassifier(random_state=0), LogisticRegression(max_iter=5000)]
)
def test_weights_reach_training_and_validation(model):
    X, y, X_val, y_val = cancer()
    rng = np.random.default_rng(0)
    weights, weights_val = rng.uniform(0.1, 3, len(y)), rng.integers(0, 3, len(y_val))
    options = {"sample_weight": weights, "sample_weight_val": weights_val}
    X, X_val = StandardScaler().fit_transform(X), StandardScaler().fit_transform(X_val)
    fitted, monitor = fit(model, (X, y, X_val, y_val), patience=None, max_steps=3, **options)
    again = refit(clone(model), X, y, monitor.best_step, weights)
    assert np.array_equal(again.predict_proba(X_val), fitted.predict_proba(X_val))
    rows = np.repeat(np.arange(len(y_val)), weights_val)
    logits = fitted.decision_function(X_val)[rows]
    assert monitor.best_value == pytest.approx(refinement(y_val[rows], logits), rel=1e-7)


def test_string_labels():
    X, y, X_val, y_val = cancer()
    names = np.array(["benign", "malign"])
    _, monitor = fit(SGD, (X, names[1 - y], X_val, names[1 - y_val]), max_steps=3)
    _, numbers = fit(SGD, (X, 1 - y, X_val, 1 - y_val), max_steps=3)
    assert monitor.history == numbers.history


def test_string_labels_of_pandas():
    X, y, X_val, y_val = cancer()
    names = np.array(["benign", "malign"], dtype=object)
    data = (X, pd.Series(names[y]), X_val, pd.Series(names[y_val]))
    fitted, monitor = fit(SGD, data, max_steps=3)
    assert fitted.classes_.tolist() == monitor.calibrator.classes_.tolist() == names.tolist()
    strange = pd.Series(np.where(y_val == 0, "benign", "unknown").astype(object))
    with pytest.raises(ValueError, match="y_val holds 'unknown', which y does not"):
        fit(SGD, (*data[:3], strange))


def test_naive_bayes_counts_its_rows_once():
    fitted, monitor = fit(GaussianNB(), cancer())
    assert not is_iterative(GaussianNB())
    assert (monitor.last_step, fitted.class_count_.sum()) == (1, 300)


def test_a_pipeline_in_a_pipeline_is_trained_step_by_step():
    outer = make_pipeline(StandardScaler(), make_pipeline("passthrough", SGD))
    assert is_iterative(outer)
    fitted, monitor = fit(outer, cancer(), max_steps=10)
    flat, reference = fit(make_pipeline(StandardScaler(), SGD), cancer(), max_steps=10)
    assert monitor.history == reference.history
    assert np.array_equal(fitted[-1][-1].coef_, flat[-1].coef_)
    again = refit(outer, *cancer()[:2], monitor.best_step, like=fitted)
    assert np.array_equal(again[-1][-1].coef_, flat[-1].coef_)


def test_a_pipeline_with_a_memory(tmp_path):
    line = make_pipeline(StandardScaler(), SGD, memory=str(tmp_path))
    fitted, _ = fit(line, cancer(), max_steps=3)
    plain, _ = fit(make_pipeline(StandardScaler(), SGD), cancer(), max_steps=3)
    X_val = cancer()[2]
    assert np.array_equal(fitted.predict_proba(X_val), plain.predict_proba(X_val))


def test_weights_reach_the_models_inside():
    X, y, X_val, y_val = cancer()
    weights = np.where(y == 1, 5.5, 0.25)
    both = VotingClassifier([("nb", GaussianNB()), ("nb2", GaussianNB())], voting="soft")
    fitted, _ = fit(both, (X, y, X_val, y_val), sample_weight=weights)
    alone = GaussianNB().fit(X, y, weights)
    assert np.array_equal(fitted.predict_proba(X_val), alone.predict_proba(X_val))


# ---- models that are fitted already ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        SGD,
        GradientBoostingClassifier(n_estimators=5, random_state=0),
        make_pipeline(StandardScaler(), SGD),
    ],
    ids=["SGD", "GradientBoosting", "pipeline"],
)
def test_a_frozen_model_is_looked_at_once_and_never_trained(model):
    X, y, X_val, y_val = cancer()
    model = clone(model).fit(X[:100], y[:100])
    before = model.decision_function(X_val)
    frozen = FrozenEstimator(model)
    monitor = RefinementMonitor(patience=3)
    fitted = train(frozen, *cancer(), monitor=monitor, max_steps=20)
    assert fitted is frozen
    assert not is_iterative(frozen)
    assert monitor.last_step == 1
    assert monitor.best_value == pytest.approx(refinement(y_val, before), rel=1e-8)
    assert refit(frozen, X, y, 7) is frozen
    assert np.array_equal(model.decision_function(X_val), before)


def test_a_frozen_model_may_know_more_labels_than_there_are():
    X, y, X_val, y_val = digits()
    frozen = FrozenEstimator(clone(SGD).fit(X, y))
    monitor = RefinementMonitor()
    train(frozen, X[y < 5], y[y < 5], X_val, y_val, monitor=monitor)
    assert monitor.calibrator.classes_.tolist() == list(range(10))


@pytest.mark.parametrize(
    "model",
    [
        SGD,
        MLP,
        make_pipeline(StandardScaler(), SGD),
        GradientBoostingClassifier(max_depth=2, n_estimators=9, warm_start=True, random_state=0),
        HistGradientBoostingClassifier(max_iter=9, warm_start=True, random_state=0),
        LogisticRegression(max_iter=5000),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.sweep(4)
def test_the_estimator_given_is_left_alone_and_what_it_learned_plays_no_part(model):
    X, y, X_val, _ = cancer()
    used = clone(model).fit(X[:100], 1 - y[:100])
    params, before = used.get_params(), used.predict_proba(X_val)
    monitor = RefinementMonitor(patience=3)
    fitted = train(used, *cancer(), monitor=monitor, max_steps=6)
    expected, reference = fit(model, cancer(), patience=3, max_steps=6)
    assert monitor.history == reference.history
    assert np.array_equal(fitted.predict_proba(X_val), expected.predict_proba(X_val))
    refitted = refit(used, X, y, monitor.best_step)
    assert np.array_equal(refitted.predict_proba(X_val), expected.predict_proba(X_val))
    assert used.get_params().keys() == params.keys()
    assert all(used.get_params()[name] is value for name, value in params.items())
    assert np.array_equal(used.predict_proba(X_val), before)


# ---- the monitor -------------------------------------------------------------------------------------------


def test_a_used_monitor_is_refused_until_it_is_reset():
    _, monitor = fit(SGD, cancer(), max_steps=3)
    history = list(monitor.history)
    with pytest.raises(
        ValueError, match=r"has seen 3 steps of another training run: call monitor.reset"
    ):
        train(SGD, *cancer(), monitor=monitor)
    monitor.reset()
    train(SGD, *cancer(), monitor=monitor, max_steps=3)
    assert monitor.history == history


def test_a_monitor_may_go_on_to_other_labels():
    _, monitor = fit(SGD, cancer(), max_steps=3)
    assert monitor.classes is None
    monitor.reset()
    train(SGD, *digits(), monitor=monitor, max_steps=3)
    assert monitor.calibrator.classes_.tolist() == list(range(10))


def test_classes_in_another_order_than_that_of_the_model():
    monitor = RefinementMonitor(classes=[1, 0])
    with pytest.raises(ValueError, match=r"monitor.classes are \[1, 0\], but .* \[0, 1\]"):
        train(SGD, *cancer(), monitor=monitor)
    assert monitor.classes == [1, 0]


def test_a_metric_that_is_never_a_number():
    X, y, X_val, y_val = cancer()
    monitor = RefinementMonitor("auroc")
    one = y_val == 1
    for model in (SGD, LogisticRegression(max_iter=5000), gradient_boosting(3)):
        monitor.reset()
        with pytest.raises(ValueError, match="'auroc' was never a number on the"):
            train(model, X, y, X_val[one], y_val[one], monitor=monitor, max_steps=3)


@pytest.mark.parametrize(
    "model", [SGD, GradientBoostingClassifier(), HistGradientBoostingClassifier(), GaussianNB()]
)
def test_a_monitor_that_prunes_sees_every_step(model):
    class Third(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.last_step == 3

    study = optuna.create_study(pruner=Third())
    trial = study.ask()
    monitor = TrialMonitor(trial)
    if is_iterative(model):
        with pytest.raises(optuna.TrialPruned, match="step 3"):
            train(model, *cancer(), monitor=monitor, max_steps=9)
    else:
        train(model, *cancer(), monitor=monitor, max_steps=9)
    reported = study.trials[0].intermediate_values
    assert reported == {record["step"]: record["refinement"] for record in monitor.history}
    assert monitor.last_step == (3 if is_iterative(model) else 1)
    assert monitor.classes is None


# ---- the callback of gradient boosting ---------------------------------------------------------------------


def gradient_boosting(n_estimators=60, **params):
    return GradientBoostingClassifier(
        n_estimators=n_estimators, learning_rate=0.5, max_depth=2, random_state=0, **params
    )


@DATA
@pytest.mark.sweep(2)
def test_the_callback_stops_and_restores(data):
    X, y, X_val, y_val = data
    stopping = RefinementStopping(X_val, y_val, patience=4)
    model = stopping.restore(gradient_boosting().fit(X, y, monitor=stopping))
    seen = stopping.monitor.last_step
    stages = gradient_boosting(seen).fit(X, y).staged_decision_function(X_val)
    step, _ = best_step(y_val, list(stages))
    assert seen == min(step + 1 + 4, 60)
    assert stopping.monitor.best_step == step + 1
    again = gradient_boosting(step + 1).fit(X, y)
    assert np.array_equal(model.decision_function(X_val), again.decision_function(X_val))
    assert stopping.calibrator is stopping.monitor.calibrator


def test_the_callback_used_twice_starts_afresh():
    X, y, X_val, y_val = cancer()
    stopping = RefinementStopping(X_val, y_val, patience=4)
    gradient_boosting().fit(X, y, monitor=stopping)
    first = list(stopping.monitor.history)
    gradient_boosting().fit(X, y, monitor=stopping)
    assert stopping.monitor.history == first


def test_resumed_training_is_training_in_one_go():
    X, y, X_val, y_val = cancer()
    whole, parts = RefinementStopping(X_val, y_val), RefinementStopping(X_val, y_val)
    gradient_boosting(30).fit(X, y, monitor=whole)
    model = gradient_boosting(10, warm_start=True).fit(X, y, monitor=parts)
    model.set_params(n_estimators=30).fit(X, y, monitor=parts)
    assert parts.monitor.history == whole.monitor.history


def test_another_model_in_the_middle_is_refused():
    X, y, X_val, y_val = cancer()
    stopping = RefinementStopping(X_val, y_val)
    gradient_boosting(5).fit(X, y, monitor=stopping)
    other = gradient_boosting(10, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="round 11 cannot follow round 5: use a new"):
        other.set_params(n_estimators=12).fit(X, y, monitor=stopping)


def test_the_callback_is_copied_and_pickled_in_the_middle():
    X, y, X_val, y_val = cancer()
    whole, parts = RefinementStopping(X_val, y_val), RefinementStopping(X_val, y_val)
    gradient_boosting(20).fit(X, y, monitor=whole)
    model = gradient_boosting(10, warm_start=True).fit(X, y, monitor=parts)
    for copied in (deepcopy(parts), pickle.loads(pickle.dumps(parts))):
        assert copied.best_step == parts.monitor.best_step
        deepcopy(model).set_params(n_estimators=20).fit(X, y, monitor=copied)
        assert copied.monitor.history == whole.monitor.history


def test_the_callback_used_for_other_labels():
    X, y, X_val, y_val = digits()
    seen = y_val < 5
    stopping = RefinementStopping(X_val[seen], y_val[seen])
    gradient_boosting(3).fit(X[y < 5], y[y < 5], monitor=stopping)
    gradient_boosting(3).fit(X, y, monitor=stopping)
    assert stopping.calibrator.classes_.tolist() == list(range(10))


def test_a_cut_model_lets_go_of_the_rest():
    X, y, X_val, y_val = cancer()
    stopping = RefinementStopping(X_val, y_val, patience=4)
    model = stopping.restore(gradient_boosting(50).fit(X, y, monitor=stopping))
    assert model.estimators_.base is None
    assert len(model.estimators_) == stopping.best_step < 50


# ---- wrong use ---------------------------------------------------------------------------------------------


def test_restore_before_training():
    with pytest.raises(ValueError, match="no round was seen: call model.fit"):
        RefinementStopping(*cancer()[2:]).restore(gradient_boosting())


def test_a_label_that_training_never_saw():
    X, y, X_val, y_val = digits()
    with pytest.raises(ValueError, match="y_val holds 9, which y does not"):
        fit(SGD, (X[y < 9], y[y < 9], X_val, y_val))


def test_weights_that_the_model_cannot_take():
    from sklearn.neighbors import KNeighborsClassifier

    with pytest.raises(TypeError, match="KNeighborsClassifier.fit takes no sample_weight"):
        fit(KNeighborsClassifier(), cancer(), sample_weight=np.full(300, 0.5))


def test_a_model_without_scores():
    from sklearn.linear_model import LinearRegression

    with pytest.raises(TypeError, match="LinearRegression has neither predict_proba nor"):
        fit(LinearRegression(), cancer())


# ---- searches ---------------------------------------------------------------------------------------------


def test_an_ensemble_of_a_search_pools_its_best_configurations():
    X, y, X_val, _ = digits()
    few = slice(300)
    line = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    grid = {"logisticregression__C": [1e-4, 1e-2, 0.1, 1.0]}
    search = GridSearchCV(line, grid, cv=3, scoring=refinement_scorer()).fit(X[few], y[few])
    pool = ensemble_of(search, X[few], y[few], n_best=3, random_state=0)
    assert pool.n_folds.get_n_splits() == 3
    order = np.argsort(search.cv_results_["rank_test_score"])[:3]
    best = [grid["logisticregression__C"][place] for place in order]
    assert pool.ensemble_.names == tuple(
        f"LogisticRegression(logisticregression__C={value})" for value in best
    )
    again = RefineThenCalibrateClassifier(
        line,
        candidates=[{"logisticregression__C": value} for value in best],
        ensemble=True,
        n_folds=StratifiedKFold(3),
        random_state=0,
    ).fit(X[few], y[few])
    np.testing.assert_array_equal(pool.predict_proba(X_val), again.predict_proba(X_val))


def test_numbers_of_rounds_are_left_out_and_equal_configurations_count_once():
    X, y, *_ = cancer()
    grid = {"max_iter": [5, 20], "max_leaf_nodes": [3, 5]}
    model = HistGradientBoostingClassifier(random_state=0)
    scoring = {"ours": refinement_scorer(), "accuracy": "accuracy"}
    search = RandomizedSearchCV(
        model, grid, n_iter=4, cv=2, scoring=scoring, refit="ours", random_state=0
    )
    search.fit(X, y)
    pool = ensemble_of(search, X, y, max_steps=200, patience=5, random_state=0)
    assert len(pool.ensemble_.names) == 2
    assert all("max_leaf_nodes" in name and "max_iter" not in name for name in pool.ensemble_.names)
    search.refit = False
    with pytest.raises(ValueError, match="set search.refit to the name of the"):
        ensemble_of(search, X, y)


def test_searches_that_give_nothing_to_pool():
    X, y, *_ = cancer()
    search = GridSearchCV(LogisticRegression(), {"C": [-1.0]}, cv=2)
    with pytest.raises(ValueError, match="call search.fit"):
        ensemble_of(search, X, y)
    search.cv_results_ = {"mean_test_score": [np.nan], "params": [{"C": -1.0}]}
    with pytest.raises(ValueError, match="every configuration of the search has failed"):
        ensemble_of(search, X, y)
    search.cv_results_ = {"mean_test_score": [0.5], "params": [{"C": 1.0}]}
    with pytest.raises(ValueError, match="n_best"):
        ensemble_of(search, X, y, n_best=0)


def test_a_search_with_groups_and_arrays_among_its_parameters():
    X, y, *_ = cancer()
    groups = np.arange(len(y)) // 5
    grid = {"priors": [np.array([0.4, 0.6]), np.array([0.5, 0.5])]}
    search = GridSearchCV(GaussianNB(), grid, cv=GroupKFold(3)).fit(X, y, groups=groups)
    pool = ensemble_of(search, X, y, groups=groups, random_state=0)
    assert len(pool.ensemble_.names) == 2
    with pytest.raises(ValueError, match="groups"):
        ensemble_of(search, X, y)
