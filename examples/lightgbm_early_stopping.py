"""LightGBM: stop on validation loss, or stop on refinement and calibrate.

A few hundred rows of one data set prove little; benchmarks/results/evidence.md compares on real tables.
Needs: pip install 'refinecal[lightgbm]'
"""

import lightgbm as lgb
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from refinecal.integrations.lightgbm import RefinementStopping, predict_proba

SPLITS = 5
OPTIONS = {"n_estimators": 300, "learning_rate": 0.1, "num_leaves": 15}
QUIET = {"n_jobs": 1, "verbose": -1}  # small tables train faster on one thread

found = []
for seed in range(SPLITS):
    X, y = load_breast_cancer(return_X_y=True)
    X, X_rest, y, y_rest = train_test_split(X, y, test_size=0.5, random_state=seed, stratify=y)
    X_val, X_test, y_val, y_test = train_test_split(
        X_rest, y_rest, test_size=0.5, random_state=seed, stratify=y_rest
    )
    held_out = {"eval_X": X_val, "eval_y": y_val}

    usual = lgb.LGBMClassifier(**OPTIONS, **QUIET)
    usual.fit(X, y, **held_out, callbacks=[lgb.early_stopping(50, verbose=False)])

    model = lgb.LGBMClassifier(**OPTIONS, **QUIET)
    model.fit(X, y, **held_out, callbacks=[RefinementStopping(50)])

    found.append(
        [
            (usual.best_iteration_, log_loss(y_test, usual.predict_proba(X_test))),
            (model.best_iteration_, log_loss(y_test, predict_proba(model, X_test))),
        ]
    )

(rounds, loss), (refined_rounds, refined_loss) = np.mean(found, axis=0)
print(f"Breast cancer, mean of {SPLITS} splits    rounds   test log loss")
print(f"  stop on validation loss        {rounds:6.1f}          {loss:.4f}")
print(f"  refine, then calibrate         {refined_rounds:6.1f}          {refined_loss:.4f}")
