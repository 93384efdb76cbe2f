"""Files of plain arrays: read without ever unpickling, whoever wrote them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


@contextmanager
def explain_read_errors(path: Path, what: str) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into one clear error.

    >>> with explain_read_errors(Path("model.npz"), "an array file"):
    ...     raise KeyError("weights")
    Traceback (most recent call last):
    ValueError: model.npz is not an array file, or it is damaged (KeyError: 'weights'): fit the model again...
    """
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:  # each library has kinds of its own
        reason = str(error).split("\n", 1)[0]  # XGBoost adds a stack trace
        raise ValueError(
            f"{path} is not {what}, or it is damaged ({type(error).__name__}: {reason}): fit the model "
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
