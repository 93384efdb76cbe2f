"""What the calibrators of probmetrics have in common."""

from collections.abc import Callable
from typing import Any

import torch
from probmetrics.calibrators import get_calibrator
from probmetrics.distributions import CategoricalLogits

from benchmarks.contestants import Fit, Task


def prepare_method(task: Task, method: str, beta_of: Callable[[Any], float]) -> Fit:
    """Return a fit on tensors that share the arrays' memory, without a softmax."""
    logits = CategoricalLogits(torch.from_numpy(task.logits))
    labels = torch.from_numpy(task.labels)

    def fit() -> float:
        return beta_of(get_calibrator(method).fit_torch(logits, labels))

    return fit
