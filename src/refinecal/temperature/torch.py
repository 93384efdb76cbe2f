"""A reader in torch, for tensors that are not on the CPU: only a few numbers leave the device."""

from collections.abc import Iterator
from typing import Any

import torch

from refinecal._core.sample import Sample
from refinecal.temperature.fit import FINE_32, FINE_64, ROUNDING_32, ROUNDING_64, Point

CHUNK = 2**24  # elements per pass: bounds the temporaries on the device


class TorchReader:
    """Reads logits where they are, in float32 (float64 if they are)."""

    def __init__(self, sample: Sample) -> None:
        logits: Any = sample.logits
        self.sample, self.logits, self.shape = sample, logits, (sample.n, sample.k)
        self.exact = torch.float32 if logits.device.type == "mps" else torch.float64  # of sums
        double = logits.dtype == torch.float64
        self.tolerance, self.rounding = (FINE_64, ROUNDING_64) if double else (FINE_32, ROUNDING_32)
        self.labels = torch.as_tensor(sample.labels, device=logits.device)
        self.weights = None if sample.weights is None else self._move(sample.weights)
        self.target = None
        if sample.soft is not None:
            self.target = torch.cat([self._mean_gap(sample.soft, r) for r in self._chunks()])

    def _move(self, array: Any) -> Any:
        return torch.as_tensor(array).to(self.exact).to(self.logits.device)

    def _mean_gap(self, soft: Any, rows: slice) -> Any:
        """Return the mean of z - max z under the soft labels of some rows."""
        own = self._move(soft[rows]).to(self.logits.dtype)
        gaps = self._gaps(rows)
        return torch.where(own > 0, own * gaps, torch.zeros_like(gaps)).sum(dim=1)

    def _gaps(self, rows: slice) -> Any:
        logits = self.logits[rows]
        return logits - logits.amax(dim=1, keepdim=True)

    def _chunks(self) -> Iterator[slice]:
        n, k = self.shape
        step = max(1, CHUNK // k)
        return (slice(i, i + step) for i in range(0, n, step))

    def every(self, stride: int) -> "TorchReader":
        """Return a reader of every ``stride``-th row."""
        return TorchReader(self.sample.take(slice(None, None, stride)))

    def at(self, beta: float) -> Point:
        sums = sum(self._sums(beta, rows) for rows in self._chunks())
        weight, *totals = torch.as_tensor(sums).tolist()
        return Point(beta, *(total / weight for total in totals))

    def _sums(self, beta: float, rows: slice) -> Any:
        gaps = self._gaps(rows)
        x_label = self._at_label(gaps, rows) * beta
        x = (gaps * beta).clamp_(min=-87.0 if gaps.dtype == torch.float32 else -700.0)
        probs = x.exp()
        m0 = probs.sum(dim=1)
        probs /= m0[:, None]
        mean = (probs * x).sum(dim=1)
        x -= mean[:, None]
        powers = []
        for _ in range(4):
            probs *= x
            powers.append(probs.sum(dim=1))
        _, variance, third, fourth = powers
        columns = (m0.log() - x_label, mean - x_label, variance, third, fourth - 3 * variance**2)
        return self._sum_weighted(columns, rows)

    def _sum_weighted(self, columns: tuple[Any, ...], rows: slice) -> Any:
        """Return the sum of the weights, and the weighted sum of each column."""
        exact = [column.to(self.exact) for column in columns]
        weights = torch.ones_like(exact[0]) if self.weights is None else self.weights[rows]
        return torch.stack([weights.sum(), *(weights @ column for column in exact)])

    def _at_label(self, gaps: Any, rows: slice) -> Any:
        if self.target is not None:
            return self.target[rows]
        return gaps.gather(1, self.labels[rows, None])[:, 0]

    def at_zero(self) -> tuple[float, float]:
        sums = sum(self._zero_sums(rows) for rows in self._chunks())
        weight, slope, curvature = torch.as_tensor(sums).tolist()
        return slope / weight, curvature / weight

    def _zero_sums(self, rows: slice) -> Any:
        gaps = self._gaps(rows)
        possible = ~gaps.isneginf()
        count = possible.sum(dim=1)
        kept = torch.where(possible, gaps, torch.zeros_like(gaps)).to(self.exact)
        mean = kept.sum(dim=1) / count
        variance = (kept**2).sum(dim=1) / count - mean**2
        slope = mean - self._at_label(gaps, rows).to(self.exact)
        return self._sum_weighted((slope, variance), rows)
