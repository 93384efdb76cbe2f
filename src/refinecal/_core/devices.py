"""Checks of torch tensors on a device other than the CPU, without copying them."""

from typing import Any

import torch
from numpy.typing import ArrayLike

from refinecal._core.checks import check_labels, check_scores, check_weights
from refinecal._core.sample import Sample

CHUNK = 2**24  # elements per pass: bounds the temporaries on the device


def check_device_sample(
    y_true: Any,
    given: Any,
    name: str,
    sample_weight: Any,
    classes: ArrayLike | None,
    y_name: str,
    quiet: bool = False,
) -> Sample:
    """Check logits or probabilities on their device; labels and weights on the CPU."""
    scores = given.detach()
    plain = scores.layout == torch.strided and scores.is_floating_point()
    if not plain:
        scores = torch.as_tensor(check_scores(given, name), device=given.device)
    elif scores.dtype != torch.float64:
        scores = scores.float()
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    if scores.ndim != 2 or scores.numel() == 0 or not _looks_right(scores, name):
        scores = torch.as_tensor(check_scores(given, name), device=given.device)  # raises the error
    elif name == "probs" and plain:
        scores = scores.log()
    n, k = scores.shape
    labels, soft, names = check_labels(y_true, n, k, classes, y_name, name, quiet=quiet)
    logits: Any = scores
    return Sample(labels, logits, check_weights(sample_weight, n, name), soft, names)


def _looks_right(scores: Any, name: str) -> bool:
    """Return whether all rows are valid; if not, the check on the CPU names the error."""
    n, k = scores.shape
    step = max(1, CHUNK // max(k, 1))
    for i in range(0, n, step):
        rows = scores[i : i + step]
        if name == "probs":
            good = (rows >= 0) & (rows <= 1)
            bad = ~good.all(dim=1) | ((rows.sum(dim=1) - 1).abs() > 1e-3)
        else:
            bad = rows.isnan().any(dim=1) | ~rows.amax(dim=1).isfinite()
        if bool(bad.any()):
            return False
    return True
