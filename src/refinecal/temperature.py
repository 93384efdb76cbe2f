"""Temperature scaling: one number that resets how confident a classifier sounds."""

import math
import numbers
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal import _twins
from refinecal._checks import Sample, check_sample, is_on_device, warn
from refinecal._search import (
    FINE_32,
    FINE_64,
    LOOSE,
    MAX_BETA,
    ROUNDING_32,
    ROUNDING_64,
    START_READS,
    Found,
    Point,
    Reader,
    search,
)
from refinecal._softmax import log_softmax, scaled
from refinecal.calibrators._base import Calibrator

__all__ = ["MAX_BETA", "TemperatureFit", "TemperatureScaling", "fit_temperature"]

START_ROWS = (256, 65536)  # a cold fit starts on this many rows, spread evenly over the data
START_ELEMENTS = 2**22  # but on no more numbers than this: 16 MB of float32
THREAD_ELEMENTS = 2**20  # fewer numbers than this are read by one thread sooner than shared out
SMALL_BETA = 1e-30  # below, float32 has too few digits
SMALLEST_BETA = float(np.finfo(np.float64).tiny)  # stands for the limit beta -> 0+
NOTHING = np.empty(0)
NOTHING.flags.writeable = False
LN2 = math.log(2.0)


@dataclass(frozen=True, slots=True)
class TemperatureFit:
    """The best inverse temperature of a set of predictions.

    Attributes
    ----------
    beta : float
        Inverse temperature in [0, e^16]; predictions become ``softmax(beta * logits)``.
    loss : float
        Mean log loss there, which is the refinement error.
    n_reads : float
        How often the data was read; a read of every 10th row counts as 0.1.
    converged : bool
        Whether beta is as exact as the type of the logits allows.
    """

    beta: float
    loss: float
    n_reads: float
    converged: bool

    @property
    def temperature(self) -> float:
        """The temperature 1 / beta, infinite for beta = 0."""
        return 1 / self.beta if self.beta > 0 else math.inf


def fit_temperature(
    labels: Any,
    logits: Any,
    sample_weight: Any = None,
    start: float = 1.0,
    *,
    classes: ArrayLike | None = None,
    n_threads: int | None = None,
) -> TemperatureFit:
    r"""Return the inverse temperature with the smallest mean log loss.

    Minimises :math:`L(\beta) = -\frac1n \sum_i \log \mathrm{softmax}(\beta z_i)_{y_i}`, which is
    convex, over :math:`0 \le \beta \le e^{16}`: 0 if the predictions are no better than chance, the
    upper end if they are never wrong. Each step reads the logits once; about two reads are enough.

    Parameters
    ----------
    labels : array-like
        Class numbers 0..k-1, names (with ``classes``, or in sorted order), or rows that sum to 1.
    logits : array-like
        ``(n, k)``, or ``(n,)`` log-odds of class 1. Float32 is computed in float32.
    sample_weight : array-like, optional
        How often each row counts.
    start : float, default 1.0
        A beta that is probably close, such as the last epoch's: saves the search on a subsample.
    classes : array-like, optional
        The label of each column.
    n_threads : int, optional
        Threads to use; by default all that the process may use, where that is faster.

    Returns
    -------
    TemperatureFit
        With ``beta``, ``loss``, ``n_reads``, ``converged``.

    References
    ----------
    Section 4 and appendix D of the paper.

    Examples
    --------
    Always 88 % sure of class 0, and right three times out of four: ``softmax([2 * beta, 0])`` should
    give 3/4, so ``beta = log(3) / 2``.

    >>> import refinecal as rc
    >>> fit = rc.fit_temperature([0, 0, 0, 1], [[2.0, 0.0]] * 4)
    >>> round(fit.beta, 6)
    0.549306
    """
    start = _check_start(start)
    threads = check_threads(n_threads)
    if sample_weight is None and classes is None:
        plain = _plain_arrays(labels, logits)
        if plain is not None:  # nothing to convert, so no need to look before the kernel does
            found = _solve(KernelReader(*plain, NOTHING, NOTHING, threads), start)
            if found.beta > SMALL_BETA and math.isfinite(found.loss):
                return _report(found)
    sample = check_sample(labels, None, logits, sample_weight, classes, "labels", devices=True)
    return fit_sample(sample, start, threads)


def _check_start(start: Any) -> float:
    """Return where to start; a beta too small to tell anything, even 0, starts afresh."""
    if not (isinstance(start, numbers.Real) and 0 <= float(start) < math.inf):
        raise ValueError(
            f"start is {start!r}: it must be a number of at least 0, such as an earlier fit.beta"
        )
    return float(start) if float(start) > SMALL_BETA else 1.0


def fit_sample(sample: Sample, start: float = 1.0, threads: int = 1) -> TemperatureFit:
    """Return the best inverse temperature of checked data."""
    sample = sample if is_on_device(sample.logits) else sample.counted()
    found = _solve(reader_of(sample, threads), start)
    lost = math.isnan(found.loss) and found.beta > 0  # a label of probability 0, or overflow
    if lost or 0 < found.beta < SMALL_BETA:
        sample = on_cpu(sample)
        sample = replace(sample, logits=sample.logits.astype(np.float64))
        if np.isneginf(_twins.at_label(sample)).any():
            return TemperatureFit(0.0, math.log(sample.k), found.n_reads, True)
        found = _solve(reader_of(sample, threads), start)
    if found.beta == 0:
        found = _flat(on_cpu(sample), found)
    return _report(found)


def reader_of(sample: Sample, threads: int = 1) -> Reader:
    """Return what reads this sample fastest: compiled loops, or torch where the tensors are."""
    if is_on_device(sample.logits):
        from refinecal._torch import TorchReader

        return TorchReader.of(sample)
    return KernelReader.of(sample, threads)


def risk_of(sample: Sample, threads: int = 1) -> float:
    """Return the mean log loss as it is, infinite if a label has probability 0."""
    loss = reader_of(sample, threads).at(1.0).loss
    if math.isfinite(loss):
        return loss
    return on_cpu(sample).mean(_twins.rows(on_cpu(sample), 1.0)[0])


class KernelReader:
    """Reads C-contiguous logits with the fused loops, in several threads where that pays."""

    def __init__(
        self,
        labels: NDArray[np.int64],
        logits: NDArray[Any],
        target: NDArray[np.float64],
        weights: NDArray[np.float64],
        threads: int = 1,
    ) -> None:
        # Read-only views: writable and read-only arrays then share one compiled kernel.
        self.arrays = (_frozen(logits), _frozen(labels), _frozen(target), _frozen(weights))
        self.kernels = _kernels()
        self.threads = threads if logits.size >= THREAD_ELEMENTS else 1
        self.single = logits.dtype == np.float32

    @classmethod
    def of(cls, sample: Sample, threads: int = 1) -> "KernelReader":
        """Return a reader of a checked sample."""
        target = NOTHING if sample.soft is None else _twins.at_label(sample)
        weights = NOTHING if sample.weights is None else sample.weights
        return cls(sample.labels, sample.logits, target, weights, threads)

    @property
    def shape(self) -> tuple[int, int]:
        n, k = self.arrays[0].shape
        return n, k

    @property
    def tolerance(self) -> float:
        return FINE_32 if self.single else FINE_64

    @property
    def rounding(self) -> float:
        return ROUNDING_32 if self.single else ROUNDING_64

    def every(self, stride: int) -> "KernelReader":
        """Return a reader of every ``stride``-th row."""
        logits, labels, target, weights = (np.ascontiguousarray(a[::stride]) for a in self.arrays)
        return KernelReader(labels, logits, target, weights)

    def at(self, beta: float) -> Point:
        if self.single:  # the kernel rounds beta / ln 2 to float32: report the beta that it used
            beta = float(np.float32(beta / LN2)) * LN2
        weight, loss, a, b, c, d = self._sums(beta)
        return Point(beta, loss / weight, a / weight, b / weight, c / weight, d / weight)

    def _sums(self, beta: float) -> Sequence[float]:
        if self.threads == 1:
            sums: Sequence[float] = self.kernels.read(*self.arrays, beta)
            return sums
        cuts = np.linspace(0, self.shape[0], self.threads + 1).astype(int)

        def read_part(part: int) -> Sequence[float]:
            rows = slice(cuts[part], cuts[part + 1])
            sums: Sequence[float] = self.kernels.read(*(a[rows] for a in self.arrays), beta)
            return sums

        with ThreadPoolExecutor(self.threads) as pool:
            return [
                math.fsum(column)
                for column in zip(*pool.map(read_part, range(self.threads)), strict=True)
            ]

    def at_zero(self) -> tuple[float, float]:
        slope, curvature = self.kernels.read_zero(*self.arrays)
        return slope, curvature

    def rows(self, beta: float) -> NDArray[np.float64]:
        """Return the loss and a, b, c, d of each row, shape (5, n)."""
        logits, labels, target, _ = self.arrays
        values = np.empty((5, len(logits)))
        self.kernels.read_rows(logits, labels, target, beta, values)
        return values


def _solve(reader: Any, start: float) -> Found:
    """Search on ever more rows, then on all; a start other than 1 is trusted at once."""
    n, k = reader.shape
    cost = 0.0
    if start == 1.0:
        for rows in START_ROWS:
            stride = n // min(rows, max(START_ELEMENTS // k, 32))
            if stride >= 8:
                guess = search(reader.every(stride), start, LOOSE, START_READS)
                cost += guess.n_reads / stride
                if 0 < guess.beta < MAX_BETA / 2 and math.isfinite(guess.loss):
                    start = guess.beta
    found = search(reader, start, reader.tolerance, rounding=reader.rounding)
    return found._replace(n_reads=found.n_reads + cost)


def _flat(sample: Sample, found: Found) -> Found:
    """Return the loss where predictions are no better than chance: flat over the possible classes."""
    possible = np.concatenate(
        [(~np.isneginf(chunk.logits)).sum(axis=1) for _, chunk in sample.chunks()]
    )
    loss = sample.mean(np.log(possible))
    return found._replace(beta=0.0 if possible.min() == sample.k else SMALLEST_BETA, loss=loss)


def _report(found: Found) -> TemperatureFit:
    if not found.converged:
        warn(
            f"the search for the temperature stopped after {found.n_reads:.0f} reads at "
            f"beta = {found.beta:.6g} without converging; please report the data"
        )
    return TemperatureFit(*found)


def _plain_arrays(labels: Any, logits: Any) -> tuple[NDArray[np.int64], NDArray[Any]] | None:
    """Return labels and logits if they are what the kernels take, as they are; else ``None``."""
    if type(logits) is not np.ndarray:
        return None
    dtype = logits.dtype
    if logits.ndim != 2 or dtype.char not in "fd" or not dtype.isnative:
        return None
    if type(labels) is not np.ndarray or labels.dtype.kind not in "iu":
        return None
    if logits.shape[1] < 2 or labels.shape != logits.shape[:1] or not labels.size:
        return None
    if not logits.flags.c_contiguous:
        return None
    return labels.astype(np.int64, copy=False), logits


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


@cache
def _kernels() -> Any:
    """Import the compiled loops, and Numba with them, on first use."""
    return import_module("refinecal._kernels")


def on_cpu(sample: Sample) -> Sample:
    """Return the sample with its logits in NumPy."""
    if not is_on_device(sample.logits):
        return sample
    from refinecal._torch import to_cpu

    return to_cpu(sample)


def check_threads(n_threads: int | None) -> int:
    """Return the number of threads to use; OMP_NUM_THREADS, which joblib sets, is respected."""
    if n_threads is None:
        limit = os.environ.get("OMP_NUM_THREADS", "")
        cores = (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
        return min(cores, int(limit)) if limit.isdigit() and int(limit) > 0 else cores
    if not isinstance(n_threads, numbers.Integral) or n_threads < 1:
        raise ValueError(
            f"n_threads is {n_threads!r}: it must be a whole number of at least 1, or None"
        )
    return int(n_threads)


class TemperatureScaling(Calibrator):
    r"""Calibrate by one number: ``softmax(beta * logits)``, with Laplace smoothing.

    With smoothing, :math:`g(p) = \frac{n}{n+1} \mathrm{softmax}(\beta \log p) + \frac{1}{n+1} u`, where u is
    uniform and n counts the calibration samples, so that no probability is 0 however separable they are.

    Parameters
    ----------
    laplace : bool, default True
        Whether to smooth.

    Attributes
    ----------
    beta_ : float
        The inverse temperature.
    n_samples_ : float
        Number of calibration samples (the sum of their weights).
    classes_ : ndarray
        The label of each column.

    References
    ----------
    Section 3 and appendix D of the paper.

    Examples
    --------
    >>> import refinecal as rc
    >>> probs = [[0.9, 0.1]] * 4
    >>> ts = rc.TemperatureScaling(laplace=False).fit(probs, [0, 0, 0, 1])
    >>> ts.predict_proba(probs)[0].round(6)
    array([0.75, 0.25])
    """

    beta_: float

    def __init__(self, laplace: bool = True) -> None:
        self.laplace = laplace

    @property
    def temperature_(self) -> float:
        """The temperature 1 / beta_."""
        return 1 / self.beta_ if self.beta_ > 0 else math.inf

    def _fit_sample(self, sample: Sample) -> Self:
        self.beta_ = fit_sample(sample, threads=check_threads(None)).beta
        return self

    def set_beta(self, beta: float, sample: Sample) -> Self:
        """Take a beta that was fitted on this sample elsewhere."""
        self.beta_ = beta
        return self._set_sample(sample)

    def _log_proba(self, logits: NDArray[Any]) -> NDArray[Any]:
        return log_softmax(scaled(logits, self.beta_))
