"""Arrays in pickles and ``.npy`` files, read without ever running what a file says.

A pickle is a small program, and loading it runs it. Here texts, numbers, tuples, lists and dictionaries are
read as they are, what the program would call is recorded and not called, and everything else is refused.
"""

from __future__ import annotations

import math
import pickletools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

VALUES = {
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
    *("BINSTRING", "SHORT_BINSTRING"),  # of Python 2
}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
NEW = {"EMPTY_LIST": list, "EMPTY_DICT": dict}
TAKEN = {
    "TUPLE1": 1,
    "TUPLE2": 2,
    "TUPLE3": 3,
    "APPEND": 1,
    "SETITEM": 2,
    "STACK_GLOBAL": 2,
    "REDUCE": 2,
}
MARKED = ("TUPLE", "APPENDS", "SETITEMS")
ARRAY = re.compile(r"numpy\.(?:_core|core)\.multiarray _reconstruct")  # how NumPy makes an array
SCALAR = re.compile(r"numpy\.(?:_core|core)\.multiarray scalar")
SIMPLE = re.compile(r"[biufU]\d+")  # types of single values, as NumPy writes them
OTHER = "objects of other types"
FIX = (
    "If you trust it, save it again as texts or numbers: "
    "np.save(path, np.load(path, allow_pickle=True).astype(str)), or astype(float)"
)
HEADERS: dict[tuple[int, int], Callable[[BinaryIO], Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class UnsupportedPickle(Exception):
    """Something in a pickle that is neither text nor number."""


@dataclass(slots=True, eq=False)
class PickledCall:
    """What a pickle would call, with which arguments, and what it would then set."""

    name: str
    args: Any = None
    state: Any = None


def read_pickle(raw: bytes) -> Any:  # noqa: PLR0912  # one branch per instruction
    """Return the data of a pickle; calls that it would make are :class:`PickledCall` objects."""
    stack: list[Any] = []
    marks: list[int] = []
    memory: dict[int, Any] = {}
    arg: Any
    for opcode, arg, _ in pickletools.genops(raw):
        name = opcode.name
        if name in VALUES:
            stack.append(arg)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in NEW:
            stack.append(NEW[name]())
        elif name == "MEMOIZE":
            memory[len(memory)] = stack[-1]
        elif name in ("BINPUT", "LONG_BINPUT"):
            memory[arg] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memory[arg])
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "GLOBAL":
            stack.append(PickledCall(arg))
        elif name == "BUILD":
            state = stack.pop()
            if not isinstance(stack[-1], PickledCall):
                raise UnsupportedPickle(OTHER)
            stack[-1].state = state
        elif name in TAKEN or name in MARKED:
            start = marks.pop() if name in MARKED else len(stack) - TAKEN[name]
            if start < 0:
                raise ValueError("its pickle takes from an empty stack")
            values = stack[start:]
            del stack[start:]
            _combine(name, stack, values)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise UnsupportedPickle(f"{OTHER} ({name})")
    return stack.pop()


def _combine(name: str, stack: list[Any], values: list[Any]) -> None:
    """Put values from the stack together, as an instruction of a pickle says."""
    if name.startswith("TUPLE"):
        stack.append(tuple(values))
    elif name == "STACK_GLOBAL":
        stack.append(PickledCall(" ".join(values)))
    elif name == "REDUCE":
        called, args = values
        stack.append(PickledCall(called.name if isinstance(called, PickledCall) else "?", args))
    elif name.startswith("APPEND") and isinstance(stack[-1], list):
        stack[-1].extend(values)
    elif name.startswith("SETITEM") and isinstance(stack[-1], dict):
        stack[-1].update(zip(values[::2], values[1::2], strict=True))
    else:
        raise UnsupportedPickle(OTHER)


def read_bytes_array(found: Any) -> NDArray[np.uint8] | None:
    """Return the array of bytes that a pickle would make; ``None`` if it is anything else."""
    match found:
        case PickledCall(
            name=name,
            state=(_, shape, PickledCall(name="numpy dtype", args=("u1", *_)), is_fortran, stored),
        ) if ARRAY.fullmatch(name):
            raw = stored.encode("latin-1") if isinstance(stored, str) else stored
            return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if is_fortran else "C")
    return None


# ---- .npy files --------------------------------------------------------------------------------------------


def read_array(path: Path) -> NDArray[Any]:
    """Return the array in a ``.npy`` file; of objects, only texts, numbers and None are accepted.

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
            return _read_objects(file.read(rest), shape)
        if math.prod(shape) * dtype.itemsize > rest:
            raise ValueError(f"it is cut off after {rest} bytes of values")
        file.seek(0)
        return np.asarray(np.load(file, allow_pickle=False))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn everything that is wrong with a file into one clear error."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except UnsupportedPickle as error:
        raise ValueError(
            f"{path} is an array of Python objects that holds {error}, and pickles, which may run code, are "
            f"never loaded. {FIX}."
        ) from None
    except Exception as error:
        raise ValueError(f"{path} is not a NumPy array, or it is damaged: {error}") from error


def _read_objects(raw: bytes, shape: tuple[int, ...]) -> NDArray[Any]:
    match read_pickle(raw):
        case PickledCall(name=name, state=(_, _, _, _, list(values))) if ARRAY.fullmatch(name):
            pass
        case _:
            raise UnsupportedPickle("something other than an array")
    if len(values) != math.prod(shape):
        raise ValueError(f"it has {len(values)} values, not {' × '.join(map(str, shape))}")
    array = np.empty(len(values), dtype=object)
    array[:] = [_read_scalar(each) if isinstance(each, PickledCall) else each for each in values]
    for each in set(map(type, array)) - {str, int, float, bool, type(None)}:
        raise UnsupportedPickle(f"values of type {each.__name__}")
    return array.reshape(shape)


def _read_scalar(found: PickledCall) -> Any:
    """Return a single NumPy value, which is stored as a type and bytes."""
    match found:
        case PickledCall(
            name=name,
            args=(PickledCall(name="numpy dtype", args=(str(kind), *_)) as dtype, bytes(raw)),
        ) if SCALAR.fullmatch(name) and SIMPLE.fullmatch(kind):
            order: Any = dtype.state[1] if isinstance(dtype.state, tuple) else "="
            return np.frombuffer(raw, np.dtype(kind).newbyteorder(order), 1)[0].item()
        case _:
            raise UnsupportedPickle(f"{found.name.split(' ')[-1]!r}")
