"""A network that learns, one epoch at a time, and its checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal.experiments.units import open_archive, write_archive
from refinecal.experiments.vision.augment import Augmentation, Normalization
from refinecal.experiments.vision.hardware import Devices, disable_tf32
from refinecal.experiments.vision.networks import new_network
from refinecal.experiments.vision.recipe import Recipe

with needs_extra("vision", package="torch"):
    import torch
    from torch import Tensor
    from torch.nn.functional import cross_entropy

NAME = "training.npz"
ABOUT = (
    "epoch",
    "task",
    "metrics",
    "seconds",
    "peak_memory",
)  # of a checkpoint; the rest are arrays
LOGITS = ("val", "test")
MOMENTUM = "momentum_buffer"  # the optimizer's state of a parameter, by SGD


@dataclass(slots=True)
class Checkpoint:
    """A training run after some epoch."""

    epoch: int  # how many were trained
    task: dict[str, Any]  # what is trained, and how; nothing else may resume from here
    metrics: dict[str, Any]  # what EpochMetrics.state returned
    seconds: dict[str, float]  # so far
    peak_memory: int = 0
    net: dict[str, Any] = field(default_factory=dict)  # the state of the network, and
    momentum: dict[str, Any] = field(default_factory=dict)  # the optimizer's
    val: dict[int, NDArray[np.float32]] = field(default_factory=dict)  # logits of the best epochs
    test: dict[int, NDArray[np.float32]] = field(default_factory=dict)


class CheckpointFile:
    """The checkpoint of one training run, in its own folder, which is created if need be."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / NAME

    def prepare(self) -> None:
        """Make the folder; remove what was being written when an earlier process was killed."""
        if self.path.parent.exists() and not self.path.parent.is_dir():
            raise ValueError(
                f"checkpoint is {self.path.parent}, which is a file: pass a folder for this run alone"
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(
                f"checkpoint is {self.path.parent}, where no folder can be created ({error.strerror}): pass "
                "one in a writable place"
            ) from error
        for part in self.path.parent.glob(f".{self.path.stem}.*.part*"):
            part.unlink(missing_ok=True)

    def save(self, state: Checkpoint) -> None:
        """Replace the last state, completely or not at all."""
        arrays = {
            f"{part}.{name}": value if part in LOGITS else value.detach().cpu().numpy()
            for part in ("net", "momentum", *LOGITS)
            for name, value in getattr(state, part).items()
        }
        about = {name: getattr(state, name) for name in ABOUT}
        write_archive(self.path, about, arrays, compress=False)

    def load(self, task: Mapping[str, Any]) -> Checkpoint | None:
        """Return the last state of this training run, if any; raise if it is damaged or of another run."""
        if not self.path.exists():
            return None
        found = self._read()
        differences = [
            f"{name} was {found.task.get(name)!r}, now {now.get(name)!r}"
            for now in [json.loads(json.dumps(task))]
            for name in {**now, **found.task}
            if found.task.get(name) != now.get(name)
        ]
        if differences:
            raise ValueError(
                f"{self.path} is of another training run ({'; '.join(differences)}): train as before to "
                "resume it, or delete it to start over"
            )
        return found

    def _read(self) -> Checkpoint:
        what = "a checkpoint of a training run"
        with open_archive(self.path, what, "delete it to start over") as (about, arrays):
            found = Checkpoint(**about)
            for key in arrays:
                part, _, name = key.partition(".")
                if part in LOGITS:
                    getattr(found, part)[int(name)] = arrays[key]
                elif part in ("net", "momentum"):
                    getattr(found, part)[name] = torch.from_numpy(arrays[key])
            return found


CHUNK = 500  # images that are predicted together
ORDER, AUGMENTATION, DROPOUT = range(3)  # what random numbers are for


class Learner:
    """A network with its optimizer, and the images that it learns from.

    It learns from some ``rows`` of the training images ``x`` and labels ``y``, which also give the mean and
    the scale of the pixels. The precision of the recipe is "float32" or "bfloat16".
    """

    def __init__(
        self,
        recipe: Recipe,
        x: NDArray[np.uint8],
        y: NDArray[np.int64],
        rows: NDArray[np.int64],
        n_classes: int,
        seed: int,
        devices: Devices,
    ) -> None:
        if recipe.batch < devices.size:
            raise ValueError(
                f"recipe.batch is {recipe.batch}, but {devices.size} processes share each batch: it must be "
                f"at least {devices.size}"
            )
        self.recipe, self.seed, self.devices = recipe, seed, devices
        self.n_classes = n_classes
        device = devices.device
        self.x, self.y = self.to_device(x), self.to_device(y)
        self.rows = torch.from_numpy(rows)
        layout = torch.channels_last if recipe.channels_last else torch.contiguous_format
        self._normalize = Normalization.of(self.x[self.rows.to(device)])
        self._augment = Augmentation(recipe.crop, recipe.flip, recipe.cutout)
        net = new_network(recipe.model, n_classes, x.shape[1], seed)
        self.net = devices.prepare(net.to(device, memory_format=layout))  # type: ignore[call-overload]
        self._trained = devices.wrap(self.net)
        given: dict[str, Any] = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
        given["fused"] = device.type in ("cpu", "cuda")  # reads each weight once
        self.optimizer: torch.optim.Optimizer
        if recipe.optimizer == "adamw":
            self.optimizer = torch.optim.AdamW(self.net.parameters(), **given)
        else:
            momentum: Any = {"momentum": recipe.momentum, "nesterov": recipe.nesterov}
            self.optimizer = torch.optim.SGD(self.net.parameters(), **given, **momentum)

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """Return an array as a tensor on the device."""
        return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(self.devices.device)

    # ---- learning ----------------------------------------------------------------------------------------

    def learn(self, epoch: int) -> float:
        """See every image once; return the mean loss, of each image as it was seen."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate(epoch)
        batches = self._batches(epoch)
        random = self._random(epoch, AUGMENTATION)
        torch.manual_seed(self._seed(epoch, DROPOUT))
        self.net.train()
        device = self.x.device
        exact = torch.float32 if device.type == "mps" else torch.float64
        total = torch.zeros((), dtype=exact, device=device)
        for batch in batches:
            total += self.step(batch, random)
        self.devices.synchronize(self.net)
        return self.devices.total(total) / len(self.rows)

    def step(self, batch: Tensor, random: torch.Generator) -> Tensor:
        """Make one step on the given rows; return the sum of the losses of this process's."""
        rows = self.devices.share(batch)
        seen = self._input(self._augment(self.x.index_select(0, rows), random))
        with torch.autocast(
            seen.device.type, torch.bfloat16, enabled=self.recipe.precision == "bfloat16"
        ):
            logits = self._trained(seen)
        loss = cross_entropy(logits.float(), self.y[rows], reduction="sum")
        self.optimizer.zero_grad()
        mean = loss * (self.devices.size / len(batch))  # processes' gradients are averaged
        mean.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    def _order(self, epoch: int) -> Tensor:
        """Return the rows in the order of this epoch, the same in all processes."""
        random = torch.Generator().manual_seed(_mix_seed(self.seed, epoch, ORDER))
        order = torch.randperm(len(self.rows), generator=random)
        return self.rows[order].to(self.x.device)

    def _batches(self, epoch: int) -> list[Tensor]:
        """Return the rows of each step; a rest that is too small is added to the last one.

        Each process has to have two images: batch normalization cannot learn from one value.
        """
        first, *rest = torch.split(self._order(epoch), self.recipe.batch)
        if rest and len(rest[-1]) < min(2 * self.devices.size, self.recipe.batch):
            *others, last, left = first, *rest
            return [*others, torch.cat([last, left])]
        return [first, *rest]

    def _random(self, epoch: int, purpose: int) -> torch.Generator:
        return torch.Generator().manual_seed(self._seed(epoch, purpose))

    def _seed(self, epoch: int, purpose: int) -> int:
        """Return a seed of this process alone."""
        return _mix_seed(self.seed, epoch, purpose, self.devices.rank)

    def _input(self, images: Tensor) -> Tensor:
        return self._normalize(images, self.recipe.channels_last)

    # ---- predicting --------------------------------------------------------------------------------------

    @torch.inference_mode()
    def logits(self, x: Tensor, rows: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Return the logits of images, all or some, as the network is now; in float32 throughout."""
        self.net.eval()
        rows = np.arange(len(x)) if rows is None else rows
        mine = self.devices.share(torch.from_numpy(rows)).to(x.device)
        with disable_tf32():
            parts = [
                self.net(self._input(x.index_select(0, few))).float()
                for few in torch.split(mine, CHUNK)
                if len(few)
            ]
        found = torch.cat(parts) if parts else torch.empty((0, self.n_classes), device=x.device)
        return np.ascontiguousarray(self.devices.collect(found, len(rows)).cpu().numpy())

    # ---- resuming ----------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the state of the network, and the optimizer's: its kind and the name of the parameter."""
        kept = {
            name if kind == MOMENTUM else f"{kind}:{name}": value
            for name, parameter in self.net.named_parameters()
            for kind, value in self.optimizer.state[parameter].items()
            if value is not None
        }
        return dict(self.net.state_dict()), kept

    def load(self, net: Mapping[str, Tensor], momentum: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned."""
        self.net.load_state_dict(net)
        parameters = dict(self.net.named_parameters())
        for key, value in momentum.items():
            kind, _, name = key.rpartition(":")
            parameter = parameters[name]
            is_alike = value.shape == parameter.shape  # in which case its memory is laid out alike
            room = torch.empty_like(parameter) if is_alike else value.to(parameter.device)
            self.optimizer.state[parameter][kind or MOMENTUM] = room.copy_(value)


def _mix_seed(*parts: int) -> int:
    """Return one seed for several numbers.

    >>> _mix_seed(0, 1, 2) == _mix_seed(0, 1, 2), _mix_seed(0, 1, 2) == _mix_seed(0, 2, 1)
    (True, False)
    """
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0])
