"""The paper's protocol on images: its published results, and an estimate of its cost on one GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from refinecal.experiments.comparing import Mean
from refinecal.experiments.vision.recipe import Settings

IMAGES = {  # of training, and of test
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "svhn": (73_257, 26_032),
    "fashion-mnist": (60_000, 10_000),
}
SETTINGS = (  # of appendix E; they are the defaults of a recipe,
    *("epochs", "optimizer", "schedule", "lr", "momentum", "nesterov", "weight_decay", "batch"),
    *("crop", "flip", "cutout", "validation"),
)
PROTOCOL: dict[str, Any] = {name: getattr(Settings(), name) for name in SETTINGS}
PROTOCOL["precision"] = "float32"  # except that of the published script: Lightning's default
RUNS = 10  # of each model on each data set
GPU_HOURS = 300.0  # "around", on V100: of both models on the three data sets
TABLE = ("log_loss", "brier", "accuracy", "ece", "smooth_ece")  # accuracy in percent, as printed
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
        scale = [0.01 if score == "accuracy" else 1.0 for score in TABLE]
        pairs = zip(scale, numbers[::2], numbers[1::2], strict=True)
        means = [Mean(RUNS, part * mean, part * half) for part, mean, half in pairs]
        found[dataset, model, metric] = dict(zip(TABLE, means, strict=True))
    return found


PUBLISHED = _read(PRINTED)


def published(dataset: str, model: str, metric: str, score: str) -> Mean | None:
    """Return what the paper printed for a score after temperature scaling, if it did.

    >>> published("cifar10", "resnet18", "refinement", "log_loss")
    Mean(runs=10, mean=0.154, half=0.005)
    >>> published("fashion-mnist", "resnet18", "refinement", "log_loss")
    """
    return PUBLISHED.get((dataset, model, metric), {}).get(score)


# Floating point operations of one image of 3 x 32 x 32 forward, for ten classes, as networks.flops counts
# them: two for a multiplication and an addition, in convolutions and linear layers.
FORWARD = {"resnet18": 1_110_845_440, "wrn28-10": 10_486_657_536}
STEP = 3  # forward passes that a step of training takes: one forward, and twice as much backward
DATASETS = ("cifar10", "cifar100", "svhn")  # of the paper
# 10^12 operations per second in bfloat16, dense, by the makers' data sheets
PEAKS = {"RTX 4090": 165.2, "A100": 312.0, "H100": 989.4}
UTILISATION, MOST = 0.15, 0.40  # least and largest part of the peak that training reaches: assumed


class Estimate(NamedTuple):
    """All runs of a model on a data set, on one GPU."""

    dataset: str
    model: str
    runs: int
    flops: float  # of all runs
    hours: float


def training_flops(forward: float, n_train: int, n_eval: int, epochs: int) -> float:
    """Return the operations of one training run that predicts ``n_eval`` other images after each epoch.

    >>> training_flops(10.0, n_train=100, n_eval=50, epochs=2)  # 2 * 10 * (3 * 100 + 50)
    7000.0
    """
    return float(epochs * forward * (STEP * n_train + n_eval))


def hours(flops: float, tflops: float = PEAKS["A100"], utilisation: float = UTILISATION) -> float:
    """Return the hours on a GPU that reaches a part of its peak, given in 10^12 operations per second.

    >>> hours(3600e12, tflops=10, utilisation=0.5)
    0.2
    """
    if not (tflops > 0 and 0 < utilisation <= 1):
        raise ValueError(
            f"tflops is {tflops} and utilisation is {utilisation}: the peak of a GPU must be above 0, such "
            "as 312 of an A100, and the part of it that is reached above 0 and at most 1"
        )
    return flops / (tflops * 1e12 * utilisation) / 3600


def estimates(
    tflops: float = PEAKS["A100"],
    utilisation: float = UTILISATION,
    *,
    forward: Mapping[str, float] = FORWARD,
    datasets: Sequence[str] = DATASETS,
    epochs: int = 300,
    runs: int = RUNS,
    validation: float = 0.1,
) -> list[Estimate]:
    """Return the cost of every model on every data set.

    Parameters
    ----------
    tflops, utilisation : float
        As for :func:`hours`; by default a cautious assumption for an A100.
    forward : mapping of str to float
        Operations of one image forward, by model.
    datasets, epochs, runs, validation
        Of the protocol.

    Examples
    --------
    >>> round(sum(each.hours for each in estimates(tflops=312, utilisation=0.15)))
    110
    """
    found = []
    for model, one in forward.items():
        for dataset in datasets:
            train, test = IMAGES[dataset]
            kept = round(validation * train)
            flops = runs * training_flops(one, train - kept, kept + test, epochs)
            found.append(Estimate(dataset, model, runs, flops, hours(flops, tflops, utilisation)))
    return found


def describe_cost(tflops: float = PEAKS["A100"]) -> tuple[str, ...]:
    """Return in words what the full protocol costs on a GPU of this peak, and what that assumes."""
    flops = sum(each.flops for each in estimates(tflops))
    slow, fast = hours(flops, tflops, UTILISATION), hours(flops, tflops, MOST)
    return (
        f"The full protocol (two networks, three data sets, {RUNS} runs of 300 epochs) takes "
        f"{flops / 1e18:.0f} · 10¹⁸ floating point operations: three forward passes for each training image "
        "of an epoch, and one for each validation and test image. On one GPU with a peak of "
        f"{tflops:g} TFLOPS in 16 bits, this takes {fast:.0f} to {slow:.0f} hours, if {100 * MOST:.0f}% or "
        f"{100 * UTILISATION:.0f}% of the peak is reached.",
        "Only operations of convolutions and linear layers are counted. The part of the peak that is reached "
        "is assumed: no GPU was timed. The paper reports about "
        f"{GPU_HOURS:.0f} hours on V100; its script trains in float32, so the two cannot be compared.",
    )
