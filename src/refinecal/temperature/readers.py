"""Who reads the data for a search: compiled loops on the CPU, torch elsewhere; and how a search starts."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.sample import NOTHING, Sample, readonly
from refinecal._core.threads import THREAD_ELEMENTS, check_threads
from refinecal.temperature import reference
from refinecal.temperature.search import (
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

START_ROWS = (256, 65536)  # a cold fit starts on this many rows, spread evenly over the data
START_ELEMENTS = 2**22  # but on no more numbers than this: 16 MB of float32
LN2 = math.log(2.0)


def reader_of(sample: Sample, threads: int | None = 1) -> Reader:
    """Return what reads this sample fastest: compiled loops, or torch where the tensors are."""
    if sample.on_device:
        from refinecal.temperature.torch import TorchReader

        return TorchReader.of(sample)
    return KernelReader.of(sample, threads)


def solve(reader: Reader, start: float) -> Found:
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


class KernelReader:
    """Reads C-contiguous logits with the fused loops, in several threads where that pays."""

    def __init__(
        self,
        labels: NDArray[np.int64],
        logits: NDArray[Any],
        target: NDArray[np.float64],
        weights: NDArray[np.float64],
        threads: int | None = 1,
    ) -> None:
        # Read-only views: writable and read-only arrays then share one compiled kernel.
        self.arrays = (readonly(logits), readonly(labels), readonly(target), readonly(weights))
        self.kernels = _kernels.temperature
        self.threads = 1 if logits.size < THREAD_ELEMENTS else check_threads(threads)
        self.single = logits.dtype == np.float32
        if self.threads > 1:  # lives as long as the reader: one fit
            self.pool = ThreadPoolExecutor(self.threads - 1)

    @classmethod
    def of(cls, sample: Sample, threads: int | None = 1) -> "KernelReader":
        """Return a reader of a checked sample."""
        target = NOTHING if sample.soft is None else reference.at_label(sample)
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

        others = [self.pool.submit(read_part, part) for part in range(1, self.threads)]
        parts = [read_part(0), *(other.result() for other in others)]
        return [math.fsum(column) for column in zip(*parts, strict=True)]

    def at_zero(self) -> tuple[float, float]:
        slope, curvature = self.kernels.read_zero(*self.arrays)
        return slope, curvature

    def rows(self, beta: float) -> NDArray[np.float64]:
        """Return the loss and a, b, c, d of each row, shape (5, n)."""
        logits, labels, target, _ = self.arrays
        values = np.empty((5, len(logits)))
        self.kernels.read_rows(logits, labels, target, beta, values)
        return values
