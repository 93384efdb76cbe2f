"""Training runs on images without their logits: every metric at every epoch, and the epochs chosen."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal.experiments.units import VisionUnit, load_unit

METRICS = (  # that choose epochs: the paper's, then the others
    *("log_loss", "brier", "accuracy", "refinement"),
    *("auroc", "ece", "smooth_ece"),
)
SCORES = ("log_loss", "brier", "accuracy", "ece", "smooth_ece", "auroc")  # of test images
HIGHER = ("accuracy", "auroc")  # of which more is better

VARIANT = " · "  # between the name of a model and how it was trained, if there are several ways

Floats = NDArray[np.float64]
Group = tuple[str, str]  # data set, model


class Choice(NamedTuple):
    """The epoch that a stopping metric chose in one training run, and its scores on test images."""

    dataset: str
    model: str
    seed: int
    metric: str
    epoch: int
    epochs: int  # of the run
    value: float  # of the metric on validation images, at that epoch
    beta: float  # of the temperature scaling there
    log_loss: float
    brier: float
    accuracy: float
    ece: float
    smooth_ece: float
    auroc: float
    log_loss_ts: float
    brier_ts: float
    accuracy_ts: float
    ece_ts: float
    smooth_ece_ts: float
    auroc_ts: float


@dataclass(frozen=True, eq=False)
class History(VisionUnit):
    """A training run without its logits, and the folder of the ``run`` that it comes from."""

    run: str = ""

    @classmethod
    def read(cls, path: Path, run: str) -> History:
        """Return what to keep of the result in a file."""
        unit = load_unit(VisionUnit, path)
        kept = {each.name: getattr(unit, each.name) for each in fields(unit)}
        return cls(**kept | {"val_logits": {}, "test_logits": {}}, run=run)

    @property
    def group(self) -> Group:
        """Which data set and model."""
        return self.key.dataset, self.key.model

    @cached_property
    def alike(self) -> dict[str, Any]:
        """What training runs must share to belong to one experiment: the recipe, and the images."""
        digest = hashlib.sha256(np.asarray(self.y_test, "<i8").tobytes()).hexdigest()[:16]
        return {name.replace("_", " "): value for name, value in self.recipe.items()} | {
            "training images": self.n_train,
            "validation images": self.n_val,
            "test images": self.n_test,
            "labels of test images": digest,
        }

    def is_same(self, other: History) -> bool:
        """Tell whether another training run recorded exactly the same."""
        return (
            self.best == other.best
            and self.history.keys() == other.history.keys()
            and all(
                np.array_equal(values, other.history[name], equal_nan=True)
                for name, values in self.history.items()
            )
        )

    def curve(self, name: str) -> Floats:
        """Return a history; NaN throughout if it was not recorded."""
        return self.history.get(name, np.full(self.epochs, np.nan))

    def at(self, name: str, metric: str) -> float:
        """Return one value of a history at the epoch that a metric chose; NaN if it chose none."""
        epoch = self.best.get(metric)
        return float("nan") if epoch is None else float(self.curve(name)[epoch - 1])

    def test(self, metric: str, scaled: bool, score: str) -> float:
        """Return a score of the test images at the epoch that a metric chose; NaN if it chose none."""
        return self.at(f"test.{score}{'_ts' if scaled else ''}", metric)

    def rows(self) -> list[Choice]:
        """Return a row for each metric that chose an epoch."""
        return [
            Choice(
                *(*self.key, metric, self.best[metric], self.epochs),
                *(self.at(name, metric) for name in (f"val.{metric}", "val.beta")),
                *(self.test(metric, scaled, score) for scaled in (False, True) for score in SCORES),
            )
            for metric in METRICS
            if metric in self.best
        ]
