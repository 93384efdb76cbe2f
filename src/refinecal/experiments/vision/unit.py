"""The result of one training run on images: one file, which runs no code when it is opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
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
    """One training run to its last epoch: every metric at every epoch, and the logits at the best ones.

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
        By name, ``"<part>.<metric>"``, a value for each epoch, or NaN. The parts are ``train``, ``val`` and
        ``test``; names that end in ``_ts`` are after temperature scaling.
    best : dict
        For each stopping metric the best epoch, counted from 1; without those that were always NaN.
    val_logits, test_logits : dict
        By epoch, for the best epochs: ``(n, k)`` float32.
    seconds : dict
        Of ``training``, ``evaluating`` and ``metrics``.
    peak_memory : int
        Peak memory of the device, in bytes; of the process, on a CPU.
    parameters, flops : int
        Of the network: learned parameters, and floating point operations of one image forward.
    stopped : str
        Why it ended before its last epoch, if it did: a loss of NaN, or the patience of a monitor.
        :attr:`diverged` tells which.
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
        """Whether it ended with NaN, so that its last epoch has no validation loss; not by patience."""
        return _has_diverged(self.stopped, self.history)

    def at(self, name: str, metric: str) -> float:
        """Return one value of the history at the best epoch of a stopping metric; NaN without one."""
        epoch = self.best.get(metric)
        return float("nan") if epoch is None else float(self.history[name][epoch - 1])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ``.npz`` file, complete or not at all; equal results make equal bytes."""
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
        """Read what :meth:`save` wrote; raise a ``ValueError`` for any other or damaged file."""
        with open_unit(path) as (header, arrays):
            found = cls(**_fields(header, arrays))
            found._check()
        return found

    @staticmethod
    def read_divergence(path: str | os.PathLike[str]) -> str:
        """Return why the training run in a file diverged; nothing if it did not."""
        with open_unit(path) as (header, arrays):
            stopped: str = header["stopped"]
            histories = dict(zip(header["history"], arrays["history"], strict=True))
            return stopped if _has_diverged(stopped, histories) else ""

    is_whole = staticmethod(is_whole)

    def _check(self) -> None:
        """Raise if the contents do not fit together."""
        for name, values in self.history.items():
            if values.shape != (self.epochs,):
                raise ValueError(f"history {name!r} does not have {self.epochs} epochs")
        if not all(1 <= epoch <= self.epochs for epoch in self.best.values()):
            raise ValueError(f"a best epoch is not in 1..{self.epochs}")
        if set(self.val_logits) != set(self.test_logits) or not (
            set(self.best.values()) <= set(self.val_logits)
        ):
            raise ValueError("logits of a best epoch are missing")
        widths = {
            each.shape[1:] for each in (*self.val_logits.values(), *self.test_logits.values())
        }
        for name, n in (("val", self.n_val), ("test", self.n_test)):
            labels, logits = getattr(self, f"y_{name}"), getattr(self, f"{name}_logits")
            if labels.shape != (n,):
                raise ValueError(f"y_{name} does not have {n} images")
            if len(widths) > 1 or any(each.ndim != 2 or len(each) != n for each in logits.values()):
                raise ValueError(f"{name}_logits do not have {n} images and the same classes")


def _has_diverged(stopped: str, history: Mapping[str, NDArray[np.float64]]) -> bool:
    loss = history.get("val.log_loss", np.empty(0))
    return bool(stopped) and not (loss.size and np.isfinite(loss[-1]))


def _fields(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    return {
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
