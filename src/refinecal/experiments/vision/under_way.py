"""Trainings that have begun: where their checkpoints are, and how far they are."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from refinecal._core.files import atomic_write
from refinecal.experiments.rates import TrainingProgress
from refinecal.experiments.store import RunFolder
from refinecal.experiments.vision.plan import Key

__all__ = ["ProgressWriter", "checkpoint_of", "read_progress", "tidy"]

CHECKPOINTS = "checkpoints"  # the folder within the run
PROGRESS = "progress.json"


@dataclass(slots=True)
class ProgressWriter:
    """Called after each epoch; writes how far a training is, for whoever looks at the run."""

    folder: Path
    clock: float = field(default_factory=time.perf_counter)
    done: int = 0  # epochs since the clock was read: those before it are of an earlier run

    def __call__(self, epoch: int, epochs: int) -> None:
        """Take note of an epoch that is finished."""
        self.done += 1
        per_epoch = (time.perf_counter() - self.clock) / self.done
        with atomic_write(self.folder / PROGRESS) as part:
            part.write_text(json.dumps(asdict(TrainingProgress(epoch, epochs, per_epoch))), "utf-8")


def checkpoint_of(run: Path, key: Key) -> Path:
    """Return the folder for what a training needs to go on."""
    return run / CHECKPOINTS / key.name


def read_progress(folder: RunFolder, keys: Iterable[Key]) -> dict[Key, TrainingProgress]:
    """Return how far trainings are, of those that have begun and are not finished."""
    found = {key: _read(checkpoint_of(folder.path, key) / PROGRESS) for key in keys}
    return {key: each for key, each in found.items() if each is not None}


def _read(path: Path) -> TrainingProgress | None:
    try:
        read: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return TrainingProgress(int(read["epoch"]), int(read["epochs"]), float(read["per_epoch"]))
    except (OSError, ValueError, KeyError, TypeError):  # not begun, or not to be relied on
        return None


def tidy(folder: RunFolder) -> None:
    """Remove checkpoints of trainings that are finished, and what a killed run left behind."""
    checkpoints = folder.path / CHECKPOINTS
    for key in folder.finished():
        shutil.rmtree(checkpoints / key.name, ignore_errors=True)
    for part in checkpoints.glob("*/.*.part*"):
        part.unlink(missing_ok=True)
    if not folder.missing() and not folder.failed():
        shutil.rmtree(checkpoints, ignore_errors=True)
