"""Metrics of refinecal beside the same in other packages, as functions without arguments."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.calibrators.contestants import OURS, Part
from benchmarks.data import draw
from refinecal import metrics as ours

N_BINS = 15
NAMES = ("log_loss", "brier_score", "accuracy", "auroc", "ece", "mce", "smooth_ece")
Turn = Callable[[], Any]


@dataclass(frozen=True)
class Contest:
    """Functions that do the same, ours first, and what to say of the things they return."""

    what: str
    n: int
    k: int
    turns: dict[str, Turn]
    value_of: Callable[[Any], float] = float


def metric_contests(sizes: Sequence[tuple[int, int]]) -> Iterator[Contest]:
    """Yield each metric of ours with its rivals, on probabilities in double precision."""
    for n, k in sizes:
        sample = draw(n, k)
        part = Part(sample.logits, sample.labels)
        rivals = [_scikit_learn(part)]
        rivals += [turns(part) for package, turns in RIVALS.items() if _is_there(package)]
        for name in NAMES:
            turns = {OURS: _call(getattr(ours, name), part.labels, part.probs)}
            for rival in rivals:
                turns |= rival.get(name, {})
            yield Contest(name, n, k, turns)


def _is_there(package: str) -> bool:
    return find_spec(package) is not None


def _call(function: Callable[..., Any], *args: Any, **options: Any) -> Turn:
    return lambda: function(*args, **options)


def _scikit_learn(part: Part) -> dict[str, dict[str, Turn]]:
    from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score

    y, probs, two = part.labels, part.probs, part.k == 2
    every = np.arange(part.k)
    area = (
        _call(roc_auc_score, y, probs[:, 1])
        if two
        else _call(roc_auc_score, y, probs, multi_class="ovr")
    )
    return {
        "log_loss": {"scikit-learn": _call(log_loss, y, probs, labels=every)},
        "brier_score": {
            "scikit-learn": _call(brier_score_loss, y, probs, labels=every, scale_by_half=False)
        },
        "accuracy": {"scikit-learn": lambda: accuracy_score(y, probs.argmax(axis=1))},
        "auroc": {"scikit-learn": area},
    }


def _netcal(part: Part) -> dict[str, dict[str, Turn]]:
    from netcal.metrics import ECE, MCE

    given = part.probs[:, 1] if part.k == 2 else part.probs
    return {
        "ece": {"netcal": _call(ECE(N_BINS).measure, given, part.labels)},
        "mce": {"netcal": _call(MCE(N_BINS).measure, given, part.labels)},
    }


def _torchmetrics(part: Part) -> dict[str, dict[str, Turn]]:
    import torch
    from torchmetrics.functional import classification as rival

    labels, probs = torch.from_numpy(part.labels), torch.from_numpy(part.probs)
    if part.k == 2:
        one = probs[:, 1].contiguous()
        error, area = rival.binary_calibration_error, _call(rival.binary_auroc, one, labels)
        given, more = one, {}
    else:
        error = rival.multiclass_calibration_error
        area = _call(rival.multiclass_auroc, probs, labels, num_classes=part.k)
        given, more = probs, {"num_classes": part.k}
    return {
        "auroc": {"torchmetrics": area},
        "ece": {"torchmetrics": _call(error, given, labels, n_bins=N_BINS, norm="l1", **more)},
        "mce": {"torchmetrics": _call(error, given, labels, n_bins=N_BINS, norm="max", **more)},
    }


def _relplot(part: Part) -> dict[str, dict[str, Turn]]:
    from relplot import smECE

    if part.k > 2:
        top, hit = part.probs.max(axis=1), part.probs.argmax(axis=1) == part.labels
        return {"smooth_ece": {"relplot smECE": _call(smECE, top, hit.astype(float))}}
    return {
        "smooth_ece": {"relplot smECE": _call(smECE, part.probs[:, 1], part.labels.astype(float))}
    }


RIVALS = {"netcal": _netcal, "torchmetrics": _torchmetrics, "relplot": _relplot}
