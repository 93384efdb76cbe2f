"""A run folder: the plan, finished units, failures, a lock, and a manifest with the SHA-256 of its files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

from refinecal._core.files import atomic_write, hold_lock, in_use, is_locked, write_json

PLAN, MANIFEST, FAILURES = "plan.json", "manifest.json", "failures"


class RunFolder:
    """Planned work on disk, of ``refinecal fit`` or of an experiment.

    A unit or a file appears under its name once it is complete. After ctrl-C, SIGKILL or a power cut,
    the finished units can be used, and the rest can be done later.
    """

    FORMAT: ClassVar[int] = 3  # of the folder, stored in its manifest
    WRITER: ClassVar[str] = "`refinecal fit`"
    FIX: ClassVar[str] = "fit again, or restore it from a copy"
    UNITS: ClassVar[str] = "."  # where the units are,
    UNIT: ClassVar[str] = "*-fold-*"  # and the pattern of their names

    def __init__(self, path: str | os.PathLike[str], doing: str = "") -> None:
        self.path = Path(path)
        self.doing = doing  # of a process that holds the lock, such as "fitting churn-run"
        self.lock_path = self.path / "lock"

    # ---- lock ----------------------------------------------------------------------------------------------

    def lock(self) -> AbstractContextManager[None]:
        """Hold the lock: two processes never write one folder, and a killed one holds no lock."""
        return hold_lock(self.lock_path, self.doing)

    def is_running(self) -> bool:
        """Tell whether a process is working in this folder now, as far as this machine can tell."""
        return is_locked(self.lock_path)

    def check_idle(self) -> None:
        """Raise if another process is working in this folder."""
        if self.is_running():
            raise in_use(self.lock_path, self.doing)

    # ---- plan, units and failures --------------------------------------------------------------------------

    def write_plan(self, content: bytes) -> None:
        """Write the plan."""
        with atomic_write(self.path / PLAN) as part:
            part.write_bytes(content)

    def unit_names(self) -> set[str]:
        """Return the names of the finished units."""
        return _list_names(self.path / self.UNITS, self.UNIT)

    def failure_path(self, name: str) -> Path:
        """Return where the failure of a unit is recorded."""
        return self.path / FAILURES / f"{name}.json"

    def failure_names(self) -> set[str]:
        """Return the names of the units that failed."""
        return _list_names(self.path / FAILURES, "*.json")

    # ---- manifest ------------------------------------------------------------------------------------------

    def listed_files(self) -> Iterable[Path]:
        """Return the files that the manifest lists: by default all others."""
        own = self.path / MANIFEST
        return (path for path in self.path.rglob("*") if path.is_file() and path != own)

    def write_manifest(self, known: Mapping[str, str] | None = None) -> None:
        """List the files of the folder, each with its SHA-256, which may be ``known`` already."""
        files, digests = {}, known or {}
        for path in sorted(self.listed_files()):
            name = path.relative_to(self.path).as_posix()
            files[name] = digests[name] if name in digests else self.digest(path)
        write_json(self.path / MANIFEST, {"format": self.FORMAT, "files": files})

    def read_manifest(self) -> dict[str, str]:
        """Return the SHA-256 of each file, such as "fold-1/model.ubj"; no name leads out of the folder."""
        place = self.path / MANIFEST
        if not self.path.is_dir():
            what = "a file, not a folder" if self.path.exists() else "not there"
            raise FileNotFoundError(
                f"the run folder {self.path} is {what}: pass what {self.WRITER} wrote"
            )
        try:
            found = json.loads(place.read_text(encoding="utf-8"))
            version, files = found["format"], dict(found["files"])
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{self.path} holds no {MANIFEST}, so it is not the folder of a finished {self.WRITER}, or "
                "an older version of refinecal wrote it: fit again"
            ) from None
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{place} is not what {self.WRITER} wrote ({type(error).__name__}: {error}): {self.FIX}"
            ) from None
        if version != self.FORMAT:
            raise ValueError(
                f"{place} has format {version!r}, this version reads {self.FORMAT}: fit again with "
                "--overwrite, or use the version of refinecal that wrote it"
            )
        for name in files:
            if not (self.path / name).resolve().is_relative_to(self.path.resolve()):
                raise ValueError(f"{place} names {name!r}, which is outside of the run folder")
        return files

    def verify(self, name: str, files: dict[str, str]) -> Path:
        """Return where a file is; raise if it is not the one that the manifest lists."""
        path = self.path / name
        if name not in files or self.digest(path) != files[name]:
            raise ValueError(
                f"{path} is not the file that {self.WRITER} wrote (its SHA-256 differs from {MANIFEST}): "
                f"{self.FIX}"
            )
        return path

    def digest(self, path: Path) -> str:
        """Return the SHA-256 of a file."""
        try:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            raise FileNotFoundError(f"{path} is missing: {self.FIX}") from None


def _list_names(folder: Path, pattern: str) -> set[str]:
    """Return the names that match, without the ending; an empty file is what a power cut left."""
    ending = pattern.rpartition("*")[2]
    return {
        path.name.removesuffix(ending)
        for path in folder.glob(pattern)
        if path.name[0] != "." and (path.is_dir() or path.stat().st_size)
    }
