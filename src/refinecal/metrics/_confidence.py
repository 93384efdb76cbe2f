"""Whether a model is too sure or not sure enough: the two parts of its calibration error."""

from __future__ import annotations  # so that help() shows types by name

from typing import Any, Unpack

import numpy as np

from refinecal._core.errors import check_keywords, fail_choice
from refinecal._core.sample import Sample
from refinecal.metrics.bins import bin_sums, check_bins
from refinecal.metrics.events import Floats, Inputs, events, read
from refinecal.metrics.tally import N_BINS

__all__ = ["overconfidence", "underconfidence"]

KINDS = ("auto", "binary", "top-label")
ROUNDING = 1e-12  # of a mean that is 1/2


@check_keywords(Inputs)
def overconfidence(
    y_true: Any,
    probs: Any = None,
    *,
    n_bins: int = N_BINS,
    strategy: str = "uniform",
    kind: str = "auto",
    **inputs: Unpack[Inputs],
) -> float:
    r"""Return the part of the calibration error that comes from bins where the model is too sure.

    It is :math:`\sum_b w_b \max(0, \bar c_b - \bar a_b)` over the bins of :func:`ece`, where
    :math:`\bar c_b` is the mean confidence in bin b, :math:`\bar a_b` the share that is right, and
    :math:`w_b` the share of the rows. Together with :func:`underconfidence` it is :func:`ece`.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    n_bins, strategy
        As for :func:`ece`.
    kind : {"auto", "binary", "top-label"}
        As for :func:`ece`. Of the second of two classes, a bin whose mean probability is below 1/2 speaks for
        the first class: 0.1 is too sure if the class happens more often than that.

    Returns
    -------
    float
        Between 0 and 1.

    Notes
    -----
    The overconfidence error of Thulasidasan et al. (NeurIPS 2019) multiplies each bin by its confidence too,
    and so is smaller; it adds up to no calibration error.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.metrics.overconfidence([1, 1, 0, 0], [1.0] * 4), 12)  # says 1, and 1/2 happens
    0.5
    """
    _check(n_bins, strategy, kind)
    return confidence_parts(read(y_true, probs, True, **inputs), n_bins, strategy, kind)[0]


@check_keywords(Inputs)
def underconfidence(
    y_true: Any,
    probs: Any = None,
    *,
    n_bins: int = N_BINS,
    strategy: str = "uniform",
    kind: str = "auto",
    **inputs: Unpack[Inputs],
) -> float:
    r"""Return the part of the calibration error that comes from bins where the model is not sure enough.

    It is :math:`\sum_b w_b \max(0, \bar a_b - \bar c_b)`, in the words of :func:`overconfidence`, which is
    the other part of :func:`ece`.

    Parameters
    ----------
    y_true, probs, n_bins, strategy, kind, **inputs
        As for :func:`overconfidence`.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.metrics.underconfidence([1, 1, 1, 1], [0.75] * 4), 12)  # says 3/4, and 1 happens
    0.25
    """
    _check(n_bins, strategy, kind)
    return confidence_parts(read(y_true, probs, True, **inputs), n_bins, strategy, kind)[1]


def _check(n_bins: Any, strategy: str, kind: str) -> None:
    check_bins(n_bins, strategy)
    if kind not in KINDS:
        fail_choice("kind", kind, list(KINDS[:-1]), repr(KINDS[-1]))


def confidence_parts(
    sample: Sample, n_bins: int = N_BINS, strategy: str = "uniform", kind: str = "auto"
) -> tuple[float, float]:
    """Return over- and underconfidence of checked probabilities."""
    sums = bin_sums(*events(sample, kind)[0], n_bins, strategy)
    return parts_of(sums, kind == "binary" or (kind == "auto" and sample.k == 2))


def parts_of(sums: Floats, binary: bool) -> tuple[float, float]:
    """Return both parts from the mass, scores and hits of each bin; (3, n_bins)."""
    mass, scores, hits = sums
    gaps = scores - hits
    if binary:  # below 1/2 the model speaks for the other class; at 1/2 it cannot be too sure
        side = scores - mass / 2
        side = np.where(np.abs(side) <= ROUNDING * mass, 0.0, np.sign(side))
        gaps = np.where(side == 0, -np.abs(gaps), side * gaps)
    total = mass.sum()
    return float(np.maximum(gaps, 0).sum() / total), float(np.maximum(-gaps, 0).sum() / total)
