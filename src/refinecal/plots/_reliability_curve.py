"""The numbers of a reliability diagram: how often what was said to happen did happen."""

from __future__ import annotations  # so that help() shows types by name

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtrik, betaincc

from refinecal._core.checks import check_sample
from refinecal._core.sample import Sample
from refinecal.metrics.bins import bin_numbers, bin_sums, check_bins, mean_distance
from refinecal.metrics.events import event_of_class, event_of_likeliest

__all__ = ["Reliability", "reliability_curve"]

Floats = NDArray[np.float64]
Strategy = Literal["quantile", "uniform"]

BAND = 0.9  # probability that a share lies in the consistency band
CELLS = 20  # of the histogram of scores


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """Scores in bins, and what came true in each. Empty bins are left out.

    Attributes
    ----------
    mean_score : ndarray of shape (b,)
        Mean score of the rows in each bin, increasing.
    share : ndarray of shape (b,)
        Share of these rows for which it came true.
    weight : ndarray of shape (b,)
        How many rows they are: the sum of their weights.
    low, high : ndarray of shape (b,)
        Consistency band: between them the share lies with a probability of 90 % if the scores are right.
    ece : float
        Expected calibration error with these bins: the mean of ``|share - mean_score|`` over rows.
    kind : str
        "binary", "top-label" or "class".
    label : object
        The class whose probability the score is; ``None`` for top-label.
    histogram : ndarray of shape (20,)
        Weight of the scores in cells of equal width from 0 to 1.
    """

    mean_score: Floats
    share: Floats
    weight: Floats
    low: Floats
    high: Floats
    ece: float
    kind: str
    label: Any
    histogram: Floats


def reliability_curve(
    y_true: Any,
    probs: Any = None,
    *,
    logits: Any = None,
    sample_weight: Any = None,
    classes: ArrayLike | None = None,
    kind: Any = "auto",
    n_bins: int = 15,
    strategy: Strategy = "quantile",
) -> Reliability:
    r"""Return how often events happened, by the probability that they were given.

    The consistency band of a bin with n rows and mean score p holds the quantiles 5 % and 95 % of the
    binomial law B(n, p), divided by n. Scores within a bin differ a little, which makes their share vary less
    than this law, so the band errs on the wide side.

    Parameters
    ----------
    y_true, probs, logits, sample_weight, classes
        As for :func:`refinecal.decompose`.
    kind : {"auto", "binary", "top-label"} or a class, default "auto"
        "binary" looks at the probability of the second of two classes, "top-label" at that of the likeliest
        class, and whether that is the label; a class at its probability against the rest. "auto" is
        "binary" for two classes, else "top-label".
    n_bins : int, default 15
        The largest number of bins.
    strategy : {"quantile", "uniform"}
        Bins of about equal weight, or of equal width, as for :func:`refinecal.metrics.ece`.

    Returns
    -------
    Reliability

    Examples
    --------
    >>> import refinecal as rc
    >>> found = rc.plots.reliability_curve([0, 1, 1, 1], [0.25, 0.25, 0.75, 0.75], n_bins=2)
    >>> found.mean_score.round(6), found.share, round(found.ece, 6)
    (array([0.25, 0.75]), array([0.5, 1. ]), 0.25)
    """
    check_bins(n_bins, strategy)
    sample = check_sample(y_true, probs, logits, sample_weight, classes)
    return curve_of(sample, kind, n_bins, strategy)


def curve_of(sample: Sample, kind: Any, n_bins: int, strategy: str) -> Reliability:
    """Return the reliability of checked predictions."""
    kind, column = _check_kind(kind, sample)
    event = event_of_likeliest(sample) if column is None else event_of_class(sample, column)
    sums = bin_sums(*event, n_bins, strategy)
    mass, totals, happened = sums[:, sums[0] > 0]
    mean_score = totals / mass
    bands = _consistency(mass, mean_score)
    label = None if column is None else class_names(sample)[column]
    cells = histogram(event.scores, sample.weights)
    ece = mean_distance(sums)
    return Reliability(mean_score, happened / mass, mass, *bands, ece, kind, label, cells)


def histogram(scores: Floats, weights: Floats | None = None) -> Floats:
    """Return the weight of the scores in cells of equal width."""
    return np.bincount(bin_numbers(scores, CELLS), weights, CELLS).astype(np.float64)


def class_names(sample: Sample) -> list[Any]:
    """Return the label of each column."""
    names = sample.columns if sample.classes is None else sample.classes.tolist()
    return list(range(sample.k)) if names is None else names


def _check_kind(kind: Any, sample: Sample) -> tuple[str, int | None]:
    """Return the kind of diagram, and the column whose probability is the score, if it is always the same."""
    names = class_names(sample)
    if kind == "auto":
        kind = "binary" if sample.k == 2 else "top-label"
    if kind == "top-label":
        return kind, None
    if kind == "binary":
        if sample.k != 2:
            raise ValueError(
                f"kind is 'binary', but there are {sample.k} classes: pass 'top-label', or one of the "
                f"classes {_some(names)}"
            )
        return kind, 1
    if kind not in names:
        raise ValueError(
            f"kind is {kind!r}: it must be 'auto', 'binary', 'top-label', or one of the classes "
            f"{_some(names)}"
        )
    return "class", names.index(kind)


def _some(names: list[Any]) -> str:
    """Return the first names, for a message."""
    return ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")


def _consistency(weight: Floats, mean_score: Floats) -> tuple[Floats, Floats]:
    """Return the ends of the consistency bands; weights are numbers of rows, to the nearest whole one."""
    n, p = np.maximum(np.round(weight), 1), np.clip(mean_score, 0, 1)
    tail = (1 - BAND) / 2
    return _quantile(tail, n, p) / n, _quantile(1 - tail, n, p) / n


def _quantile(q: float, n: Floats, p: Floats) -> Floats:
    """Return the smallest count whose binomial distribution function is at least q."""
    inside = np.clip(p, 1e-15, 1 - 1e-15)  # beyond, the count is as good as certain
    found = np.clip(np.ceil(bdtrik(q, n, inside)), 0, n)
    below = np.maximum(found - 1, 0)  # rounding may have lifted it by one
    at_most = betaincc(below + 1, n - below, inside)  # probability of so many or fewer
    found = np.where(at_most >= q, below, found)
    return np.asarray(np.where(p <= 0, 0.0, np.where(p >= 1, n, found)))
