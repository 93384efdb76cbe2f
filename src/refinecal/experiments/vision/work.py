"""Training runs of a plan in workers, or in the processes of ``accelerate launch``, which share each run."""

from __future__ import annotations

import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refinecal._core.errors import needs_extra
from refinecal._core.files import atomic_write, lock
from refinecal.experiments.folder import Failure, RunFolder, failure_of, versions
from refinecal.experiments.plan import ImageKey, VisionPlan
from refinecal.experiments.pools import limit_threads
from refinecal.experiments.rates import TrainingProgress
from refinecal.experiments.running import State
from refinecal.experiments.units import VisionUnit

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

    def __call__(self, key: ImageKey, path: Path) -> None:
        """Train, from the last checkpoint if there is one, and write the result to a file."""
        plan, folder = self.plan, checkpoint_of(self.run, key)
        images = read(plan.folder, key.dataset, plan.content.get(key.dataset))
        from refinecal.experiments.vision.training import train

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
    def _device(self, key: ImageKey) -> Iterator[str]:
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


def checkpoint_of(run: Path, key: ImageKey) -> Path:
    """Return the folder for the checkpoint of a training run."""
    return run / CHECKPOINTS / key.name


def read_progress(folder: RunFolder, keys: Iterable[ImageKey]) -> dict[ImageKey, TrainingProgress]:
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

    images = read_images(folder, name, content is None, count_training_images(content))
    found = fingerprint(images)
    if content is not None and found != content:
        raise ValueError(
            f"the images of {name} in {folder} are not those with which the run was started ({found}, not "
            f"{content}): restore them, or start a new run"
        )
    return images


def count_training_images(content: str | None) -> int | None:
    """Return how many training images a text of :func:`fingerprint` is about; ``None`` without one."""
    return None if content is None else int(content.partition("+")[0])


def fingerprint(images: ImageSet) -> str:
    """Return a text that identifies images: how many, and a digest."""
    return f"{len(images.train_y)}+{len(images.test_y)} images {images.digest()[:16]}"


Progress = Callable[[State], None]
PATIENCE = timedelta(minutes=5)  # for a process that has not reported the end of its run,
BEGINNING = timedelta(hours=6)  # and for the first one, which may have to download images


def is_distributed() -> bool:
    """Tell whether this process is one of several that train together."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


class Ranks:
    """The processes: the first of them does what must be done once. A device other than "cpu" is for GPUs."""

    def __init__(self, device: str) -> None:
        with needs_extra("vision", package="accelerate"):
            from accelerate import PartialState

        self._state: Any = PartialState(cpu=device == "cpu")
        self.device = device
        self.is_first: bool = self._state.is_main_process
        self.size: int = self._state.num_processes
        self._group: Any = None
        if self.size > 1:  # with separate connections, on which no training run can be stuck
            from torch import distributed

            self._group = distributed.new_group(backend="gloo", timeout=BEGINNING)

    def open_run(self, path: Path, begin: Callable[[], RunFolder]) -> RunFolder:
        """Return the folder of the run, which the first process starts; the others end if it cannot."""
        folder: RunFolder | None = None
        problem: Exception | None = None
        if self.is_first:
            try:
                folder = begin()
            except Exception as error:
                problem = error
        told = self._agree_on_failure(None if problem is None else failure_of(problem), BEGINNING)
        if problem is not None:
            raise problem
        if told is not None:
            raise SystemExit(1)  # the first one says why
        return folder or RunFolder(path)

    def run(self, keys: Sequence[ImageKey], folder: RunFolder, progress: Progress) -> None:
        """Train units one after another; the first process writes their results.

        An error in any process is a failure of that training run, and all continue with the next one.
        """
        self._state.wait_for_everyone()  # until all know what is to be done
        state = State(len(keys), left=set(keys), rates=folder.rates())
        if not self.is_first:
            for key in keys:
                self._attempt(key, folder, None)
            return
        with folder.lock():
            folder.tidy()
            folder.note(
                {"begin": len(keys), "width": 1, "where": "together", "versions": versions()}
            )
            for key in keys:
                self._finish(key, folder, state, progress)

    def _finish(self, key: ImageKey, folder: RunFolder, state: State, progress: Progress) -> None:
        """Train in the first process, and record the result."""
        begin = time.perf_counter()
        told = _EpochReporter(ProgressWriter(checkpoint_of(folder.path, key)), state, progress)
        stopped, failure = self._attempt(key, folder, told)
        seconds = time.perf_counter() - begin
        if failure is None:
            state.finish(folder, key, seconds, [f"{key}: {stopped}"] if stopped else ())
        else:
            state.fail(folder, key, failure, seconds)
        progress(state)

    def _attempt(
        self, key: ImageKey, folder: RunFolder, told: _EpochReporter | None
    ) -> tuple[str, Failure | None]:
        """Do this process's part of a run; return why it ended early, and the failure of any process."""
        stopped, failure = "", None
        try:
            stopped = self._train_and_save(key, folder, told)
        except Exception as error:
            failure = failure_of(error)
        return stopped, self._agree_on_failure(failure, PATIENCE)

    def _train_and_save(self, key: ImageKey, folder: RunFolder, told: _EpochReporter | None) -> str:
        """Train, and write the result if this is the first process."""
        checkpoint = checkpoint_of(folder.path, key)
        if self.is_first:
            checkpoint.mkdir(parents=True, exist_ok=True)
        unit = self._train(key, folder, told)
        if self.is_first:
            unit.save(folder.unit_path(key))
            shutil.rmtree(checkpoint, ignore_errors=True)
        return unit.stopped

    def _agree_on_failure(self, failure: Failure | None, patience: timedelta) -> Failure | None:
        """Return the failure of the first process that has one, in all processes."""
        if self._group is None:
            return failure
        from torch import distributed

        told: list[Failure | None] = [None] * self.size
        try:
            distributed.monitored_barrier(self._group, patience, wait_all_ranks=True)
            distributed.all_gather_object(told, failure, self._group)
        except RuntimeError as error:
            own = "" if failure is None else f"; here: {failure['kind']}: {failure['message']}"
            raise ConnectionError(
                f"a process that trains with this one has died or does not answer ({error}{own}). Finished "
                "epochs are kept: run the same command again, with --resume"
            ) from error
        return next((each for each in told if each is not None), None)

    def _train(
        self, key: ImageKey, folder: RunFolder, progress: _EpochReporter | None
    ) -> VisionUnit:
        from refinecal.experiments.vision.training import train

        plan = folder.plan
        images = read(plan.folder, key.dataset, plan.content.get(key.dataset))
        with limit_threads(plan.n_threads):
            return train(
                plan.recipe(key.dataset, key.model),
                images,
                key.seed,
                device="cpu" if self.device == "cpu" else None,
                checkpoint=checkpoint_of(folder.path, key),
                progress=progress,
            )


@dataclass(slots=True)
class _EpochReporter:
    """Reports every epoch to the folder and to the progress bar."""

    teller: ProgressWriter
    state: State
    progress: Progress

    def __call__(self, epoch: int, epochs: int) -> None:
        self.teller(epoch, epochs)
        self.progress(self.state)
