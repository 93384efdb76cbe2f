"""The calibrators by name: how they are made and restored; and any object of the user's that is one."""

from __future__ import annotations  # so that help() shows types by name

import re
from collections.abc import Iterable
from copy import deepcopy
from importlib import import_module
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import fail_choice
from refinecal._core.sample import Sample, log_softmax
from refinecal.calibrators.base import Calibrator

LEARNED = re.compile(r"[a-z][a-z0-9_]*[a-z0-9]_")  # scikit-learn's names for what was learned
STATE = {"kind", "params", "learned"}
PROBES = (-1e3, -30.0, -1.0, 0.0, 1.0, 30.0, 1e3)  # log-odds at which a restored map is tried
MOST_BYTES = 4096  # of one name of a class
LARGEST = 1e301  # of a number that was learned

_HERE = "refinecal.calibrators"

# The name: where its class is, and what it is made with.
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "temperature": (f"{_HERE}.temperature", "TemperatureScaling", {}),
    "affine": (f"{_HERE}.sigmoid", "AffineScaling", {}),
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
ALIASES = {  # what others call them
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
    """Return a new calibrator by name.

    Parameters
    ----------
    name : str
        For any number of classes: "temperature", "vector", "matrix", "dirichlet", "structured-vector",
        "structured-matrix", "ensemble-temperature", or "auto", which chooses. For two classes: "affine",
        "quadratic", "beta", "isotonic", "centred-isotonic", "venn-abers", "cross-venn-abers",
        "uniform-mass", "uniform-width", "scaling-binning", "spline"; for more classes add "-ovr" (one
        against the rest) or "-ovo" (one against one), as in "isotonic-ovr". Around another calibrator:
        "one-vs-rest", "one-vs-one", "laplace". Some are also known by what others call them, such as
        "platt", "svs" and "ivap".
    **params
        Parameters of its constructor, such as ``laplace``.

    Returns
    -------
    Calibrator
        Not fitted yet.

    Examples
    --------
    >>> import refinecal as rc
    >>> rc.make_calibrator("temperature", laplace=False)
    TemperatureScaling(laplace=False)
    >>> rc.make_calibrator("platt")
    AffineScaling(laplace=True, ridge=0.0)
    """
    if not isinstance(name, str):
        raise TypeError(f"name is {name!r}: it must be a text such as 'temperature'")
    ending = name[-4:].replace("_", "-")
    if ending in WRAPPERS and WRAPPERS[ending] in KINDS:  # such as isotonic-ovr
        return _make(WRAPPERS[ending], {"calibrator": make_calibrator(name[:-4], **params)})
    name = ALIASES.get(name, name)
    if name.replace("_", "-") in KINDS:
        name = name.replace("_", "-")
    if name not in KINDS:
        fail_choice("calibrator", name, list(KINDS), "an object with fit and predict_proba")
    return _make(name, params)


def _make(name: str, params: dict[str, Any]) -> Calibrator:
    module, kind, given = KINDS[name]
    made: Calibrator = getattr(import_module(module), kind)(**(given | params))
    return made


def from_json(text: str | bytes) -> Calibrator:
    """Return the calibrator that ``to_json`` wrote.

    Parameters
    ----------
    text : str or bytes
        What :meth:`Calibrator.to_json` returned.

    Returns
    -------
    Calibrator
        Fitted, of whatever class it was.

    Examples
    --------
    >>> import refinecal as rc
    >>> fitted = rc.TemperatureScaling().fit([0.2, 0.9, 0.6], [0, 1, 0])
    >>> rc.calibrators.from_json(fitted.to_json()).beta_ == fitted.beta_
    True
    """
    return Calibrator.from_json(text)


class _Refused(Exception):
    """What is wrong with a state, in our own words."""


def _refuse(name: str, why: str) -> NoReturn:
    raise _Refused(f"{name} of the state of a calibrator {why}")


def from_dict(state: dict[str, Any]) -> Calibrator:
    """Return the calibrator that ``to_dict`` described.

    Parameters
    ----------
    state : dict
        What :meth:`Calibrator.to_dict` returned, perhaps by way of a JSON file.

    Returns
    -------
    Calibrator
        Fitted.

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
    except _Refused as error:
        raise ValueError(str(error)) from None
    except Exception as error:  # whatever a damaged or hostile file may lead to
        raise ValueError(
            f"the state of a calibrator does not fit together ({error}): pass what to_dict() returned"
        ) from error
    return fitted


def _check_restored(fitted: Calibrator) -> None:
    """Refuse a state that does not fit together now, not in some later prediction."""
    classes = getattr(fitted, "classes_", None)
    if not isinstance(classes, np.ndarray):
        _refuse("classes_", "is no array: pass what to_dict() returned")
    k = len(classes)
    if classes.ndim != 1 or k < 2 or len(set(classes.tolist())) != k:
        _refuse("classes_", "must name two classes or more, each once")
    if not (isinstance(fitted.n_samples_, int | float) and fitted.n_samples_ > 0):
        _refuse("n_samples_", "must be a number above 0")
    if getattr(fitted, "beta_", 0.0) < 0:
        _refuse("beta_", "is below 0: it was never fitted so")
    repr(fitted), fitted.n_parameters
    with np.errstate(all="ignore"):
        probs = np.exp(fitted._log_proba(np.outer(PROBES, np.arange(k) % 2)))
    if probs.shape != (len(PROBES), k) or not np.allclose(probs.sum(axis=1), 1):
        raise _Refused(
            "the state of a calibrator does not give probabilities: pass what to_dict() returned"
        )


def _restore(state: Any) -> Calibrator:
    """Return a calibrator with everything that its state says was learned."""
    kinds = {kind: name for name, (_, kind, _) in KINDS.items()}
    if not isinstance(state, dict) or not set(state) >= STATE:
        raise _Refused(
            "the state of a calibrator has the entries kind, params and learned: pass what to_dict() "
            "returned"
        )
    if state["kind"] not in kinds:
        fail_choice("kind", state["kind"], list(kinds), "the name of a calibrator of this package")
    params = {name: _from_plain(value) for name, value in state["params"].items()}
    if not isinstance(params.get("laplace", True), bool):
        _refuse("laplace", "must be true or false")
    fitted = _make(kinds[state["kind"]], params)
    for name, value in state["learned"].items():
        is_computed = isinstance(getattr(type(fitted), name, None), property)
        if is_computed or not LEARNED.fullmatch(name):  # a stranger's file may set what was learned
            raise _Refused(
                f"the state of a calibrator has no {name!r}: pass what to_dict() returned"
            )
        learned = _from_plain(value)
        if not _is_in_range(learned, name):
            _refuse(name, "is not finite, or out of range: it was never fitted so")
        setattr(fitted, name, learned)
    return fitted


def _from_plain(value: Any) -> Any:
    """Return an attribute as it was before it became JSON."""
    if isinstance(value, dict) and set(value) >= STATE:
        return _restore(value)
    if isinstance(value, dict) and set(value) == {"dtype", "values"}:
        dtype = np.dtype(value["dtype"])
        if dtype.kind not in "biufU" or dtype.itemsize > MOST_BYTES:
            raise _Refused(f"the state of a calibrator holds {dtype}: it was never written so")
        return np.array(value["values"], dtype=dtype)
    if isinstance(value, list):
        return [_from_plain(part) for part in value]
    return value


def _is_in_range(value: Any, name: str) -> bool:
    """Tell numbers that may have been learned, and what is no number, from NaN and out of range."""
    if isinstance(value, list):
        return all(_is_in_range(part, name) for part in value)
    if not isinstance(value, np.ndarray | float) or np.asarray(value).dtype.kind != "f":
        return True
    low, high = (0.0, 1.0) if name.endswith("shares_") else (-LARGEST, LARGEST)
    return bool(np.all((value >= low) & (value <= high)))


# ---- calibrators of the user's own -------------------------------------------------------------------------


def as_calibrator(calibrator: Any) -> Calibrator:
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
    return UserCalibrator(deepcopy(calibrator))


def check_storable(calibrators: Iterable[Any], subject: str) -> None:
    """Refuse to write calibrators as JSON if one of them is neither a name nor of this package."""
    for one in calibrators:
        if not isinstance(one, str | Calibrator) or isinstance(one, UserCalibrator):
            raise TypeError(
                f"{subject} is not of this package: only those that are can be written as JSON"
            )


class UserCalibrator(Calibrator):
    """Any object with ``fit(probs, y)`` and ``predict_proba(probs)``, such as a classifier."""

    laplace = False

    def __init__(self, user: Any) -> None:
        self.user = user

    @property
    def n_parameters(self) -> int:
        raise AttributeError(
            "only the calibrators of this package know how many parameters they have"
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
                f"{type(self.user).__name__}.fit takes no sample_weight: leave out sample_weight= "
                "and soft labels"
            ) from error

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        k = logits.shape[1]
        found = np.asarray(self.user.predict_proba(np.exp(log_softmax(logits))), dtype=np.float64)
        if found.ndim == 1:
            found = np.stack([1 - found, found], axis=1)
        known = np.asarray(getattr(self.user, "classes_", np.arange(k))).astype(int)
        self._check_output(found, (len(logits), len(known)))
        probs = np.zeros((len(logits), k))
        probs[:, known] = found  # a class missing from a fold keeps probability 0
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(probs))

    def _check_output(self, found: NDArray[Any], shape: tuple[int, int]) -> None:
        name = f"{type(self.user).__name__}.predict_proba"
        if found.shape != shape:
            raise ValueError(f"{name} returned shape {found.shape}, expected {shape}")
        good = (found >= 0).all(axis=1) & (np.abs(found.sum(axis=1) - 1) <= 1e-3)
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            raise ValueError(
                f"{name} returned {found[row]} for one row: it must return probabilities that sum to 1"
            )
