"""The floor: one evaluation of the loss that monitoring refinement replaces."""

import torch
from torch.nn.functional import cross_entropy

from benchmarks.contestants import Fit, Task

NAME = "torch cross_entropy, once"


def prepare(task: Task) -> Fit:
    """Return one evaluation on tensors that share the arrays' memory."""
    logits, labels = torch.from_numpy(task.logits), torch.from_numpy(task.labels)

    def fit() -> None:
        cross_entropy(logits, labels)

    return fit
