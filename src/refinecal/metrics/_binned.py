"""Calibration errors in bins of probability."""

from __future__ import annotations  # so that help() shows types by name

import numbers
from typing import Any, Unpack

from refinecal._binned import KINDS, STRATEGIES, binned_error
from refinecal._checks import fail_choice
from refinecal._readers import check_threads
from refinecal._scored import N_BINS
from refinecal.metrics._shared import Inputs, check

__all__ = ["ece"]


def ece(
    y_true: Any,
    probs: Any = None,
    *,
    n_bins: int = N_BINS,
    strategy: str = "uniform",
    kind: str = "auto",
    **inputs: Unpack[Inputs],
) -> float:
    r"""Return the expected calibration error: how far probabilities are from frequencies, in bins.

    With the rows of bin b weighing :math:`w_b`, having mean probability :math:`\bar p_b` and the class in a
    share :math:`\bar y_b` of them, it is :math:`\sum_b w_b |\bar p_b - \bar y_b| / \sum_b w_b`.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    n_bins : int, default 15
        Number of bins.
    strategy : {"uniform", "quantile"}
        Bins of equal width, bin b holding b/n_bins < p <= (b + 1)/n_bins; or of equal mass, equal
        probabilities never in two bins.
    kind : {"auto", "binary", "top-label", "class-wise"}
        Of the second of two classes, of the likeliest class, or the mean over the errors of all classes;
        by default the first for two classes, else the second.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.metrics.ece([0, 1, 1, 1], [0.5] * 4), 12)  # says 1/2, and 3/4 happens
    0.25
    """
    _check_choices(n_bins, strategy, kind)
    scored = check(y_true, probs, check_threads(None), **inputs)
    kind = ("binary" if scored.sample.k == 2 else "top-label") if kind == "auto" else kind
    if kind == "binary" and scored.sample.k != 2:
        raise ValueError(
            f"kind is 'binary', but there are {scored.sample.k} classes: use 'top-label' or 'class-wise'"
        )
    return binned_error(scored.columns, scored.labels, scored.weights, n_bins, strategy, kind)


def _check_choices(n_bins: Any, strategy: str, kind: str) -> None:
    if isinstance(n_bins, bool) or not isinstance(n_bins, numbers.Integral) or n_bins < 1:
        raise ValueError(f"n_bins is {n_bins!r}: it must be a whole number of at least 1")
    for name, value, known in (("strategy", strategy, STRATEGIES), ("kind", kind, KINDS)):
        if value not in known:
            fail_choice(name, value, list(known[:-1]), repr(known[-1]))
