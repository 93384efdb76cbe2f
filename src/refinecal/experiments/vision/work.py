"""What a worker does for one training: take a device, read the images, train, write the result."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from refinecal._core.files import lock
from refinecal.experiments.vision.plan import Key, VisionPlan
from refinecal.experiments.vision.under_way import CHECKPOINTS, ProgressWriter, checkpoint_of

if TYPE_CHECKING:
    from refinecal.experiments.vision.images import ImageSet

__all__ = ["Work", "fingerprint", "read"]

WAIT = 0.1  # seconds between looks for a free device


@dataclass(frozen=True, slots=True)
class Work:
    """Trains any unit of a plan; what :func:`refinecal.experiments.running.run` sends to workers.

    Parameters
    ----------
    plan : VisionPlan
        What is planned.
    run : Path
        The folder of the run: each training has its checkpoint there until it is finished.
    devices : tuple of str
        A training takes one that no other has; ``"cpu"`` may be there more than once.
    """

    plan: VisionPlan
    run: Path
    devices: tuple[str, ...]

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


@lru_cache(1)
def read(folder: str, name: str, content: str | None) -> ImageSet:
    """Return the images of a data set, if they are those that the plan is about."""
    from refinecal.experiments.vision.images import read_images

    images = read_images(folder, name, check=content is None)
    found = fingerprint(images)
    if content is not None and found != content:
        raise ValueError(
            f"the images of {name} in {folder} are not those with which the run was begun ({found}, not "
            f"{content}): bring them back, or begin a new run"
        )
    return images


def fingerprint(images: ImageSet) -> str:
    """Return a word about images that is another one for other images: how many, and a digest."""
    return f"{len(images.train_y)}+{len(images.test_y)} images {images.digest()[:16]}"
