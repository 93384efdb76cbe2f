"""Losses, accuracy, AUROC, precision and recall, and which classes are confused."""

from __future__ import annotations  # so that help() shows types by name

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.arrays import check_threads, map_rows
from refinecal._core.checks import check_keywords
from refinecal._core.errors import fail_choice
from refinecal._core.sample import NOTHING, Sample, readonly
from refinecal.losses import get_loss, losses_at
from refinecal.metrics.events import Inputs, event_of, read
from refinecal.metrics.tally import areas_of, mean_area
from refinecal.temperature.fit import risk_of

Floats = NDArray[np.float64]
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


# ---- classes that are confused, and rare ones: counted by scikit-learn -------------------------------------


@check_keywords(Inputs)
def confusion_matrix(y_true: Any, probs: Any = None, **inputs: Unpack[Inputs]) -> NDArray[Any]:
    """Return how many rows of each label have each class as the likeliest.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.

    Returns
    -------
    ndarray of shape (k, k)
        Rows are labels, columns likeliest classes (ties: the first). Counts; sums of weights if there are
        sample weights or soft labels.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.metrics.confusion_matrix([0, 1, 1, 1], [0.2, 0.9, 0.6, 0.4])
    array([[1, 0],
           [1, 2]])
    """
    from sklearn.metrics import confusion_matrix as count_pairs

    sample = read(y_true, probs, **inputs)
    top, every = sample.probs.argmax(axis=1), np.arange(sample.k)
    if sample.soft is None:
        found = count_pairs(sample.labels, top, labels=every, sample_weight=sample.weights)
    else:  # each row once for every class, with the weight of its share
        weights = sample.soft if sample.weights is None else sample.soft * sample.weights[:, None]
        labels = np.tile(every, sample.n)
        found = count_pairs(
            labels, top.repeat(sample.k), labels=every, sample_weight=weights.ravel()
        )
    return np.asarray(found)


@dataclass(frozen=True, slots=True, eq=False)
class PrecisionRecall:
    """How well one class is found at every threshold of its probability.

    Attributes
    ----------
    label : object
        The class.
    share : float
        Weighted share of its rows: the precision of random predictions.
    precision, recall : ndarray of shape (m + 1,)
        At each threshold; the last pair is (1, 0), without a threshold.
    thresholds : ndarray of shape (m,)
        Increasing.
    average_precision : float
        Mean precision over the steps of recall; NaN without rows of the class.
    """

    label: Any
    share: float
    precision: Floats
    recall: Floats
    thresholds: Floats
    average_precision: float


@check_keywords(Inputs)
def precision_recall_curve(
    y_true: Any, probs: Any = None, *, label: Any = None, **inputs: Unpack[Inputs]
) -> PrecisionRecall:
    """Return precision and recall of a class, one-vs-rest, at every threshold of its probability.

    Where a class is rare, this shows what a ROC curve hides: how many of the rows that are predicted as it
    are false alarms.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    label : object, optional
        The class; by default the second of two.

    Examples
    --------
    >>> import refinecal as rc
    >>> found = rc.metrics.precision_recall_curve([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> found.precision, round(found.average_precision, 6)  # (1 + 2/3) / 2
    (array([0.5       , 0.66666667, 0.5       , 1.        , 1.        ]), 0.833333)
    """
    sample = read(y_true, probs, **inputs)
    labels = list(range(sample.k) if sample.classes is None else sample.classes.tolist())
    if label is None and sample.k == 2:
        label = labels[1]
    if label not in labels:
        known = ", ".join(map(repr, labels))
        raise ValueError(f"label is {label!r}, which is not one of the classes {known}: pass one")
    return curve_of_class(sample, labels.index(label), label)


@check_keywords(Inputs)
def average_precision(
    y_true: Any, probs: Any = None, *, average: str | None = "macro", **inputs: Unpack[Inputs]
) -> Any:
    """Return the area under the precision-recall curve; for several classes the one-vs-rest mean.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    average : {"macro", "weighted", None}
        The mean over classes, that weighted by class frequencies, or the value of each class. For two
        classes, that of the second.

    Returns
    -------
    float, or (k,) array without average
        Classes without rows are ignored; NaN if no class is left.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.metrics.average_precision([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 6)
    0.833333
    """
    if average not in AVERAGES:
        fail_choice("average", average, AVERAGES)
    sample = read(y_true, probs, **inputs)
    if average is not None and sample.k == 2:
        return curve_of_class(sample, 1, 1).average_precision
    found = np.array([curve_of_class(sample, j, j).average_precision for j in range(sample.k)])
    known = ~np.isnan(found)
    if average is None or not known.any():
        return found if average is None else math.nan
    weights = sample.frequencies[known] if average == "weighted" else None
    return float(np.average(found[known], weights=weights))


def curve_of_class(sample: Sample, j: int, label: Any) -> PrecisionRecall:
    """Return the curve of the class in column j."""
    from sklearn.metrics import precision_recall_curve as count_thresholds

    scores, hits, weights = event_of(sample, j)
    weights = weights if weights.size else np.ones(len(scores))
    share = float(weights @ hits / weights.sum())
    if share == 0:
        return PrecisionRecall(label, 0.0, np.empty(0), np.empty(0), np.empty(0), math.nan)
    if sample.soft is not None:  # each row as a hit and as a miss, with the weights of their shares
        scores = np.concatenate([scores, scores])
        weights = np.concatenate([weights * hits, weights * (1 - hits)])
        hits = np.repeat([1.0, 0.0], sample.n)
    precision, recall, thresholds = count_thresholds(hits, scores, sample_weight=weights)
    area = float(-(np.diff(recall) @ precision[:-1]))
    return PrecisionRecall(label, share, precision, recall, thresholds, area)


# ---- means -------------------------------------------------------------------------------------------------


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
