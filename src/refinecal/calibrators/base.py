"""The base class of calibrators, and calibrators by name."""

from __future__ import annotations  # so that help() shows types by name

import inspect
import json
import math
from abc import ABC, abstractmethod
from copy import deepcopy
from importlib import import_module
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.arrays import check_threads, column_names, in_order
from refinecal._core.checks import (
    HARD,
    check_keywords,
    check_sample,
    check_scores,
    is_hard,
    warn_if_light,
)
from refinecal._core.errors import fail_choice, warn
from refinecal._core.sample import Sample, on_cpu
from refinecal.calibrators._pairs import Curve
from refinecal.losses import ProperLoss, row_losses
from refinecal.temperature.fit import risk_of

Floats = NDArray[np.float64]


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
        """Learn from checked rows of positive weight, on the CPU; ``start`` is a guess of beta."""

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
        self._learn(on_cpu(sample).drop_weightless(), check_threads(threads), start)
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
    _steps_by: str | None = None  # what compares training steps instead, where this would be slow

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

    def _check(self, given: Any, name: str, for_logits: str = "") -> NDArray[Any]:
        if not hasattr(self, "classes_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(
                f"this {type(self).__name__} is not fitted yet: call fit or fit_logits first"
            )
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
        """Return the parameters of the constructor; with ``deep``, also those of the calibrators among them.

        The latter are called ``calibrator__laplace``, say.
        """
        params = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        for name, value in list(params.items()) if deep else ():
            inner = value.get_params() if hasattr(value, "get_params") else {}
            params |= {f"{name}__{each}": found for each, found in inner.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change parameters of the constructor, or such as ``calibrator__laplace`` of a calibrator."""
        known = list(inspect.signature(type(self)).parameters)
        for name, value in sorted(params.items(), key=lambda item: "__" in item[0]):
            first, _, inner = name.partition("__")
            if first not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}: it has {known}")
            if not inner:
                setattr(self, name, value)
            elif hasattr(getattr(self, first), "set_params"):
                getattr(self, first).set_params(**{inner: value})
            else:
                raise ValueError(
                    f"{first} is {getattr(self, first)!r}, which has no parameters to set: pass an object, "
                    "such as make_calibrator('isotonic')"
                )
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


def check_two_classes(sample: Sample, what: str, name: str, other: str = "temperature") -> None:
    """Raise for more than two classes."""
    if sample.k != 2:
        raise ValueError(
            f"{what} is for 2 classes, found {sample.k}: use calibrator='{name}-ovr' (one-vs-rest), or "
            f"calibrator='{other}'"
        )


# ---- by name -----------------------------------------------------------------------------------------------

# name: (module, class, parameters)
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "temperature": ("temperature", "TemperatureScaling", {}),
    "affine": ("scaling", "AffineScaling", {}),
    "quadratic": ("sigmoid", "QuadraticScaling", {}),
    "beta": ("sigmoid", "BetaCalibration", {}),
    "vector": ("scaling", "VectorScaling", {}),
    "matrix": ("scaling", "MatrixScaling", {}),
    "dirichlet": ("scaling", "DirichletCalibration", {}),
    "structured-vector": ("scaling", "StructuredVectorScaling", {}),
    "structured-matrix": ("scaling", "StructuredMatrixScaling", {}),
    "ensemble-temperature": ("temperature", "EnsembleTemperatureScaling", {}),
    "isotonic": ("isotonic", "IsotonicCalibration", {}),
    "centred-isotonic": ("isotonic", "CentredIsotonicCalibration", {}),
    "venn-abers": ("venn_abers", "VennAbers", {}),
    "cross-venn-abers": ("venn_abers", "CrossVennAbers", {}),
    "uniform-mass": ("binning", "HistogramBinning", {"strategy": "quantile"}),
    "uniform-width": ("binning", "HistogramBinning", {"strategy": "uniform"}),
    "scaling-binning": ("binning", "ScalingBinning", {}),
    "spline": ("spline", "SplineCalibration", {}),
    "one-vs-rest": ("wrappers", "OneVsRest", {}),
    "one-vs-one": ("wrappers", "OneVsOne", {}),
    "laplace": ("wrappers", "LaplaceSmoothing", {}),
    "auto": ("auto", "AutoCalibrator", {}),
}
ALIASES = {  # names in other packages
    "platt": "affine",
    "sigmoid": "affine",
    "svs": "structured-vector",
    "sms": "structured-matrix",
    "ets": "ensemble-temperature",
    "centered-isotonic": "centred-isotonic",
    "ivap": "venn-abers",
    "cvap": "cross-venn-abers",
    "histogram": "uniform-mass",
}
WRAPPERS = {"-ovr": "one-vs-rest", "-ovo": "one-vs-one"}


def make_calibrator(name: str, **params: Any) -> Calibrator:
    """Return a new calibrator by name, not fitted yet.

    Parameters
    ----------
    name : str
        For any number of classes: "temperature", "vector", "matrix", "dirichlet", "structured-vector",
        "structured-matrix", "ensemble-temperature", or "auto", which chooses. For two classes: "affine",
        "quadratic", "beta", "isotonic", "centred-isotonic", "venn-abers", "cross-venn-abers",
        "uniform-mass", "uniform-width", "scaling-binning", "spline"; for more classes add "-ovr"
        (one-vs-rest) or "-ovo" (one-vs-one), as in "isotonic-ovr". Around another calibrator:
        "one-vs-rest", "one-vs-one", "laplace". Aliases such as "platt", "svs" and "ivap" work too.
    **params
        Parameters of its constructor, such as ``laplace``.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.make_calibrator("temperature", laplace=False)
    TemperatureScaling(laplace=False)
    >>> rc.make_calibrator("platt")
    AffineScaling(laplace=True, ridge=0.0)
    """
    if not isinstance(name, str):
        raise TypeError(f"name is {name!r}: it must be a string such as 'temperature'")
    ending = name[-4:].replace("_", "-")
    if ending in WRAPPERS and WRAPPERS[ending] in KINDS:  # such as isotonic-ovr
        params = {"calibrator": make_calibrator(name[:-4], **params)}
        name = WRAPPERS[ending]
    name = ALIASES.get(name, name)
    if name.replace("_", "-") in KINDS:
        name = name.replace("_", "-")
    if name not in KINDS:
        fail_choice("calibrator", name, list(KINDS), "an object with fit and predict_proba")
    module, kind, given = KINDS[name]
    made: Calibrator = getattr(import_module(f"refinecal.calibrators.{module}"), kind)(
        **(given | params)
    )
    return made


def as_calibrator(calibrator: Any) -> Calibrator:
    """Return a new calibrator to fit: by name, or a copy of the given object."""
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
    from refinecal.calibrators.wrappers import UserCalibrator

    return UserCalibrator(deepcopy(calibrator))
