"""Download of the official files of an image set, which resumes where it broke off.

A file gets its name only when it is complete and its MD5 sum is right. Until then it is ``.<name>.part``,
which the next attempt resumes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from refinecal._core.errors import needs_extra
from refinecal._core.files import hold_lock
from refinecal.experiments.vision.archives import (
    DOWNLOADS,
    FILES,
    Official,
    check_file,
    compute_md5,
)

Progress = Callable[[str, int, int], None]

LOCK = ".download.lock"
TIMEOUT = 60.0  # seconds without an answer
WAITS = (1.0, 5.0, 20.0)  # seconds before each further attempt
TRY_LATER = {408, 425, 429, 500, 502, 503, 504}  # codes of HTTP
PIECE = 1 << 18  # bytes
PARTIAL = 206  # HTTP: here is the rest
BROKEN = (URLError, HTTPException, ConnectionError, TimeoutError)


def download(name: str, folder: str | os.PathLike[str], progress: bool = False) -> list[Path]:
    """Download the official files of an image set into a subfolder of its name; existing files are kept.

    If some of them are in the folder itself, the others are put next to them.

    Parameters
    ----------
    name : {"cifar10", "cifar100", "svhn", "fashion-mnist"}
    folder : path
        Of all sets; created if need be. :func:`read_images` reads from there.
    progress : bool, default False
        Whether to show a bar for each file, on stderr.

    Raises
    ------
    ConnectionError
        If the address does not answer, or breaks off. What was received is kept for the next attempt.
    ValueError
        If the download is not the official file, or a different file of its name exists.
    """
    if name not in DOWNLOADS:
        raise ValueError(f"name is {name!r}: there are {', '.join(DOWNLOADS)}.")
    files = [FILES[each] for each in DOWNLOADS[name]]
    places = (Path(folder) / name, Path(folder))
    # by name and size: MNIST's files have the names of Fashion-MNIST's
    sizes = [
        [path.stat().st_size if (path := place / each.name).is_file() else None for each in files]
        for place in places
    ]
    counts = [sum(s == each.size for s, each in zip(some, files, strict=True)) for some in sizes]
    place = places[counts.index(max(counts))]
    missing = [each for each in files if not (place / each.name).exists()]
    for each in set(files) - set(missing):
        check_file(place / each.name, each)
    if missing:
        place.mkdir(parents=True, exist_ok=True)
        lock = hold_lock(place / LOCK, f"downloading into {place}", remove=True)
        with lock, _progress_bars(progress) as tell:
            for each in missing:
                _fetch(each, place, tell)
    return [place / each.name for each in files]


def _fetch(official: Official, folder: Path, tell: Progress) -> None:
    part = folder / f".{official.name}.part"
    is_resumed = part.exists()
    _receive(official, part, tell)
    if is_resumed and compute_md5(part) != official.md5:  # its beginning was of another file
        part.unlink()
        _receive(official, part, tell)
    if (found := compute_md5(part)) != official.md5:
        part.unlink()
        raise ValueError(
            f"{official.address} sent a file whose MD5 sum is {found}, not {official.md5}, so it was not "
            f"kept: try again later, or get {official.name} from elsewhere and put it into {folder}"
        )
    os.replace(part, folder / official.name)


def _receive(official: Official, part: Path, tell: Progress) -> None:
    """Append what is missing, in a few attempts; leave no empty file behind."""
    try:
        with part.open("ab") as file:
            for wait in (*WAITS, None):
                why, is_final = "it broke off", wait is None
                try:
                    _append(official, file, tell)
                except BROKEN as error:
                    why = str(error) or type(error).__name__
                    is_final |= isinstance(error, HTTPError) and error.code not in TRY_LATER
                if (kept := file.tell()) >= official.size:
                    return
                if is_final:
                    again = f" The {kept} bytes received are kept: run it again to resume." * (
                        kept > 0
                    )
                    raise ConnectionError(
                        f"{official.address} was not downloaded ({why}).{again} Without a network, get "
                        f"{official.name} elsewhere and put it into {part.parent}."
                    )
                time.sleep(wait or 0)
    finally:
        if not part.stat().st_size:
            part.unlink()


def _append(official: Official, file: BinaryIO, tell: Progress) -> None:
    start = file.tell()
    rest = {"Range": f"bytes={start}-"} if start else {}
    request = Request(official.address, headers={"User-Agent": "refinecal", **rest})
    with urlopen(request, timeout=TIMEOUT) as answer:
        where = answer.headers.get("Content-Range", "")
        if answer.status != PARTIAL or not where.startswith(f"bytes {start}-"):
            start = 0
        length, expected = answer.headers.get("Content-Length"), official.size - start
        if length is not None and int(length) != expected:
            raise ValueError(
                f"{official.address} offers {length} bytes, not {expected}: that is not the official file, "
                f"so get {official.name} from elsewhere"
            )
        file.truncate(start)
        file.seek(start)
        tell(official.name, start, official.size)
        while piece := answer.read(min(PIECE, official.size - file.tell())):
            file.write(piece)
            tell(official.name, file.tell(), official.size)


@contextmanager
def _progress_bars(is_shown: bool) -> Iterator[Progress]:
    """Give a function that shows a bar for each file, on stderr, or nothing."""
    if not is_shown:
        yield lambda name, done, total: None
        return
    with needs_extra("cli", package="rich"):
        from rich import progress as bars
        from rich.console import Console

    columns = (
        *(bars.TextColumn("{task.description}"), bars.BarColumn(bar_width=20)),
        *(bars.DownloadColumn(), bars.TransferSpeedColumn(), bars.TimeRemainingColumn()),
    )
    with bars.Progress(*columns, console=Console(stderr=True)) as shown:
        tasks: dict[str, bars.TaskID] = {}

        def tell(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = shown.add_task(name, total=total)
            shown.update(tasks[name], completed=done)

        yield tell
