"""How a network is trained on images: every number of the paper's protocol, as the defaults."""

from __future__ import annotations

import math
import numbers
from dataclasses import asdict, dataclass
from typing import Any

from refinecal._core.errors import fail_choice

OPTIMIZERS = ("sgd", "adamw")
ONLY_SGD = ("momentum", "nesterov")
SCHEDULES = ("step", "cosine", "constant")
PRECISIONS = ("auto", "float32", "bfloat16")
STEPS = 3  # equal parts of a training run by the schedule "step"
FACTOR = 10  # by which the learning rate is divided after each

LEAST = {"epochs": 1, "batch": 1, "crop": 0, "cutout": 0, "limit_train": 2}  # of whole numbers
MOST = 10**9
BELOW = {"lr": math.inf, "momentum": 1, "weight_decay": math.inf, "validation": 1}  # of real ones
POSITIVE = ("lr", "validation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to train, from the first epoch to the last.

    Parameters
    ----------
    epochs : int
        How often all training images are seen.
    optimizer : {"sgd", "adamw"}
        SGD has ``momentum`` and perhaps ``nesterov``, which AdamW has not.
    lr, weight_decay
        Of the optimizer; ``lr`` is the learning rate of the first epoch.
    batch : int
        Images in one step, on all devices together. The last step of an epoch takes the rest; a single
        image is added to the step before it.
    schedule : {"step", "cosine", "constant"}
        Divide the learning rate by ten after each third of the epochs, let it fall to 0 as a cosine does, or
        leave it as it is.
    crop, flip, cutout
        Augmentation: how many pixels of zeros to pad with before a random crop, whether to mirror half of the
        images, and the side of the square hole. 0 and ``False`` are without.
    validation : float
        The share of the training images that the best epoch is chosen by.
    precision : {"auto", "float32", "bfloat16"}
        Of the arithmetic of training; weights and predictions are float32. By default bfloat16 where the
        device is fast at it.
    channels_last : bool
        Whether the channels of a pixel are adjacent in memory, which GPUs prefer.
    limit_train : int, optional
        Use this many of the training images, at random, validation images included.

    References
    ----------
    Section 5 and appendix E of the paper. Its figure 1 has ``schedule="cosine", weight_decay=0``.
    """

    epochs: int = 300
    optimizer: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    nesterov: bool = False
    batch: int = 128
    schedule: str = "step"
    crop: int = 4
    flip: bool = True
    cutout: int = 16
    validation: float = 0.1
    precision: str = "auto"
    channels_last: bool = True
    limit_train: int | None = None

    def __post_init__(self) -> None:
        choices = {"optimizer": OPTIMIZERS, "schedule": SCHEDULES, "precision": PRECISIONS}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                fail_choice(name, getattr(self, name), list(known[:-1]), repr(known[-1]))
        for name, least in LEAST.items():
            value = getattr(self, name)
            if name == "limit_train" and value is None:
                continue
            if not isinstance(value, numbers.Integral) or isinstance(value, bool):
                raise TypeError(f"{name} is {value!r}: it must be a whole number")
            if not least <= int(value) <= MOST:
                raise ValueError(
                    f"{name} is {value}: it must be at least {least} and at most {MOST}"
                )
        for name, most in BELOW.items():
            value = getattr(self, name)
            if not isinstance(value, numbers.Real) or isinstance(value, bool):
                raise TypeError(f"{name} is {value!r}: it must be a number")
            if not 0 <= float(value) < most or (name in POSITIVE and value == 0):
                low = "above 0" if name in POSITIVE else "at least 0"
                high = "finite" if most == math.inf else f"below {most}"
                raise ValueError(f"{name} is {value!r}: it must be {low} and {high}")
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov is True, but momentum is 0: give a momentum, such as 0.9")


@dataclass(frozen=True, slots=True)
class Recipe(Settings):
    """How to train one network on one data set; the settings are those of :class:`Settings`.

    Examples
    --------
    The learning rate of the paper's 300 epochs, which are counted from 1:

    >>> recipe = Recipe("cifar10", "resnet18")
    >>> [round(recipe.rate(epoch), 9) for epoch in (1, 100, 101, 200, 201, 300)]
    [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    """

    dataset: str
    model: str

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 1."""
        if not 1 <= epoch <= self.epochs:
            raise ValueError(f"epoch is {epoch}: epochs are counted from 1 to {self.epochs}")
        done = (epoch - 1) / self.epochs
        if self.schedule == "cosine":
            return self.lr * (1 + math.cos(math.pi * done)) / 2
        if self.schedule == "constant":
            return self.lr
        return self.lr / float(FACTOR ** (STEPS * (epoch - 1) // self.epochs))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, fit for JSON; without the optimizer if it is the paper's."""
        found = asdict(self)
        if self.optimizer == OPTIMIZERS[0]:
            del found["optimizer"]
        return found
