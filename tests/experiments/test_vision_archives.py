"""Files of image sets that are damaged, hostile or other than they say: refused by name, and never run."""

import gzip
import io
import pickle
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_images import batch, cifar_files, idx, made, picture, records, stored, tar
from strategies import examples

from refinecal.experiments.vision import _archives
from refinecal.experiments.vision._pickles import _BatchReader, read_batch
from refinecal.experiments.vision.images import read_images

WANTED = ("a/one", "a/two")


@pytest.fixture
def tiny():
    images = made("cifar10", n_train=4)
    return images.train_x, images.train_y


def result(function, *args):
    """Return what a function does, or the ``ValueError`` that it raises."""
    try:
        return function(*args)
    except ValueError as error:
        return error


# ---- tar archives ----------------------------------------------------------------------------------------


def archive(path, *members):
    """Write an archive of members, each a ``TarInfo`` with its content."""
    with tarfile.open(path, "w:gz") as made_archive:
        for member, raw in members:
            made_archive.addfile(member, io.BytesIO(raw))
    return path


def member(name, raw=b"content", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(raw)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, raw


def read(path, wanted=WANTED):
    return _archives.read_members(path, wanted, check=False)


def test_only_what_is_wanted_is_returned(tmp_path):
    files = {"a/one": b"1" * 70_000, "a/other": b"x", "a/two": b""}
    assert read(tar(tmp_path / "x.tar.gz", files)) == {"a/one": b"1" * 70_000, "a/two": b""}
    dotted = archive(tmp_path / "y.tar.gz", member("./a/one"), member("./a/two"))
    assert read(dotted) == dict.fromkeys(WANTED, b"content")


@pytest.mark.parametrize(
    "name", ["../outside", "a/../../outside", "/tmp/outside", "a\\..\\outside", ".."]
)
def test_names_that_point_out_of_an_archive(tmp_path, name):
    path = archive(tmp_path / "x.tar.gz", member("a/one"), member(name), member("a/two"))
    with pytest.raises(ValueError, match=r"x\.tar\.gz has a file .* points out of it: remove it"):
        read(path)
    assert [each.name for each in tmp_path.iterdir()] == ["x.tar.gz"]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
@pytest.mark.parametrize("name", ["a/two", "a/other"])
def test_links_and_devices_are_refused(tmp_path, kind, name):
    link = member(name, b"", type=kind, linkname="/etc/passwd")
    path = archive(tmp_path / "x.tar.gz", member("a/one"), link)
    with pytest.raises(ValueError, match=rf"has '{name}', which is a link or a device"):
        read(path)


def test_a_name_twice(tmp_path):
    path = archive(tmp_path / "x.tar.gz", member("a/one"), member("a/two"), member("./a/one", b"!"))
    with pytest.raises(ValueError, match=r"has a/one twice"):
        read(path)


def test_a_folder_in_place_of_a_file(tmp_path):
    folder = member("a/two", b"", type=tarfile.DIRTYPE)
    with pytest.raises(ValueError, match=r"has a folder 'a/two' in place of a file"):
        read(archive(tmp_path / "x.tar.gz", member("a/one"), folder))


def test_far_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(_archives, "LARGEST", 1000)
    path = archive(tmp_path / "x.tar.gz", member("a/one", bytes(1001)), member("a/two"))
    with pytest.raises(ValueError, match=r"'a/one' of 1001 bytes, far more"):
        read(path)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_headers_are_not_read_into_memory_whatever_they_say(tmp_path, kind):
    """An archive of 20 kB must not take 16 MB."""
    info = tarfile.TarInfo("x")
    info.size, info.type = 16 << 20, kind
    path = tmp_path / "x.tar.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(16):
            file.write(bytes(1 << 20))
    with taking_at_most(4 << 20), pytest.raises(ValueError, match=r"has headers far larger"):
        read(path)


@contextmanager
def taking_at_most(most):
    """Refuse to take more memory than so many bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def test_archives_of_many_files(tmp_path):
    path = archive(tmp_path / "x.tar.gz", *(member(f"a/{i}") for i in range(101)))
    with pytest.raises(ValueError, match=r"more than 100 files"):
        read(path)


def test_archives_with_much_behind_their_end(tmp_path, monkeypatch):
    monkeypatch.setattr(_archives, "LARGEST", 20_000)
    path = tar(tmp_path / "x.tar.gz", dict.fromkeys(WANTED, b"content"))
    assert set(read(path)) == set(WANTED)
    path.write_bytes(path.read_bytes() + gzip.compress(bytes(2 << 20)))
    with pytest.raises(ValueError, match=r"x\.tar\.gz unpacks to far more"):
        read(path)


def test_archives_of_many_large_files(tmp_path, monkeypatch):
    monkeypatch.setattr(_archives, "LARGEST", 20_000)
    path = archive(tmp_path / "x.tar.gz", *(member(f"a/{i}", bytes(8000)) for i in range(4)))
    with pytest.raises(ValueError, match=r"x\.tar\.gz unpacks to far more"):
        read(path)


def test_what_an_archive_lacks(tmp_path):
    with pytest.raises(ValueError, match=r"x\.tar\.gz lacks a/two: get the official archive"):
        read(archive(tmp_path / "x.tar.gz", member("a/one")))
    with pytest.raises(ValueError, match=r"lacks a/one, a/two"):
        read(archive(tmp_path / "y.tar.gz"))


def test_what_is_no_archive(tmp_path):
    path = tmp_path / "x.tar.gz"
    for raw in (b"", b"<html>not found</html>", gzip.compress(b"text"), bytes(2000)):
        path.write_bytes(raw)
        with pytest.raises(ValueError, match=r"x\.tar\.gz .*(again|official)"):
            read(path)


@given(data=st.data())
def test_archives_broken_anywhere(tmp_path, data):
    """Cut an archive, or change a byte: it is refused, or still holds the same."""
    files = {"a/one": bytes(range(256)) * 20, "a/two": b"2" * 3000}
    path = tar(tmp_path / "x.tar.gz", files)
    raw = path.read_bytes()
    at = data.draw(st.integers(0, len(raw) - 1))
    flip = data.draw(st.integers(0, 255))  # 0: cut
    path.write_bytes(raw[:at] + (bytes([raw[at] ^ flip]) + raw[at + 1 :] if flip else b""))
    found = result(read, path)
    if isinstance(found, ValueError):
        assert "x.tar.gz" in str(found)
    else:
        assert found == files


# ---- pickles ---------------------------------------------------------------------------------------------


def test_a_batch_of_python_2(tiny):
    x, y = tiny
    images, labels = read_batch(batch(x, y), "labels")
    np.testing.assert_array_equal(images.reshape(x.shape), x)
    np.testing.assert_array_equal(labels, y)
    assert (images.dtype, labels.dtype) == (np.uint8, np.int64)


def test_our_batch_is_one_that_pickle_reads(tiny):
    """Python's own reader finds in what the tests write what cPickle of Python 2 would have stored."""
    x, y = tiny
    found = pickle.loads(batch(x, y).replace(b"numpy.core", b"numpy._core"), encoding="latin1")
    np.testing.assert_array_equal(found["data"], x.reshape(4, -1))
    assert found["labels"] == y.tolist()
    assert found["filenames"][1] == "some_thing_s_000001.png"


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("key", [str, str.encode])
def test_batches_written_anew(tiny, protocol, order, key):
    x, y = tiny
    rows = np.asarray(x.reshape(4, -1), order=order)
    raw = pickle.dumps({key("data"): rows, key("labels"): y.tolist()}, protocol)
    if key is str.encode and protocol == 2:  # stored as calls, which a key cannot be
        with pytest.raises(ValueError, match=r"pickle"):
            read_batch(raw, "labels")
        return
    images, labels = read_batch(raw, "labels")
    np.testing.assert_array_equal(images, rows)
    np.testing.assert_array_equal(labels, y)


class Hostile:
    """Whoever loads this runs a command."""

    def __init__(self, mark, how="system"):
        self.mark, self.how = str(mark), how

    def __reduce__(self):
        import os

        if self.how == "system":
            return os.system, (f"touch {self.mark}",)
        if self.how == "eval":
            return eval, (f"open({self.mark!r}, 'w')",)
        return exec, (f"open({self.mark!r}, 'w')",)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("how", ["system", "eval", "exec"])
@pytest.mark.parametrize("where", ["all", "data", "labels", "filenames", "key"])
@pytest.mark.sweep(7)
def test_a_hostile_pickle_is_refused_and_not_run(tmp_path, tiny, protocol, how, where):
    mark = tmp_path / "it ran"
    hostile = Hostile(tmp_path / "it ran", how)
    content = {"data": tiny[0].reshape(4, -1), "labels": tiny[1].tolist()}
    if where == "all":
        content = hostile
    elif where == "key":
        content[(1, hostile)] = 2
    else:
        content[where] = hostile
    files = cifar_files("cifar-10-python.tar.gz", made("cifar10"))
    files["cifar-10-batches-py/data_batch_2"] = pickle.dumps(content, protocol)
    tar(tmp_path / "cifar-10-python.tar.gz", files)
    with pytest.raises(
        ValueError, match=r"data_batch_2 in .*python\.tar\.gz is .*official"
    ) as caught:
        read_images(tmp_path, "cifar10", check=False)
    assert not mark.exists()
    if protocol >= 2:
        assert "never run" in str(caught.value)
    if where == "all" and how == "system":
        assert ".system'" in str(caught.value)


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
    with pytest.raises(ValueError, match=r"never run"):
        read_batch(raw, "labels")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": None}, r"labels.*no list of whole numbers"),
        ({"labels": [1.0, 2, 3, 4]}, r"labels.*no list of whole numbers"),
        ({"labels": [True, 2, 3, 4]}, r"labels.*no list of whole numbers"),
        ({"labels": [1, 2, 3]}, r"\(4, 3072\) and 3 labels"),
        ({"data": [1]}, r"no array of bytes"),
        ({"data": np.zeros((4, 3072))}, r"no array of bytes"),
        ({"data": np.zeros((4, 3071), np.uint8)}, r"\(4, 3071\)"),
        ({"data": np.zeros(4, np.uint8)}, r"not one row of bytes for each image"),
    ],
)
def test_batches_of_other_things(tiny, change, words):
    content = {"data": tiny[0].reshape(4, -1), "labels": tiny[1].tolist()} | change
    with pytest.raises(ValueError, match=rf"here {words}|here .*{words}"):
        _archives.from_pickle(pickle.dumps(content, 4), "here", "labels")


def test_a_batch_without_labels(tiny):
    with pytest.raises(
        ValueError, match=r"no 'fine_labels', but 'batch_label', 'data', 'filenames'"
    ):
        read_batch(batch(*tiny), "fine_labels")
    for content in ({}, [1, 2], "text", None):
        with pytest.raises(ValueError, match=r"pickle that holds"):
            read_batch(pickle.dumps(content, 2), "labels")


def nested(levels):
    """Return the pickle of a tuple of two tuples of two tuples …: short, but its text is not."""
    return b"\x80\x02)" + b"q\x00h\x00\x86" * levels  # BINPUT, BINGET, TUPLE2


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80\x04}" + nested(60)[2:] + b"K\x01s.",  # a key, which would be hashed
        nested(60) + b"\x8c\x01x\x93.",  # the name of a call, which would be shown
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R(K\x01"  # the shape of an array, too
        + nested(60)[2:]
        + b"cnumpy\ndtype\n(U\x02u1tR\x89U\x01atbq\x01}(U\x04datah\x01U\x06labels]u.",
    ],
)
def test_what_would_take_for_ever_is_refused_at_once(raw):
    with pytest.raises(ValueError, match=r"is ") as caught:
        read_batch(raw, "labels")
    assert len(str(caught.value)) < 300


def test_more_parts_than_any_batch_has_are_not_read(monkeypatch):
    monkeypatch.setattr(_BatchReader, "MOST", 20_000)
    with taking_at_most(32 << 20), pytest.raises(ValueError, match=r"holds more than 20000 parts"):
        read_batch(b"\x80\x02" + b"]" * 1_000_000 + b".", "labels")


def test_errors_show_a_few_keys():
    raw = pickle.dumps({f"{i:04}" + "a" * 1000: i for i in range(1000)}, 2)
    with pytest.raises(ValueError, match=r"no 'labels'|no 'data', but '0000a+', .* and 994 more"):
        read_batch(raw, "labels")
    long = pickle.dumps({}, 2)[:-1] + b"c" + b"a" * 10_000 + b"\nb\n."
    with pytest.raises(ValueError, match=r"holds") as caught:
        read_batch(long, "labels")
    assert len(str(caught.value)) < 300


@examples(300)
@given(data=st.data())
def test_pickles_broken_anywhere(data):
    """Whatever the bytes, there is a batch or a ``ValueError``."""
    images = made("cifar10", n_train=2)
    raw = batch(images.train_x[:, :, :1, :2], images.train_y)  # short, so that opcodes are hit
    at = data.draw(st.integers(0, len(raw) - 1))
    n = data.draw(st.integers(0, 3))
    try:
        found, labels = read_batch(
            raw[:at] + data.draw(st.binary(max_size=6)) + raw[at + n :], "labels"
        )
    except ValueError:
        return
    assert (found.dtype, found.ndim, labels.dtype) == (np.uint8, 2, np.int64)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_pickle(raw):
    with pytest.raises(ValueError, match=r"^is "):
        read_batch(raw, "labels")


# ---- bytes, idx, MATLAB ----------------------------------------------------------------------------------


@given(n=st.integers(1, 5), seed=st.integers(0, 99), fine=st.booleans())
def test_records_there_and_back(n, seed, fine):
    images = made("cifar100" if fine else "cifar10", n_train=n + 2, seed=seed)
    raw = records(images.train_x, images.train_y, fine)
    x, y = _archives.from_records(raw, "here", 1 + fine)
    np.testing.assert_array_equal(x, images.train_x)
    np.testing.assert_array_equal(y, images.train_y)
    if not fine:
        assert _archives.as_records(x, y) == raw


def test_records_that_are_not_whole():
    for size in (0, 1, 3072, 3074, 2 * 3073 - 1):
        with pytest.raises(ValueError, match=rf"here has {size} bytes.*whole images of 3073"):
            _archives.from_records(bytes(size), "here", 1)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (idx(np.zeros((2, 3), np.uint8)), r"begins with 00000802, not 00000803"),
        (b"\x00\x00\x0d\x03" + bytes(12), r"begins with 00000d03"),
        (idx(np.zeros((2, 3, 4), np.uint8)) + b"!!", r"has 2 bytes too many"),
        (idx(np.zeros((2, 3, 4), np.uint8))[:-1], r"breaks off"),
        (idx(np.zeros((2, 3, 4), np.uint8))[:9], r"breaks off"),
        (b"\x00\x00\x08\x03" + 12 * b"\xff", r"breaks off"),
        (b"", r"breaks off"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_that_are_none(tmp_path, raw, words, packed):
    path = tmp_path / ("x.gz" if packed else "x")
    path.write_bytes(gzip.compress(raw) if packed else raw)
    with pytest.raises(ValueError, match=rf"{path.name} {words}.*again"):
        _archives.read_idx(path, 3, check=False)


@pytest.mark.parametrize(
    ("name", "reader"),
    [
        ("train-images-idx3-ubyte", lambda path: _archives.read_idx(path, 3, check=False)),
        ("train_32x32.mat", lambda path: _archives.read_mat(path, check=False)),
        ("cifar10_train_1.webp", _archives.read_mosaic),
        (
            "cifar-10-batches-bin/data_batch_1.bin",
            lambda path: read_images(path.parents[1], "cifar10", check=False),
        ),
    ],
)
def test_files_of_gigabytes_are_not_read(tmp_path, name, reader):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(3 << 30)  # which takes no room on the disk
    with (
        taking_at_most(8 << 20),
        pytest.raises(ValueError, match=rf"{path.name} has 3221225472 bytes, far more"),
    ):
        reader(path)


def test_idx_that_unpacks_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(_archives, "LARGEST", 10_000)
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes(10_001)))
    with pytest.raises(ValueError, match=r"x\.gz unpacks to far more"):
        _archives.read_idx(tmp_path / "x.gz", 1, check=False)


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
    with pytest.raises(ValueError, match=rf"x\.mat has .*{words}.*official"):
        _archives.read_mat(tmp_path / "x.mat", check=False)


@pytest.mark.parametrize("order", "<>")
def test_matlab_files_that_unpack_to_too_much(tmp_path, monkeypatch, order):
    """They are refused before they are read, whatever sizes they state."""
    images = made("svhn", n_train=20, n_test=2)
    stored(tmp_path, "mat", images)
    path = tmp_path / "train_32x32.mat"
    x, y = _archives.read_mat(path, check=False)
    assert (len(x), len(y)) == (20, 20)
    monkeypatch.setattr(_archives, "LARGEST", 40_000)
    if order == ">":  # as if it were written on another machine
        packed = zlib.compress(bytes(50_000))
        head = path.read_bytes()[:124] + b"\x01\x00MI"
        path.write_bytes(head + struct.pack(">II", 15, len(packed)) + packed)
    monkeypatch.setattr("scipy.io.loadmat", None)
    with pytest.raises(ValueError, match=r"train_32x32\.mat (unpacks to|has \d+ bytes,) far more"):
        _archives.read_mat(path, check=False)


@pytest.mark.parametrize("kind", [1, 2])  # a cell array, a struct array
def test_matlab_files_that_claim_many_cells(tmp_path, kind):
    """Two hundred bytes, for which memory for a hundred million objects would be taken."""

    def part(kind, raw):
        return struct.pack("<II", kind, len(raw)) + raw + bytes(-len(raw) % 8)

    flags, dims = part(6, struct.pack("<II", kind, 0)), part(5, struct.pack("<ii", 10**4, 10**4))
    x = part(14, flags + dims + part(1, b"X"))
    head = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    (tmp_path / "x.mat").write_bytes(head + x)
    with (
        taking_at_most(32 << 20),
        pytest.raises(ValueError, match=r"x\.mat has X of shape \(10000, 10000\) and type"),
    ):
        _archives.read_mat(tmp_path / "x.mat", check=False)


@given(data=st.data())
def test_matlab_files_broken_anywhere(tmp_path, data):
    stored(tmp_path, "mat", made("svhn", n_train=2, n_test=2))
    path = tmp_path / "train_32x32.mat"
    raw = path.read_bytes()
    at = data.draw(st.one_of(st.integers(0, 300), st.integers(0, len(raw) - 1)))
    flip = data.draw(st.integers(0, 255))  # 0: cut
    path.write_bytes(raw[:at] + (bytes([raw[at] ^ flip]) + raw[at + 1 :] if flip else b""))
    found = result(_archives.read_mat, path, False)
    if isinstance(found, ValueError):
        assert "train_32x32.mat" in str(found)
    else:
        x, y = found
        assert (x.shape, x.dtype, y.dtype) == ((2, 3, 32, 32), np.uint8, np.int64)


# ---- mosaics ---------------------------------------------------------------------------------------------


def test_tiles_go_row_by_row(tmp_path):
    x = made("cifar10", n_train=6).train_x
    picture(tmp_path / "x.webp", x, width=2)
    np.testing.assert_array_equal(_archives.read_mosaic(tmp_path / "x.webp"), x)


def test_pictures_that_are_no_mosaics(tmp_path):
    x = made("cifar10", n_train=2).train_x
    picture(tmp_path / "x.webp", x[:, :, :31], width=2)
    with pytest.raises(ValueError, match=r"x\.webp has 64 × 31 pixels.*tiles of 32 × 32"):
        _archives.read_mosaic(tmp_path / "x.webp")
    picture(tmp_path / "x.webp", x, width=2, format="png", lossless=None)
    with pytest.raises(ValueError, match=r"x\.webp is damaged"):
        _archives.read_mosaic(tmp_path / "x.webp")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"train": [1, 2]}, r"has no 'test'"),
        ({"train": np.array([1, "a"], object), "test": [1]}, r"is damaged .*[Oo]bject"),
        ({"train": [0.5], "test": [1]}, r"'train' of type float64"),
        ({"train": [1], "test": [[1]]}, r"which are no labels"),
    ],
)
def test_labels_of_other_things(tmp_path, content, words):
    np.savez(tmp_path / "cifar10_labels.npz", **content)
    with pytest.raises(ValueError, match=rf"cifar10_labels\.npz .*{words}|npz {words}"):
        _archives.read_labels(tmp_path / "cifar10_labels.npz")


@pytest.mark.parametrize("packed", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_labels_that_unpack_to_too_much(tmp_path, packed):
    """9 kB must not take 9 MB, nor eight times that."""
    path, raw = tmp_path / "cifar10_labels.npz", io.BytesIO()
    np.save(raw, np.zeros(9_000_000, np.uint8))
    with zipfile.ZipFile(path, "w", packed) as file:
        file.writestr("train.npy", raw.getvalue())
        file.writestr("test.npy", raw.getvalue())
    with taking_at_most(2 << 20), pytest.raises(ValueError, match=r"labels\.npz has 'train\.npy'"):
        _archives.read_labels(path)


def test_a_mosaic_of_too_many_pixels(tmp_path, monkeypatch):
    flat = np.zeros((6, 3, 32, 32), np.uint8)  # a small file
    picture(tmp_path / "x.webp", flat, width=2)
    monkeypatch.setattr(_archives, "LARGEST", 6 * 3072 - 1)
    with pytest.raises(ValueError, match=r"x\.webp has 64 × 96 pixels"):
        _archives.read_mosaic(tmp_path / "x.webp")


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("cifar-10-binary.tar.gz", "cifar-10-binary.tar.gz"),
        ("cifar-10-batches-bin", "cifar-10-batches-bin/data_batch_2.bin"),
        ("mosaic", "cifar10_labels.npz"),
        ("mosaic", "cifar10_train_2.webp"),
        ("mat", "train_32x32.mat"),
        ("idx", "train-labels-idx1-ubyte"),
        ("idx.gz", "train-images-idx3-ubyte.gz"),
    ],
)
def test_a_folder_in_the_place_of_a_file(tmp_path, form, name):
    images = stored(tmp_path, form)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(IsADirectoryError, match=r"is a folder, but must be a file") as caught:
        read_images(tmp_path, images.name, check=False)
    assert str(tmp_path / name) in str(caught.value)
