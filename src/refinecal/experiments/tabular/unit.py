"""What one training leaves behind: one file, in which nothing is ever run when it is opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal.experiments._unit_files import Arrays, is_whole, open_unit, write_unit
from refinecal.experiments.tabular.plan import Key

__all__ = ["UnitResult"]

COUNTS = ("n_classes", "n_train", "n_val", "n_test", "peak_memory")
LABELS = ("y_val", "y_test", "classes_known")


@dataclass(frozen=True, slots=True, eq=False)
class UnitResult:
    """One training to its last step: the best step by each metric, and what was predicted there.

    Attributes
    ----------
    key : Key
        Which data set, split, method and configuration.
    n_classes, n_train, n_val, n_test : int
        Classes of the data set, and rows of each part.
    params : dict
        What was trained with; empty for the method's default parameters.
    y_val, y_test : ndarray of int64
        Labels as codes 0..n_classes-1.
    classes_known : ndarray of int64
        The codes of the classes among the training rows, in increasing order: the columns of the logits.
    best : dict
        For each metric the best step, counted from 1; without the metrics that were never a number.
    value : dict
        For each metric its value on the validation rows at that step.
    val_logits, test_logits : dict
        By step: ``(n,)`` float32 log-odds of the second of two known classes, else ``(n, k)``.
    history : dict
        For each metric its value at every step, NaN where it was not a number. ``refinement_isotonic`` is
        there for two classes only.
    seconds : dict
        Of ``training``, ``tracking`` and ``predicting``.
    peak_memory : int
        The most memory, in bytes, that the process had used by then.
    """

    key: Key
    n_classes: int
    n_train: int
    n_val: int
    n_test: int
    params: dict[str, Any]
    y_val: NDArray[np.int64]
    y_test: NDArray[np.int64]
    classes_known: NDArray[np.int64]
    best: dict[str, int]
    value: dict[str, float]
    val_logits: dict[int, NDArray[np.float32]]
    test_logits: dict[int, NDArray[np.float32]]
    history: dict[str, NDArray[np.float64]]
    seconds: dict[str, float]
    peak_memory: int

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ``.npz`` file, whole or not at all; equal results make equal bytes."""
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
        """Read what :meth:`save` wrote.

        Raises
        ------
        ValueError
            If the file is anything else, or damaged.
        """
        with open_unit(path) as (header, arrays):
            found = cls(**_fields(header, arrays))
            found._check()
        return found

    is_whole = staticmethod(is_whole)

    def _check(self) -> None:
        """Complain of contents that do not fit together."""
        shapes = {"y_val": self.n_val, "y_test": self.n_test}
        for name, n in shapes.items():
            if getattr(self, name).shape != (n,):
                raise ValueError(f"{name} is not of {n} rows")
        k = len(self.classes_known)
        for name, logits, n in (
            ("val", self.val_logits, self.n_val),
            ("test", self.test_logits, self.n_test),
        ):
            if not set(self.best.values()) <= set(logits):
                raise ValueError(f"{name}_logits of a best step are missing")
            if any(each.shape != ((n,) if k == 2 else (n, k)) for each in logits.values()):
                raise ValueError(f"{name}_logits are not of {n} rows and {k} classes")


def _fields(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    best = {name: int(step) for name, step in header["best"].items()}
    values = dict(zip(best, arrays["values"].tolist(), strict=True))
    history = dict(zip(header["metrics"], arrays["history"], strict=True))
    found = {
        "key": Key(*header["key"]),
        **{name: int(header[name]) for name in COUNTS},
        "params": header["params"],
        **{name: arrays[name].astype(np.int64, casting="safe") for name in LABELS},
        "best": best,
        "value": values,
        "val_logits": {step: arrays[f"val_{step}"] for step in header["steps"]},
        "test_logits": {step: arrays[f"test_{step}"] for step in header["steps"]},
        "history": history,
        "seconds": header["seconds"],
    }
    assert set(found) == {field.name for field in fields(UnitResult)}
    return found
