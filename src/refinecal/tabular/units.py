"""One training: a candidate on one fold, and the best step by every metric; kept until all are done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._calibrator import Calibrator
from refinecal._predictions import Predictions, widened
from refinecal._whole import whole
from refinecal.calibrators import from_dict
from refinecal.tabular.models._storage import to_npz

DESCRIPTION, TEST, PLAN = "unit.json", "test.npz", "plan.json"
UNDER_WAY, RUN = "under-way", "run"  # what is being written


@dataclass(frozen=True, slots=True)
class Choice:
    """The best step by one metric, the calibrator fitted there, and what the model says of the test rows."""

    step: int
    value: float
    calibrator: Calibrator
    test_logits: NDArray[Any] | None = None

    def test_probs(self, known: NDArray[np.int64], k: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return test probabilities of all classes, before and after calibration."""
        assert self.test_logits is not None, "there are test rows"
        logits = self.test_logits.astype(np.float64)
        before = Predictions("logits", logits, "predict").probs
        after = self.calibrator.predict_proba_logits(logits)
        return widened(before, known, np.arange(k)), widened(after, known, np.arange(k))


@dataclass(frozen=True, slots=True)
class Unit:
    """What one training went through, and what came of it."""

    candidate: int
    fold: int
    size: float  # of the validation rows
    known: NDArray[np.int64]  # codes of the classes of its training rows
    history: list[dict[str, float]]
    choices: dict[str, Choice]  # by metric
    folder: Path  # where the model is, cut to the step of smallest refinement

    def save(self) -> None:
        """Write everything but the model, which is there already."""
        choices = {
            name: {
                "step": choice.step,
                "value": choice.value,
                "calibrator": choice.calibrator.to_dict(),
            }
            for name, choice in self.choices.items()
        }
        logits: dict[str, Any] = {
            name: choice.test_logits
            for name, choice in self.choices.items()
            if choice.test_logits is not None
        }
        (self.folder / TEST).write_bytes(to_npz(logits))
        description = {
            "candidate": self.candidate,
            "fold": self.fold,
            "size": self.size,
            "known": self.known.tolist(),
            "history": self.history,
            "choices": choices,
        }
        (self.folder / DESCRIPTION).write_text(json.dumps(description), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Unit:
        """Read what :meth:`save` wrote."""
        found = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        with np.load(folder / TEST, allow_pickle=False) as file:
            logits: Mapping[str, NDArray[Any]] = dict(file.items())
        choices = {
            name: Choice(
                choice["step"],
                choice["value"],
                from_dict(choice["calibrator"]),
                logits.get(name),
            )
            for name, choice in found["choices"].items()
        }
        return cls(
            found["candidate"],
            found["fold"],
            found["size"],
            np.array(found["known"], dtype=np.int64),
            found["history"],
            choices,
            folder,
        )


class Workshop:
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
        with whole(self.folder / PLAN) as part:
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

    def finished(self, candidate: int, fold: int) -> Unit | None:
        """Return a training that was finished before."""
        folder = self._place(candidate, fold)
        return Unit.load(folder) if folder.exists() else None

    def new(self, name: str = UNDER_WAY) -> Path:
        """Return an empty folder for a training under way, or for the run."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def keep(self, unit: Unit) -> Unit:
        """Give a training that is complete its place."""
        unit.save()
        place = self._place(unit.candidate, unit.fold)
        unit.folder.rename(place)
        return Unit.load(place)

    def _place(self, candidate: int, fold: int) -> Path:
        return self.folder / f"candidate-{candidate}-fold-{fold}"

    @property
    def n_finished(self) -> int:
        """How many trainings are there."""
        return len(list(self.folder.glob("candidate-*")))

    def tidy(self) -> None:
        """Remove what is not complete."""
        for name in (UNDER_WAY, RUN):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def close(self) -> None:
        """Throw the folder away."""
        shutil.rmtree(self.folder, ignore_errors=True)
