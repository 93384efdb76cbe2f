"""How a network is trained on images: every number of the paper's protocol, as the defaults."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from refinecal._core.errors import fail_choice

__all__ = ["PRECISIONS", "SCHEDULES", "Recipe"]

SCHEDULES = ("step", "cosine")
PRECISIONS = ("auto", "float32", "bfloat16")
STEPS = 3  # equal parts of a training by the schedule "step"
FACTOR = 10  # by which the learning rate is divided after each

WHOLE = {"epochs": 1, "batch": 1, "crop": 0, "cutout": 0}  # and the least that they may be
MOST = 10**9
SWITCHES = ("nesterov", "flip", "channels_last")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to train, by SGD from the first epoch to the last.

    Parameters
    ----------
    dataset, model : str
        The name of the images and of the network.
    epochs : int
        How often all training images are seen.
    lr, momentum, weight_decay, nesterov
        Of SGD; ``lr`` is the learning rate of the first epoch.
    batch : int
        Images in one step, on all devices together. The last step of an epoch takes what is left; a single
        image goes with the step before it.
    schedule : {"step", "cosine"}
        Divide the learning rate by ten after each third of the epochs, or let it fall to 0 as a cosine does.
    crop, flip, cutout
        Augmentation: how many pixels of zeros to pad with before a random crop, whether to mirror half of the
        images, and the side of the square hole. 0 and ``False`` are without.
    validation : float
        The share of the training images that the best epoch is chosen by.
    precision : {"auto", "float32", "bfloat16"}
        Of the arithmetic of training; the weights are float32, and so is every prediction. By default
        bfloat16 where the device is fast at it.
    channels_last : bool
        Whether the channels of a pixel are side by side in memory, which GPUs prefer.
    limit_train : int, optional
        Take so many of the training images, at random, validation images included.

    Examples
    --------
    The learning rate of the paper's 300 epochs, which are counted from 1:

    >>> recipe = Recipe("cifar10", "resnet18")
    >>> [round(recipe.rate(epoch), 9) for epoch in (1, 100, 101, 200, 201, 300)]
    [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]

    References
    ----------
    Section 5 and appendix E of the paper. Its figure 1 has ``schedule="cosine", weight_decay=0``.
    """

    dataset: str
    model: str
    epochs: int = 300
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
        _check_choices(self)
        _check_numbers(self)
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov is True, but momentum is 0: give a momentum, such as 0.9")

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 1."""
        if not 1 <= epoch <= self.epochs:
            raise ValueError(f"epoch is {epoch}: epochs are counted from 1 to {self.epochs}")
        done = (epoch - 1) / self.epochs
        if self.schedule == "cosine":
            return self.lr * (1 + math.cos(math.pi * done)) / 2
        return self.lr / float(FACTOR ** (STEPS * (epoch - 1) // self.epochs))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, fit for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the recipe of these fields; those left out have their defaults."""
        known = [each.name for each in fields(cls)]
        for name in values:
            if name not in known:
                fail_choice("a field of the recipe", name, known, "left out")
        return cls(**values)


def _check_choices(recipe: Recipe) -> None:
    for name in ("dataset", "model"):
        value = getattr(recipe, name)
        if not isinstance(value, str) or not value:
            raise TypeError(
                f"{name} is {value!r}: it must be a name, such as 'cifar10' or 'resnet18'"
            )
    for name, known in (("schedule", SCHEDULES), ("precision", PRECISIONS)):
        if getattr(recipe, name) not in known:
            fail_choice(name, getattr(recipe, name), list(known[:-1]), repr(known[-1]))
    for name in SWITCHES:
        if not isinstance(getattr(recipe, name), bool):
            raise TypeError(f"{name} is {getattr(recipe, name)!r}: it must be True or False")


def _check_numbers(recipe: Recipe) -> None:
    for name, least in WHOLE.items():
        _check_whole(name, getattr(recipe, name), least)
    if recipe.limit_train is not None:
        _check_whole("limit_train", recipe.limit_train, 2)
    for name, most in (
        ("lr", math.inf),
        ("momentum", 1),
        ("weight_decay", math.inf),
        ("validation", 1),
    ):
        value = getattr(recipe, name)
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise TypeError(f"{name} is {value!r}: it must be a number")
        positive = name in ("lr", "validation")
        if not 0 <= float(value) < most or (positive and value == 0):
            low = "above 0" if positive else "at least 0"
            high = ", and finite" if most == math.inf else f" and below {most}"
            raise ValueError(f"{name} is {value!r}: it must be {low}{high}")


def _check_whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}: it must be a whole number")
    if value < least:
        raise ValueError(f"{name} is {value}: it must be at least {least}")
    if int(value) > MOST:
        raise ValueError(f"{name} is {value}: it must be at most {MOST}")
