"""Smooth calibration error: no bins, and a bandwidth that the data choose."""

from __future__ import annotations  # so that help() shows types by name

from typing import Any, Unpack

import numpy as np

from refinecal._core.checks import check_keywords
from refinecal.metrics.events import Inputs, events, read
from refinecal.metrics.smoothing import smooth_ece_of

__all__ = ["smooth_ece"]


@check_keywords(Inputs)
def smooth_ece(
    y_true: Any, probs: Any = None, *, kind: str = "auto", **inputs: Unpack[Inputs]
) -> float:
    r"""Return the smooth calibration error: how far probabilities are from outcomes, smoothed.

    With probabilities :math:`p_i` and outcomes :math:`y_i` (1 if it happened, else 0), and
    :math:`K_\sigma` a Gaussian of width :math:`\sigma` that is reflected at 0 and 1, it is the one
    :math:`\sigma` with

    .. math:: \int_0^1 \Big| \frac1n \sum_i K_\sigma(t, p_i) (y_i - p_i) \Big| \, dt = \sigma.

    Unlike :func:`ece` it has no bins to choose, and does not jump when a probability moves a little. It
    bounds the distance to the nearest calibrated predictions from both sides, up to a constant and a square
    root.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    kind : {"auto", "binary", "top-label", "class-wise"}
        As for :func:`ece`: of the second of two classes, of the likeliest class, or the mean over the errors
        of all classes; by default the first for two classes, else the second.

    Returns
    -------
    float
        Between 0 and 1, with a relative error of at most 1e-6. Below 3e-5 the bandwidth is no longer
        resolved: a value there is the left side for that bandwidth, which is at most the true one.

    Notes
    -----
    One read of the rows, then a few short cosine transforms for each :math:`\sigma` that is tried.

    References
    ----------
    Błasiok, Nakkiran, "Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing", 2023,
    arXiv:2309.12236, definitions 1 and 2.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.metrics.smooth_ece([0, 1, 1, 1], [0.5] * 4), 12)  # says 1/2, and 3/4 happens
    0.25
    >>> round(rc.metrics.smooth_ece([0, 1, 1, 1], [0.75] * 4), 12)
    0.0
    """
    found = [smooth_ece_of(event) for event in events(read(y_true, probs, True, **inputs), kind)]
    return float(np.mean(found))
