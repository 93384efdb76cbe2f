"""Where a fit is kept: hidden until it is finished, then under its name, perhaps in the place of another."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from refinecal._core.errors import warn
from refinecal._core.files import FULL, MANIFEST, PLAN, RunFolder, hold_lock
from refinecal._core.format import count, list_names
from refinecal.training.crossfit import BestStep, FoldModel
from refinecal.training.table_model import FILES, read_npz, to_npz

SCHEMA, CALIBRATOR = "schema.json", "calibrator.json"
METRICS, REPORT, SETTINGS = "metrics.json", "report.html", "fit.toml"
HISTORY, TEST_ROWS = "history.parquet", "test_predictions.parquet"
DESCRIPTION, ARRAYS = "unit.json", "arrays.npz"  # of a training run, next to its model
UNDER_WAY, RUN = "under-way", "run"  # folders that are being written


class FitFolder(RunFolder):
    """The unfinished run of a fit, hidden next to the run folder that it will become.

    Each of its units is the folder of a training run: the model, its history and its predictions.
    """

    def __init__(self, out: Path) -> None:
        place = Path(os.path.realpath(out))
        super().__init__(place.parent / f".{place.name}.unfinished", f"fitting {out}")
        self.out, self.old = out, place.parent / f".{place.name}.old"
        self.lock_path = place.parent / f".{place.name}.lock"

    def lock(self) -> AbstractContextManager[None]:
        """Hold the lock, whose file is removed at the end."""
        self.lock_path.parent.mkdir(parents=True, exist_ok=True)
        return hold_lock(self.lock_path, self.doing, remove=True)

    # ---- unfinished ----------------------------------------------------------------------------------------

    @property
    def n_finished(self) -> int:
        """How many training runs are finished."""
        return len(self.unit_names())

    @property
    def resume_options(self) -> str:
        """The options that continue the run."""
        return "--resume --overwrite" if self.out.exists() else "--resume"

    def check_plan(self, plan: dict[str, Any]) -> None:
        """Refuse to resume training runs that belong to another plan."""
        try:
            found = json.loads((self.path / PLAN).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = {}
        changed = [name for name in plan if found.get(name) != plan[name]]
        if changed and self.n_finished:
            raise ValueError(
                f"--resume: the unfinished run in {self.path} was started with another "
                f"{' and '.join(changed)}: pass the same options, or discard it with --restart"
            )

    def open(self, plan: dict[str, Any], resume: bool) -> None:
        """Start, or continue with the training runs that are finished."""
        if not (resume and self.n_finished):
            shutil.rmtree(self.path, ignore_errors=True)
            self.path.mkdir(parents=True)
            self.write_plan(json.dumps(plan).encode())

    @contextmanager
    def work(self, plan: dict[str, Any], resume: bool) -> Iterator[None]:
        """Open the folder; remove it at the end, but keep finished training runs if something goes wrong."""
        try:
            self.open(plan, resume)
            yield
        except BaseException as error:
            kept = self.n_finished
            self.tidy()
            if isinstance(error, OSError) and error.errno in FULL:
                error.filename = str(self.out)  # not a hidden file, or none
            if kept:
                runs = count(kept, "finished training run")
                error.add_note(f"{runs} kept: continue with {self.resume_options}")
            raise
        shutil.rmtree(self.path, ignore_errors=True)

    def tidy(self) -> None:
        """Remove unfinished training runs, or everything if none is finished."""
        if not self.n_finished:
            shutil.rmtree(self.path, ignore_errors=True)
        for folder in (*self.path.glob(f"{UNDER_WAY}-*"), self.path / RUN):
            shutil.rmtree(folder, ignore_errors=True)

    def new(self, name: str) -> Path:
        """Return an empty folder for a training run, or for the finished run."""
        folder = self.path / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def keep(self, unit: FoldModel, name: str, elapsed: float = 0.0) -> FoldModel:
        """Give a training run its name, once everything but its model is written next to the model.

        ``elapsed`` is how long the fit has taken until now, which counts towards a time limit.
        """
        arrays: dict[str, Any] = {"y": unit.y, "places": unit.places}
        if unit.weights is not None:
            arrays["weights"] = unit.weights
        for metric, choice in unit.choices.items():
            arrays[f"validation {metric}"] = choice.logits
            if choice.test_logits is not None:
                arrays[f"test {metric}"] = choice.test_logits
        (unit.model / ARRAYS).write_bytes(to_npz(arrays))
        description = {
            "candidate": unit.candidate,
            "fold": unit.fold,
            "known": unit.known.tolist(),
            "history": unit.history,
            "seconds": unit.seconds,
            "elapsed": elapsed,
            "choices": {name: [each.step, each.value] for name, each in unit.choices.items()},
        }
        (unit.model / DESCRIPTION).write_text(json.dumps(description), encoding="utf-8")
        place = self.path / name
        unit.model.rename(place)
        return replace(unit, model=place)

    def load(self, name: str) -> FoldModel | None:
        """Return a training run that was finished before."""
        folder = self.path / name
        if not folder.exists():
            return None
        found, arrays = json.loads((folder / DESCRIPTION).read_bytes()), read_npz(folder / ARRAYS)
        choices = {
            name: BestStep(step, value, arrays[f"validation {name}"], arrays.get(f"test {name}"))
            for name, (step, value) in found["choices"].items()
        }
        known = np.array(found["known"], dtype=np.int64)
        where = (found["candidate"], found["fold"], known, found["history"], choices, folder)
        rows = (arrays["y"], arrays.get("weights"), arrays["places"])
        return FoldModel(*where, *rows, seconds=found["seconds"])

    def elapsed(self) -> float:
        """Return how long the fit had taken when its last training run was finished."""
        files = [self.path / name / DESCRIPTION for name in self.unit_names()]
        return max((json.loads(file.read_bytes())["elapsed"] for file in files), default=0.0)

    # ---- finished ------------------------------------------------------------------------------------------

    def check_free(self, overwrite: bool) -> None:
        """Refuse to take the place of something, unless it is a run that may be overwritten."""
        run = self.out
        if _is_free(run):
            if not self.old.exists():
                return
            os.replace(self.old, os.path.realpath(run))  # a crash at the worst moment
        if not (run / SCHEMA).exists():
            raise ValueError(
                f"{run} exists and is not a run folder, so it is left alone: choose another --out"
            )
        if not overwrite:
            raise ValueError(f"{run} exists: choose another --out, or pass --overwrite")

    def publish(self, finished: Path) -> None:
        """Give a finished folder its name, in the place of an older run if there is one.

        The older run is complete, here or hidden, until the new one has its name. Files in it that no fit
        wrote are in both.
        """
        run, place = self.out, os.path.realpath(self.out)
        if _is_free(run):
            if run.exists():
                os.rmdir(place)  # for systems where nothing takes the place of a folder
            os.replace(finished, place)
            return
        others = find_user_files(run)
        for path in others:
            _share(run / path, finished / path)
        shutil.rmtree(self.old, ignore_errors=True)
        os.replace(place, self.old)
        try:
            os.replace(finished, place)
        except BaseException:
            if not run.exists():
                os.replace(self.old, place)
            raise
        shutil.rmtree(self.old, ignore_errors=True)
        if others:
            warn(f"kept in {run}, since no fit wrote it: {list_names(list(map(str, others)), 5)}")


def _is_free(run: Path) -> bool:
    """Tell whether nothing is there, or a folder with nothing in it."""
    return not run.exists() or (run.is_dir() and not any(run.iterdir()))


def find_user_files(run: Path) -> list[Path]:
    """Return what is in a run folder but was not written by the fit: files, and folders as a whole."""
    try:
        own = {Path(name) for name in (MANIFEST, *RunFolder(run).read_manifest())}
    except (OSError, ValueError):  # damaged or of an older version: what any fit may have written
        places = [path.relative_to(run) for path in (run, *run.glob("fold-*")) if path.is_dir()]
        names = (MANIFEST, SCHEMA, CALIBRATOR, METRICS, REPORT, HISTORY, TEST_ROWS)
        own = {*map(Path, names), *(place / name for place in places for name in FILES.values())}
    folders = {path.parent for path in own}
    inside = {path.relative_to(run) for each in folders for path in (run / each).glob("*")}
    return sorted(inside - own - folders)


def _share(path: Path, place: Path) -> None:
    """Give a file, or all in a folder, a second name; or a copy where there are no such links."""
    if path.is_dir() and not path.is_symlink():
        shutil.copytree(path, place, symlinks=True, copy_function=_link)
    else:
        place.parent.mkdir(exist_ok=True)
        _link(path, place)


def _link(path: str | Path, place: str | Path) -> None:
    try:
        os.link(path, place, follow_symlinks=False)
    except FileExistsError:
        raise ValueError(
            f"{path} is not of the older run, but the new one has a file of that name: move it away"
        ) from None
    except (OSError, NotImplementedError):
        shutil.copy2(path, place, follow_symlinks=False)
