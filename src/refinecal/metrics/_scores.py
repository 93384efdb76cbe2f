"""Scores of whole predictions: losses, accuracy, ranking."""

from __future__ import annotations  # so that help() shows types by name

import math
from typing import Any, Unpack

import numpy as np

from refinecal import _kernels
from refinecal._core.arrays import is_on_device
from refinecal._core.checks import check_sample
from refinecal._core.errors import check_keywords, fail_choice
from refinecal._core.sample import Sample
from refinecal._core.threads import check_threads
from refinecal.metrics._shared import Inputs, check, read
from refinecal.metrics.ranking import areas_of_logits, mean_area
from refinecal.metrics.scored import rows_at
from refinecal.temperature.fit import risk_of

__all__ = [
    "accuracy",
    "auroc",
    "brier_score",
    "error_rate",
    "log_loss",
    "spherical_loss",
]

AVERAGES = ("macro", "weighted", None)


@check_keywords(Inputs)
def log_loss(y_true: Any, probs: Any = None, **inputs: Unpack[Inputs]) -> float:
    """Return the mean of minus the log-probability of the label, without clipping.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.

    Returns
    -------
    float
        Infinite if a label has probability 0.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.metrics.log_loss([0, 1], [[0.5, 0.5]] * 2), 6)  # log 2
    0.693147
    """
    if is_logits(probs, inputs) or is_on_device(probs):
        return risk_of(check_sample(y_true, probs, devices=True, **inputs))
    return read(y_true, probs, **inputs).loss(_kernels.probs.LOG)


@check_keywords(Inputs)
def brier_score(y_true: Any, probs: Any = None, **inputs: Unpack[Inputs]) -> float:
    """Return the mean squared distance between prediction and label, summed over all classes.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.

    Returns
    -------
    float
        Between 0 and 2; for two classes twice the one-column form.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.metrics.brier_score([0, 1], [[0.5, 0.5]] * 2)
    0.5
    """
    if is_logits(probs, inputs):
        return brier_of(check_sample(y_true, probs, **inputs))
    return read(y_true, probs, **inputs).loss(_kernels.probs.BRIER)


@check_keywords(Inputs)
def spherical_loss(y_true: Any, probs: Any = None, **inputs: Unpack[Inputs]) -> float:
    r"""Return the mean of :math:`1 - p_y / \|p\|_2`: one minus the cosine between prediction and label.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.

    Returns
    -------
    float
        Between 0 and 1, smaller is better: one minus what is called the spherical score.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.metrics.spherical_loss([0, 1], [[0.6, 0.4], [1.0, 0.0]]), 6)  # (1 - .6/sqrt(.52) + 1) / 2
    0.583975
    """
    return 1 - read(y_true, probs, **inputs).loss(_kernels.probs.COSINE)


@check_keywords(Inputs)
def accuracy(y_true: Any, probs: Any = None, **inputs: Unpack[Inputs]) -> float:
    """Return the share of rows whose likeliest class is the label.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.

    Returns
    -------
    float
        Between 0 and 1; of classes that tie, the first counts.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.metrics.accuracy([0, 1, 1, 1], [0.2, 0.9, 0.6, 0.4])
    0.75
    """
    if is_logits(probs, inputs):
        return accuracy_of(check_sample(y_true, probs, **inputs))
    return read(y_true, probs, **inputs).accuracy


@check_keywords(Inputs)
def error_rate(y_true: Any, probs: Any = None, **inputs: Unpack[Inputs]) -> float:
    """Return the share of rows whose likeliest class is not the label: 1 - :func:`accuracy`.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.metrics.error_rate([0, 1, 1, 1], [0.2, 0.9, 0.6, 0.4])
    0.25
    """
    return 1 - accuracy(y_true, probs, **inputs)


@check_keywords(Inputs)
def auroc(
    y_true: Any, probs: Any = None, *, average: str | None = "macro", **inputs: Unpack[Inputs]
) -> Any:
    """Return the area under the ROC curve; for several classes the mean over one against the rest.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    average : {"macro", "weighted", None}
        The plain mean over classes, that by their shares, or the area of each class. Two classes have one
        area, that of the second.

    Returns
    -------
    float, or (k,) array without average
        A class without rows, or with nothing else beside it, is left out; NaN if no class is left.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.metrics.auroc([0, 1, 0, 1], [0.1, 0.4, 0.35, 0.8])
    1.0
    """
    if average not in AVERAGES:
        fail_choice("average", average, list(AVERAGES[:-1]), repr(AVERAGES[-1]))
    if is_logits(probs, inputs):
        sample = check_sample(y_true, probs, **inputs)
        areas = areas_of_logits(sample, check_threads(None))
    else:
        scored = check(y_true, probs, check_threads(None), **inputs)
        sample, areas = scored.sample, scored.areas(check_threads(None))
    if average == "weighted" and sample.k > 2:
        known = ~np.isnan(areas)
        return (
            float(np.average(areas[known], weights=sample.frequencies[known]))
            if known.any()
            else math.nan
        )
    return areas if average is None else mean_area(areas)


# ---- of checked samples ----------------------------------------------------------------------------------


def is_logits(probs: Any, inputs: Inputs) -> bool:
    """Tell whether predictions were given as logits, which some metrics need not turn into probabilities."""
    return probs is None and inputs.get("logits") is not None


def brier_of(sample: Sample) -> float:
    """Return Brier's score of a checked sample."""
    return sample.mean(rows_at(sample, 1.0, check_threads(None), log=False)[0])


def accuracy_of(sample: Sample) -> float:
    """Return the accuracy of a checked sample, by its logits."""
    top = sample.logits.argmax(axis=1)
    if sample.soft is None:
        return sample.mean(top == sample.labels)
    return sample.mean(sample.soft[np.arange(sample.n), top])


def auroc_of(sample: Sample) -> float:
    """Return the area under the ROC curve of a checked sample."""
    return mean_area(areas_of_logits(sample))
