"""The small cases of docs/evidence.md: ``python -m benchmarks.first_table 20`` repeats each 20 times.

Boosted trees on scikit-learn's digits, and logistic regression on the paper's Gaussian model, whose best
answer is known from theory.
"""

import sys

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import refinecal as rc
from refinecal.experiments import regularization


def digits(seed: int) -> list[float]:
    """Train 100 rounds; return the test losses of the rounds that are chosen."""
    X, y = load_digits(return_X_y=True)
    X, X_rest, y, y_rest = train_test_split(X, y, test_size=0.5, random_state=seed, stratify=y)
    X_val, X_test, y_val, y_test = train_test_split(
        X_rest, y_rest, test_size=0.5, random_state=seed, stratify=y_rest
    )
    model = HistGradientBoostingClassifier(early_stopping=False, random_state=0).fit(X, y)
    rounds = [rc.decompose(y_val, probs) for probs in model.staged_predict_proba(X_val)]
    test = list(model.staged_predict_proba(X_test))
    by_loss = int(np.argmin([d.risk for d in rounds]))
    by_refinement = int(np.argmin([d.refinement for d in rounds]))
    return [
        log_loss(y_test, test[by_loss]),
        log_loss(y_test, rounds[by_loss].calibrator.predict_proba(test[by_loss])),
        log_loss(y_test, rounds[by_refinement].calibrator.predict_proba(test[by_refinement])),
    ]


def show(name: str, losses: np.ndarray) -> None:
    """Print one row of the table, and what the last way to choose gains."""
    plain, calibrated, refined = np.mean(losses, axis=0)
    print(f"| {name} | {plain:.4f} | {calibrated:.4f} | **{refined:.4f}** |")
    print(f"  {1 - refined / plain:.1%} and {1 - refined / calibrated:.1%} lower")


def main() -> None:
    """Run both experiments."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    show("boosted trees on digits", np.array([digits(seed) for seed in range(repeats)]))
    show("logistic regression on the Gaussian model", regularization.run(repeats).losses)


if __name__ == "__main__":
    main()
