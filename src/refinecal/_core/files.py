"""Files on disk: written completely or not at all, strict JSON, locks, and the folders of runs."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

from refinecal._core.errors import needs_extra

PLAN, MANIFEST, FAILURES = "plan.json", "manifest.json", "failures"
FULL = {  # messages for a file that its disk did not take
    errno.ENOSPC: "no space left on the disk of {}: free some and try again",
    errno.EDQUOT: "no space left in the disk quota for {}: free some and try again",
    errno.EFBIG: "no space left for {}: files may not grow this large here (see ulimit -f)",
}


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a name next to ``path`` to write to; the file replaces ``path`` at the end, unless writing fails.

    The name ends as ``path`` does, for writers that go by the ending.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "numbers.txt") as part:
    ...         _ = part.write_text("1 2 3")
    ...     print(os.listdir(folder))
    ['numbers.txt']
    """
    target = Path(path)
    part = target.with_name(f".{target.stem}.{secrets.token_hex(4)}.part{target.suffix}")
    try:
        yield part
        os.replace(part, target)
    except OSError as error:
        if type(error) is not type(OSError(error.errno, "")):  # of some library
            raise
        if error.errno is None or error.filename not in (None, str(part), part):
            raise
        raise OSError(error.errno, error.strerror, str(target)) from error  # not the part's name
    finally:
        part.unlink(missing_ok=True)


# ---- JSON -------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return a value as strict JSON can hold it.

    >>> plain({"loss": float("inf"), 1: (2,)})
    {'loss': None, '1': [2]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if hasattr(value, "tolist"):  # NumPy's
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def write_json(path: Path, value: Any) -> None:
    """Write JSON that people can read too."""
    text = json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False)
    with atomic_write(path) as part:
        part.write_text(text + "\n", encoding="utf-8")


# ---- locks: of the system, which end with their process, however it ends -----------------------------------

LOOKS = (0.0, 0.1, 0.3)  # seconds before looks at a lock, which is_locked() takes for a moment


def lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; ``False`` if it is locked already.

    On a file system without locks nothing is ever locked.
    """
    with needs_extra("cli", package="filelock"):
        from filelock import lock_descriptor
    try:
        return lock_descriptor(descriptor, blocking=False)
    except OSError:
        return True


@contextmanager
def hold_lock(path: Path, doing: str, remove: bool = False) -> Iterator[None]:
    """Hold the lock of a file, which names the holder; raise if another process does.

    ``doing`` says what the holder does, such as "fitting churn-run"; ``remove`` removes the file at the end.
    """
    for wait in LOOKS:
        time.sleep(wait)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if lock(descriptor) and os.fstat(descriptor).st_nlink:  # 0: it was removed just now
            break
        os.close(descriptor)
    else:
        raise in_use(path, doing)
    try:
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        with suppress(OSError):  # of a full disk: the lock is held all the same
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()} on {socket.gethostname()} since {since}".encode())
        yield
    finally:
        if remove:
            with suppress(OSError):  # Windows keeps what is open
                path.unlink()
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Tell whether a process holds the lock of a file, as far as this machine can tell."""
    for wait in LOOKS[:2]:  # another process may be asking
        time.sleep(wait)
        try:  # on network file systems only who may write can ask
            descriptor = os.open(path, os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            if lock(descriptor):
                return False
        finally:
            os.close(descriptor)
    return True


def in_use(path: Path, doing: str) -> ValueError:
    """Return the error that says who holds a lock, as far as that is known."""
    try:
        holder = path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # Windows does not show what is locked
        holder = ""
    who = f" (process {holder})" if holder else ""
    return ValueError(f"another process is {doing}{who}: wait for it, or stop it first")


def suggest_path(path: Path, is_candidate: Callable[[Path], bool]) -> str:
    """Return a question about the names most like that of a path that does not exist; empty if none is."""
    names = [each.name for each in path.parent.glob("*") if is_candidate(each)]
    near = get_close_matches(path.name, names, 3)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


# ---- run folders -------------------------------------------------------------------------------------------


class RunFolder:
    """Planned work on disk, of ``refinecal fit`` or of an experiment.

    A unit or a file appears under its name once it is complete. After ctrl-C, SIGKILL or a power cut,
    the finished units can be used, and the rest can be done later.
    """

    FORMAT: ClassVar[int] = 3  # of the folder, stored in its manifest
    WRITER: ClassVar[str] = "`refinecal fit`"
    FIX: ClassVar[str] = "fit again, or restore it from a copy"
    AGAIN: ClassVar[str] = "fit again with --overwrite"  # with another version of refinecal
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

    def unit_names(self, folder: str | None = None, pattern: str | None = None) -> set[str]:
        """Return the names of the finished units; an empty file is what a power cut left."""
        pattern = pattern or self.UNIT
        return {
            path.name.removesuffix(pattern.rpartition("*")[2])
            for path in (self.path / (folder or self.UNITS)).glob(pattern)
            if path.name[0] != "." and (path.is_dir() or path.stat().st_size)
        }

    def failure_path(self, name: str) -> Path:
        """Return where the failure of a unit is recorded."""
        return self.path / FAILURES / f"{name}.json"

    def failure_names(self) -> set[str]:
        """Return the names of the units that failed."""
        return self.unit_names(FAILURES, "*.json")

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
            what = "is a file, not a folder" if self.path.exists() else "does not exist"
            near = suggest_path(self.path, lambda each: (each / MANIFEST).is_file())
            raise FileNotFoundError(
                f"the run folder {self.path} {what}: pass what {self.WRITER} wrote.{near}"
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
                f"{place} has format {version!r}, this version reads {self.FORMAT}: {self.AGAIN}, or "
                "use the version of refinecal that wrote it"
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
