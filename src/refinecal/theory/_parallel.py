"""Independent tasks in several processes of one thread each: the result does not depend on their number."""

from collections.abc import Callable, Sequence
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
    """Return the results of a function for each task, in order.

    ``progress`` is called with the size of the finished tasks and of all; by default each has size 1.
    """
    import joblib  # type: ignore[import-untyped]

    sizes = [1] * len(tasks) if sizes is None else sizes
    run = joblib.Parallel(min(processes, len(tasks)), return_as="generator")
    results: list[Result] = []
    done = 0
    for result in run(joblib.delayed(_run)(solve, *task) for task in tasks):
        done += sizes[len(results)]
        results.append(result)
        if progress is not None:
            progress(done, sum(sizes))
    return results


def _run(solve: Callable[..., Result], *task: Any) -> Result:
    """Use one thread: more would change the last digits, and there are many processes."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1):
        return solve(*task)
