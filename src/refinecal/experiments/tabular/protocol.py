"""One training run of the paper's protocol: to the last step, with the best step by every metric."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import fail_choice
from refinecal.experiments.plan import Plan, TableKey
from refinecal.experiments.pools import forget_peak, peak_memory
from refinecal.experiments.tabular.sets import Dataset, Source, split, split_fold
from refinecal.experiments.units import UnitResult
from refinecal.training.rows import Rows
from refinecal.training.spaces import draw
from refinecal.training.table_model import TableModel, get_model
from refinecal.training.trainer import TrainingRun


@dataclass(frozen=True, slots=True)
class Method:
    """A way to train on a table; its framework is imported when :attr:`model` is read."""

    kind: str  # of model
    max_steps: int  # of every training run: rounds, epochs, or penalties
    step_name: str = "round"
    default_steps: int | None = None  # with default parameters, if fewer
    fixed: Mapping[str, Any] = field(default_factory=dict)  # parameters of every training run

    @property
    def model(self) -> type[TableModel]:
        """The class that trains it."""
        return get_model(self.kind)

    def params(self, config: int, seed: int) -> dict[str, Any]:
        """Return the parameters of a configuration, drawn with a seed; number 0 has the defaults.

        >>> METHODS["xgboost"].params(0, seed=1)
        {}
        >>> sorted(METHODS["mlp"].params(1, seed=1))
        ['dropout', 'learning_rate', 'n_layers', 'weight_decay']
        """
        drawn = draw(self.kind, np.random.default_rng(seed)) if config else {}
        return {**self.fixed, **drawn}

    def steps(self, config: int, most: int | None = None) -> int:
        """Return how many steps a configuration is trained, at most.

        >>> METHODS["xgboost"].steps(0), METHODS["xgboost"].steps(1), METHODS["xgboost"].steps(1, most=50)
        (100, 1000, 50)
        """
        own = self.default_steps if config == 0 and self.default_steps else self.max_steps
        return own if most is None else min(most, own)


# The first three are the paper's, as its authors ran them: default XGBoost has the library's 100 rounds, and
# the MLP three hidden layers.
METHODS = {
    "xgboost": Method("xgboost", 1000, default_steps=100),
    "mlp": Method("mlp", 256, "epoch", fixed={"n_layers": 3}),
    "realmlp": Method("realmlp", 256, "epoch"),
    "xgboost-1000": Method("xgboost", 1000),
    "mlp-4": Method("mlp", 256, "epoch"),
    "lightgbm": Method("lightgbm", 1000),
    "catboost": Method("catboost", 1000),
    "hist-gb": Method("hist-gb", 1000),
    "logistic": Method("logistic", 30, "strength"),
}
CHANGED = {"xgboost": "xgboost-1000", "mlp": "mlp-4"}  # what they were in version 1 of the protocol


def get_method(name: str, version: int = Plan.VERSIONS[-1]) -> Method:
    """Return a method by its name, one of ``METHODS``, as it is in a version of the protocol.

    >>> get_method("mlp").max_steps
    256
    """
    if name not in METHODS:
        fail_choice("method", name, list(METHODS), "left out")
    return METHODS[CHANGED.get(name, name) if version == 1 else name]


KEPT = 2  # data sets that a worker keeps: its next run often uses the previous one


@dataclass(frozen=True, slots=True)
class Work:
    """Computes any unit of a plan; what :func:`refinecal.experiments.running.run` sends to workers."""

    plan: Plan

    def __call__(self, key: TableKey, path: Path) -> None:
        """Train, and write the result to a file."""
        plan = self.plan
        source = json.dumps(plan.source(key.set), sort_keys=True)
        run_unit(key, plan, _load(source, plan.min_rows, plan.max_rows)).save(path)


@lru_cache(KEPT)
def _load(source: str, min_rows: int, max_rows: int) -> Dataset:
    return Source(**json.loads(source)).load(min_rows, max_rows)


def run_unit(key: TableKey, plan: Plan, dataset: Dataset) -> UnitResult:
    """Train one method once, to its last step; return the best step by each metric and its predictions.

    All steps are trained, unless predictions stop being finite numbers. The split is the same for every
    method. The same key, plan and data give the same result, except for times and memory.

    Raises
    ------
    ValueError
        If the training rows have only one class, or predictions were always NaN or infinite.

    References
    ----------
    Section 5 and appendix F of the paper.
    """
    from refinecal.experiments.tabular.tracking import Tracker, warm_up

    forget_peak()
    method = get_method(key.method, plan.version)
    params = method.params(key.config, plan.seed_of(key, "params"))
    y = np.asarray(dataset.y, np.int64)
    if key.folds:
        train, val, test = split_fold(y, key.split, plan.seed, key.folds, key.fold)
    else:
        train, val, test = split(y, key.split, plan.seed)
    known = np.unique(y[train])
    if len(known) < 2:
        raise ValueError(
            f"{dataset.name}: the {len(train)} training rows of split {key.split} have one class only: "
            "drop this data set, or give it more rows"
        )
    tracker = Tracker(_columns(y[val], known), len(known), plan.metrics)
    kind = method.model
    warm_up(len(known) == 2)
    began = time.perf_counter()
    model = kind.train(
        TrainingRun(
            Rows(dataset.X.iloc[train], _columns(y[train], known)),
            Rows(dataset.X.iloc[val], _columns(y[val], known)),
            np.arange(len(known)),
            tracker,
            method.steps(key.config, plan.max_steps),
            params,
            plan.seed_of(key),
            plan.n_threads,
        )
    )
    trained = time.perf_counter()
    best = {name: found.step for name, found in tracker.bests.items()}
    if not best:
        raise ValueError(
            f"{key}: the predictions were never finite numbers, so there is no best step: lower the learning "
            "rate, or drop this configuration"
        )
    test_logits = model.logits_at(dataset.X.iloc[test], best.values())
    return UnitResult(
        key=key,
        n_classes=len(dataset.classes),
        n_train=len(train),
        n_val=len(val),
        n_test=len(test),
        params=params,
        y_val=y[val],
        y_test=y[test],
        classes_known=known,
        best=best,
        value={name: float(found.value) for name, found in tracker.bests.items()},
        val_logits={step: tracker.logits[step] for step in test_logits},
        test_logits={
            step: np.ascontiguousarray(each, dtype=np.float32) for step, each in test_logits.items()
        },
        history=tracker.values(),
        seconds={
            "training": trained - began - tracker.seconds,
            "tracking": tracker.seconds,
            "predicting": time.perf_counter() - trained,
        },
        peak_memory=peak_memory(),
    )


def _columns(y: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each label is among the classes of the training rows; -1 if it is not.

    >>> _columns(np.array([3, 0, 1]), np.array([0, 3]))
    array([ 1,  0, -1])
    """
    places = np.minimum(np.searchsorted(known, y), len(known) - 1)
    return np.where(known[places] == y, places, -1)
