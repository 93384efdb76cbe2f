"""The base class of calibrators, and what they read from logits."""

from __future__ import annotations  # so that help() shows types by name

import inspect
import json
import math
from abc import ABC, abstractmethod
from copy import deepcopy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal import _kernels
from refinecal._core.arrays import Array, check_threads, column_names, in_order
from refinecal._core.checks import (
    HARD,
    check_keywords,
    check_sample,
    check_scores,
    is_hard,
    warn_if_light,
)
from refinecal._core.errors import warn
from refinecal._core.sample import Sample, on_cpu, row_slices
from refinecal.calibrators._pairs import Curve
from refinecal.losses import ProperLoss, row_losses
from refinecal.temperature.fit import risk_of

Floats = NDArray[np.float64]
ROUNDED = -float(np.log(np.finfo(np.float64).eps))  # 36.04: beyond, probabilities round to 0 or 1
ROUNDING = 1e-13  # scores closer than this, relative to their size, are equal
LARGEST = 1e100  # so that squares do not overflow


class Calibrator(ABC):
    """A map from probabilities to better ones, learned from labels.

    A subclass has ``laplace`` among its parameters and provides ``_learn`` and ``_map``.

    Attributes
    ----------
    classes_ : ndarray
        The label of each column.
    n_samples_ : float
        Number of calibration samples, or the sum of their weights.
    feature_names_in_ : list
        Column names, if it was fitted on a DataFrame.
    """

    laplace: bool
    classes_: NDArray[Any]
    n_samples_: float

    @abstractmethod
    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        """Learn from checked data; ``start`` is a guess of beta."""

    @abstractmethod
    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        """Return the calibrated log-probabilities of checked logits, before smoothing."""

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """The number of parameters; of nonparametric maps, the number learned."""

    def fit(
        self, probs: Any, y: Any, sample_weight: Any = None, *, classes: ArrayLike | None = None
    ) -> Self:
        """Learn from probabilities and labels.

        Parameters
        ----------
        probs : array-like
            ``(n, k)`` rows that sum to 1, or ``(n,)`` probabilities of class 1 of two.
        y : array-like
            Labels as for :func:`refinecal.decompose`.
        sample_weight : array-like, optional
            Sample weights; smoothing takes their sum as the number of samples.
        classes : array-like, optional
            The label of each column.

        Returns
        -------
        self
        """
        sample = check_sample(
            y, probs, None, sample_weight, classes, "y", for_logits="use fit_logits"
        )
        self._warn_if_light(sample)
        return self._fit_sample(sample)

    def fit_logits(
        self, logits: Any, y: Any, sample_weight: Any = None, *, classes: ArrayLike | None = None
    ) -> Self:
        """Learn from logits, ``(n, k)`` or ``(n,)`` log-odds, and labels; otherwise like :meth:`fit`."""
        sample = check_sample(y, None, logits, sample_weight, classes, "y")
        self._warn_if_light(sample)
        return self._fit_sample(sample)

    def predict_proba(self, probs: Any) -> NDArray[Any]:
        """Return calibrated probabilities ``(n, k)``; columns of a DataFrame are matched by name."""
        return self._proba(self._check(probs, "probs", "use predict_proba_logits"))

    def predict_proba_logits(self, logits: Any) -> NDArray[Any]:
        """Return calibrated probabilities for logits; otherwise like :meth:`predict_proba`."""
        return self._proba(self._check(logits, "logits"))

    def _fit_sample(self, sample: Sample, threads: int | None = None, start: float = 1.0) -> Self:
        self._learn(sample, check_threads(threads), start)
        self._remember(sample)
        return self

    def _remember(self, sample: Sample) -> None:
        self.n_samples_ = sample.total
        self.classes_ = np.arange(sample.k) if sample.classes is None else sample.classes
        self.__dict__.pop("feature_names_in_", None)
        if sample.columns is not None:
            self.feature_names_in_ = sample.columns

    # ---- for decompositions and monitors; temperature scaling overrides these -----------------------------

    leaves_one_out = False  # whether leave-one-out works without refitting
    is_smooth = False  # whether predictions may be rounded to float32
    _weighs_rows = False  # whether the number of rows matters apart from smoothing

    def _fit_with_risk(self, sample: Sample, threads: int | None, start: float) -> float:
        """Learn from checked data, and return their mean log loss before calibration."""
        sample = on_cpu(sample)
        risk = risk_of(sample, threads)
        self._warn_if_infinite(risk, sample)
        self._fit_sample(sample, threads, start)
        return risk

    def _warn_if_infinite(self, risk: float, sample: Sample) -> None:
        """Warn if the loss is infinite."""
        if math.isinf(risk):
            warn(
                "the log loss is infinite: a label has probability 0; the calibrator may still correct it."
                + (f" {HARD}" if is_hard(sample.logits) else "")
            )

    def _losses_in_sample(
        self, sample: Sample, loss: ProperLoss, threads: int | None = None
    ) -> NDArray[Any]:
        """Return the loss of each row of the data it was fitted on, smoothing included."""
        return row_losses(sample, loss, self._log_proba)

    def _loss_in_sample(
        self, sample: Sample, loss: ProperLoss, threads: int | None = None
    ) -> float:
        """Return their mean: the refinement error, unless calibration increases the loss."""
        return sample.mean(self._losses_in_sample(sample, loss, threads))

    def _copy_unfitted(self) -> Self:
        """Return a new calibrator with the same parameters."""
        return deepcopy(self)

    def _step_calibrator(self) -> Calibrator:
        """Return the calibrator that compares training steps: itself, unless that would be slow."""
        return self

    def _counts_rows(self) -> bool:
        """Return whether the number of rows (the sum of the weights) matters."""
        return self.laplace or self._weighs_rows

    def _warn_if_light(self, sample: Sample) -> None:
        """Warn if weights sum to 1, which smoothing would take for a single sample."""
        if sample.weights is not None and self._counts_rows():
            warn_if_light(sample.weights, "smoothing")

    def _log_proba(self, logits: NDArray[Any]) -> NDArray[Any]:
        logs = self._map(logits)
        if not self.laplace:
            return logs
        probs = self._smooth(np.exp(logs))
        return np.asarray(np.log(probs, out=probs))

    def _proba(self, logits: NDArray[Any]) -> NDArray[Any]:
        return self._smooth(np.asarray(np.exp(self._map(logits))))

    def _smooth(self, probs: NDArray[Any]) -> NDArray[Any]:
        """Mix probabilities with uniform ones, in place, if asked for."""
        if self.laplace:
            n = self.n_samples_
            probs *= n / (n + 1)
            probs += 1 / ((n + 1) * len(self.classes_))
        return probs

    def _curve(self) -> Curve | None:
        """Return the map of two classes as a curve in the log-odds, before smoothing, if it is one."""
        return None

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(
                f"this {type(self).__name__} is not fitted yet: call fit or fit_logits first"
            )

    def _check(self, given: Any, name: str, for_logits: str = "") -> NDArray[Any]:
        self._check_fitted()
        k, shape = len(self.classes_), np.shape(given)
        width = shape[1] if len(shape) == 2 else k
        if width not in (k, 1):
            raise ValueError(
                f"{name} has {width} columns, but the calibrator was fitted with {k}: pass the same "
                "classes, in the same order"
            )
        scores = check_scores(given, name, for_logits)
        if scores.shape[1] != k:
            raise ValueError(
                f"{name} has 2 columns, but the calibrator was fitted with {k}: one column means two classes"
            )
        known = getattr(self, "feature_names_in_", self.classes_.tolist())
        return in_order(
            scores, column_names(given), known, name, hasattr(self, "feature_names_in_")
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything learned as plain numbers, strings and lists, ready for JSON.

        :func:`refinecal.calibrators.from_dict` restores it; it contains no code.
        """
        learned = {name: _plain(value) for name, value in vars(self).items() if name.endswith("_")}
        params = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        return {"kind": type(self).__name__, "params": params, "learned": learned}

    def to_json(self) -> str:
        """Return everything learned as JSON text, which :meth:`from_json` restores.

        Examples
        --------
        >>> import refinecal as rc
        >>> fitted = rc.TemperatureScaling().fit([0.2, 0.9, 0.6], [0, 1, 0])
        >>> copy = rc.TemperatureScaling.from_json(fitted.to_json())
        >>> copy.beta_ == fitted.beta_
        True
        """
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the calibrator that :meth:`to_json` wrote; no code is executed."""
        from refinecal.calibrators import from_dict

        try:
            state = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"this is not the JSON of a calibrator ({error}): pass what to_json() returned"
            ) from error
        found = from_dict(state)
        if not isinstance(found, cls):
            raise ValueError(
                f"this is the JSON of {type(found).__name__}, not of {cls.__name__}: use "
                "refinecal.calibrators.from_json, which loads any calibrator"
            )
        return found

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in cls.__dict__ and cls.__module__.startswith("refinecal."):
            cls.__init__ = check_keywords()(cls.__init__)  # type: ignore[method-assign]

    # ---- scikit-learn's conventions, without importing it ------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=True))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change parameters of the constructor."""
        known = list(inspect.signature(type(self)).parameters)
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}: it has {known}")
            setattr(self, name, value)
        return self

    _main: tuple[str, ...] = ()  # learned numbers to print

    def _summary(self) -> str:
        """Return a short description of what was learned, or an empty string."""
        return ", ".join(f"{name}={getattr(self, name):.4g}" for name in self._main)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params(False).items())
        learned = self._summary() if self.__sklearn_is_fitted__() else ""
        return f"{type(self).__name__}({given})" + (f" with {learned}" if learned else "")


def _plain(value: Any) -> Any:
    """Return an attribute in a form that JSON can hold; raise for a custom calibrator."""
    if isinstance(value, Calibrator):
        return value.to_dict()
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "values": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "predict_proba"):
        raise TypeError(
            f"the calibrator holds {value!r}, which is not of this package: only refinecal's calibrators "
            "can be written as JSON"
        )
    return value


# ---- what calibrators read from logits ---------------------------------------------------------------------


def finite_gaps(logits: Array, limit: float = ROUNDED) -> Floats:
    """Return each logit minus the largest of its row, clipped at -limit."""
    with np.errstate(over="ignore"):
        gaps = np.subtract(logits, logits.max(axis=1, keepdims=True), dtype=np.float64)
    return np.asarray(np.maximum(gaps, -limit, out=gaps))


def gap_columns(logits: NDArray[Any], limit: float) -> Floats:
    """Return the transpose of :func:`finite_gaps`, (k, n): classes first, so that loops run over samples."""
    columns = np.empty(logits.shape[::-1])
    _kernels.softmax_linear.fill_gaps(logits, limit, columns)
    return columns


def gap_limit(sample: Sample) -> float:
    """Return how far below the largest a logit may be, which replaces -inf.

    No finite gap of the sample is clipped. Probabilities of 0 that are never wrong stay below rounding; if a
    label has probability 0, then 0 becomes half the smallest positive probability.
    """
    largest, wrong = 0.0, False
    for rows in row_slices(sample.n, sample.k):
        part = sample.logits[rows]
        with np.errstate(over="ignore"):
            low = float(np.subtract(part.min(), part.max(), dtype=np.float64))
        if -low <= ROUNDED:  # no gap can be larger: the common case, without a temporary
            largest = max(largest, -low)
            continue
        gaps = finite_gaps(part, np.inf)
        finite = np.isfinite(gaps)
        largest = max(largest, -float(gaps.min(where=finite, initial=0.0)))
        if sample.soft is None:
            possible = finite[np.arange(len(part)), sample.labels[rows]]
        else:
            possible = finite | (sample.soft[rows] <= 0)
        wrong = wrong or not possible.all()
    limit = largest + np.log(2) if wrong else max(largest, ROUNDED)
    return float(min(limit, LARGEST))


def log_odds(logits: Array, limit: float = ROUNDED) -> Floats:
    """Return the log-odds of class 1 of two, clipped to -limit..limit."""
    with np.errstate(over="ignore"):
        odds = np.subtract(logits[:, 1], logits[:, 0], dtype=np.float64)
    return np.asarray(np.clip(odds, -limit, limit, out=odds))


def check_two_classes(sample: Sample, what: str, name: str, other: str = "temperature") -> Sample:
    """Return the rows of positive weight, in NumPy; raise for more than two classes."""
    if sample.k != 2:
        raise ValueError(
            f"{what} is for 2 classes, found {sample.k}: use calibrator='{name}-ovr' (one-vs-rest), or "
            f"calibrator='{other}'"
        )
    return on_cpu(sample).drop_weightless()


def shares_of(sample: Sample) -> Floats:
    """Return the share of class 1 in the label of each row."""
    return sample.labels.astype(np.float64) if sample.soft is None else sample.soft[:, 1]


def log_rows(shares: Floats) -> Floats:
    """Return the log-probabilities of both classes, given the probability of class 1."""
    logs = np.empty((len(shares), 2))
    with np.errstate(divide="ignore"):
        np.log1p(-shares, out=logs[:, 0])
        np.log(shares, out=logs[:, 1])
    return logs


def log_rows_of_odds(odds: NDArray[Any]) -> Floats:
    """Return the log-probabilities of both classes, given the log-odds of class 1."""
    logs = np.empty((len(odds), 2))
    rest = np.log(1 + np.exp(-np.abs(odds)))
    np.subtract(-np.maximum(odds, 0), rest, out=logs[:, 0])
    np.subtract(np.minimum(odds, 0), rest, out=logs[:, 1])
    return logs
