"""Arrays of any library to NumPy, without a copy where possible; and threads to process them."""

import numbers
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PART = 2**15  # rows per task of a thread
THREAD_ELEMENTS = 2**21  # below, one thread is faster
LARGE = 2**27  # multiplications, about 10 ms: products that are worth sharing between threads


def is_torch(array: Any) -> bool:
    """Return whether this is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def is_on_device(array: Any) -> bool:
    """Return whether this is a torch tensor on a device other than the CPU."""
    return is_torch(array) and array.device.type != "cpu"


def column_names(array: Any) -> list[Any] | None:
    """Return the column names of a DataFrame, unless they are 0, 1, 2 ..."""
    names = getattr(array, "column_names", None)  # pyarrow, whose columns are arrays
    if names is None:
        names = getattr(array, "columns", None)
    if names is None or getattr(array, "ndim", 2) != 2:
        return None
    names = list(names)
    return None if len(names) < 2 or names == list(range(len(names))) else names


def category_order(array: Any) -> list[Any] | None:
    """Return the categories of an ordered pandas categorical or a polars Enum, else ``None``."""
    dtype = getattr(array, "dtype", None)
    if dtype is None and hasattr(array, "columns"):  # a frame of one column, if it holds labels
        dtype = next(iter(getattr(array, "dtypes", ())), None)
    if not getattr(dtype, "ordered", True):  # of pandas, such as those read from a file
        return None
    # A polars Categorical numbers its categories in order of appearance, which means nothing.
    to_list = getattr(getattr(dtype, "categories", None), "to_list", None)
    return None if to_list is None else list(to_list())


def in_order(
    rows: Array, own: list[Any] | None, wanted: list[Any] | None, name: str, strict: bool = False
) -> Array:
    """Return named columns in the wanted order; with ``strict``, the names must agree."""
    if own is None or wanted is None or own == wanted:
        return rows
    if set(own) != set(wanted) or len(set(own)) != len(own):
        if strict:
            raise ValueError(f"{name} has the columns {own}, but was fitted with {wanted}")
        return rows
    return np.ascontiguousarray(rows[:, [own.index(name) for name in wanted]])


def _refuse_other_things(array: Any, name: str) -> None:
    """Raise for objects that are often passed instead of an array, with the fix."""
    if hasattr(array, "predict_proba"):
        raise TypeError(f"{name} is a model: pass model.predict_proba(X)")
    if callable(array) and not hasattr(array, "__array__"):
        raise TypeError(
            f"{name} is a function: pass what it returns, such as model.predict_proba(X)"
        )
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: drop the masked rows, then pass {name}.data")
    if hasattr(array, "tocsr"):
        raise TypeError(f"{name} is a sparse matrix: pass {name}.toarray()")
    if hasattr(array, "collect") and hasattr(array, "collect_schema"):
        raise TypeError(f"{name} is a lazy frame: pass {name}.collect()")


def to_numpy(array: Any, name: str) -> Array:
    """Return any array-like as NumPy, without a copy where possible."""
    if type(array) is np.ndarray and array.dtype.kind in "biuf":
        return array
    _refuse_other_things(array, name)
    if is_torch(array):
        array = array.detach().resolve_conj().resolve_neg()
        if array.layout != sys.modules["torch"].strided:
            raise TypeError(f"{name} is a sparse tensor: pass {name}.to_dense()")
        if array.is_floating_point() and array.dtype.itemsize < 4:  # NumPy has no bfloat16
            array = array.float()
        return np.asarray(array.cpu().numpy())
    if hasattr(array, "to_numpy") and type(array).__module__ != "pyarrow.lib":  # pandas, polars
        array = array.to_numpy()
    try:
        found = np.asarray(array)
    except ValueError as error:
        raise ValueError(
            f"{name} cannot be read as an array: are all rows of the same length?"
        ) from error
    if found.dtype.names is not None:
        raise TypeError(
            f"{name} is a structured array: pass "
            f"numpy.lib.recfunctions.structured_to_unstructured({name})"
        )
    if found.dtype.kind == "V":  # bfloat16 and other small floats of JAX
        found = found.astype(np.float32)
    if found.dtype.kind == "U" and isinstance(array, (list, tuple)):
        found = np.asarray(array, dtype=object)  # NumPy has converted numbers and NaN to strings
    return found


def is_missing(value: Any) -> bool:
    """Return whether this is None, NaN, NaT or NA."""
    try:
        return value is None or bool(value != value)  # noqa: PLR0124  only these differ from themselves
    except (TypeError, ValueError):  # pandas.NA has no truth value; nor has an array
        return type(value).__name__ == "NAType"


def to_floats(array: Any, name: str) -> Array:
    """Return float32 for floats of at most 4 bytes, float64 for all other numbers."""
    found = to_numpy(array, name)
    if found.dtype.kind == "O":
        values = found.ravel().tolist()
        first = values[0] if values else None
        if hasattr(first, "__len__") and not isinstance(first, (str, bytes, dict)):
            raise TypeError(f"{name} holds one array per row: pass np.stack({name})")
        if any(isinstance(value, (str, bytes)) for value in values):
            raise TypeError(_not_numbers(name, "strings"))
        try:
            plain = [np.nan if is_missing(value) else value for value in values]
            return np.array(plain, dtype=np.float64).reshape(found.shape)
        except (TypeError, ValueError) as error:
            raise TypeError(_not_numbers(name, type(values[0]).__name__)) from error
    if found.dtype.kind not in "fiub":
        raise TypeError(_not_numbers(name, str(found.dtype)))
    small = found.dtype.kind == "f" and found.dtype.itemsize <= 4
    return found.astype(np.float32 if small else np.float64, copy=False)


def _not_numbers(name: str, found: str) -> str:
    return (
        f"{name} must hold real numbers, found {found}. If these are labels: metrics take labels first, then "
        "predictions; calibrators take predictions first."
    )


# ---- threads -----------------------------------------------------------------------------------------------


def check_threads(n_threads: int | None) -> int:
    """Return the number of threads to use; by default all cores, at most OMP_NUM_THREADS."""
    if n_threads is None:
        limit = os.environ.get("OMP_NUM_THREADS", "")
        affinity = getattr(os, "sched_getaffinity", None)  # not on every system
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        return min(cores, int(limit)) if limit.isdigit() and int(limit) > 0 else cores
    if not isinstance(n_threads, numbers.Integral) or n_threads < 1:
        raise ValueError(
            f"n_threads is {n_threads!r}: it must be a whole number of at least 1, or None"
        )
    return int(n_threads)


def map_threads(
    function: Callable[[Any], Any], items: Iterable[Any], size: int, threads: int | None = None
) -> list[Any]:
    """Return the function of each item, in several threads if ``size`` is large."""
    n = 1 if size < THREAD_ELEMENTS else check_threads(threads)
    if n == 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(function, items))


def map_rows(
    function: Callable[..., Any], n: int, size: int, threads: int | None, *arguments: Any
) -> list[Any]:
    """Return the function of each part of n rows, cut from the arrays among the arguments."""
    if n <= PART:
        return [function(*arguments)]

    def call(start: int) -> Any:  # empty arrays stay empty
        rows = slice(start, start + PART)
        return function(*(a[rows] if isinstance(a, np.ndarray) else a for a in arguments))

    return map_threads(call, range(0, n, PART), size, threads)


class _BlasLimit:
    """The BLAS limit of the whole process: the first of concurrent fits sets it, the last restores it."""

    lock = Lock()
    n_fits = 0
    limit: Any = None


@contextmanager
def in_one_thread(size: int) -> Iterator[None]:
    """Limit BLAS to one thread if products have few multiplications: waking others takes longer."""
    if size >= LARGE:
        yield
        return
    with _BlasLimit.lock:
        if _BlasLimit.n_fits == 0:
            _BlasLimit.limit = blas().limit(limits=1)
        _BlasLimit.n_fits += 1
    try:
        yield
    finally:
        with _BlasLimit.lock:
            _BlasLimit.n_fits -= 1
            if _BlasLimit.n_fits == 0:
                _BlasLimit.limit.restore_original_limits()


@cache
def blas() -> Any:
    """Return a handle of the BLAS libraries that NumPy and SciPy have loaded."""
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # of scikit-learn

    return ThreadpoolController().select(user_api="blas")


# ---- hashes of rows, so that what is drawn does not depend on the order of a table -------------------------


def hash_rows(X: Any) -> NDArray[np.uint64]:
    """Return a hash of each row's content, the same for every type of table."""
    if hasattr(X, "tocsr"):
        return _hash_sparse(X.tocsr())
    if hasattr(X, "columns"):
        table = X.iloc if hasattr(X, "iloc") else X  # by position: names may repeat
        columns = [table[:, j].to_numpy() for j in range(X.shape[1])]
    else:
        try:
            values = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError):
            return np.array([_hash_object(row) for row in X], dtype=np.uint64)
        columns = list(values.reshape(len(values), -1).T)
    total = np.zeros(len(X), dtype=np.uint64)
    for j, column in enumerate(columns):
        if column.dtype.kind in "biuf":
            total += _hash_values(column.astype(np.float64, copy=False), j)
        else:
            texts, place = np.unique(column.astype(str), return_inverse=True)
            numbers = np.array([_hash_object(text) for text in texts.tolist()], dtype=np.uint64)
            total += _scramble(numbers[place] ^ _scramble(np.asarray(j, dtype=np.uint64)))
    return _scramble(total)


def _hash_sparse(X: Any) -> NDArray[np.uint64]:
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    kept = X.data != 0
    total = np.zeros(X.shape[0], dtype=np.uint64)
    parts = _hash_values(X.data[kept].astype(np.float64), X.indices[kept])
    np.add.at(total, row[kept], parts)
    return _scramble(total)


def _hash_object(row: Any) -> int:
    items = row.tolist() if isinstance(row, np.ndarray) else row
    return int.from_bytes(blake2b(repr(items).encode(), digest_size=8).digest(), "little")


def _hash_values(values: NDArray[np.float64], column: Any) -> NDArray[np.uint64]:
    """Return the bits of values, scrambled together with the number of their column."""
    values = np.where(np.isnan(values), np.nan, values + 0.0)  # one NaN, and -0 the same as 0
    bits = values.view(np.uint64)
    columns = np.asarray(column, dtype=np.uint64) + np.uint64(1)
    return _scramble(bits ^ _scramble(columns))


def _scramble(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64 bits: the finalizer of SplitMix64 (Steele, Lea, Flood 2014)."""
    bits = np.atleast_1d(bits) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits ^ (bits >> np.uint64(31)))
