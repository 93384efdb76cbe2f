"""Files that are written whole or not at all."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = {  # what to say of a file that its disk did not take
    errno.ENOSPC: "no space left on the disk of {}: free some and try again",
    errno.EDQUOT: "no space left in the disk quota for {}: free some and try again",
    errno.EFBIG: "no space left for {}: files may not grow so large here (see ulimit -f)",
}


@contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a name beside ``path`` to write to; what is there takes its place at the end, unless that failed.

    The name ends as ``path`` does, for writers that go by the ending.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with whole(Path(folder) / "numbers.txt") as part:
    ...         _ = part.write_text("1 2 3")
    ...     print(os.listdir(folder))
    ['numbers.txt']
    """
    target = Path(path)
    part = target.with_name(f".{target.stem}.{secrets.token_hex(4)}.part{target.suffix}")
    try:
        yield part
        os.replace(part, target)
    except OSError as error:
        if type(error) is not type(OSError(error.errno, "")):  # of some library
            raise
        if error.errno is None or error.filename not in (None, str(part), part):
            raise
        raise OSError(error.errno, error.strerror, str(target)) from error  # not the part's name
    finally:
        part.unlink(missing_ok=True)
