"""Cost of the paper's protocol on one GPU: an estimate from counted operations, with its assumptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from refinecal.experiments.vision.analysis import IMAGES
from refinecal.experiments.vision.published import GPU_HOURS, RUNS

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
