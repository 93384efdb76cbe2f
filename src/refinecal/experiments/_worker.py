"""What happens in a worker process: one unit at a time, few threads, errors that are told and not raised."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from refinecal.experiments.store import Failure, failure_of

Function = Callable[[Any, Path], None]  # (key, path): computes a unit and writes its file

THREADS = (  # by which libraries learn how many threads they may use, if it is set before they are loaded
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "POLARS_MAX_THREADS",
)
NO_ROOM = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
)  # all others would fail alike
MOST_WARNINGS = 5  # of one unit that are kept
WATCH = 1.0  # seconds between looks at whether the parent is alive

_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a unit: a file, or a failure."""

    seconds: float
    failure: Failure | None = None
    content: bytes | None = None  # of the file, if it could not be written where it belongs
    stop: bool = False  # the failure is not the unit's: the others will fail as well
    warnings: tuple[str, ...] = ()


def attempt(function: Function, key: Any, path: Path | None, n_threads: int) -> Outcome:
    """Compute a unit into ``path``, or if it is ``None`` into the outcome; never raise an error."""
    with (
        _one_at_a_time,
        _collect_warnings() as heard,
    ):  # a worker of a cluster may have several threads
        begin = time.perf_counter()
        try:
            with limit_threads(n_threads):
                content = _compute(function, key, path)
        except Exception as error:
            stop = isinstance(error, OSError) and error.errno in NO_ROOM
            return Outcome(time.perf_counter() - begin, failure_of(error), stop=stop)
        seconds = time.perf_counter() - begin
    return Outcome(seconds, content=content, warnings=tuple(heard[:MOST_WARNINGS]))


def _compute(function: Function, key: Any, path: Path | None) -> bytes | None:
    if path is not None:
        function(key, path)
        return None
    with TemporaryDirectory() as folder:
        temporary = Path(folder) / "unit.npz"
        function(key, temporary)
        return temporary.read_bytes()


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
    """Limit threads of the libraries that are loaded, for the time of a unit."""
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
    """Prepare a process of our own: ctrl-C is for the parent, without which there is nothing to do."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):  # what libraries print belongs neither to the result nor on the bar
        os.dup2(descriptor, stream)
    os.close(descriptor)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH)
    os._exit(1)
