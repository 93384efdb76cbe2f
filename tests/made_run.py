"""A run of the tabular experiment that takes no time: predictions drawn as a training would make them."""

import numpy as np

import refinecal as rc
from refinecal import metrics
from refinecal.experiments.folder import RunFolder
from refinecal.experiments.plan import METRIC_NAMES as METRICS
from refinecal.experiments.plan import Plan
from refinecal.experiments.tabular.tracking import ONLY_BINARY
from refinecal.experiments.units import UnitResult

STEPS = 12
SPACES = {
    "xgboost": lambda rng: {
        "learning_rate": float(np.exp(rng.uniform(np.log(1e-3), np.log(0.7)))),
        "max_depth": int(rng.integers(1, 12)),
    },
    "mlp": lambda rng: {"learning_rate": float(np.exp(rng.uniform(np.log(1e-4), np.log(1e-2))))},
}


def made_plan(n_sets=3, methods=("xgboost",), splits=2, configs=0, seed=0, folds=0):
    sources = tuple({"name": f"set {i:02d}"} for i in range(n_sets))
    return Plan(sources, methods, splits=splits, configs=configs, seed=seed, folds=folds)


def made_unit(key, n_rows=500, n_classes=2, hardness=1.0, seed=0):
    """Return a training in which the signal grows, and confidence beyond what it deserves."""
    rng = np.random.default_rng([seed, *map(ord, f"{key.name}")])
    # Folds have the same test rows as the usual split.
    shared = np.random.default_rng([seed, *map(ord, key._replace(folds=0, fold=0).name)])
    params = SPACES.get(key.method, lambda rng: {})(rng) if key.config else {}
    n_test, n_val = n_rows // 5, n_rows * 16 // 100
    rate = params.get("learning_rate", 0.1)
    sides = {}
    for name, n in (("val", n_val), ("test", n_test)):
        source = shared if name == "test" and key.folds else rng
        truth = source.normal(size=(n, n_classes)) * 3 * hardness
        probs = np.exp(truth - truth.max(axis=1, keepdims=True))
        probs /= probs.sum(axis=1, keepdims=True)
        y = (probs.cumsum(axis=1) > source.random((n, 1))).argmax(axis=1)
        y[:n_classes] = np.arange(n_classes)
        sides[name] = truth, y, rng.normal(size=(n, n_classes))
    made = {
        name: [_logits(*side, step, rate) for step in range(1, STEPS + 1)]
        for name, side in sides.items()
    }
    y_val, y_test = sides["val"][1], sides["test"][1]
    history = _history(y_val, made["val"], n_classes, rng)
    best = {
        name: int(np.argmax(values) if name in ("accuracy", "auroc") else np.argmin(values)) + 1
        for name, values in history.items()
    }
    kept = sorted(set(best.values()))
    return UnitResult(
        key=key,
        n_classes=n_classes,
        n_train=n_rows - n_val - n_test,
        n_val=n_val,
        n_test=n_test,
        params=params,
        y_val=y_val.astype(np.int64),
        y_test=y_test.astype(np.int64),
        classes_known=np.arange(n_classes),
        best=best,
        value={name: float(history[name][step - 1]) for name, step in best.items()},
        val_logits={step: made["val"][step - 1] for step in kept},
        test_logits={step: made["test"][step - 1] for step in kept},
        history=history,
        seconds={"training": 0.5 + n_rows / 1e4, "tracking": 0.02, "predicting": 0.01},
        peak_memory=200_000_000 + 1000 * n_rows,
    )


def _logits(truth, y, noise, step, rate):
    learned = 1 - np.exp(-step / 4)
    z = (learned * truth + noise * (0.4 + 0.1 * step)) * (0.5 + rate**0.3 * step / 5)
    return (z[:, 1] - z[:, 0]).astype(np.float32) if z.shape[1] == 2 else z.astype(np.float32)


def _history(y, steps, k, rng):
    found = {name: np.empty(len(steps)) for name in METRICS}
    if k > 2:
        found = {name: line for name, line in found.items() if name not in ONLY_BINARY}
    for at, z in enumerate(steps):
        parts = rc.decompose(y, logits=z)
        values = {
            "log_loss": parts.risk,
            "brier": metrics.brier_score(y, logits=z),
            "accuracy": metrics.accuracy(y, logits=z),
            "auroc": metrics.auroc(y, logits=z),
            "refinement": parts.refinement,
            "brier_refinement": rc.refinement_error(y, logits=z, loss="brier"),
        }
        for name, line in found.items():  # the others are near refinement
            line[at] = values.get(name, parts.refinement + 0.002 * rng.normal())
    return found


def made_run(path, plan, sizes=None, classes=None, without=(), seed=0):
    """Make the folder of a run with every training of the plan, but for ``without``."""
    folder = RunFolder.create(path, plan)
    places = {name: place for place, name in enumerate(plan.sets)}
    for key in plan.units():
        if key in without:
            continue
        at = places[key.set]
        n_rows = 400 if sizes is None else sizes[at]
        k = (2, 3)[at % 2] if classes is None else classes[at]
        made_unit(key, n_rows, k, 0.6 + 0.1 * (at % 7), seed).save(folder.unit_path(key))
    return folder
