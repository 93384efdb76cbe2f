"""Models of a table, by name: each can be trained step by step, predict, be saved and loaded."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import fail_choice
from refinecal._core.files import atomic_write
from refinecal.stopping import RefinementMonitor
from refinecal.training.rows import Rows
from refinecal.training.trainer import TrainingRun

if TYPE_CHECKING:
    import pandas as pd

Weights = NDArray[np.float64] | None

_CLASSES = {
    "xgboost": ("xgboost", "XGBoostModel"),
    "lightgbm": ("lightgbm", "LightGBMModel"),
    "catboost": ("catboost", "CatBoostModel"),
    "hist-gb": ("hist_gb", "HistGradientBoostingModel"),
    "logistic": ("logistic_path", "LogisticModel"),
    "mlp": ("mlp", "MLPModel"),
    "realmlp": ("realmlp", "RealMLPModel"),
}
FILES = {  # the file in which each is saved, known without importing its library
    "xgboost": "model.ubj",
    "lightgbm": "model.txt",
    "catboost": "model.cbm",
    "hist-gb": "model.npz",
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

    Attributes
    ----------
    n_classes, n_features : int
        Of the training data.
    n_steps : int
        How many steps the model has.
    step : int or None
        The step that predicts unless another is asked for: the monitor's best, or the one that was saved.
    """

    name: ClassVar[str]
    extra: ClassVar[str | None] = None
    step_name: ClassVar[str] = "round"
    file_name: ClassVar[str]
    default_steps: ClassVar[int] = 1000
    default_patience: ClassVar[int | None] = 50
    frees_the_interpreter: ClassVar[bool] = False  # so that models can be trained in threads

    n_classes: int
    n_features: int
    n_steps: int
    step: int | None = None

    @classmethod
    def train(
        cls,
        X: pd.DataFrame,
        y: NDArray[np.int64],
        X_val: pd.DataFrame,
        y_val: NDArray[np.int64],
        *,
        n_classes: int,
        monitor: RefinementMonitor,
        max_steps: int,
        params: Mapping[str, Any] | None = None,
        weights: Weights = None,
        weights_val: Weights = None,
        seed: int = 0,
        n_threads: int | None = None,
        on_step: Callable[[int], None] | None = None,
    ) -> Self:
        """Train until the monitor says stop, or for ``max_steps``.

        Parameters
        ----------
        X, X_val : DataFrame
            Numbers as float64, NaN where missing; categories as pandas categories of whole numbers.
        y, y_val : ndarray of int64
            Labels 0..n_classes-1; ``y`` has every class.
        n_classes : int
            How many classes there are.
        monitor : RefinementMonitor
            A new one; sees the validation logits after each step, counted from 1.
        max_steps : int
            The last step, if the monitor does not stop before.
        params : mapping, optional
            The model's own parameters, such as ``refinecal.tabular.spaces.draw`` returns.
        weights, weights_val : ndarray, optional
            Sample weights.
        seed : int, default 0
            The same seed gives the same model.
        n_threads : int, optional
            By default the library's own choice.
        on_step : callable, optional
            Called with the number of steps done, for a progress bar.
        """
        if max_steps < 1:
            raise ValueError(f"max_steps is {max_steps}: train for at least one {cls.step_name}")
        if monitor.history:
            raise ValueError(
                f"monitor has seen {len(monitor.history)} steps already: each training run needs a new one"
            )
        run = TrainingRun(
            Rows(X, np.asarray(y, np.int64), weights),
            Rows(X_val, np.asarray(y_val, np.int64), weights_val),
            np.arange(n_classes),
            monitor,
            max_steps,
            dict(params or {}),
            seed,
            n_threads,
            on_step,
        )
        model = cls._train(run)
        model.step = monitor.best_step
        return model

    def logits(self, X: pd.DataFrame, step: int | None = None) -> NDArray[Any]:
        """Return ``(n,)`` log-odds of class 1 for two classes, else ``(n, k)`` logits.

        Parameters
        ----------
        X : DataFrame
            With the columns of the training data, in the same order.
        step : int, optional
            Which step predicts; by default :attr:`step`.
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

        Raises
        ------
        ValueError
            If the file cannot be read.
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


def to_npz(arrays: Mapping[str, Any]) -> bytes:
    """Return the content of an ``.npz`` file with arrays under their names."""
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    return content.getvalue()


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of an ``.npz`` file; they are never unpickled."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return dict(stored)
