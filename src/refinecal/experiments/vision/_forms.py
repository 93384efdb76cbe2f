"""The forms in which an image set may lie in a folder, and how each is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from refinecal.experiments.vision import _archives
from refinecal.experiments.vision._archives import Images, Labels

Part = tuple[Images, Labels]
Parts = tuple[Part, Part]  # training and test images
Decode = Callable[[bytes, str], Part]

IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
IDX_TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
LABELS, TEST, TRAIN = "cifar10_labels.npz", "cifar10_test.webp", "cifar10_train_{}.webp"
MOSAIC = re.compile(r"cifar10_train_([1-9]\d*)\.webp")


@dataclass(frozen=True, slots=True)
class Form:
    """One way to store a set: what shows that it is there, and how to read it."""

    signs: tuple[str, ...]
    """Any of these, in a folder, and the set is taken to be there in this form."""
    read: Callable[[Path, bool], Parts]

    def found_in(self, folder: Path) -> int:
        """Return how many of the files are there, packed or not."""
        return len(_plain(sign for sign in self.signs if (folder / sign).exists()))

    def is_whole_in(self, folder: Path) -> bool:
        return self.found_in(folder) == len(_plain(self.signs))


def _plain(names: Iterable[str]) -> set[str]:
    """Return names as they are without packing."""
    return {name.removesuffix(".gz") for name in names}


def joined(parts: Iterable[Part]) -> Part:
    images, labels = zip(*parts, strict=True)
    if len(images) == 1:
        return images[0], labels[0]
    return np.concatenate(images), np.concatenate(labels)


# ---- CIFAR -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cifar:
    """The files of one of CIFAR's forms, in an archive or unpacked."""

    archive: str
    folder: str
    train: tuple[str, ...]
    test: str
    decode: Decode

    @property
    def names(self) -> list[str]:
        return [f"{self.folder}/{name}" for name in (*self.train, self.test)]

    def packed(self, folder: Path, check: bool) -> Parts:
        path = there(folder / self.archive)
        found = _archives.read_members(path, self.names, check)
        return self._parts(
            [self.decode(found.pop(name), f"{name} in {path}") for name in self.names]
        )

    def unpacked(self, folder: Path, check: bool) -> Parts:
        return self._parts([self._file(folder / name, name, check) for name in self.names])

    def _file(self, path: Path, name: str, check: bool) -> Part:
        there(path)
        with _archives.reading(path):
            raw = _archives.content_of(path)
        if check:
            _archives.check_content(raw, name, path)
        return self.decode(raw, str(path))

    def _parts(self, batches: list[Part]) -> Parts:
        return joined(batches[:-1]), batches[-1]

    @property
    def form(self) -> Form:
        return Form((self.archive,), self.packed)

    @property
    def unpacked_form(self) -> Form:
        return Form(tuple(self.names), self.unpacked)


BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
BINARY_10 = Cifar(
    "cifar-10-binary.tar.gz",
    "cifar-10-batches-bin",
    tuple(f"{name}.bin" for name in BATCHES),
    "test_batch.bin",
    partial(_archives.from_records, n_labels=1),
)
PYTHON_10 = Cifar(
    "cifar-10-python.tar.gz",
    "cifar-10-batches-py",
    BATCHES,
    "test_batch",
    partial(_archives.from_pickle, labels="labels"),
)
BINARY_100 = Cifar(
    "cifar-100-binary.tar.gz",
    "cifar-100-binary",
    ("train.bin",),
    "test.bin",
    partial(_archives.from_records, n_labels=2),
)
PYTHON_100 = Cifar(
    "cifar-100-python.tar.gz",
    "cifar-100-python",
    ("train",),
    "test",
    partial(_archives.from_pickle, labels="fine_labels"),
)


# ---- others ----------------------------------------------------------------------------------------------


def mosaics(folder: Path, check: bool) -> Parts:
    """Read CIFAR-10, or the first of its batches, as lossless pictures with 10 000 tiles each."""
    labels = _archives.read_labels(there(folder / LABELS))
    numbers = [int(name[1]) for path in folder.iterdir() if (name := MOSAIC.fullmatch(path.name))]
    paths = [there(folder / TRAIN.format(i)) for i in range(1, max(numbers, default=1) + 1)]
    train = [_archives.read_mosaic(path) for path in paths]
    test = _archives.read_mosaic(there(folder / TEST))
    ends = np.cumsum([len(images) for images in train])
    for part, n in (("train", int(ends[-1])), ("test", len(test))):
        if n != len(labels[part]):
            raise ValueError(
                f"{folder} has {n} images in cifar10_{part}*.webp, but {LABELS} has {len(labels[part])} "
                f"labels of {part!r}: a file is missing or of another set, so get all of them again"
            )
    batches = list(zip(train, np.split(labels["train"], ends[:-1]), strict=True))
    if check:
        _check_mosaics([*batches, (test, labels["test"])], [*paths, folder / TEST])
    return joined(batches), (test, labels["test"])


def _check_mosaics(batches: list[Part], paths: list[Path]) -> None:
    *train, test = BINARY_10.names
    n = len(batches) - 1
    if n > len(train):
        raise ValueError(
            f"{paths[len(train)]} is one too many: CIFAR-10 has {len(train)} batches. {_archives.ALLOW}."
        )
    for (images, labels), name, path in zip(batches, [*train[:n], test], paths, strict=True):
        _archives.check_content(_archives.as_records(images, labels), name, path)


def svhn(folder: Path, check: bool) -> Parts:
    train, test = (there(folder / f"{part}_32x32.mat") for part in ("train", "test"))
    return _archives.read_mat(train, check), _archives.read_mat(test, check)


def fashion(folder: Path, check: bool) -> Parts:
    train, test = ([_either(folder, name) for name in names] for names in (IDX, IDX_TEST))
    return _idx_part(train, check), _idx_part(test, check)


def _either(folder: Path, name: str) -> Path:
    """Return a file of this name, packed or not."""
    plain = folder / name
    return there(plain if plain.exists() else folder / f"{name}.gz")


def _idx_part(paths: list[Path], check: bool) -> Part:
    images, labels = paths
    x, y = _archives.read_idx(images, 3, check), _archives.read_idx(labels, 1, check)
    if len(x) != len(y):
        raise ValueError(
            f"{images} has {len(x)} images, but {labels} has {len(y)} labels: get both again"
        )
    return x[:, None], y.astype(np.int64)


def there(path: Path) -> Path:
    """Return a path if there is such a file."""
    if path.is_dir():
        raise IsADirectoryError(
            f"{path} is a folder, but must be a file: put the file in its place, or get it again"
        )
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing, but other files of its set are there: put it there, or get the set again"
        )
    return path


FORMS: dict[str, tuple[Form, ...]] = {  # whole sets first, then parts of them
    "cifar10": (
        BINARY_10.form,
        PYTHON_10.form,
        BINARY_10.unpacked_form,
        PYTHON_10.unpacked_form,
        Form((LABELS, TEST, TRAIN.format(1)), mosaics),
    ),
    "cifar100": (BINARY_100.form, PYTHON_100.form, PYTHON_100.unpacked_form),
    "svhn": (Form(("train_32x32.mat", "test_32x32.mat"), svhn),),
    "fashion-mnist": (
        Form(tuple(name + end for name in (*IDX, *IDX_TEST) for end in ("", ".gz")), fashion),
    ),
}
PLACES = {"fashion-mnist": ("FashionMNIST/raw",)}  # where torchvision puts them
