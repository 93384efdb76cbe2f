"""Arrays in ``.npy`` files, also those of Python's objects, without ever running what a file says.

NumPy stores an array of objects as a pickle: a small program, which to load is to run. Here it is only read,
and anything but an array of texts and numbers is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from refinecal.experiments._pickle_reader import ARRAY, PickledCall, PickleReader, UnsupportedPickle

__all__ = ["read_array"]

CURE = (
    "If you trust it, write it anew as texts or numbers: "
    "np.save(path, np.load(path, allow_pickle=True).astype(str)), or astype(float)"
)
HEADERS: dict[tuple[int, int], Callable[[BinaryIO], Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
SCALAR = re.compile(r"numpy\.(?:_core|core)\.multiarray scalar")
SIMPLE = re.compile(r"[biufU]\d+")  # types of single values, as NumPy writes them


def read_array(path: Path) -> NDArray[Any]:
    """Return the array in a ``.npy`` file; of objects, those that are texts, numbers or None.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    ndarray

    Raises
    ------
    ValueError
        If the file is damaged, or holds other objects.
    """
    with _reading(path), path.open("rb") as file:
        header = HEADERS.get(np.lib.format.read_magic(file))
        if header is None:
            raise ValueError("its version is not known")
        shape, _, dtype = header(file)
        rest = path.stat().st_size - file.tell()  # no claim of a damaged file takes more memory
        if dtype.kind == "O":
            return _of_objects(BytesIO(file.read(rest)), shape)
        if math.prod(shape) * dtype.itemsize > rest:
            raise ValueError(f"it is cut off after {rest} bytes of values")
        file.seek(0)
        return np.asarray(np.load(file, allow_pickle=False))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever is wrong with a file into one clear error."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except UnsupportedPickle as error:
        raise ValueError(
            f"{path} is an array of Python objects that holds {error}, and pickles, which may run code, are "
            f"never loaded. {CURE}."
        ) from None
    except Exception as error:
        raise ValueError(f"{path} is not a NumPy array, or it is damaged: {error}") from error


def _of_objects(file: BinaryIO, shape: tuple[int, ...]) -> NDArray[Any]:
    noted = PickleReader().read(file)
    match noted:
        case PickledCall(name=name, state=(_, _, _, _, list(values))) if ARRAY.fullmatch(name):
            pass
        case _:
            raise UnsupportedPickle("something else than an array")
    if len(values) != math.prod(shape):
        raise ValueError(f"it has {len(values)} values, not {' × '.join(map(str, shape))}")
    array = np.empty(len(values), dtype=object)
    array[:] = [_value(each) if isinstance(each, PickledCall) else each for each in values]
    for each in set(map(type, array)) - {str, int, float, bool, type(None)}:
        raise UnsupportedPickle(f"values of type {each.__name__}")
    return array.reshape(shape)


def _value(noted: PickledCall) -> Any:
    """Return a single value of NumPy's, which it stores as a type and bytes."""
    match noted:
        case PickledCall(
            name=name,
            args=(PickledCall(name="numpy dtype", args=(str(kind), *_)) as dtype, bytes(raw)),
        ) if SCALAR.fullmatch(name) and SIMPLE.fullmatch(kind):
            order: Any = dtype.state[1] if isinstance(dtype.state, tuple) else "="
            return np.frombuffer(raw, np.dtype(kind).newbyteorder(order), 1)[0].item()
        case _:
            raise UnsupportedPickle(f"{noted.name.split(' ')[-1]!r}")
