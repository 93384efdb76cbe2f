"""One training run at a time on several devices together, in processes of ``accelerate launch``."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from refinecal._core.errors import needs_extra
from refinecal.experiments._worker import limit_threads
from refinecal.experiments.running import State
from refinecal.experiments.store import Failure, RunFolder, failure_of, versions
from refinecal.experiments.vision.plan import Key
from refinecal.experiments.vision.unit import VisionUnit
from refinecal.experiments.vision.work import ProgressWriter, checkpoint_of, read

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
        """Return the folder of the run, which the first process begins; the others end if it cannot."""
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

    def run(self, keys: Sequence[Key], folder: RunFolder, progress: Progress) -> None:
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

    def _finish(self, key: Key, folder: RunFolder, state: State, progress: Progress) -> None:
        """Train in the first process, and record the result."""
        begin = time.perf_counter()
        told = _EpochReporter(ProgressWriter(checkpoint_of(folder.path, key)), state, progress)
        stopped, failure = self._attempt(key, folder, told)
        about: dict[str, Any] = {"seconds": round(time.perf_counter() - begin, 3)}
        state.end(key)
        if failure is None:
            folder.forget_failure(key)
            state.rates.add(key, about["seconds"])
            state.finished += 1
            about |= {"warnings": [f"{key}: {stopped}"]} if stopped else {}
        else:
            folder.record_failure(key, failure)
            state.failed += 1
            state.last_failure = f"{key}: {failure['kind']}: {failure['message']}"
            about |= {"failed": failure["kind"]}
        folder.note({"unit": key.name, **about})
        progress(state)

    def _attempt(
        self, key: Key, folder: RunFolder, told: _EpochReporter | None
    ) -> tuple[str, Failure | None]:
        """Do this process's part of a run; return why it ended early, and the failure of any process."""
        stopped, failure = "", None
        try:
            stopped = self._train_and_save(key, folder, told)
        except Exception as error:
            failure = failure_of(error)
        return stopped, self._agree_on_failure(failure, PATIENCE)

    def _train_and_save(self, key: Key, folder: RunFolder, told: _EpochReporter | None) -> str:
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

    def _train(self, key: Key, folder: RunFolder, progress: _EpochReporter | None) -> VisionUnit:
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
