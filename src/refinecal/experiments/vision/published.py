"""The tables of the paper's appendix E: what its authors found with this protocol.

From *Rethinking Early Stopping: Refine, Then Calibrate* (arXiv:2501.19195). Test scores after temperature
scaling, of the epoch that a metric chose on validation images: means over ten runs, and half the width of
their 95 % intervals by Student's t. They are rounded as they were printed.
"""

from __future__ import annotations

from refinecal.experiments.vision.intervals import Mean

RUNS = 10  # of each model on each data set
GPU_HOURS = 300.0  # "around", on V100: of both models on the three data sets
SCORES = ("log_loss", "brier", "accuracy", "ece", "smooth_ece")  # accuracy in percent, as printed
PRINTED = """
resnet18  cifar10   log_loss    0.161 0.004  0.080 0.002  94.6 0.2  0.006 0.001  0.008 0.001
resnet18  cifar10   brier       0.154 0.005  0.073 0.003  95.1 0.2  0.007 0.001  0.008 0.001
resnet18  cifar10   accuracy    0.155 0.005  0.074 0.003  95.1 0.2  0.007 0.001  0.009 0.001
resnet18  cifar10   refinement  0.154 0.005  0.074 0.003  95.1 0.2  0.007 0.002  0.008 0.001
resnet18  cifar100  log_loss    1.015 0.008  0.367 0.003  73.2 0.3  0.019 0.002  0.019 0.001
resnet18  cifar100  brier       1.014 0.007  0.367 0.002  73.1 0.3  0.020 0.002  0.019 0.001
resnet18  cifar100  accuracy    1.001 0.012  0.366 0.003  73.1 0.3  0.018 0.001  0.018 0.001
resnet18  cifar100  refinement  0.983 0.008  0.366 0.003  73.0 0.2  0.016 0.001  0.016 0.001
resnet18  svhn      log_loss    0.120 0.003  0.048 0.001  96.9 0.1  0.006 0.001  0.007 0.001
resnet18  svhn      brier       0.118 0.002  0.048 0.001  97.0 0.1  0.006 0.001  0.007 0.001
resnet18  svhn      accuracy    0.124 0.005  0.049 0.002  96.9 0.1  0.006 0.001  0.008 0.001
resnet18  svhn      refinement  0.119 0.002  0.048 0.001  97.0 0.1  0.006 0.001  0.007 0.001
wrn28-10  cifar10   log_loss    0.123 0.004  0.061 0.002  95.9 0.2  0.006 0.001  0.008 0.000
wrn28-10  cifar10   brier       0.121 0.002  0.056 0.001  96.4 0.1  0.006 0.001  0.008 0.001
wrn28-10  cifar10   accuracy    0.122 0.002  0.056 0.001  96.4 0.1  0.006 0.001  0.008 0.001
wrn28-10  cifar10   refinement  0.120 0.002  0.056 0.001  96.3 0.1  0.007 0.001  0.008 0.001
wrn28-10  cifar100  log_loss    0.798 0.007  0.300 0.002  78.4 0.3  0.020 0.002  0.020 0.002
wrn28-10  cifar100  brier       0.803 0.003  0.298 0.001  78.8 0.1  0.021 0.002  0.020 0.001
wrn28-10  cifar100  accuracy    0.791 0.011  0.300 0.002  78.6 0.2  0.020 0.003  0.019 0.002
wrn28-10  cifar100  refinement  0.771 0.004  0.298 0.002  78.5 0.2  0.016 0.002  0.016 0.001
wrn28-10  svhn      log_loss    0.109 0.002  0.043 0.001  97.3 0.1  0.007 0.001  0.008 0.001
wrn28-10  svhn      brier       0.110 0.003  0.042 0.001  97.3 0.1  0.007 0.001  0.008 0.001
wrn28-10  svhn      accuracy    0.112 0.002  0.042 0.001  97.3 0.1  0.008 0.001  0.009 0.001
wrn28-10  svhn      refinement  0.109 0.001  0.042 0.000  97.3 0.1  0.007 0.001  0.008 0.001
"""


def _read(text: str) -> dict[tuple[str, str, str], dict[str, Mean]]:
    """Return the tables by data set, model and stopping metric; accuracy as a part of 1."""
    found = {}
    for line in text.strip().splitlines():
        model, dataset, metric, *cells = line.split()
        numbers = [float(cell) for cell in cells]
        scale = [0.01 if score == "accuracy" else 1.0 for score in SCORES]
        pairs = zip(scale, numbers[::2], numbers[1::2], strict=True)
        means = [Mean(RUNS, part * mean, part * half) for part, mean, half in pairs]
        found[dataset, model, metric] = dict(zip(SCORES, means, strict=True))
    return found


PUBLISHED = _read(PRINTED)


def published(dataset: str, model: str, metric: str, score: str) -> Mean | None:
    """Return what the paper printed for a score after temperature scaling, if it did.

    >>> published("cifar10", "resnet18", "refinement", "log_loss")
    Mean(runs=10, mean=0.154, half=0.005)
    >>> published("fashion-mnist", "resnet18", "refinement", "log_loss")
    """
    return PUBLISHED.get((dataset, model, metric), {}).get(score)
