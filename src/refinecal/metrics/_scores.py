"""Scores of whole predictions: losses, accuracy, ranking."""

from __future__ import annotations  # so that help() shows types by name

from typing import Any, Unpack

import numpy as np

from refinecal._checks import check_sample
from refinecal._ranking import areas_of_logits, mean_area
from refinecal._readers import check_threads
from refinecal._sample import Sample
from refinecal.losses import get_loss
from refinecal.metrics._shared import Inputs, check
from refinecal.resampling import losses_at
from refinecal.temperature import risk_of

__all__ = ["accuracy", "auroc", "brier_score", "log_loss"]


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
    return risk_of(check_sample(y_true, probs, devices=True, **inputs))


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
    return brier_of(check_sample(y_true, probs, **inputs))


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
    return accuracy_of(check_sample(y_true, probs, **inputs))


def auroc(y_true: Any, probs: Any = None, **inputs: Unpack[Inputs]) -> float:
    """Return the area under the ROC curve; for several classes the mean over one against the rest.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.

    Returns
    -------
    float
        A class without rows, or with nothing else beside it, is left out; NaN if no class is left.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.metrics.auroc([0, 1, 0, 1], [0.1, 0.4, 0.35, 0.8])
    1.0
    """
    threads = check_threads(None)
    return mean_area(check(y_true, probs, threads, **inputs).areas(threads))


# ---- of checked samples ----------------------------------------------------------------------------------


def brier_of(sample: Sample) -> float:
    return sample.mean(losses_at(sample, 1.0, get_loss("brier")))


def accuracy_of(sample: Sample) -> float:
    top = sample.logits.argmax(axis=1)
    if sample.soft is None:
        return sample.mean(top == sample.labels)
    return sample.mean(sample.soft[np.arange(sample.n), top])


def auroc_of(sample: Sample) -> float:
    return mean_area(areas_of_logits(sample))
