"""The folder of a run: what is planned, what is finished, what failed; every file in it is whole."""

from __future__ import annotations

import json
import os
import platform
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from refinecal._core.files import atomic_write, hold_lock, in_use, is_locked
from refinecal.experiments.rates import Rates
from refinecal.experiments.tabular.plan import Plan
from refinecal.experiments.vision.plan import VisionPlan

__all__ = ["RunFolder", "failure_of", "versions"]

PLAN, UNITS, FAILURES = "plan.json", "units", "failures"
JOURNAL, LOCK, LOG = "journal.jsonl", "lock", "workers.log"
ENDING = ".npz"
PACKAGES = (
    *("refinecal", "numpy", "scipy", "scikit-learn", "pandas"),
    *("xgboost", "lightgbm", "catboost", "torch", "pytabkit"),
)

PLANS: dict[str, type[Plan] | type[VisionPlan]] = {"tabular": Plan, "vision": VisionPlan}

Key = Any  # of either experiment: has a name, and says which others are alike
Failure = dict[str, Any]  # kind, message, traceback; added: key, time, attempts


class RunFolder:
    """A run on disk: ``plan.json``, and for each training a file in ``units``, or ``failures`` if it failed.

    A file appears under its name when it is complete. So whatever happens to a run (ctrl-C, SIGKILL, a power
    cut), what is there can be used, and the rest can be done later.

    Parameters
    ----------
    path : path-like
        The folder of a run that was begun.

    Attributes
    ----------
    path : Path
        The folder.
    plan : Plan or VisionPlan
        What is planned.
    kind : str
        Which experiment it is a run of: ``"tabular"`` or ``"vision"``.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as temporary:
    ...     plan = Plan(({"name": "adult"},), ("mlp",), splits=2)
    ...     folder = RunFolder.create(Path(temporary) / "run", plan)
    ...     first, second = plan.units()
    ...     _ = folder.unit_path(first).write_text("…")
    ...     folder.record_failure(second, {"kind": "MemoryError"})
    ...     len(folder.finished()), folder.failed()[second]["kind"], folder.missing()
    (1, 'MemoryError', [])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not (self.path / PLAN).is_file():
            there = "has no plan.json" if self.path.is_dir() else "is no folder"
            raise ValueError(
                f"{self.path} {there}, so it is no run: name the folder that --out of an experiment named"
            )
        self.kind, self.plan = self._read_plan()
        for name in (UNITS, FAILURES):
            (self.path / name).mkdir(exist_ok=True)

    @classmethod
    def create(cls, path: str | os.PathLike[str], plan: Plan | VisionPlan) -> RunFolder:
        """Begin a run in a folder that is new or empty."""
        path = Path(path)
        cls.check_new(path)
        _as_bytes(plan)  # which may fail, before there is anything on the disk
        path.mkdir(parents=True, exist_ok=True)
        cls._write_plan(path, plan)
        return cls(path)

    @staticmethod
    def check_new(path: Path) -> None:
        """Refuse a folder in which no run can begin."""
        if (path / PLAN).is_file():
            raise FileExistsError(
                f"{path} holds a run already: continue it with --resume, or name another folder"
            )
        begun = f".{Path(PLAN).stem}."  # the only files of a run that was killed at once
        if path.exists() and not (
            path.is_dir() and all(each.name.startswith(begun) for each in path.iterdir())
        ):
            raise FileExistsError(f"{path} exists and is no run: name a new folder")

    def check_kind(self, kind: str) -> None:
        """Refuse a run of another experiment."""
        if self.kind != kind:
            raise ValueError(
                f"{self.path} holds a run of the {self.kind} experiment, not of the {kind} one: name another "
                "folder"
            )

    def grow(self, plan: Plan | VisionPlan) -> None:
        """Take another plan that computes all that the run's does: with more, or with data elsewhere.

        A plan that leaves something out or computes it otherwise is refused, in words.
        """
        if plan == self.plan:
            return
        with self.lock():
            _, self.plan = self._read_plan()  # another process may have made it larger meanwhile
            said = "\n  ".join(self.plan.losses(plan))
            if said:
                raise ValueError(
                    f"{self.path} was begun with another plan:\n  {said}\nA run can get more "
                    f"{plan.MORE}, if all that it has are named too. Resume without these options, which "
                    f"takes the plan of the run{_suggest_names(self.plan, plan)}, or name another folder"
                )
            self._write_plan(self.path, plan)
            self.plan = plan

    # ---- units ---------------------------------------------------------------------------------------------

    def unit_path(self, key: Key) -> Path:
        """Return where the result of a training is, or will be."""
        return self.path / UNITS / f"{key.name}{ENDING}"

    def has(self, key: Key) -> bool:
        """Tell whether a training has a result."""
        try:
            return self.unit_path(key).stat().st_size > 0
        except FileNotFoundError:
            return False

    def remove_damaged(self, is_whole: Callable[[Path], bool]) -> list[Key]:
        """Remove results that are not whole, as a bad copy leaves them: now they are missing; return them."""
        damaged = [key for key in self.finished() if not is_whole(self.unit_path(key))]
        for key in damaged:
            self.unit_path(key).unlink(missing_ok=True)
        return damaged

    def finished(self) -> list[Key]:
        """Return the trainings that have a result, in the order of the plan."""
        there = self._list_files(UNITS, ENDING)
        return [key for key in self.plan.units() if key.name in there]

    def failed(self) -> dict[Key, Failure]:
        """Return the trainings that failed, with why; not those that have a result by now."""
        names, done = self._list_files(FAILURES, ".json"), self._list_files(UNITS, ENDING)
        return {
            key: self._failure(key)
            for key in self.plan.units()
            if key.name in names and key.name not in done
        }

    def missing(self) -> list[Key]:
        """Return the trainings that have neither a result nor a failure, in the order of the plan."""
        there = self._list_files(UNITS, ENDING) | self._list_files(FAILURES, ".json")
        return [key for key in self.plan.units() if key.name not in there]

    def record_failure(self, key: Key, failure: Failure) -> None:
        """Write down that a training failed, and why."""
        about = {"key": key._asdict(), "time": _now(), **failure}
        with atomic_write(self._failure_path(key)) as part:
            part.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", "utf-8")

    def forget_failure(self, key: Key) -> None:
        """Take back that a training failed."""
        self._failure_path(key).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove what a killed run left behind: beginnings of files."""
        for folder in (self.path, self.path / UNITS, self.path / FAILURES):
            for part in folder.glob(".*.part*"):
                part.unlink(missing_ok=True)

    # ---- what happened -------------------------------------------------------------------------------------

    def note(self, about: Mapping[str, Any]) -> None:
        """Add a line to the journal: what was done, and how long it took."""
        line = json.dumps({"time": _now(), **about}, ensure_ascii=False) + "\n"
        with (self.path / JOURNAL).open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # killed in the middle of a line
                    file.write(b"\n")
            file.write(line.encode())

    def journal(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of the journal, but for those that were cut off."""
        try:
            text = (self.path / JOURNAL).read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return
        for line in text.splitlines():
            try:
                read = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(read, dict):
                yield read

    def rates(self) -> Rates:
        """Return how long trainings took."""
        keys, rates = {key.name: key for key in self.plan.units()}, Rates()
        for line in self.journal():
            key = keys.get(line.get("unit", ""))
            seconds = line.get("seconds")
            if key is not None and isinstance(seconds, int | float) and not line.get("failed"):
                rates.add(key, float(seconds))
        return rates

    def sessions(self) -> list[dict[str, Any]]:
        """Return how often the run was begun or resumed: each time with what, and how wide."""
        return [line for line in self.journal() if "begin" in line]

    def warnings(self) -> Counter[str]:
        """Return what trainings warned of, and how many did."""
        return Counter(text for line in self.journal() for text in line.get("warnings", ()))

    def note_left_out(self, reasons: Mapping[str, str]) -> None:
        """Write down which data sets were left out, and why, if that is not known yet."""
        known = self.left_out()
        new = {name: why for name, why in reasons.items() if known.get(name) != why}
        if new:
            self.note({"left_out": new})

    def left_out(self) -> dict[str, str]:
        """Return why data sets that were looked at are not in the plan, by name."""
        found: dict[str, str] = {}
        for line in self.journal():
            found |= line.get("left_out", {})
        return {name: why for name, why in found.items() if name not in self.plan.sets}

    def changed_versions(self) -> list[str]:
        """Return the packages that are not those with which the run was begun or last resumed."""
        sessions, now = self.sessions(), versions()
        before = sessions[-1].get("versions", now) if sessions else now
        return [
            f"{name} was {before.get(name, 'absent')} when the run was begun and is "
            f"{now.get(name, 'absent')} now: results of both are in one folder"
            for name in sorted({*before, *now})
            if before.get(name) != now.get(name)
        ]

    @property
    def log(self) -> Path:
        """Return the file that takes what worker processes print."""
        return self.path / LOG

    def lock(self) -> AbstractContextManager[None]:
        """Refuse to be two runs in one folder; a run that was killed does not count."""
        return hold_lock(self.path / LOCK, self._doing)

    def check_idle(self) -> None:
        """Refuse a run at which another process is at work."""
        if self.is_running():
            raise in_use(self.path / LOCK, self._doing)

    @property
    def _doing(self) -> str:
        return f"running the experiment in {self.path}"

    def is_running(self) -> bool:
        """Tell whether a process is at work in this folder now, as far as this machine can tell."""
        return is_locked(self.path / LOCK)

    # ---- helpers -------------------------------------------------------------------------------------------

    def _read_plan(self) -> tuple[str, Any]:
        try:
            return _read_plan((self.path / PLAN).read_text("utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError, TypeError, KeyError) as error:
            raise ValueError(
                f"{self.path / PLAN} is damaged ({error}): begin a new run in another folder"
            ) from error
        except ValueError as error:
            raise ValueError(f"{self.path / PLAN}: {error}") from error

    @staticmethod
    def _write_plan(path: Path, plan: Plan | VisionPlan) -> None:
        with atomic_write(path / PLAN) as part:
            part.write_bytes(_as_bytes(plan))

    def _failure_path(self, key: Key) -> Path:
        return self.path / FAILURES / f"{key.name}.json"

    def _failure(self, key: Key) -> Failure:
        try:
            read: Failure = json.loads(self._failure_path(key).read_text("utf-8"))
        except (OSError, ValueError):
            read = {}
        if not isinstance(read, dict) or "kind" not in read:
            return {"kind": "unknown", "message": "its record cannot be read"}
        return read

    def _list_files(self, folder: str, ending: str) -> set[str]:
        """Return the names of the files in a folder; empty ones are what a power cut left."""
        with os.scandir(self.path / folder) as entries:
            return {
                entry.name.removesuffix(ending)
                for entry in entries
                if entry.name.endswith(ending) and entry.name[0] != "." and entry.stat().st_size
            }


def _read_plan(text: str) -> tuple[str, Any]:
    """Return which experiment a plan is of, and the plan; that of tables says nothing about it."""
    read = json.loads(text)
    kind = read.get("kind", "tabular") if isinstance(read, dict) else "tabular"
    if kind not in PLANS:
        raise ValueError(
            f"the plan is of the experiment {kind!r}, which this refinecal does not know: use the version "
            "that wrote it"
        )
    return kind, PLANS[kind].from_json(text)


def _as_bytes(plan: Plan | VisionPlan) -> bytes:
    try:
        return plan.to_json().encode()
    except UnicodeEncodeError as error:
        text = error.object
        name = text[text.rfind('"', 0, error.start) + 1 : text.find('"', error.end)]
        raise ValueError(f"{name!a} is not UTF-8: rename that file or folder") from error


def failure_of(error: BaseException) -> Failure:
    """Return what is to be remembered of an error."""
    return {
        "kind": type(error).__name__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(error)),
    }


def versions() -> dict[str, str]:
    """Return the versions of what decides about results, of what there is of it."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _suggest_names(old: Plan | VisionPlan, new: Plan | VisionPlan) -> str:
    """Return how methods, say, are added to those of a run; nothing if none of these is left out."""
    said = ""
    for what, (field, option) in old.NAMED.items():
        before, after = getattr(old, field), getattr(new, field)
        if not set(before) <= set(after):
            said += f", or name all {what}: {option} {','.join(dict.fromkeys(before + after))}"
    return said


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
