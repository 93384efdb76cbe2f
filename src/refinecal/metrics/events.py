"""The common arguments of metrics, and the events whose calibration is measured."""

from __future__ import annotations  # so that help() shows types by name

from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.checks import check_sample
from refinecal._core.errors import fail_choice
from refinecal._core.sample import NOTHING, Sample

Floats = NDArray[np.float64]
KINDS = ("auto", "binary", "top-label", "class-wise")


class Inputs(TypedDict, total=False):
    """The keywords of every metric."""

    logits: Any
    sample_weight: Any
    classes: ArrayLike | None


def read(
    y_true: Any, probs: Any = None, likeliest: bool = False, **inputs: Unpack[Inputs]
) -> Sample:
    """Return the checked arguments of a metric; a sample is returned unchanged."""
    if isinstance(y_true, Sample):
        return y_true
    return check_sample(y_true, probs, likeliest=likeliest, **inputs)


class Event(NamedTuple):
    """Probabilities of an event, and whether it happened."""

    scores: Floats
    hits: Floats  # 0 or 1; for soft labels the share
    weights: Floats  # empty without sample weights

    @property
    def total(self) -> float:
        return float(self.weights.sum()) if self.weights.size else float(len(self.scores))


def event_of(sample: Sample, j: int | None = None) -> Event:
    """Return the event that the label is class j, or the likeliest class of its row."""
    weights = NOTHING if sample.weights is None else sample.weights
    if j is None:
        return Event(*sample.likeliest, weights)
    hits = sample.labels == j if sample.soft is None else sample.soft[:, j]
    return Event(np.minimum(sample.probs[:, j], 1), hits.astype(np.float64), weights)


def events(sample: Sample, kind: str = "auto") -> list[Event]:
    """Return the events of a kind of calibration error: one, or one per class."""
    if kind not in KINDS:
        fail_choice("kind", kind, KINDS)
    if kind == "binary" and sample.k != 2:
        raise ValueError(
            f"kind is 'binary', but there are {sample.k} classes: use 'top-label' or 'class-wise'"
        )
    if kind == "class-wise":
        return [event_of(sample, j) for j in range(sample.k)]
    if kind == "binary" or (kind == "auto" and sample.k == 2):
        return [event_of(sample, 1)]
    return [event_of(sample)]
