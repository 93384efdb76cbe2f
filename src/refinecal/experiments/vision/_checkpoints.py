"""The state of a training in one file, from which it goes on as if it had never stopped.

Weights, momentum and logits are tensors; all else is JSON beside them. Random numbers need no place: those of
an epoch follow from the seed and its number.
"""

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

if TYPE_CHECKING:
    import torch

__all__ = ["Checkpoint", "CheckpointFile"]

FORMAT = 2  # of the file
NAME = "training.safetensors"
ABOUT, SUM = "refinecal", "crc32"  # the entries of the file's metadata that are ours
OS_ERROR = re.compile(r"\(os error (\d+)\)")  # in the words of safetensors
PARTS = ("net", "momentum", "val", "test")  # of the names of tensors

Tensors = dict[str, "torch.Tensor"]


@dataclass(slots=True)
class Checkpoint:
    """A training after some epoch.

    Attributes
    ----------
    epoch : int
        How many epochs were trained.
    task : dict
        What is trained, and how; a training of anything else must not go on from here.
    metrics : dict
        What ``EpochMetrics.state`` returned.
    seconds : dict
        Time spent so far.
    net, momentum : dict
        The state of the network, and of the optimiser by name of parameter.
    val, test : dict
        Logits by epoch, of the best epochs so far.
    """

    epoch: int
    task: dict[str, Any]
    metrics: dict[str, Any]
    seconds: dict[str, float]
    peak_memory: int = 0
    net: Tensors = field(default_factory=dict)
    momentum: Tensors = field(default_factory=dict)
    val: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    test: dict[int, NDArray[np.float32]] = field(default_factory=dict)


class CheckpointFile:
    """The file of one training in a folder of its own.

    Parameters
    ----------
    folder : path
        Made if it is not there.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / NAME
        with needs_extra("vision", package="safetensors"):
            import safetensors.torch  # noqa: F401  # now, not after the first epoch

    def prepare(self) -> None:
        """Make the folder; remove what was being written when an earlier process was killed."""
        if self.path.parent.exists() and not self.path.parent.is_dir():
            raise ValueError(
                f"checkpoint is {self.path.parent}, which is a file: pass a folder for this training alone"
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(
                f"checkpoint is {self.path.parent}, where no folder can be made ({error.strerror}): pass one "
                "in a place that can be written to"
            ) from error
        for part in self.path.parent.glob(f".{self.path.stem}.*.part{self.path.suffix}"):
            part.unlink(missing_ok=True)

    def save(self, state: Checkpoint) -> None:
        """Put a state in the place of the last one, whole or not at all."""
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
        """Return the last state of this very training; ``None`` if there is none.

        Raises
        ------
        ValueError
            If the file is damaged, or of another training.
        """
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
                f"{self.path} is of another training ({'; '.join(differences)}): train as before to go on "
                "from it, or delete it to begin again"
            )
        return found

    def _read(self) -> Checkpoint:
        from safetensors import safe_open

        with self.path.open("rb"):  # for safetensors, what cannot be read is not there
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
                f"{self.path} is no checkpoint of a training, or it is damaged ({type(error).__name__}: "
                f"{error}): delete it to begin again"
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
