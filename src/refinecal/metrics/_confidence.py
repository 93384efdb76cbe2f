"""Whether a model is too sure or not sure enough: the two parts of its calibration error."""

from __future__ import annotations  # so that help() shows types by name

from typing import Any, Unpack

from refinecal._core.checks import check_keywords
from refinecal._core.errors import fail_choice
from refinecal.metrics.bins import bin_sums, check_bins, confidence_parts
from refinecal.metrics.events import Inputs, events, read
from refinecal.metrics.tally import N_BINS

__all__ = ["overconfidence", "underconfidence"]

KINDS = ("auto", "binary", "top-label")


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
    return _both_parts(y_true, probs, n_bins, strategy, kind, inputs)[0]


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
    return _both_parts(y_true, probs, n_bins, strategy, kind, inputs)[1]


def _both_parts(
    y_true: Any, probs: Any, n_bins: int, strategy: str, kind: str, inputs: Inputs
) -> tuple[float, float]:
    """Return over- and underconfidence."""
    check_bins(n_bins, strategy)
    if kind not in KINDS:
        fail_choice("kind", kind, list(KINDS[:-1]), repr(KINDS[-1]))
    sample = read(y_true, probs, True, **inputs)
    sums = bin_sums(*events(sample, kind)[0], n_bins, strategy)
    return confidence_parts(sums, kind == "binary" or (kind == "auto" and sample.k == 2))
