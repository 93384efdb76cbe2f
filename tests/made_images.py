"""Tiny image sets, to be read in the true formats of the official files, or to be learned by a network."""

import gzip
import io
import struct
import tarfile
from pathlib import Path

import numpy as np

from refinecal.experiments.vision.archives import CLASSES
from refinecal.experiments.vision.images import ImageSet

PER_BATCH, N_TEST = 6, 8
FORMS = {  # form: the set
    "cifar-10-binary.tar.gz": "cifar10",
    "cifar-10-python.tar.gz": "cifar10",
    "cifar-10-batches-bin": "cifar10",
    "cifar-10-batches-py": "cifar10",
    "cifar-100-binary.tar.gz": "cifar100",
    "cifar-100-python.tar.gz": "cifar100",
    "cifar-100-binary": "cifar100",
    "cifar-100-python": "cifar100",
    "mat": "svhn",
    "idx.gz": "fashion-mnist",
    "idx": "fashion-mnist",
}


def made(name: str, n_train: int = 5 * PER_BATCH, n_test: int = N_TEST, seed: int = 0) -> ImageSet:
    """Return a set of random pixels; among its labels are the first and the last class."""
    rng = np.random.default_rng(seed)
    shape = (1, 28, 28) if name == "fashion-mnist" else (3, 32, 32)
    k = len(CLASSES[name])

    def part(n):
        labels = rng.integers(0, k, n)
        labels[:2] = 0, k - 1
        return rng.integers(0, 256, (n, *shape), dtype=np.uint8), labels

    return ImageSet(name, *part(n_train), *part(n_test), CLASSES[name])


def pictures(
    n_train: int = 120, n_test: int = 50, size: int = 8, n_classes: int = 3, seed: int = 0
) -> ImageSet:
    """Return images whose class can be learned: a colour and a bright corner, under noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes, n_train + n_test)
    x = rng.integers(0, 120, (n_train + n_test, 3, size, size))
    x[np.arange(len(x)), labels % 3, :, : size // 2] += 70
    x[:, :, : size // 2, :] += 20 * (labels // 3)[:, None, None, None]
    x = np.minimum(x, 255).astype(np.uint8)
    names = tuple(map(str, range(n_classes)))
    return ImageSet("cifar10", x[:n_train], labels[:n_train], x[n_train:], labels[n_train:], names)


def write_images(folder: str | Path, n_train: int = 120, n_test: int = 40, seed: int = 0) -> Path:
    """Write the files of Fashion-MNIST with few images, which can be learned: by the height of a bar."""
    images = made("fashion-mnist", n_train, n_test, seed)
    for x, y in ((images.train_x, images.train_y), (images.test_x, images.test_y)):
        np.floor_divide(x, 3, out=x)
        for i, label in enumerate(y):
            x[i, 0, 2 * label : 2 * label + 6] += 120
    stored(Path(folder), "idx.gz", images)
    return Path(folder)


def stored(folder: Path, form: str, images: ImageSet | None = None) -> ImageSet:
    """Write a set in one of the forms; return it."""
    images = images or made(FORMS[form])
    folder.mkdir(parents=True, exist_ok=True)
    if form == "mat":
        _mat(folder, images)
    elif form.startswith("idx"):
        _idx(folder, images, packed=form.endswith("gz"))
    else:
        files = cifar_files(form, images)
        if form.endswith(".tar.gz"):
            tar(folder / form, files)
        else:
            for name, raw in files.items():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(raw)
    return images


def tar(path: Path, files: dict[str, bytes]) -> Path:
    """Write a ``.tar.gz`` archive, with folders, as the official ones."""
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for folder in {name.rpartition("/")[0] for name in files if "/" in name}:
            member = tarfile.TarInfo(folder)
            member.type = tarfile.DIRTYPE
            archive.addfile(member)
        for name, raw in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
    return path


# ---- CIFAR -----------------------------------------------------------------------------------------------


def cifar_files(form: str, images: ImageSet) -> dict[str, bytes]:
    """Return the files of a form of CIFAR by their names in its archive, those that nobody reads too."""
    write = records if "bin" in form else batch
    if images.name == "cifar100":
        folder = form.removesuffix(".tar.gz")
        end = ".bin" if "bin" in form else ""
        names = [f"train{end}", f"test{end}"]
        parts = [(images.train_x, images.train_y), (images.test_x, images.test_y)]
        others = ["file.txt~", "meta"]
    else:
        folder = "cifar-10-batches-" + ("bin" if "bin" in form else "py")
        end = ".bin" if "bin" in form else ""
        names = [f"data_batch_{i}{end}" for i in range(1, 6)] + [f"test_batch{end}"]
        parts = [
            *zip(np.array_split(images.train_x, 5), np.array_split(images.train_y, 5), strict=True),
            (images.test_x, images.test_y),
        ]
        others = ["readme.html", "batches.meta"]
    fine = images.name == "cifar100"
    found = {name: write(*part, fine) for name, part in zip(names, parts, strict=True)}
    found |= dict.fromkeys(others, b"whatever")
    return {f"{folder}/{name}": raw for name, raw in found.items()}


def records(x, y, fine: bool = False) -> bytes:
    """Return CIFAR's binary form: one label, or a coarse and a fine one, then red, green, blue."""
    rows = x.reshape(len(x), -1)
    labels = np.stack([y // 5, y], axis=1) if fine else y[:, None]
    return b"".join(
        bytes(label.astype(np.uint8)) + bytes(row) for label, row in zip(labels, rows, strict=True)
    )


def batch(x, y, fine: bool = False) -> bytes:
    """Return CIFAR's Python form, opcode by opcode as Python 2's cPickle wrote it (protocol 2)."""
    rows = np.ascontiguousarray(x.reshape(len(x), -1))
    names = [f"some_thing_s_{i:06d}.png" for i in range(len(x))]
    items = [
        (_text("batch_label"), _text("training batch 1 of 5")),
        *([(_text("coarse_labels"), _list(_small(v // 5) for v in y))] if fine else []),
        (_text("fine_labels" if fine else "labels"), _list(_small(v) for v in y)),
        (_text("data"), _array(rows)),
        (_text("filenames"), _list(map(_text, names))),
    ]
    return (
        b"\x80\x02}q\x01(" + b"".join(key + value for key, value in items) + b"u."
    )  # SETITEMS, STOP


def _text(text: str) -> bytes:
    return b"U" + bytes([len(text)]) + text.encode()  # SHORT_BINSTRING


def _small(value) -> bytes:
    return b"K" + bytes([value])  # BININT1


def _long(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw  # LONG1


def _list(values) -> bytes:
    return b"]q\x02(" + b"".join(values) + b"e"  # APPENDS


def _array(rows) -> bytes:
    made = b"cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05"
    shape = _long(rows.shape[0]) + _long(rows.shape[1]) + b"\x86"
    dtype = b"cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN" + 2 * b"J\xff\xff\xff\xff"
    dtype += b"K\x00tb"
    raw = b"T" + struct.pack("<i", rows.size) + rows.tobytes()  # BINSTRING
    return made + b"(K\x01" + shape + dtype + b"\x89" + raw + b"tb"


# ---- others ----------------------------------------------------------------------------------------------


def _mat(folder: Path, images: ImageSet) -> None:
    from scipy.io import savemat

    for part, x, y in (
        ("train", images.train_x, images.train_y),
        ("test", images.test_x, images.test_y),
    ):
        labels = np.where(y == 0, 10, y).astype(np.uint8)[:, None]
        savemat(
            folder / f"{part}_32x32.mat",
            {"X": x.transpose(2, 3, 1, 0), "y": labels},
            do_compression=True,
        )


def _idx(folder: Path, images: ImageSet, packed: bool) -> None:
    for part, x, y in (
        ("train", images.train_x, images.train_y),
        ("t10k", images.test_x, images.test_y),
    ):
        for name, array in (("images-idx3", x[:, 0]), ("labels-idx1", y.astype(np.uint8))):
            raw = idx(array)
            if packed:
                (folder / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(raw, 1, mtime=0))
            else:
                (folder / f"{part}-{name}-ubyte").write_bytes(raw)


def idx(array) -> bytes:
    """Return an array of bytes in idx format."""
    return struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()
