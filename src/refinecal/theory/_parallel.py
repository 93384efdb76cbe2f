"""Independent tasks dealt out to processes, each of which uses one thread: always the same result."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

Result = TypeVar("Result")
Progress = Callable[[int, int], None]


def run_tasks(
    solve: Callable[..., Result],
    tasks: Sequence[tuple[Any, ...]],
    processes: int,
    progress: Progress | None = None,
    sizes: Sequence[int] | None = None,
) -> list[Result]:
    """Return what a function makes of each task, in order.

    ``progress`` is called with what is done and with all there is to do, by default in tasks.
    """
    import joblib  # type: ignore[import-untyped]

    sizes = [1] * len(tasks) if sizes is None else sizes
    workers = min(processes, len(tasks))
    found: Iterable[Result] = (_run(solve, *task) for task in tasks)
    if workers > 1:
        calls = (joblib.delayed(_run)(solve, *task) for task in tasks)
        found = joblib.Parallel(workers, return_as="generator")(calls)
    results, done = [], 0
    for size, each in zip(sizes, found, strict=True):
        results.append(each)
        done += size
        if progress is not None:
            progress(done, sum(sizes))
    return results


def _run(solve: Callable[..., Result], *task: Any) -> Result:
    """Use one thread: more would change the last digits, and the processes are many."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1):
        return solve(*task)
