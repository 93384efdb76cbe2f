"""What the paper's protocol costs on one GPU: an estimate from counted operations, with its assumptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from refinecal.experiments.vision.analysis import IMAGES
from refinecal.experiments.vision.published import GPU_HOURS, RUNS

__all__ = ["Estimate", "estimates", "hours", "training_flops", "words"]

# Floating point operations of one image of 3 x 32 x 32 forward, for ten classes, as networks.flops counts
# them: two for a multiplication and an addition, in convolutions and linear layers.
FORWARD = {"resnet18": 1_110_845_440, "wrn28-10": 10_486_657_536}
STEP = 3  # forward passes that a step of training takes: one forward, and twice as much backward
DATASETS = ("cifar10", "cifar100", "svhn")  # of the paper
PEAKS = {  # 10^12 operations per second in bfloat16, dense, by the makers' data sheets
    "RTX 4090": 165.2,
    "A100": 312.0,
    "H100": 989.4,
}
UTILISATION, MOST = (
    0.15,
    0.40,
)  # parts of the peak that a training reaches at least, and at most: assumed


class Estimate(NamedTuple):
    """All runs of a model on a data set, on one GPU."""

    dataset: str
    model: str
    runs: int
    flops: float  # of all runs
    hours: float


def training_flops(forward: float, n_train: int, n_eval: int, epochs: int) -> float:
    """Return the operations of one training that looks at all its ``n_eval`` other images after each epoch.

    >>> training_flops(10.0, n_train=100, n_eval=50, epochs=2)  # 2 * 10 * (3 * 100 + 50)
    7000.0
    """
    return float(epochs * forward * (STEP * n_train + n_eval))


def hours(flops: float, tflops: float = PEAKS["A100"], utilisation: float = UTILISATION) -> float:
    """Return how long a GPU takes that reaches a part of its peak, given in 10^12 operations per second.

    >>> hours(3600e12, tflops=10, utilisation=0.5)
    0.2
    """
    if not tflops > 0:
        raise ValueError(
            f"tflops is {tflops}: the peak of a GPU is above 0, such as 312 of an A100"
        )
    if not 0 < utilisation <= 1:
        raise ValueError(
            f"utilisation is {utilisation}: it is a part of the peak, above 0 and at most 1"
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
    """Return what every model on every data set takes.

    Parameters
    ----------
    tflops : float
        Peak of the GPU in 10^12 operations per second; by default that of an A100.
    utilisation : float
        The part of the peak that is reached: an assumption, by default a cautious one.
    forward : mapping of str to float
        Operations of one image forward, by model.
    datasets : sequence of str
        The sizes of their official archives are known.
    epochs, runs, validation
        Of the protocol.

    Examples
    --------
    >>> round(sum(each.hours for each in estimates(tflops=312, utilisation=0.15)))
    110
    """
    found = []
    for model, one in forward.items():
        for dataset in datasets:
            if dataset not in IMAGES:
                raise ValueError(f"datasets has {dataset!r}: it is none of {', '.join(IMAGES)}")
            train, test = IMAGES[dataset]
            kept = round(validation * train)
            flops = runs * training_flops(one, train - kept, kept + test, epochs)
            found.append(Estimate(dataset, model, runs, flops, hours(flops, tflops, utilisation)))
    return found


def words(
    tflops: float = PEAKS["A100"], utilisation: tuple[float, float] = (UTILISATION, MOST)
) -> tuple[str, ...]:
    """Say what the full protocol costs, and what that assumes.

    Parameters
    ----------
    tflops : float
        Peak of the GPU in 10^12 operations per second.
    utilisation : pair of float
        The smallest and the largest part of the peak that may be reached.
    """
    flops = sum(each.flops for each in estimates(tflops))
    least, most = utilisation
    slow, fast = hours(flops, tflops, least), hours(flops, tflops, most)
    return (
        f"The full protocol (two networks, three data sets, {RUNS} runs of 300 epochs) takes "
        f"{flops / 1e18:.0f} · 10¹⁸ floating point operations: three forward passes for each training image "
        "of an epoch, and one for each validation and test image. On one GPU with a peak of "
        f"{tflops:g} TFLOPS in 16 bits, of which {100 * least:.0f} to {100 * most:.0f} % are reached, these "
        f"are {fast:.0f} to {slow:.0f} hours.",
        "The operations are counted, in convolutions and linear layers and nothing else; all the rest is in "
        "what is not reached of the peak. What is reached of it is assumed: no GPU was timed. The paper's "
        f"own hours, around {GPU_HOURS:.0f} on V100, are no measure of it, since the published script "
        "trains in float32.",
    )
