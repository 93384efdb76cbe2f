"""Results of trainings on images: whole files, read without running anything; and the work itself."""

import json
import pickle
import threading
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_images import write_images
from made_vision import SMALL

from refinecal.experiments.folder import RunFolder
from refinecal.experiments.plan import ImageKey, VisionPlan
from refinecal.experiments.pools import limit_threads
from refinecal.experiments.units import VisionUnit
from refinecal.experiments.vision.images import read_images
from refinecal.experiments.vision.work import Work, checkpoint_of, fingerprint, read_progress

METRICS = ("log_loss", "accuracy", "refinement")


def made(seed=0, epochs=5, n_val=4, n_test=6, k=3, **more):
    """Return a result of no training, in which everything is another number."""
    rng = np.random.default_rng(seed)
    best = {name: int(rng.integers(1, epochs + 1)) for name in METRICS}
    chosen = sorted(set(best.values()))
    history = {
        f"{part}.{name}": rng.normal(size=epochs) for part in ("val", "test") for name in METRICS
    }
    history["val.log_loss"][-1] = np.nan
    given = {
        "key": ImageKey("svhn", "small", 3),
        "recipe": {"epochs": epochs, "schedule": "cosine", "limit_train": None},
        "n_train": 30,
        "n_val": n_val,
        "n_test": n_test,
        "y_val": rng.integers(0, k, n_val),
        "y_test": rng.integers(0, k, n_test),
        "history": history,
        "best": best,
        "val_logits": {each: rng.normal(size=(n_val, k)).astype(np.float32) for each in chosen},
        "test_logits": {each: rng.normal(size=(n_test, k)).astype(np.float32) for each in chosen},
        "seconds": {"training": 1.5, "evaluating": 0.5, "metrics": 0.25},
        "peak_memory": 2**31 + 1,
        "parameters": 77_754,
        "flops": 5_104_000,
    }
    return VisionUnit(**(given | more))


def equal(one, other):
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(
            one, other, equal_nan=one.dtype.kind == "f"
        )
    return type(one) is type(other) and one == other


def same(one, other, but=()):
    return all(
        equal(getattr(one, each.name), getattr(other, each.name))
        for each in fields(VisionUnit)
        if each.name not in but
    )


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(0, 5), st.integers(2, 12))
def test_what_is_written_is_read_again(tmp_path_factory, seed, epochs, n, k):
    unit = made(seed, epochs, n_val=n, n_test=n + 1, k=k)
    path = tmp_path_factory.mktemp("unit") / "unit.npz"
    unit.save(path)
    again = VisionUnit.load(path)
    assert same(again, unit)
    assert again.epochs == epochs
    other = path.with_name("other.npz")
    again.save(other)
    assert other.read_bytes() == path.read_bytes()


def test_a_value_at_a_best_epoch():
    unit = made(best={"refinement": 2}, val_logits={2: np.zeros((4, 3), np.float32)},
                test_logits={2: np.zeros((6, 3), np.float32)})  # fmt: skip
    assert unit.at("test.log_loss", "refinement") == unit.history["test.log_loss"][1]
    assert np.isnan(unit.at("test.log_loss", "brier"))


def test_a_training_that_was_lost_at_once(tmp_path):
    lost = made(
        history={"train.log_loss": np.array([np.nan])},
        best={},
        val_logits={},
        test_logits={},
        stopped="the loss of epoch 1 is nan",
    )
    lost.save(tmp_path / "unit.npz")
    assert same(VisionUnit.load(tmp_path / "unit.npz"), lost)


@pytest.mark.parametrize(
    ("history", "stopped", "diverged"),
    [
        ({"train.log_loss": [np.nan]}, "the training loss of epoch 1 is nan", True),
        ({"train.log_loss": [1.0]}, "the predictions after epoch 1 are not finite numbers", True),
        ({"train.log_loss": [1.0, np.inf], "val.log_loss": [1.0, np.nan]}, "the loss is inf", True),
        (
            {"train.log_loss": [1.0, 1.0], "val.log_loss": [1.0, 2.0]},
            "no better for 1 epochs",
            False,
        ),
        ({"train.log_loss": [1.0, 1.0], "val.log_loss": [1.0, 2.0]}, "", False),
    ],
)
def test_what_diverged_is_told_from_what_patience_ended(history, stopped, diverged, tmp_path):
    arrays = {name: np.array(values) for name, values in history.items()}
    unit = made(history=arrays, best={}, val_logits={}, test_logits={}, stopped=stopped)
    unit.save(tmp_path / "unit.npz")
    assert unit.diverged is diverged
    assert VisionUnit.read_divergence(tmp_path / "unit.npz") == (stopped if diverged else "")


def test_a_file_of_which_only_the_end_is_looked_at_may_be_none(tmp_path):
    (tmp_path / "unit.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match="is not the result of a training run, or it is damaged"):
        VisionUnit.read_divergence(tmp_path / "unit.npz")


@pytest.mark.parametrize(
    ("lr", "patience", "diverged"), [(1e30, None, True), (1e-9, 1, False), (0.01, None, False)]
)
def test_real_trainings_say_how_they_ended(lr, patience, diverged):
    from refinecal.experiments.vision.images import ImageSet
    from refinecal.experiments.vision.training import STOPPING, train
    from refinecal.stopping import RefinementMonitor

    x = np.random.default_rng(0).integers(0, 256, (60, 3, 16, 16), np.uint8)
    y = np.arange(60) % 2
    images = ImageSet("cifar10", x[:40], y[:40], x[40:], y[40:], ("cat", "dog"))
    recipe = replace(SMALL, lr=lr, epochs=4)
    monitor = RefinementMonitor(
        STOPPING[0], also=STOPPING[1:], patience=patience, min_delta=0.5 if patience else 0.0
    )
    with limit_threads(1):
        unit = train(recipe, images, device="cpu", monitor=monitor)
    assert unit.diverged is diverged
    assert bool(unit.stopped) is (diverged or patience is not None)
    assert (unit.epochs < 4) is bool(unit.stopped)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_val": 5}, "y_val does not have 5 images"),
        ({"y_test": np.zeros(2, int)}, "y_test does not have 6 images"),
        ({"best": {"brier": 6}}, r"a best epoch is not in 1\.\.5"),
        ({"best": {"brier": 0}}, r"a best epoch is not in 1\.\.5"),
        ({"val_logits": {}}, "logits of a best epoch are missing"),
        ({"val_logits": {}, "test_logits": {}}, "logits of a best epoch are missing"),
        ({"history": {"a": np.zeros(5), "b": np.zeros(4)}}, "history 'b' does not have 5 epochs"),
    ],
)
def test_what_does_not_fit_together_is_not_written(change, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        replace(made(), **change).save(tmp_path / "unit.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shape", [(4,), (4, 2), (5, 3)])
def test_logits_of_another_shape(shape):
    unit = made()
    first = min(unit.val_logits)
    unit.val_logits[first] = np.zeros(shape, np.float32)
    with pytest.raises(ValueError, match="logits"):
        unit._check()


# ---- files that are something else -------------------------------------------------------------------------


def rewritten(path, **change):
    """Write a result, of which some arrays are others."""
    made().save(path)
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files} | change
    np.savez(path, **{name: each for name, each in arrays.items() if each is not None})


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"\x00" * 100, pickle.dumps(made), json.dumps({}).encode()]
)
def test_what_is_no_result(content, tmp_path):
    path = tmp_path / "unit.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not the result of a training run, or it is damaged"):
        VisionUnit.load(path)


@given(st.data())
def test_a_file_that_was_cut_off(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("unit") / "unit.npz"
    made().save(path)
    raw = path.read_bytes()
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw) - 1))])
    with pytest.raises(ValueError, match="resume the run, which computes it again"):
        VisionUnit.load(path)


def test_a_file_whose_end_is_damaged_is_named(tmp_path):
    path = tmp_path / "unit.npz"
    made().save(path)
    raw, rng = path.read_bytes(), np.random.default_rng(0)
    for at in range(len(raw) - 300, len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ rng.integers(1, 256)]) + raw[at + 1 :])
        said = ""
        try:
            VisionUnit.load(path)  # what is in its names may be wrong, and of no account
        except (ValueError, OSError) as error:
            said = str(error)
        assert not said or "unit.npz" in said


@pytest.mark.parametrize(
    "change",
    [
        {"header.json": None},
        {"header.json": np.frombuffer(b"{}", np.uint8)},
        {"header.json": np.frombuffer(b'{"format": 2}', np.uint8)},
        {"history": np.zeros((2, 5))},
        {"y_val": np.zeros(4)},
        {"y_val": np.array([{}] * 4)},  # a pickle
    ],
)
def test_a_file_with_other_contents(change, tmp_path):
    path = tmp_path / "unit.npz"
    rewritten(path, **change)
    with pytest.raises(ValueError, match="is not the result of a training run, or it is damaged"):
        VisionUnit.load(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        VisionUnit.load(tmp_path / "unit.npz")


# ---- the work ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images"))


def begin(images, path, **more):
    content = {"fashion-mnist": fingerprint(read_images(images, "fashion-mnist", check=False))}
    given = {"epochs": 3, "seeds": 1, "batch": 32, "precision": "float32"} | more
    plan = VisionPlan(("fashion-mnist",), ("small",), folder=images, content=content, **given)
    return RunFolder.create(path, plan)


def test_work_goes_on_from_its_checkpoint_and_leaves_none(images, tmp_path):
    whole, broken = (begin(images, tmp_path / name) for name in ("whole", "broken"))
    (key,) = whole.missing()
    with limit_threads(1):
        Work(whole.plan, whole.path, ("cpu",))(key, whole.unit_path(key))
    unit = VisionUnit.load(whole.unit_path(key))
    assert (unit.key, unit.epochs, unit.n_train + unit.n_val, unit.n_test) == (key, 3, 120, 40)
    assert unit.recipe == whole.plan.recipe("fashion-mnist", "small").to_dict()
    assert not checkpoint_of(whole.path, key).exists()

    class Stop(Exception):
        pass

    def stop(*about):
        if (checkpoint_of(broken.path, key) / "progress.json").exists():
            raise Stop

    work = Work(broken.plan, broken.path, ("cpu",))
    with limit_threads(1), pytest.MonkeyPatch.context() as patch:
        patch.setattr("refinecal.experiments.vision.learner.Learner.learn", _before(stop))
        with pytest.raises(Stop):
            work(key, broken.unit_path(key))
    assert not broken.unit_path(key).exists()
    assert read_progress(broken, [key])[key].epoch == 1
    with limit_threads(1):
        work(key, broken.unit_path(key))
    again = VisionUnit.load(broken.unit_path(key))
    assert same(again, unit, but=("seconds", "peak_memory"))


def _before(stop):
    """Return the method that learns one epoch, but for what happens before it."""
    from refinecal.experiments.vision.learner import Learner

    learn = Learner.learn

    def stopped(self, *about):
        stop()
        return learn(self, *about)

    return stopped


def test_other_images_than_planned_are_refused(images, tmp_path):
    folder = begin(images, tmp_path / "run")
    plan = replace(folder.plan, folder=str(write_images(tmp_path / "other", seed=1)))
    (key,) = folder.missing()
    with pytest.raises(ValueError, match="not those with which the run was started"):
        Work(plan, folder.path, ("cpu",))(key, folder.unit_path(key))


def test_each_training_has_a_device_of_its_own(images, tmp_path):
    folder = begin(images, tmp_path / "run", seeds=5)
    (folder.path / "checkpoints").mkdir()
    work = Work(folder.plan, folder.path, ("cuda:0", "cuda:1"))
    first, second, third, *_ = folder.missing()
    with work._device(first) as one:
        with work._device(third) as other:
            assert {one, other} == {"cuda:0", "cuda:1"}
            done = threading.Event()
            waiting = threading.Thread(target=lambda: _use(work, second, done))
            waiting.start()
            assert not done.wait(0.3)  # until one is free
        waiting.join()
        assert done.is_set()


def _use(work, key, done):
    with work._device(key):
        done.set()
