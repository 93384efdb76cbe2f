"""One training run of a plan in a worker: its device, images, checkpoint, progress and result."""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from refinecal._core.files import atomic_write, lock
from refinecal.experiments.rates import TrainingProgress
from refinecal.experiments.store import RunFolder
from refinecal.experiments.vision.plan import Key, VisionPlan

if TYPE_CHECKING:
    from refinecal.experiments.vision.images import ImageSet

CHECKPOINTS = "checkpoints"  # the folder within the run
PROGRESS = "progress.json"
WAIT = 0.1  # seconds between looks for a free device


@dataclass(frozen=True, slots=True)
class Work:
    """Computes any unit of a plan; what :func:`refinecal.experiments.running.run` sends to workers."""

    plan: VisionPlan
    run: Path  # the folder of the run: training runs have their checkpoints there until they are finished
    devices: tuple[str, ...]  # each for one training run at a time; "cpu" may occur more than once

    def __call__(self, key: Key, path: Path) -> None:
        """Train, from the last checkpoint if there is one, and write the result to a file."""
        plan, folder = self.plan, checkpoint_of(self.run, key)
        images = read(plan.folder, key.dataset, plan.content.get(key.dataset))
        from refinecal.experiments.vision.training import train  # torch: not before all is there

        folder.mkdir(parents=True, exist_ok=True)
        with self._device(key) as device:
            unit = train(
                plan.recipe(key.dataset, key.model),
                images,
                key.seed,
                device=device,
                checkpoint=folder,
                progress=ProgressWriter(folder),
            )
        unit.save(path)
        shutil.rmtree(folder, ignore_errors=True)
        if unit.stopped:
            warnings.warn(f"{key}: {unit.stopped}", stacklevel=2)

    @contextmanager
    def _device(self, key: Key) -> Iterator[str]:
        """Give a device that no other worker has, for as long as it takes."""
        n = len(self.devices)
        first = self.plan.units().index(key) % n  # a good guess, and all there is without locks
        places = [(first + step) % n for step in range(n)]
        while True:
            for place in places:
                with (self.run / CHECKPOINTS / f"device-{place}.lock").open("a") as file:
                    if lock(file.fileno()):
                        yield self.devices[place]
                        return
            time.sleep(WAIT)


@dataclass(slots=True)
class ProgressWriter:
    """Called after each epoch; writes how far a training run is."""

    folder: Path
    clock: float = field(default_factory=time.perf_counter)
    done: int = 0  # epochs since the clock was read: those before it are of an earlier run

    def __call__(self, epoch: int, epochs: int) -> None:
        """Write that an epoch is finished."""
        self.done += 1
        per_epoch = (time.perf_counter() - self.clock) / self.done
        with atomic_write(self.folder / PROGRESS) as part:
            part.write_text(json.dumps(asdict(TrainingProgress(epoch, epochs, per_epoch))), "utf-8")


def checkpoint_of(run: Path, key: Key) -> Path:
    """Return the folder for the checkpoint of a training run."""
    return run / CHECKPOINTS / key.name


def read_progress(folder: RunFolder, keys: Iterable[Key]) -> dict[Key, TrainingProgress]:
    """Return how far training runs are, of those that have begun and are not finished."""
    found = {}
    for key in keys:
        with suppress(OSError, ValueError, KeyError, TypeError):  # not begun, or unreadable
            read = json.loads((checkpoint_of(folder.path, key) / PROGRESS).read_text("utf-8"))
            found[key] = TrainingProgress(
                int(read["epoch"]), int(read["epochs"]), float(read["per_epoch"])
            )
    return found


def tidy(folder: RunFolder) -> None:
    """Remove checkpoints of training runs that are finished, and what a killed run left behind."""
    checkpoints = folder.path / CHECKPOINTS
    for key in folder.finished():
        shutil.rmtree(checkpoints / key.name, ignore_errors=True)
    for part in checkpoints.glob("*/.*.part*"):
        part.unlink(missing_ok=True)
    if not folder.missing() and not folder.failed():
        shutil.rmtree(checkpoints, ignore_errors=True)


@lru_cache(1)
def read(folder: str, name: str, content: str | None) -> ImageSet:
    """Return the images of a data set; raise if they are not those of the plan."""
    from refinecal.experiments.vision.images import read_images

    images = read_images(folder, name, check=content is None)
    found = fingerprint(images)
    if content is not None and found != content:
        raise ValueError(
            f"the images of {name} in {folder} are not those with which the run was begun ({found}, not "
            f"{content}): restore them, or begin a new run"
        )
    return images


def fingerprint(images: ImageSet) -> str:
    """Return a text that identifies images: how many, and a digest."""
    return f"{len(images.train_y)}+{len(images.test_y)} images {images.digest()[:16]}"
