"""The results of training runs: a file each, of arrays and a header in JSON; nothing is pickled."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.files import atomic_write, plain
from refinecal.experiments.folder import is_whole
from refinecal.experiments.plan import ImageKey, TableKey

FORMAT = 1  # of the file
HEADER = "header.json"

Arrays = dict[str, NDArray[Any]]


RESULT = "the result of a training run", "delete it and resume the run, which computes it again"


def write_archive(path: Path, header: Mapping[str, Any], arrays: Arrays, compress: bool) -> None:
    """Write arrays and a header into an ``.npz`` file, whole or not at all; equal ones make equal bytes."""
    text = json.dumps({"format": FORMAT, **header}, ensure_ascii=False)
    content = {HEADER: np.frombuffer(text.encode(), np.uint8), **arrays}
    save = np.savez_compressed if compress else np.savez
    with atomic_write(path) as part, part.open("wb") as file:
        save(file, allow_pickle=False, **content)


@contextmanager
def open_archive(
    path: str | os.PathLike[str], what: str, fix: str
) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
    """Give the header and the arrays of a file; explain what is wrong if it cannot be read."""
    path = Path(path)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            header = json.loads(arrays[HEADER].tobytes())
            if header.pop("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            yield header, arrays
    except MemoryError:
        raise
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, f"{error.strerror or error}", str(path)) from error
    except Exception as error:
        raise ValueError(
            f"{path} is not {what}, or it is damaged ({type(error).__name__}: {error}): {fix}"
        ) from error


@contextmanager
def open_unit(path: str | os.PathLike[str]) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
    """Give the header and the arrays of the result of a training run."""
    what, fix = RESULT
    if Path(path).is_file() and not is_whole(path):  # resuming sees that by itself
        fix = fix.removeprefix("delete it and ")
        raise ValueError(f"{path} is not {what}, or it is damaged: {fix}")
    with open_archive(path, what, fix) as found:
        yield found


def load_unit(kind: type[_Unit], path: Path) -> Any:
    """Return the result in a file; raise if it is that of another training run, as after a wrong copy."""
    unit = kind.load(path)
    if path.stem != unit.key.name:
        raise ValueError(
            f"{path} holds the training run {unit.key.name}: delete it and resume the run, which computes "
            "the right one"
        )
    return unit


class _Unit:
    """What the results of both experiments share: how they are stored."""

    __slots__ = ()
    KEY: ClassVar[type[Any]]
    COUNTS: ClassVar[tuple[str, ...]]
    LABELS: ClassVar[tuple[str, ...]]
    OTHERS: ClassVar[tuple[str, ...]]  # entries of the header that are stored as they are
    HEADER: ClassVar[tuple[str, ...]]  # all its entries; of these, two that are named differently:
    NAMES: ClassVar[str]  # the metrics of the history
    STEPS: ClassVar[str]  # the steps whose logits are stored

    key: Any
    best: dict[str, int]
    history: dict[str, NDArray[np.float64]]
    val_logits: dict[int, NDArray[np.float32]]
    test_logits: dict[int, NDArray[np.float32]]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ``.npz`` file, complete or not at all; equal results make equal bytes."""
        self._check()
        names, steps = list(self.history), sorted(self.val_logits)
        own = {"key": list(self.key), self.NAMES: names, self.STEPS: steps}
        header = {name: own.get(name, getattr(self, name, None)) for name in self.HEADER}
        arrays: Arrays = {name: np.asarray(getattr(self, name), np.int64) for name in self.LABELS}
        arrays |= self._more_arrays()
        arrays["history"] = np.array([self.history[name] for name in names], np.float64)
        for step in steps:
            arrays[f"val_{step}"] = np.asarray(self.val_logits[step], np.float32)
            arrays[f"test_{step}"] = np.asarray(self.test_logits[step], np.float32)
        write_archive(Path(path), plain(header), arrays, compress=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote; raise a ``ValueError`` for any other or damaged file."""
        with open_unit(path) as (header, arrays):
            best = {name: int(step) for name, step in header["best"].items()}
            found = cls(
                key=cls.KEY(*header["key"]),
                **{name: int(header[name]) for name in cls.COUNTS},
                **{name: arrays[name].astype(np.int64, casting="safe") for name in cls.LABELS},
                **{name: header[name] for name in cls.OTHERS},
                best=best,
                **{
                    f"{part}_logits": {int(n): arrays[f"{part}_{n}"] for n in header[cls.STEPS]}
                    for part in ("val", "test")
                },
                history=dict(zip(header[cls.NAMES], arrays["history"], strict=True)),
                **cls._more_fields(best, arrays),
            )  # type: ignore[call-arg]
            found._check()
        return found

    def _more_arrays(self) -> Arrays:
        return {}

    @classmethod
    def _more_fields(cls, best: dict[str, int], arrays: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def _check(self) -> None:
        """Raise if the contents do not fit together."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class UnitResult(_Unit):
    """One training run to its last step: the best step by each metric, and its predictions."""

    KEY: ClassVar[type[Any]] = TableKey
    COUNTS: ClassVar[tuple[str, ...]] = ("n_classes", "n_train", "n_val", "n_test", "peak_memory")
    LABELS: ClassVar[tuple[str, ...]] = ("y_val", "y_test", "classes_known")
    OTHERS: ClassVar[tuple[str, ...]] = ("params", "seconds")
    HEADER: ClassVar[tuple[str, ...]] = (
        *("key", *COUNTS, "params", "metrics", "best", "steps", "seconds"),
    )
    NAMES: ClassVar[str] = "metrics"
    STEPS: ClassVar[str] = "steps"

    key: TableKey  # data set, split, method and configuration
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

    def _more_arrays(self) -> Arrays:
        return {"values": np.array([self.value[name] for name in self.best], np.float64)}

    @classmethod
    def _more_fields(cls, best: dict[str, int], arrays: Mapping[str, Any]) -> dict[str, Any]:
        return {"value": dict(zip(best, arrays["values"].tolist(), strict=True))}

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


@dataclass(frozen=True, slots=True, eq=False)
class VisionUnit(_Unit):
    """One training run to its last epoch: every metric at every epoch, and the logits at the best ones."""

    KEY: ClassVar[type[Any]] = ImageKey
    COUNTS: ClassVar[tuple[str, ...]] = (
        *("n_train", "n_val", "n_test", "peak_memory", "parameters", "flops"),
    )
    LABELS: ClassVar[tuple[str, ...]] = ("y_val", "y_test")
    OTHERS: ClassVar[tuple[str, ...]] = ("recipe", "seconds", "stopped")
    HEADER: ClassVar[tuple[str, ...]] = (
        *("key", "recipe", *COUNTS, "history", "best", "epochs", "seconds", "stopped"),
    )
    NAMES: ClassVar[str] = "history"
    STEPS: ClassVar[str] = "epochs"

    key: ImageKey  # data set, model and seed
    recipe: dict[str, Any]  # how it was trained: the fields of the recipe
    n_train: int  # images of each part
    n_val: int
    n_test: int
    y_val: NDArray[np.int64]  # labels as codes 0..k-1
    y_test: NDArray[np.int64]
    # by name, "<part>.<metric>", a value for each epoch, or NaN; the parts are "train", "val" and "test",
    # and names that end in "_ts" are after temperature scaling
    history: dict[str, NDArray[np.float64]]
    best: dict[str, int]  # by metric, the best epoch, from 1; without metrics that were always NaN
    val_logits: dict[int, NDArray[np.float32]]  # by epoch, for the best epochs: (n, k)
    test_logits: dict[int, NDArray[np.float32]]
    seconds: dict[str, float]  # of "training", "evaluating" and "metrics"
    peak_memory: int  # bytes, of the device; of the process, on a CPU
    parameters: int  # of the network
    flops: int  # floating-point operations of one image, forward
    stopped: str = ""  # why it ended before its last epoch; `diverged` tells NaN from patience

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

    @staticmethod
    def read_divergence(path: str | os.PathLike[str]) -> str:
        """Return why the training run in a file diverged; nothing if it did not."""
        with open_unit(path) as (header, arrays):
            stopped: str = header["stopped"]
            histories = dict(zip(header["history"], arrays["history"], strict=True))
            return stopped if _has_diverged(stopped, histories) else ""

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
