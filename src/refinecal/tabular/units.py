"""One training: a candidate on one fold, and the best step by every metric; kept until all are done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.files import atomic_write
from refinecal.training.pool import HeldOut, all_classes
from refinecal.training.storage import to_npz

DESCRIPTION, ARRAYS, PLAN = "unit.json", "arrays.npz", "plan.json"
UNDER_WAY, RUN = "under-way", "run"  # what is being written


@dataclass(frozen=True, slots=True)
class BestStep:
    """The best step by one metric, and what the model says there of its validation and of the test rows."""

    step: int
    value: float
    logits: NDArray[Any]
    test_logits: NDArray[Any] | None = None


@dataclass(frozen=True, slots=True)
class FoldFit:
    """What one training went through, and what came of it."""

    candidate: int | None  # None for a model that is delivered, trained on all rows
    fold: int
    known: NDArray[np.int64]  # codes of the classes of its training rows
    history: list[dict[str, float]]
    choices: dict[str, BestStep]  # by metric
    folder: Path  # where the model is, cut to the step of smallest refinement
    y: NDArray[np.int64]  # of the validation rows, like the rest
    weights: NDArray[np.float64] | None
    places: NDArray[np.int64]

    @property
    def values(self) -> dict[str, float]:
        """The best value of each metric."""
        return {name: best.value for name, best in self.choices.items()}

    @property
    def size(self) -> float:
        """The number of validation rows, each counted as often as its weight says."""
        return float(len(self.y) if self.weights is None else self.weights.sum())

    def held_out(self, metric: str, k: int) -> HeldOut:
        """Return what the model says of its validation rows at the step that a metric chose."""
        logits = all_classes(self.choices[metric].logits, self.known, k)
        return HeldOut(logits, self.y, self.weights, self.places)

    def test_logits(self, metric: str, k: int) -> NDArray[Any]:
        """Return what it says of the test rows."""
        logits = self.choices[metric].test_logits
        assert logits is not None, "there are test rows"
        return all_classes(logits, self.known, k)

    def save(self) -> None:
        """Write everything but the model, which is there already."""
        arrays: dict[str, Any] = {"y": self.y, "places": self.places}
        if self.weights is not None:
            arrays["weights"] = self.weights
        for name, choice in self.choices.items():
            arrays[f"validation {name}"] = choice.logits
            if choice.test_logits is not None:
                arrays[f"test {name}"] = choice.test_logits
        (self.folder / ARRAYS).write_bytes(to_npz(arrays))
        description = {
            "candidate": self.candidate,
            "fold": self.fold,
            "known": self.known.tolist(),
            "history": self.history,
            "choices": {name: [each.step, each.value] for name, each in self.choices.items()},
        }
        (self.folder / DESCRIPTION).write_text(json.dumps(description), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> FoldFit:
        """Read what :meth:`save` wrote."""
        found = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        with np.load(folder / ARRAYS, allow_pickle=False) as file:
            arrays: Mapping[str, NDArray[Any]] = dict(file.items())
        choices = {
            name: BestStep(step, value, arrays[f"validation {name}"], arrays.get(f"test {name}"))
            for name, (step, value) in found["choices"].items()
        }
        return cls(
            found["candidate"],
            found["fold"],
            np.array(found["known"], dtype=np.int64),
            found["history"],
            choices,
            folder,
            arrays["y"],
            arrays.get("weights"),
            arrays["places"],
        )


class UnfinishedRun:
    """The folder of a run that is being made: finished trainings, each complete or not there at all.

    Parameters
    ----------
    folder : Path
        Hidden beside the run that will be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, plan: dict[str, Any], resume: bool) -> None:
        """Begin, with the training runs that are finished if they are to be resumed."""
        if resume and self.n_finished:
            return
        self.close()
        self.folder.mkdir(parents=True)
        with atomic_write(self.folder / PLAN) as part:
            part.write_text(json.dumps(plan), encoding="utf-8")

    def check(self, plan: dict[str, Any]) -> None:
        """Refuse to resume training runs that belong to another plan."""
        if not self.n_finished:
            return
        try:
            found = json.loads((self.folder / PLAN).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = {}
        changed = [name for name in plan if found.get(name) != plan[name]]
        if changed:
            raise ValueError(
                f"--resume: the unfinished run in {self.folder} was started with another "
                f"{' and '.join(changed)}: pass the same options, or discard it with --restart"
            )

    def load(self, candidate: int | None, fold: int) -> FoldFit | None:
        """Return a training that was finished before."""
        folder = self._place(candidate, fold)
        return FoldFit.load(folder) if folder.exists() else None

    def new(self, name: str) -> Path:
        """Return an empty folder for a training run under way, or for the whole."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def keep(self, unit: FoldFit) -> FoldFit:
        """Give a training that is complete its place."""
        unit.save()
        place = self._place(unit.candidate, unit.fold)
        unit.folder.rename(place)
        return replace(unit, folder=place)

    def _place(self, candidate: int | None, fold: int) -> Path:
        which = "delivered" if candidate is None else f"candidate-{candidate}"
        return self.folder / f"{which}-fold-{fold}"

    @property
    def n_finished(self) -> int:
        """How many trainings are there."""
        return len(list(self.folder.glob("*-fold-*")))

    def tidy(self) -> None:
        """Remove what is not complete."""
        for folder in (*self.folder.glob(f"{UNDER_WAY}-*"), self.folder / RUN):
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Throw the folder away."""
        shutil.rmtree(self.folder, ignore_errors=True)
