"""Which epoch would each metric have chosen? Answered from the saved predictions of a training run.

A neural network learns scikit-learn's digits and saves its validation predictions after every epoch.
`post_mortem` loads the files one at a time, and shows what each metric would have chosen and what that costs
after calibration. Needs: pip install refinecal
"""

import tempfile

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from refinecal import post_mortem


def main() -> None:
    """Train, look back, and compare two choices on test data."""
    X, y = load_digits(return_X_y=True)
    X, X_rest, y, y_rest = train_test_split(X / 16, y, test_size=0.5, random_state=0, stratify=y)
    X_val, X_test, y_val, y_test = train_test_split(X_rest, y_rest, test_size=0.5, random_state=0)
    model = MLPClassifier((100, 100), learning_rate_init=0.01, random_state=0)
    test = {}
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(1, 41):
            model.partial_fit(X, y, classes=np.arange(10))
            np.savez(f"{folder}/epoch_{epoch}.npz", probs=model.predict_proba(X_val), y=y_val)
            test[epoch] = model.predict_proba(X_test)
        found = post_mortem(folder)
    print(found)

    usual, refined = (found.monitor.bests[name] for name in ("log_loss", "refinement"))
    calibrated = refined.calibrator.predict_proba(test[refined.step])
    print("\nTest log loss")
    print(f"  stopped on log loss                     {log_loss(y_test, test[usual.step]):.4f}")
    print(f"  stopped on refinement, then calibrated  {log_loss(y_test, calibrated):.4f}")


if __name__ == "__main__":
    main()
