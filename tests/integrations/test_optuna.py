"""Optuna, with real studies: reports, pruning, attributes, storages."""

import numpy as np
import optuna
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression, SGDClassifier

import refinecal as rc
from refinecal.integrations.optuna import (
    TrialMonitor,
    calibrator_of,
    ensemble_of,
    keep_predictions,
    record_best,
)

EPOCHS = 8


@pytest.fixture(autouse=True)
def _quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


def data(k):
    X, y = make_classification(400, 8, n_informative=4, n_classes=k, flip_y=0.2, random_state=k)
    return X[:200], y[:200], X[200:], y[200:]


def staged(k, alpha):
    """Yield the validation labels and logits after each epoch, at a scale that is usual for logits."""
    X, y, X_val, y_val = data(k)
    model = SGDClassifier(loss="log_loss", alpha=alpha, random_state=0)
    for _ in range(EPOCHS):
        model.partial_fit(X, y, classes=np.arange(k))
        yield y_val, model.decision_function(X_val) / 30


def train(trial, k=2, **options):
    monitor = TrialMonitor(trial, **options)
    alpha = trial.suggest_float("alpha", 1e-4, 1e-1, log=True)
    for y_val, logits in staged(k, alpha):
        monitor.update(y_val, logits=logits)
        if monitor.should_stop:
            break
    return monitor


def study(**options):
    return optuna.create_study(
        sampler=optuna.samplers.RandomSampler(0),
        **{"pruner": optuna.pruners.NopPruner()} | options,
    )


def refinement(y, logits):
    """Return the refinement error found by a general-purpose minimiser."""
    z = np.stack([np.zeros(len(y)), logits], axis=1) if logits.ndim == 1 else logits

    def risk(log_beta):
        return -log_softmax(np.exp(log_beta) * z, axis=1)[np.arange(len(y)), y].mean()

    return minimize_scalar(risk, bounds=(-9, 5), method="bounded", options={"xatol": 1e-10}).fun


@pytest.mark.parametrize("k", [2, 3])
def test_reports_and_attributes(k):
    search = study()
    search.optimize(lambda trial: train(trial, k).finish(), n_trials=3)
    for trial in search.trials:
        stages = list(staged(k, trial.params["alpha"]))
        expected = [refinement(*stage) for stage in stages]
        assert list(trial.intermediate_values) == list(range(EPOCHS))
        assert np.allclose(list(trial.intermediate_values.values()), expected, atol=1e-9)
        best = int(np.argmin(expected))
        assert trial.user_attrs["best_step"] == best
        assert trial.value == trial.user_attrs["refinement"] == trial.intermediate_values[best]
        own = rc.TemperatureScaling().fit_logits(stages[best][1], stages[best][0])
        assert np.isclose(trial.user_attrs["beta"], own.beta_)
        assert np.isclose(calibrator_of(trial).beta_, own.beta_)
        parts = trial.user_attrs["risk"] - trial.user_attrs["refinement"]
        assert np.isclose(trial.user_attrs["calibration"], parts)
    assert search.best_value == min(trial.value for trial in search.trials)


def test_pruning_leaves_the_best_so_far_in_the_trial():
    limit = optuna.pruners.ThresholdPruner(upper=0.01, n_warmup_steps=3)
    search = study(pruner=limit)
    search.optimize(lambda trial: train(trial).finish(), n_trials=1)
    (trial,) = search.trials
    assert trial.state == optuna.trial.TrialState.PRUNED
    assert list(trial.intermediate_values) == [0, 1, 2, 3]
    assert trial.user_attrs["refinement"] == min(trial.intermediate_values.values())
    assert calibrator_of(trial).beta_ == trial.user_attrs["beta"]

    search = study(pruner=limit)
    search.optimize(lambda trial: train(trial, prune=False).finish(), n_trials=1)
    assert len(search.best_trial.intermediate_values) == EPOCHS


def test_patience_and_options():
    search = study()
    search.optimize(
        lambda trial: train(trial, patience=2, min_delta=9.0, cv=5, also=["auroc"]).finish(),
        n_trials=1,
    )
    trial = search.best_trial
    assert list(trial.intermediate_values) == [0, 1, 2]
    alpha = trial.params["alpha"]
    folds = [rc.refinement_error(y, logits=z, cv=5) for y, z in staged(2, alpha)][:3]
    assert np.isclose(trial.value, min(folds))
    assert 0 < trial.user_attrs["auroc"] < 1


@pytest.mark.slow
def test_attributes_survive_a_database(tmp_path):
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    search = study(storage=url, study_name="a")
    monitors = []

    def objective(trial):
        monitors.append(train(trial, calibrator="isotonic"))
        return monitors[-1].finish()

    search.optimize(objective, n_trials=2)
    loaded = optuna.load_study(study_name="a", storage=url)
    monitor = monitors[loaded.best_trial.number]
    assert calibrator_of(loaded.best_trial).to_dict() == monitor.calibrator.to_dict()
    assert loaded.best_trial.user_attrs["best_step"] == monitor.best_step
    assert "beta" not in loaded.best_trial.user_attrs  # isotonic regression has none
    assert "user_attrs_refinement" in loaded.trials_dataframe()


def test_direction():
    with pytest.raises(ValueError, match=r"direction='maximize', but 'refinement' must minimize"):
        TrialMonitor(study(direction="maximize").ask())
    with pytest.raises(ValueError, match=r"create_study\(direction='maximize'\)"):
        TrialMonitor(study().ask(), metric="accuracy")
    search = study(direction="maximize")
    search.optimize(lambda trial: train(trial, metric="accuracy").finish(), n_trials=1)
    assert search.best_value == max(search.best_trial.intermediate_values.values())


def test_several_objectives():
    search = study(directions=["minimize", "minimize"])
    with pytest.raises(ValueError, match=r"2 objectives, .* pass TrialMonitor\(trial, prune=False"):
        TrialMonitor(search.ask())

    def objective(trial):
        monitor = train(trial, prune=False)
        return monitor.finish(), monitor.best_step

    search.optimize(objective, n_trials=1)
    trial = search.trials[-1]
    assert trial.values == [trial.user_attrs["refinement"], trial.user_attrs["best_step"]]


def test_best_trial_can_be_run_again():
    search = study()
    search.optimize(lambda trial: train(trial).finish(), n_trials=2)
    again = train(optuna.trial.FixedTrial(search.best_params))
    assert again.finish() == search.best_value
    assert train(search.best_trial).finish() == search.best_value


def test_monitor_of_another_integration():
    search = study()

    def objective(trial):
        alpha = trial.suggest_float("alpha", 1e-4, 1e-1, log=True)
        labels, stages = zip(*staged(2, alpha), strict=True)
        return record_best(trial, rc.select(labels[0], logits=stages))

    search.optimize(objective, n_trials=2)
    other = study()
    other.optimize(lambda trial: train(trial).finish(), n_trials=2)
    assert [t.user_attrs for t in search.trials] == [t.user_attrs for t in other.trials]


def test_diverged_trials():
    search = study()

    def objective(trial):
        monitor = TrialMonitor(trial)
        with pytest.warns(RuntimeWarning, match="not finite"):
            monitor.update([0, 1], logits=[np.nan, 1.0])
        assert monitor.should_stop
        return monitor.finish()

    search.optimize(objective, n_trials=1)
    assert search.trials[0].state == optuna.trial.TrialState.PRUNED
    assert search.trials[0].user_attrs == {}


def test_wrong_use():
    trial = study().ask()
    with pytest.raises(ValueError, match="the monitor has seen no step: call update"):
        TrialMonitor(trial).finish()
    with pytest.raises(ValueError, match=r"trial 0 holds no calibrator: let its objective return"):
        calibrator_of(trial)
    train(trial, calibrator=LogisticRegression()).finish()
    with pytest.raises(ValueError, match="Custom calibrators are not stored"):
        calibrator_of(trial)
    with pytest.raises(ValueError, match="probs.* is not a probability"):
        TrialMonitor(trial).update([0, 1], [-1.0, 3.0])


# ---- ensembles ---------------------------------------------------------------------------------------------


def test_an_ensemble_of_trials_is_that_of_their_best_steps(tmp_path):
    best = {}

    def objective(trial):
        monitor = TrialMonitor(trial, keep=tmp_path)
        for y, logits in staged(3, trial.suggest_float("alpha", 1e-4, 1, log=True)):
            if monitor.update(y, logits=logits):
                best[f"trial {trial.number}"] = logits
        return monitor.finish()

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    study.optimize(objective, n_trials=4)
    found = ensemble_of(study, max_picks=6)
    expected = rc.select_ensemble(data(3)[3], logits=best, max_picks=6)
    assert found.to_dict() == expected.to_dict()
    assert found.names == tuple(best)
    used = {name: z for name, z in best.items() if found.weights[list(best).index(name)]}
    np.testing.assert_array_equal(
        found.predict_proba(logits=used), expected.predict_proba(logits=best)
    )


def test_pruned_trials_and_other_objectives_count(tmp_path):
    X, y, X_val, y_val = data(2)
    names = np.array(["no", "yes"], dtype=object)

    def objective(trial):
        model = LogisticRegression(C=trial.suggest_float("C", 1e-3, 1e3, log=True)).fit(X, y)
        probs = model.predict_proba(X_val)
        keep_predictions(trial, tmp_path, names[y_val], probs, sample_weight=np.arange(200))
        if trial.number == 1:
            raise optuna.TrialPruned
        return rc.refinement_error(y_val, probs)

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    study.optimize(objective, n_trials=3)
    found = ensemble_of(study)
    assert found.names == ("trial 0", "trial 1", "trial 2")
    assert found.classes.tolist() == ["no", "yes"]
    assert found.gain.n == 199


def test_studies_and_trials_of_their_own_names_share_a_folder(tmp_path):
    y_val = data(2)[3]
    probs = {}
    studies = [optuna.create_study(study_name=name) for name in ("a", "a", "b", None)]
    for seed, study in enumerate(studies):

        def objective(trial, seed=seed):
            found = np.random.default_rng([seed, trial.number]).dirichlet([1, 1], len(y_val))
            keep_predictions(trial, tmp_path, y_val, found)
            keep_predictions(trial, tmp_path, y_val, found)  # again
            probs[seed, trial.number] = found
            return 0.0

        study.optimize(objective, n_trials=2)
    assert len(list(tmp_path.iterdir())) == 8
    for seed, study in enumerate(studies):
        found = ensemble_of(study, names=["first", "second"])
        stack = {"first": probs[seed, 0], "second": probs[seed, 1]}
        assert found.to_dict() == rc.select_ensemble(y_val, stack).to_dict()
    with pytest.raises(ValueError, match="names"):
        ensemble_of(studies[0], names=["first"])


def test_a_fixed_trial_keeps_predictions_too(tmp_path):
    trial = optuna.trial.FixedTrial({"alpha": 0.1})
    keep_predictions(trial, tmp_path, [0, 1], [[0.5, 0.5], [0.2, 0.8]])
    assert np.load(trial.user_attrs["predictions"])["labels"].tolist() == [0, 1]


def test_arrays_that_are_reused_are_kept_as_they_were(tmp_path):
    rng = np.random.default_rng(0)
    arrays = rng.integers(2, size=50), rng.dirichlet([1, 1], 50), rng.uniform(1, 2, 50)
    y_val, probs, weights = (each.copy() for each in arrays)
    trial = optuna.create_study().ask()
    monitor = TrialMonitor(trial, keep=tmp_path)
    monitor.update(y_val, probs, sample_weight=weights)
    y_val[:], probs[:], weights[:] = 0, 0.5, 9.0
    monitor.finish()
    kept = np.load(trial.user_attrs["predictions"])
    for name, expected in zip(("labels", "probs", "sample_weight"), arrays, strict=True):
        np.testing.assert_array_equal(kept[name], expected)


def test_studies_without_predictions(tmp_path):
    study = optuna.create_study()
    with pytest.raises(ValueError, match="no trial of the study has kept its predictions"):
        ensemble_of(study)

    def objective(trial):
        keep_predictions(trial, tmp_path, [0, 1], [[0.5, 0.5], [0.2, 0.8]])
        return 0.0

    study.optimize(objective, n_trials=1)
    (path,) = tmp_path.glob("trial_0_*.npz")
    path.unlink()
    with pytest.raises(FileNotFoundError, match="moved or deleted"):
        ensemble_of(study)
    with pytest.raises(TypeError, match="either probs or logits"):
        keep_predictions(study.trials[0], tmp_path, [0, 1])
