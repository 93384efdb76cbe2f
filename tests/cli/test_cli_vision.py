"""``refinecal experiment vision``: a few images, trained, stopped in the middle, resumed, refused."""

import json
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command_runs import HALTING, interrupt, run_command, started, wait_for
from made_images import made, stored, write_images
from rich.console import Console as RichConsole

from refinecal.cli._console import ESCAPES, Console
from refinecal.cli.experiment import experiment_app
from refinecal.cli.experiment_vision import (
    EpochProgress,
    ImageFiles,
    _threads,
    open_run,
    parse_augmentation,
    parse_devices,
)
from refinecal.experiments import running
from refinecal.experiments.folder import RunFolder
from refinecal.experiments.plan import AUGMENTATION, NO_AUGMENTATION, Plan, VisionPlan
from refinecal.experiments.pools import limit_threads
from refinecal.experiments.report import write_tables
from refinecal.experiments.results import read_results
from refinecal.experiments.running import State
from refinecal.experiments.units import VisionUnit
from refinecal.experiments.vision import work as under_way
from refinecal.experiments.vision.image_analysis import Analysis
from refinecal.experiments.vision.images import read_images
from refinecal.experiments.vision.training import train
from refinecal.experiments.vision.work import (
    ProgressWriter,
    Ranks,
    Work,
    checkpoint_of,
    fingerprint,
)

run = partial(run_command, experiment_app)

FEW = ("--data", "images", "--no-check", "--dataset", "fashion-mnist", "--model", "small")
QUICK = (*FEW, "--batch", 32, "--threads", 1, "--precision", "float32", "--device", "cpu")
ONE = ("--epochs", 1, "--seeds", 1)
GO_ON = ("--out", "run", "--resume", "--device", "cpu")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_images("images")


def begun(path="run", sets=("fashion-mnist",), **more):
    """Return a run of which nothing is computed yet."""
    content = {name: fingerprint(read_images("images", name, check=False)) for name in sets}
    given = {
        "epochs": 2,
        "seeds": 2,
        "batch": 32,
        "precision": "float32",
        "content": content,
    } | more
    plan = VisionPlan(sets, ("small",), folder=str(Path("images").resolve()), **given)
    return RunFolder.create(path, plan)


def histories(path):
    """Return what was computed, of every training."""
    folder = RunFolder(path)
    units = [VisionUnit.load(folder.unit_path(key)) for key in folder.finished()]
    return [
        (each.key, each.best, {name: list(v) for name, v in each.history.items()}) for each in units
    ]


def differences(path, other):
    """Tell each number that is another one in the other run."""
    for (key, best, history), (same, others_best, others) in zip(
        histories(path), histories(other), strict=True
    ):
        assert (key, best) == (same, others_best)
        for name, values in history.items():
            for epoch, (one, two) in enumerate(zip(values, others[name], strict=True), 1):
                if one != two:
                    yield str(key), name, epoch, float(one), float(two)


# ---- a run -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_interrupted_and_made_larger_a_run_comes_to_what_one_planned_so_would_have():
    given = {"epochs": 12, "seeds": 1, "schedule": "cosine", "weight_decay": 0.0}
    given |= {"limit_train": 60} | NO_AUGMENTATION
    stored(Path("images"), "mat", made("svhn", 60, 20))
    whole = begun("whole", sets=("svhn", "fashion-mnist"), **given)
    _, key = whole.missing()
    work = Work(whole.plan, whole.path.resolve(), ("cpu",))
    running.run(whole.missing(), work, whole, processes=1)  # in a process of its own, as below
    plain = ("--schedule", "cosine", "--weight-decay", 0, "--augment", "none")
    few = ("--epochs", 12, "--seeds", 1, "--limit", 60)
    command = ("vision", *QUICK, *few, *plain, "--out", "run")
    with started(HALTING, 1, "checkpoints/*/progress.json", *command) as process:
        wait_for((checkpoint_of(Path("run"), key) / "progress.json").exists, process)
        out, err = interrupt(process)
    assert process.returncode == 130, (out, err)
    assert "1 data set × 1 network × 1 seed = 1 training run of 12 epochs" in out
    assert "On cpu, in float32, with 1 thread each" in out
    assert err.splitlines() == [
        "interrupted; finished epochs are kept; resume with: "
        "refinecal experiment vision --out run --resume --device cpu"
    ]
    assert not list(Path("run").rglob(".*"))
    _check_status_of_what_is_under_way()
    sets = "svhn,fashion-mnist"  # the new one is looked for where the other one is
    out, err = run("vision", *GO_ON, "--dataset", sets, "--no-check")
    assert "run had 1 training run; more are added" in out
    assert RunFolder("run").plan == whole.plan
    assert "run: 2 of 2 training runs finished" in out
    assert "refinecal experiment report run" in out
    assert err == ""
    assert not Path("run/checkpoints").exists()
    assert list(differences("run", "whole")) == []
    assert tables("run") == tables("whole")
    _check_status_of_what_is_finished()


def _check_status_of_what_is_under_way():
    out, _ = run("status", "run")
    assert "run: 0 of 1 training run finished, 1 left: about" in out  # by the epochs that it had
    assert "small on fashion-mnist, seed 0: " in out
    assert "of 12 epochs" in out
    assert "Resume:  refinecal experiment vision --out run --resume" in out


def _check_status_of_what_is_finished():
    found = json.loads(run("status", "run", "--json")[0])
    assert (found["kind"], found["finished"], found["missing"]) == ("vision", 2, 0)
    assert (found["width"], found["under_way"], found["seconds_left"]) == (1, [], 0)
    assert [each["method"] for each in found["methods"]] == [
        "small on svhn",
        "small on fashion-mnist",
    ]
    assert all(each["mean_seconds"] > 0 for each in found["methods"])


def test_one_training_by_several_processes_is_done_once():
    """With one process, which does what is to be done once."""
    from accelerate.state import AcceleratorState, PartialState

    folder, told = begun(seeds=1), []
    try:
        ranks = Ranks("cpu")
        assert (ranks.is_first, ranks.size) == (True, 1)
        assert ranks.open_run(folder.path, lambda: folder) is folder
        ranks.run(
            folder.missing(), folder, lambda state: told.append((state.finished, len(state.left)))
        )
    finally:
        AcceleratorState._reset_state()
        PartialState._reset_state()
    assert told == [(0, 1), (0, 1), (1, 0)]  # after each epoch, and at the end
    assert folder.missing() == []
    assert list((folder.path / "checkpoints").iterdir()) == []
    assert [each["where"] for each in folder.sessions()] == ["together"]
    assert histories("run")[0][2]["val.log_loss"][0] > 0


# ---- what goes wrong ---------------------------------------------------------------------------------------


def test_what_failed_is_told_and_tried_again_on_demand():
    folder = begun(seeds=1)
    (key,) = folder.missing()
    folder.unit_path(key).write_bytes(b"PK cut off")
    write_images("images", seed=1)
    out, err = run("vision", *GO_ON, code=3)
    assert f"1 damaged result will be computed again: {key}" in err
    assert "failed: small on fashion-mnist, seed 0: ValueError: the images of fashion-mnist" in err
    assert "run: 0 of 1 training run finished, 1 failed" in out
    assert "1 training run failed (small on fashion-mnist): ValueError" in " ".join(out.split())
    assert "refinecal experiment vision --out run --resume --retry-failed" in out
    assert "0 to do" in run("vision", *GO_ON, code=3)[0]
    out, err = run("vision", *GO_ON, "--retry-failed", code=3)  # it still is not what it was
    assert "0 to do" not in out
    assert "failed: small on fashion-mnist" in err


def test_damaged_results_count_as_missing():
    folder = begun()
    first, _ = folder.missing()
    folder.unit_path(first).write_bytes(b"PK cut off")
    found = json.loads(run("status", "run", "--json")[0])
    assert (found["finished"], found["missing"], found["damaged"]) == (0, 2, 1)
    assert (
        "run: 0 of 2 training runs finished, 2 left (1 result damaged)" in run("status", "run")[0]
    )


def test_of_images_that_are_gone_the_cure_is_named():
    folder = begun(seeds=1)
    why = "no files of fashion-mnist: " + "put them there, " * 20 + "or get them"
    folder.record_failure(*folder.missing(), {"kind": "FileNotFoundError", "message": why})
    out, _ = run("status", "run")
    assert "or get them" in " ".join(out.split())  # the whole reason
    assert "Retry, with the folder in which the images are now:" in out
    assert "vision --out run --resume --data NEWFOLDER --retry-failed" in " ".join(out.split())


def test_images_that_moved_are_named_anew():
    begun()
    Path("images").rename("moved")
    given = ("--no-check", "--threads", 2)  # so that nothing is trained
    _, err = run("vision", *GO_ON, "--data", "moved", *given, code=1)
    assert "--threads: 1, now 2" in err
    assert "has other images" not in err
    write_images("moved", seed=1)
    _, err = run("vision", *GO_ON, "--data", "moved", "--no-check", code=1)
    assert "fashion-mnist has other images: 120+40 images" in err


def test_part_of_the_images_is_the_same_for_everyone():
    run("vision", "--out", "part", *QUICK, *ONE, "--train-images", 100)
    folder = RunFolder("part")
    content = folder.plan.content["fashion-mnist"]
    expected = read_images("images", "fashion-mnist", check=False, n_train=100)
    assert content == fingerprint(expected)
    assert content.startswith("100+40 images")
    assert "limit_train" not in content
    more = ("--out", "part", "--resume", "--device", "cpu", "--seeds", 2)
    run("vision", *more, "--data", "images", "--no-check")  # as many as before
    assert RunFolder("part").plan.content == folder.plan.content
    assert len(RunFolder("part").finished()) == 2
    _, err = run("vision", *more, "--no-check", "--train-images", 90, code=1)
    assert "fashion-mnist has other images: 100+40 images" in err
    _, err = run("vision", "--out", "new", *QUICK, *ONE, "--train-images", 121, code=1)
    assert "has 120 training images of fashion-mnist, not 121: use fewer" in " ".join(err.split())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--seeds", 1), "--seeds: 2, now 1"),
        (("--epochs", 9), "--epochs: 2, now 9"),
        (("--augment", "crop,flip"), "--augment (cutout): 16, now 0"),
        (("--model", "resnet18"), "--model: small, now resnet18"),
        (("--model", "resnet18"), "or name all models: --model small,resnet18"),
        (("--limit", 50), "--limit: not given, now 50"),
    ],
)
def test_another_plan_is_explained(change, said):
    begun()
    _, err = run("vision", *GO_ON, *change, code=1)
    assert "started with another plan" in err
    assert said in " ".join(err.split())
    assert "A run can get more data sets, models and seeds" in " ".join(err.split())


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("crop,flip,cutout", (4, True, 16)),
        ("cutout, crop", (4, False, 16)),
        ("flip", (0, True, 0)),
        ("none", (0, False, 0)),
    ],
)
def test_what_is_done_to_images_is_a_list(text, fields):
    found = parse_augmentation(text)
    assert (found["crop"], found["flip"], found["cutout"]) == fields
    assert parse_augmentation(None) == {}


def test_the_papers_augmentation_is_the_default():
    plan = VisionPlan(("cifar10",))
    assert {name: getattr(plan, name) for name in AUGMENTATION} == AUGMENTATION


@pytest.mark.parametrize("is_fast", [True, False])
def test_the_precision_is_chosen_once(monkeypatch, is_fast):
    """A run that was started on one machine goes on with its precision on another."""
    devices = "refinecal.experiments.vision.hardware"
    monkeypatch.setattr(f"{devices}._is_fast_at_bfloat16", lambda device: is_fast)
    expected = "bfloat16" if is_fast else "float32"
    files = ImageFiles(Path("images"), check=False)
    begin = partial(open_run, Console(quiet=True), Path("run"), files)
    given = {"datasets": ("fashion-mnist",), "models": ("small",), "epochs": 2, "seeds": 1}
    folder = begin(given, False, 1, ("cpu",))
    assert folder.plan.precision == expected
    assert json.loads(Path("run/plan.json").read_text())["precision"] == expected
    monkeypatch.setattr(f"{devices}._is_fast_at_bfloat16", lambda device: not is_fast)
    for more in ({}, {"precision": "auto"}, {"precision": expected}):
        assert begin(more, True, 1, ("cpu",)).plan == folder.plan
    with pytest.raises(ValueError, match=f"--precision: {expected}, now "):
        begin({"precision": "float32" if is_fast else "bfloat16"}, True, 1, ("cpu",))


def test_half_a_training_goes_on_with_the_precision_of_its_run(monkeypatch):
    """It is announced, too, and it is the checkpoint's."""
    fast = "refinecal.experiments.vision.hardware._is_fast_at_bfloat16"
    monkeypatch.setattr(fast, lambda device: True)
    folder = begun(seeds=1, precision="bfloat16")
    (key,) = folder.missing()
    images = read_images("images", "fashion-mnist", check=False)

    def stop(epoch, epochs):
        raise InterruptedError

    recipe = folder.plan.recipe("fashion-mnist", "small")
    with pytest.raises(InterruptedError), limit_threads(1):
        train(
            recipe, images, device="cpu", checkpoint=checkpoint_of(folder.path, key), progress=stop
        )
    monkeypatch.setattr(fast, lambda device: False)
    trained(folder)
    assert VisionUnit.load(folder.unit_path(key)).recipe["precision"] == "bfloat16"
    assert "On cpu, in bfloat16, with 1 thread each" in run("vision", *GO_ON)[0]


def test_a_run_does_not_grow_by_images_that_are_not_there():
    folder = begun()
    _, err = run("vision", *GO_ON, "--dataset", "fashion-mnist,svhn", code=1)
    assert "train_32x32.mat" in err
    assert RunFolder("run").plan == folder.plan


def trained(folder):
    """Train all that is missing, here and now."""
    with limit_threads(1):
        for key in folder.missing():
            Work(folder.plan, folder.path, ("cpu",))(key, folder.unit_path(key))


def tables(path):
    """Return what a report would write, as bytes; but for what depends on the clock."""
    Path("tables").mkdir(exist_ok=True)
    paths = write_tables(Analysis(read_results(path)).tables(), Path("tables"))
    return {each.name: each.read_bytes() for each in paths if each.stem != "costs"}


def test_runs_of_the_other_experiment_are_refused():
    RunFolder.create("tables", Plan(({"name": "adult"},), ("mlp",)))
    _, err = run("vision", "--out", "tables", "--resume", code=1)
    assert "holds a run of the tabular experiment, not of the vision one" in err
    begun()
    _, err = run("tabular", "--out", "run", "--resume", code=1)
    assert "holds a run of the vision experiment, not of the tabular one" in err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "no images are given: name their folder with --data"),
        (("--resume",), "run has no run to resume: omit --resume to start one"),
        ((*FEW, "--resume"), "run has no run to resume: omit --resume to start one"),
        (
            ("--data", "nowhere"),
            "nowhere does not exist: name the folder that holds the images, or get them with --download",
        ),
        (
            ("--data", "images"),
            "images has no files of cifar10: put cifar-10-binary.tar.gz or cifar-10-python.tar.gz "
            "there, or into images/cifar10, or get them with --download",
        ),
        ((*FEW[:2], *FEW[3:]), "MD5"),
        ((*FEW[:2], *FEW[3:]), "If you trust it, pass --no-check"),
        ((*FEW, "--limit", 121), "--limit is 121, but fashion-mnist has 120 training images"),
        ((*FEW, "--lr", 0), "--lr is 0.0: it must be above 0"),
        ((*FEW, "--lr", "nan"), "--lr is nan: it must be above 0"),
        (
            (*FEW, "--weight-decay", "inf"),
            "--weight-decay is inf: it must be at least 0 and finite",
        ),
        ((*FEW, "--lr", "inf"), "--lr is inf: it must be above 0 and finite"),
        ((*FEW, "--seeds", 10**12), "--seeds is 1000000000000: it must be at most 100000"),
        (
            (*FEW, "--batch", 10**20),
            "--batch is 100000000000000000000: it must be at least 1 and at most",
        ),
        ((*FEW, "--limit", 2), "--limit is 2, of which 0 would be for validation: take more"),
        ((*FEW, "--limit", 5), "--limit is 5, of which 0 would be for validation: take more"),
        ((*FEW, "--limit", 6), "with seed 0 the validation images (1) are all of one class"),
    ],
)
def test_what_cannot_be_run(given, said):
    _, err = run("vision", "--out", "run", *given, code=1)
    assert said in err
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--dataset", "cifar-10"), "Did you mean 'cifar10'?"),
        (("--model", "resnet"), "Did you mean 'resnet18'?"),
        (("--model", ","), "name at least one"),
        (
            ("--schedule", "cosin"),
            "--schedule: 'cosin' is not one of step, cosine, constant. Did you mean 'cosine'?",
        ),
        (("--schedule", "step,cosine"), "'step,cosine' is not one of step, cosine, constant"),
        (
            ("--precision", "float16"),
            "--precision: 'float16' is not one of auto, float32, bfloat16",
        ),
        (("--device", "meta"), "torch has no device 'meta' here"),
        (
            ("--augment", "crops"),
            "'crops' is not one of crop, flip, cutout, none. Did you mean 'crop'?",
        ),
        (("--augment", "none,crop"), "'none' excludes the others"),
        (("--device", "cuda:77"), "torch has no device 'cuda:77' here: there"),
        (("--device", "abacus"), "torch has no device 'abacus'"),
        (("--device", " "), "name at least one"),
        (("--epochs", 0), "--epochs"),
        (("--retry-failed",), "needs --resume"),
    ],
)
def test_wrong_usage(given, said):
    _, err = run("vision", "--data", "images", "--out", "run", *given, code=2)
    assert said in err
    assert "mean 'bfloat16'" not in err  # which float16 is not
    assert not Path("run").exists()


@pytest.mark.parametrize("out", ["/proc/x/y", "images/train-labels-idx1-ubyte.gz/run"])
def test_a_place_where_no_run_can_be(out):
    _, err = run("vision", *QUICK, "--out", out, code=1)
    said = " ".join(err.split())
    assert f"--out is {out}, where no folder can be created (" in said
    assert "name one in a writable place" in said


def test_losses_that_are_not_numbers_count_as_no_success():
    with pytest.warns(UserWarning, match="the training loss of epoch 1 is"):
        trained(begun(seeds=1, lr=1e30))
    run("vision", *GO_ON, code=3)
    assert json.loads(run("status", "run", "--json")[0])["ended_early"] == 1


def test_a_folder_that_is_there_is_refused():
    begun()
    _, err = run("vision", *QUICK, "--out", "run", code=1)
    assert "holds a run already: continue it with --resume" in err


def test_what_is_running_is_left_alone():
    folder = begun()
    (key, _) = folder.missing()
    checkpoint = checkpoint_of(folder.path, key)
    checkpoint.mkdir(parents=True)
    part = checkpoint / ".training.1.part.npz"
    part.touch()
    with folder.lock():
        assert "running now" in run("status", "run")[0]
        _, err = run("vision", *GO_ON, code=1)
    assert "another process is running the experiment" in err
    assert part.exists()


def test_downloads_come_from_the_official_addresses_and_say_if_there_is_no_network(monkeypatch):
    asked = []

    def no_network(name, folder, progress):
        asked.append((name, Path(folder), progress))
        raise ConnectionError(f"{name}: no network")

    monkeypatch.setattr("refinecal.experiments.vision.images.download", no_network)
    _, err = run("vision", "--data", "new", "--download", "--out", "run", code=1)
    assert "cifar10: no network" in err
    assert asked == [("cifar10", Path("new"), False)]  # a bar is for a terminal
    assert not Path("run").exists()


# ---- progress ----------------------------------------------------------------------------------------------


def test_the_bar_counts_epochs(monkeypatch):
    folder = begun(epochs=100, seeds=4)
    first, second, *_ = folder.missing()
    checkpoint_of(folder.path, second).mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(under_way, "time", SimpleNamespace(perf_counter=lambda: 52.0))
        ProgressWriter(checkpoint_of(folder.path, second), clock=50.0)(25, 100)
    state = State(4, finished=1, left={*folder.missing()} - {first}, rates=folder.rates())
    console, written = Console(), StringIO()
    console.err = RichConsole(file=written, force_terminal=True, width=120)
    with EpochProgress(console, folder) as watch:
        assert watch.progress(state)[:2] == (125, 400)
        watch(state)
        watch._bar.refresh()
    said = ESCAPES.sub("", written.getvalue())
    assert "1/4  9 min 10 s left  fashion-mnist-small-s1 25/100" in said  # 275 epochs of 2 s


@pytest.mark.parametrize(("is_there", "device"), [(True, "cuda:0"), (False, "cpu")])
def test_devices_by_default(monkeypatch, is_there, device):
    monkeypatch.setattr("torch.cuda.is_available", lambda: is_there)
    assert parse_devices(None) == (device,)
    assert parse_devices("cpu, cpu") == ("cpu", "cpu")


@pytest.mark.parametrize(
    ("allowed", "shares", "expected"), [(6, (2,), 3), (1, (2,), 1), (20, (1,), 8), (6, (1, 2), 4)]
)
def test_threads_by_default_are_those_that_torch_may_use(monkeypatch, allowed, shares, expected):
    """Which is OMP_NUM_THREADS if it is set: shared by devices, and for each process of several."""
    monkeypatch.setattr("torch.get_num_threads", lambda: allowed)
    monkeypatch.setattr("joblib.cpu_count", lambda: 8)
    assert _threads(*shares) == expected


def test_help_shows_an_example_and_the_protocol():
    out, _ = run("vision", "--help")
    assert "Example: refinecal experiment vision" in " ".join(out.split())
    for default in ("300", "128", "resnet18"):
        assert f"[default: ({default})]" in out or f"({default})" in out
    assert "0.0001, of adamw 0.01" in " ".join(out.replace("│", " ").split())
    assert np.all([name in out for name in ("cifar100", "svhn", "wrn28-10", "cosine")])
