"""Image sets of the vision experiment: CIFAR-10, CIFAR-100, SVHN and Fashion-MNIST, from files in a folder.

The official files are read, packed or unpacked. Their MD5 sums are checked, and no pickle is ever loaded.
"""

from __future__ import annotations  # so that help() shows types by name

import os
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal.experiments.vision._download import download
from refinecal.experiments.vision.archives import CLASSES, DOWNLOADS, FORMS, Form

__all__ = ["DATASETS", "ImageSet", "available", "download", "read_images", "validation_split"]

DATASETS = tuple(FORMS)
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


def read_images(folder: str | os.PathLike[str], name: str, check: bool = True) -> ImageSet:
    """Return an image set from the files in a folder, or in its subfolder of the set's name.

    Parameters
    ----------
    folder : path
        Holds the official files of one set or of several; archives need not be unpacked.
    name : {"cifar10", "cifar100", "svhn", "fashion-mnist"}
    check : bool, default True
        Whether to refuse files that are not the official ones, by their MD5 sums. Without it, an unpacked
        CIFAR-10 may lack training batches other than the first.

    Raises
    ------
    FileNotFoundError
        If the set is not there, or not all of it.
    ValueError
        If a file is damaged or not the official one.
    """
    if name not in FORMS:
        near = get_close_matches(str(name).lower(), DATASETS, 1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"name is {name!r}: {meant}There are {', '.join(DATASETS)}.")
    place, form = _find(Path(folder), name)
    (train_x, train_y), (test_x, test_y) = form.read(place, check)
    try:
        return ImageSet(name, train_x, train_y, test_x, test_y, CLASSES[name])
    except ValueError as error:
        raise ValueError(
            f"{place} does not hold {name}: {error}. Get the official files."
        ) from error


def available(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names of the sets of which there are files in a folder; they are not read."""
    return [name for name in DATASETS if _look(Path(folder), name)[0]]


def _look(folder: Path, name: str) -> tuple[float, Path, Form]:
    """Return which share of a set is there, where, and in which form: the first of the most complete."""
    places = (folder / name, folder, folder / PLACES.get(name, ""))
    found = [(form.share_in(place), place, form) for form in FORMS[name] for place in places]
    return max(found, key=lambda each: each[0])


def _find(folder: Path, name: str) -> tuple[Path, Form]:
    if folder.is_file():
        raise NotADirectoryError(f"{folder} is a file: name the folder that holds it")
    get = f"get them with download({name!r}, {str(folder)!r})"  # the command line rewords it
    if not folder.exists():
        raise FileNotFoundError(
            f"{folder} does not exist: name the folder that holds the images, or {get}"
        )
    share, place, form = _look(folder, name)
    if not share:
        archives = " or ".join(form.archive for form in FORMS[name] if form.archive)
        raise FileNotFoundError(
            f"{folder} has no files of {name}: put {archives or ', '.join(DOWNLOADS[name])} there, or into "
            f"{folder / name}, or {get}"
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
