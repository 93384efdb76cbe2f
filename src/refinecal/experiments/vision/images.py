"""Image sets of the vision experiment: CIFAR-10, CIFAR-100, SVHN and Fashion-MNIST, from files in a folder.

Read are the official files, packed or unpacked, and CIFAR-10 also as mosaics: ``cifar10_train_1.webp``, ...
and ``cifar10_test.webp``, lossless pictures with a tile of 32 × 32 pixels for each image, row by row, with
the labels in ``cifar10_labels.npz`` (``train`` and ``test``). Sums are checked, and nothing in a file is ever
run.
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
from refinecal.experiments.vision._forms import FORMS, PLACES, Form
from refinecal.experiments.vision._official import CLASSES, DOWNLOADS

__all__ = ["DATASETS", "ImageSet", "available", "download", "read_images", "validation_split"]

DATASETS = tuple(FORMS)
"""Names of the sets."""
OTHERWISE = {  # what may be there instead of the files that are downloaded
    "cifar10": " (or cifar-10-python.tar.gz, or mosaics)",
    "cifar100": " (or cifar-100-python.tar.gz)",
}


@dataclass(frozen=True, slots=True, eq=False)
class ImageSet:
    """Images and their labels, for training and for testing.

    Attributes
    ----------
    name : str
    train_x, test_x : ndarray of uint8, shape (n, channels, height, width)
    train_y, test_y : ndarray of int64, shape (n,)
        Labels, from 0.
    classes : tuple of str
        What the labels stand for.
    """

    name: str
    train_x: NDArray[np.uint8]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        for part, x, y in (
            ("train", self.train_x, self.train_y),
            ("test", self.test_x, self.test_y),
        ):
            _check_images(x, f"{part}_x")
            _check_labels(y, f"{part}_y", len(x), len(self.classes))
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
        """Return a text that is another one for other images or labels, in whatever files they were."""
        digest = blake2b(digest_size=16)
        for array in (self.train_x, self.train_y, self.test_x, self.test_y):
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def __repr__(self) -> str:
        sizes = f"{len(self.train_y)} + {len(self.test_y)}"
        form = " × ".join(map(str, self.shape))
        return f"ImageSet({self.name!r}: {sizes} images of {form}, {self.n_classes} classes)"


def _check_images(x: Any, name: str) -> None:
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8:
        raise TypeError(
            f"{name} is {_said(x)}, but must be an array of uint8, as images are stored"
        )
    if x.ndim != 4 or not x.size:
        raise ValueError(
            f"{name} has shape {x.shape}, but must be images, channels, height, width, and not empty"
        )


def _check_labels(y: Any, name: str, n: int, n_classes: int) -> None:
    if not isinstance(y, np.ndarray) or y.dtype != np.int64:
        raise TypeError(f"{name} is {_said(y)}, but must be an array of int64")
    if y.shape != (n,):
        raise ValueError(
            f"{name} has shape {y.shape}, but there are {n} images: give one label each"
        )
    wrong = np.flatnonzero((y < 0) | (y >= n_classes))
    if wrong.size:
        raise ValueError(
            f"{name}[{wrong[0]}] is {y[wrong[0]]}, but there are {n_classes} classes: labels must lie in "
            f"0..{n_classes - 1}"
        )


def _said(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    return type(value).__name__ if dtype is None else f"{type(value).__name__} of {dtype}"


# ---- reading ---------------------------------------------------------------------------------------------


def read_images(folder: str | os.PathLike[str], name: str, check: bool = True) -> ImageSet:
    """Return an image set from the files in a folder, or in its sub-folder of the set's name.

    Parameters
    ----------
    folder : path
        Holds the official files, or the mosaics, of one set or of several; archives need not be unpacked.
    name : {"cifar10", "cifar100", "svhn", "fashion-mnist"}
    check : bool, default True
        Whether to refuse files that are not the official ones, going by their MD5 sums. Of unpacked files, of
        Fashion-MNIST's and of mosaics, the sums are those of the content.

    Returns
    -------
    ImageSet

    Raises
    ------
    FileNotFoundError
        If the set is not there, or not all of it.
    ValueError
        If a file is damaged, or not the official one, or holds what no image set needs.

    See Also
    --------
    download : Gets the official files.

    Notes
    -----
    Of several forms, the official archives come first and CIFAR's binary form before its Python form.
    Pickles in the latter are read but never run.
    """
    _check_name(name)
    place, form = _found(_folder(folder, name), name)
    (train_x, train_y), (test_x, test_y) = form.read(place, check)
    try:
        return ImageSet(
            name, _own(train_x), _own(train_y), _own(test_x), _own(test_y), CLASSES[name]
        )
    except ValueError as error:
        raise ValueError(
            f"{place} does not hold {name}: {error}. Get the official files."
        ) from error


def available(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names of the sets of which there are files in a folder; they are not read.

    Parameters
    ----------
    folder : path
        As for :func:`read_images`.

    Returns
    -------
    list of str
    """
    return [name for name in DATASETS if _look(Path(folder), name) is not None]


def _check_name(name: str) -> None:
    if name not in FORMS:
        near = get_close_matches(str(name).lower(), DATASETS, 1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"name is {name!r}: {meant}There are {', '.join(DATASETS)}.")


def _folder(folder: str | os.PathLike[str], name: str) -> Path:
    path = Path(folder)
    if path.is_file():
        raise NotADirectoryError(f"{path} is a file: name the folder that holds it")
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist: name the folder that holds the images, or {_getting(path, name)}"
        )
    return path


def _look(folder: Path, name: str) -> tuple[Path, Form] | None:
    """Return where a set is, and in which form; rather a whole one than part of one."""
    places = [folder / name, folder, *(folder / place for place in PLACES.get(name, ()))]
    found = [(place, form) for form in FORMS[name] for place in places]
    whole = next(((place, form) for place, form in found if form.is_whole_in(place)), None)
    if whole is not None:
        return whole
    place, form = max(found, key=lambda each: each[1].found_in(each[0]))  # the first, of equal ones
    return (place, form) if form.found_in(place) else None


def _found(folder: Path, name: str) -> tuple[Path, Form]:
    found = _look(folder, name)
    if found is None:
        files = ", ".join(DOWNLOADS[name]) + OTHERWISE.get(name, "")
        raise FileNotFoundError(
            f"{folder} has no files of {name}: put {files} there, or into {folder / name}, or "
            f"{_getting(folder, name)}"
        )
    return found


def _getting(folder: Path, name: str) -> str:
    """Return how to get the official files; the command line says it in its own words."""
    return f"get them with download({name!r}, {str(folder)!r})"


def _own(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that can be written to, as torch wants it; most are so already."""
    return np.require(array, requirements=["C", "W"])


# ---- splitting -------------------------------------------------------------------------------------------


def validation_split(
    y: ArrayLike, share: float = 0.1, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which training images to train on, and which to validate on: 90 and 10 %, drawn at random.

    As in the paper, the draw does not go by class, and is another one for each seed.

    Parameters
    ----------
    y : array of int
        Labels of the training images.
    share : float, default 0.1
        Part of the images that is for validation.
    seed : int, default 0

    Returns
    -------
    train, val : ndarray of int64
        Places of images, in random order; each is in one of the two.

    Examples
    --------
    >>> train, val = validation_split([0, 1] * 50)
    >>> len(train), len(val)
    (90, 10)
    """
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise TypeError(
            f"y has shape {labels.shape} and type {labels.dtype}: it must be labels, as whole numbers"
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
