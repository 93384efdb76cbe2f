"""The paper's multi-layer perceptron: four hidden layers of 256, AdamW, quantile transform and one-hot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal.training.encoding import Encoding
from refinecal.training.table_model import TableModel, check_params, find_step
from refinecal.training.trainer import TrainingRun

if TYPE_CHECKING:
    import pandas as pd

with needs_extra("mlp", package="torch"):
    import torch
    from torch.nn.functional import cross_entropy, embedding_bag, linear, relu
with needs_extra("mlp", package="safetensors"):
    from safetensors.numpy import load_file, save

DEFAULTS = {  # the paper's table of default hyper-parameters
    "n_layers": 4,
    "hidden_size": 256,
    "learning_rate": 1e-3,
    "dropout": 0.0,
    "weight_decay": 0.0,
    "batch_size": 256,
}
CHUNK = 8192  # rows that are predicted at once
LARGEST_SEED = 2**63

Net = dict[str, torch.Tensor]
Batch = tuple[torch.Tensor, torch.Tensor]  # numbers, and which one-hot columns are 1


class MLPModel(TableModel):
    """A multi-layer perceptron in torch; a step is an epoch, saved as safetensors.

    The weights of the best epoch by each metric of the monitor are kept.
    """

    name = "mlp"
    step_name = "epoch"
    default_steps = 256
    default_patience = 64

    def __init__(
        self, encoding: Encoding, nets: dict[int, Net], n_steps: int, n_threads: int | None = None
    ) -> None:
        self.encoding = encoding
        self.nets = nets
        self.n_steps = n_steps
        self.n_features = len(encoding.is_category)
        self.n_classes = 0 if not nets else len(next(iter(nets.values()))["bias_out"])
        self.n_threads = n_threads

    @classmethod
    def _train(cls, run: TrainingRun) -> Self:
        check_params(cls.name, run.params, DEFAULTS)
        options = DEFAULTS | run.params
        encoding = Encoding.learn(run.rows.X, "quantile")
        rows, rows_val = _tensors(encoding, run.rows.X), _tensors(encoding, run.val.X)
        random = torch.Generator().manual_seed(run.seed % LARGEST_SEED)
        net = _new_net(encoding, len(run.classes), options, random)
        with _limit_threads(run.n_threads):
            nets = run.keep_best(
                _epochs(net, run, options, rows, random),
                lambda: _predict(net, rows_val),
                lambda: {name: w.detach().clone() for name, w in net.items()},
            )
        return cls(encoding, nets, run.step, run.n_threads)

    def _logits(self, X: pd.DataFrame, step: int) -> NDArray[Any]:
        return self._logits_at(X, [step])[step]

    def _logits_at(self, X: pd.DataFrame, steps: list[int]) -> dict[int, NDArray[Any]]:
        rows = _tensors(self.encoding, X)
        with _limit_threads(self.n_threads):
            return {step: _predict(find_step(self.nets, step), rows) for step in steps}

    def _to_bytes(self, step: int) -> bytes:
        net = {f"net.{name}": w.numpy() for name, w in find_step(self.nets, step).items()}
        stored = self.encoding.to_arrays() | net | {"epoch": np.array([step], np.int64)}
        content: bytes = save({name: np.ascontiguousarray(each) for name, each in stored.items()})
        return content

    @classmethod
    def _load(cls, path: Path) -> Self:
        arrays = load_file(path)
        step = int(arrays["epoch"][0])
        net = {
            name.removeprefix("net."): torch.from_numpy(each)
            for name, each in arrays.items()
            if name.startswith("net.")
        }
        return cls(Encoding.from_arrays(arrays), {step: net}, step)


# ---- the network ------------------------------------------------------------------------------------------


def _new_net(
    encoding: Encoding, n_classes: int, options: dict[str, Any], random: torch.Generator
) -> Net:
    """Return weights as torch.nn.Linear would draw them, the first layer's in two parts.

    One-hot columns times a matrix are rows of that matrix: its transpose is a table to look them up in,
    with a last row of zeros for categories that have no column.
    """
    n_numbers, n_codes, width = encoding.n_numbers, encoding.n_codes, options["hidden_size"]

    def uniform(fan_in: int, *shape: int) -> torch.Tensor:
        bound = max(1, fan_in) ** -0.5
        return torch.empty(shape).uniform_(-bound, bound, generator=random)

    fan_in = n_numbers + n_codes
    net = {
        "numbers": uniform(fan_in, width, n_numbers),
        "codes": uniform(fan_in, n_codes + 1, width),
        "bias_0": uniform(fan_in, width),
    }
    net["codes"][-1] = 0.0
    for layer in range(1, options["n_layers"]):
        net[f"weight_{layer}"] = uniform(width, width, width)
        net[f"bias_{layer}"] = uniform(width, width)
    net["weight_out"] = uniform(width, n_classes, width)
    net["bias_out"] = uniform(width, n_classes)
    return net


def _forward(
    net: Net, batch: Batch, dropout: float = 0.0, random: torch.Generator | None = None
) -> torch.Tensor:
    numbers, positions = batch
    hidden = linear(numbers, net["numbers"], net["bias_0"])
    if positions.shape[1]:
        table = net["codes"]
        hidden = hidden + embedding_bag(positions, table, mode="sum", padding_idx=len(table) - 1)
    hidden = _apply_dropout(relu(hidden), dropout, random)
    layer = 1
    while f"weight_{layer}" in net:
        hidden = relu(linear(hidden, net[f"weight_{layer}"], net[f"bias_{layer}"]))
        hidden = _apply_dropout(hidden, dropout, random)
        layer += 1
    return linear(hidden, net["weight_out"], net["bias_out"])


def _apply_dropout(
    hidden: torch.Tensor, dropout: float, random: torch.Generator | None
) -> torch.Tensor:
    """Apply dropout with our own random numbers, since torch's dropout uses the global ones."""
    if not dropout:
        return hidden
    stays = torch.rand(hidden.shape, generator=random) >= dropout
    return hidden * stays / (1 - dropout)


def _predict(net: Net, rows: Batch) -> NDArray[Any]:
    with torch.no_grad():
        numbers, positions = rows
        starts = range(0, max(1, len(numbers)), CHUNK)
        parts = [(numbers[i : i + CHUNK], positions[i : i + CHUNK]) for i in starts]
        outputs = torch.cat([_forward(net, part) for part in parts])
        log_odds = outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 else outputs
    return np.asarray(log_odds.numpy())


# ---- training ---------------------------------------------------------------------------------------------


def _tensors(encoding: Encoding, X: pd.DataFrame) -> Batch:
    numbers = encoding.numbers(X).astype(np.float32)
    return torch.from_numpy(numbers), torch.from_numpy(encoding.positions(X))


def _epochs(
    net: Net, run: TrainingRun, options: dict[str, Any], rows: Batch, random: torch.Generator
) -> Iterator[None]:
    """Train without end; pause after each epoch."""
    for weight in net.values():
        weight.requires_grad_()
    rate, decay = options["learning_rate"], options["weight_decay"]
    # Fused, it reads each weight once: the others go over all of them a dozen times.
    optimizer = torch.optim.AdamW(net.values(), lr=rate, weight_decay=decay, fused=True)
    labels, weights = torch.from_numpy(run.rows.y), None
    if run.rows.weights is not None:  # with mean 1, so that their scale does not change the rate
        scaled = np.asarray(run.rows.weights) / np.mean(run.rows.weights)
        weights = torch.from_numpy(scaled.astype(np.float32))
    while True:
        order = torch.randperm(len(labels), generator=random)
        for start in range(0, len(order), options["batch_size"]):
            batch = order[start : start + options["batch_size"]]
            part = (rows[0][batch], rows[1][batch])
            outputs = _forward(net, part, options["dropout"], random)
            if weights is None:
                loss = cross_entropy(outputs, labels[batch])
            else:
                losses = cross_entropy(outputs, labels[batch], reduction="none")
                loss = (losses * weights[batch]).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        yield


@contextmanager
def _limit_threads(n_threads: int | None) -> Iterator[None]:
    """Limit the number of threads of torch within a block."""
    before = torch.get_num_threads()
    if n_threads is not None:
        torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
