"""Decompose a loss into calibration and refinement error."""

from __future__ import annotations  # so that help() shows types by name

import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.arrays import check_threads
from refinecal._core.checks import check_keywords, check_sample, check_scores
from refinecal._core.errors import warn
from refinecal._core.sample import Sample, on_cpu
from refinecal.calibrators import Calibrator
from refinecal.calibrators.base import as_calibrator
from refinecal.losses import LogLoss, ProperLoss, get_loss, losses_at, row_losses
from refinecal.resampling import folds, leave_one_out
from refinecal.temperature.fit import MAX_BETA, mix_sample

TERMS = ("risk", "calibration", "refinement", "sharpness", "uncertainty")

__all__ = ["Decomposition", "calibration_error", "decompose", "refinement_error"]


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A mean loss and its terms: ``risk = calibration + uncertainty - sharpness``.

    Attributes
    ----------
    risk : float
        Mean loss of the predictions as they are.
    refinement : float
        Mean loss after calibration: the model's inability to distinguish the classes.
    uncertainty : float
        Mean loss of always predicting the class frequencies.
    calibrator : object
        The fitted map, ready for new predictions.
    loss, n, k : str, int, int
        Name of the loss, number of rows and of classes.
    irreducible : float or None
        Mean loss of the true class probabilities, if they were given: what no model can avoid.
    """

    risk: float
    refinement: float
    uncertainty: float
    calibrator: Any
    loss: str
    n: int
    k: int
    irreducible: float | None = None

    @property
    def calibration(self) -> float:
        """The part of the risk that calibration removes: ``risk - refinement``."""
        if self.risk == self.refinement:  # even if both are infinite
            return 0.0
        return self.risk - self.refinement

    @property
    def sharpness(self) -> float:
        """What the calibrated model gains over the class frequencies: ``uncertainty - refinement``."""
        return self.uncertainty - self.refinement

    @property
    def grouping(self) -> float | None:
        """``refinement - irreducible``: the loss from equal predictions for different true probabilities."""
        return None if self.irreducible is None else self.refinement - self.irreducible

    @property
    def reducible(self) -> float | None:
        """``risk - irreducible = calibration + grouping``: what a better model could gain."""
        return None if self.irreducible is None else self.risk - self.irreducible

    @property
    def beta(self) -> float | None:
        """Inverse temperature of the calibrator, if it is temperature scaling."""
        return getattr(self.calibrator, "beta_", None)

    @property
    def smoothing(self) -> float:
        """0, unless a label has probability 0: the number of rows next to which a uniform one is mixed in."""
        return float(getattr(self.calibrator, "smoothing_", 0.0))

    def to_dict(self) -> dict[str, float | int | str | None]:
        """Return every term, and beta, as plain numbers."""
        more = () if self.irreducible is None else ("irreducible", "grouping", "reducible")
        values = {term: float(getattr(self, term)) for term in TERMS + more}
        return {**values, "beta": self.beta, "loss": self.loss, "n": self.n, "k": self.k}

    def __repr__(self) -> str:
        share = self.calibration / self.risk if 0 < self.risk < math.inf else math.nan
        part = "" if math.isnan(share) else f"   {share:.1%} of the risk"
        how = type(self.calibrator).__name__
        if self.beta is not None:
            how += f", beta {self.beta:.4g}{_verdict(self.beta, self.smoothing)}"
        if self.smoothing:
            how += f"\n    of probabilities mixed with uniform ones, {self.smoothing:g} to 1"
        more = ""
        if self.irreducible is not None:
            more = (
                f"    = grouping  {self.grouping:9.5f}\n    + irreducible {self.irreducible:7.5f}\n"
            )
        return (
            f"Decomposition of the {self.loss} loss, {self.n} rows, {self.k} classes\n"
            f"  risk          {self.risk:9.5f}\n"
            f"  = calibration {self.calibration:9.5f}{part}\n"
            f"  + refinement  {self.refinement:9.5f}   (uncertainty {self.uncertainty:.5f} "
            f"- sharpness {self.sharpness:.5f})\n{more}"
            f"  calibrator: {how}"
        )


def _verdict(beta: float, smoothing: float) -> str:
    """Return what an inverse temperature says about the model."""
    if smoothing:
        return ": a label has probability 0"
    if beta < 1e-12:
        return ": no better than chance"
    if beta >= 0.999 * MAX_BETA:
        return ": the largest allowed, never wrong"
    if abs(beta - 1) <= 0.05:
        return ""
    return ": overconfident" if beta < 1 else ": underconfident"


@check_keywords()
def decompose(
    y_true: Any,
    probs: Any = None,
    *,
    logits: Any = None,
    loss: str | ProperLoss = "log",
    calibrator: Any = "temperature",
    cv: Any = None,
    groups: Any = None,
    sample_weight: Any = None,
    classes: ArrayLike | None = None,
    true_probs: Any = None,
    n_threads: int | None = None,
) -> Decomposition:
    r"""Split the mean loss of predictions into calibration and refinement error.

    .. math:: \text{risk} = \tfrac1n \sum_i \ell(p_i, y_i), \quad
              \text{refinement} = \min_{g \in G} \tfrac1n \sum_i \ell(g(p_i), y_i), \quad
              \text{calibration} = \text{risk} - \text{refinement},

    where G is a family of calibrators, which always includes the identity. As in the paper, g is fitted by
    log loss; for other losses, refinement is the loss of that map, which may be slightly above the minimum
    over G.

    Parameters
    ----------
    y_true : array-like
        Class numbers 0..k-1, names, booleans, one-hot rows, or soft labels: rows that sum to 1.
    probs : array-like, optional
        Probabilities ``(n, k)``, or ``(n,)`` for class 1 of two.
    logits : array-like, optional
        Logits ``(n, k)`` or log-odds ``(n,)``, instead of ``probs``. More accurate for confident models.
    loss : {"log", "brier", "spherical"} or a loss object
        See :mod:`refinecal.losses`. The Brier score sums over all classes.
    calibrator : str or an object with ``fit`` and ``predict_proba``
        The family G: any name that :func:`make_calibrator` takes, or an object.
    cv : None, int, "loo" or a splitter
        ``None`` fits and evaluates g on the same rows, as in the paper: the minimum over beta for
        temperature, the fitted map for others. A number of folds, a scikit-learn splitter or a list of
        (train, test) evaluates out of fold, including smoothing. ``"loo"`` approximates leave-one-out for
        temperature scaling without smoothing. With ``cv``, calibration may be negative: then calibrating
        on so few rows would hurt.
    groups : array-like, optional
        For a splitter that keeps groups together.
    sample_weight : array-like, optional
        Sample weights (frequency weights): weight 2 equals two copies of the row.
    classes : array-like, optional
        The label of each column; by default 0..k-1, or the column names of a DataFrame.
    true_probs : array-like, optional
        In simulations, the true class probabilities, like ``probs``. Splits refinement into irreducible and
        grouping loss. The irreducible loss is measured on the same labels, so label noise cancels in the
        grouping loss; pass them as ``y_true`` too for terms without label noise.
    n_threads : int, optional
        As for :func:`fit_temperature`.

    Returns
    -------
    Decomposition
        The terms and the calibrator, fitted on all rows.

    References
    ----------
    Berta, Holzmüller, Jordan, Bach, "Rethinking Early Stopping: Refine, Then Calibrate", theorem 3.4,
    equation 4 and figure 2.

    Examples
    --------
    >>> import refinecal as rc
    >>> d = rc.decompose([0, 0, 0, 1], logits=[[2.0, 0.0]] * 4)
    >>> round(d.refinement, 6)           # entropy of (3/4, 1/4): the logits are all the same
    0.562335
    >>> abs(d.risk - d.calibration - d.refinement) < 1e-15
    True

    Four kinds of rows, of which the model distinguishes two, with the expected labels:

    >>> truth = [0.1, 0.3, 0.7, 0.9]
    >>> soft = [[1 - p, p] for p in truth]
    >>> d = rc.decompose(soft, [0.2, 0.2, 0.8, 0.8], loss="brier", true_probs=truth)
    >>> round(d.irreducible, 6), round(d.grouping, 6)  # 2 (0.09 + 0.21) / 2, and 2 * 0.1**2
    (0.3, 0.02)
    """
    threads = None if n_threads is None else check_threads(n_threads)
    loss = get_loss(loss)
    sample = check_sample(
        y_true, probs, logits, sample_weight, classes, devices=True, threads=threads
    )
    fitted = as_calibrator(calibrator)
    check_cv(cv, groups, fitted)
    truth = None if true_probs is None else _check_truth(true_probs, sample)
    found = decompose_sample(sample, fitted, loss, cv, groups, threads)
    if truth is None:
        return found
    best = on_cpu(sample).replace(logits=truth)
    return replace(found, irreducible=best.mean(losses_at(best, 1.0, loss)))


def _check_truth(true_probs: Any, sample: Sample) -> NDArray[Any]:
    """Return the logarithms of the true probabilities, of the shape of the predictions."""
    logs = check_scores(true_probs, "true_probs", "take their softmax")
    if logs.shape != (sample.n, sample.k):
        raise ValueError(
            f"true_probs has shape {logs.shape}, but there are {sample.n} predictions of {sample.k} "
            "classes: pass the true probabilities of each row"
        )
    return logs


def decompose_sample(
    sample: Sample,
    fitted: Calibrator,
    loss: ProperLoss,
    cv: Any = None,
    groups: Any = None,
    threads: int | None = None,
    start: float = 1.0,
    uncertainty: float | None = None,
) -> Decomposition:
    """Decompose the loss of checked data, fitting the calibrator; the search for beta starts at ``start``."""
    if uncertainty is None:
        uncertainty = float(loss.entropy(sample.frequencies))
    if type(loss) is LogLoss:
        risk = fitted._fit_with_risk(sample, threads, start)
    else:
        sample = on_cpu(sample)
        risk = sample.mean(losses_at(sample, 1.0, loss, threads))
        fitted._warn_if_infinite(risk, sample)
        fitted._fit_sample(sample, threads, start)
    if cv is None:
        refinement = min(fitted._loss_in_sample(sample, loss, threads), risk)
    elif isinstance(cv, str):
        mixed = mix_sample(on_cpu(sample), fitted.smoothing_)  # type: ignore[attr-defined]
        refinement = leave_one_out(mixed, fitted.beta_, loss)  # type: ignore[attr-defined]
    else:
        sample, losses = on_cpu(sample), np.empty(sample.n)
        for one, test in fit_folds(fitted, sample, cv, groups, threads):
            losses[test] = row_losses(sample.take(test), loss, one._log_proba)
        refinement = sample.mean(losses)
    if math.isinf(refinement) and not math.isinf(risk):
        warn("the refinement is infinite: out of fold, the calibrator gives a label probability 0")
    found = getattr(fitted, "user", fitted)
    return Decomposition(risk, refinement, uncertainty, found, loss.name, sample.n, sample.k)


class Options(TypedDict, total=False):
    """The keywords of :func:`decompose`."""

    logits: Any
    loss: str | ProperLoss
    calibrator: Any
    cv: Any
    groups: Any
    sample_weight: Any
    classes: ArrayLike | None
    true_probs: Any
    n_threads: int | None


@check_keywords(Options)
def refinement_error(y_true: Any, probs: Any = None, **options: Unpack[Options]) -> float:
    """Return the loss left after the best calibration.

    Parameters
    ----------
    y_true, probs, **options
        As for :func:`decompose`.

    Returns
    -------
    float
        ``decompose(...).refinement``.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.refinement_error([0, 0, 0, 1], [0.1] * 4), 6)  # entropy of (3/4, 1/4)
    0.562335
    """
    return decompose(y_true, probs, **options).refinement


@check_keywords(Options)
def calibration_error(y_true: Any, probs: Any = None, **options: Unpack[Options]) -> float:
    """Return the loss that calibration removes.

    Parameters
    ----------
    y_true, probs, **options
        As for :func:`decompose`.

    Returns
    -------
    float
        ``decompose(...).calibration``.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.calibration_error([0, 0, 0, 1], [0.25] * 4), 12)  # right one time out of four
    0.0
    """
    return decompose(y_true, probs, **options).calibration


def check_cv(cv: Any, groups: Any, calibrator: Calibrator) -> None:
    """Raise for an invalid ``cv``, before any work is done."""
    if groups is not None and (isinstance(cv, str) or not hasattr(cv, "split")):
        raise ValueError("groups= needs a splitter that uses groups, such as cv=GroupKFold(5)")
    if not isinstance(cv, str):
        return
    if cv != "loo":
        raise ValueError(f"cv is {cv!r}: it must be 'loo', a number of folds or a splitter")
    if not calibrator.leaves_one_out:
        raise ValueError(
            "cv='loo' is for temperature scaling: pass a number of folds, such as cv=10"
        )


def fit_folds(
    calibrator: Calibrator, sample: Sample, cv: Any, groups: Any, threads: int | None
) -> Iterator[tuple[Calibrator, NDArray[np.int64]]]:
    """Yield a calibrator fitted to the training rows of each fold, and the test rows."""
    calibrator._warn_if_light(sample)
    for train, test in folds(sample, cv, groups):
        rows = sample.take(train)
        if not rows.total > 0:
            raise ValueError("a fold leaves no row of positive weight to fit on: use fewer folds")
        yield deepcopy(calibrator)._fit_sample(rows, threads), test
