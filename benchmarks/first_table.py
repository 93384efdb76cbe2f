"""What refinecal does, shown twice: `make demo`. A number repeats it more often than 5 times.

Two experiments on data that needs no download: boosted trees on scikit-learn's digits, and logistic
regression on the paper's Gaussian model, whose best answer is known from theory.
"""

import sys

import numpy as np
from scipy.stats import norm
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import refinecal as rc


def choose(steps: list[rc.Decomposition]) -> tuple[int, int]:
    """Return the step with the smallest risk, and the one with the smallest refinement error."""
    return (
        int(np.argmin([d.risk for d in steps])),
        int(np.argmin([d.refinement for d in steps])),
    )


def digits(seed: int) -> tuple[rc.Decomposition, list[float]]:
    """Train 100 rounds; return the decomposition at the chosen one, and three test losses."""
    X, y = load_digits(return_X_y=True)
    X, X_rest, y, y_rest = train_test_split(X, y, test_size=0.5, random_state=seed, stratify=y)
    X_val, X_test, y_val, y_test = train_test_split(
        X_rest, y_rest, test_size=0.5, random_state=seed, stratify=y_rest
    )
    model = HistGradientBoostingClassifier(early_stopping=False, random_state=0).fit(X, y)
    rounds = [rc.decompose(y_val, probs) for probs in model.staged_predict_proba(X_val)]
    test = list(model.staged_predict_proba(X_test))
    by_loss, by_refinement = choose(rounds)
    losses = [
        log_loss(y_test, test[by_loss]),
        log_loss(y_test, rounds[by_loss].calibrator.predict_proba(test[by_loss])),
        log_loss(y_test, rounds[by_refinement].calibrator.predict_proba(test[by_refinement])),
    ]
    return rounds[by_refinement], losses


def gaussian(seed: int, n: int = 500, ratio: float = 1.0, bayes_error: float = 0.1) -> list[float]:
    """Choose the regularisation of logistic regression; return three test losses.

    Section 7 of the paper: classes N(mu, Sigma) and N(-mu, Sigma), eigenvalues of Sigma drawn from
    Beta(5, 1), as many features as samples.
    """
    rng = np.random.default_rng(seed)
    scales = np.sqrt(1e-3 + rng.beta(5, 1, int(ratio * n)))
    mu = rng.standard_normal(len(scales))
    mu *= -norm.ppf(bayes_error) / np.linalg.norm(mu / scales)

    def draw(rows: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(2, size=rows)
        return np.where(y, 1, -1)[:, None] * mu + rng.standard_normal((rows, len(mu))) * scales, y

    (X, y), (X_val, y_val), (X_test, y_test) = draw(n), draw(5000), draw(5000)
    steps, test = [], []
    for lam in np.logspace(-3, 1, 13):
        model = LogisticRegression(C=1 / (lam * n), fit_intercept=False, max_iter=1000).fit(X, y)
        steps.append(rc.decompose(y_val, logits=model.decision_function(X_val)))
        test.append(model.decision_function(X_test))
    by_loss, by_refinement = choose(steps)
    return [
        rc.decompose(y_test, logits=test[by_loss]).risk,
        log_loss(y_test, steps[by_loss].calibrator.predict_proba_logits(test[by_loss])),
        log_loss(y_test, steps[by_refinement].calibrator.predict_proba_logits(test[by_refinement])),
    ]


def show(losses: list[list[float]]) -> None:
    """Print mean test losses of the three ways to choose, and what the last one gains."""
    plain, calibrated, refined = np.mean(losses, axis=0)
    gain = 1 - refined / plain
    print(f"    by loss                          {plain:.4f}")
    print(f"    by loss, then calibrated         {calibrated:.4f}")
    print(f"    by refinement, then calibrated   {refined:.4f}   {gain:.1%} lower than the first")


def main() -> None:
    """Run both experiments and print what they show."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    results = [digits(seed) for seed in range(repeats)]
    print("Boosted trees on digits, 10 classes. One model taken apart, on validation data:\n")
    print("    " + repr(results[0][0]).replace("\n", "\n    "))
    print(f"\n  Test log loss, mean of {repeats} splits, of the round (of 100) that is chosen:")
    show([losses for _, losses in results])

    print("\nLogistic regression on the paper's Gaussian model, 500 features, 500 samples.")
    print(f"  Test log loss, mean of {repeats} draws, of the regularisation that is chosen:")
    show([gaussian(seed) for seed in range(repeats)])

    print("\nYour turn, with any model's predictions:")
    print("    import refinecal as rc")
    print("    print(rc.decompose(y_val, model.predict_proba(X_val)))")


if __name__ == "__main__":
    main()
