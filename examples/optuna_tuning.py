"""Tune with Optuna: by validation loss, or by refinement with calibration afterwards.

A few hundred rows of one data set prove little; benchmarks/results/evidence.md compares on real tables.
Needs: pip install 'refinecal[optuna]'
"""

from copy import deepcopy

import numpy as np
import optuna
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from refinecal.integrations.optuna import TrialMonitor, calibrator_of

SPLITS, TRIALS = 3, 6


def tune(X, y, X_val, y_val, **options):
    """Return the best trial, and its network at the best epoch."""
    networks = {}

    def objective(trial):
        width = trial.suggest_int("width", 16, 64, log=True)
        rate = trial.suggest_float("rate", 3e-3, 1e-1, log=True)
        model = MLPClassifier(width, learning_rate_init=rate, random_state=0)
        monitor = TrialMonitor(trial, patience=5, **options)
        while not monitor.should_stop:
            model.partial_fit(X, y, classes=range(10))
            if monitor.update(y_val, model.predict_proba(X_val)):  # reports, and may prune
                networks[trial.number] = deepcopy(model)
        return monitor.finish()

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=TRIALS)
    return study.best_trial, networks[study.best_trial.number]


optuna.logging.set_verbosity(optuna.logging.WARNING)
found = []
for seed in range(SPLITS):
    X, y = load_digits(return_X_y=True)
    X, X_rest, y, y_rest = train_test_split(X / 16, y, test_size=0.5, random_state=seed, stratify=y)
    X_val, X_test, y_val, y_test = train_test_split(
        X_rest, y_rest, test_size=0.5, random_state=seed, stratify=y_rest
    )
    trial, network = tune(X, y, X_val, y_val, metric="log_loss")
    usual = trial.user_attrs["best_step"], log_loss(y_test, network.predict_proba(X_test))

    trial, network = tune(X, y, X_val, y_val, metric="refinement", cv=5)
    calibrated = calibrator_of(trial).predict_proba(network.predict_proba(X_test))
    found.append([usual, (trial.user_attrs["best_step"], log_loss(y_test, calibrated))])

(epoch, loss), (refined_epoch, refined_loss) = np.mean(found, axis=0)
print(f"Digits, mean of {SPLITS} splits, {TRIALS} trials each   epoch   test log loss")
print(f"  by validation loss                   {epoch:6.1f}          {loss:.4f}")
print(f"  by refinement, then calibrated       {refined_epoch:6.1f}          {refined_loss:.4f}")
