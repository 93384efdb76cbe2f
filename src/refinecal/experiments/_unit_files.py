"""Result files of training runs: arrays, and a header in JSON; nothing is pickled."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.files import atomic_write, plain

__all__ = ["Arrays", "check_name", "is_whole", "open_unit", "write_unit"]

FORMAT = 1  # of the file
HEADER = "header.json"
END = struct.Struct("<4s8xII2x")  # of an archive: its mark, and length and place of what is before

Arrays = dict[str, NDArray[Any]]


def write_unit(path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Arrays) -> None:
    """Write one ``.npz`` file, whole or not at all; equal contents make equal bytes."""
    header = {"format": FORMAT, **header}
    text = json.dumps(plain(header), ensure_ascii=False, allow_nan=False).encode()
    with atomic_write(path) as part, part.open("wb") as file:
        np.savez_compressed(
            file, allow_pickle=False, **{HEADER: np.frombuffer(text, np.uint8), **arrays}
        )


@contextmanager
def open_unit(path: str | os.PathLike[str]) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
    """Give the header and the arrays of a file; explain what is wrong if it cannot be read."""
    path = Path(path)
    try:
        if path.is_file() and not is_whole(path):
            raise ValueError("it is not an archive of arrays")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            header = json.loads(arrays[HEADER].tobytes())
            if header["format"] != FORMAT:
                raise ValueError(f"its format is {header['format']}, not {FORMAT}")
            yield header, arrays
    except MemoryError:
        raise
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, f"{error.strerror or error}", str(path)) from error
    except Exception as error:
        raise ValueError(
            f"{path} is not the result of a training run, or it is damaged ({type(error).__name__}: "
            f"{error}): delete it and resume the run, which trains that unit again"
        ) from error


def is_whole(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file is complete, by its end; the rest is checked when it is read.

    Raises
    ------
    OSError
        If it cannot be read, which does not mean that anything is wrong with it.
    """
    with open(path, "rb") as file:
        start = file.seek(0, os.SEEK_END) - END.size
        if start < 0:
            return False
        file.seek(start)
        mark, length, place = END.unpack(file.read())
        return bool(mark == b"PK\x05\x06" and place + length == start)


def check_name(path: Path, key: Any) -> None:
    """Raise if a file holds the result of another training run, as after a wrong copy."""
    if path.stem != key.name:
        raise ValueError(
            f"{path} holds the training run {key.name}: remove it and resume the run, which trains the right "
            "one"
        )
