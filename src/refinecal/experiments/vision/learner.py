"""A network that learns, one epoch at a time, and its checkpoints."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.errors import needs_extra
from refinecal._core.files import atomic_write
from refinecal.experiments.vision.augment import Augmentation, Normalization
from refinecal.experiments.vision.hardware import Devices, disable_tf32
from refinecal.experiments.vision.networks import new_network
from refinecal.experiments.vision.recipe import Recipe

with needs_extra("vision", package="torch"):
    import torch
    from torch import Tensor
    from torch.nn.functional import cross_entropy

if TYPE_CHECKING:
    import torch


FORMAT = 2  # of the file
NAME = "training.safetensors"
ABOUT, SUM = "refinecal", "crc32"  # the entries of the file's metadata that are ours
OS_ERROR = re.compile(r"\(os error (\d+)\)")  # in the words of safetensors
PARTS = ("net", "momentum", "val", "test")  # of the names of tensors

Tensors = dict[str, "torch.Tensor"]


@dataclass(slots=True)
class Checkpoint:
    """A training run after some epoch."""

    epoch: int  # how many were trained
    task: dict[str, Any]  # what is trained, and how; nothing else may resume from here
    metrics: dict[str, Any]  # what EpochMetrics.state returned
    seconds: dict[str, float]  # so far
    peak_memory: int = 0
    net: Tensors = field(default_factory=dict)  # the state of the network,
    momentum: Tensors = field(default_factory=dict)  # and of the optimizer by name of parameter
    val: dict[int, NDArray[np.float32]] = field(
        default_factory=dict
    )  # logits by epoch, of the best
    test: dict[int, NDArray[np.float32]] = field(default_factory=dict)


class CheckpointFile:
    """The checkpoint of one training run, in its own folder, which is created if need be."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / NAME
        with needs_extra("vision", package="safetensors"):
            import safetensors.torch  # noqa: F401  # now, not after the first epoch

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
        for part in self.path.parent.glob(f".{self.path.stem}.*.part{self.path.suffix}"):
            part.unlink(missing_ok=True)

    def save(self, state: Checkpoint) -> None:
        """Replace the last state, completely or not at all."""
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        about = {
            "format": FORMAT,
            "epoch": state.epoch,
            "task": state.task,
            "metrics": state.metrics,
            "seconds": state.seconds,
            "peak_memory": state.peak_memory,
        }
        said, tensors = json.dumps(about), _flatten(state)
        metadata = {ABOUT: said, SUM: _sum(said, tensors)}
        with atomic_write(self.path) as part:
            try:
                save_file(tensors, part, metadata=metadata)
            except SafetensorError as error:  # which a full disk is for it, too
                if (found := OS_ERROR.search(str(error))) is None:
                    raise
                number = int(found[1])
                raise OSError(number, os.strerror(number), str(self.path)) from error

    def load(self, task: Mapping[str, Any]) -> Checkpoint | None:
        """Return the last state of this training run, if any; raise if it is damaged or of another run."""
        if not self.path.exists():
            return None
        found = self._read()
        differences = [
            f"{name} was {found.task.get(name)!r}, now {value!r}"
            for name, value in json.loads(json.dumps(task)).items()
            if found.task.get(name) != value
        ]
        if differences:
            raise ValueError(
                f"{self.path} is of another training run ({'; '.join(differences)}): train as before to "
                "resume it, or delete it to start over"
            )
        return found

    def _read(self) -> Checkpoint:
        from safetensors import safe_open

        with self.path.open("rb"):  # safetensors reports an unreadable file as missing
            pass
        try:
            with safe_open(self.path, framework="pt") as file:
                metadata = file.metadata()
                about = json.loads(metadata[ABOUT])
                if about.pop("format") != FORMAT:
                    raise ValueError(f"its format is not {FORMAT}")
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if metadata[SUM] != _sum(metadata[ABOUT], tensors):
                raise ValueError("its content does not fit its checksum")
            return Checkpoint(**about, **_unflatten(tensors))
        except (OSError, MemoryError):
            raise
        except Exception as error:
            raise ValueError(
                f"{self.path} is not a checkpoint of a training run, or it is damaged "
                f"({type(error).__name__}: {error}): delete it to start over"
            ) from error


def _sum(said: str, tensors: Tensors) -> str:
    """Return a checksum of all that a file holds."""
    import torch

    found = zlib.crc32(said.encode())
    for name in sorted(tensors):
        found = zlib.crc32(name.encode(), found)
        raw = tensors[name].reshape(-1).view(torch.uint8).numpy()
        found = zlib.crc32(raw.data, found)
    return f"{found:08x}"


def _flatten(state: Checkpoint) -> Tensors:
    """Return all tensors under one name each."""
    import torch

    found = {f"net.{name}": value for name, value in state.net.items()}
    found |= {f"momentum.{name}": value for name, value in state.momentum.items()}
    for part in ("val", "test"):
        logits = getattr(state, part)
        found |= {f"{part}.{epoch}": torch.from_numpy(each) for epoch, each in logits.items()}
    return {name: value.detach().cpu().contiguous() for name, value in found.items()}


def _unflatten(tensors: Tensors) -> dict[str, Any]:
    """Return the tensors as the fields that they are of."""
    found: dict[str, Any] = {part: {} for part in PARTS}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        if part in ("val", "test"):
            found[part][int(rest)] = value.numpy()
        else:
            found[part][rest] = value
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
        self.optimizer = torch.optim.SGD(
            self.net.parameters(),
            lr=recipe.lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=recipe.nesterov,
            fused=device.type in ("cpu", "cuda"),  # reads each weight once
        )

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
        """Return the state of the network, and the optimizer's momentum by name of parameter."""
        momentum = {
            name: self.optimizer.state[parameter].get("momentum_buffer")
            for name, parameter in self.net.named_parameters()
        }
        known = {name: value for name, value in momentum.items() if value is not None}
        return dict(self.net.state_dict()), known

    def load(self, net: Mapping[str, Tensor], momentum: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned."""
        self.net.load_state_dict(net)
        parameters = dict(self.net.named_parameters())
        for name, value in momentum.items():
            room = torch.empty_like(parameters[name])
            self.optimizer.state[parameters[name]]["momentum_buffer"] = room.copy_(value)


def _mix_seed(*parts: int) -> int:
    """Return one seed for several numbers.

    >>> _mix_seed(0, 1, 2) == _mix_seed(0, 1, 2), _mix_seed(0, 1, 2) == _mix_seed(0, 2, 1)
    (True, False)
    """
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0])
