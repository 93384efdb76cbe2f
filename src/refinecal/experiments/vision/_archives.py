"""The files in which image sets are published: tar archives, batches of bytes, idx, MATLAB, mosaics.

Nothing is ever unpacked to the disk, and nothing in a file is run. Whatever is wrong with a file becomes a
``ValueError`` that names it and says what to do.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal.experiments.vision._official import FILES, UNPACKED, Official

Images = NDArray[np.uint8]  # (n, channels, height, width)
Labels = NDArray[np.int64]  # (n,)

LARGEST = 1 << 28  # bytes of a file when it is unpacked; the largest, SVHN's, has 225 million
HEADERS = 1 << 20  # bytes of what an archive says about one file
MEMBERS = 100  # files in an archive; CIFAR's have 8
MAT_HEAD, PACKED = 128, 15  # bytes before the first variable, and the type of one that is packed
SIDE = 32  # pixels, of CIFAR and SVHN
PIXELS = 3 * SIDE * SIDE
PIECE = 1 << 20  # bytes that are read at once
MANY = 1_000_000  # images; no file has so many
NUMBERS = {"double", "single", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64))}
TOO_MUCH = "unpacks to far more than it can need: get the official file"
ALLOW = "If you know what it is and want it, read it with check=False"


# ---- sums ------------------------------------------------------------------------------------------------


def md5_of(path: Path) -> str:
    """Return the MD5 sum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, _md5).hexdigest()


def _md5() -> Any:
    return hashlib.md5(usedforsecurity=False)


def check_file(path: Path, official: Official) -> None:
    """Refuse a file that is not the official one, byte for byte."""
    size = path.stat().st_size
    if size < official.size:
        wrong = f"it has {size} of {official.size} bytes, so its download broke off"
    elif (found := md5_of(path)) != official.md5:
        wrong = f"its MD5 sum is {found}, not {official.md5}"
    else:
        return
    raise ValueError(
        f"{path} is not the official file: {wrong}. Remove it, and get it again from {official.address}. "
        f"{ALLOW}."
    )


def check_content(raw: bytes | memoryview, name: str, path: Path) -> None:
    """Refuse a file whose content, unpacked, is not that of the official file of this name."""
    digest = _md5()
    digest.update(raw)
    if digest.hexdigest() != UNPACKED[name]:
        raise ValueError(
            f"{path} does not hold what the official {name} does: the MD5 sum is {digest.hexdigest()}, not "
            f"{UNPACKED[name]}. Remove it, and get it again. {ALLOW}."
        )


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Turn whatever is wrong with a file into one clear error."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError, ModuleNotFoundError):
        raise
    except MemoryError:
        raise MemoryError(f"{path} does not fit into memory, or it is damaged") from None
    except EOFError as error:
        raise ValueError(
            f"{path} breaks off before its end: remove it, and get it again"
        ) from error
    except _Refused as error:
        raise ValueError(f"{path} {error}") from error.__cause__
    except Exception as error:
        raise ValueError(
            f"{path} is damaged or incomplete ({error}): remove it, and get it again"
        ) from error


class _Refused(Exception):
    """What is wrong with a file, in words that follow its name."""


def content_of(path: Path) -> bytes:
    """Return the bytes of a file, unless they are far too many."""
    check_size(path)
    return path.read_bytes()


def check_size(path: Path) -> None:
    """Refuse a file that is far larger than the official ones; called while ``reading``."""
    size = path.stat().st_size
    if size > LARGEST:
        raise _Refused(f"has {size} bytes, far more than it can need: get the official file")


# ---- tar archives ----------------------------------------------------------------------------------------


def read_members(path: Path, wanted: Collection[str], check: bool = True) -> dict[str, bytes]:
    """Return files of a ``.tar.gz`` archive by their names in it; nothing is written to the disk.

    Parameters
    ----------
    path : Path
        The archive.
    wanted : collection of str
        Names of files in it.
    check : bool, default True
        Whether to refuse another archive than the official one.

    Returns
    -------
    dict of bytes

    Raises
    ------
    ValueError
        If it is not the official archive, is damaged, lacks a file, or has one that points out of it.
    """
    if check:
        check_file(path, FILES[path.name])
    found: dict[str, bytes] = {}
    with reading(path), gzip.open(path) as raw:
        file = _Rationed(raw)
        with tarfile.open(fileobj=cast(Any, file), mode="r:") as archive:
            for member in _members(archive, file):
                name = str(PurePosixPath(member.name))
                if name in found:
                    raise _Refused(f"has {name} twice: get the official archive")
                if name in wanted:
                    found[name] = _content(archive, member, file)
        while raw.read(PIECE):  # to where gzip has its own sum
            if raw.tell() > LARGEST + PIECE:
                raise _Refused(TOO_MUCH)
        if absent := [name for name in wanted if name not in found]:
            raise _Refused(f"lacks {', '.join(absent)}: get the official archive")
    return found


class _Rationed:
    """A file of which so many bytes may be read as are ``left``: tarfile believes whatever a header says."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file
        self.left = HEADERS
        self.seek, self.tell = file.seek, file.tell

    def read(self, n: int = -1) -> bytes:
        if not 0 <= n <= self.left:
            raise _Refused("has headers far larger than they can need to be: get the official one")
        self.left -= n
        return self._file.read(n)


def _members(archive: tarfile.TarFile, file: _Rationed) -> Iterator[tarfile.TarInfo]:
    """Return the files of an archive one by one, each when it has been looked at."""
    for _ in range(MEMBERS):
        file.left = HEADERS
        member = archive.next()
        if member is None:
            return
        _check_member(member)
        yield member
    raise _Refused(f"has more than {MEMBERS} files: get the official archive")


def _check_member(member: tarfile.TarInfo) -> None:
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or "\\" in member.name:
        raise _Refused(
            f"has a file {member.name!r}, which points out of it: remove it, and get the official one"
        )
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise _Refused(
            f"has {member.name!r}, which is a link or a device: remove it, and get the official one"
        )
    if member.size > LARGEST:
        raise _Refused(
            f"has {member.name!r} of {member.size} bytes, far more than it can need: get the official archive"
        )
    if member.offset > LARGEST:
        raise _Refused(TOO_MUCH)


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, rationed: _Rationed) -> bytes:
    file = archive.extractfile(member)
    if file is None:
        raise _Refused(f"has a folder {member.name!r} in place of a file: get the official archive")
    rationed.left = member.size + HEADERS
    raw = file.read()
    if len(raw) != member.size:
        raise EOFError
    return raw


# ---- batches ---------------------------------------------------------------------------------------------


def from_records(raw: bytes, where: str, n_labels: int) -> tuple[Images, Labels]:
    """Return images and labels of CIFAR's binary form: labels, the last one the finest, then the pixels."""
    length = n_labels + PIXELS
    if not raw or len(raw) % length:
        raise ValueError(
            f"{where} has {len(raw)} bytes, which are not whole images of {length} bytes: it is incomplete, "
            "so get it again"
        )
    rows = np.frombuffer(raw, np.uint8).reshape(-1, length)
    return _squares(rows[:, n_labels:]), rows[:, n_labels - 1].astype(np.int64)


def from_pickle(raw: bytes, where: str, labels: str) -> tuple[Images, Labels]:
    """Return images and labels of CIFAR's Python form, a pickle that is read but not run."""
    from refinecal.experiments.vision._pickles import read_batch

    try:
        images, found = read_batch(raw, labels)
    except MemoryError:
        raise MemoryError(f"{where} does not fit into memory, or it is damaged") from None
    except ValueError as error:
        raise ValueError(f"{where} {error}. Remove it, and get the official archive.") from error
    if images.shape[1] != PIXELS or len(found) != len(images):
        raise ValueError(
            f"{where} has images of shape {images.shape} and {len(found)} labels: there must be {PIXELS} "
            "bytes and a label for each image. Get the official archive."
        )
    return _squares(images), found


def _squares(rows: NDArray[np.uint8]) -> Images:
    return np.ascontiguousarray(rows).reshape(-1, 3, SIDE, SIDE)


# ---- idx -------------------------------------------------------------------------------------------------


def read_idx(path: Path, n_dims: int, check: bool = True) -> NDArray[np.uint8]:
    """Return the array of bytes in an idx file, which may be packed with gzip.

    The check is of the unpacked content, since the same file can be packed in many ways.
    """
    with reading(path):
        raw = content_of(path)
        if path.suffix == ".gz":
            raw = _unpacked(raw)
    if check:
        check_content(raw, path.name.removesuffix(".gz"), path)
    with reading(path):
        start = 4 + 4 * n_dims
        if len(raw) < start:
            raise EOFError
        magic, *shape = struct.unpack(f">{1 + n_dims}I", raw[:start])
        if magic != 0x0800 + n_dims:  # 8: bytes
            raise _Refused(
                f"begins with {raw[:4].hex()}, not {0x0800 + n_dims:08x}: it is not what it is called, so "
                "get it again"
            )
        expected, found = int(np.prod(shape, dtype=object)), len(raw) - start
        if found < expected:
            raise EOFError
        if found > expected:
            raise _Refused(f"has {found - expected} bytes too many: get it again")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def _unpacked(raw: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise _Refused(TOO_MUCH)
    return content


# ---- MATLAB ----------------------------------------------------------------------------------------------


def read_mat(path: Path, check: bool = True) -> tuple[Images, Labels]:
    """Return images and labels of a file of SVHN, in which 10 stands for the digit 0."""
    from scipy.io import loadmat

    if check:
        check_file(path, FILES[path.name])
    with reading(path):
        check_size(path)
        _check_unpacked(path)
        _check_variables(path)
        found = loadmat(path, variable_names=["X", "y"])
        if absent := [name for name in ("X", "y") if name not in found]:
            raise _Refused(f"has no variable {' and no '.join(absent)}: get the official file")
        images, labels = found["X"], found["y"].reshape(-1)
        if images.dtype != np.uint8 or images.shape != (SIDE, SIDE, 3, len(labels)):
            raise _Refused(
                f"has images of shape {images.shape} and type {images.dtype} for {len(labels)} labels, not "
                f"({SIDE}, {SIDE}, 3, {len(labels)}) of uint8: get the official file"
            )
        if labels.dtype.kind not in "iu" or not np.all((labels >= 1) & (labels <= 10)):
            raise _Refused("has labels other than 1, 2, ... 10: get the official file")
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels.astype(np.int64) % 10


def _check_variables(path: Path) -> None:
    """Refuse images and labels that, by their headers, are no numbers, or too many."""
    from scipy.io import whosmat

    for name, shape, kind in whosmat(path):
        size = int(np.prod(shape, dtype=object))
        if name in ("X", "y") and (kind not in NUMBERS or size > LARGEST):
            raise _Refused(
                f"has {name} of shape {shape} and type {kind}, which are no images or labels: get the "
                "official file"
            )


def _check_unpacked(path: Path) -> None:
    """Refuse a MATLAB file whose packed variables are far larger than they can need to be."""
    with path.open("rb") as file:
        head = file.read(MAT_HEAD)
        order = "<" if head.endswith(b"IM") else ">"
        total = 0
        while len(tag := file.read(8)) == 8:
            kind, size = struct.unpack(f"{order}II", tag)
            end = file.tell() + size
            if kind == PACKED:
                for piece in _inflated(file, size):
                    total += len(piece)
                    if total > LARGEST:
                        raise _Refused(TOO_MUCH)
            file.seek(end)


def _inflated(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Return what some bytes of a file unpack to, piece by piece."""
    unpack = zlib.decompressobj()
    while size > 0 and not unpack.eof:
        packed = unpack.unconsumed_tail
        if not packed:
            packed = file.read(min(size, PIECE))
            if not packed:
                return  # it breaks off, of which loadmat tells
            size -= len(packed)
        yield unpack.decompress(packed, PIECE)
    while unpack.unconsumed_tail and not unpack.eof:
        yield unpack.decompress(unpack.unconsumed_tail, PIECE)


# ---- mosaics ---------------------------------------------------------------------------------------------


def read_mosaic(path: Path) -> Images:
    """Return the tiles of a lossless WebP picture, of 32 × 32 pixels, row by row."""
    with needs_extra("vision", package="PIL"):
        from PIL import Image

    with reading(path):
        check_size(path)
    with reading(path), Image.open(path, formats=["WEBP"]) as picture:
        width, height = picture.size
        if width % SIDE or height % SIDE or 3 * width * height > LARGEST:
            raise _Refused(
                f"has {width} × {height} pixels, which are no tiles of {SIDE} × {SIDE}: get it again"
            )
        pixels = np.asarray(picture.convert("RGB"))
    tiles = pixels.reshape(height // SIDE, SIDE, width // SIDE, SIDE, 3)
    return np.ascontiguousarray(tiles.transpose(0, 2, 4, 1, 3)).reshape(-1, 3, SIDE, SIDE)


def read_labels(path: Path) -> dict[str, Labels]:
    """Return the labels of mosaics, an ``.npz`` file with ``train`` and ``test``."""
    found: dict[str, Labels] = {}
    with reading(path), path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        for part in ("train", "test"):
            if part not in arrays:
                raise _Refused(
                    f"has no {part!r}, but must have the labels of both parts: get it again"
                )
            _check_packed(arrays.zip.getinfo(f"{part}.npy"))
            labels = arrays[part]
            if labels.ndim != 1 or labels.dtype.kind not in "iu":
                raise _Refused(
                    f"has {part!r} of type {labels.dtype}, which are no labels: get it again"
                )
            found[part] = labels.astype(np.int64)
    return found


def _check_packed(about: zipfile.ZipInfo) -> None:
    """Refuse labels of more images than there can be, before they are unpacked."""
    if about.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _Refused(
            f"has {about.filename!r} packed in a way that NumPy does not use: get it again"
        )
    if about.file_size > 8 * MANY:
        raise _Refused(
            f"has {about.filename!r} of {about.file_size} bytes, far more than labels need: get it again"
        )


def as_records(images: Images, labels: Labels) -> bytes:
    """Return images and labels as CIFAR-10's binary form has them."""
    rows = images.reshape(len(images), -1)
    return np.concatenate([labels.astype(np.uint8)[:, None], rows], axis=1).tobytes()
