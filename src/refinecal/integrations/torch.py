"""Stop a hand-written PyTorch loop where refinement is best, and restore the weights of that step."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, Unpack

from refinecal._core.checks import check_keywords
from refinecal._core.errors import needs_extra, warn
from refinecal.integrations._adapter import Stopping
from refinecal.stopping import MonitorOptions, RefinementMonitor

with needs_extra("torch", package="torch"):
    import torch
    import torch.distributed as dist
    from torch import Tensor, nn

__all__ = ["RefinementStopping"]


class RefinementStopping(Stopping):
    """Follow a model's validation logits; decide when to stop; keep the best weights and their calibrator.

    It works with any optimizer, device, precision and loop. With Accelerate,
    ``accelerator.register_for_checkpointing(stopping)`` adds it to checkpoints.

    Parameters
    ----------
    patience : int, optional
        Stop after this many steps in a row without improvement; by default never.
    **options
        Keywords of :class:`refinecal.RefinementMonitor`, such as ``metric`` or ``calibrator``.

    Attributes
    ----------
    monitor : RefinementMonitor
        With the ``history`` of all steps; ``monitor.logs("val_")`` returns what to log after each.
    best_state : dict or None
        A copy on the CPU of the model's ``state_dict()`` at the best step, buffers included.

    Examples
    --------
    >>> import torch
    >>> x, y = torch.tensor([[0.0], [1.0], [2.0], [3.0]]), torch.tensor([0, 0, 1, 0])
    >>> model = torch.nn.Linear(1, 2)
    >>> stopping = RefinementStopping(patience=3)
    >>> for epoch in range(100):
    ...     # ... train for one epoch, then:
    ...     stopping.update(model(x), y)  # or stopping.evaluate(model, val_loader)
    ...     if stopping.step(model):
    ...         break
    >>> epoch, stopping.best_epoch  # nothing was learned after the first step
    (3, 0)
    >>> stopping.restore(model)
    >>> stopping.calibrator.predict_proba_logits(model(x)).shape
    (4, 2)
    """

    @check_keywords(MonitorOptions)
    def __init__(self, patience: int | None = None, **options: Unpack[MonitorOptions]) -> None:
        self.monitor = RefinementMonitor(patience=patience, **options)
        self.reset()

    def reset(self) -> None:
        """Forget everything, for a new training run."""
        self.monitor.reset()
        self.best_state: dict[str, Any] | None = None
        self._batches = Batches()

    # ---- validation --------------------------------------------------------------------------------------

    def update(self, logits: Any, y: Any, sample_weight: Any = None) -> None:
        """Add one batch of validation data.

        Parameters
        ----------
        logits : tensor ``(n, k)``, or ``(n,)`` or ``(n, 1)`` log-odds
            What the model returns before any softmax or sigmoid, on any device, in any precision.
        y : tensor
            Labels as for :func:`refinecal.decompose`.
        sample_weight : tensor, optional
            Sample weights; for all batches or none.
        """
        self._batches.add(logits, y, sample_weight)

    def evaluate(self, model: nn.Module, loader: Iterable[Any]) -> None:
        """Add all batches of a loader, in evaluation mode and without gradients.

        Parameters
        ----------
        model : Module
            ``model(x)`` returns logits. Its training mode is restored afterwards.
        loader : iterable
            Yields ``(x, y)`` or ``(x, y, sample_weight)``; a tensor ``x`` is moved to the model's device.
        """
        self._batches = Batches()  # an interrupted pass may have left some
        device = next((p.device for p in model.parameters()), None)
        training = [module for module in model.modules() if module.training]
        model.eval()
        try:
            with torch.no_grad():
                for batch in loader:
                    is_tuple = isinstance(batch, (tuple, list))
                    if not is_tuple or len(batch) not in (2, 3):
                        size = f" of {len(batch)}" if is_tuple else ""
                        raise TypeError(
                            f"loader yields a {type(batch).__name__}{size}: evaluate takes (x, y) or (x, y, "
                            "sample_weight). For other batches call update(model(...), y)."
                        )
                    x, y, *weight = batch
                    moved = x.to(device) if isinstance(x, Tensor) else x
                    self.update(model(moved), y, *weight)
        finally:
            for module in training:
                module.training = True

    def gather(self, rows: int | None = None, group: Any = None) -> None:
        """Exchange batches among the processes of ``torch.distributed``, so that all decide the same.

        Every process calls it, between its last batch and :meth:`step`. Not needed after Accelerate's
        ``gather_for_metrics``.

        Parameters
        ----------
        rows : int, optional
            The size of the validation set, if a ``DistributedSampler`` split it: drops the rows that it
            repeats so that each process has the same number.
        group : ProcessGroup, optional
            The processes; by default all.
        """
        self._batches.gather(rows, group)

    def step(self, model: nn.Module, epoch: int | None = None) -> bool:
        """End a validation pass; copy the weights if they are the best so far; return whether to stop.

        Parameters
        ----------
        model : Module
            The model that made the predictions.
        epoch : int, optional
            Its number, greater than the last; by default the next.
        """
        logits, y, weight = self._batches.join()
        self._batches = Batches()
        warn_if_sigmoid(logits)
        if self.monitor.update(y, logits=logits, step=epoch, sample_weight=weight):
            self.best_state = copy_state(model)
        return self.monitor.should_stop

    # ---- results -----------------------------------------------------------------------------------------

    @property
    def best_epoch(self) -> int | None:
        """The number of the best step; ``None`` before the first."""
        return self.monitor.best_step

    def restore(self, model: nn.Module) -> None:
        """Restore the best weights of the model that was passed to :meth:`step`."""
        if self.best_state is None:
            raise RuntimeError("there are no best weights yet: call step(model) at least once")
        model.load_state_dict(self.best_state)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for resuming, which ``torch.load(..., weights_only=True)`` can load."""
        return {"monitor": self.monitor.state_dict(), "best_state": self.best_state}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.reset()
        self.monitor.load_state_dict(state_dict["monitor"])
        self.best_state = deepcopy(state_dict["best_state"])

    def __repr__(self) -> str:
        return repr(self.monitor).replace("RefinementMonitor", "RefinementStopping", 1)


class Batches:
    """Logits, labels and weights of one validation pass, copied to the CPU batch by batch."""

    def __init__(self) -> None:
        self._parts: list[tuple[Tensor, Tensor, Any]] = []  # weights, if any, for all

    def __len__(self) -> int:
        return sum(len(logits) for logits, _, _ in self._parts)

    def add(self, logits: Any, y: Any, sample_weight: Any = None) -> None:
        """Keep one batch, or raise if it does not match those before."""
        logits, y = _to_rows(logits), _to_rows(y)
        weight = None if sample_weight is None else _to_rows(sample_weight)
        for name, found in (("y", y), ("sample_weight", weight)):
            if found is not None and len(found) != len(logits):
                raise ValueError(
                    f"{name} has {len(found)} rows, but logits has {len(logits)}: pass one per prediction"
                )
        if _are_swapped(logits, y):
            raise ValueError(
                "logits holds only whole numbers, but y does not: pass update(logits, y), in this order"
            )
        if self._parts and logits.shape[1:] != self._parts[0][0].shape[1:]:
            raise ValueError(
                f"logits has shape {tuple(logits.shape)}, but {tuple(self._parts[0][0].shape)} in the first "
                "batch: all batches must have the same columns. If you squeeze logits, a batch of one row "
                "loses its row: use squeeze(1)."
            )
        if self._parts and (weight is None) != (self._parts[0][2] is None):
            raise ValueError("only some batches have sample_weight: pass it for all or none")
        self._parts.append((logits, y, weight))

    def join(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return all rows."""
        if not self._parts:
            raise RuntimeError(
                "there are no validation rows since the last step: call update(logits, y) for each batch, "
                "or evaluate(model, loader), first"
            )
        logits, labels, weights = zip(*self._parts, strict=True)
        weight = None if all(each is None for each in weights) else torch.cat(weights)
        return torch.cat(logits), torch.cat(labels), weight

    def gather(self, rows: int | None = None, group: Any = None) -> None:
        """Collect the rows of all processes, in the order of a ``DistributedSampler``."""
        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError(
                "gather needs torch.distributed, which is not initialized: call "
                "torch.distributed.init_process_group first, or omit gather for a single process"
            )
        parts: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(parts, self.join() if self._parts else None, group)
        self._parts = [part for part in parts if part is not None]
        if not self._parts:
            return
        turns = torch.cat([torch.arange(len(logits)) for logits, _, _ in self._parts])
        order = torch.argsort(turns, stable=True)[:rows]  # row i of each process, then row i + 1
        logits, y, weight = self.join()
        self._parts = [(logits[order], y[order], None if weight is None else weight[order])]


def warn_if_sigmoid(logits: Tensor) -> None:
    """Warn if one column of log-odds looks like the output of a sigmoid."""
    if logits[0].numel() > 1 or len(logits) < 20:
        return
    low, high = float(logits.min()), float(logits.max())
    if 0 <= low < high - 0.01 and high <= 1:  # before training, log-odds may all be tiny
        warn(
            "logits look like probabilities of one class: all lie in 0..1. If they are, pass what the model "
            "returns before its sigmoid, or torch.logit of them."
        )


def _are_swapped(logits: Tensor, y: Tensor) -> bool:
    """Return whether logits and y seem to be swapped; soft labels lie in 0..1."""
    if not y.is_floating_point() or not bool((y != y.round()).any()):
        return False
    if not logits.is_floating_point():
        return True
    return bool((logits == logits.round()).all() and ((y < 0) | (y > 1)).any())


def copy_state(module: nn.Module) -> dict[str, Any]:
    """Return a module's state, buffers included, as copies on the CPU."""
    state = module.state_dict()
    for name, value in state.items():  # in place: the dict holds version numbers of its modules
        state[name] = _cpu_copy(value) if isinstance(value, Tensor) else deepcopy(value)
    return state


def _cpu_copy(tensor: Tensor) -> Tensor:
    """Return a copy: the caller may reuse the memory, and training needs that of the device."""
    return tensor.detach().to("cpu", copy=True)


def _to_rows(given: Any) -> Tensor:
    """Return a batch as rows on the CPU; a batch of one, squeezed to a number, is one row."""
    batch = _cpu_copy(torch.as_tensor(given))
    return batch[None] if batch.ndim == 0 else batch
