"""Files: written completely or not at all, as strict JSON, and locked while a process works on them."""

from __future__ import annotations

import errno
import json
import math
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from refinecal._core.errors import needs_extra

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
    descriptor = _acquire(path)
    if descriptor is None:
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


def _acquire(path: Path) -> int | None:
    for wait in LOOKS:
        time.sleep(wait)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if lock(descriptor) and os.fstat(descriptor).st_nlink:  # 0: it was removed just now
            return descriptor
        os.close(descriptor)
    return None


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
