"""Training of the multi-layer perceptron by torch.

By default it is the paper's: four hidden layers of 256 and AdamW. With ``n_frequencies``, the network also
sees cosines of each number at frequencies that it learns (Gorishniy et al. 2022, "On Embeddings for Numerical
Features in Tabular Deep Learning"). With ``schedule="cosine"``, the learning rate falls to 0 at the last
epoch, or when the time is up.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from refinecal._core.errors import fail_choice, needs_extra
from refinecal.training.encoding import Encoding
from refinecal.training.mlp import DEFAULTS, Batch, Net, predict, to_batch
from refinecal.training.table_model import check_params
from refinecal.training.trainer import TrainingRun

with needs_extra("mlp", package="torch"):
    import torch
    from torch.nn.functional import cross_entropy, embedding_bag, linear, relu

SCHEDULES = ("constant", "cosine")
WARM_UP = 0.05  # of a cosine schedule: the learning rate rises first
FREQUENCY = 0.2 * math.pi  # standard deviation of the frequencies before they are learned
PER_NUMBER = 3  # features made of the cosines of each number
LARGEST_SEED = 2**63

Tensors = dict[str, torch.Tensor]


def train_nets(run: TrainingRun, encoding: Encoding, rows: Batch) -> dict[int, Net]:
    """Train as long as the monitor wants; return the weights of the best epoch by each metric."""
    check_params("mlp", run.params, DEFAULTS)
    options = DEFAULTS | run.params
    if options["schedule"] not in SCHEDULES:
        fail_choice("schedule", options["schedule"], list(SCHEDULES), "left out")
    rows_val = to_batch(encoding, run.val.X)
    random = torch.Generator().manual_seed(run.seed % LARGEST_SEED)
    net = _new_net(encoding, len(run.classes), options, random)
    arrays = {name: weight.numpy() for name, weight in net.items()}  # of the same memory
    with _limit_threads(run.n_threads):
        return run.keep_best(
            _epochs(net, run, options, rows, random),
            lambda: predict(arrays, rows_val),
            lambda: {name: weight.copy() for name, weight in arrays.items()},
        )


def _new_net(
    encoding: Encoding, n_classes: int, options: dict[str, Any], random: torch.Generator
) -> Tensors:
    """Return weights as torch.nn.Linear would draw them, the first layer's in two parts.

    One-hot columns times a matrix are rows of that matrix: its transpose is a table to look them up in,
    with a last row of zeros for categories that have no column.
    """
    n_numbers, n_codes, width = encoding.n_numbers, encoding.n_codes, options["hidden_size"]
    n_frequencies = options["n_frequencies"]

    def uniform(fan_in: int, *shape: int) -> torch.Tensor:
        bound = max(1, fan_in) ** -0.5
        return torch.empty(shape).uniform_(-bound, bound, generator=random)

    n_inputs = n_numbers * (1 + PER_NUMBER * (n_frequencies > 0))
    fan_in = n_inputs + n_codes
    net = {
        "numbers": uniform(fan_in, width, n_inputs),
        "codes": uniform(fan_in, n_codes + 1, width),
        "bias_0": uniform(fan_in, width),
    }
    net["codes"][-1] = 0.0
    for layer in range(1, options["n_layers"]):
        net[f"weight_{layer}"] = uniform(width, width, width)
        net[f"bias_{layer}"] = uniform(width, width)
    net["weight_out"] = uniform(width, n_classes, width)
    net["bias_out"] = uniform(width, n_classes)
    if n_frequencies:
        shape = (n_numbers, n_frequencies)
        net["frequencies"] = FREQUENCY * torch.randn(shape, generator=random)
        net["phases"] = math.pi * uniform(1, *shape)
        net["mix"] = uniform(n_frequencies, *shape, PER_NUMBER)
        net["mix_bias"] = torch.zeros(n_numbers, PER_NUMBER)
    return net


def forward(
    net: Tensors,
    numbers: torch.Tensor,
    positions: torch.Tensor,
    dropout: float = 0.0,
    random: torch.Generator | None = None,
) -> torch.Tensor:
    """Return the logits of some rows."""
    if "frequencies" in net:
        waves = torch.cos(numbers[:, :, None] * net["frequencies"] + net["phases"])
        made = torch.matmul(waves.transpose(0, 1), net["mix"]).transpose(0, 1) + net["mix_bias"]
        numbers = torch.cat([numbers, made.flatten(1)], dim=1)
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


def _epochs(
    net: Tensors, run: TrainingRun, options: dict[str, Any], rows: Batch, random: torch.Generator
) -> Iterator[None]:
    """Train without end; pause after each epoch."""
    for weight in net.values():
        weight.requires_grad_()
    rate, decay, size = options["learning_rate"], options["weight_decay"], options["batch_size"]
    # Fused, it reads each weight once: the others go over all of them a dozen times.
    optimizer = torch.optim.AdamW(net.values(), lr=rate, weight_decay=decay, fused=True)
    numbers, positions, labels = (torch.from_numpy(each) for each in (*rows, run.rows.y))
    weights = None
    if run.rows.weights is not None:  # with mean 1, so that their scale does not change the rate
        scaled = np.asarray(run.rows.weights) / np.mean(run.rows.weights)
        weights = torch.from_numpy(scaled.astype(np.float32))
    progress = Progress(run)
    while True:
        order = torch.randperm(len(labels), generator=random)
        progress.start_epoch()
        for start in range(0, len(order), size):
            if options["schedule"] == "cosine":
                optimizer.param_groups[0]["lr"] = rate * _cosine(progress.at(start / len(order)))
            batch = order[start : start + size]
            part = numbers[batch], positions[batch]
            outputs = forward(net, *part, options["dropout"], random)
            if weights is None:
                loss = cross_entropy(outputs, labels[batch])
            else:
                losses = cross_entropy(outputs, labels[batch], reduction="none")
                loss = (losses * weights[batch]).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        yield


class Progress:
    """How much of the training is done: of its epochs, fewer if there is no time for all."""

    def __init__(self, run: TrainingRun) -> None:
        self.run, self.start, self.total = run, time.monotonic(), float(run.max_steps)

    def start_epoch(self) -> None:
        """Look at the clock."""
        done = self.run.step
        if done and self.run.seconds_left is not None:
            per_epoch = (time.monotonic() - self.start) / done
            self.total = min(self.total, done + max(1.0, self.run.seconds_left() / per_epoch))

    def at(self, part: float) -> float:
        """Return the part that is done, after a part of the epoch."""
        return min(1.0, (self.run.step + part) / self.total)


def _cosine(done: float) -> float:
    """Return the factor of the learning rate."""
    return min(1.0, (done + 0.1 * WARM_UP) / WARM_UP) * (1 + math.cos(math.pi * done)) / 2


_threads = threading.Lock()
_limited: list[int] = []  # how many threads torch had before each of the blocks that limit it now


@contextmanager
def _limit_threads(n_threads: int | None) -> Iterator[None]:
    """Limit the number of threads of torch within a block; several may run at once."""
    with _threads:
        _limited.append(torch.get_num_threads() if not _limited else _limited[0])
        if n_threads is not None:
            torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        with _threads:  # each thread has its own number
            torch.set_num_threads(_limited.pop())
