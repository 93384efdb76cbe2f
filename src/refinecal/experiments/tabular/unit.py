"""The result of one training run: one file, which runs no code when it is opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal.experiments._unit_files import Arrays, is_whole, open_unit, write_unit
from refinecal.experiments.tabular.plan import Key

COUNTS = ("n_classes", "n_train", "n_val", "n_test", "peak_memory")
LABELS = ("y_val", "y_test", "classes_known")


@dataclass(frozen=True, slots=True, eq=False)
class UnitResult:
    """One training run to its last step: the best step by each metric, and its predictions."""

    key: Key  # data set, split, method and configuration
    n_classes: int  # of the data set
    n_train: int  # rows of each part
    n_val: int
    n_test: int
    params: dict[str, Any]  # of the model; empty for the method's default parameters
    y_val: NDArray[np.int64]  # labels as codes 0..n_classes-1
    y_test: NDArray[np.int64]
    classes_known: NDArray[np.int64]  # codes of the classes of the training rows: columns of logits
    best: dict[str, int]  # by metric, the best step, from 1; without metrics that were always NaN
    value: dict[str, float]  # by metric, its value on the validation rows at that step
    # by step: (n,) float32 log-odds of the second of two known classes, otherwise (n, k)
    val_logits: dict[int, NDArray[np.float32]]
    test_logits: dict[int, NDArray[np.float32]]
    history: dict[str, NDArray[np.float64]]  # by metric, its value at every step, or NaN
    seconds: dict[str, float]  # of training, tracking and predicting
    peak_memory: int  # bytes that the process had used by then, at most

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ``.npz`` file, complete or not at all; equal results make equal bytes."""
        names, steps = list(self.history), sorted(self.val_logits)
        header = {
            "key": list(self.key),
            **{name: getattr(self, name) for name in COUNTS},
            "params": self.params,
            "metrics": names,
            "best": self.best,
            "steps": steps,
            "seconds": self.seconds,
        }
        arrays: Arrays = {name: getattr(self, name) for name in LABELS}
        arrays["values"] = np.array([self.value[name] for name in self.best], np.float64)
        arrays["history"] = np.array([self.history[name] for name in names], np.float64)
        for step in steps:
            arrays[f"val_{step}"] = self.val_logits[step]
            arrays[f"test_{step}"] = self.test_logits[step]
        write_unit(path, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote; raise a ``ValueError`` for any other or damaged file."""
        with open_unit(path) as (header, arrays):
            found = cls(**_fields(header, arrays))
            found._check()
        return found

    is_whole = staticmethod(is_whole)

    def _check(self) -> None:
        """Raise if the contents do not fit together."""
        k = len(self.classes_known)
        for name, n in (("val", self.n_val), ("test", self.n_test)):
            labels, logits = getattr(self, f"y_{name}"), getattr(self, f"{name}_logits")
            if labels.shape != (n,):
                raise ValueError(f"y_{name} does not have {n} rows")
            if not set(self.best.values()) <= set(logits):
                raise ValueError(f"{name}_logits of a best step are missing")
            if any(each.shape != ((n,) if k == 2 else (n, k)) for each in logits.values()):
                raise ValueError(f"{name}_logits do not have {n} rows and {k} classes")


def _fields(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    best = {name: int(step) for name, step in header["best"].items()}
    return {
        "key": Key(*header["key"]),
        **{name: int(header[name]) for name in COUNTS},
        "params": header["params"],
        **{name: arrays[name].astype(np.int64, casting="safe") for name in LABELS},
        "best": best,
        "value": dict(zip(best, arrays["values"].tolist(), strict=True)),
        "val_logits": {step: arrays[f"val_{step}"] for step in header["steps"]},
        "test_logits": {step: arrays[f"test_{step}"] for step in header["steps"]},
        "history": dict(zip(header["metrics"], arrays["history"], strict=True)),
        "seconds": header["seconds"],
    }
