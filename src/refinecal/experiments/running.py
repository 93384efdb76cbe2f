"""Training runs computed by many processes: each ends as a file, or as a failure with its reason."""

from __future__ import annotations

import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from refinecal._core.files import atomic_write
from refinecal.experiments.folder import Failure, RunFolder, versions
from refinecal.experiments.pools import NO_ROOM, DaskPool, Function, LocalPool, Outcome, connect
from refinecal.experiments.rates import Rates

LOOK = 0.5  # seconds between reports of progress, if nothing happens
TRIES = 2  # of a unit whose process dies

Progress = Callable[["State"], None]


@dataclass(slots=True)
class State:
    """How far a run is."""

    total: int  # units to do, in this run
    finished: int = 0
    failed: int = 0
    width: int = 1  # units at the same time
    left: set[Any] = field(default_factory=set)
    last_failure: str = ""
    rates: Rates = field(default_factory=Rates)
    begun: float = field(default_factory=time.monotonic)
    _waiting: Counter[Any] = field(init=False)  # how many are left of each kind

    def __post_init__(self) -> None:
        self._waiting = Counter(key.alike for key in self.left)

    def finish(
        self, folder: RunFolder, key: Any, seconds: float | None, said: Sequence[str] = ()
    ) -> None:
        """Count and note a unit that has a result, with its warnings."""
        folder.forget_failure(key)
        self.finished += 1
        self.end(key)
        if seconds is not None:  # its process did not die after the last step
            self.rates.add(key, seconds)
            about = {"warnings": list(said)} if said else {}
            folder.note({"unit": key.name, "seconds": round(seconds, 3), **about})

    def fail(self, folder: RunFolder, key: Any, failure: Failure, seconds: float | None) -> None:
        """Count and record a unit that failed."""
        folder.record_failure(key, failure)
        self.failed += 1
        self.end(key)
        self.last_failure = f"{key}: {failure['kind']}: {failure['message']}"
        about = {} if seconds is None else {"seconds": round(seconds, 3)}
        folder.note({"unit": key.name, "failed": failure["kind"], **about})

    def end(self, key: Any) -> None:
        """Count a unit as done."""
        self.left.remove(key)
        self._waiting[key.alike] -= 1

    @property
    def seconds_left(self) -> float | None:
        """Return how long it will take, by the units that are done; ``None`` if none is."""
        left = self.rates.left(self._waiting)
        return None if left is None else left / self.width


def run(
    keys: Iterable[Any],
    function: Function,
    folder: RunFolder,
    *,
    processes: int | None = None,
    dask: str | None = None,
    n_threads: int = 1,
    progress: Progress | None = None,
) -> State:
    """Compute units that are not yet in the folder; return how it went.

    A unit that raises an error, or whose process dies twice, is recorded as a failure, and the others
    continue. The result of a unit does not depend on the process, the time or the order.

    Parameters
    ----------
    keys : iterable
        The units, each with a ``name`` and with ``alike``, such as :meth:`RunFolder.missing` returns.
    function : callable
        Called in a worker with a key and a path; computes the unit and writes it to the path, complete or not
        at all. It is pickled, by cloudpickle.
    folder : RunFolder
        Takes the results.
    processes : int, optional
        How many units to compute at the same time; by default as many as there are cores for their threads.
    dask : str, optional
        Address of a Dask scheduler, whose workers compute the units instead.
    n_threads : int, default 1
        Of one unit.
    progress : callable, optional
        Called with the state after each unit, and at least every half second.

    Raises
    ------
    OSError
        If there is no room for results, or the cluster is lost: what is finished is kept.
    """
    with folder.lock(), _silence_loky():
        folder.tidy()
        todo = deque(key for key in dict.fromkeys(keys) if not folder.has(key))
        state = State(len(todo), left=set(todo), rates=folder.rates())
        if not todo:
            return state
        pool: LocalPool | DaskPool
        if dask is None:
            import joblib  # type: ignore[import-untyped]

            processes = processes or max(int(joblib.cpu_count()) // n_threads, 1)
            pool = LocalPool(function, min(processes, len(todo)), n_threads, folder.log)
        else:
            pool = DaskPool(function, dask, n_threads)
        state.width = pool.width
        where = "dask" if dask else "local"
        begun = {"begin": len(todo), "width": pool.width, "where": where, "versions": versions()}
        try:
            folder.note(begun)
            _Run(folder, pool, todo, state, progress or (lambda state: None)).go()
        except OSError as error:
            if error.errno in NO_ROOM:
                raise _no_room(folder, str(error)) from error
            raise
        finally:
            pool.close()
            folder.tidy()
    return state


def check_cluster(address: str) -> None:
    """Raise a ``ConnectionError`` if no Dask scheduler answers at the address."""
    connect(address).close()


def _no_room(folder: RunFolder, said: str) -> OSError:
    return OSError(
        f"results for {folder.path} cannot be written ({said}): free some space, then resume; finished "
        "training runs are kept"
    )


@contextmanager
def _silence_loky() -> Iterator[None]:
    """Ignore the warning about processes that loky replaces because they grew by 300 MB."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        yield


@dataclass(slots=True)
class _Run:
    """Gives units to a pool until all have ended."""

    folder: RunFolder
    pool: LocalPool | DaskPool
    todo: deque[Any]
    state: State
    progress: Progress
    deaths: Counter[Any] = field(default_factory=Counter)
    running: int = 0

    def go(self) -> None:
        while self.todo or self.running:
            for _ in range(min(self.pool.room(), len(self.todo))):
                key = self.todo.popleft()
                self.pool.take(key, self.folder.unit_path(key))
                self.running += 1
            for key, outcome in self.pool.collect(LOOK):
                self.running -= 1
                self._end(key, outcome)
                self.progress(self.state)
            self.state.width = self.pool.width
            self.progress(self.state)

    def _end(self, key: Any, outcome: Outcome) -> None:
        path, failure = self.folder.unit_path(key), outcome.failure
        if failure is None:
            if outcome.content is not None:
                with atomic_write(path) as part:
                    part.write_bytes(outcome.content)
            if path.exists():
                self.state.finish(self.folder, key, outcome.seconds, outcome.warnings)
            else:
                failure = {"kind": "no result", "message": "it wrote no file"}
                self.state.fail(self.folder, key, failure, outcome.seconds)
        elif outcome.stop:
            raise _no_room(self.folder, failure["message"])
        elif not outcome.died:
            self.state.fail(self.folder, key, failure, outcome.seconds)
        else:
            self.deaths[key] += 1
            if path.exists():  # it died after the last step
                self.state.finish(self.folder, key, None)
            elif self.deaths[key] >= TRIES:
                attempts = {"attempts": self.deaths[key]}
                self.state.fail(self.folder, key, failure | attempts, None)
            else:
                self.todo.append(key)
