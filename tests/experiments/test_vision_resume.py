"""Trainings on images that are killed and go on, and trainings in several processes."""

import errno
import json
import os
import shutil
import socket
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from command_runs import HANGING, kill, started, wait_for
from made_images import pictures, write_images
from made_vision import SMALL, assert_same
from torch.nn.functional import cross_entropy

from refinecal.experiments.folder import RunFolder
from refinecal.experiments.plan import VisionPlan
from refinecal.experiments.units import VisionUnit
from refinecal.experiments.vision.hardware import Devices
from refinecal.experiments.vision.images import read_images
from refinecal.experiments.vision.learner import AUGMENTATION, NAME, CheckpointFile, Learner
from refinecal.experiments.vision.networks import new_network
from refinecal.experiments.vision.training import split, train
from refinecal.experiments.vision.work import checkpoint_of, fingerprint

SCRIPT = """
import json, os, sys, numpy, torch
torch.set_num_threads(1)
from refinecal.experiments.vision.images import ImageSet
from refinecal.experiments.vision.recipe import Recipe
from refinecal.experiments.vision.training import train
folder, recipe, ranks = sys.argv[1:]
images = ImageSet("cifar10", **numpy.load(f"{folder}/images.npz"), classes=("a", "b", "c"))
if ranks == "2":
    import accelerate, torch._dynamo, torch.distributed.tensor  # which takes seconds: once for both
    other = os.fork()
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = "0" if other else "1"
name = os.environ.get("RANK", "0")
unit = train(Recipe(**json.loads(recipe)), images, seed=4, device="cpu", checkpoint=f"{folder}/state")
unit.save(f"{folder}/unit-{name}.npz")
if ranks == "2":
    from refinecal.experiments.folder import RunFolder
    from refinecal.experiments.vision.learner import Learner
    from refinecal.experiments.vision.work import Ranks
    from refinecal.experiments.units import VisionUnit
    save, step = VisionUnit.save, Learner.step
    def save_most(unit, path):
        if unit.key.seed == 2:
            raise PermissionError("it cannot be written")
        save(unit, path)
    def die(learner, batch, random):
        os._exit(0)
    VisionUnit.save, told = save_most, []
    several, run = Ranks("cpu"), RunFolder(f"{folder}/run")
    *most, last = run.plan.units()
    several.run(most, run, lambda state: told.append((state.finished, state.failed)))
    if not other:
        Learner.step = die
    try:
        several.run([last], run, lambda state: None)
    except ConnectionError as error:
        with open(f"{folder}/end.json", "w") as file:
            json.dump([told, str(error)], file)
    os.waitpid(other, 0)
"""


CPU = torch.device("cpu")


class Killed(BaseException):
    """Stands for the end of a process."""


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# The fourth checkpoint is written, but never takes the place of the third.
HALTING = """
import os, time
from types import SimpleNamespace
from refinecal._core import files
replaced = []

def replace(part, target):
    replaced.append(target)
    if len(replaced) == 4:
        time.sleep(600)
    os.replace(part, target)

files.os = SimpleNamespace(**{**vars(os), "replace": replace})
"""


def start(folder, recipe, images, ranks=1, before="", **environment):
    """Train in a process of its own, or in two of them."""
    parts = ("train_x", "train_y", "test_x", "test_y")
    np.savez(folder / "images.npz", **{part: getattr(images, part) for part in parts})
    known = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    return started(
        before + SCRIPT, folder, json.dumps(recipe.to_dict()), ranks, env=known, stdout=None
    )


def dying(step, moments):
    """Return a step of training that dies after so many."""
    left = [moments]

    def dies(self, batch, random):
        if not left[0]:
            raise Killed
        left[0] -= 1
        return step(self, batch, random)

    return dies


# ---- killed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "changes"),
    [(1, {}), (2, {}), (1, {"optimizer": "adamw", "schedule": "constant", "lr": 0.003})],
)
def test_killed_at_any_step_a_training_ends_as_it_would_have(tmp_path, monkeypatch, every, changes):
    """It dies after 1, 2, 3 ... steps, again and again, until it comes to its end."""
    images, recipe = pictures(), replace(SMALL, epochs=4, **changes)  # of 4 steps each
    expected = train(recipe, images, seed=4, device="cpu")
    step = Learner.step
    for moments in range(1, 99):
        monkeypatch.setattr(Learner, "step", dying(step, moments))
        try:
            found = train(recipe, images, 4, device="cpu", checkpoint=tmp_path, every=every)
        except Killed:
            continue
        break
    assert moments > 4
    assert_same(found, expected)


@pytest.mark.slow
def test_killed_by_the_system_a_training_ends_as_it_would_have(tmp_path):
    images, recipe = pictures(120, 21, 12), replace(SMALL, epochs=5)
    checkpoint = CheckpointFile(tmp_path / "state")
    with start(tmp_path, recipe, images, before=HALTING) as process:
        wait_for(lambda: checkpoint.path.exists() and checkpoint._read().epoch == 3, process)
        wait_for(lambda: list(checkpoint.path.parent.glob(".*.part*")), process)
        kill(process)
    assert checkpoint._read().epoch == 3
    found = train(recipe, images, seed=4, device="cpu", checkpoint=tmp_path / "state")
    assert_same(found, train(recipe, images, seed=4, device="cpu"))
    assert found.seconds["training"] > 0


def test_a_finished_training_is_not_trained_again(tmp_path, monkeypatch):
    images = pictures()
    expected = train(SMALL, images, device="cpu", checkpoint=tmp_path)
    monkeypatch.setattr(Learner, "step", dying(Learner.step, 0))
    assert_same(train(SMALL, images, device="cpu", checkpoint=tmp_path), expected)


def test_files_that_were_being_written_are_removed(tmp_path):
    images, recipe = pictures(), replace(SMALL, epochs=1)
    left = tmp_path / ".training.0a1b2c3d.part.npz"
    left.write_bytes(b"half")
    train(recipe, images, device="cpu", checkpoint=tmp_path)
    assert os.listdir(tmp_path) == [NAME]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"lr": 0.5}, "lr was 0.02, now 0.5"),
        ({"epochs": 9}, "epochs was 1, now 9"),
        ({"optimizer": "adamw"}, "optimizer was None, now 'adamw'"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(tmp_path, changed, words):
    recipe = replace(SMALL, epochs=1)
    train(recipe, pictures(), device="cpu", checkpoint=tmp_path)
    with pytest.raises(ValueError, match=f"another training.*{words}.*delete it to start over"):
        train(replace(recipe, **changed), pictures(), device="cpu", checkpoint=tmp_path)


def test_a_checkpoint_of_other_images_or_another_seed_is_refused(tmp_path):
    recipe = replace(SMALL, epochs=1)
    train(recipe, pictures(), device="cpu", checkpoint=tmp_path)
    for images, seed, words in ((pictures(seed=1), 0, "images was"), (pictures(), 1, "seed was 0")):
        with pytest.raises(ValueError, match=words):
            train(recipe, images, seed, device="cpu", checkpoint=tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"\x08\0\0\0\0\0\0\0{}      ", b"PK\x03\x04" + bytes(100)]
)
def test_a_damaged_checkpoint_is_refused(tmp_path, content):
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(ValueError, match="damaged.*delete it to start over"):
        train(SMALL, pictures(), device="cpu", checkpoint=tmp_path)


def test_half_a_checkpoint_is_refused(tmp_path):
    train(replace(SMALL, epochs=1), pictures(), device="cpu", checkpoint=tmp_path)
    whole = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="damaged"):
        train(replace(SMALL, epochs=1), pictures(), device="cpu", checkpoint=tmp_path)


def test_a_checkpoint_with_a_single_wrong_bit_is_refused(tmp_path):
    recipe = replace(SMALL, epochs=1)
    train(recipe, pictures(), device="cpu", checkpoint=tmp_path)
    raw = (tmp_path / NAME).read_bytes()
    with zipfile.ZipFile(tmp_path / NAME) as archive:
        large = [each for each in archive.infolist() if each.file_size > 2_000]  # tensors
    for place, each in zip(np.random.default_rng(0).uniform(size=20), large, strict=False):
        at = each.header_offset + 200 + int(place * (each.file_size - 200))
        (tmp_path / NAME).write_bytes(raw[:at] + bytes([raw[at] ^ 0x40]) + raw[at + 1 :])
        with pytest.raises(ValueError, match="damaged.*Bad CRC-32"):
            train(recipe, pictures(), device="cpu", checkpoint=tmp_path)
    (tmp_path / NAME).write_bytes(raw.replace(b'"epoch": 1', b'"epoch": 9'))
    with pytest.raises(ValueError, match="damaged.*Bad CRC-32"):
        train(recipe, pictures(), device="cpu", checkpoint=tmp_path)
    (tmp_path / NAME).write_bytes(raw)
    train(recipe, pictures(), device="cpu", checkpoint=tmp_path)


def test_want_of_room_for_a_checkpoint_is_an_error_of_the_system(tmp_path):
    """Which ends a run, instead of failing all of its trainings one by one."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match=NAME) as caught:
            train(replace(SMALL, epochs=1), pictures(), device="cpu", checkpoint=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert os.listdir(tmp_path) == []


def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / NAME).mkdir()
    with pytest.raises(OSError, match=NAME):
        train(SMALL, pictures(), device="cpu", checkpoint=tmp_path)


def test_a_checkpoint_needs_a_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="which is a file: pass a folder"):
        train(SMALL, pictures(), device="cpu", checkpoint=tmp_path / "file")


@pytest.mark.parametrize("place", ["/proc/x/y", "file/state"])
def test_a_checkpoint_needs_a_place(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=rf"checkpoint is {place}, where no folder can be created \("):
        train(SMALL, pictures(), device="cpu", checkpoint=place)


# ---- the networks of the paper ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "n", "batch", "precision"),
    [
        ("resnet18", 240, 64, "float32"),
        ("wrn28-10", 240, 72, "auto"),
    ],
)
def test_networks_of_the_paper_learn_and_resume(tmp_path, model, n, batch, precision):
    images = pictures(n, 10, 8, n_classes=10)
    recipe = replace(SMALL, model=model, epochs=2, batch=batch, precision=precision)

    def keep(epoch, epochs):
        if epoch == 1:
            shutil.copytree(tmp_path / "whole", tmp_path / "killed")

    whole = train(recipe, images, device="cpu", checkpoint=tmp_path / "whole", progress=keep)
    assert all(logits.shape == (10, 10) for logits in whole.test_logits.values())
    assert whole.history["train.log_loss"].shape == (2,)
    assert whole.stopped == ""
    assert_same(train(recipe, images, device="cpu", checkpoint=tmp_path / "killed"), whole)

    state, first = CheckpointFile(tmp_path / "whole")._read(), new_network(model, 10, 3, 0)
    for name, parameter in first.named_parameters():
        assert torch.isfinite(state.net[name]).all()
        assert not torch.equal(state.net[name], parameter), f"{name} has not learned"
        assert state.momentum[name].abs().max() > 0


# ---- several processes ------------------------------------------------------------------------------------


class Half(Devices):
    """One of two processes that do not know of each other."""

    size = 2

    def __init__(self, rank):
        super().__init__(CPU)
        self.rank = rank


@pytest.mark.slow
def test_two_processes_train_one_network(tmp_path):
    """They give the weights of one process that averages the gradients of both halves itself."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    images, recipe = pictures(73, 21, 16), replace(SMALL, epochs=2)
    run = made_run(tmp_path)
    with start(tmp_path, recipe, images, 2, **shared) as process:
        _, errors = process.communicate(timeout=HANGING)
    assert process.returncode == 0, errors
    one, other = (VisionUnit.load(tmp_path / f"unit-{rank}.npz") for rank in range(2))
    assert_same(one, other)
    assert (one.n_train, one.n_val, one.n_test) == (66, 7, 21)  # 32 + 34, and odd numbers

    rows, val = split(images.train_y, recipe, 4)
    halves = [
        Learner(recipe, images.train_x, images.train_y, rows, 3, 4, Half(rank)) for rank in range(2)
    ]
    for epoch in (1, 2):
        averaged_epoch(halves, epoch)
    state = CheckpointFile(tmp_path / "state")._read()
    for name, value in halves[0].net.state_dict().items():
        torch.testing.assert_close(state.net[name], value, rtol=1e-4, atol=1e-6)
    assert state.epoch == 2
    assert state.task["processes"] == 2

    alone = Learner(recipe, images.train_x, images.train_y, rows, 3, 4, Devices(CPU))
    alone.load(state.net, state.momentum)
    if 2 in one.val_logits:  # all rows, each once and in their order
        np.testing.assert_allclose(one.val_logits[2], alone.logits(alone.x, val), atol=1e-5)
        test = alone.logits(torch.from_numpy(images.test_x))
        np.testing.assert_allclose(one.test_logits[2], test, atol=1e-5)
    assert json.dumps(one.recipe) == json.dumps(recipe.to_dict())
    _check_run_in_which_some_failed(run, *json.loads((tmp_path / "end.json").read_text()))


def made_run(path):
    """Begin a run of four trainings, of which the first has a checkpoint that is damaged."""
    write_images(path / "images")
    content = fingerprint(read_images(path / "images", "fashion-mnist", check=False))
    given = {"folder": path / "images", "content": {"fashion-mnist": content}, "limit_train": 60}
    given |= {"epochs": 1, "batch": 32, "precision": "float32"}
    run = RunFolder.create(
        path / "run", VisionPlan(("fashion-mnist",), ("small",), seeds=4, **given)
    )
    damaged = checkpoint_of(run.path, run.missing()[0])
    damaged.mkdir(parents=True)
    (damaged / NAME).write_bytes(b"")
    return run


def _check_run_in_which_some_failed(run, told, said):
    """An error is recorded once, wherever it was, and the next training goes on; a death ends all."""
    first, second, third, last = run.plan.units()
    assert run.finished() == [second]
    assert run.missing() == [last]
    everywhere, in_one = (run.failed()[key] for key in (first, third))
    assert (everywhere["kind"], in_one["kind"]) == ("ValueError", "PermissionError")
    assert "damaged" in everywhere["message"]
    assert all("Traceback" in each["traceback"] for each in (everywhere, in_one))
    assert told == [[0, 1], [0, 1], [1, 1], [1, 1], [1, 2]]  # after each epoch, and at the end
    assert "a process that trains with this one has died" in said
    assert "--resume" in said


def averaged_epoch(halves, epoch):
    """Train both halves as two processes do: gradients are averaged, the first one's statistics count."""
    randoms = [half._random(epoch, AUGMENTATION) for half in halves]
    for half in halves:
        half.net.train()
        half.optimizer.param_groups[0]["lr"] = half.recipe.rate(epoch)
    for batch in halves[0]._batches(epoch):
        halves[1].net.load_state_dict(halves[0].net.state_dict())
        for half, random_numbers in zip(halves, randoms, strict=True):
            mine = batch[half.devices.rank :: 2]
            seen = half._input(half._augment(half.x[mine], random_numbers))
            half.optimizer.zero_grad()
            loss = cross_entropy(half.net(seen), half.y[mine], reduction="sum")
            (loss / len(batch)).backward()
        pairs = zip(*(half.net.parameters() for half in halves), strict=True)
        for one, other in pairs:
            one.grad += other.grad  # of the mean over the whole batch
        halves[0].optimizer.step()
