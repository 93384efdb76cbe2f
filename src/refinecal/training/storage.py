"""Files of plain arrays, which are never unpickled."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


@contextmanager
def explain_read_errors(path: Path, what: str) -> Iterator[None]:
    """Turn any error while a file is read into one that names the file and the fix.

    >>> with explain_read_errors(Path("model.npz"), "an array file"):
    ...     raise KeyError("weights")
    Traceback (most recent call last):
    ValueError: model.npz is not an array file, or it is damaged (KeyError: 'weights'): fit the model again...
    """
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:  # each library has its own kinds
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


def read_npz(path: Path) -> Arrays:
    """Read all arrays of an ``.npz`` file."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return dict(stored)
