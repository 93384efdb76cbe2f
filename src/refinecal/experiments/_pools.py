"""Where units are computed: processes of this machine, or the workers of a Dask cluster.

Either pool has ``room()`` for some units, takes them by ``take(key, path)``, yields those that ended by
``collect(timeout)``, and ends everything at once by ``close()``. ``width`` is how many it computes at a time.
"""

from __future__ import annotations

import os
import queue
import secrets
import signal
import warnings
from collections.abc import Hashable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from refinecal._core.errors import needs_extra
from refinecal.experiments._worker import THREADS, Function, Outcome, attempt, begin
from refinecal.experiments.store import failure_of, versions

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
