"""Lp calibration errors by the variational formula: what a calibrator corrects out of fold."""

from __future__ import annotations  # so that help() shows types by name

import math
import numbers
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from refinecal._core.arrays import check_threads
from refinecal._core.checks import check_keywords
from refinecal._core.errors import fail_choice
from refinecal._core.sample import Sample, against_rest, log_odds, log_softmax
from refinecal.calibrators.base import as_calibrator
from refinecal.decomposition import check_cv, fit_folds
from refinecal.metrics.events import Inputs, read

Floats = NDArray[np.float64]
KINDS = ("auto", "all", "binary", "top-label", "class-wise")
FORMS = ("root", "power", "norm")
MANY = 100  # classes: default calibrators for two, up to this many, and more
OF_TWO, OF_MORE, OF_MANY = "venn-abers", "structured-matrix", "structured-vector"


@check_keywords(Inputs)
def lp_calibration_error(
    y_true: Any,
    probs: Any = None,
    *,
    p: float = 1,
    form: str = "root",
    kind: str = "auto",
    calibrator: Any = None,
    cv: Any = 5,
    groups: Any = None,
    **inputs: Unpack[Inputs],
) -> float:
    r"""Return a lower bound of an Lp calibration error: the distance to calibrated predictions.

    The error is the mean of a convex N, such as :math:`\|v\|_p^p`, of the unknown
    :math:`c_i = \mathrm E[y | p_i] - p_i`. For any guess h of c, convexity gives
    :math:`N(c) \ge N(h) + \langle \nabla N(h), c - h \rangle`, with equality for h = c. In expectation the
    right side does not change when c is replaced by :math:`y_i - p_i`, if h has not seen :math:`y_i`. So with
    a calibrator g fitted on other rows, :math:`h_i = g(p_i) - p_i`,

    .. math:: \frac1n \sum_i \big( N(h_i) + \langle \nabla N(h_i), (y_i - p_i) - h_i \rangle \big)

    never exceeds the error in expectation, and equals it if g is :math:`\mathrm E[y | p]`. For
    :math:`N = \|v\|_2^2` it is the Brier score that g removes; for a norm it simplifies to
    :math:`\langle \nabla N(h_i), y_i - p_i \rangle`. It has no bins and no upward bias.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    p : float, default 1
        At least 1; infinity for ``form="norm"`` only.
    form : {"root", "power", "norm"}
        :math:`(\frac1n \sum_i \|c_i\|_p^p)^{1/p}`; the same without the root; or
        :math:`\frac1n \sum_i \|c_i\|_p`. All the same for p = 1.
    kind : {"auto", "all", "binary", "top-label", "class-wise"}
        What c is: a vector of all classes; a number, of the second of two classes, or of the likeliest class
        given its probability; or the mean of the errors of all classes, each given its own probability. By
        default "binary" for two classes, else "all".
    calibrator : name or object with ``fit`` and ``predict_proba``, optional
        As for :func:`refinecal.decompose`; the better it fits, the closer the estimate. By default
        "venn-abers" where c is a number, "structured-matrix" where it is a vector, and
        "structured-vector" for more than 100 classes.
    cv : int, splitter or None, default 5
        As for :func:`refinecal.decompose`. ``None`` fits on the same rows, which overestimates the error.
    groups : array-like, optional
        For a splitter that keeps groups together.

    Returns
    -------
    float
        May be negative by chance if there is nothing to correct; a root is then 0.

    References
    ----------
    Berta, Holzmüller, Jordan, Bach, "Rethinking Early Stopping: Refine, Then Calibrate", theorem 3.4: the
    same for proper losses.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.metrics.lp_calibration_error([0, 1, 1, 1] * 5, [0.5] * 20)  # predicts 1/2, observes 3/4
    0.25
    """
    check_form(p, form, kind)
    sample = read(y_true, probs, **inputs)
    return lp_error(sample, p, form, kind, calibrator, cv, groups)


def lp_error(
    sample: Sample,
    p: float = 1,
    form: str = "root",
    kind: str = "auto",
    calibrator: Any = None,
    cv: Any = 5,
    groups: Any = None,
) -> float:
    """Return the Lp calibration error of a checked sample."""
    kind = ("binary" if sample.k == 2 else "all") if kind == "auto" else kind
    parts = _parts(sample, kind)
    if calibrator is None:
        k = parts[0].k
        calibrator = OF_TWO if k == 2 else OF_MORE if k <= MANY else OF_MANY
    first = 0 if kind == "all" else 1  # for two classes, one number is enough
    found = []
    for part in parts:
        gaps, guess = _gaps(part, calibrator, cv, groups)
        mean = part.mean(lower_bound(guess[:, first:], gaps[:, first:], p, form != "norm"))
        found.append(max(mean, 0) ** (1 / p) if form == "root" and p > 1 else mean)
    return float(np.mean(found))


def check_form(p: Any, form: str, kind: str) -> None:
    """Raise for an invalid p, form or kind."""
    for name, value, known in (("form", form, FORMS), ("kind", kind, KINDS)):
        if value not in known:
            fail_choice(name, value, known)
    if isinstance(p, bool) or not isinstance(p, numbers.Real) or not float(p) >= 1:
        raise ValueError(f"p is {p!r}: it must be a number of at least 1")
    if math.isinf(p) and form != "norm":
        raise ValueError("p is inf, which has no p-th power: pass form='norm'")


def lower_bound(guess: Floats, gaps: Floats, p: float, power: bool) -> Floats:
    r"""Return :math:`N(h) + \langle \nabla N(h), y - p - h \rangle` of each row.

    ``guess`` is h and ``gaps`` is y - p, both (n, k); N is the p-norm, or its p-th power.
    """
    sizes = np.abs(guess)
    if power:
        slopes = p * np.sign(guess) * sizes ** (p - 1)
        return np.asarray((slopes * gaps).sum(axis=1) - (p - 1) * (sizes**p).sum(axis=1))
    largest = sizes.max(axis=1, keepdims=True)
    shares = sizes / np.where(largest > 0, largest, 1)
    if math.isinf(p):  # the mean of the slopes at the largest entries
        slopes = np.sign(guess) * (shares == 1)
        slopes /= np.maximum(np.abs(slopes).sum(axis=1, keepdims=True), 1)
    else:
        lengths = (shares**p).sum(axis=1, keepdims=True)
        slopes = np.sign(guess) * shares ** (p - 1) / np.maximum(lengths, 1) ** (1 - 1 / p)
    return np.asarray((slopes * gaps).sum(axis=1))


def _gaps(sample: Sample, calibrator: Any, cv: Any, groups: Any) -> tuple[Floats, Floats]:
    """Return labels minus probabilities, and the calibrator's estimate of it; both (n, k)."""
    probs = np.exp(log_softmax(sample.logits.astype(np.float64)))
    guess = _calibrate_out_of_fold(sample, calibrator, cv, groups) - probs
    labels = np.eye(sample.k)[sample.labels] if sample.soft is None else sample.soft
    return labels - probs, guess


def _calibrate_out_of_fold(sample: Sample, calibrator: Any, cv: Any, groups: Any) -> Floats:
    """Return out-of-fold calibrated probabilities (n, k)."""
    unfitted, threads = as_calibrator(calibrator), check_threads(None)
    if isinstance(cv, str):
        raise ValueError(f"cv is {cv!r}: pass a number of folds, such as cv=5, or a splitter")
    check_cv(cv, groups, unfitted)
    if cv is None:
        unfitted._warn_if_light(sample)
        fitted = unfitted._fit_sample(sample, threads)
        return np.asarray(np.exp(fitted._log_proba(sample.logits.astype(np.float64))))
    found = np.empty(sample.logits.shape)
    for one, test in fit_folds(unfitted, sample, cv, groups, threads):
        found[test] = np.exp(one._log_proba(sample.logits[test].astype(np.float64)))
    return found


def _parts(sample: Sample, kind: str) -> list[Sample]:
    """Return the sample itself, or the two-class problems in it."""
    if kind == "binary" and sample.k != 2:
        raise ValueError(
            f"kind is 'binary', but there are {sample.k} classes: use 'all', 'top-label' or 'class-wise'"
        )
    if kind in ("all", "binary"):
        return [sample]
    logits = sample.logits.astype(np.float64)
    odds, rows = log_odds(logits), np.arange(sample.n)
    if kind == "class-wise":
        return [against_rest(sample, odds[:, j], np.full(sample.n, j)) for j in range(sample.k)]
    top = logits.argmax(axis=1)
    return [against_rest(sample, odds[rows, top], top)]
