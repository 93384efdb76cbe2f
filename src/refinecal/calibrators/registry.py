"""Calibrators by name, restored from JSON, and wrapped around custom objects."""

from __future__ import annotations  # so that help() shows types by name

import re
from copy import deepcopy
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import fail_choice
from refinecal._core.sample import Sample, log_softmax
from refinecal.calibrators.base import Calibrator

LEARNED = re.compile(r"[a-z][a-z0-9_]*[a-z0-9]_")  # names of learned attributes
STATE = {"kind", "params", "learned"}
PROBES = (-1e3, -30.0, -1.0, 0.0, 1.0, 30.0, 1e3)  # log-odds at which a restored map is tested
MOST_BYTES = 4096  # of one class name
LARGEST = 1e301  # of a learned number

_HERE = "refinecal.calibrators"

# name: (module, class, parameters)
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "temperature": (f"{_HERE}.temperature", "TemperatureScaling", {}),
    "affine": (f"{_HERE}.scaling", "AffineScaling", {}),
    "quadratic": (f"{_HERE}.sigmoid", "QuadraticScaling", {}),
    "beta": (f"{_HERE}.sigmoid", "BetaCalibration", {}),
    "vector": (f"{_HERE}.scaling", "VectorScaling", {}),
    "matrix": (f"{_HERE}.scaling", "MatrixScaling", {}),
    "dirichlet": (f"{_HERE}.scaling", "DirichletCalibration", {}),
    "structured-vector": (f"{_HERE}.scaling", "StructuredVectorScaling", {}),
    "structured-matrix": (f"{_HERE}.scaling", "StructuredMatrixScaling", {}),
    "ensemble-temperature": (f"{_HERE}.temperature", "EnsembleTemperatureScaling", {}),
    "isotonic": (f"{_HERE}.isotonic", "IsotonicCalibration", {}),
    "centred-isotonic": (f"{_HERE}.isotonic", "CentredIsotonicCalibration", {}),
    "venn-abers": (f"{_HERE}.venn_abers", "VennAbers", {}),
    "cross-venn-abers": (f"{_HERE}.venn_abers", "CrossVennAbers", {}),
    "uniform-mass": (f"{_HERE}.binning", "HistogramBinning", {"strategy": "quantile"}),
    "uniform-width": (f"{_HERE}.binning", "HistogramBinning", {"strategy": "uniform"}),
    "scaling-binning": (f"{_HERE}.binning", "ScalingBinning", {}),
    "spline": (f"{_HERE}.spline", "SplineCalibration", {}),
    "one-vs-rest": (f"{_HERE}.wrappers", "OneVsRest", {}),
    "one-vs-one": (f"{_HERE}.wrappers", "OneVsOne", {}),
    "laplace": (f"{_HERE}.wrappers", "LaplaceSmoothing", {}),
    "auto": (f"{_HERE}.auto", "AutoCalibrator", {}),
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
    made: Calibrator = getattr(import_module(module), kind)(**(given | params))
    return made


def from_json(text: str | bytes) -> Calibrator:
    """Return the fitted calibrator that :meth:`Calibrator.to_json` wrote.

    Examples
    --------
    >>> import refinecal as rc
    >>> fitted = rc.TemperatureScaling().fit([0.2, 0.9, 0.6], [0, 1, 0])
    >>> rc.calibrators.from_json(fitted.to_json()).beta_ == fitted.beta_
    True
    """
    return Calibrator.from_json(text)


def from_dict(state: dict[str, Any]) -> Calibrator:
    """Return the fitted calibrator that :meth:`Calibrator.to_dict` described.

    Examples
    --------
    >>> import json
    >>> import refinecal as rc
    >>> fitted = rc.TemperatureScaling().fit([0.2, 0.9, 0.6], [0, 1, 0])
    >>> text = json.dumps(fitted.to_dict())
    >>> rc.calibrators.from_dict(json.loads(text)).beta_ == fitted.beta_
    True
    """
    try:
        fitted = _restore(state)
        _check_restored(fitted)
    except Exception as error:  # anything that a damaged or malicious file may cause
        raise ValueError(
            f"this is not the state of a calibrator, or it is damaged ({error}): pass what to_dict() "
            "returned"
        ) from error
    return fitted


def _check_restored(fitted: Calibrator) -> None:
    """Raise for an inconsistent state now, not in a later prediction."""
    classes = getattr(fitted, "classes_", None)
    if not isinstance(classes, np.ndarray) or classes.ndim != 1:
        raise ValueError("classes_ is not an array of one dimension")
    k = len(classes)
    if k < 2 or len(set(classes.tolist())) != k:
        raise ValueError("classes_ must name two classes or more, each once")
    if not (isinstance(fitted.n_samples_, int | float) and fitted.n_samples_ > 0):
        raise ValueError("n_samples_ must be a number above 0")
    if getattr(fitted, "beta_", 0.0) < 0:
        raise ValueError("beta_ is below 0")
    repr(fitted), fitted.n_parameters
    with np.errstate(all="ignore"):
        probs = np.exp(fitted._log_proba(np.outer(PROBES, np.arange(k) % 2)))
    if probs.shape != (len(PROBES), k) or not np.allclose(probs.sum(axis=1), 1):
        raise ValueError("its predictions are not probabilities that sum to 1")


def _restore(state: Any) -> Calibrator:
    """Return a calibrator with the attributes of its state."""
    kinds = {kind: name for name, (_, kind, _) in KINDS.items()}
    if not isinstance(state, dict) or not set(state) >= STATE:
        raise ValueError("it must have the entries kind, params and learned")
    if state["kind"] not in kinds:
        fail_choice("kind", state["kind"], list(kinds), "the name of a calibrator of this package")
    params = {name: _from_plain(value) for name, value in state["params"].items()}
    if not isinstance(params.get("laplace", True), bool):
        raise ValueError("laplace must be true or false")
    fitted = make_calibrator(kinds[state["kind"]], **params)
    for name, value in state["learned"].items():
        is_computed = isinstance(getattr(type(fitted), name, None), property)
        if is_computed or not LEARNED.fullmatch(name):  # nothing else may be set by untrusted files
            raise ValueError(f"{name!r} is not an attribute that fitting sets")
        learned = _from_plain(value)
        if not _is_in_range(learned, name):
            raise ValueError(f"{name} is not finite, or out of range")
        setattr(fitted, name, learned)
    return fitted


def _from_plain(value: Any) -> Any:
    """Return an attribute from its JSON form."""
    if isinstance(value, dict) and set(value) >= STATE:
        return _restore(value)
    if isinstance(value, dict) and set(value) == {"dtype", "values"}:
        dtype = np.dtype(value["dtype"])
        if dtype.kind not in "biufU" or dtype.itemsize > MOST_BYTES:
            raise ValueError(f"fitting never stores an array of {dtype}")
        return np.array(value["values"], dtype=dtype)
    if isinstance(value, list):
        return [_from_plain(part) for part in value]
    return value


def _is_in_range(value: Any, name: str) -> bool:
    """Return whether numbers are finite and in range; other values pass."""
    if isinstance(value, list):
        return all(_is_in_range(part, name) for part in value)
    if not isinstance(value, np.ndarray | float) or np.asarray(value).dtype.kind != "f":
        return True
    low, high = (0.0, 1.0) if name.endswith("shares_") else (-LARGEST, LARGEST)
    return bool(np.all((value >= low) & (value <= high)))


# ---- custom calibrators ------------------------------------------------------------------------------------


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
    return UserCalibrator(deepcopy(calibrator))


class UserCalibrator(Calibrator):
    """Any object with ``fit(probs, y)`` and ``predict_proba(probs)``, such as a classifier."""

    laplace = False

    def __init__(self, user: Any) -> None:
        self.user = user

    @property
    def n_parameters(self) -> int:
        raise AttributeError(
            "the number of parameters is only known for calibrators of this package"
        )

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        sample = sample.expand_soft_labels()
        probs = np.exp(log_softmax(sample.logits))
        if sample.weights is None:
            self.user.fit(probs, sample.labels)
            return
        try:
            self.user.fit(probs, sample.labels, sample_weight=sample.weights)
        except TypeError as error:
            raise TypeError(
                f"{type(self.user).__name__}.fit takes no sample_weight: omit sample_weight= and soft "
                "labels"
            ) from error

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        k = logits.shape[1]
        found = np.asarray(self.user.predict_proba(np.exp(log_softmax(logits))), dtype=np.float64)
        if found.ndim == 1:
            found = np.stack([1 - found, found], axis=1)
        known = np.asarray(getattr(self.user, "classes_", np.arange(k))).astype(int)
        name = f"{type(self.user).__name__}.predict_proba"
        expected = len(logits), len(known)
        if found.shape != expected:
            raise ValueError(f"{name} returned shape {found.shape}, expected {expected}")
        good = (found >= 0).all(axis=1) & (np.abs(found.sum(axis=1) - 1) <= 1e-3)
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            raise ValueError(
                f"{name} returned {found[row]} for one row: it must return probabilities that sum to 1"
            )
        probs = np.zeros((len(logits), k))
        probs[:, known] = found  # a class missing from a fold has probability 0
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(probs))
