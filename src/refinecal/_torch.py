"""The readers' sums in torch, for tensors that are not on the CPU: only a few numbers leave the device.

Nothing here runs on import; torch is there already when a tensor is.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from refinecal._checks import Sample, check_labels, check_scores, check_weights, is_torch
from refinecal._search import FINE_32, FINE_64, ROUNDING_32, ROUNDING_64, Point

CHUNK = 2**24  # elements per pass: bounds the temporaries on the device


class TorchReader:
    """Reads logits where they are, in float32 (float64 if they are)."""

    def __init__(self, labels: Any, logits: Any, target: Any = None, weights: Any = None) -> None:
        self.labels, self.logits, self.target, self.weights = labels, logits, target, weights
        self.exact = (
            torch.float32 if logits.device.type == "mps" else torch.float64
        )  # type of the sums

    @classmethod
    def of(cls, sample: Sample) -> "TorchReader":
        """Return a reader of a sample, whose parts are moved to the device of its logits."""
        logits: Any = sample.logits

        def move(array: Any) -> Any:
            return None if array is None else torch.as_tensor(array, device=logits.device)

        soft, weights = move(sample.soft), move(sample.weights)
        target = None
        if soft is not None:
            gaps = logits - logits.amax(dim=1, keepdim=True)
            soft = soft.to(gaps.dtype)
            target = torch.where(soft > 0, soft * gaps, torch.zeros_like(gaps)).sum(dim=1)
        return cls(move(sample.labels), logits, target, weights)

    @property
    def shape(self) -> tuple[int, int]:
        n, k = self.logits.shape
        return n, k

    @property
    def tolerance(self) -> float:
        return FINE_64 if self.logits.dtype == torch.float64 else FINE_32

    @property
    def rounding(self) -> float:
        return ROUNDING_64 if self.logits.dtype == torch.float64 else ROUNDING_32

    def every(self, stride: int) -> "TorchReader":
        """Return a reader of every ``stride``-th row."""
        parts = (self.labels, self.logits, self.target, self.weights)
        return TorchReader(*(None if part is None else part[::stride] for part in parts))

    def at(self, beta: float) -> Point:
        n, k = self.shape
        step = max(1, CHUNK // k)
        sums = sum(self._sums(beta, slice(i, i + step)) for i in range(0, n, step))
        weight, *totals = torch.as_tensor(sums).tolist()
        return Point(beta, *(total / weight for total in totals))

    def _sums(self, beta: float, rows: slice) -> Any:
        logits = self.logits[rows]
        gaps = logits - logits.amax(dim=1, keepdim=True)
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
        weights = torch.ones_like(m0) if self.weights is None else self.weights[rows]
        weights = weights.to(self.exact)
        return torch.stack(
            [weights.sum(), *(weights @ column.to(self.exact) for column in columns)]
        )

    def _at_label(self, gaps: Any, rows: slice) -> Any:
        if self.target is not None:
            return self.target[rows]
        return gaps.gather(1, self.labels[rows, None])[:, 0]

    def at_zero(self) -> tuple[float, float]:
        gaps = self.logits - self.logits.amax(dim=1, keepdim=True)
        possible = ~gaps.isneginf()
        count = possible.sum(dim=1)
        kept = torch.where(possible, gaps, torch.zeros_like(gaps)).to(self.exact)
        mean = kept.sum(dim=1) / count
        variance = (kept**2).sum(dim=1) / count - mean**2
        weights = torch.ones_like(mean) if self.weights is None else self.weights.to(self.exact)
        slope = mean - self._at_label(gaps, slice(None)).to(self.exact)
        total = weights.sum()
        return float(weights @ slope / total), float(weights @ variance / total)


def check_device_sample(
    y_true: Any, given: Any, name: str, sample_weight: Any, classes: ArrayLike | None, y_name: str
) -> Sample:
    """Check logits or probabilities on their device; labels and weights are small and pass the CPU."""
    scores = given.detach()
    if scores.dtype not in (torch.float32, torch.float64):
        scores = scores.float()
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    if scores.ndim != 2 or scores.shape[0] == 0 or not _looks_right(scores, name):
        scores = torch.as_tensor(check_scores(given, name), device=given.device)  # words the error
    elif name == "probs":
        scores = scores.log()
    n, k = scores.shape
    labels, soft, names = check_labels(y_true, n, k, classes, y_name, name)
    logits: Any = scores
    return Sample(labels, logits, check_weights(sample_weight, n, name), soft, names)


def _looks_right(scores: Any, name: str) -> bool:
    if name == "probs":
        sums = scores.sum(dim=1)
        return bool(
            ((scores >= 0).all() & (scores <= 1).all() & ((sums - 1).abs() <= 1e-3).all()).item()
        )
    return bool((scores.amax(dim=1).isfinite().all() & ~scores.isnan().any()).item())


def to_cpu(sample: Sample) -> Sample:
    """Return the sample with its logits in NumPy."""
    logits: Any = sample.logits
    assert is_torch(logits)
    return replace(sample, logits=np.ascontiguousarray(logits.cpu().numpy()))
