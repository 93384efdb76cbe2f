r"""The inverse temperature with the smallest log loss: the search for it, and what reads the data.

The mean log loss :math:`L(\beta)` is convex, so its slope has at most one root. The search sees no data: it
asks a reader (Numba or torch) for :math:`L` and its first four derivatives, in a *relative* change ``s`` of
beta,

.. math:: L(\beta (1 + s)) = L + a s + \tfrac12 b s^2 + \tfrac16 c s^3 + \tfrac1{24} d s^4 + O(s^5),

so nothing depends on the scale of the logits.
"""

from __future__ import annotations  # so that help() shows types by name

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal import _kernels
from refinecal._core.arrays import THREAD_ELEMENTS, check_threads
from refinecal._core.checks import (
    HARD,
    check_keywords,
    check_number,
    check_sample,
    doubt_logits,
    is_hard,
    warn_if_features,
)
from refinecal._core.errors import warn
from refinecal._core.sample import (
    NOTHING,
    Sample,
    label_gaps,
    log_softmax,
    mix_with_uniform,
    on_cpu,
)

MAX_BETA = math.exp(16.0)  # upper end of the paper's search interval (appendix D)
MAX_READS = 200  # bisection of log beta alone needs about 60
START_READS = 8  # a subsample only has to give a start

FINE_64 = 1e-11  # estimated relative error of beta at which the search stops
FINE_32 = 1e-9  # float32 logits carry 6e-8, and the estimate is only an estimate
ROUNDING_64, ROUNDING_32 = 2e-16, 1e-7  # relative error of one number
LOOSE = 1e-2  # on a subsample, whose sampling error is larger
SMALL_BETA = 1e-30  # below, float32 has too few digits
SMALLEST_BETA = float(np.finfo(np.float64).tiny)  # stands for the limit beta -> 0+
START_ROWS = (256, 65536)  # a cold fit starts on this many rows, spread evenly over the data
START_ELEMENTS = 2**22  # but on no more numbers than this: 16 MB of float32
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
        Number of reads of the data; a read of every 10th row counts as 0.1.
    converged : bool
        Whether beta is as accurate as the type of the logits allows.
    smoothing : float
        0, unless a label has probability 0. No temperature corrects that, so beta is that of probabilities
        that were mixed with the uniform ones, weighted as one row next to so many.
    """

    beta: float
    loss: float
    n_reads: float
    converged: bool
    smoothing: float = 0.0

    @property
    def temperature(self) -> float:
        """The temperature 1 / beta, infinite for beta = 0."""
        return 1 / self.beta if self.beta > 0 else math.inf


@check_keywords()
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

    Minimizes :math:`L(\beta) = -\frac1n \sum_i \log \mathrm{softmax}(\beta z_i)_{y_i}`, which is
    convex, over :math:`0 \le \beta \le e^{16}`: 0 if the predictions are no better than chance, the
    upper end if they are never wrong. Each step reads the logits once; about two reads are enough.

    If a label has probability 0, as with votes of forests, the probabilities are first mixed with the uniform
    ones: :math:`\frac{n}{n+1} p + \frac{1}{(n+1) k}` for n rows, with a warning.

    Parameters
    ----------
    labels : array-like
        Class numbers 0..k-1, names (with ``classes``, or in sorted order), or rows that sum to 1.
    logits : array-like
        ``(n, k)``, or ``(n,)`` log-odds of class 1. Float32 is computed in float32.
    sample_weight : array-like, optional
        Sample weights (frequency weights).
    start : float, default 1.0
        A first guess of beta, such as that of the last epoch: saves the search on a subsample.
    classes : array-like, optional
        The label of each column.
    n_threads : int, optional
        Number of threads; by default all available, where that is faster.

    Returns
    -------
    TemperatureFit
        With ``beta``, ``loss``, ``n_reads``, ``converged``.

    References
    ----------
    Section 4 and appendix D of the paper.

    Examples
    --------
    A model that predicts 88% and is right three times out of four: ``softmax([2 * beta, 0])`` should give
    3/4, so ``beta = log(3) / 2``.

    >>> import refinecal as rc
    >>> fit = rc.fit_temperature([0, 0, 0, 1], [[2.0, 0.0]] * 4)
    >>> round(fit.beta, 6)
    0.549306
    """
    start = check_number("start", start, ", such as an earlier fit.beta")
    start = start if start > SMALL_BETA else 1.0  # too small to tell anything
    threads = check_threads(n_threads)
    if sample_weight is None and classes is None:
        plain = _plain_sample(labels, logits)
        if plain is not None:  # nothing to convert: the kernel itself finds errors
            reader = KernelReader(plain, threads)
            begin, cost = find_start(reader) if start == 1.0 else (start, 0.0)
            found = search(reader, begin, reader.tolerance, rounding=reader.rounding)
            inside = SMALL_BETA < found.beta < 0.999 * MAX_BETA
            if inside and found.converged and math.isfinite(found.loss):
                if found.beta > 1:  # probabilities taken for logits are never overconfident
                    doubt_logits(logits)
                warn_if_features(plain.labels, logits, "labels")
                return TemperatureFit(found.beta, found.loss, found.n_reads + cost, True)
    sample = check_sample(labels, None, logits, sample_weight, classes, "labels", devices=True)
    return fit_sample(sample, start, threads)


def _plain_sample(labels: Any, logits: Any) -> Sample | None:
    """Return arrays that compiled loops can read as they are, not checked; else ``None``."""
    if type(logits) is not np.ndarray or type(labels) is not np.ndarray:
        return None
    dtype = logits.dtype
    if logits.ndim != 2 or dtype.char not in "fd" or not dtype.isnative:
        return None
    if labels.dtype.kind not in "iu" or logits.shape[1] < 2 or not logits.flags.c_contiguous:
        return None
    if labels.shape != logits.shape[:1] or not labels.size:
        return None
    return Sample(labels.astype(np.int64, copy=False), logits)


def fit_sample(
    sample: Sample, start: float = 1.0, threads: int | None = 1, reader: Reader | None = None
) -> TemperatureFit:
    """Return the best inverse temperature of checked data; a given reader is of the rows with a weight."""
    sample = sample.drop_weightless()
    reader = reader_of(sample, threads) if reader is None else reader
    begin, cost = find_start(reader) if start == 1.0 else (start, 0.0)
    found = search(reader, begin, reader.tolerance, rounding=reader.rounding)
    found = found._replace(n_reads=found.n_reads + cost)
    lost = math.isnan(found.loss) and found.beta > 0  # a label of probability 0, or overflow
    if lost or 0 < found.beta < SMALL_BETA:
        n_impossible = int(np.isneginf(label_gaps(on_cpu(sample))).sum())
        if n_impossible:
            _warn_impossible(n_impossible, on_cpu(sample))
            mixed = mix_sample(on_cpu(sample), sample.total)
            fit = fit_sample(mixed, 1.0, threads)
            return replace(fit, n_reads=fit.n_reads + found.n_reads, smoothing=sample.total)
        if sample.on_device or sample.logits.dtype != np.float64:
            exact = on_cpu(sample).logits.astype(np.float64)
            return fit_sample(sample.replace(logits=exact), start, threads)
    if found.beta == 0:
        found = _flat(on_cpu(sample), found)
    elif found.beta >= 0.999 * MAX_BETA and all(
        (chunk.logits == chunk.logits[:, :1]).all() for _, chunk in on_cpu(sample).chunks()
    ):  # all classes are equally likely in every row
        found = found._replace(beta=1.0)  # any beta gives the same
    if not found.converged:
        warn(
            f"the search for the temperature stopped after {found.n_reads:.0f} reads at "
            f"beta = {found.beta:.6g} without converging; please report the data"
        )
    return TemperatureFit(*found)


def mix_sample(sample: Sample, n: float) -> Sample:
    """Return a sample whose probabilities are mixed with the uniform ones; n = 0 changes nothing."""
    if n == 0:
        return sample
    return sample.replace(logits=mix_with_uniform(log_softmax(sample.logits.astype(np.float64)), n))


def _warn_impossible(count: int, sample: Sample) -> None:
    fix = "If they were rounded to 0, use logits; the calibrator 'auto' does without temperature scaling."
    warn(
        f"the log loss is infinite: {count} of {sample.n} labels have probability 0, which no temperature "
        "corrects, so probabilities are first mixed with uniform ones: n / (n + 1) * p + 1 / (n + 1) / k, "
        f"n = {sample.total:g}. " + (HARD if is_hard(sample.logits) else fix)
    )


def risk_of(sample: Sample, threads: int | None = 1, reader: Reader | None = None) -> float:
    """Return the mean log loss, infinite if a label has probability 0."""
    loss = (reader or reader_of(sample, threads)).at(1.0).loss
    if math.isfinite(loss):
        return loss
    sample = on_cpu(sample)
    return sample.mean(row_derivatives(sample, 1.0)[0])


def _flat(sample: Sample, found: Found) -> Found:
    """Return the loss of predictions no better than chance: uniform over the possible classes."""
    possible = np.concatenate(
        [(~np.isneginf(chunk.logits)).sum(axis=1) for _, chunk in sample.chunks()]
    )
    loss = sample.mean(np.log(possible))
    return found._replace(beta=0.0 if possible.min() == sample.k else SMALLEST_BETA, loss=loss)


# ---- the search --------------------------------------------------------------------------------------------


class Point(NamedTuple):
    """The mean loss at ``beta`` and its derivatives in a relative change of beta."""

    beta: float
    loss: float
    a: float
    b: float
    c: float
    d: float


class Reader(Protocol):
    """Reads all the data once for each call of ``at``."""

    shape: tuple[int, int]  # rows and classes
    tolerance: float  # relative error of beta that its numbers allow
    rounding: float  # relative error of one of its numbers

    def every(self, stride: int) -> Reader:
        """Return a reader of every ``stride``-th row."""

    def at(self, beta: float) -> Point:
        """Return the loss and its derivatives at (the representable number nearest to) ``beta``."""

    def at_zero(self) -> tuple[float, float]:
        """Return slope and curvature of the loss in beta itself, as beta falls to 0."""


class Found(NamedTuple):
    """The result of a search; ``loss`` is NaN if the data hold NaN, and for beta = 0."""

    beta: float
    loss: float
    n_reads: float
    converged: bool


def search(
    reader: Reader,
    start: float,
    tol: float,
    max_reads: int = MAX_READS,
    rounding: float = ROUNDING_64,
) -> Found:
    """Return the beta in [0, MAX_BETA] with the smallest loss, to the relative error ``tol``.

    Each step goes to the minimum of the fourth-order model, which has four times as many correct digits, so
    the last one needs no read to confirm it. A bracket with bisection in log beta handles losses far from
    that model, as for saturated or separable predictions.
    """
    lo, hi, is_bounded = 0.0, MAX_BETA, False  # whether the loss rises at hi
    beta = min(max(start, 1e-300), MAX_BETA)
    zero_seen = False
    for n_reads in range(1, max_reads + 1):
        point = reader.at(beta)
        beta, loss, a, b, c, d = point
        if not math.isfinite(loss + a):
            return Found(beta, math.nan, n_reads + zero_seen, False)
        at_bound = a < 0 and beta >= 0.999999 * MAX_BETA  # the loss falls forever
        closed = beta == lo or (is_bounded and beta == hi)  # no representable number in between
        if a == 0 or at_bound or closed or hi - lo <= 4e-16 * hi:
            return Found(min(beta, MAX_BETA), loss, n_reads + zero_seen, True)
        lo, hi = (lo, beta) if a > 0 else (beta, hi)
        is_bounded = is_bounded or a > 0
        step, error = best_step(a, b, c, d)
        target = beta * (1 + step)
        if lo <= target <= hi:
            if error < tol:
                loss += step * (a + step * (b / 2 + step * (c / 6 + step * d / 24)))
                return Found(target, loss, n_reads + zero_seen, True)
            if -0.9 < step < 9:
                beta = target
                continue
        if a > 0 and lo == 0 and not zero_seen:
            zero_seen = True
            slope, curvature = reader.at_zero()
            if slope >= 0:  # no better than chance: the flat prediction is best
                return Found(0.0, math.nan, n_reads + 1, True)
            target = -slope / curvature if 0 < curvature < math.inf else 0.0
            beta = target if lo < target < hi else beta * 1e-3
            continue
        reach = (beta - lo if a > 0 else hi - beta) / beta
        if is_bounded and abs(a) * reach <= rounding * loss:  # convex: nothing more to gain
            return Found(beta, loss, n_reads + zero_seen, True)
        beta = _towards_root(beta, lo, hi if is_bounded else None, rising=a > 0)
    return Found(beta, loss, max_reads + zero_seen, False)


def best_step(a: float, b: float, c: float, d: float) -> tuple[float, float]:
    """Return the relative step to the root of the slope, and an estimate of the error left after it.

    Far from the root the slope is modeled as a constant plus an exponential with the same a, b, c, which is
    exact for saturated and nearly separable predictions, where Newton's steps would be slow.
    """
    if not b > 0:
        return math.copysign(math.inf, -a), math.inf
    newton = -a / b
    rate = c / b
    bend = newton * rate
    if bend <= -0.999:  # the model has no root on this side
        return (3.0 if newton > 0 else -math.inf), math.inf
    step = newton * math.log1p(bend) / bend if abs(bend) > 1e-8 else newton
    if abs(step) * max(1.0, abs(rate)) < 0.1:  # close enough for a cubic model of the slope
        for _ in range(2):
            value = a + step * (b + step * (c / 2 + step * d / 6))
            step -= value / (b + step * (c + step * d / 2))
    size = min(abs(step), 1e9)
    growth = min(max(1.0, abs(rate) / 2, abs(d / c) if c else 0.0), 1e50)  # of the derivatives
    return step, size**4 * growth * max(growth**2, abs(d / b))


def _towards_root(beta: float, lo: float, hi: float | None, rising: bool) -> float:
    """Bisect log beta, or move by a large factor while the bracket is open on that side."""
    if lo > 0 and hi is not None:
        return math.sqrt(lo) * math.sqrt(hi)
    return beta * 1e-3 if rising else min(beta * 100, MAX_BETA)


# ---- reading the data --------------------------------------------------------------------------------------


def reader_of(sample: Sample, threads: int | None = 1) -> Reader:
    """Return the fastest reader of a sample: compiled loops, or torch on the device of its tensors."""
    if sample.on_device:
        from refinecal.temperature.torch import TorchReader

        return TorchReader(sample)
    return KernelReader(sample, threads)


def find_start(reader: Reader) -> tuple[float, float]:
    """Return a first guess from searches on a growing number of rows, and what they cost in reads."""
    n, k = reader.shape
    start, cost = 1.0, 0.0
    for rows in START_ROWS:
        stride = n // min(rows, max(START_ELEMENTS // k, 32))
        if stride >= 8:
            guess = search(reader.every(stride), start, LOOSE, START_READS)
            cost += guess.n_reads / stride
            if 0 < guess.beta < MAX_BETA / 2 and math.isfinite(guess.loss):
                start = guess.beta
    return start, cost


class KernelReader:
    """Reads C-contiguous logits with the fused loops, in several threads if there are many."""

    def __init__(self, sample: Sample, threads: int | None = 1) -> None:
        self.sample, self.shape = sample, (sample.n, sample.k)
        target = NOTHING if sample.soft is None else label_gaps(sample)
        weights = NOTHING if sample.weights is None else sample.weights
        arrays = (sample.logits, sample.labels, target, weights)
        self.arrays = tuple(array.view() for array in arrays)
        for array in self.arrays:  # so that one compiled loop serves all arrays
            array.flags.writeable = False
        self.kernels = _kernels.temperature
        self.threads = 1 if sample.logits.size < THREAD_ELEMENTS else check_threads(threads)
        self.single = sample.logits.dtype == np.float32
        self.tolerance = FINE_32 if self.single else FINE_64
        self.rounding = ROUNDING_32 if self.single else ROUNDING_64
        if self.threads > 1:  # lives as long as the reader: one fit
            self.pool = ThreadPoolExecutor(self.threads)

    def every(self, stride: int) -> KernelReader:
        """Return a reader of every ``stride``-th row."""
        return KernelReader(self.sample.take(slice(None, None, stride)))

    def at(self, beta: float) -> Point:
        if self.single:  # the kernel rounds beta / ln 2 to float32: report the beta it used
            beta = float(np.float32(beta / LN2)) * LN2
        sums = self.kernels.read(*self.arrays, beta) if self.threads == 1 else self._sum_parts(beta)
        weight, loss, a, b, c, d = sums
        return Point(beta, loss / weight, a / weight, b / weight, c / weight, d / weight)

    def _sum_parts(self, beta: float) -> list[float]:
        """Return the sums over all rows, of which each thread reads a part."""
        cuts = np.linspace(0, self.shape[0], self.threads + 1).astype(int)
        parts = ([a[start:stop] for a in self.arrays] for start, stop in pairwise(cuts))
        found = [self.pool.submit(self.kernels.read, *(*part, beta)) for part in parts]
        return [math.fsum(sums) for sums in zip(*(each.result() for each in found), strict=True)]

    def at_zero(self) -> tuple[float, float]:
        slope, curvature = self.kernels.read_zero(*self.arrays)
        return slope, curvature

    def rows(self, beta: float) -> NDArray[np.float64]:
        """Return the loss and a, b, c, d of each row, shape (5, n)."""
        logits, labels, target, _ = self.arrays
        values = np.empty((5, len(logits)))
        self.kernels.read_rows(logits, labels, target, beta, values)
        return values


# ---- row by row in plain NumPy: what the loops are tested against, and where they cannot serve -------------


def row_derivatives(sample: Sample, beta: float) -> NDArray[np.float64]:
    """Return the loss of each row and its first four derivatives in beta (>= 0), shape (5, n)."""
    found, own = np.empty((5, sample.n)), label_gaps(sample)
    for rows, chunk in sample.chunks():
        logits = chunk.logits.astype(np.float64)
        gaps = logits - logits.max(axis=1, keepdims=True)
        possible = ~np.isneginf(gaps)
        gaps = np.where(possible, gaps, 0)
        probs = np.where(possible, np.exp(np.maximum(gaps * beta, -700)), 0)
        m0 = probs.sum(axis=1, keepdims=True)
        probs /= m0
        mean = (probs * gaps).sum(axis=1, keepdims=True)
        variance, third, fourth = ((probs * (gaps - mean) ** m).sum(axis=1) for m in (2, 3, 4))
        loss = np.log(m0[:, 0]) - (beta * own[rows] if beta > 0 else 0)
        found[:, rows] = loss, mean[:, 0] - own[rows], variance, third, fourth - 3 * variance**2
    return found
