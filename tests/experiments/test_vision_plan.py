"""Plans of the vision experiment: every training once, by one recipe; the folder of a run knows its kind."""

import json
import subprocess
import sys
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinecal.experiments.folder import RunFolder
from refinecal.experiments.plan import (
    DATASETS,
    MODELS,
    NO_AUGMENTATION,
    ImageKey,
    Plan,
    VisionPlan,
)
from refinecal.experiments.rates import Rates, TrainingProgress, seconds_left
from refinecal.experiments.vision.recipe import Recipe, Settings
from refinecal.experiments.vision.work import ProgressWriter, checkpoint_of, read_progress, tidy


def some(names):
    return st.lists(st.sampled_from(names), min_size=1, unique=True).map(tuple)


keys = st.builds(ImageKey, st.sampled_from(DATASETS), st.sampled_from(MODELS), st.integers(0, 99))
plans = st.builds(
    VisionPlan,
    some(DATASETS),
    some(MODELS),
    seeds=st.integers(1, 5),
    folder=st.sampled_from(["images", "/data/images"]),
    epochs=st.integers(1, 300),
    lr=st.floats(0.001, 1),
    schedule=st.sampled_from(["step", "cosine"]),
    cutout=st.integers(0, 16),
    limit_train=st.none() | st.integers(2, 1000),
    content=st.dictionaries(st.sampled_from(DATASETS), st.text(max_size=5)),
)


def small(**more):
    given = {"seeds": 2, "content": {"cifar10": "one", "svhn": "two"}} | more
    return VisionPlan(("cifar10", "svhn"), ("resnet18", "small"), **given)


@given(keys, keys)
def test_names_tell_keys_apart(one, other):
    assert (one == other) == (one.name.lower() == other.name.lower())
    assert "/" not in one.name


@given(plans)
def test_every_training_is_there_once_and_seeds_come_last(plan):
    units = plan.units()
    assert len(units) == len({key.name for key in units})
    assert len(units) == len(plan.datasets) * len(plan.models) * plan.seeds
    one = len(units) // plan.seeds
    assert {key.seed for key in units[:one]} == {0}  # a smaller experiment of the same kind


@given(plans)
def test_json_and_back(plan):
    again = VisionPlan.from_json(plan.to_json())
    assert again == plan
    assert again.key == plan.key
    assert json.loads(plan.to_json())["kind"] == "vision"


def test_the_recipe_is_the_papers_unless_told_otherwise():
    assert VisionPlan(("cifar10",)).recipe("cifar10", "resnet18") == Recipe("cifar10", "resnet18")
    own = {each.name for each in fields(VisionPlan)} - {each.name for each in fields(Settings)}
    assert own == {"datasets", "models", "seeds", "folder", "content", "n_threads", "version"}
    plan = replace(small(), epochs=7, schedule="cosine", **NO_AUGMENTATION)
    recipe = plan.recipe("svhn", "small")
    assert (recipe.dataset, recipe.model, recipe.epochs) == ("svhn", "small", 7)
    assert (recipe.crop, recipe.flip, recipe.cutout, recipe.schedule) == (0, False, 0, "cosine")


def test_where_images_are_makes_no_difference():
    plan = small(folder="here")
    moved = replace(plan, folder="/elsewhere")
    assert moved != plan
    assert moved.key == plan.key
    assert plan.losses(moved) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seeds": 3}, None),
        ({"epochs": 30}, "--epochs: 300, now 30"),
        ({"models": ("small",)}, "--model: resnet18, small, now small"),
        ({"datasets": ("cifar10",)}, "--dataset: cifar10, svhn, now cifar10"),
        ({"lr": 0.2}, "--lr: 0.1, now 0.2"),
        ({"limit_train": 9}, "--limit: not given, now 9"),
        ({"n_threads": 2}, "--threads: 1, now 2"),
        (
            {"content": {"cifar10": "one", "svhn": "x"}},
            "svhn has other images: two, now x",
        ),
        ({"content": {"cifar10": "one"}}, "svhn has other images: two, now not read"),
    ],
)
def test_everything_that_changes_a_result_changes_the_key_and_is_said(change, said):
    plan = small()
    other = replace(plan, **change)
    assert other.key != plan.key
    assert plan.losses(other) + other.losses(plan)
    if said is not None:
        assert any(said in words for words in plan.losses(other))


@given(plans, st.data())
def test_a_plan_may_grow_and_not_shrink(plan, data):
    """Against an oracle: every training of the old plan is one of the new, by the same recipe and images."""
    other = data.draw(plans)
    same = ("epochs", "lr", "schedule", "cutout", "limit_train", "content")
    if data.draw(st.booleans()):
        other = replace(other, **{name: getattr(plan, name) for name in same})
    trainings = [
        {
            (key, each.recipe(key.dataset, key.model), each.content.get(key.dataset))
            for key in each.units()
        }
        for each in (plan, other)
    ]
    assert (not plan.losses(other)) == (trainings[0] <= trainings[1])
    assert plan.losses(plan) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seeds": 1}, "--seeds: 2, now 1"),
        ({"epochs": 30}, "--epochs: 300, now 30"),
        ({"models": ("small", "wrn28-10")}, "--model: resnet18, small, now small, wrn28-10"),
        ({"datasets": ("svhn", "cifar100")}, "--dataset: cifar10, svhn, now svhn, cifar100"),
        ({"n_threads": 2}, "--threads: 1, now 2"),
        ({"content": {"cifar10": "one", "svhn": "x"}}, "svhn has other images: two, now x"),
    ],
)
def test_what_is_no_larger_plan_is_said_alone(change, said):
    more = {"seeds": 9, "models": MODELS, "datasets": DATASETS}
    (words,) = small().losses(replace(small(), **(more | change)))
    assert said in words


def test_options_are_of_fields():
    assert set(VisionPlan.OPTIONS) <= {each.name for each in fields(VisionPlan)}


def test_every_field_but_the_place_is_part_of_the_key():
    assert {*small()._content(), "folder"} == {each.name for each in fields(VisionPlan)}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"datasets": ()}, "datasets is empty: an experiment needs at least one"),
        ({"datasets": ("mnist",)}, "datasets has 'mnist': it must be one of"),
        ({"models": ("small", "small")}, "models has small more than once"),
        ({"models": ("vgg",)}, "models has 'vgg': it must be one of"),
        ({"seeds": 0}, "seeds is 0: it must be at least 1"),
        ({"n_threads": 0}, "n_threads is 0"),
        ({"epochs": 0}, "epochs is 0"),
        ({"schedule": "stairs"}, "schedule is 'stairs'"),
        ({"lr": 0.0}, "lr is 0.0"),
        ({"version": 9}, "version 9 of the protocol"),
    ],
)
def test_what_makes_no_plan(change, said):
    with pytest.raises(ValueError, match=said):
        replace(small(), **change)


@pytest.mark.parametrize("text", ["[]", "{}", '{"kind": "tabular"}', '"vision"'])
def test_what_is_no_plan_in_a_file(text):
    with pytest.raises(ValueError, match="not a plan of the vision experiment"):
        VisionPlan.from_json(text)


# ---- the folder of a run -----------------------------------------------------------------------------------


def test_a_folder_knows_its_experiment(tmp_path):
    plan = small()
    folder = RunFolder.create(tmp_path / "vision", plan)
    assert (folder.kind, folder.plan) == ("vision", plan)
    assert folder.missing() == plan.units()
    folder.check_kind("vision")
    with pytest.raises(ValueError, match="run of the vision experiment, not of the tabular one"):
        folder.check_kind("tabular")
    tables = RunFolder.create(tmp_path / "tabular", Plan(({"name": "adult"},), ("mlp",)))
    assert (tables.kind, tables.plan.sets) == ("tabular", ("adult",))
    assert "kind" not in json.loads((tmp_path / "tabular/plan.json").read_text())


def test_a_plan_of_another_kind_is_refused(tmp_path):
    folder = RunFolder.create(tmp_path / "run", small())
    path = folder.path / "plan.json"
    path.write_text(path.read_text().replace('"vision"', '"audio"'))
    with pytest.raises(
        ValueError, match="the experiment 'audio', which this version of refinecal does not"
    ):
        RunFolder(folder.path)
    path.write_text('{"kind": ["vision"]}')
    with pytest.raises(ValueError, match="is damaged"):
        RunFolder(folder.path)


def test_a_run_may_move_to_other_images_that_are_the_same(tmp_path):
    folder = RunFolder.create(tmp_path / "run", small())
    folder.grow(small(folder="elsewhere"))
    assert RunFolder(folder.path).plan.folder == "elsewhere"
    with pytest.raises(ValueError, match="cifar10 has other images"):
        folder.grow(small(content={"cifar10": "other", "svhn": "two"}))


def test_a_run_grows_and_does_not_shrink(tmp_path):
    folder = RunFolder.create(tmp_path / "run", small())
    larger = replace(small(), datasets=("svhn", "fashion-mnist", "cifar10"), seeds=20)
    folder.grow(larger)
    assert RunFolder(folder.path).plan == folder.plan == larger
    assert folder.missing() == larger.units()
    with pytest.raises(
        ValueError,
        match=r"(?s)another plan:\s+--dataset: svhn, fashion-mnist, cifar10, now cifar10, svhn\s+--seeds: "
        r"20, now 2\s+A run can get more data sets, models and seeds, as long as "
        r"the command names all that it has",
    ):
        folder.grow(small())
    assert RunFolder(folder.path).plan == larger


# ---- trainings under way -----------------------------------------------------------------------------------


def test_how_far_trainings_are_is_in_their_folders(tmp_path):
    folder = RunFolder.create(tmp_path / "run", small())
    one, other, *_ = keys = folder.missing()
    assert read_progress(folder, keys) == {}
    for key in (one, other):
        checkpoint_of(folder.path, key).mkdir(parents=True)
    teller = ProgressWriter(
        checkpoint_of(folder.path, one), clock=-10.0
    )  # of a process that began long ago
    teller(41, 300)  # after it went on from epoch 40
    teller(42, 300)
    (checkpoint_of(folder.path, other) / "progress.json").write_text('{"epoch": ')
    ((key, found),) = read_progress(folder, keys).items()
    assert (key, found.epoch, found.epochs) == (one, 42, 300)
    assert found.per_epoch >= 5


def test_what_is_finished_needs_no_checkpoint(tmp_path):
    folder = RunFolder.create(tmp_path / "run", small())
    one, other, *rest = folder.missing()
    for key in (one, other):
        checkpoint_of(folder.path, key).mkdir(parents=True)
        (checkpoint_of(folder.path, key) / ".training.1.part.npz").write_text("…")
    folder.unit_path(one).write_text("…")
    tidy(folder)
    assert not checkpoint_of(folder.path, one).exists()
    assert list(checkpoint_of(folder.path, other).iterdir()) == []
    for key in (other, *rest):
        folder.unit_path(key).write_text("…")
    tidy(folder)
    assert not (folder.path / "checkpoints").exists()


def test_time_left_by_what_is_finished_and_what_is_begun():
    first, second, third, *_ = [ImageKey("svhn", "small", seed) for seed in range(5)]
    half = {second: TrainingProgress(epoch=50, epochs=100, per_epoch=1.0)}
    rates = Rates()
    assert seconds_left([third], rates, {}, 1) is None
    assert seconds_left([], rates, {}, 1) == 0
    assert seconds_left([second, third], rates, half, 1) == 50 + 100
    rates.add(first, 200.0)  # known is better than guessed
    assert seconds_left([second, third], rates, half, 1) == 50 + 200
    assert seconds_left([second, third], rates, half, 2) == (50 + 200) / 2
    unknown = ImageKey("svhn", "resnet18", 0)
    assert seconds_left([third, unknown], rates, {}, 1) == 2 * 200  # as long as the others


def test_the_module_of_plans_loads_no_torch():
    program = (
        "import sys, refinecal.experiments.folder, refinecal.cli.experiment_vision, "
        "refinecal.experiments.vision.work; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
