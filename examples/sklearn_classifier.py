"""scikit-learn: one estimator that trains, restores the best step and calibrates.

A few hundred rows of one data set prove little; benchmarks/results/evidence.md compares on real tables.
Needs: pip install refinecal
"""

import warnings

from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import refinecal as rc

warnings.filterwarnings("ignore", "lbfgs failed to converge|Stochastic Optimizer")  # as it is

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)

models = {
    "boosted trees": HistGradientBoostingClassifier(learning_rate=0.3, random_state=0),
    "neural network": make_pipeline(
        MinMaxScaler(), MLPClassifier(learning_rate_init=0.01, random_state=0)
    ),
    "logistic regression": make_pipeline(MinMaxScaler(), LogisticRegression()),
}
path = {"logisticregression__C": [0.01, 0.1, 1, 10, 100]}  # not steps, but regularisation

print("Digits                  as it is   refined, then calibrated   steps")
for name, model in models.items():
    refined = rc.RefineThenCalibrateClassifier(
        model,
        candidates=path if name == "logistic regression" else None,
        patience=20,
        random_state=0,
    ).fit(X, y)
    plain = log_loss(y_test, model.fit(X, y).predict_proba(X_test))
    better = log_loss(y_test, refined.predict_proba(X_test))
    print(f"  {name:20}    {plain:6.4f}                     {better:6.4f}   {refined.best_step_:5}")
