"""CatBoost: stop on validation loss, or stop on refinement and calibrate.

A few hundred rows of one data set prove little; benchmarks/results/evidence.md compares on real tables.
Needs: pip install 'refinecal[catboost]'
"""

import numpy as np
from catboost import CatBoostClassifier
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from refinecal.integrations.catboost import RefinementLoss, predict_proba, shrink_to_best

SPLITS = 5
OPTIONS = {"learning_rate": 0.3, "depth": 4, "iterations": 300, "early_stopping_rounds": 50}
QUIET = {"verbose": 0, "allow_writing_files": False, "random_seed": 0}

found = []
for seed in range(SPLITS):
    X, y = load_breast_cancer(return_X_y=True)
    X, X_rest, y, y_rest = train_test_split(X, y, test_size=0.5, random_state=seed, stratify=y)
    X_val, X_test, y_val, y_test = train_test_split(
        X_rest, y_rest, test_size=0.5, random_state=seed, stratify=y_rest
    )

    usual = CatBoostClassifier(**OPTIONS, **QUIET).fit(X, y, eval_set=(X_val, y_val))

    model = CatBoostClassifier(eval_metric=RefinementLoss(), **OPTIONS, **QUIET)
    model.fit(X, y, eval_set=(X_val, y_val))
    shrink_to_best(model, X_val, y_val)  # keeps the calibrator in the model, and in its files

    found.append(
        [
            (usual.tree_count_, log_loss(y_test, usual.predict_proba(X_test))),
            (model.tree_count_, log_loss(y_test, predict_proba(model, X_test))),
        ]
    )

(trees, loss), (refined_trees, refined_loss) = np.mean(found, axis=0)
print(f"Breast cancer, mean of {SPLITS} splits     trees   test log loss")
print(f"  stop on validation loss        {trees:6.1f}          {loss:.4f}")
print(f"  refine, then calibrate         {refined_trees:6.1f}          {refined_loss:.4f}")
