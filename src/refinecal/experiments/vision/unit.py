"""What one training on images leaves behind: one file, in which nothing is ever run when it is opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal.experiments._unit_files import Arrays, is_whole, open_unit, write_unit
from refinecal.experiments.vision.plan import Key

__all__ = ["VisionUnit"]

COUNTS = ("n_train", "n_val", "n_test", "peak_memory", "parameters", "flops")
LABELS = ("y_val", "y_test")


@dataclass(frozen=True, slots=True, eq=False)
class VisionUnit:
    """One training to its last epoch: every metric at every epoch, and the logits at the best ones.

    Attributes
    ----------
    key : Key
        Which data set, model and seed.
    recipe : dict
        How it was trained: the fields of the recipe.
    n_train, n_val, n_test : int
        Images of each part.
    y_val, y_test : ndarray of int64
        Labels as codes 0..k-1.
    history : dict
        By name, ``"<part>.<metric>"``, a value for each epoch, NaN where it was not a number. The parts are
        ``train``, ``val`` and ``test``; ``_ts`` at the end is after temperature scaling.
    best : dict
        For each stopping metric the best epoch, counted from 1; without those that were never a number.
    val_logits, test_logits : dict
        By epoch, for the best epochs: ``(n, k)`` float32.
    seconds : dict
        Of ``training``, ``evaluating`` and ``metrics``.
    peak_memory : int
        The most memory of the device, in bytes; of the process, on a CPU.
    parameters, flops : int
        Of the network: numbers that it learns, and floating point operations of one image forward.
    stopped : str
        Why it ended before its last epoch, if it did: such as a loss that was not a number, or the patience
        of a monitor. :attr:`diverged` tells which.
    """

    key: Key
    recipe: dict[str, Any]
    n_train: int
    n_val: int
    n_test: int
    y_val: NDArray[np.int64]
    y_test: NDArray[np.int64]
    history: dict[str, NDArray[np.float64]]
    best: dict[str, int]
    val_logits: dict[int, NDArray[np.float32]]
    test_logits: dict[int, NDArray[np.float32]]
    seconds: dict[str, float]
    peak_memory: int
    parameters: int
    flops: int
    stopped: str = ""

    @property
    def epochs(self) -> int:
        """Return how many epochs were trained."""
        return max((len(values) for values in self.history.values()), default=0)

    @property
    def diverged(self) -> bool:
        """Whether it ended since it came to no numbers: then its last epoch has no validation loss.

        A training that a monitor ended by its patience did not.
        """
        return _has_diverged(self.stopped, self.history)

    def at(self, name: str, metric: str) -> float:
        """Return one value of the history at the best epoch of a stopping metric; NaN without one."""
        epoch = self.best.get(metric)
        return float("nan") if epoch is None else float(self.history[name][epoch - 1])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ``.npz`` file, whole or not at all; equal results make equal bytes."""
        self._check()
        names, epochs = list(self.history), sorted(self.val_logits)
        header = {
            "key": list(self.key),
            "recipe": self.recipe,
            **{name: getattr(self, name) for name in COUNTS},
            "history": names,
            "best": self.best,
            "epochs": epochs,
            "seconds": self.seconds,
            "stopped": self.stopped,
        }
        arrays: Arrays = {name: np.asarray(getattr(self, name), np.int64) for name in LABELS}
        arrays["history"] = np.array([self.history[name] for name in names], np.float64)
        for epoch in epochs:
            arrays[f"val_{epoch}"] = np.asarray(self.val_logits[epoch], np.float32)
            arrays[f"test_{epoch}"] = np.asarray(self.test_logits[epoch], np.float32)
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

    @staticmethod
    def read_divergence(path: str | os.PathLike[str]) -> str:
        """Return why a training diverged, by a look at its file; nothing if it did not."""
        with open_unit(path) as (header, arrays):
            stopped: str = header["stopped"]
            histories = dict(zip(header["history"], arrays["history"], strict=True))
            return stopped if _has_diverged(stopped, histories) else ""

    is_whole = staticmethod(is_whole)

    def _check(self) -> None:
        """Complain of contents that do not fit together."""
        for name, n in (("y_val", self.n_val), ("y_test", self.n_test)):
            if getattr(self, name).shape != (n,):
                raise ValueError(f"{name} is not of {n} images")
        for name, values in self.history.items():
            if values.shape != (self.epochs,):
                raise ValueError(f"history {name!r} is not of {self.epochs} epochs")
        if not all(1 <= epoch <= self.epochs for epoch in self.best.values()):
            raise ValueError(f"a best epoch is not in 1..{self.epochs}")
        _check_logits(self)


def _has_diverged(stopped: str, history: Mapping[str, NDArray[np.float64]]) -> bool:
    loss = history.get("val.log_loss", np.empty(0))
    return bool(stopped) and not (loss.size and np.isfinite(loss[-1]))


def _check_logits(unit: VisionUnit) -> None:
    if set(unit.val_logits) != set(unit.test_logits):
        raise ValueError("val_logits and test_logits are of different epochs")
    if not set(unit.best.values()) <= set(unit.val_logits):
        raise ValueError("logits of a best epoch are missing")
    widths = set()
    for part, n in ((unit.val_logits, unit.n_val), (unit.test_logits, unit.n_test)):
        for logits in part.values():
            if logits.ndim != 2 or len(logits) != n:
                raise ValueError(f"logits of shape {logits.shape} are not of {n} images")
            widths.add(logits.shape[1])
    if len(widths) > 1:
        raise ValueError("logits are of different numbers of classes")


def _fields(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    found = {
        "key": Key(*header["key"]),
        "recipe": header["recipe"],
        **{name: int(header[name]) for name in COUNTS},
        **{name: arrays[name].astype(np.int64, casting="safe") for name in LABELS},
        "history": dict(zip(header["history"], arrays["history"], strict=True)),
        "best": {name: int(epoch) for name, epoch in header["best"].items()},
        "val_logits": {int(epoch): arrays[f"val_{epoch}"] for epoch in header["epochs"]},
        "test_logits": {int(epoch): arrays[f"test_{epoch}"] for epoch in header["epochs"]},
        "seconds": header["seconds"],
        "stopped": header["stopped"],
    }
    assert set(found) == {field.name for field in fields(VisionUnit)}
    return found
