"""Files of image sets that are damaged or other than they say: refused by name, and no pickle is loaded."""

import gzip
import os
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_images import batch, cifar_files, idx, made, records, stored, tar
from strategies import examples

from refinecal.experiments.vision import archives
from refinecal.experiments.vision.archives import from_idx, from_mat, from_pickle, from_records
from refinecal.experiments.vision.images import read_images


@pytest.fixture
def tiny():
    images = made("cifar10", n_train=4)
    return images.train_x, images.train_y


# ---- tar archives ----------------------------------------------------------------------------------------


ARCHIVE = "cifar-10-binary.tar.gz"


def test_what_an_archive_lacks(tmp_path):
    files = cifar_files(ARCHIVE, made("cifar10"))
    del files["cifar-10-batches-bin/data_batch_3.bin"]
    tar(tmp_path / ARCHIVE, files)
    with pytest.raises(
        ValueError, match=r"binary\.tar\.gz .*lacks cifar.*/data_batch_3\.bin\).*get it"
    ):
        read_images(tmp_path, "cifar10", check=False)


def test_what_is_not_an_archive(tmp_path):
    for raw in (b"", b"<html>not found</html>", gzip.compress(b"text"), bytes(2000)):
        (tmp_path / ARCHIVE).write_bytes(raw)
        with pytest.raises(ValueError, match=r"binary\.tar\.gz .*get it again"):
            read_images(tmp_path, "cifar10", check=False)


@examples(30)
@given(data=st.data())
def test_archives_broken_anywhere(tmp_path, data):
    """Cut an archive, or change a byte: it is refused, or still holds the same."""
    images = stored(tmp_path, ARCHIVE, made("cifar10", n_train=5, n_test=2))
    path = tmp_path / ARCHIVE
    raw = path.read_bytes()
    at = data.draw(st.integers(0, len(raw) - 1))
    flip = data.draw(st.integers(0, 255))  # 0: cut
    path.write_bytes(raw[:at] + (bytes([raw[at] ^ flip]) + raw[at + 1 :] if flip else b""))
    try:
        found = read_images(tmp_path, "cifar10", check=False)
    except ValueError as error:
        assert ARCHIVE in str(error)  # noqa: PT017
    else:
        assert found.digest() == images.digest()


# ---- pickles ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fine", [False, True])
def test_a_batch_of_python_2(tiny, fine):
    x, y = tiny
    images, labels = from_pickle(batch(x, y, fine), "fine_labels" if fine else "labels")
    np.testing.assert_array_equal(images, x)
    np.testing.assert_array_equal(labels, y)
    assert (images.dtype, labels.dtype) == (np.uint8, np.int64)


def test_our_batch_is_one_that_pickle_reads(tiny):
    """Python's own reader finds in what the tests write what cPickle of Python 2 would have stored."""
    x, y = tiny
    found = pickle.loads(batch(x, y).replace(b"numpy.core", b"numpy._core"), encoding="latin1")
    np.testing.assert_array_equal(found["data"], x.reshape(4, -1))
    assert found["labels"] == y.tolist()
    assert found["filenames"][1] == "some_thing_s_000001.png"


@pytest.mark.parametrize("order", "CF")
def test_batches_of_python_3(tiny, order):
    x, y = tiny
    rows = np.asarray(x.reshape(4, -1), order=order)
    images, labels = from_pickle(pickle.dumps({"data": rows, "labels": y.tolist()}, 4))
    np.testing.assert_array_equal(images, x)
    np.testing.assert_array_equal(labels, y)


class Hostile:
    """Anyone who loads this runs a command."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch '{self.mark}'",)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("where", ["all", "data", "labels", "filenames"])
def test_no_pickle_is_loaded(tmp_path, tiny, protocol, where):
    mark = tmp_path / "it ran"
    content = {"data": tiny[0].reshape(4, -1), "labels": tiny[1].tolist(), where: Hostile(mark)}
    files = cifar_files("cifar-10-python.tar.gz", made("cifar10"))
    raw = pickle.dumps(Hostile(mark) if where == "all" else content, protocol)
    files["cifar-10-batches-py/data_batch_2"] = raw
    tar(tmp_path / "cifar-10-python.tar.gz", files)
    if where == "filenames" and protocol in (3, 4):  # which is not looked at
        assert len(read_images(tmp_path, "cifar10", check=False).train_y) == 28
    else:
        with pytest.raises(ValueError, match=r"data_batch_2 in .*python\.tar\.gz is damaged"):
            read_images(tmp_path, "cifar10", check=False)
    assert not mark.exists()


@pytest.mark.parametrize(
    "raw",
    [
        b"cos\nsystem\n(S'true'\ntR.",  # GLOBAL
        b"(S'true'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'true'\no.",  # OBJ
        b"\x80\x02cos\nsystem\n)\x81.",  # NEWOBJ
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",  # STACK_GLOBAL
        b"\x80\x02\x82\x01.",  # EXT1
        b"P0\n.",  # PERSID
        b"\x80\x02cnumpy\nload\nU\x01x\x85R.",
        b"\x80\x02cnumpy.core.multiarray\nfromfile\nU\x01x\x85R.",
    ],
)
def test_every_way_to_call_something(raw):
    with pytest.raises(ValueError, match=r"never loaded"):
        from_pickle(raw)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": None}, r"no 'labels' that are a list of whole numbers"),
        ({"labels": [1.0, 2, 3, 4]}, r"no 'labels' that are a list of whole numbers"),
        ({"labels": [True, 2, 3, 4]}, r"no 'labels' that are a list of whole numbers"),
        ({"labels": [1, 2, 3]}, r"\(4, 3072\) and 3 labels"),
        ({"data": [1]}, r"no 'data' that is an array of bytes"),
        ({"data": np.zeros((4, 3072))}, r"no 'data' that is an array of bytes"),
        ({"data": np.zeros((4, 3071), np.uint8)}, r"\(4, 3071\)"),
        ({"data": np.zeros(4, np.uint8)}, r"\(4,\) and 4 labels"),
    ],
)
def test_batches_of_other_things(tiny, change, words):
    content = {"data": tiny[0].reshape(4, -1), "labels": tiny[1].tolist()} | change
    with pytest.raises(ValueError, match=words):
        from_pickle(pickle.dumps(content, 4))


def test_a_batch_without_labels(tiny):
    with pytest.raises(ValueError, match=r"no 'fine_labels'"):
        from_pickle(batch(*tiny), "fine_labels")
    for content in ({}, [1, 2], "text", None):
        with pytest.raises(ValueError, match=r"no 'data'"):
            from_pickle(pickle.dumps(content, 2))


@examples(100)
@given(data=st.data())
def test_pickles_broken_anywhere(data):
    """Whatever the bytes, there is a batch or a ``ValueError``."""
    raw = batch(*(made("cifar10", n_train=2).train_x, np.array([0, 9])))
    at = data.draw(st.one_of(st.integers(0, 250), st.integers(0, len(raw) - 1)))
    n = data.draw(st.integers(0, 3))
    try:
        with archives.reading("here"):
            found, labels = from_pickle(raw[:at] + data.draw(st.binary(max_size=6)) + raw[at + n :])
    except ValueError:
        return
    assert (found.dtype, found.shape, labels.dtype) == (np.uint8, (2, 3, 32, 32), np.int64)


# ---- bytes, idx, MATLAB ----------------------------------------------------------------------------------


@given(n=st.integers(1, 5), seed=st.integers(0, 99), fine=st.booleans())
def test_records_are_read_back(n, seed, fine):
    images = made("cifar100" if fine else "cifar10", n_train=n + 2, seed=seed)
    x, y = from_records(records(images.train_x, images.train_y, fine), 1 + fine)
    np.testing.assert_array_equal(x, images.train_x)
    np.testing.assert_array_equal(y, images.train_y)


@pytest.mark.parametrize("size", [0, 1, 3072, 3074, 2 * 3073 - 1])
def test_records_that_are_not_whole(tmp_path, size):
    stored(tmp_path, "cifar-10-batches-bin")
    (tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin").write_bytes(bytes(size))
    with pytest.raises(
        ValueError, match=r"data_batch_2\.bin is damaged or incomplete.*get it again"
    ):
        read_images(tmp_path, "cifar10", check=False)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x00\x0d\x03" + bytes(12),
        idx(np.zeros((2, 3, 4), np.uint8)) + b"!!",
        idx(np.zeros((2, 3, 4), np.uint8))[:-1],
        idx(np.zeros((2, 3, 4), np.uint8))[:9],
        b"\x00\x00\x08\x03" + 12 * b"\xff",
        b"",
    ],
)
@pytest.mark.parametrize("form", ["idx", "idx.gz"])
def test_idx_files_that_are_damaged(tmp_path, raw, form):
    stored(tmp_path, form)
    path = next(tmp_path.glob("train-images*"))
    path.write_bytes(gzip.compress(raw) if form == "idx.gz" else raw)
    with pytest.raises(ValueError, match=rf"{path.name} is damaged or incomplete.*get it again"):
        read_images(tmp_path, "fashion-mnist", check=False)


def test_labels_in_the_place_of_images(tmp_path):
    stored(tmp_path, "idx")
    labels = (tmp_path / "train-labels-idx1-ubyte").read_bytes()
    (tmp_path / "train-images-idx3-ubyte").write_bytes(labels)
    with pytest.raises(
        ValueError, match=r"does not hold fashion-mnist: train_x has shape \(30, 1\)"
    ):
        read_images(tmp_path, "fashion-mnist", check=False)
    np.testing.assert_array_equal(from_idx(labels)[:2], (0, 9))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, r"no variable y"),
        ({"z": 1}, r"no variable X and no y"),
        ({"X": np.zeros((32, 32, 3, 2)), "y": [[1], [2]]}, r"type float64"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [2], [3]]}, r"for 3 labels"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[0], [2]]}, r"other than 1, 2, ... 10"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[11], [2]]}, r"other than 1, 2, ... 10"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1.5], [2]]}, r"other than 1, 2, ... 10"),
    ],
)
def test_matlab_files_of_other_things(tmp_path, content, words):
    from scipy.io import savemat

    savemat(tmp_path / "x.mat", content)
    with pytest.raises(ValueError, match=words):
        from_mat((tmp_path / "x.mat").read_bytes())


# ---- all -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("cifar-10-binary.tar.gz", "cifar-10-binary.tar.gz"),
        ("cifar-10-batches-bin", "cifar-10-batches-bin/data_batch_1.bin"),
        ("mat", "train_32x32.mat"),
        ("idx", "train-labels-idx1-ubyte"),
        ("idx.gz", "train-images-idx3-ubyte.gz"),
    ],
)
def test_a_folder_in_the_place_of_a_file(tmp_path, form, name):
    images = stored(tmp_path, form)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises((FileNotFoundError, ValueError), match=r"get (it|the set) again") as caught:
        read_images(tmp_path, images.name, check=False)
    assert str(tmp_path / name) in str(caught.value)
