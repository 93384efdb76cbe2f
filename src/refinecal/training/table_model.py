"""Models of a table, by name: each can be trained step by step, predict, be saved and loaded."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import fail_choice
from refinecal._core.files import atomic_write
from refinecal.training.trainer import TrainingRun

if TYPE_CHECKING:
    import pandas as pd

Weights = NDArray[np.float64] | None

_CLASSES = {
    "xgboost": ("xgboost", "XGBoostModel"),
    "lightgbm": ("lightgbm", "LightGBMModel"),
    "catboost": ("catboost", "CatBoostModel"),
    "hist-gb": ("hist_gb", "HistGradientBoostingModel"),
    "extra-trees": ("forest", "ExtraTreesModel"),
    "random-forest": ("forest", "RandomForestModel"),
    "knn": ("neighbors", "NeighborsModel"),
    "logistic": ("logistic_path", "LogisticModel"),
    "mlp": ("mlp", "MLPModel"),
    "realmlp": ("realmlp", "RealMLPModel"),
}
FILES = {  # the file in which each is saved, known without importing its library
    "xgboost": "model.ubj",
    "lightgbm": "model.txt",
    "catboost": "model.cbm",
    "hist-gb": "model.npz",
    "extra-trees": "model.npz",
    "random-forest": "model.npz",
    "knn": "model.npz",
    "logistic": "model.npz",
    "mlp": "model.safetensors",
}
MODELS = tuple(FILES)  # RealMLP cannot be saved


def get_model(name: str) -> type[TableModel]:
    """Return the class of a model by its name, one of ``MODELS``, or "realmlp".

    >>> get_model("logistic").step_name
    'strength'
    """
    if name not in _CLASSES:
        fail_choice("model", name, list(MODELS), "left out")
    module, class_name = _CLASSES[name]
    found: type[TableModel] = getattr(import_module(f"refinecal.training.{module}"), class_name)
    return found


class TableModel(ABC):
    """A classifier of the rows of a table, at each step of its training that may be asked for.

    A subclass provides the four methods with an underscore.
    """

    name: ClassVar[str]
    step_name: ClassVar[str] = "round"
    file_name: ClassVar[str]
    default_steps: ClassVar[int] = 1000
    default_patience: ClassVar[int | None] = 50
    frees_the_interpreter: ClassVar[bool] = False  # so that models can be trained in threads

    n_classes: int
    n_features: int
    n_steps: int
    step: int | None = None  # predicts unless another is asked for: the best one, or the one saved

    def __init_subclass__(cls) -> None:
        cls.file_name = FILES.get(getattr(cls, "name", ""), "")

    @classmethod
    def check_library(cls) -> None:
        """Raise if what trains the model is not installed; predictions may need less."""
        return

    @classmethod
    def train(cls, run: TrainingRun) -> Self:
        """Train until the monitor says stop, or for ``max_steps``.

        Features are a DataFrame: numbers as float64, NaN where missing; categories as pandas categories of
        whole numbers. Labels are 0..k-1, and the training rows have every class.
        """
        if run.max_steps < 1:
            raise ValueError(
                f"max_steps is {run.max_steps}: train for at least one {cls.step_name}"
            )
        if run.monitor.history:
            raise ValueError(
                f"monitor has seen {len(run.monitor.history)} steps already: each training run needs a new "
                "one"
            )
        model = cls._train(run)
        model.step = run.monitor.best_step
        return model

    def logits(self, X: pd.DataFrame, step: int | None = None) -> NDArray[Any]:
        """Return ``(n,)`` log-odds of class 1 for two classes, else ``(n, k)`` logits.

        X has the columns of the training data, in the same order; ``step`` is by default :attr:`step`.
        """
        self._check_columns(X)
        return self._logits(X, self._check_step(step))

    def logits_at(self, X: pd.DataFrame, steps: Iterable[int]) -> dict[int, NDArray[Any]]:
        """Return the logits of several steps, by step: as :meth:`logits` does, but faster."""
        self._check_columns(X)
        return self._logits_at(X, sorted({self._check_step(step) for step in steps}))

    def save(self, folder: Path, step: int | None = None) -> None:
        """Write the model as it is at a step, by default :attr:`step`, to ``folder / file_name``."""
        content = self._to_bytes(self._check_step(step))
        with atomic_write(Path(folder) / self.file_name) as part:  # which explains a full disk
            part.write_bytes(content)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a model that :meth:`save` wrote; nothing in the file is ever unpickled.

        The manifest of a run folder reveals damage; here only the file's own format is checked, and a
        crafted file may crash the process: load models only from sources you trust.
        """
        path = Path(folder) / cls.file_name
        if not path.is_file():
            raise FileNotFoundError(
                f"there is no {cls.file_name} in {folder}: the model is missing"
            )
        try:
            model = cls._load(path)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # each library has its own kinds
            reason = str(error).split("\n", 1)[0]  # XGBoost adds a stack trace
            raise ValueError(
                f"{path} is not a model of {cls.name}, or it is damaged ({type(error).__name__}: {reason}): "
                "fit the model again, or get the run folder again from where it came from"
            ) from error
        model.step = model.n_steps
        return model

    def _check_columns(self, X: pd.DataFrame) -> None:
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} columns, but the model was trained with {self.n_features}: pass the "
                "same columns in the same order"
            )

    def _check_step(self, step: int | None) -> int:
        step = self.step if step is None else step
        if step is None:
            raise ValueError(
                "the monitor found no best step, since its metric was never a number: use other validation "
                "rows, or lower the learning rate if training diverged"
            )
        if not 1 <= step <= self.n_steps:
            raise ValueError(
                f"step is {step}: the model has the {self.step_name}s 1..{self.n_steps}"
            )
        return step

    @classmethod
    @abstractmethod
    def _train(cls, run: TrainingRun) -> Self: ...

    @abstractmethod
    def _logits(self, X: pd.DataFrame, step: int) -> NDArray[Any]: ...

    def _logits_at(self, X: pd.DataFrame, steps: list[int]) -> dict[int, NDArray[Any]]:
        """Return the logits of steps in increasing order; for a subclass that can share work between them."""
        return {step: self._logits(X, step) for step in steps}

    @abstractmethod
    def _to_bytes(self, step: int) -> bytes: ...

    @classmethod
    @abstractmethod
    def _load(cls, path: Path) -> Self: ...


def find_step(kept: Mapping[int, Any], step: int) -> Any:
    """Return the weights of an epoch of a network, of which only the best ones are kept."""
    if step not in kept:
        raise ValueError(
            f"step is {step}: only the weights of epochs {sorted(kept)} were kept, the best by each metric "
            "of the monitor"
        )
    return kept[step]


def check_params(model: str, params: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """Refuse a parameter that a model does not have."""
    for name in params:
        if name not in allowed:
            fail_choice(f"a parameter of {model}", name, list(allowed), "left out")


def to_npz(arrays: Mapping[str, Any]) -> bytes:
    """Return the content of an ``.npz`` file with arrays under their names."""
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    return content.getvalue()


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of an ``.npz`` file; they are never unpickled."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return dict(stored)
