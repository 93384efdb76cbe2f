"""Recipes, and trainings on images: what is measured, by whom an epoch is chosen, what is refused."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_images import pictures
from made_vision import SMALL, assert_same
from torch.nn.functional import cross_entropy

import refinecal as rc
from refinecal.experiments.units import VisionUnit
from refinecal.experiments.vision.augment import Normalization
from refinecal.experiments.vision.hardware import choose_precision
from refinecal.experiments.vision.learner import CheckpointFile, Devices, Learner
from refinecal.experiments.vision.networks import new_network
from refinecal.experiments.vision.recipe import Recipe
from refinecal.experiments.vision.training import (
    SCORES,
    STOPPING,
    EpochMetrics,
    new_monitor,
    split,
    train,
)

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def outcome():
    return train(SMALL, pictures(), seed=1, device="cpu")


# ---- recipes ----------------------------------------------------------------------------------------------


def rates_of(scheduler, epochs, **options):
    """Return the learning rates of torch's own schedule."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    schedule, found = scheduler(optimizer, **options), []
    for _ in range(epochs):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.parametrize(
    ("schedule", "scheduler", "options"),
    [
        ("step", torch.optim.lr_scheduler.StepLR, {"step_size": 100, "gamma": 0.1}),
        ("cosine", torch.optim.lr_scheduler.CosineAnnealingLR, {"T_max": 300}),
    ],
)
def test_learning_rates_are_those_of_torch(schedule, scheduler, options):
    recipe = Recipe("cifar10", "resnet18", schedule=schedule)
    found = [recipe.rate(epoch) for epoch in range(1, 301)]
    np.testing.assert_allclose(found, rates_of(scheduler, 300, **options), rtol=1e-9)


@given(epochs=st.integers(3, 400))
def test_learning_rate_has_three_steps_of_about_equal_length(epochs):
    recipe = Recipe("cifar10", "resnet18", epochs=epochs)
    rates = [recipe.rate(epoch) for epoch in range(1, epochs + 1)]
    values, counts = np.unique(rates, return_counts=True)
    np.testing.assert_allclose(values, [0.001, 0.01, 0.1])
    assert max(counts) - min(counts) <= 1
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize("epoch", [0, 301])
def test_epochs_are_counted_from_one_to_the_last(epoch):
    with pytest.raises(ValueError, match="counted from 1 to 300"):
        Recipe("cifar10", "resnet18").rate(epoch)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_recipe_survives_a_journey_through_plain_values(optimizer):
    recipe = replace(SMALL, optimizer=optimizer, schedule="cosine", limit_train=50, nesterov=True)
    assert Recipe(**recipe.to_dict()) == recipe
    assert ("optimizer" in recipe.to_dict()) == (optimizer == "adamw")


def test_a_constant_rate_is_constant():
    recipe = replace(SMALL, schedule="constant", epochs=7)
    assert {recipe.rate(epoch) for epoch in range(1, 8)} == {recipe.lr}


def test_adamw_takes_the_steps_of_torch():
    """One step of full batch, as torch's AdamW takes it on the same gradients."""
    recipe = replace(SMALL, optimizer="adamw", lr=0.01, weight_decay=0.1)
    images = pictures()
    rows = np.arange(len(images.train_y))
    made = [
        Learner(recipe, images.train_x, images.train_y, rows, 3, seed=1, devices=Devices(CPU))
        for _ in range(2)
    ]
    ours, theirs = made
    theirs.optimizer = torch.optim.AdamW(
        theirs.net.parameters(), lr=0.01, weight_decay=0.1, fused=False
    )
    for learner in made:
        learner.learn(1)
    for one, other in zip(ours.net.parameters(), theirs.net.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("epochs", 0, "at least 1"),
        ("epochs", 2.0, "whole number"),
        ("batch", True, "whole number"),
        ("lr", 0, "above 0"),
        ("lr", math.nan, "above 0"),
        ("lr", "0.1", "must be a number"),
        ("momentum", 1, "at least 0 and below 1"),
        ("weight_decay", -1e-4, "at least 0"),
        ("validation", 1.0, "above 0 and below 1"),
        ("schedule", "linear", "'step', 'cosine', or 'constant'"),
        ("precision", "half", "'auto', 'float32', or 'bfloat16'"),
        ("crop", -1, "at least 0"),
        ("limit_train", 1, "at least 2"),
    ],
)
def test_bad_recipes_are_refused(field, value, words):
    with pytest.raises((ValueError, TypeError), match=words) as error:
        replace(SMALL, **{field: value})
    assert field in str(error.value)


def test_nesterov_needs_momentum():
    with pytest.raises(ValueError, match="momentum is 0"):
        replace(SMALL, nesterov=True, momentum=0.0)


# ---- what is measured -------------------------------------------------------------------------------------


def test_history_has_every_metric_of_every_epoch(outcome):
    names = {
        f"{part}.{score}{after}"
        for part in ("val", "test")
        for score in SCORES
        for after in ("", "_ts")
    }
    terms = ("calibration", "refinement", "beta")
    names |= {f"{part}.{term}" for part in ("val", "test") for term in terms}
    assert set(outcome.history) == names | {"train.log_loss"}
    for name, values in outcome.history.items():
        assert values.shape == (3,)
        assert np.isfinite(values).all(), name
    assert (outcome.n_train, outcome.n_val, outcome.n_test) == (108, 12, 50)
    assert outcome.stopped == ""
    assert outcome.recipe == SMALL.to_dict()
    assert outcome.parameters > 0
    assert outcome.flops > 0
    assert outcome.peak_memory > 0
    assert set(outcome.seconds) == {"training", "evaluating", "metrics"}


def test_history_is_that_of_the_stored_logits(outcome):
    """Every value at a best epoch follows from the logits of that epoch, by the public functions."""
    for epoch in set(outcome.best.values()):
        val, test = outcome.val_logits[epoch], outcome.test_logits[epoch]
        scaling = rc.TemperatureScaling().fit_logits(val, outcome.y_val)
        for part, y, logits in (("val", outcome.y_val, val), ("test", outcome.y_test, test)):
            parts = rc.decompose(y, logits=logits)
            expected = {term: getattr(parts, term) for term in ("calibration", "refinement")}
            expected |= {name: score(y, logits=logits) for name, score in SCORES.items()}
            probs = scaling.predict_proba_logits(logits.astype(float))
            expected |= {f"{name}_ts": score(y, probs) for name, score in SCORES.items()}
            for name, value in expected.items():
                found = outcome.history[f"{part}.{name}"][epoch - 1]
                assert found == pytest.approx(value, rel=1e-5, abs=1e-7), (part, name)


def test_best_epochs_are_where_validation_is_best(outcome):
    assert set(outcome.best) == set(STOPPING)
    for name, epoch in outcome.best.items():
        values = outcome.history[f"val.{name}"]
        best = values.max() if name in ("accuracy", "auroc") else values.min()
        assert values[epoch - 1] == pytest.approx(best, rel=1e-6)
    assert set(outcome.val_logits) == set(outcome.test_logits) == set(outcome.best.values())


def test_outcome_can_be_stored(outcome, tmp_path):
    outcome.save(tmp_path / "unit.npz")
    found = VisionUnit.load(tmp_path / "unit.npz")
    assert found.key == outcome.key
    assert found.best == outcome.best
    assert_same(found, outcome)


def test_only_logits_of_best_epochs_are_kept():
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 4
    metrics = EpochMetrics(labels, labels, new_monitor())
    for epoch in range(1, 9):
        logits = (
            rng.normal(size=(40, 4)).astype(np.float32)
            + epoch % 3 * np.eye(4, dtype=np.float32)[labels]
        )
        metrics.update(epoch, 0.5, logits, logits)
        assert set(metrics.val_logits) == set(metrics.best.values()) == set(metrics.test_logits)
    assert metrics.last == {name: values[-1] for name, values in metrics.history.items()}


@pytest.mark.parametrize("name", STOPPING)
def test_of_equal_epochs_the_first_is_best(name):
    """A worse epoch, then three that are equal, then a worse one."""
    labels = np.arange(40) % 4
    noise = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    hint = np.eye(4, dtype=np.float32)[labels]
    metrics = EpochMetrics(labels, labels, new_monitor())
    for epoch, share in enumerate((0.5, 2.0, 2.0, 2.0, 0.5), 1):
        metrics.update(epoch, 0.5, noise + share * hint, noise)
    values = metrics.history[f"val.{name}"]
    np.testing.assert_allclose(values[[2, 3, 4]], values[[1, 1, 0]], rtol=1e-7)  # to rounding
    best = values.max() if name in ("accuracy", "auroc") else values.min()
    assert metrics.best[name] == 1 + int(np.flatnonzero(np.isclose(values, best, rtol=1e-7))[0])
    assert metrics.best[name] <= 2
    assert set(metrics.val_logits) == set(metrics.best.values())


# ---- how it is trained ------------------------------------------------------------------------------------


def test_training_is_that_of_a_plain_loop(tmp_path):
    """SGD as anyone would write it, on the same batches, ends at the same weights."""
    images, recipe = (
        pictures(),
        replace(SMALL, epochs=2, schedule="cosine", crop=0, flip=False, cutout=0),
    )
    train(recipe, images, seed=3, device="cpu", checkpoint=tmp_path)
    found = CheckpointFile(tmp_path)._read().net

    rows, _ = split(images.train_y, recipe, 3)
    learner = Learner(recipe, images.train_x, images.train_y, rows, 3, 3, Devices(CPU))
    scale = Normalization.of(torch.from_numpy(images.train_x[rows]))
    net = new_network("small", 3, 3, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    for epoch in (1, 2):
        for batch in learner._order(epoch).split(32):
            optimizer.zero_grad()
            logits = net(scale(torch.from_numpy(images.train_x)[batch]))
            cross_entropy(logits, torch.from_numpy(images.train_y)[batch]).backward()
            optimizer.step()
        schedule.step()
    for name, value in net.state_dict().items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-5)


def test_every_epoch_sees_every_image_once_in_another_order():
    images = pictures()
    rows, val = split(images.train_y, SMALL, 5)
    assert sorted([*rows, *val]) == list(range(120))
    learner = Learner(SMALL, images.train_x, images.train_y, rows, 3, 5, Devices(CPU))
    orders = [learner._order(epoch).tolist() for epoch in (1, 2)]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(rows)
    assert orders[0] != orders[1]


def test_equal_seeds_give_equal_results_and_nothing_else_is_touched(outcome):
    torch.manual_seed(7)
    before = torch.get_rng_state()
    assert_same(train(SMALL, pictures(), seed=1, device="cpu"), outcome)
    assert torch.equal(torch.get_rng_state(), before)
    other = train(replace(SMALL, epochs=1), pictures(), seed=2, device="cpu")
    assert other.history["val.log_loss"][0] != outcome.history["val.log_loss"][0]


@given(n=st.integers(2, 200), batch=st.integers(1, 40), size=st.integers(1, 3))
def test_no_process_is_left_with_a_single_image(n, batch, size):
    """Every image is seen once, in steps as long as they should be; but what is left over joins another."""
    if batch < size:
        return
    learner = SimpleNamespace(
        devices=SimpleNamespace(size=size),
        recipe=SimpleNamespace(batch=batch),
        _order=lambda epoch: torch.arange(n),
    )
    found = Learner._batches(learner, 1)
    assert torch.cat(found).tolist() == list(range(n))
    assert all(len(each) == batch for each in found[:-1])
    least = min(2 * size, batch)
    assert len(found) == 1 or least <= len(found[-1]) < batch + least


def test_a_single_image_that_is_left_over_is_learned_from():
    """Whose features are single values, of which batch normalisation knows no variance."""
    found = train(replace(SMALL, epochs=1), pictures(37, 20), device="cpu")
    assert found.n_train == 33  # 32 and 1
    assert found.epochs == 1


def test_a_batch_is_for_all_processes():
    images, devices = pictures(), Devices(CPU)
    devices.size = 3
    with pytest.raises(ValueError, match="batch is 2, but 3 processes share each batch"):
        Learner(
            replace(SMALL, batch=2), images.train_x, images.train_y, np.arange(9), 3, 0, devices
        )


def test_progress_is_told_after_each_epoch():
    told = []
    train(SMALL, pictures(), device="cpu", progress=lambda *moment: told.append(moment))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_fewer_images_can_be_asked_for():
    recipe = replace(SMALL, limit_train=40)
    rows, val = split(pictures().train_y, recipe, 0)
    assert (len(rows), len(val)) == (36, 4)
    assert len({*rows, *val}) == 40
    assert {*rows, *val} != {*np.concatenate(split(pictures().train_y, recipe, 1))}


def test_patience_of_a_monitor_ends_a_training():
    monitor = rc.RefinementMonitor(also=STOPPING[1:], patience=1, min_delta=100.0)
    found = train(SMALL, pictures(), device="cpu", monitor=monitor)
    assert found.epochs == 2
    assert "no better for 1" in found.stopped
    assert [record["step"] for record in monitor.history] == [1, 2]


def test_patience_that_ends_with_the_last_epoch_ends_nothing():
    monitor = rc.RefinementMonitor(also=STOPPING[1:], patience=2, min_delta=100.0)
    found = train(SMALL, pictures(), device="cpu", monitor=monitor)
    assert monitor.should_stop
    assert (found.epochs, found.stopped) == (3, "")


def test_bfloat16_learns_as_float32_does(outcome):
    found = train(replace(SMALL, precision="bfloat16"), pictures(), seed=1, device="cpu")
    assert found.history["train.log_loss"] == pytest.approx(
        outcome.history["train.log_loss"], rel=0.1
    )
    assert not np.array_equal(found.history["train.log_loss"], outcome.history["train.log_loss"])
    logits = next(iter(found.val_logits.values()))
    rounded = torch.from_numpy(logits).bfloat16().float().numpy()
    assert not np.array_equal(logits, rounded)  # predictions are not rounded


@pytest.mark.parametrize(
    ("able", "chosen"),
    [
        ({}, "float32"),
        ({"avx512_bf16": False, "amx_bf16": True}, "bfloat16"),
        ({"avx512_bf16": True}, "bfloat16"),
        ({"avx2": True}, "float32"),
    ],
)
def test_precision_is_chosen_for_the_device(monkeypatch, able, chosen):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able, raising=False)
    assert choose_precision("auto", CPU) == choose_precision("auto", "cpu", CPU) == chosen
    assert choose_precision("auto", "cpu", "meta") == "float32"  # fast on all of them, or not
    assert choose_precision("bfloat16", CPU) == "bfloat16"
    assert choose_precision("float32", CPU) == "float32"


def test_predictions_are_true_float32(monkeypatch):
    """However fast the user wants products to be, and whatever convolutions may do in training."""
    seen = {True: set(), False: set()}

    def look(self, images):
        may = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
        seen[self.net.training].add(may)
        return self._normalize(images, self.recipe.channels_last)

    monkeypatch.setattr(Learner, "_input", look)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        train(replace(SMALL, epochs=1), pictures(40, 20), device="cpu")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen == {True: {(True, "medium")}, False: {(False, "highest")}}


# ---- what goes wrong --------------------------------------------------------------------------------------


def test_a_loss_that_is_not_a_number_ends_this_training_only(tmp_path):
    images = pictures()
    found = train(replace(SMALL, lr=1e30), images, device="cpu", checkpoint=tmp_path / "folder")
    assert found.epochs == 1
    assert found.best == {}
    assert "epoch 1" in found.stopped
    assert not np.isfinite(found.history["train.log_loss"]).all()
    found.save(tmp_path / "unit.npz")
    assert VisionUnit.load(tmp_path / "unit.npz").stopped == found.stopped
    again = train(replace(SMALL, lr=1e30), images, device="cpu", checkpoint=tmp_path / "folder")
    assert again.stopped == found.stopped
    assert again.epochs == 1


def test_what_was_best_before_the_loss_was_lost_is_kept():
    labels = np.arange(30) % 3
    metrics = EpochMetrics(labels, labels, new_monitor())
    logits = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    metrics.update(1, 1.0, logits, logits)
    metrics.update(2, 1.0, logits, np.full_like(logits, np.nan))
    assert metrics.stopped.startswith("the predictions after epoch 2")
    assert set(metrics.best.values()) == {1}
    assert np.isnan(metrics.history["val.log_loss"][1])
    assert metrics.history["train.log_loss"][1] == 1.0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"recipe": replace(SMALL, dataset="svhn")}, "recipe.dataset is 'svhn'.*'cifar10'"),
        ({"recipe": replace(SMALL, validation=0.001)}, "give more images"),
        ({"recipe": replace(SMALL, model="resnet9000")}, "resnet9000"),
        ({"monitor": rc.RefinementMonitor(also=("brier",))}, "monitor does not follow log_loss"),
    ],
)
def test_bad_arguments_are_refused(changed, words):
    given = {"recipe": SMALL, "images": pictures(), "device": "cpu"} | changed
    with pytest.raises(ValueError, match=words):
        train(**given)


def test_a_monitor_that_has_seen_another_training_is_refused():
    monitor = new_monitor()
    monitor.update([0, 1], [0.2, 0.7])
    with pytest.raises(ValueError, match=r"seen 1 steps already.*reset\(\)"):
        train(SMALL, pictures(), device="cpu", monitor=monitor)


@pytest.mark.parametrize("device", ["abacus", "meta", 1.5])
def test_a_device_that_torch_has_not_is_named(device):
    with pytest.raises(ValueError, match=f"device is '?{device}'?, .*omit it"):
        train(SMALL, pictures(), device=device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_missed():
    with pytest.raises(ValueError, match="torch sees no GPU"):
        train(SMALL, pictures(), device="cuda")
