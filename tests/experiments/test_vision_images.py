"""Image sets from every form of their files; parts for training and validation."""

import hashlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_images import FORMS, made, stored
from strategies import examples

from refinecal.experiments.vision import archives
from refinecal.experiments.vision.images import (
    DATASETS,
    ImageSet,
    available,
    read_images,
    validation_split,
)

ARRAYS = ("train_x", "train_y", "test_x", "test_y")


def assert_same(found: ImageSet, expected: ImageSet):
    assert (found.name, found.classes) == (expected.name, expected.classes)
    for name in ARRAYS:
        here, there = getattr(found, name), getattr(expected, name)
        assert here.dtype == there.dtype
        np.testing.assert_array_equal(here, there)
    assert found.digest() == expected.digest()


def files_in(folder):
    """Return the files of a set, but for those in its archives that nobody reads."""
    unread = {"readme.html", "batches.meta", "file.txt~", "meta"}
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in unread)


# ---- forms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same_images(tmp_path, form):
    images = stored(tmp_path, form)
    found = read_images(tmp_path, images.name, check=False)
    assert_same(found, images)
    for name in ARRAYS:  # as torch.from_numpy wants them
        assert getattr(found, name).flags.writeable
        assert getattr(found, name).flags.c_contiguous
    assert available(tmp_path) == [images.name]


@pytest.mark.parametrize("form", FORMS)
def test_a_sub_folder_of_the_name_will_do(tmp_path, form):
    images = stored(tmp_path / FORMS[form], form)
    assert_same(read_images(str(tmp_path), images.name, check=False), images)


def test_several_sets_in_one_folder(tmp_path):
    sets = [
        stored(tmp_path, form)
        for form in ("cifar-10-batches-bin", "cifar-100-python", "mat", "idx.gz")
    ]
    assert available(tmp_path) == list(DATASETS)
    for images in sets:
        assert_same(read_images(tmp_path, images.name, check=False), images)


def test_where_torchvision_puts_them(tmp_path):
    images = stored(tmp_path / "FashionMNIST" / "raw", "idx")
    assert_same(read_images(tmp_path, "fashion-mnist", check=False), images)


@pytest.mark.parametrize("form", ["mat", "idx", "cifar-10-batches-bin", "cifar-100-python"])
def test_part_of_a_set_does_not_hide_the_whole_one(tmp_path, form):
    images = stored(tmp_path / FORMS[form], form)
    first, *_ = files_in(tmp_path)
    part = tmp_path / first.relative_to(tmp_path / FORMS[form])
    part.parent.mkdir(exist_ok=True)
    shutil.copy(first, part)
    assert_same(read_images(tmp_path, images.name, check=False), images)


def test_part_of_one_form_does_not_hide_another(tmp_path):
    images = stored(tmp_path, "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-bin").mkdir()
    (tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin").write_bytes(b"half")
    assert_same(read_images(tmp_path, "cifar10", check=False), images)


def test_files_of_another_set_with_the_same_names(tmp_path):
    """MNIST's have the names of Fashion-MNIST's."""
    stored(tmp_path, "idx.gz", made("fashion-mnist", n_train=7))
    images = stored(tmp_path / "fashion-mnist", "idx.gz")
    assert_same(read_images(tmp_path, "fashion-mnist", check=False), images)


def test_archives_come_before_unpacked_files(tmp_path):
    stored(tmp_path, "cifar-10-batches-bin", made("cifar10", seed=1))
    stored(tmp_path, "cifar-10-python.tar.gz", made("cifar10", seed=2))
    whole = stored(tmp_path, "cifar-10-binary.tar.gz", made("cifar10", seed=3))
    assert_same(read_images(tmp_path, "cifar10", check=False), whole)


def test_packed_and_unpacked_idx_may_be_mixed(tmp_path):
    images = stored(tmp_path, "idx")
    stored(tmp_path / "other", "idx.gz")
    (tmp_path / "t10k-images-idx3-ubyte").unlink()
    shutil.move(tmp_path / "other" / "t10k-images-idx3-ubyte.gz", tmp_path)
    assert_same(read_images(tmp_path, "fashion-mnist", check=False), images)


@pytest.mark.parametrize("form", ["cifar-10-batches-bin", "cifar-10-batches-py"])
def test_the_first_images_need_only_the_first_batches(tmp_path, form):
    images = stored(tmp_path, form)
    for i in (4, 5):
        next(tmp_path.glob(f"*/data_batch_{i}*")).unlink()
    for n in (18, 16, 2):
        found = read_images(tmp_path, "cifar10", check=False, n_train=n)
        np.testing.assert_array_equal(found.train_x, images.train_x[:n])
        np.testing.assert_array_equal(found.train_y, images.train_y[:n])
    with pytest.raises(
        FileNotFoundError, match=r"data_batch_4.*use only the training images before"
    ):
        read_images(tmp_path, "cifar10", check=False, n_train=19)


@pytest.mark.parametrize("form", FORMS)
def test_the_first_images_are_the_same_in_every_form(tmp_path, form):
    images = stored(tmp_path, form)
    n = len(images.train_y) - 7
    found = read_images(tmp_path, images.name, check=False, n_train=n)
    np.testing.assert_array_equal(found.train_x, images.train_x[:n])
    np.testing.assert_array_equal(found.train_y, images.train_y[:n])
    np.testing.assert_array_equal(found.test_x, images.test_x)
    with pytest.raises(
        ValueError, match=rf"has {n + 7} training images of {images.name}, not {n + 8}"
    ):
        read_images(tmp_path, images.name, check=False, n_train=n + 8)


def test_without_fewer_images_every_batch_must_be_there(tmp_path, monkeypatch):
    stored(tmp_path, "cifar-10-batches-bin")
    declare_official(tmp_path, monkeypatch)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_5.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_5\.bin is missing.*put it there"):
        read_images(tmp_path, "cifar10")


# ---- sums ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_other_files_than_the_official_are_refused(tmp_path, form):
    name = stored(tmp_path, form).name
    with pytest.raises(ValueError, match=r"official.*check=False") as caught:
        read_images(tmp_path, name)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("form", FORMS)
def test_official_sums_are_accepted(tmp_path, form, monkeypatch):
    """Make the tiny files the official ones: each is read, and none after one byte has changed."""
    images = stored(tmp_path, form)
    declare_official(tmp_path, monkeypatch)
    assert_same(read_images(tmp_path, images.name), images)
    for path in files_in(tmp_path):
        raw = path.read_bytes()
        path.write_bytes(raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:])
        with pytest.raises(ValueError, match=r"official|damaged") as caught:
            read_images(tmp_path, images.name)
        assert path.name.removesuffix(".gz") in str(caught.value)
        path.write_bytes(raw)


def declare_official(folder, monkeypatch):
    for path in files_in(folder):
        sum_ = hashlib.md5(path.read_bytes()).hexdigest()
        if path.name in archives.FILES:
            address = archives.FILES[path.name].address
            known = archives.Official(path.name, sum_, path.stat().st_size, address)
            monkeypatch.setitem(archives.FILES, path.name, known)
        name = str(path.relative_to(folder)).removesuffix(".gz")
        monkeypatch.setitem(archives.UNPACKED, name, content_sum(path))


def content_sum(path):
    import gzip

    raw = path.read_bytes()
    return hashlib.md5(gzip.decompress(raw) if path.suffix == ".gz" else raw).hexdigest()


def test_the_table_of_official_files():
    for name in DATASETS:
        assert set(archives.DOWNLOADS[name]) <= set(archives.FILES)
    sums = [each.md5 for each in archives.FILES.values()] + list(archives.UNPACKED.values())
    assert len(set(sums)) == len(sums)
    assert all(len(each) == 32 and set(each) <= set("0123456789abcdef") for each in sums)
    assert {name: len(each) for name, each in archives.CLASSES.items()} == dict(
        cifar10=10, cifar100=100, svhn=10, **{"fashion-mnist": 10}
    )
    assert list(archives.CLASSES["cifar100"]) == sorted(set(archives.CLASSES["cifar100"]))


# ---- what goes wrong -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [form for form in FORMS if not form.endswith(".tar.gz")])
def test_each_missing_file_is_named(tmp_path, form):
    name = stored(tmp_path, form).name
    for path in files_in(tmp_path):
        raw = path.read_bytes()
        path.unlink()
        with pytest.raises(FileNotFoundError) as caught:
            read_images(tmp_path, name, check=False)
        assert path.name.removesuffix(".gz") in str(caught.value)
        path.write_bytes(raw)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kept", [0.0, 0.11, 0.52, 0.99])
def test_truncated_files_are_named(tmp_path, form, kept):
    name = stored(tmp_path, form).name
    for path in files_in(tmp_path):
        raw = path.read_bytes()
        path.write_bytes(raw[: int(kept * len(raw))])
        with pytest.raises(ValueError, match=r"again|official") as caught:
            read_images(tmp_path, name, check=False)
        assert path.name.removesuffix(".gz") in str(caught.value)
        path.write_bytes(raw)


def test_a_broken_download_is_called_so(tmp_path):
    stored(tmp_path, "cifar-10-binary.tar.gz")
    with pytest.raises(ValueError, match=r"of 170052171 bytes, so its download broke off"):
        read_images(tmp_path, "cifar10")


def test_labels_of_other_classes_are_refused(tmp_path):
    images = stored(tmp_path, "idx")
    labels = tmp_path / "train-labels-idx1-ubyte"
    raw = bytearray(labels.read_bytes())
    raw[8 + 3] = 10
    labels.write_bytes(raw)
    with pytest.raises(ValueError, match=r"train_y\[3\] is 10.*0\.\.9"):
        read_images(tmp_path, images.name, check=False)


def test_as_many_labels_as_images(tmp_path):
    stored(tmp_path, "idx", made("fashion-mnist", n_train=12))
    images = (tmp_path / "train-images-idx3-ubyte").read_bytes()
    stored(tmp_path, "idx", made("fashion-mnist", n_train=13))
    (tmp_path / "train-images-idx3-ubyte").write_bytes(images)
    with pytest.raises(ValueError, match=r"train_y has shape \(13,\), but there are 12 images"):
        read_images(tmp_path, "fashion-mnist", check=False)


def test_nothing_there(tmp_path):
    assert available(tmp_path) == available(tmp_path / "nowhere") == []
    for name in DATASETS:
        with pytest.raises(FileNotFoundError, match=rf"no files of {name}.*download\('{name}'"):
            read_images(tmp_path, name)
    with pytest.raises(FileNotFoundError, match=r"nowhere does not exist"):
        read_images(tmp_path / "nowhere", "svhn")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=r"is a file: name the folder"):
        read_images(tmp_path / "file", "svhn")
    with pytest.raises(ValueError, match=r"did you mean 'cifar10'\? There are cifar10, cifar100"):
        read_images(tmp_path, "CIFAR-10")


def test_an_image_set_checks_itself():
    good = made("cifar10")
    parts = {name: getattr(good, name) for name in ARRAYS} | {"classes": good.classes}
    wrong = [
        (TypeError, r"train_x has type float64", {"train_x": good.train_x / 255}),
        (TypeError, r"test_x has type list", {"test_x": [[0]]}),
        (TypeError, r"test_y has type uint8", {"test_y": good.test_y.astype(np.uint8)}),
        (ValueError, r"train_x has shape \(30, 3, 1024\)", {"train_x": good.train_x.reshape(30, 3, -1)}),
        (ValueError, r"test_x has shape \(0, 3", {"test_x": good.test_x[:0], "test_y": good.test_y[:0]}),
        (ValueError, r"train_y has shape \(29,\), but there are 30", {"train_y": good.train_y[1:]}),
        (ValueError, r"train_y\[1\] is 9, but there are 9 classes", {"classes": good.classes[1:]}),
        (ValueError, r"\(3, 32, 32\), but test_x of \(3, 32, 31\)", {"test_x": good.test_x[..., 1:]}),
    ]  # fmt: skip
    for kind, words, change in wrong:
        with pytest.raises(kind, match=words):
            ImageSet("cifar10", **(parts | change))
    assert (good.n_classes, good.shape) == (10, (3, 32, 32))
    assert repr(good) == "ImageSet('cifar10': 30 + 8 images of 3 × 32 × 32, 10 classes)"


def test_the_digest_is_of_the_content():
    images = made("cifar10")
    digests = {images.digest()}
    for name in ARRAYS:
        changed = {each: getattr(images, each).copy() for each in ARRAYS}
        changed[name].flat[-1] ^= 1
        digests.add(ImageSet("cifar10", **changed, classes=images.classes).digest())
    assert len(digests) == 1 + len(ARRAYS)
    assert made("cifar10").digest() == made("cifar10").digest()


def test_reading_loads_no_framework():
    code = (
        "import sys; import refinecal.experiments.vision.images; "
        "print({'torch', 'PIL', 'rich', 'matplotlib', 'pyarrow', 'pandas'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "set()", run.stderr


# ---- validation ------------------------------------------------------------------------------------------


@given(
    n=st.integers(20, 400),
    share=st.floats(0.05, 0.9),
    seed=st.integers(0, 2**40),
)
def test_each_image_is_in_one_part(n, share, seed):
    y = np.zeros(n, dtype=int)
    train, val = validation_split(y, share, seed)
    np.testing.assert_array_equal(np.sort(np.r_[train, val]), np.arange(n))
    assert len(val) == round(share * n)
    again = validation_split(y + 1, share, seed)  # labels do not matter
    np.testing.assert_array_equal(again[0], train)
    np.testing.assert_array_equal(again[1], val)


def test_sizes_of_the_paper():
    for n, n_val in ((50_000, 5_000), (73_257, 7_326)):
        train, val = validation_split(np.zeros(n, int), 0.1, 0)
        assert (len(train), len(val)) == (n - n_val, n_val)


def test_each_image_is_as_likely_for_validation():
    n, draws = 50, 4000
    counts = np.zeros(n)
    for seed in range(draws):
        counts[validation_split(np.zeros(n, int), 0.1, seed)[1]] += 1
    off = (counts - 0.1 * draws) / np.sqrt(draws * 0.1 * 0.9)
    assert np.abs(off).max() < 4.5  # 50 counts: by chance less than once in 3000


@examples(20)
@given(seed=st.integers(0, 1000))
def test_other_seeds_are_other_draws(seed):
    y = np.zeros(300, int)
    assert set(validation_split(y, 0.1, seed)[1]) != set(validation_split(y, 0.1, seed + 1)[1])


def test_splits_that_cannot_be():
    with pytest.raises(TypeError, match=r"y has shape \(2, 2\)"):
        validation_split(np.zeros((2, 2), int))
    with pytest.raises(TypeError, match=r"type float64"):
        validation_split(np.zeros(30))
    for share in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match=r"share is .* between 0 and 1"):
            validation_split(np.zeros(30, int), share)
    with pytest.raises(ValueError, match=r"seed is -1"):
        validation_split(np.zeros(30, int), seed=-1)
    with pytest.raises(ValueError, match=r"y has 4 images, of which 0"):
        validation_split(np.zeros(4, int))
