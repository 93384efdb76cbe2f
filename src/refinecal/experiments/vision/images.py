"""Image sets of the vision experiment: CIFAR-10, CIFAR-100, SVHN and Fashion-MNIST.

The official files are read from a folder, packed or unpacked, or downloaded. Their MD5 sums are checked, and
no pickle is ever loaded. A download resumes where it broke off: a file gets its name only when it is complete
and its MD5 sum is right; until then it is ``.<name>.part``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import blake2b
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.errors import needs_extra
from refinecal._core.files import hold_lock
from refinecal.experiments.vision import archives

__all__ = ["DATASETS", "ImageSet", "available", "download", "read_images", "validation_split"]


DATASETS = tuple(archives.FORMS)
PLACES = {"fashion-mnist": "FashionMNIST/raw"}  # where torchvision puts them


@dataclass(frozen=True, slots=True, eq=False)
class ImageSet:
    """Images and their labels, for training and for testing."""

    name: str
    train_x: NDArray[np.uint8]  # (n, channels, height, width)
    train_y: NDArray[np.int64]  # (n,) labels, from 0
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]
    classes: tuple[str, ...]  # names of the labels

    def __post_init__(self) -> None:
        _check_part("train", self.train_x, self.train_y, len(self.classes))
        _check_part("test", self.test_x, self.test_y, len(self.classes))
        if self.train_x.shape[1:] != self.test_x.shape[1:]:
            raise ValueError(
                f"train_x has images of shape {self.train_x.shape[1:]}, but test_x of "
                f"{self.test_x.shape[1:]}: they must be alike"
            )

    @property
    def n_classes(self) -> int:
        """Return how many classes there are."""
        return len(self.classes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the channels, the height and the width of an image."""
        channels, height, width = self.train_x.shape[1:]
        return channels, height, width

    def digest(self) -> str:
        """Return a digest of images and labels, which does not depend on the form of their files."""
        digest = blake2b(digest_size=16)
        for array in (self.train_x, self.train_y, self.test_x, self.test_y):
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def __repr__(self) -> str:
        sizes = f"{len(self.train_y)} + {len(self.test_y)}"
        form = " × ".join(map(str, self.shape))
        return f"ImageSet({self.name!r}: {sizes} images of {form}, {self.n_classes} classes)"


def _check_part(part: str, x: Any, y: Any, n_classes: int) -> None:
    for name, array, dtype in ((f"{part}_x", x, np.uint8), (f"{part}_y", y, np.int64)):
        found = getattr(array, "dtype", type(array).__name__)
        if not isinstance(array, np.ndarray) or found != dtype:
            raise TypeError(f"{name} has type {found}, but must be an array of {dtype.__name__}")
    if x.ndim != 4 or not x.size:
        raise ValueError(
            f"{part}_x has shape {x.shape}, but must be images, channels, height, width, and not empty"
        )
    if y.shape != (len(x),):
        raise ValueError(
            f"{part}_y has shape {y.shape}, but there are {len(x)} images: give one label each"
        )
    wrong = np.flatnonzero((y < 0) | (y >= n_classes))
    if wrong.size:
        raise ValueError(
            f"{part}_y[{wrong[0]}] is {y[wrong[0]]}, but there are {n_classes} classes: labels must lie in "
            f"0..{n_classes - 1}"
        )


# ---- reading ---------------------------------------------------------------------------------------------


def read_images(
    folder: str | os.PathLike[str], name: str, check: bool = True, n_train: int | None = None
) -> ImageSet:
    """Return an image set from the files in a folder, or in its subfolder of the set's name.

    Parameters
    ----------
    folder : path
        Holds the official files of one set or of several; archives need not be unpacked.
    name : {"cifar10", "cifar100", "svhn", "fashion-mnist"}
    check : bool, default True
        Whether to refuse files that are not the official ones, by their MD5 sums.
    n_train : int, optional
        How many training images to use: the first ones, so that everyone has the same. An unpacked CIFAR-10
        may lack the batches of the others.

    Raises
    ------
    FileNotFoundError
        If the set is not there, or not all of it.
    ValueError
        If a file is damaged or not the official one.
    """
    if name not in archives.FORMS:
        near = get_close_matches(str(name).lower(), DATASETS, 1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"name is {name!r}: {meant}There are {', '.join(DATASETS)}.")
    place, form = _find(Path(folder), name)
    (train_x, train_y), (test_x, test_y) = form.read(place, check, n_train)
    if n_train is not None and len(train_y) < n_train:
        raise ValueError(
            f"{place} has {len(train_y)} training images of {name}, not {n_train}: use fewer"
        )
    try:
        return ImageSet(name, train_x, train_y, test_x, test_y, archives.CLASSES[name])
    except ValueError as error:
        raise ValueError(
            f"{place} does not hold {name}: {error}. Get the official files."
        ) from error


def available(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names of the sets of which there are files in a folder; they are not read."""
    return [name for name in DATASETS if _look(Path(folder), name)[0]]


def _look(folder: Path, name: str) -> tuple[float, Path, archives.Form]:
    """Return which share of a set is there, where, and in which form: the first of the most complete."""
    places = (folder / name, folder, folder / PLACES.get(name, ""))
    found = [
        (form.share_in(place), place, form) for form in archives.FORMS[name] for place in places
    ]
    return max(found, key=lambda each: each[0])


def _find(folder: Path, name: str) -> tuple[Path, archives.Form]:
    if folder.is_file():
        raise NotADirectoryError(f"{folder} is a file: name the folder that holds it")
    get = f"get them with download({name!r}, {str(folder)!r})"  # the command line rewords it
    if not folder.exists():
        raise FileNotFoundError(
            f"{folder} does not exist: name the folder that holds the images, or {get}"
        )
    share, place, form = _look(folder, name)
    if not share:
        packed = " or ".join(form.archive for form in archives.FORMS[name] if form.archive)
        names = packed or ", ".join(archives.DOWNLOADS[name])
        raise FileNotFoundError(
            f"{folder} has no files of {name}: put {names} there, or into {folder / name}, or {get}"
        )
    return place, form


# ---- splitting -------------------------------------------------------------------------------------------


def validation_split(
    y: ArrayLike, share: float = 0.1, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which training images to train on, and which to validate on: 90% and 10%, drawn at random.

    As in the paper, the draw is not stratified, and differs for each seed.

    >>> train, val = validation_split([0, 1] * 50)
    >>> len(train), len(val)
    (90, 10)
    """
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise TypeError(
            f"y has shape {labels.shape} and type {labels.dtype}: it must be labels, as integers"
        )
    if not 0 < share < 1:
        raise ValueError(f"share is {share}, but must lie between 0 and 1, such as 0.1")
    if seed < 0:
        raise ValueError(f"seed is {seed}, but must not be negative")
    n, n_val = len(labels), round(share * len(labels))
    if not 0 < n_val < n:
        raise ValueError(
            f"y has {n} images, of which {n_val} would be for validation: give more images, or another share"
        )
    order = np.random.default_rng(seed).permutation(n)
    return order[n_val:], order[:n_val]


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
    if name not in archives.DOWNLOADS:
        raise ValueError(f"name is {name!r}: there are {', '.join(archives.DOWNLOADS)}.")
    files = [archives.FILES[each] for each in archives.DOWNLOADS[name]]
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
        archives.check_file(place / each.name, each)
    if missing:
        place.mkdir(parents=True, exist_ok=True)
        lock = hold_lock(place / LOCK, f"downloading into {place}", remove=True)
        with lock, _progress_bars(progress) as tell:
            for each in missing:
                _fetch(each, place, tell)
    return [place / each.name for each in files]


def _fetch(official: archives.Official, folder: Path, tell: Progress) -> None:
    part = folder / f".{official.name}.part"
    is_resumed = part.exists()
    _receive(official, part, tell)
    if (
        is_resumed and archives.compute_md5(part) != official.md5
    ):  # its beginning was of another file
        part.unlink()
        _receive(official, part, tell)
    if (found := archives.compute_md5(part)) != official.md5:
        part.unlink()
        raise ValueError(
            f"{official.address} sent a file whose MD5 sum is {found}, not {official.md5}, so it was not "
            f"kept: try again later, or get {official.name} from elsewhere and put it into {folder}"
        )
    os.replace(part, folder / official.name)


def _receive(official: archives.Official, part: Path, tell: Progress) -> None:
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


def _append(official: archives.Official, file: BinaryIO, tell: Progress) -> None:
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
