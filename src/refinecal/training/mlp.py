"""A multi-layer perceptron of a table: torch trains it, predictions need NumPy alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal.training.encoding import Encoding
from refinecal.training.table_model import TableModel, find_step
from refinecal.training.trainer import TrainingRun

if TYPE_CHECKING:
    import pandas as pd

with needs_extra("mlp", package="safetensors"):
    from safetensors.numpy import load_file, save

DEFAULTS = {  # the paper's table of default hyper-parameters
    "n_layers": 4,
    "hidden_size": 256,
    "learning_rate": 1e-3,
    "dropout": 0.0,
    "weight_decay": 0.0,
    "batch_size": 256,
    "n_frequencies": 0,  # of each number, see refinecal.training.mlp_training
    "schedule": "constant",  # of the learning rate
}
CHUNK = 2048  # rows that are predicted at once

Net = dict[str, NDArray[np.float32]]
Batch = tuple[NDArray[np.float32], NDArray[np.int64]]  # numbers, and which one-hot columns are 1


class MLPModel(TableModel):
    """A multi-layer perceptron; a step is an epoch, saved as safetensors.

    The weights of the best epoch by each metric of the monitor are kept.
    """

    name = "mlp"
    step_name = "epoch"
    default_steps = 256
    default_patience = 64
    frees_the_interpreter = True

    def __init__(self, encoding: Encoding, nets: dict[int, Net], n_steps: int) -> None:
        self.encoding = encoding
        self.nets = nets
        self.n_steps = n_steps
        self.n_features = len(encoding.is_category)
        self.n_classes = 0 if not nets else len(next(iter(nets.values()))["bias_out"])

    @classmethod
    def check_library(cls) -> None:
        """Raise if torch is not installed."""
        import refinecal.training.mlp_training  # noqa: F401

    @classmethod
    def _train(cls, run: TrainingRun) -> Self:
        from refinecal.training.mlp_training import train_nets

        encoding = Encoding.learn(run.rows.X, "quantile")
        nets = train_nets(run, encoding, to_batch(encoding, run.rows.X))
        return cls(encoding, nets, run.step)

    def _logits(self, X: pd.DataFrame, step: int) -> NDArray[Any]:
        return self._logits_at(X, [step])[step]

    def _logits_at(self, X: pd.DataFrame, steps: list[int]) -> dict[int, NDArray[Any]]:
        rows = to_batch(self.encoding, X)
        return {step: predict(find_step(self.nets, step), rows) for step in steps}

    def _to_bytes(self, step: int) -> bytes:
        net = {f"net.{name}": w for name, w in find_step(self.nets, step).items()}
        stored = self.encoding.to_arrays() | net | {"epoch": np.array([step], np.int64)}
        content: bytes = save({name: np.ascontiguousarray(each) for name, each in stored.items()})
        return content

    @classmethod
    def _load(cls, path: Path) -> Self:
        arrays = load_file(path)
        step = int(arrays["epoch"][0])
        net = {
            name.removeprefix("net."): each
            for name, each in arrays.items()
            if name.startswith("net.")
        }
        return cls(Encoding.from_arrays(arrays), {step: net}, step)


def to_batch(encoding: Encoding, X: pd.DataFrame) -> Batch:
    """Return rows as the network sees them."""
    return encoding.numbers(X).astype(np.float32), encoding.positions(X)


def predict(net: Net, rows: Batch) -> NDArray[np.float32]:
    """Return the log-odds of two classes, else the logits."""
    starts = range(0, max(1, len(rows[0])), CHUNK)
    with np.errstate(over="ignore", invalid="ignore"):  # of a network that diverges
        parts = [_forward(net, *(each[i : i + CHUNK] for each in rows)) for i in starts]
    outputs = np.concatenate(parts)
    return np.asarray(outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 else outputs)


def _forward(net: Net, numbers: NDArray[Any], positions: NDArray[Any]) -> NDArray[Any]:
    """Return the logits of some rows: what ``mlp_training.forward`` computes, without dropout."""
    if "frequencies" in net:
        waves = np.cos(numbers[:, :, None] * net["frequencies"] + net["phases"])
        made = np.matmul(waves.transpose(1, 0, 2), net["mix"]).transpose(1, 0, 2) + net["mix_bias"]
        numbers = np.concatenate(
            [numbers, made.reshape(len(numbers), made.shape[1] * made.shape[2])], axis=1
        )
    hidden = numbers @ net["numbers"].T + net["bias_0"]
    for column in positions.T:
        hidden += net["codes"][column]
    layer = 1
    while f"weight_{layer}" in net:
        hidden = np.maximum(hidden, 0) @ net[f"weight_{layer}"].T + net[f"bias_{layer}"]
        layer += 1
    return np.asarray(np.maximum(hidden, 0) @ net["weight_out"].T + net["bias_out"])
