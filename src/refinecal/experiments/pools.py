"""Where units are computed: processes of this machine, or the workers of a Dask cluster."""

from __future__ import annotations

import errno
import os
import queue
import secrets
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from refinecal._core.errors import needs_extra
from refinecal.experiments.folder import Failure, failure_of, versions

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


KILLED = "killed"
CONNECT = 30.0  # seconds for the scheduler of a cluster to answer
CLOSE = 2.0  # seconds to leave one that did not
# Units that a cluster has beyond what it can do at once: to grow, and never to wait for us
AHEAD = 64

Ended = Iterator[tuple[Any, Outcome]]


class LocalPool:
    """Processes of this machine, each with its own executor.

    If a process dies, loky's executor fails with everything that was given to it. With one process in each,
    that is only the unit which was in it.
    """

    def __init__(self, function: Function, processes: int, n_threads: int, log: Path) -> None:
        log.write_bytes(b"")
        self._function, self._n_threads, self._log = function, n_threads, log
        self._idle: list[Any] = [None] * processes  # executors; None is one that is yet to be made
        self._busy: dict[Future[Outcome], tuple[Any, Any]] = {}  # to key, executor
        self.width = processes

    def room(self) -> int:
        """Return how many processes are idle."""
        return len(self._idle)

    def take(self, key: Hashable, path: Path) -> None:
        """Give a unit to an idle process."""
        from joblib.externals.loky.process_executor import (  # type: ignore[import-untyped]
            BrokenProcessPool,
        )

        executor = self._idle.pop() or self._executor()
        work = attempt, self._function, key, path, self._n_threads
        try:
            future = executor.submit(*work)
        except BrokenProcessPool:  # its process died while it was idle
            executor = self._executor()
            future = executor.submit(*work)
        self._busy[future] = key, executor

    def collect(self, timeout: float) -> Ended:
        """Yield units that ended, if any did within the time."""
        done, _ = wait(self._busy, timeout, FIRST_COMPLETED)
        for future in done:
            key, executor = self._busy.pop(future)
            error = future.exception()
            if error is None:
                self._idle.append(executor)
                yield key, future.result()
            else:
                self._idle.insert(0, None)
                executor.shutdown(wait=False, kill_workers=True)
                yield key, _describe_death(error)

    def close(self) -> None:
        """Kill all processes."""
        for executor in [*self._idle, *(executor for _, executor in self._busy.values())]:
            if executor is not None:
                executor.shutdown(wait=True, kill_workers=True)
        self._idle, self._busy = [], {}

    def _executor(self) -> Any:
        from joblib.externals.loky.process_executor import ProcessPoolExecutor

        return ProcessPoolExecutor(
            max_workers=1,
            initializer=begin,
            initargs=(os.getpid(), str(self._log.resolve())),
            env=dict.fromkeys(THREADS, str(self._n_threads)),
        )


def _describe_death(error: BaseException) -> Outcome:
    """Return what is known about a process that died, by the exit code in loky's message."""
    names = (each.name for each in signal.Signals)
    how = next((name for name in names if f"{name}(" in str(error)), "")
    about = f"its process was killed by {how}" if how else "its process died"
    if how == "SIGKILL":
        about += ", by hand or by the system when memory ran out"
    failure = {"kind": KILLED, "message": about, "traceback": str(error)}
    return Outcome(None, failure, died=True)


class DaskPool:
    """The workers of a Dask cluster: each unit is a task, whose result is the content of its file.

    Units are submitted one by one, not through joblib's Dask backend, which raises the first error and
    forgets the rest. Dask gives all units of a worker that died to other workers, by default three times
    each, so that a unit may be given up for what another one did: :func:`run` tries it once more.
    """

    def __init__(self, function: Function, address: str, n_threads: int) -> None:
        self._client = connect(address)
        self._function, self._n_threads = function, n_threads
        self._killed: type[Exception] = import_module("distributed").KilledWorker
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._keys: dict[str, tuple[Any, Any]] = {}  # by name of the task: key, future
        self._warn(address)

    def _warn(self, address: str) -> None:
        """Warn if there are no workers, or if they differ from what is expected."""
        threads, here = self._threads(), versions()
        if not threads:
            warnings.warn(
                f"the cluster at {address} has no workers: training runs wait for them; start some with "
                f"'dask worker {address} --nthreads 1 --nworkers N'",
                stacklevel=3,
            )
        several = sorted(name for name, n in threads.items() if n > 1)
        if several:
            warnings.warn(
                f"workers of the cluster have several threads ({', '.join(several[:3])}), but a worker "
                "computes one run at a time: start them with 'dask worker --nthreads 1 --nworkers N'",
                stacklevel=3,
            )
        others = {
            f"{name} {there.get(name, 'absent')} instead of {here.get(name, 'absent')}"
            for there in self._client.run(versions, on_error="return").values()
            if isinstance(there, dict)
            for name in {*there, *here}
            if there.get(name) != here.get(name)
        }
        if others:
            warnings.warn(
                f"workers of the cluster have other packages ({', '.join(sorted(others))}), so results may "
                "differ from those of this machine: install the same on all",
                stacklevel=3,
            )

    def _threads(self) -> dict[str, int]:
        """Return how many threads each worker has; raise if the scheduler no longer answers."""
        try:
            return dict(self._client.nthreads())
        except OSError as error:
            raise _connection_error(error) from error

    @property
    def width(self) -> int:
        """How many units are computed at the same time."""
        return max(len(self._threads()), 1)

    def room(self) -> int:
        """Return how many more units the cluster should have."""
        return self.width * 2 + AHEAD - len(self._keys)

    def take(self, key: Any, path: Path) -> None:
        """Submit a unit."""
        name = f"unit-{key.name}-{secrets.token_hex(4)}"
        future = self._client.submit(
            attempt, self._function, key, None, self._n_threads, key=name, pure=False
        )
        self._keys[name] = key, future
        future.add_done_callback(self._done.put)

    def collect(self, timeout: float) -> Ended:
        """Yield units that ended, if any did within the time."""
        with suppress(queue.Empty):
            yield self._result(self._done.get(timeout=timeout))
            while True:
                yield self._result(self._done.get_nowait())

    def close(self) -> None:
        """Cancel what has not begun, and leave the cluster."""
        with suppress(Exception):  # the cluster may be gone
            self._client.cancel([future for _, future in self._keys.values()])
        self._keys = {}
        self._client.close()

    def _result(self, future: Any) -> tuple[Any, Outcome]:
        key, _ = self._keys.pop(future.key)
        try:
            return key, future.result()
        except self._killed as error:
            about = "its workers died, one after the other: perhaps memory ran out"
            failure = {**failure_of(error), "kind": KILLED, "message": about}
            return key, Outcome(None, failure, died=True)
        except Exception as error:
            if future.cancelled():
                raise _connection_error(error) from error
            raise ConnectionError(
                f"the cluster could not compute {key} ({type(error).__name__}: {error}): its scheduler and "
                "its workers need the same versions of Python, Dask and refinecal as this process"
            ) from error


def connect(address: str) -> Any:
    """Return a client of a scheduler, to be closed in the end; raise if there is none."""
    with needs_extra("dask", package="distributed"):
        distributed: Any = import_module("distributed")

    client = object.__new__(distributed.Client)  # in two steps, to have it if the second fails
    try:
        client.__init__(address, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        with suppress(Exception):
            client.close(timeout=CLOSE)  # else it would try to at the end of Python, for a minute
        raise ConnectionError(
            f"no Dask scheduler answers at {address} ({error}): start one with 'dask scheduler', and "
            "pass the address that it shows, such as tcp://10.0.0.1:8786"
        ) from error
    return client


def _connection_error(error: BaseException) -> ConnectionError:
    return ConnectionError(
        f"the connection to the Dask scheduler was lost ({error}): resume when it is back; finished training "
        "runs are kept"
    )
