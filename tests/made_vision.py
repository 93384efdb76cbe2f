"""Runs of the vision experiment that take no time: losses that are parabolas, so that minima are known."""

import numpy as np

from refinecal.experiments.folder import RunFolder
from refinecal.experiments.plan import VisionPlan
from refinecal.experiments.units import VisionUnit
from refinecal.experiments.vision.recipe import Recipe

EPOCHS = 60
REFINED, CALIBRATED = 40, 10  # epochs of the smallest refinement and calibration error,
RISK = 25  # and of the smallest risk: half-way, since both rise alike
CURVE = 1e-4
CLASSES = 3
SMALL = Recipe(
    "cifar10", "small", epochs=3, lr=0.02, batch=32, crop=2, cutout=4, precision="float32"
)
SHARES = {"training": 60.0, "evaluating": 8.0, "metrics": 1.0}


def assert_same(one, other):
    """Compare all that does not depend on the clock, bit by bit."""
    assert list(one.history) == list(other.history)
    for name in one.history:
        np.testing.assert_array_equal(one.history[name], other.history[name], name)
    assert one.best == other.best
    assert one.stopped == other.stopped
    for mine, theirs in ((one.val_logits, other.val_logits), (one.test_logits, other.test_logits)):
        assert mine.keys() == theirs.keys()
        for epoch in mine:
            np.testing.assert_array_equal(mine[epoch], theirs[epoch])


def made_plan(datasets=("cifar10",), models=("resnet18",), seeds=3, epochs=EPOCHS, **recipe):
    given = {"precision": "float32"} | recipe
    return VisionPlan(datasets, models, seeds=seeds, epochs=epochs, **given)


def slope(key):
    """Return how fast the losses of a training rise from their minima: it differs from seed to seed."""
    return CURVE * (1 + 0.1 * key.seed + (0.05 if key.dataset == "svhn" else 0.0))


def gain(key):
    """Return how much lower the test loss is at the smallest refinement than at the smallest risk."""
    return slope(key) * (RISK - REFINED) ** 2


def histories(key, epochs):
    """Return what a training would record: refinement falls longer than risk."""
    step = np.arange(1, epochs + 1)
    left = slope(key) * (step - REFINED) ** 2
    off = slope(key) * (step - CALIBRATED) ** 2
    base = {"val": 0.20, "test": 0.22}
    found = {"train.log_loss": np.exp(-step / 20)}
    for part, least in base.items():
        level = least + 0.01 * np.sin(7.0 * key.seed + (part == "test"))
        after = level + left
        scores = {
            "log_loss": (after + off, after),
            "brier": (0.5 * (after + 0.2 * off), 0.5 * after),
            "accuracy": (0.95 - after / 10, 0.95 - after / 10),
            "auroc": (1 - after / 40, 1 - after / 40),
            "ece": (0.01 + off, 0.008 + 0 * off),
            "smooth_ece": (0.012 + off, 0.009 + 0 * off),
        }
        for name, (raw, scaled) in scores.items():
            found[f"{part}.{name}"], found[f"{part}.{name}_ts"] = raw, scaled
        found |= {
            f"{part}.refinement": after,
            f"{part}.calibration": off,
            f"{part}.beta": 1.5 / (1 + step / 30),
        }
    return found


def made_unit(key, plan, stopped="", ended=None, **more):
    """Return a training that diverged in its last epoch, if ``stopped``; or that ``ended`` at an epoch."""
    history = histories(key, ended or plan.epochs)
    if stopped and not ended:
        for values in history.values():
            values[-1] = np.nan
    names = ("refinement", "log_loss", "brier", "accuracy", "auroc", "ece", "smooth_ece")
    best = {
        name: int(
            (np.nanargmax if name in ("accuracy", "auroc") else np.nanargmin)(
                history[f"val.{name}"]
            )
        )
        + 1
        for name in names
    }
    rng = np.random.default_rng(key.seed)
    kept = set(best.values())
    given = {
        "recipe": plan.recipe(key.dataset, key.model).to_dict(),
        "n_train": 900,
        "y_test": np.arange(12) % CLASSES,  # of all seeds
        "seconds": dict(SHARES),
    } | more
    return VisionUnit(
        **given,
        key=key,
        n_val=8,
        n_test=12,
        y_val=rng.integers(0, CLASSES, 8),
        history=history,
        best=best,
        val_logits={at: rng.normal(size=(8, CLASSES)).astype(np.float32) for at in kept},
        test_logits={at: rng.normal(size=(12, CLASSES)).astype(np.float32) for at in kept},
        peak_memory=250_000_000 + key.seed,
        parameters=11_173_962,
        flops=1_110_845_440,
        stopped=stopped,
    )


def made_run(path, plan, without=(), stopped=None, **more):
    """Write a run in which some trainings are missing, and some ended early."""
    folder = RunFolder.create(path, plan)
    for key in plan.units():
        if key not in without:
            made_unit(key, plan, (stopped or {}).get(key, ""), **more).save(folder.unit_path(key))
    return folder
