"""The process of a training run: one run at a time, few threads, errors returned instead of raised."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from refinecal.experiments.store import Failure, failure_of

Function = Callable[[Any, Path], None]  # (key, path): computes a unit and writes its file

THREADS = (  # by which libraries learn how many threads they may use, if set before they are loaded
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"),
    *("VECLIB_MAXIMUM_THREADS", "NUMEXPR_MAX_THREADS", "POLARS_MAX_THREADS"),
)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # every other unit would fail, too
MOST_WARNINGS = 5  # of one unit that are kept
WATCH = 1.0  # seconds between looks at whether the parent is alive
STATUS = "/proc/self/status"  # Linux
FORGET = "/proc/self/clear_refs"  # writing 5 resets the peak of memory

_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a unit: a file, or a failure."""

    seconds: float | None
    failure: Failure | None = None
    content: bytes | None = None  # of the file, if it could not be written where it belongs
    stop: bool = False  # the failure is not the unit's: the others will fail as well
    died: bool = False  # its worker did, and it may be tried again
    warnings: tuple[str, ...] = ()


def attempt(function: Function, key: Any, path: Path | None, n_threads: int) -> Outcome:
    """Compute a unit into ``path``, or if it is ``None`` into the outcome; never raise an error."""
    # a worker of a cluster may have several threads
    with _one_at_a_time, _collect_warnings() as heard:
        begin = time.perf_counter()
        content = None
        try:
            with limit_threads(n_threads), TemporaryDirectory() as folder:
                target = Path(folder) / "unit.npz" if path is None else path
                function(key, target)
                content = target.read_bytes() if path is None else None
        except Exception as error:
            stop = isinstance(error, OSError) and error.errno in NO_ROOM
            return Outcome(time.perf_counter() - begin, failure_of(error), stop=stop)
        seconds = time.perf_counter() - begin
    return Outcome(seconds, content=content, warnings=tuple(heard[:MOST_WARNINGS]))


@contextmanager
def _collect_warnings() -> Iterator[list[str]]:
    """Collect different warnings instead of printing them."""
    said: list[str] = []

    def hear(message: Warning | str, category: type[Warning], *about: Any, **more: Any) -> None:
        text = f"{category.__name__}: {message}"
        if text not in said:
            said.append(text)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for category in (DeprecationWarning, FutureWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = hear
        yield said


@contextmanager
def limit_threads(n_threads: int) -> Iterator[None]:
    """Limit the threads of loaded libraries while a unit is computed."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # of scikit-learn

    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else None
    with threadpool_limits(n_threads):
        if torch is not None:
            torch.set_num_threads(n_threads)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)


def begin(parent: int, log: str) -> None:
    """Prepare a worker process: Ctrl-C is for the parent, and without a parent the worker ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):  # output of libraries must not disturb the result or the progress bar
        os.dup2(descriptor, stream)
    os.close(descriptor)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH)
    os._exit(1)


# ---- memory ------------------------------------------------------------------------------------------------


def forget_peak() -> None:
    """Let the peak of memory be this unit's, not that of an earlier one, where the system allows it."""
    with suppress(OSError), open(FORGET, "w") as file:
        file.write("5")


def peak_memory() -> int:
    """Return the most memory that the process has used, in bytes; 0 where the system does not say.

    On Linux, the figure of ``getrusage`` begins with the memory of the process that started this one.
    """
    with suppress(OSError), open(STATUS) as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most
