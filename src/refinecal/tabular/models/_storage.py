"""Files of plain arrays: read without ever unpickling, whoever wrote them."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

WORDS = {b"Z": None, b"T": True, b"F": False}
NUMBERS: dict[bytes, np.dtype[Any]] = {
    b"i": np.dtype("i1"),
    b"U": np.dtype("u1"),
    b"I": np.dtype(">i2"),
    b"l": np.dtype(">i4"),
    b"L": np.dtype(">i8"),
    b"d": np.dtype(">f4"),
    b"D": np.dtype(">f8"),
}
LENGTH = struct.Struct(">cq")


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into one clear error.

    >>> with reading(Path("model.npz"), "an array file"):
    ...     raise KeyError("weights")
    Traceback (most recent call last):
    ValueError: model.npz is not an array file, or it is damaged (KeyError: 'weights'): fit the model again...
    """
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:  # each library has kinds of its own
        raise ValueError(
            f"{path} is not {what}, or it is damaged ({type(error).__name__}: {error}): fit the model "
            "again, or get the run folder again from where it came from"
        ) from error


def to_npz(arrays: Mapping[str, Any]) -> bytes:
    """Return the content of an ``.npz`` file with arrays under their names."""
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    return content.getvalue()


def read_npz(path: Path, like: Mapping[str, tuple[str, int]]) -> Arrays:
    """Read the arrays that are named in ``like``, each with its data type and number of dimensions."""
    if not zipfile.is_zipfile(path):
        raise ValueError("it is no archive of arrays")
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in like}
    check_arrays(arrays, like)
    return arrays


def check_arrays(arrays: Mapping[str, NDArray[Any]], like: Mapping[str, tuple[str, int]]) -> None:
    """Complain of arrays that are absent or of another kind."""
    for name, (dtype, ndim) in like.items():
        if name not in arrays:
            raise ValueError(f"array {name!r} is missing")
        found = arrays[name]
        if found.dtype != np.dtype(dtype) or found.ndim != ndim:
            raise ValueError(
                f"array {name!r} has type {found.dtype} and {found.ndim} dimensions instead of {dtype} "
                f"and {ndim}"
            )


def check(condition: object, complaint: str) -> None:
    """Complain of contents that cannot be right."""
    if not condition:
        raise ValueError(complaint)


def read_ubjson(data: bytes) -> Any:
    """Return what is written in universal binary JSON, an array of numbers of one type as a NumPy array.

    Of all the ways to write a thing, only those of XGBoost are understood, so that XGBoost, which is given
    the same bytes, cannot understand them in another way.

    >>> read_ubjson(b"{L" + bytes([0] * 7 + [1]) + b"a[$U#L" + bytes([0] * 7 + [3]) + b"xyz}")
    {'a': array([120, 121, 122], dtype=uint8)}
    """
    reader = _Ubjson(data)
    value = reader.value()
    check(reader.at == len(data), f"something follows its end at byte {reader.at}")
    return value


class _Ubjson:
    """The bytes, and how many of them are read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def value(self) -> Any:
        kind = self._take(1)
        if kind == b"{":
            return self._object()
        if kind == b"[":
            return self._array()
        if kind == b"S":
            return self._text()
        return WORDS[kind] if kind in WORDS else self._numbers(kind, 1)[0].item()

    def _object(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        while not self._skip(b"}"):
            name = self._text()
            if name in fields:
                raise ValueError(f"field {name!r} is there twice")
            fields[name] = self.value()
        return fields

    def _array(self) -> Any:
        if self._skip(b"$"):
            kind = self._take(1)
            check(self._skip(b"#"), "an array of one type has no length")
            return self._numbers(kind, self._length())
        if self._skip(b"#"):
            return [self.value() for _ in range(self._length())]
        values = []
        while not self._skip(b"]"):
            values.append(self.value())
        return values

    def _text(self) -> str:
        return self._take(self._length()).decode("utf-8")

    def _numbers(self, kind: bytes, n: int) -> NDArray[Any]:
        if kind not in NUMBERS:
            raise ValueError(f"byte {self.at - 1} begins no value")
        return np.frombuffer(self._take(n * NUMBERS[kind].itemsize), NUMBERS[kind])

    def _length(self) -> int:
        mark, length = LENGTH.unpack(self._take(LENGTH.size))
        if mark != b"L" or length < 0:
            raise ValueError(f"byte {self.at - LENGTH.size} begins no length")
        return int(length)

    def _take(self, n: int) -> bytes:
        taken = self.data[self.at : self.at + n]
        if len(taken) != n:
            raise ValueError("its end is missing")
        self.at += n
        return taken

    def _skip(self, mark: bytes) -> bool:
        found = self.data.startswith(mark, self.at)
        self.at += found
        return found
