"""The files in which image sets are published: CIFAR's batches, idx and MATLAB, packed or not.

Nothing is unpacked to the disk, and no pickle is ever loaded. The MD5 sums are those that the authors' pages
state and torchvision checks; an unpacked file has its own.
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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal.experiments._pickled_arrays import (
    UnsupportedPickle,
    read_bytes_array,
    read_pickle,
)

CIFAR = "https://www.cs.toronto.edu/~kriz/"
SVHN = "http://ufldl.stanford.edu/housenumbers/"
FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"


class Official(NamedTuple):
    """A file as its authors publish it."""

    name: str
    md5: str
    size: int
    address: str


FILES = {
    name: Official(name, md5, size, base + name)
    for base, name, md5, size in (
        (CIFAR, "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170052171),
        (CIFAR, "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170498071),
        (CIFAR, "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", 168513733),
        (CIFAR, "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169001437),
        (SVHN, "train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", 182040794),
        (SVHN, "test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", 64275384),
        (FASHION, "train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26421880),
        (FASHION, "train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29515),
        (FASHION, "t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4422102),
        (FASHION, "t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5148),
    )
}

DOWNLOADS = {  # CIFAR as bytes, not as pickles
    "cifar10": ("cifar-10-binary.tar.gz",),
    "cifar100": ("cifar-100-binary.tar.gz",),
    "svhn": ("train_32x32.mat", "test_32x32.mat"),
    "fashion-mnist": tuple(name for name in FILES if name.endswith("ubyte.gz")),
}

UNPACKED = {  # MD5 sums
    "cifar-10-batches-bin/data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "cifar-10-batches-bin/data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "cifar-10-batches-bin/data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "cifar-10-batches-bin/data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "cifar-10-batches-bin/data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "cifar-10-batches-bin/test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
    "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
    "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
    "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
    "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}

CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile
cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp
lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
CLASSES = {
    "cifar10": tuple(CIFAR10_CLASSES.split()),
    "cifar100": tuple(CIFAR100_CLASSES.split()),
    "svhn": tuple("0123456789"),
    "fashion-mnist": (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker"),
        *("Bag", "Ankle boot"),
    ),
}


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

    def share_in(self, folder: Path) -> float:
        """Return which share of the files is in a folder."""
        names = [self.archive] if self.archive else [*self.train, *self.test]
        return sum(find_file(folder, name).exists() for name in names) / len(names)

    def read(self, folder: Path, check: bool, n_train: int | None = None) -> tuple[Part, Part]:
        """Return training and test images; of batches, only those with the first ``n_train`` are read."""
        unpacked = self._unpack(folder, check) if self.archive else {}
        train: list[Any] = []
        for name in self.train:
            train.append(self._decode(name, folder, check, unpacked))
            read = sum(len(labels) for _, labels in train) if self.join is join_batches else 0
            if n_train is not None and read >= n_train:
                break
        x, y = self.join(train)
        test = [self._decode(name, folder, check, unpacked) for name in self.test]
        return (x[:n_train], y[:n_train]), self.join(test)

    def _decode(self, name: str, folder: Path, check: bool, unpacked: dict[str, bytes]) -> Any:
        """Return what one file holds."""
        if self.archive:
            where, raw = f"{name} in {folder / self.archive}", unpacked.pop(name)
        else:
            where, raw = _read_file(folder, name, check)
        with reading(where):
            if not raw:
                raise ValueError("it is empty")
            return self.decode(raw)

    def _unpack(self, folder: Path, check: bool) -> dict[str, bytes]:
        """Return the content of every file in the archive."""
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
        return found


def _read_file(folder: Path, name: str, check: bool) -> tuple[str, bytes]:
    """Return where an unpacked file is, and its content."""
    path = find_file(folder, name)
    if not path.is_file():
        fewer = ", use only the training images before it" if "_batch_" in name else ""
        raise FileNotFoundError(
            f"{path} is missing, but other files of its set are there: put it there{fewer}, or get the set "
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
    return str(path), raw


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
        *(replace(form, archive=None) for form in CIFAR10),
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
