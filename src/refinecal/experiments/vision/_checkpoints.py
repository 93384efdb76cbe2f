"""The state of a training run in one file, from which it resumes as if it had never stopped.

Weights, momentum and logits are tensors; all else is JSON in their metadata. The random numbers of an epoch
follow from the seed and its number, so they are not stored.
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
