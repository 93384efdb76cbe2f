"""Arrays in ``.npy`` files, also those of Python's objects, without ever running what a file says.

NumPy stores an array of objects as a pickle: a small program, which to load is to run. Here such a program
is only read: texts, numbers and lists are taken as they are, what it would call is noted down and not called,
and anything but an array of texts and numbers is refused.
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

__all__ = ["read_array"]

CURE = (
    "If you trust it, write it anew as texts or numbers: "
    "np.save(path, np.load(path, allow_pickle=True).astype(str)), or astype(float)"
)
HEADERS: dict[tuple[int, int], Callable[[BinaryIO], Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
VALUES = {
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
ARRAY = re.compile(r"numpy\.(?:_core|core)\.multiarray _reconstruct")
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
        if dtype.kind == "O":
            return _of_objects(file, shape)
        file.seek(0)
        return np.asarray(np.load(file, allow_pickle=False))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever is wrong with a file into one clear error."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except _Foreign as error:
        raise ValueError(
            f"{path} is an array of Python objects that holds {error}, and pickles, which may run code, are "
            f"never loaded. {CURE}."
        ) from None
    except Exception as error:
        raise ValueError(f"{path} is not a NumPy array, or it is damaged: {error}") from error


class _Foreign(Exception):
    """Something in a pickle that is neither text nor number."""


@dataclass(slots=True, eq=False)
class _Noted:
    """What a pickle would call, with which arguments, and what it would then set."""

    name: str
    args: Any = None
    state: Any = None


def _of_objects(file: BinaryIO, shape: tuple[int, ...]) -> NDArray[Any]:
    noted = _Reader().read(file)
    match noted:
        case _Noted(name=name, state=(_, _, _, _, list(values))) if ARRAY.fullmatch(name):
            pass
        case _:
            raise _Foreign("something else than an array")
    if len(values) != math.prod(shape):
        raise ValueError(f"it has {len(values)} values, not {' × '.join(map(str, shape))}")
    array = np.empty(len(values), dtype=object)
    array[:] = [_value(each) if isinstance(each, _Noted) else each for each in values]
    for each in set(map(type, array)) - {str, int, float, bool, type(None)}:
        raise _Foreign(f"values of type {each.__name__}")
    return array.reshape(shape)


def _value(noted: _Noted) -> Any:
    """Return a single value of NumPy's, which it stores as a type and bytes."""
    match noted:
        case _Noted(
            name=name, args=(_Noted(name="numpy dtype", args=(str(kind), *_)) as dtype, bytes(raw))
        ) if SCALAR.fullmatch(name) and SIMPLE.fullmatch(kind):
            order: Any = dtype.state[1] if isinstance(dtype.state, tuple) else "="
            return np.frombuffer(raw, np.dtype(kind).newbyteorder(order), 1)[0].item()
        case _:
            raise _Foreign(f"{noted.name.split(' ')[-1]!r}")


class _Reader:
    """The stack and the memory of a pickle, in which nothing but data is ever made."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memory: dict[int, Any] = {}

    def read(self, file: BinaryIO) -> Any:
        arg: Any
        for opcode, arg, _ in pickletools.genops(file):
            name = opcode.name
            if name in VALUES:
                self.stack.append(arg)
            elif name == "MEMOIZE":
                self.memory[len(self.memory)] = self.stack[-1]
            elif name in ("BINPUT", "LONG_BINPUT"):
                self.memory[arg] = self.stack[-1]
            elif name in ("BINGET", "LONG_BINGET"):
                self.stack.append(self.memory[arg])
            elif name in CONSTANTS:
                self.stack.append(CONSTANTS[name])
            elif name not in ("PROTO", "FRAME", "STOP"):
                self._rare(name, arg)
        return self.stack.pop()

    def _rare(self, name: str, arg: Any) -> None:
        stack = self.stack
        if name == "EMPTY_LIST":
            stack.append([])
        elif name == "MARK":
            self.marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(tuple(self._since(self.marks.pop())))
        elif name in TUPLES:
            stack.append(tuple(self._since(len(stack) - TUPLES[name])))
        elif name in ("APPEND", "APPENDS"):
            values = self._since(self.marks.pop() if name == "APPENDS" else len(stack) - 1)
            if not isinstance(stack[-1], list):
                raise _Foreign("objects of other types")
            stack[-1].extend(values)
        else:
            self._note(name, arg)

    def _note(self, name: str, arg: Any) -> None:
        stack = self.stack
        if name == "GLOBAL":
            stack.append(_Noted(arg))
        elif name == "STACK_GLOBAL":
            stack.append(_Noted(" ".join(map(str, self._since(len(stack) - 2)))))
        elif name == "REDUCE":
            called, args = self._since(len(stack) - 2)
            stack.append(_Noted(called.name if isinstance(called, _Noted) else "?", args))
        elif name == "BUILD":
            state = stack.pop()
            if not isinstance(stack[-1], _Noted):
                raise _Foreign("objects of other types")
            stack[-1].state = state
        else:
            raise _Foreign(f"objects of other types ({name})")

    def _since(self, start: int) -> list[Any]:
        """Remove what lies on the stack from ``start`` on, and return it."""
        if start < 0:
            raise ValueError("its pickle takes from an empty stack")
        values = self.stack[start:]
        del self.stack[start:]
        return values
