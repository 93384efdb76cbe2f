"""Calibrators, ours and others', one file per package, each with a table ``METHODS``.

A method is a function that is given the validation :class:`Part`, learns, and returns a function from the
test part to probabilities ``(n, k)``. Both calls are timed. What a package would rather be given (logits,
probabilities, tensors) is made before, untimed, by the attributes of the part.
"""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

OURS, NONE = "refinecal", "none"
PACKAGES = ("ours", "scikit_learn", "from_probmetrics", "from_netcal", "single")
REFERENCES = ("refinecal auto", "refinecal temperature")  # others are compared with these


@dataclass(frozen=True)
class Part:
    """Logits and labels, with the same as probabilities and of other types."""

    logits: NDArray[np.float32]
    labels: NDArray[np.int64]

    @property
    def k(self) -> int:
        """The number of classes."""
        return int(self.logits.shape[1])

    @cached_property
    def probs(self) -> NDArray[np.float64]:
        """Probabilities in double precision."""
        return np.asarray(softmax(self.logits.astype(np.float64), axis=1))

    def column(self, at: int) -> "Part":
        """Return the part of two classes: this one, and all the others."""
        prob = self.probs[:, at]
        with np.errstate(divide="ignore"):
            odds = np.log(prob) - np.log1p(-prob)
        logits = np.stack([np.zeros(len(odds)), np.clip(odds, -700, 700)], axis=1)
        return Part(logits, (self.labels == at).astype(np.int64))


Predict = Callable[[Part], NDArray[np.floating]]
Method = Callable[[Part], Predict]


def one_vs_rest(method: Method) -> Method:
    """Return a method for any number of classes: one class against the rest, then rows sum to 1."""

    def fit(part: Part) -> Predict:
        if part.k == 2:
            return method(part)
        columns = [method(part.column(at)) for at in range(part.k)]

        def predict(new: Part) -> NDArray[np.floating]:
            scores = [each(new.column(at))[:, 1] for at, each in enumerate(columns)]
            return normalised(np.stack(scores, axis=1))

        return predict

    return fit


def normalised(scores: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return rows divided by their sums; a row of zeros becomes uniform."""
    total = scores.sum(axis=1, keepdims=True)
    flat = np.full_like(scores, 1 / scores.shape[1])
    return np.divide(scores, total, out=flat, where=total > 0)


def methods(paper: bool = False) -> Iterator[tuple[str, Method]]:
    """Yield the name and the function of every method whose package is installed.

    With ``paper`` also those that only its figures show.
    """
    yield NONE, lambda part: lambda new: new.probs
    for module in PACKAGES:
        try:
            loaded = importlib.import_module(f"{__name__}.{module}")
        except ModuleNotFoundError:
            continue
        yield from loaded.METHODS.items()
        if paper:
            yield from getattr(loaded, "PAPER", {}).items()


def missing() -> dict[str, str]:
    """Return the package that each module misses, where it misses one."""
    found = {}
    for module in PACKAGES:
        try:
            importlib.import_module(f"{__name__}.{module}")
        except ModuleNotFoundError as error:
            found[module] = error.name or str(error)
    return found


def package(method: str) -> str:
    """Return the package that a method belongs to.

    >>> package("probmetrics sms")
    'probmetrics'
    """
    return method.split(maxsplit=1)[0]
