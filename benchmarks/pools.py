"""Local processes against a local Dask cluster: ``python -m benchmarks.pools``.

Both compute the same units by the code of ``refinecal experiment``: until the first one is done, for each of
many short ones, with how much memory, and how many are computed twice when a worker is killed in the middle.
"""

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from distributed import LocalCluster

from benchmarks.machine import this_machine
from refinecal.experiments.pools import DaskPool, LocalPool

PROCESSES, UNITS, SECONDS = 2, 400, 0.02
RESULT = Path(__file__).parent / "results" / "pools.md"


class Key(NamedTuple):
    """A unit."""

    number: int

    @property
    def name(self) -> str:
        """A name for its file."""
        return f"unit-{self.number}"


class Unit:
    """Works for some time, writes which process it was in, and counts."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds

    def __call__(self, key: Key, path: Path) -> None:
        """Compute."""
        end = time.process_time() + self.seconds
        while time.process_time() < end:
            pass
        path.write_bytes(b"x" * 100_000)
        with (self.folder / "done").open("a") as file:
            file.write(f"{key.number} {os.getpid()}\n")


@contextmanager
def pool_of(where: str, function: Unit, folder: Path) -> Iterator[Any]:
    """Give a pool, made anew."""
    if where == "processes":
        pool = LocalPool(function, PROCESSES, 1, folder / "log")
        yield pool
        pool.close()
        return
    with LocalCluster(PROCESSES, threads_per_worker=1, dashboard_address=None) as cluster:
        dask = DaskPool(function, cluster.scheduler_address, 1)
        yield dask
        dask.close()


def compute(pool: Any, folder: Path, n: int, after: Callable[[], None] = lambda: None) -> float:
    """Compute n units; return the seconds until the first."""
    todo, running, first = [Key(number) for number in range(n)], 0, 0.0
    start = time.perf_counter()
    while todo or running:
        for _ in range(min(pool.room(), len(todo))):
            key = todo.pop()
            pool.take(key, folder / key.name)
            running += 1
        for key, outcome in pool.collect(0.5):
            running -= 1
            first = first or time.perf_counter() - start
            if outcome.died:
                todo.append(key)
            after()
    return first


def measure(where: str) -> dict[str, float]:
    """Return what one kind of pool takes."""
    with tempfile.TemporaryDirectory() as name:
        folder, me = Path(name), psutil.Process()
        start = time.perf_counter()
        with pool_of(where, Unit(folder, SECONDS), folder) as pool:
            made = time.perf_counter() - start
            first = made + compute(pool, folder, 1)
            start = time.perf_counter()
            compute(pool, folder, UNITS)
            each = (time.perf_counter() - start) * PROCESSES / UNITS
            memory = sum(child.memory_info().rss for child in me.children(recursive=True))
    with tempfile.TemporaryDirectory() as name:
        folder, killed = Path(name), threading.Event()

        def kill_one() -> None:
            lines = (folder / "done").read_text().splitlines() if (folder / "done").exists() else []
            if len(lines) >= 20 and not killed.is_set():
                killed.set()
                os.kill(int(lines[-1].split()[1]), signal.SIGKILL)

        with pool_of(where, Unit(folder, 5 * SECONDS), folder) as pool:
            start = time.perf_counter()
            compute(pool, folder, 60, kill_one)
            seconds = time.perf_counter() - start
        done = len((folder / "done").read_text().splitlines())
    return {
        "until the first unit, s": first,
        f"each unit of {1000 * SECONDS:.0f} ms, ms": 1000 * each,
        "memory of all processes, MB": memory / 1e6,
        "units computed twice after a kill": done - 60,
        "60 units with a kill, s": seconds,
    }


def main() -> None:
    """Measure, and write the page."""
    found = {where: measure(where) for where in ("processes", "dask")}
    lines = ["| | local processes | local Dask cluster |", "| --- | ---: | ---: |"]
    lines += [
        f"| {name} | {value:.3g} | {found['dask'][name]:.3g} |"
        for name, value in found["processes"].items()
    ]
    text = [
        "# Local processes against a local Dask cluster",
        f"`python -m benchmarks.pools`: {PROCESSES} processes, {UNITS} units.",
        "\n".join(lines),
        f"{this_machine().processor}; {this_machine().listed}.",
    ]
    RESULT.write_text("\n\n".join(text) + "\n")
    print(RESULT.read_text())


if __name__ == "__main__":
    main()
