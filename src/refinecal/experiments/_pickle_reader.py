"""Pickles that are only read: nothing that they say is ever run.

A pickle is a small program, which to load is to run. Here strings, numbers, tuples, lists and dictionaries
are taken as they are, what the program would call is noted down and not called, and the rest is refused.
"""

from __future__ import annotations

import pickletools
import re
from dataclasses import dataclass
from typing import Any, BinaryIO

__all__ = ["ARRAY", "PickleReader", "PickledCall", "UnsupportedPickle"]

VALUES = {
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
    *("BINSTRING", "SHORT_BINSTRING"),  # of Python 2
}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
ARRAY = re.compile(
    r"numpy\.(?:_core|core)\.multiarray _reconstruct"
)  # by which NumPy makes an array


class UnsupportedPickle(Exception):
    """Something in a pickle that is neither text nor number."""


@dataclass(slots=True, eq=False)
class PickledCall:
    """What a pickle would call, with which arguments, and what it would then set."""

    name: str
    args: Any = None
    state: Any = None


class PickleReader:
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
                self._read_container(name, arg)
        return self.stack.pop()

    def _read_container(self, name: str, arg: Any) -> None:
        stack = self.stack
        if name == "EMPTY_LIST":
            stack.append([])
        elif name == "MARK":
            self.marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(tuple(self._pop_from(self.marks.pop())))
        elif name in TUPLES:
            stack.append(tuple(self._pop_from(len(stack) - TUPLES[name])))
        elif name in ("APPEND", "APPENDS"):
            values = self._pop_from(self.marks.pop() if name == "APPENDS" else len(stack) - 1)
            if not isinstance(stack[-1], list):
                raise UnsupportedPickle("objects of other types")
            stack[-1].extend(values)
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name in ("SETITEM", "SETITEMS"):
            values = self._pop_from(self.marks.pop() if name == "SETITEMS" else len(stack) - 2)
            if not isinstance(stack[-1], dict):
                raise UnsupportedPickle("objects of other types")
            stack[-1].update(zip(values[::2], values[1::2], strict=True))
        else:
            self._read_call(name, arg)

    def _read_call(self, name: str, arg: Any) -> None:
        stack = self.stack
        if name == "GLOBAL":
            stack.append(PickledCall(arg))
        elif name == "STACK_GLOBAL":
            stack.append(PickledCall(" ".join(self._pop_from(len(stack) - 2))))
        elif name == "REDUCE":
            called, args = self._pop_from(len(stack) - 2)
            stack.append(PickledCall(called.name if isinstance(called, PickledCall) else "?", args))
        elif name == "BUILD":
            state = stack.pop()
            if not isinstance(stack[-1], PickledCall):
                raise UnsupportedPickle("objects of other types")
            stack[-1].state = state
        else:
            raise UnsupportedPickle(f"objects of other types ({name})")

    def _pop_from(self, start: int) -> list[Any]:
        """Remove what lies on the stack from ``start`` on, and return it."""
        if start < 0:
            raise ValueError("its pickle takes from an empty stack")
        values = self.stack[start:]
        del self.stack[start:]
        return values
