"""Losses, accuracy and AUROC."""

from __future__ import annotations  # so that help() shows types by name

import math
from collections.abc import Callable
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.arrays import check_threads, map_rows
from refinecal._core.checks import check_keywords
from refinecal._core.errors import fail_choice
from refinecal._core.sample import NOTHING, Sample, readonly
from refinecal.losses import get_loss, losses_at
from refinecal.metrics.events import Inputs, read
from refinecal.metrics.tally import areas_of, mean_area
from refinecal.temperature.fit import risk_of

AVERAGES = ("macro", "weighted", None)


@check_keywords(Inputs)
def log_loss(y_true: Any, probs: Any = None, **inputs: Unpack[Inputs]) -> float:
    r"""Return the mean of minus the log-probability of the label, without clipping.

    .. math:: -\tfrac1n \sum_i \log p_{i y_i}

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
    sample = read(y_true, probs, **inputs)
    if sample.given is None:
        return risk_of(sample)
    return _mean_over_rows(sample, _kernels.probs.add_logs, sample.row_sums)


@check_keywords(Inputs)
def brier_score(y_true: Any, probs: Any = None, **inputs: Unpack[Inputs]) -> float:
    r"""Return the mean squared distance between prediction and label, summed over all classes.

    .. math:: \tfrac1n \sum_i \sum_j (p_{ij} - [y_i = j])^2

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
    sample = read(y_true, probs, **inputs)
    if sample.given is None:
        return sample.mean(losses_at(sample, 1.0, get_loss("brier")))
    return _mean_over_rows(sample, _kernels.probs.add_briers)


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
        Between 0 and 1, smaller is better: one minus the spherical score.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.metrics.spherical_loss([0, 1], [[0.6, 0.4], [1.0, 0.0]]), 6)  # (1 - .6/sqrt(.52) + 1) / 2
    0.583975
    """
    return 1 - _mean_over_rows(read(y_true, probs, **inputs), _kernels.probs.add_cosines)


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
        Between 0 and 1; ties are resolved in favor of the first class.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.metrics.accuracy([0, 1, 1, 1], [0.2, 0.9, 0.6, 0.4])
    0.75
    """
    sample = read(y_true, probs, True, **inputs)
    if sample.given is not None:
        return sample.mean(sample.likeliest[1])
    top = sample.logits.argmax(axis=1)
    return sample.mean(
        top == sample.labels if sample.soft is None else sample.soft[np.arange(sample.n), top]
    )


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
    """Return the area under the ROC curve; for several classes the one-vs-rest mean.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    average : {"macro", "weighted", None}
        The mean over classes, that weighted by class frequencies, or the area of each class. For two classes,
        the area of the second.

    Returns
    -------
    float, or (k,) array without average
        Classes without rows, or with all rows, are ignored; NaN if no class is left.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.metrics.auroc([0, 1, 0, 1], [0.1, 0.4, 0.35, 0.8])
    1.0
    """
    if average not in AVERAGES:
        fail_choice("average", average, AVERAGES)
    sample = read(y_true, probs, **inputs)
    areas = areas_of(sample, check_threads(None))
    if average == "weighted" and sample.k > 2:
        known = ~np.isnan(areas)
        if not known.any():
            return math.nan
        return float(np.average(areas[known], weights=sample.frequencies[known]))
    return areas if average is None else mean_area(areas)


def _mean_over_rows(
    sample: Sample, add_up: Callable[..., float], *more: NDArray[np.float64]
) -> float:
    """Return the mean of the sums of a compiled loop over probabilities, labels, soft labels, weights."""
    soft = np.empty((0, sample.k)) if sample.soft is None else np.ascontiguousarray(sample.soft)
    weights = NOTHING if sample.weights is None else sample.weights
    arrays = [readonly(each) for each in (sample.probs, sample.labels, soft, weights)]
    size = sample.probs.size
    sums = map_rows(add_up, sample.n, size, sample.threads, *arrays, *more)
    return float(sum(sums)) / sample.total
