"""XGBoost: stop on validation loss, or stop on refinement and calibrate.

A few hundred rows of one data set prove little; benchmarks/results/evidence.md compares on real tables.
Needs: pip install 'refinecal[xgboost]'
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from xgboost import XGBClassifier

from refinecal.integrations.xgboost import RefinementStopping, predict_proba

SPLITS = 5
OPTIONS = {"n_estimators": 300, "learning_rate": 0.3, "max_depth": 4}

found = []
for seed in range(SPLITS):
    X, y = load_digits(return_X_y=True)
    X, X_rest, y, y_rest = train_test_split(X, y, test_size=0.5, random_state=seed, stratify=y)
    X_val, X_test, y_val, y_test = train_test_split(
        X_rest, y_rest, test_size=0.5, random_state=seed, stratify=y_rest
    )

    usual = XGBClassifier(**OPTIONS, early_stopping_rounds=50)
    usual.fit(X, y, eval_set=[(X_val, y_val)], verbose=False)

    model = XGBClassifier(**OPTIONS, callbacks=[RefinementStopping(X_val, y_val, rounds=50)])
    model.fit(X, y, verbose=False)  # keeps the calibrator in the model, and in its files

    found.append(
        [
            (usual.best_iteration + 1, log_loss(y_test, usual.predict_proba(X_test))),
            (model.best_iteration + 1, log_loss(y_test, predict_proba(model, X_test))),
        ]
    )

(rounds, loss), (refined_rounds, refined_loss) = np.mean(found, axis=0)
print(f"Digits, mean of {SPLITS} splits           rounds   test log loss")
print(f"  stop on validation loss        {rounds:6.1f}          {loss:.4f}")
print(f"  refine, then calibrate         {refined_rounds:6.1f}          {refined_loss:.4f}")
