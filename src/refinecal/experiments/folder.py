"""The run folder of an experiment: its plan, results and failures, and a journal of what was done."""

from __future__ import annotations

import json
import os
import platform
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

from refinecal._core import files
from refinecal._core.files import FAILURES, MANIFEST, PLAN, atomic_write, write_json
from refinecal.experiments.plan import Plan, VisionPlan
from refinecal.experiments.rates import Rates

__all__ = ["PLAN", "RunFolder", "failure_of", "versions"]


JOURNAL, LOG = "journal.jsonl", "workers.log"
PACKAGES = (
    *("refinecal", "numpy", "scipy", "scikit-learn", "pandas"),
    *("xgboost", "lightgbm", "catboost", "torch", "pytabkit"),
)

PLANS: dict[str, type[Plan] | type[VisionPlan]] = {"tabular": Plan, "vision": VisionPlan}

RESTORE = "restore it from a copy, or start a new run in another folder"

Key = Any  # of either experiment: has a name, and says which others are alike
Failure = dict[str, Any]  # kind, message, traceback; added: key, time, attempts


def is_whole(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file is complete, by its end; the rest is checked when it is read.

    Raises
    ------
    OSError
        If it cannot be read, which does not mean that anything is wrong with it.
    """
    with open(path, "rb") as file:
        return is_zipfile(file)


def _is_sound(path: Path) -> bool:
    """Tell whether a file is an archive whose checksums are right."""
    try:
        with ZipFile(path) as archive:
            return archive.testzip() is None
    except OSError:  # of the disk, which does not mean that anything is wrong with the file
        raise
    except Exception:  # of several kinds, by what is damaged
        return False


class RunFolder(files.RunFolder):
    """The run of an experiment: for each training run, a file in ``units``, or in ``failures`` if it failed.

    Parameters
    ----------
    path : path-like
        The folder of a run that was started.

    Attributes
    ----------
    plan : Plan or VisionPlan
        What is planned.
    kind : str
        The experiment: ``"tabular"`` or ``"vision"``.

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

    FORMAT = 1
    WRITER = "an experiment"
    FIX = "delete it and resume the run"
    AGAIN = "start a new run"
    UNITS = "units"
    UNIT = "*.npz"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, f"running the experiment in {path}")
        if not (self.path / PLAN).is_file():
            found = "has no plan.json" if self.path.is_dir() else "is not a folder"
            raise ValueError(
                f"{self.path} {found}, so it is not a run: pass the folder that --out of an experiment named"
            )
        self.kind, self.plan = self._read_plan()
        for name in (self.UNITS, FAILURES):
            (self.path / name).mkdir(exist_ok=True)

    @classmethod
    def create(cls, path: str | os.PathLike[str], plan: Plan | VisionPlan) -> RunFolder:
        """Start a run in a folder that is new or empty."""
        cls.check_new(Path(path))
        content = _as_bytes(plan)  # which may fail, before there is anything on the disk
        Path(path).mkdir(parents=True, exist_ok=True)
        files.RunFolder(path).write_plan(content)
        return cls(path)

    @staticmethod
    def check_new(path: Path) -> None:
        """Refuse a folder in which no run can start."""
        if (path / PLAN).is_file():
            raise FileExistsError(
                f"{path} holds a run already: continue it with --resume, or name another folder"
            )
        first = f".{Path(PLAN).stem}."  # the only files of a run that was killed at once
        if path.exists() and not (
            path.is_dir() and all(each.name.startswith(first) for each in path.iterdir())
        ):
            raise FileExistsError(f"{path} exists and is not a run: name a new folder")

    def check_kind(self, kind: str) -> None:
        """Refuse a run of another experiment."""
        if self.kind != kind:
            raise ValueError(
                f"{self.path} holds a run of the {self.kind} experiment, not of the {kind} one: name another "
                "folder"
            )

    def grow(self, plan: Plan | VisionPlan) -> None:
        """Replace the plan by one that computes all of it and more, or finds its data elsewhere.

        A plan that omits something or computes it differently is refused with an explanation.
        """
        if plan == self.plan:
            return
        with self.lock():
            _, self.plan = self._read_plan()  # another process may have extended it
            said = "\n  ".join(self.plan.losses(plan))
            if said:
                raise ValueError(
                    f"{self.path} was started with another plan:\n  {said}\nA run can get more {plan.MORE}, "
                    "as long as the command names all that it has. Resume without these options, which takes "
                    f"the plan of the run{_suggest_names(self.plan, plan)}, or name another folder"
                )
            self.write_plan(_as_bytes(plan))
            self.plan = plan

    # ---- units ---------------------------------------------------------------------------------------------

    def unit_path(self, key: Key) -> Path:
        """Return where the result of a training run is, or will be."""
        return self.path / self.UNITS / f"{key.name}.npz"

    def has(self, key: Key) -> bool:
        """Tell whether a training run has a result."""
        try:
            return self.unit_path(key).stat().st_size > 0
        except FileNotFoundError:
            return False

    def remove_damaged(self) -> list[Key]:
        """Remove results that are damaged, for instance by a bad copy; return them.

        A result that the manifest lists must be that file; any other one, of a run that was killed, must be
        an archive whose checksums are right.
        """
        listed = self._read_manifest()
        damaged = []
        for key in self.finished():
            path = self.unit_path(key)
            expected = listed.get(f"{self.UNITS}/{path.name}")
            if not _is_sound(path) if expected is None else self.digest(path) != expected:
                damaged.append(key)
                path.unlink(missing_ok=True)
        return damaged

    def finished(self) -> list[Key]:
        """Return the training runs that have a result, in the order of the plan."""
        done = self.unit_names()
        return [key for key in self.plan.units() if key.name in done]

    def failed(self) -> dict[Key, Failure]:
        """Return the training runs that failed and have no result, with the reason."""
        names = self.failure_names() - self.unit_names()
        return {key: self._failure(key) for key in self.plan.units() if key.name in names}

    def missing(self) -> list[Key]:
        """Return the training runs that have neither a result nor a failure, in the order of the plan."""
        done = self.unit_names() | self.failure_names()
        return [key for key in self.plan.units() if key.name not in done]

    def record_failure(self, key: Key, failure: Failure) -> None:
        """Record that a training run failed, and why."""
        about = {"key": key._asdict(), "time": _now(), **failure}
        with atomic_write(self.failure_path(key.name)) as part:
            part.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", "utf-8")

    def forget_failure(self, key: Key) -> None:
        """Remove the record of a failure."""
        self.failure_path(key.name).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove incomplete files, which a killed run left behind."""
        for folder in (self.path, self.path / self.UNITS, self.path / FAILURES):
            for part in folder.glob(".*.part*"):
                part.unlink(missing_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the folder; its manifest lists the results, at the end the new ones too."""
        with super().lock():
            self.write_manifest(self._read_manifest())  # without results that were removed
            try:
                yield
            finally:
                with suppress(OSError):  # of a full disk: then new results are not listed
                    self.write_manifest(self._read_manifest())

    def listed_files(self) -> Iterable[Path]:
        """Return the files that do not change while a run is computed: the plan and the results."""
        units = (self.path / self.UNITS / f"{name}.npz" for name in self.unit_names())
        return (self.path / PLAN, *units)

    def write_plan(self, content: bytes) -> None:
        """Write the plan; until the lock is released, the manifest does not list it."""
        if listed := self._read_manifest():
            listed.pop(PLAN, None)
            write_json(self.path / MANIFEST, {"format": self.FORMAT, "files": listed})
        super().write_plan(content)

    def _read_manifest(self) -> dict[str, str]:
        """Return the manifest; an older version of refinecal wrote none."""
        return self.read_manifest() if (self.path / MANIFEST).exists() else {}

    # ---- what happened -------------------------------------------------------------------------------------

    def note(self, about: Mapping[str, Any]) -> None:
        """Add a line to the journal."""
        line = json.dumps({"time": _now(), **about}, ensure_ascii=False) + "\n"
        with (self.path / JOURNAL).open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # killed in the middle of a line
                    file.write(b"\n")
            file.write(line.encode())

    def journal(self) -> Iterator[dict[str, Any]]:
        """Yield the complete lines of the journal."""
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
        """Return how long training runs took."""
        keys, rates = {key.name: key for key in self.plan.units()}, Rates()
        for line in self.journal():
            key = keys.get(line.get("unit", ""))
            seconds = line.get("seconds")
            if key is not None and isinstance(seconds, int | float) and not line.get("failed"):
                rates.add(key, float(seconds))
        return rates

    def sessions(self) -> list[dict[str, Any]]:
        """Return a record of each start and resumption: package versions, number of workers."""
        return [line for line in self.journal() if "begin" in line]

    def warnings(self) -> Counter[str]:
        """Return the warnings of training runs, with counts."""
        return Counter(text for line in self.journal() for text in line.get("warnings", ()))

    def note_left_out(self, reasons: Mapping[str, str]) -> None:
        """Record which data sets were left out, and why, if that is new."""
        known = self.left_out()
        new = {name: why for name, why in reasons.items() if known.get(name) != why}
        if new:
            self.note({"left_out": new})

    def left_out(self) -> dict[str, str]:
        """Return the reason why each data set that was considered is not in the plan."""
        found: dict[str, str] = {}
        for line in self.journal():
            found |= line.get("left_out", {})
        return {name: why for name, why in found.items() if name not in self.plan.sets}

    def changed_versions(self) -> list[str]:
        """Return the packages whose versions changed since the run was started or last resumed."""
        sessions, now = self.sessions(), versions()
        before = sessions[-1].get("versions", now) if sessions else now
        return [
            f"{name} was {before.get(name, 'absent')} when the run was started and is "
            f"{now.get(name, 'absent')} now: results of both are in one folder"
            for name in sorted({*before, *now})
            if before.get(name) != now.get(name)
        ]

    @property
    def log(self) -> Path:
        """The file for the output of worker processes."""
        return self.path / LOG

    # ---- helpers -------------------------------------------------------------------------------------------

    def _read_plan(self) -> tuple[str, Any]:
        """Return the kind of experiment, "tabular" unless the plan names another, and the plan."""
        path = self.path / PLAN
        try:
            text = path.read_text("utf-8")
            read = json.loads(text)
            kind = read.get("kind", "tabular") if isinstance(read, dict) else "tabular"
            if kind not in PLANS:
                raise ValueError(
                    f"the plan is for the experiment {kind!r}, which this version of refinecal does not "
                    "know: use the version that wrote it"
                )
            plan = PLANS[kind].from_json(text)
        except (json.JSONDecodeError, UnicodeDecodeError, TypeError, KeyError) as error:
            raise ValueError(f"{path} is damaged ({error}): {RESTORE}") from error
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        if self._read_manifest().get(PLAN) not in (None, self.digest(path)):
            raise ValueError(
                f"{path} has been changed since the run was computed (its SHA-256 differs from {MANIFEST}): "
                f"{RESTORE}"
            )
        return kind, plan

    def _failure(self, key: Key) -> Failure:
        try:
            read: Failure = json.loads(self.failure_path(key.name).read_text("utf-8"))
        except (OSError, ValueError):
            read = {}
        if not isinstance(read, dict) or "kind" not in read:
            return {"kind": "unknown", "message": "its record cannot be read"}
        return read


def _as_bytes(plan: Plan | VisionPlan) -> bytes:
    try:
        return plan.to_json().encode()
    except UnicodeEncodeError as error:
        text = error.object
        name = text[text.rfind('"', 0, error.start) + 1 : text.find('"', error.end)]
        raise ValueError(f"{name!a} is not UTF-8: rename that file or folder") from error


def failure_of(error: BaseException) -> Failure:
    """Return the record of an error."""
    return {
        "kind": type(error).__name__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(error)),
    }


def versions() -> dict[str, str]:
    """Return the versions of the packages that affect results, as far as installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _suggest_names(old: Plan | VisionPlan, new: Plan | VisionPlan) -> str:
    """Return how to add methods, say, to those of a run; nothing if none is omitted."""
    said = ""
    for what, (field, option) in old.NAMED.items():
        before, after = getattr(old, field), getattr(new, field)
        if not set(before) <= set(after):
            said += f", or name all {what}: {option} {','.join(dict.fromkeys(before + after))}"
    return said


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
