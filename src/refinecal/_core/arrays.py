"""Arrays of any library to NumPy, without a copy where memory can be shared; and threads to read them."""

import numbers
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

THREAD_ELEMENTS = 2**21  # fewer numbers than this are read by one thread sooner than shared out
LARGE = 2**27  # multiplications, about 10 ms: products that are worth sharing between threads


def is_torch(array: Any) -> bool:
    """Say whether this is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def is_on_device(array: Any) -> bool:
    """Say whether this is a torch tensor that lives on another device than the CPU."""
    return is_torch(array) and array.device.type != "cpu"


def column_names(array: Any) -> list[Any] | None:
    """Return the column names of a DataFrame (pandas, polars), unless they only count from 0."""
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
    if dtype is None and hasattr(array, "columns"):  # a frame, of one column if it holds labels
        dtype = next(iter(getattr(array, "dtypes", ())), None)
    if not getattr(dtype, "ordered", True):  # of pandas; as they came out of a file, for instance
        return None
    # A polars Categorical numbers its categories as they come: nobody has put these in order.
    to_list = getattr(getattr(dtype, "categories", None), "to_list", None)
    return None if to_list is None else list(to_list())


def in_order(
    rows: Array, own: list[Any] | None, wanted: list[Any] | None, name: str, strict: bool = False
) -> Array:
    """Return named columns in the order that is wanted; with ``strict``, names must be those wanted."""
    if own is None or wanted is None or own == wanted:
        return rows
    if set(own) != set(wanted) or len(set(own)) != len(own):
        if strict:
            raise ValueError(
                f"{name} has the columns {own}, but {wanted} were there when it was fitted"
            )
        return rows
    return np.ascontiguousarray(rows[:, [own.index(name) for name in wanted]])


def _refuse_other_things(array: Any, name: str) -> None:
    """Raise for what is often passed in place of an array, with the cure."""
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
    """Return any array-like as NumPy, without a copy where memory can be shared."""
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
            f"{name} cannot be read as an array: are its rows equally long?"
        ) from error
    if found.dtype.names is not None:
        raise TypeError(
            f"{name} is a structured array: pass "
            f"numpy.lib.recfunctions.structured_to_unstructured({name})"
        )
    if found.dtype.kind == "V":  # bfloat16 and other small floats of JAX
        found = found.astype(np.float32)
    if found.dtype.kind == "U" and isinstance(array, (list, tuple)):
        found = np.asarray(array, dtype=object)  # NumPy has made strings of numbers and NaN
    return found


def is_missing(value: Any) -> bool:
    """Say whether this is None, NaN, NaT or NA."""
    try:
        return value is None or bool(value != value)  # noqa: PLR0124  only these differ from themselves
    except (TypeError, ValueError):  # pandas.NA has no truth value; nor has an array
        return type(value).__name__ == "NAType"


def to_floats(array: Any, name: str) -> Array:
    """Return float32 for small floats and float32, float64 for everything else that is a number."""
    found = to_numpy(array, name)
    if found.dtype.kind == "O":
        values = found.ravel().tolist()
        if (
            values
            and hasattr(values[0], "__len__")
            and not isinstance(values[0], (str, bytes, dict))
        ):
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
        f"{name} must hold real numbers, found {found}. If labels got there by mistake: metrics take the "
        "labels first, then the predictions; calibrators the other way round."
    )


# ---- threads -----------------------------------------------------------------------------------------------


def check_threads(n_threads: int | None) -> int:
    """Return the number of threads to use; OMP_NUM_THREADS, which joblib sets, is respected."""
    if n_threads is None:
        limit = os.environ.get("OMP_NUM_THREADS", "")
        cores = (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
        return min(cores, int(limit)) if limit.isdigit() and int(limit) > 0 else cores
    if not isinstance(n_threads, numbers.Integral) or n_threads < 1:
        raise ValueError(
            f"n_threads is {n_threads!r}: it must be a whole number of at least 1, or None"
        )
    return int(n_threads)


def map_threads(
    function: Callable[[Any], Any], items: Iterable[Any], size: int, threads: int | None = None
) -> list[Any]:
    """Return the function of each item, in several threads if there are numbers enough to pay for them."""
    n = 1 if size < THREAD_ELEMENTS else check_threads(threads)
    if n == 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(function, items))


class _BlasLimit:
    """How many threads BLAS uses, for the whole process: the first fit limits it, the last restores it."""

    lock = Lock()
    n_fits = 0
    limit: Any = None


@contextmanager
def in_one_thread(size: int) -> Iterator[None]:
    """Let BLAS use one thread for products of that many multiplications, unless they are large."""
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
    """Return a handle of the BLAS libraries of NumPy and SciPy, which are loaded by now."""
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # of scikit-learn

    return ThreadpoolController().select(user_api="blas")
