"""The official files of an image set from the network: resumed where a download broke off, and checked.

A file has its name only once it is whole and its MD5 sum is right. Until then it is ``.<name>.part``, from
which the next attempt goes on, in this process or in a later one.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from refinecal._core.errors import needs_extra
from refinecal._core.files import locked
from refinecal.experiments.vision import _official
from refinecal.experiments.vision._archives import check_file, md5_of
from refinecal.experiments.vision._official import Official

Progress = Callable[[str, int, int], None]

LOCK = ".download.lock"
TIMEOUT = 60.0  # seconds without an answer
MORE = 1 << 16  # bytes; an attempt that brings fewer was in vain
WAITS = (1.0, 5.0, 20.0)  # seconds before each attempt that follows one in vain
PIECE = 1 << 18  # bytes
RESTART = 416  # HTTP: the rest that was asked for does not exist
PARTIAL = 206  # HTTP: here is the rest
TRY_LATER = {408, 425, 429, 500, 502, 503, 504}
BROKEN = (URLError, HTTPException, ConnectionError, TimeoutError, ssl.SSLError)

log = logging.getLogger(__name__)


def download(
    name: str, folder: str | os.PathLike[str], progress: Progress | bool = False
) -> list[Path]:
    """Get the official files of an image set into a sub-folder of its name; those already there are kept.

    If some of them lie in the folder itself, the others are put beside them.

    Parameters
    ----------
    name : {"cifar10", "cifar100", "svhn", "fashion-mnist"}
    folder : path
        Of all sets; made if need be. :func:`read_images` reads from there.
    progress : bool or callable, default False
        Whether to show a bar; or what is called with the name of a file, the bytes that are there, and the
        bytes that there will be.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    ConnectionError
        If the address does not answer, or breaks off again and again. What was received stays for the next
        try.
    ValueError
        If what comes is not the official file, or a file of its name is there that is not.
    """
    if name not in _official.DOWNLOADS:
        raise ValueError(f"name is {name!r}: there are {', '.join(_official.DOWNLOADS)}.")
    folder = Path(folder)
    files = [_official.FILES[each] for each in _official.DOWNLOADS[name]]
    place = max((folder / name, folder), key=lambda place: _n_there(place, files))
    if _n_there(place, files) == len(files):  # perhaps where nobody may write
        for each in files:
            check_file(place / each.name, each)
        return [place / each.name for each in files]
    place.mkdir(parents=True, exist_ok=True)
    lock = locked(place / LOCK, f"downloading into {place}", remove=True)
    with lock, _shown(progress) as tell:
        return [fetch(each, place, tell) for each in files]


def _n_there(place: Path, files: list[Official]) -> int:
    """Return how many of the files are in a folder, by names and sizes."""
    paths = [(place / each.name, each.size) for each in files]
    return sum(path.is_file() and path.stat().st_size == size for path, size in paths)


def fetch(official: Official, folder: Path, tell: Progress) -> Path:
    """Get one file, unless it is there."""
    target, part = folder / official.name, folder / f".{official.name}.part"
    if target.exists():
        check_file(target, official)
        return target
    _check_room(official, folder, part)
    resumed = part.exists()
    _receive(official, part, tell)
    if resumed and md5_of(part) != official.md5:  # its beginning was of another file
        log.info("%s is not what it should be: once more from the start", part)
        part.unlink()
        _receive(official, part, tell)
    found = md5_of(part)
    if found != official.md5:
        part.unlink()
        raise ValueError(
            f"{official.address} sent a file whose MD5 sum is {found}, not {official.md5}, so it was not "
            f"kept: try again later, or get {official.name} from elsewhere and put it into {folder}"
        )
    os.replace(part, target)
    return target


def _check_room(official: Official, folder: Path, part: Path) -> None:
    needed = official.size - (part.stat().st_size if part.exists() else 0)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            f"{folder} has room for {free} bytes, but {official.name} needs {needed} more: make room, or "
            "name another folder"
        )


def _receive(official: Official, part: Path, tell: Progress) -> None:
    """Append what is missing; leave no empty file behind."""
    try:
        with part.open("ab") as file:
            _attempt(official, file, tell)
            os.fsync(file.fileno())
    finally:
        if not part.stat().st_size:
            part.unlink()


def _attempt(official: Official, file: BinaryIO, tell: Progress) -> None:
    """Append what is missing, in as many attempts as bring some of it, and a few in vain."""
    in_vain, most = 0, file.tell()
    while file.tell() < official.size:
        why = "it broke off"
        try:
            _append(official, file, tell)
        except HTTPError as error:
            why = f"{error.code} {error.reason}"
            if error.code == RESTART and file.tell():
                _empty(file)
            elif error.code not in TRY_LATER:
                raise _unreached(official, file, why) from error
        except BROKEN as error:
            why = str(getattr(error, "reason", error)) or type(error).__name__
        in_vain = 0 if file.tell() >= most + MORE else in_vain + 1
        most = max(most, file.tell())
        if file.tell() < official.size:
            if in_vain > len(WAITS):
                raise _unreached(official, file, why)
            log.info("%s: %s, going on from %d", official.address, why, file.tell())
            time.sleep(WAITS[max(in_vain - 1, 0)])


def _append(official: Official, file: BinaryIO, tell: Progress) -> None:
    """Append what one answer brings; begin anew if it is not the rest that was asked for."""
    start = file.tell()
    request = Request(official.address, headers={"User-Agent": "refinecal"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    with urlopen(request, timeout=TIMEOUT) as answer:
        goes_on = answer.status == PARTIAL and _start(answer) == start
        length, expected = answer.headers.get("Content-Length"), official.size - start * goes_on
        if length is not None and int(length) != expected:
            raise ValueError(
                f"{official.address} offers {length} bytes, not {expected}: that is not the official file, "
                f"so get {official.name} from elsewhere"
            )
        if not goes_on:
            _empty(file)
        tell(official.name, file.tell(), official.size)
        while piece := answer.read(min(PIECE, official.size - file.tell())):
            file.write(piece)
            tell(official.name, file.tell(), official.size)


def _start(answer: Any) -> int | None:
    """Return the place in the file at which an answer says that it begins."""
    found = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return int(found[1]) if found else None


def _empty(file: BinaryIO) -> None:
    file.truncate(0)
    file.seek(0)


def _unreached(official: Official, file: BinaryIO, why: str) -> ConnectionError:
    kept = file.tell()
    rest = f" The {kept} bytes received are kept: run it again to go on." if kept else ""
    return ConnectionError(
        f"{official.address} was not downloaded ({why}).{rest} Without a network, get {official.name} "
        f"elsewhere and put it into {Path(file.name).parent}."
    )


def _shown(progress: Progress | bool) -> AbstractContextManager[Progress]:
    if callable(progress):
        return nullcontext(progress)
    return _bar() if progress else nullcontext(lambda name, done, total: None)


@contextmanager
def _bar() -> Iterator[Progress]:
    """Show a bar for each file, on stderr."""
    with needs_extra("cli", package="rich"):
        from rich import progress as bars
        from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(bar_width=20),
        bars.DownloadColumn(),
        bars.TransferSpeedColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True)) as shown:
        tasks: dict[str, bars.TaskID] = {}

        def tell(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = shown.add_task(name, total=total)
            shown.update(tasks[name], completed=done)

        yield tell
