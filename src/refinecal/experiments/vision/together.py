"""One training at a time on several devices together, in processes that ``accelerate launch`` started."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refinecal._optional import needs_extra
from refinecal.experiments._worker import limited
from refinecal.experiments.running import State
from refinecal.experiments.store import RunFolder, versions
from refinecal.experiments.vision.plan import Key
from refinecal.experiments.vision.under_way import Teller, checkpoint_of
from refinecal.experiments.vision.work import read

__all__ = ["Ranks", "are_several"]

Progress = Callable[[State], None]


def are_several() -> bool:
    """Tell whether this process is one of several that train together."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


class Ranks:
    """The processes: the first of them does what is to be done once.

    Parameters
    ----------
    device : str
        ``"cpu"``, or anything else for GPUs.
    """

    def __init__(self, device: str) -> None:
        with needs_extra("vision", package="accelerate"):
            from accelerate import PartialState

        self._state: Any = PartialState(cpu=device == "cpu")
        self.device = device
        self.is_first: bool = self._state.is_main_process
        self.size: int = self._state.num_processes

    def opened(self, path: Path, begin: Callable[[], RunFolder]) -> RunFolder:
        """Return the folder of the run, which the first process begins."""
        folder = begin() if self.is_first else None
        self._state.wait_for_everyone()
        return folder or RunFolder(path)

    def run(self, keys: Sequence[Key], folder: RunFolder, progress: Progress) -> None:
        """Train units one after another; the first process writes what comes of them."""
        self._state.wait_for_everyone()  # until all know what is to be done
        state = State(len(keys), left=set(keys), rates=folder.rates())
        if not self.is_first:
            for key in keys:
                self._train(key, folder, None)
                self._state.wait_for_everyone()
            return
        with folder.alone():
            folder.tidy()
            folder.note(
                {"begin": len(keys), "width": 1, "where": "together", "versions": versions()}
            )
            for key in keys:
                self._finish(key, folder, state, progress)
                self._state.wait_for_everyone()

    def _finish(self, key: Key, folder: RunFolder, state: State, progress: Progress) -> None:
        begin = time.perf_counter()
        checkpoint = checkpoint_of(folder.path, key)
        checkpoint.mkdir(parents=True, exist_ok=True)
        unit = self._train(key, folder, _Told(Teller(checkpoint), state, progress))
        unit.save(folder.unit_path(key))
        shutil.rmtree(checkpoint, ignore_errors=True)
        seconds = time.perf_counter() - begin
        state.rates.add(key, seconds)
        state.end(key)
        state.finished += 1
        folder.forget_failure(key)
        about = {"warnings": [f"{key}: {unit.stopped}"]} if unit.stopped else {}
        folder.note({"unit": key.name, "seconds": round(seconds, 3), **about})
        progress(state)

    def _train(self, key: Key, folder: RunFolder, progress: _Told | None) -> Any:
        from refinecal.experiments.vision.training import train

        plan = folder.plan
        images = read(plan.folder, key.dataset, plan.content.get(key.dataset))
        with limited(plan.n_threads):
            return train(
                plan.recipe(key.dataset, key.model),
                images,
                key.seed,
                device="cpu" if self.device == "cpu" else None,
                checkpoint=checkpoint_of(folder.path, key),
                progress=progress,
            )


@dataclass(slots=True)
class _Told:
    """Tells of every epoch to the folder, and to whoever watches."""

    teller: Teller
    state: State
    progress: Progress

    def __call__(self, epoch: int, epochs: int) -> None:
        self.teller(epoch, epochs)
        self.progress(self.state)
