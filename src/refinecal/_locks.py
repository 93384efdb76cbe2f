"""One process at a time: locks of the system, which end with their process, however it ends."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from refinecal._optional import needs_extra

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
def locked(path: Path, doing: str, remove: bool = False) -> Iterator[None]:
    """Hold the lock of a file; raise if another process does.

    Parameters
    ----------
    path : Path
        Is made if need be, and says who holds it.
    doing : str
        What is done meanwhile, such as "fitting churn-run".
    remove : bool, default False
        Whether to remove the file at the end.
    """
    descriptor = _locked(path)
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


def _locked(path: Path) -> int | None:
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
