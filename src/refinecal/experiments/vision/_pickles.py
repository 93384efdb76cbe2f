"""CIFAR's batches, which are pickles, read without ever running what a file says.

A pickle is a small program, which to load is to run. Here it is only read: what it would call is noted down
and not called, and whatever a batch of images does not need is refused by name.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal.experiments._pickle_reader import ARRAY, Foreign, Noted, Reader

TEXTS = {"BINSTRING", "SHORT_BINSTRING", "STRING", "UNICODE", "INT", "LONG"}  # also of Python 2
LARGEST = 1 << 28  # bytes of an array
KEYS, LETTERS = 6, 40  # that an error shows
DTYPE, KIND, ENCODE = "numpy dtype", "numpy ndarray", "_codecs encode"


def read_batch(raw: bytes, labels: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the images of a pickled batch, one a row, and its labels.

    Parameters
    ----------
    raw : bytes
        The pickle.
    labels : str
        What the labels are called: "labels", or "fine_labels" of CIFAR-100.

    Returns
    -------
    images : ndarray of uint8, shape (n, pixels)
    labels : ndarray of int64, shape (n,)

    Raises
    ------
    ValueError
        If there is anything in it but numbers, texts and arrays, or if it is damaged.
    """
    try:
        batch = _BatchReader().read(io.BytesIO(raw))
        if not isinstance(batch, dict):
            raise Foreign("something else than a batch")
        return _array(_at(batch, "data")), _numbers(_at(batch, labels), labels)
    except MemoryError:
        raise
    except Foreign as error:
        raise ValueError(
            f"is a pickle that holds {error}, and pickles, which may run code, are only read here, never run"
        ) from None
    except Exception as error:
        raise ValueError(f"is not a batch of images, or it is damaged: {error}") from error


class _BatchReader(Reader):
    """Reads dictionaries too, and the texts of Python 2; notes only what stores arrays."""

    MOST = 2_000_000  # CIFAR-100's training images take about 200 000

    def _rare(self, name: str, arg: Any) -> None:
        stack = self.stack
        if name in TEXTS:
            stack.append(arg)
        elif name == "PUT":
            self.memory[int(arg)] = stack[-1]
        elif name == "GET":
            stack.append(self.memory[int(arg)])
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name in ("SETITEM", "SETITEMS"):
            values = self._since(self.marks.pop() if name == "SETITEMS" else len(stack) - 2)
            if not isinstance(stack[-1], dict):
                raise Foreign("objects of other types")
            stack[-1].update(zip(map(_key, values[::2]), values[1::2], strict=True))
        else:
            super()._rare(name, arg)

    def _note(self, name: str, arg: Any) -> None:
        super()._note(name, arg)
        if name in ("GLOBAL", "STACK_GLOBAL"):
            called = self.stack[-1].name
            if called not in (DTYPE, KIND, ENCODE) and not ARRAY.fullmatch(called):
                raise Foreign(f"a call of {called.replace(' ', '.')!r}")


def _key(key: Any) -> str:
    """Return a key as text; to hash nested tuples could take for ever."""
    if not isinstance(key, str | bytes):
        raise Foreign("keys that are no texts")
    return key.decode("latin-1") if isinstance(key, bytes) else key


def _at(batch: dict[str, Any], name: str) -> Any:
    if name not in batch:
        shown = [repr(each[:LETTERS]) for each in sorted(batch)[:KEYS]]
        more = f" and {len(batch) - KEYS} more" if len(batch) > KEYS else ""
        raise Foreign(f"no {name!r}, but {', '.join(shown) or 'nothing'}{more}")
    return batch[name]


def _array(noted: Any) -> NDArray[np.uint8]:
    """Return an array of bytes, which NumPy stores as a shape, a type, an order and its bytes."""
    match noted:
        case Noted(
            name=name,
            state=(
                _,
                tuple(shape),
                Noted(name="numpy dtype", args=("u1" | "|u1", *_)),
                order,
                stored,
            ),
        ) if ARRAY.fullmatch(name):
            pass
        case _:
            raise Foreign("images that are no array of bytes")
    raw = _bytes(stored)
    if len(shape) != 2 or not all(type(size) is int and 0 <= size <= LARGEST for size in shape):
        raise ValueError("its array of images has not one row of bytes for each image")
    if len(raw) != math.prod(shape):
        raise ValueError(f"it has {len(raw)} bytes of images, not {shape[0]} × {shape[1]}")
    return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if order else "C")


def _bytes(stored: Any) -> bytes:
    """Return bytes, which pickles of Python 2, or for it, store as text."""
    match stored:
        case bytes():
            return stored
        case str() | Noted(name="_codecs encode", args=(str(), "latin1")):
            text: str = stored if isinstance(stored, str) else stored.args[0]
            return text.encode("latin-1")
        case _:
            raise Foreign("images that are no bytes")


def _numbers(values: Any, name: str) -> NDArray[np.int64]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise Foreign(f"{name!r} that are no list of whole numbers")
    return np.array(values, dtype=np.int64)
