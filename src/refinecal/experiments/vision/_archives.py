"""The files in which image sets are published: CIFAR's batches, idx and MATLAB, packed or not.

Nothing is unpacked to the disk, and no pickle is ever loaded.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal.experiments._pickled_arrays import (
    UnsupportedPickle,
    read_bytes_array,
    read_pickle,
)
from refinecal.experiments.vision._official import FILES, UNPACKED, Official

Part = tuple[NDArray[np.uint8], NDArray[np.int64]]  # (n, channels, height, width) and (n,)

SHAPE = (3, 32, 32)  # of CIFAR and SVHN
PIXELS = 3 * 32 * 32
ALLOW = "If you trust it, read it with check=False"


# ---- checks ----------------------------------------------------------------------------------------------


def compute_md5(path: Path) -> str:
    """Return the MD5 sum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()


def check_file(path: Path, official: Official) -> None:
    """Refuse a file that is not exactly the official one."""
    size = path.stat().st_size
    if size < official.size:
        wrong = f"it has {size} of {official.size} bytes, so its download broke off"
    elif (found := compute_md5(path)) != official.md5:
        wrong = f"its MD5 sum is {found}, not {official.md5}"
    else:
        return
    raise ValueError(
        f"{path} is not the official file: {wrong}. Remove it, and get it again from {official.address}. "
        f"{ALLOW}."
    )


@contextmanager
def reading(where: Path | str) -> Iterator[None]:
    """Turn everything that is wrong with the content of a file into one clear error."""
    try:
        yield
    except (FileNotFoundError, PermissionError, MemoryError):
        raise
    except Exception as error:
        raise ValueError(
            f"{where} is damaged or incomplete ({error}): remove it, and get it again"
        ) from error


# ---- what one file holds ---------------------------------------------------------------------------------


def from_records(raw: bytes, n_labels: int = 1) -> Part:
    """Return images and labels of CIFAR's binary form: labels, the last one the finest, then the pixels."""
    rows = np.frombuffer(raw, np.uint8).reshape(-1, n_labels + PIXELS)
    return rows[:, n_labels:].reshape(-1, *SHAPE), rows[:, n_labels - 1].astype(np.int64)


def from_pickle(raw: bytes, labels: str = "labels") -> Part:
    """Return images and labels of CIFAR's Python form, a pickle that is read but not loaded."""
    try:
        batch = read_pickle(raw)
    except UnsupportedPickle as error:
        raise ValueError(f"its pickle holds {error}; pickles are never loaded") from None
    images = read_bytes_array(batch.get("data")) if isinstance(batch, dict) else None
    if images is None:
        raise ValueError("it has no 'data' that is an array of bytes; pickles are never loaded")
    values = batch.get(labels)
    if not isinstance(values, list) or not all(type(each) is int for each in values):
        raise ValueError(f"it has no {labels!r} that are a list of whole numbers")
    if images.shape != (len(values), PIXELS):
        raise ValueError(f"it has images of shape {images.shape} and {len(values)} labels")
    return images.reshape(-1, *SHAPE), np.array(values, dtype=np.int64)


def from_mat(raw: bytes) -> Part:
    """Return images and labels of a file of SVHN, in which 10 stands for the digit 0."""
    from scipy.io import loadmat

    found = loadmat(io.BytesIO(raw), variable_names=["X", "y"])
    if absent := {"X", "y"} - found.keys():
        raise ValueError(f"it has no variable {' and no '.join(sorted(absent))}")
    x, y = found["X"], found["y"].reshape(-1)
    if x.dtype != np.uint8 or x.shape != (32, 32, 3, len(y)):
        raise ValueError(f"it has images of shape {x.shape}, type {x.dtype}, for {len(y)} labels")
    if not np.isin(y, range(1, 11)).all():
        raise ValueError("it has labels other than 1, 2, ... 10")
    return np.ascontiguousarray(x.transpose(3, 2, 0, 1)), y.astype(np.int64) % 10


def from_idx(raw: bytes) -> NDArray[np.uint8]:
    """Return the array of bytes in an idx file."""
    if raw[:3] != b"\x00\x00\x08":
        raise ValueError(f"it begins with {raw[:3].hex()}, not 000008, so it is not idx of bytes")
    start = 4 + 4 * raw[3]
    shape = struct.unpack(f">{raw[3]}I", raw[4:start])
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def join_batches(batches: list[Part]) -> Part:
    images, labels = zip(*batches, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def join_idx(arrays: list[NDArray[np.uint8]]) -> Part:
    images, labels = arrays
    return images[:, None].copy(), labels.astype(np.int64)


# ---- forms -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Form:
    """One way to store an image set: its files, in an archive or in a folder, and how they are read."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    decode: Callable[[bytes], Any]  # one file
    join: Callable[[list[Any]], Part] = join_batches
    archive: str | None = None
    optional: tuple[str, ...] = ()  # may be absent if nothing is checked

    def share_in(self, folder: Path) -> float:
        """Return which share of the files is in a folder."""
        names = [self.archive] if self.archive else [*self.train, *self.test]
        return sum(find_file(folder, name).exists() for name in names) / len(names)

    def read(self, folder: Path, check: bool) -> tuple[Part, Part]:
        """Return the training and the test images."""
        files = self._members(folder, check) if self.archive else self._files(folder, check)
        found = {}
        for name, where, raw in files:
            with reading(where):
                if not raw:
                    raise ValueError("it is empty")
                found[name] = self.decode(raw)
        train = [found[name] for name in self.train if name in found]
        return self.join(train), self.join([found[name] for name in self.test])

    def _files(self, folder: Path, check: bool) -> Iterator[tuple[str, str, bytes]]:
        for name in (*self.train, *self.test):
            path = find_file(folder, name)
            if not path.is_file():
                if not check and name in self.optional:
                    continue
                raise FileNotFoundError(
                    f"{path} is missing, but other files of its set are there: put it there, or get the set "
                    "again"
                )
            if check and name in FILES:
                check_file(path, FILES[name])
            with reading(path):
                raw = path.read_bytes()
                raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
            found = hashlib.md5(raw, usedforsecurity=False).hexdigest()
            if check and name not in FILES and found != UNPACKED.get(name):
                raise ValueError(
                    f"{path} does not hold what the official {name} does: its MD5 sum is {found}, not "
                    f"{UNPACKED.get(name, 'a known one')}. Remove it, and get it again. {ALLOW}."
                )
            yield name, str(path), raw

    def _members(self, folder: Path, check: bool) -> Iterator[tuple[str, str, bytes]]:
        assert self.archive is not None
        path, absent = folder / self.archive, {*self.train, *self.test}
        if check:
            check_file(path, FILES[self.archive])
        found: dict[str, bytes] = {}
        with reading(path), gzip.open(path) as file:
            with tarfile.open(fileobj=file, mode="r:") as archive:
                for member in archive:
                    if member.name in absent and (content := archive.extractfile(member)):
                        found[member.name] = content.read()
            while file.read(1 << 20):  # to the end, where gzip has its own sum
                pass
            if absent := absent - found.keys():
                raise ValueError(f"it lacks {', '.join(sorted(absent))}")
        for name in (*self.train, *self.test):
            yield name, f"{name} in {path}", found.pop(name)


def find_file(folder: Path, name: str) -> Path:
    """Return where a file is, packed with gzip or not."""
    plain, packed = folder / name, folder / f"{name}.gz"
    return packed if packed.exists() and not plain.exists() else plain


def _cifar(archive: str, folder: str, decode: Callable[[bytes], Part], *names: str) -> Form:
    *train, test = (f"{folder}/{name}" for name in names)
    return Form(tuple(train), (test,), decode, archive=f"{archive}.tar.gz")


BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
BINARY = tuple(f"{name}.bin" for name in BATCHES)
FINE_RECORDS = partial(from_records, n_labels=2)
FINE_PICKLE = partial(from_pickle, labels="fine_labels")
CIFAR10 = (
    _cifar("cifar-10-binary", "cifar-10-batches-bin", from_records, *BINARY),
    _cifar("cifar-10-python", "cifar-10-batches-py", from_pickle, *BATCHES),
)
CIFAR100 = (
    _cifar("cifar-100-binary", "cifar-100-binary", FINE_RECORDS, "train.bin", "test.bin"),
    _cifar("cifar-100-python", "cifar-100-python", FINE_PICKLE, "train", "test"),
)
FORMS: dict[str, tuple[Form, ...]] = {  # the first that is there is read
    "cifar10": (
        *CIFAR10,
        *(replace(form, archive=None, optional=form.train[1:]) for form in CIFAR10),
    ),
    "cifar100": (*CIFAR100, *(replace(form, archive=None) for form in reversed(CIFAR100))),
    "svhn": (Form(("train_32x32.mat",), ("test_32x32.mat",), from_mat),),
    "fashion-mnist": (
        Form(
            ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
            ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
            from_idx,
            join_idx,
        ),
    ),
}
