"""Tune with Optuna: by validation loss, or by refinement with calibration afterwards.

Needs: pip install 'refinecal[optuna]'
"""

from copy import deepcopy

import optuna
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from refinecal.integrations.optuna import TrialMonitor, calibrator_of

X, y = load_digits(return_X_y=True)
X, X_rest, y, y_rest = train_test_split(X / 16, y, test_size=0.5, random_state=0, stratify=y)
X_val, X_test, y_val, y_test = train_test_split(X_rest, y_rest, random_state=0, stratify=y_rest)


def tune(**options):
    """Return the best trial, and what its network says of the test rows at its best epoch."""
    networks = {}

    def objective(trial):
        width = trial.suggest_int("width", 16, 128, log=True)
        rate = trial.suggest_float("rate", 1e-3, 1e-1, log=True)
        model = MLPClassifier(width, learning_rate_init=rate, random_state=0)
        monitor = TrialMonitor(trial, patience=8, **options)
        while not monitor.should_stop:
            model.partial_fit(X, y, classes=range(10))
            if monitor.update(y_val, model.predict_proba(X_val)):  # reports, and may prune
                networks[trial.number] = deepcopy(model)
        return monitor.finish()

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=20)
    return study.best_trial, networks[study.best_trial.number].predict_proba(X_test)


optuna.logging.set_verbosity(optuna.logging.WARNING)
usual, probs = tune(metric="log_loss")
refined, raw = tune(metric="refinement", cv=5)
calibrated = calibrator_of(refined).predict_proba(raw)

print("Digits, 20 trials each            epoch   test log loss")
for name, trial, found in [
    ("by validation loss", usual, probs),
    ("by refinement, then calibrated", refined, calibrated),
]:
    print(f"  {name:30}  {trial.user_attrs['best_step']:5}          {log_loss(y_test, found):.4f}")
