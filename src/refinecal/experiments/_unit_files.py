"""Files with what one training leaves behind: whatever is wrong with one is told in the same words."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["reading"]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever is wrong with a file into one clear error."""
    try:
        if not zipfile.is_zipfile(path) and path.is_file():
            raise ValueError("it is no archive of arrays")
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise ValueError(
            f"{path} is not the result of a training, or it is damaged ({type(error).__name__}: {error}): "
            "delete it and resume the run, which trains that unit again"
        ) from error
