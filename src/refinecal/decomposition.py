"""The decomposition: how much of a loss is miscalibration, and how much is missing information."""

import inspect
import math
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._checks import Sample, check_sample, is_on_device, warn
from refinecal._softmax import log_softmax
from refinecal.calibrators import Calibrator, make_calibrator
from refinecal.losses import LogLoss, ProperLoss, get_loss
from refinecal.resampling import folds, leave_one_out, losses_at, training_rows
from refinecal.temperature import TemperatureScaling, check_threads, fit_sample, on_cpu, risk_of

__all__ = ["Decomposition", "calibration_error", "decompose", "refinement_error"]


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A mean loss and its terms: ``risk = calibration + uncertainty - sharpness``.

    Attributes
    ----------
    risk : float
        Mean loss of the predictions as they are.
    calibration : float
        The part that relabelling the predictions removes.
    refinement : float
        The part that is left: what the model cannot tell apart.
    sharpness : float
        What the calibrated predictions gain over always predicting the class frequencies.
    uncertainty : float
        Mean loss of always predicting the class frequencies.
    calibrator : object
        The fitted map, ready for new predictions.
    loss, n, k : str, int, int
        Name of the loss, number of rows and of classes.
    """

    risk: float
    refinement: float
    uncertainty: float
    calibrator: Any = field(repr=False)
    loss: str
    n: int
    k: int

    @property
    def calibration(self) -> float:
        """The risk that relabelling removes: ``risk - refinement``."""
        both_infinite = self.risk == self.refinement  # or equal, which is the same thing here
        return 0.0 if both_infinite else self.risk - self.refinement

    @property
    def sharpness(self) -> float:
        """What the predictions know: ``uncertainty - refinement``."""
        return self.uncertainty - self.refinement

    @property
    def beta(self) -> float | None:
        """Inverse temperature of the calibrator, if it is temperature scaling."""
        return getattr(self.calibrator, "beta_", None)

    def to_dict(self) -> dict[str, float | int | str | None]:
        """Return every term, and beta, as plain numbers."""
        terms = ("risk", "calibration", "refinement", "sharpness", "uncertainty")
        values = {term: float(getattr(self, term)) for term in terms}
        return {**values, "beta": self.beta, "loss": self.loss, "n": self.n, "k": self.k}

    def __repr__(self) -> str:
        share = self.calibration / self.risk if 0 < self.risk < math.inf else math.nan
        part = "" if math.isnan(share) else f"   {share:.1%} of the risk"
        how = type(self.calibrator).__name__
        if self.beta is not None:
            hint = "over-confident" if self.beta < 1 else "under-confident"
            how += f", beta {self.beta:.4g}" + (f": {hint}" if abs(self.beta - 1) > 0.005 else "")
        return (
            f"Decomposition of the {self.loss} loss, {self.n} rows, {self.k} classes\n"
            f"  risk          {self.risk:9.5f}\n"
            f"  = calibration {self.calibration:9.5f}{part}\n"
            f"  + refinement  {self.refinement:9.5f}   (uncertainty {self.uncertainty:.5f} "
            f"- sharpness {self.sharpness:.5f})\n"
            f"  calibrator: {how}"
        )


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
    n_threads: int | None = None,
) -> Decomposition:
    r"""Split the mean loss of predictions into calibration and refinement error.

    .. math:: \text{risk} = \tfrac1n \sum_i \ell(p_i, y_i), \quad
              \text{refinement} = \min_{g \in G} \tfrac1n \sum_i \ell(g(p_i), y_i), \quad
              \text{calibration} = \text{risk} - \text{refinement},

    where G is a family of calibrators; leaving predictions as they are always counts as one of its maps.

    Parameters
    ----------
    y_true : array-like
        Class numbers 0..k-1, names, booleans, one-hot rows, or soft labels: rows that sum to 1.
    probs : array-like, optional
        Probabilities ``(n, k)``, or ``(n,)`` for class 1 of two.
    logits : array-like, optional
        Logits ``(n, k)`` or log-odds ``(n,)``, instead of ``probs``. More exact for confident models.
    loss : {"log", "brier", "spherical"} or a loss object
        See :mod:`refinecal.losses`. Calibrators are fitted by log loss whatever is evaluated.
    calibrator : {"temperature", "isotonic"} or an object with ``fit`` and ``predict_proba``
        The family G.
    cv : None, int, "loo" or a splitter
        ``None`` fits and evaluates g on the same rows, as the paper does; a number of folds or a
        scikit-learn splitter fits on the others, including the calibrator's smoothing;
        ``"loo"`` approximates leave-one-out for temperature scaling.
    groups : array-like, optional
        For a splitter that keeps groups together.
    sample_weight : array-like, optional
        How often each row counts.
    classes : array-like, optional
        The label of each column; by default 0..k-1, or the column names of a DataFrame.
    n_threads : int, optional
        As for :func:`fit_temperature`.

    Returns
    -------
    Decomposition
        The five terms and the calibrator, fitted on all rows.

    References
    ----------
    Theorem 4.1 and equation 3 of the paper.

    Examples
    --------
    >>> import refinecal as rc
    >>> d = rc.decompose([0, 0, 0, 1], logits=[[2.0, 0.0]] * 4)
    >>> round(d.refinement, 6)           # entropy of (3/4, 1/4): the logits are all the same
    0.562335
    >>> abs(d.risk - d.calibration - d.refinement) < 1e-15
    True
    """
    threads = check_threads(n_threads)
    loss = get_loss(loss)
    sample = check_sample(y_true, probs, logits, sample_weight, classes, devices=True)
    fitted = _prepare(calibrator)
    if groups is not None and (isinstance(cv, str) or not hasattr(cv, "split")):
        raise ValueError("groups= needs a splitter that knows groups, such as cv=GroupKFold(5)")
    plain = type(loss) is LogLoss and type(fitted) is TemperatureScaling and cv is None
    if is_on_device(sample.logits) and not plain:
        sample = on_cpu(sample)
    uncertainty = float(loss.entropy(sample.frequencies))
    risk = (
        risk_of(sample, threads)
        if type(loss) is LogLoss
        else sample.mean(losses_at(sample, 1.0, loss))
    )
    if math.isinf(risk):
        warn(
            "the risk is infinite: a label has probability 0. Smooth the predictions, or pass logits= "
            "if the probabilities were rounded to 0; temperature scaling cannot mend it"
        )
    refinement = _fit(fitted, sample, loss, threads)
    if cv is None:
        refinement = min(refinement, risk)
    elif isinstance(cv, str):
        refinement = _leave_one_out(fitted, sample, loss, cv)
    else:
        refinement = _out_of_fold(fitted, sample, loss, cv, groups)
    found = fitted.user if isinstance(fitted, _UserCalibrator) else fitted
    return Decomposition(risk, refinement, uncertainty, found, loss.name, sample.n, sample.k)


def refinement_error(y_true: Any, probs: Any = None, **options: Any) -> float:
    """Return the loss left after the best calibration; keywords as for :func:`decompose`.

    >>> import refinecal as rc
    >>> round(rc.refinement_error([0, 0, 0, 1], [0.1] * 4), 6)  # entropy of (3/4, 1/4)
    0.562335
    """
    return decompose(y_true, probs, **options).refinement


def calibration_error(y_true: Any, probs: Any = None, **options: Any) -> float:
    """Return the loss that calibration removes; keywords as for :func:`decompose`.

    >>> import refinecal as rc
    >>> round(rc.calibration_error([0, 0, 0, 1], [0.25] * 4), 12)  # right one time out of four: calibrated
    0.0
    """
    return decompose(y_true, probs, **options).calibration


def _fit(calibrator: Calibrator, sample: Sample, loss: ProperLoss, threads: int) -> float:
    """Fit the calibrator and return its mean loss on the same rows.

    For temperature that is the minimum over beta, without the smoothing that new data needs.
    """
    if type(calibrator) is not TemperatureScaling:
        calibrator.fit_sample(sample)
        return sample.mean(_losses(calibrator, sample, loss))
    fit = fit_sample(sample, threads=threads)
    calibrator.set_beta(fit.beta, sample)
    if type(loss) is LogLoss:
        return fit.loss
    return sample.mean(losses_at(sample, fit.beta, loss))


def _leave_one_out(calibrator: Calibrator, sample: Sample, loss: ProperLoss, cv: str) -> float:
    if cv != "loo":
        raise ValueError(
            f"cv is {cv!r}: the only name is 'loo'; else pass a number of folds or a splitter"
        )
    if not isinstance(calibrator, TemperatureScaling):
        raise ValueError(
            "cv='loo' is for temperature scaling: pass a number of folds, such as cv=10"
        )
    return leave_one_out(sample, calibrator.beta_, loss)


def _out_of_fold(
    calibrator: Calibrator, sample: Sample, loss: ProperLoss, cv: Any, groups: Any
) -> float:
    values = np.empty(sample.n)
    for test in folds(sample, cv, groups):
        train = sample.take(training_rows(sample.n, test))
        if train.weights is not None and not train.weights.any():
            raise ValueError("a fold leaves only rows of weight 0 to fit on: use fewer folds")
        values[test] = _losses(deepcopy(calibrator).fit_sample(train), sample.take(test), loss)
    return sample.mean(values)


def _losses(calibrator: Calibrator, sample: Sample, loss: ProperLoss) -> NDArray[np.float64]:
    values = np.empty(sample.n)
    for rows, chunk in sample.chunks():
        labels = chunk.labels if chunk.soft is None else chunk.soft
        values[rows] = loss.per_sample(
            labels, calibrator.log_proba(chunk.logits.astype(np.float64))
        )
    return values


def _prepare(calibrator: Any) -> Calibrator:
    """Return a new calibrator to fit: ours by name, or a copy of the object that is given."""
    if isinstance(calibrator, str):
        return make_calibrator(calibrator)
    if isinstance(calibrator, type) or not all(
        hasattr(calibrator, part) for part in ("fit", "predict_proba")
    ):
        raise TypeError(
            f"calibrator is {calibrator!r}: pass a name such as 'temperature', or an object with "
            "fit(probs, y) and predict_proba(probs)"
        )
    if isinstance(calibrator, Calibrator):
        return deepcopy(calibrator)
    return _UserCalibrator(deepcopy(calibrator))


class _UserCalibrator(Calibrator):
    """Any object with ``fit(probs, y)`` and ``predict_proba(probs)``, such as a scikit-learn classifier."""

    laplace = False

    def __init__(self, user: Any) -> None:
        self.user = user

    def _fit_sample(self, sample: Sample) -> "_UserCalibrator":
        sample = _expanded(sample)
        probs = np.exp(log_softmax(sample.logits))
        if sample.weights is None:
            self.user.fit(probs, sample.labels)
        elif "sample_weight" in inspect.signature(self.user.fit).parameters:
            self.user.fit(probs, sample.labels, sample_weight=sample.weights)
        else:
            raise TypeError(
                f"{type(self.user).__name__}.fit takes no sample_weight: leave out sample_weight= "
                "and soft labels"
            )
        return self

    def _log_proba(self, logits: NDArray[Any]) -> NDArray[Any]:
        found = np.asarray(self.user.predict_proba(np.exp(log_softmax(logits))), dtype=np.float64)
        if found.ndim == 1:
            found = np.stack([1 - found, found], axis=1)
        known = np.asarray(getattr(self.user, "classes_", np.arange(self.n_classes_)))
        probs = np.zeros((len(logits), self.n_classes_))
        if found.shape != (len(logits), len(known)):
            raise ValueError(
                f"{type(self.user).__name__}.predict_proba returned shape {found.shape}, "
                f"expected {(len(logits), self.n_classes_)}"
            )
        probs[:, known.astype(int)] = found  # a class missing from a fold keeps probability 0
        with np.errstate(divide="ignore"):
            return np.log(probs)


def _expanded(sample: Sample) -> Sample:
    """Turn soft labels into one weighted row per possible label."""
    if sample.soft is None:
        return sample
    rows, labels = np.nonzero(sample.soft)
    weights = sample.soft[rows, labels] * (1 if sample.weights is None else sample.weights[rows])
    return Sample(labels, sample.logits[rows], weights, None, sample.classes)
