"""Where a training run runs: on one device, or on one of several processes that train together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from refinecal._core.errors import needs_extra
from refinecal.experiments import pools

with needs_extra("vision", package="torch"):
    import torch
    from torch import Tensor, nn


def new_devices(device: str | torch.device | None = None) -> Devices:
    """Return the devices of this process: several if ``accelerate launch`` or ``torchrun`` started it."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return DistributedDevices(device)
    return Devices(_choose(device))


def _choose(device: str | torch.device | None) -> torch.device:
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device is {device!r}, which torch does not know: pass 'cpu' or 'cuda:1', say, or omit it"
        ) from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is {device}, but torch sees no GPU: pass 'cpu', or omit it")
    try:
        torch.zeros(1, device=chosen).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(
            f"device is {device}, on which torch cannot compute here: pass another, or omit it"
        ) from error
    return chosen


class Devices:
    """One process with one device."""

    rank = 0  # which of how many processes this is
    size = 1

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def prepare(self, net: nn.Module) -> nn.Module:
        """Return the network as these devices can train it."""
        return net

    def wrap(self, net: nn.Module) -> nn.Module:
        """Return what to call for a step of training: its gradients are those of all processes."""
        return net

    def synchronize(self, net: nn.Module) -> None:
        """Make the network the same in all processes, before it predicts."""

    def total(self, value: Tensor) -> float:
        """Return the sum over all processes."""
        return float(value)

    def share(self, rows: Tensor) -> Tensor:
        """Return this process's part of some rows: every size-th."""
        return rows[self.rank :: self.size]

    def collect(self, part: Tensor, n: int) -> Tensor:
        """Return n rows, of which every process has the part that :meth:`share` gave to it."""
        return part

    def wait(self) -> None:
        """Wait for all processes."""


class DistributedDevices(Devices):
    """One of several processes with a device each, by Accelerate."""

    def __init__(self, device: str | torch.device | None = None) -> None:
        with needs_extra("vision", package="accelerate"):
            from accelerate import Accelerator
        on_cpu = device is not None and torch.device(device).type == "cpu"
        self._accelerator: Any = Accelerator(cpu=on_cpu, mixed_precision="no")
        super().__init__(self._accelerator.device)
        self.rank, self.size = self._accelerator.process_index, self._accelerator.num_processes

    def prepare(self, net: nn.Module) -> nn.Module:
        """Let batch normalization see the whole batch, which torch can do on GPUs only."""
        if self.device.type != "cuda":
            return net
        together: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(net)  # type: ignore[no-untyped-call]
        return together

    def wrap(self, net: nn.Module) -> nn.Module:
        return self._accelerator.prepare_model(net)  # type: ignore[no-any-return]

    def synchronize(self, net: nn.Module) -> None:
        from accelerate.utils import broadcast

        for buffer in net.buffers():  # running means of what each process has seen
            buffer.copy_(broadcast(buffer, from_process=0))

    def total(self, value: Tensor) -> float:
        return float(self._accelerator.reduce(value.clone(), "sum"))

    def collect(self, part: Tensor, n: int) -> Tensor:
        each = -(-n // self.size)
        rows = torch.zeros((each, *part.shape[1:]), dtype=part.dtype, device=part.device)
        rows[: len(part)] = part
        dealt: Tensor = self._accelerator.gather(rows).reshape(self.size, each, *part.shape[1:])
        return dealt.transpose(0, 1).reshape(-1, *part.shape[1:])[:n]

    def wait(self) -> None:
        self._accelerator.wait_for_everyone()


# ---- what a device can do ---------------------------------------------------------------------------------


def choose_precision(precision: str, *devices: str | torch.device) -> str:
    """Return "float32" or "bfloat16": for "auto" bfloat16 if all devices are fast at it."""
    if precision != "auto":
        return precision
    fast = all(_is_fast_at_bfloat16(torch.device(each)) for each in devices)
    return "bfloat16" if fast else "float32"


def _is_fast_at_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    able: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # torch tells since 2.10
    return any(able.get(name, False) for name in ("amx_bf16", "avx512_bf16"))


@contextmanager
def isolate_torch(device: torch.device) -> Iterator[None]:
    """Leave torch's random numbers and settings as they were; let convolutions give equal results."""
    devices = range(torch.cuda.device_count()) if device.type == "cuda" else []  # a seed is for all
    with (
        torch.random.fork_rng(devices=devices),
        torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=True
        ),
    ):
        yield


@contextmanager
def disable_tf32() -> Iterator[None]:
    """Let float32 be float32: with no TF32, nor bfloat16, in convolutions and matrix products."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        ):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def peak_memory(device: torch.device) -> int:
    """Return the most memory of the device so far, in bytes; of the process, on a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return pools.peak_memory()


def forget_peak(device: torch.device) -> None:
    """Let the peak of memory be that of what comes."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        pools.forget_peak()
