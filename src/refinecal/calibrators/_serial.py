"""One thread for small products: BLAS wakes its threads for each, and where a core is busy waits for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

LARGE = 2**27  # multiplications, about 10 ms: from here on a product is worth sharing


class _Threads:
    """How many threads BLAS uses, for the whole process: the first fit changes it, the last restores it."""

    def __init__(self) -> None:
        self.lock, self.n_fits, self.before = Lock(), 0, list[int]()

    def enter(self) -> None:
        with self.lock:
            self.n_fits += 1
            if self.n_fits == 1:
                self.before = [library.num_threads for library in libraries()]
                for library in libraries():
                    library.set_num_threads(1)

    def leave(self) -> None:
        with self.lock:
            self.n_fits -= 1
            if self.n_fits == 0:
                for library, threads in zip(libraries(), self.before, strict=True):
                    library.set_num_threads(threads)


THREADS = _Threads()


@contextmanager
def in_one_thread(size: int) -> Iterator[None]:
    """Let BLAS use one thread for products of that many multiplications, unless they are large."""
    if size >= LARGE:
        yield
        return
    THREADS.enter()
    try:
        yield
    finally:
        THREADS.leave()


@cache
def libraries() -> list[Any]:
    """Return handles of the BLAS libraries of NumPy and SciPy, which are loaded by now."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # of scikit-learn

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
