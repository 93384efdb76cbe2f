"""Stop Lightning where refinement is best: a callback that logs, stops, restores and calibrates."""

from __future__ import annotations  # so that help() shows types by name

from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import deepcopy
from importlib.util import find_spec
from typing import Any, Unpack
from weakref import ref

from refinecal._core.checks import check_keywords
from refinecal._core.errors import needs_extra
from refinecal.calibrators.base import Calibrator
from refinecal.integrations._adapter import Stopping, from_stored, to_stored
from refinecal.stopping import MonitorOptions, RefinementMonitor

with needs_extra("lightning", "lightning", "torch"):
    if find_spec("lightning") is None and find_spec("pytorch_lightning") is not None:
        from pytorch_lightning import Callback
        from pytorch_lightning.utilities import CombinedLoader
    else:
        from lightning.pytorch import Callback  # type: ignore[assignment]
        from lightning.pytorch.utilities import CombinedLoader  # type: ignore[assignment]
    import torch
    from torch.utils.data import DistributedSampler

    from refinecal.integrations.torch import Batches, copy_state, warn_if_sigmoid

__all__ = ["RefinementStopping", "calibrator_of"]

KEY = "refinecal_calibrator"  # in checkpoints
LABELS = ("y", "labels", "label", "target", "targets")


class RefinementStopping(Stopping, Callback):
    """Stop training when refinement no longer improves; restore the best weights, keep their calibrator.

    A module only has to return ``{"logits": logits, "y": y}`` from ``validation_step``::

        stopping = RefinementStopping(patience=10)
        Trainer(max_epochs=500, callbacks=[stopping]).fit(module, train_loader, val_loader)
        probs = stopping.calibrator.predict_proba_logits(module(x))

    Each validation logs ``val_refinement_loss``, ``val_calibration_loss``, ``val_log_loss`` and ``val_beta``,
    for loggers, ``ModelCheckpoint(monitor="val_refinement_loss")`` and schedulers. Several processes gather
    all rows; those that a ``DistributedSampler`` repeats are dropped. Strategies that spawn processes train
    a copy of each callback: there, load the calibrator with :func:`calibrator_of`.

    Parameters
    ----------
    patience : int, optional
        Stop after this many validations in a row without improvement; by default never.
    extractor : callable, optional
        ``extractor(outputs, batch)`` returns ``(logits, y)`` or ``(logits, y, sample_weight)`` from what
        ``validation_step`` returned and the batch, or ``None`` to skip a batch. By default ``outputs`` is
        such a tuple, or a dict with "logits", "y" (or "labels", "target") and optionally "sample_weight".
    dataloader_idx : int, default 0
        The validation loader to follow, if there are several. The others are logged under names that end in
        ``/dataloader_idx_1`` and so on.
    restore_best : bool, default True
        Whether to keep a copy of the best weights, in memory and in checkpoints, and restore it after
        training.
    prefix : str, default "val_"
        Prefix of the names in the log.
    **options
        Keywords of :class:`refinecal.RefinementMonitor`, such as ``metric`` or ``calibrator``.

    Attributes
    ----------
    monitor : RefinementMonitor
        Of the loader that is followed, with the ``history`` of all validations by ``global_step``.
    monitors : dict
        The monitor of each loader.
    best_epoch : int or None
        The epoch of the best validation.
    """

    @check_keywords(MonitorOptions)
    def __init__(
        self,
        patience: int | None = None,
        extractor: Callable[[Any, Any], Any] | None = None,
        *,
        dataloader_idx: int = 0,
        restore_best: bool = True,
        prefix: str = "val_",
        **options: Unpack[MonitorOptions],
    ) -> None:
        self.monitor = RefinementMonitor(patience=patience, **options)
        self.extractor = extract if extractor is None else extractor
        self.dataloader_idx = dataloader_idx
        self.restore_best = restore_best
        self.prefix = prefix
        self._stage: str | None = None
        self._module: ref[Any] | None = None  # the one in training
        self._reset()

    def _reset(self) -> None:
        self.monitor.reset()
        self.monitors = {self.dataloader_idx: self.monitor}
        self.best_epoch: int | None = None
        self._best_global_step: int | None = None
        self._best_state: dict[str, Any] | None = None
        self._batches: defaultdict[int, Batches] = defaultdict(Batches)
        self._has_followed = False  # in this fit: results of an earlier one are not restored
        self._restored = False

    @property
    def best_step(self) -> int | None:
        """The ``global_step`` of the best validation; ``None`` before the first."""
        return self.monitor.best_step

    # ---- beginning ---------------------------------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Start over, unless this trainer continues with the same module."""
        self._stage = stage
        if stage == "fit":
            self._has_followed = self._restored = False
            seen = None if self._module is None else self._module()
            if trainer.global_step == 0 or seen is not pl_module:  # a checkpoint is loaded later
                self._reset()
            self._module = ref(pl_module)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Raise for settings with which nothing can be followed."""
        if not trainer.enable_validation:
            raise ValueError(
                "RefinementStopping has nothing to follow: pass val_dataloaders to fit, write "
                "validation_step, and leave limit_val_batches above 0"
            )
        if self.restore_best and trainer.strategy.restore_checkpoint_after_setup:
            raise ValueError(
                f"{type(trainer.strategy).__name__} spreads the weights over processes, so they cannot be "
                "copied: pass restore_best=False, and use ModelCheckpoint(monitor='val_refinement_loss')"
            )
        before = trainer.callbacks[: trainer.callbacks.index(self)]
        for callback in before:
            if "WeightAveraging" in (kind.__name__ for kind in type(callback).__mro__):
                raise ValueError(
                    f"{type(callback).__name__} comes before RefinementStopping in callbacks: put it after, "
                    "so that the weights that are kept are the averaged ones"
                )

    # ---- validation --------------------------------------------------------------------------------------

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Drop the batches of an interrupted validation."""
        self._batches.clear()

    def on_validation_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Collect the logits and labels of one batch."""
        if not _is_followed(trainer):
            return
        found = self.extractor(outputs, batch)
        if found is not None:
            self._batches[dataloader_idx].add(*found)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Decompose the loss of each loader and log it; keep the best weights; stop if it is time."""
        if not _is_followed(trainer):
            return
        loaders = CombinedLoader(trainer.val_dataloaders).flattened
        if self.dataloader_idx not in range(len(loaders)):
            raise ValueError(
                f"dataloader_idx is {self.dataloader_idx}, but there are {len(loaders)} validation loaders: "
                f"it must lie in 0..{len(loaders) - 1}"
            )
        for idx, loader in enumerate(loaders):
            batches = self._batches[idx]
            if trainer.world_size > 1:
                sampler: Any = getattr(loader, "sampler", None)
                has_repeats = isinstance(sampler, DistributedSampler)
                batches.gather(len(sampler.dataset) if has_repeats else None)
            if len(batches):
                self._follow(idx, batches, trainer, pl_module)
            elif idx == self.dataloader_idx:
                raise ValueError(
                    f"validation loader {idx} gave no rows to follow: extractor must return (logits, y) for "
                    "its batches, not None; or set dataloader_idx to another loader"
                )
        self._batches.clear()
        stop = trainer.strategy.reduce_boolean_decision(self.monitor.should_stop, all=False)
        trainer.should_stop = trainer.should_stop or stop

    def _follow(self, idx: int, batches: Batches, trainer: Any, pl_module: Any) -> None:
        if idx not in self.monitors:
            self.monitors[idx] = deepcopy(self.monitor)
            self.monitors[idx].reset()
        monitor = self.monitors[idx]
        logits, y, weight = batches.join()
        warn_if_sigmoid(logits)
        step = trainer.global_step
        if monitor.last_step is not None:  # no step yet, if gradients accumulate
            step = max(step, monitor.last_step + 1)
        improved = monitor.update(y, logits=logits, step=step, sample_weight=weight)
        self._has_followed = True
        suffix = "" if idx == self.dataloader_idx else f"/dataloader_idx_{idx}"
        logs = {key + suffix: value for key, value in monitor.logs(self.prefix).items()}
        # Every process has the same values, and so has their mean.
        pl_module.log_dict(logs, sync_dist=True, add_dataloader_idx=False)
        if improved and monitor is self.monitor:
            self.best_epoch, self._best_global_step = trainer.current_epoch, trainer.global_step
            if self.restore_best:
                self._best_state = copy_state(pl_module)

    # ---- end, and resuming -------------------------------------------------------------------------------

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Restore the best weights."""
        if self._best_state is not None and self._has_followed:
            pl_module.load_state_dict(self._best_state, strict=pl_module.strict_loading)
            self._restored = True

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Note that no stage is running."""
        self._stage = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state for resuming, including the best weights."""
        return {
            "monitors": {idx: monitor.state_dict() for idx, monitor in self.monitors.items()},
            "best_epoch": self.best_epoch,
            "best_global_step": self._best_global_step,
            "best_state": self._best_state,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of a checkpoint, unless it is only tested or validated."""
        if self._stage not in (None, "fit"):
            return
        self._reset()
        for idx, state in state_dict["monitors"].items():
            self.monitors.setdefault(idx, deepcopy(self.monitor)).load_state_dict(state)
        self.best_epoch = state_dict["best_epoch"]
        self._best_global_step = state_dict["best_global_step"]
        self._best_state = state_dict["best_state"]
        self._has_followed = True

    def __getstate__(self) -> dict[str, Any]:
        """Drop the reference to the module, which cannot be pickled."""
        return self.__dict__ | {"_module": None}

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Add the calibrator to a checkpoint with the weights of the best step."""
        is_best = self._restored or self._best_global_step == trainer.global_step
        stored = to_stored(self.calibrator) if is_best else None
        if stored is not None:
            checkpoint[KEY] = stored


def calibrator_of(checkpoint: Any) -> Calibrator:
    """Return the calibrator of the weights in a checkpoint, fitted at the best step.

    ``checkpoint`` is a file of ``ModelCheckpoint`` or ``trainer.save_checkpoint``, or its content.
    """
    if not isinstance(checkpoint, Mapping):
        checkpoint = torch.load(checkpoint, map_location="cpu", weights_only=True)
    return from_stored(
        checkpoint.get(KEY),
        "the checkpoint holds no calibrator: its weights are not those of the best step, or only weights "
        "were saved. Use ModelCheckpoint(monitor='val_refinement_loss'), or trainer.save_checkpoint "
        "after fit, with RefinementStopping in callbacks.",
    )


def extract(outputs: Any, batch: Any) -> Any:
    """Return logits, labels and weights, if any, from what ``validation_step`` returned."""
    if isinstance(outputs, (tuple, list)) and len(outputs) in (2, 3):
        return outputs
    found = type(outputs).__name__
    if isinstance(outputs, Mapping):
        label = next((name for name in LABELS if name in outputs), None)
        if "logits" in outputs and label is not None:
            return outputs["logits"], outputs[label], outputs.get("sample_weight")
        found = f"a dict of {', '.join(map(repr, outputs))}"
    raise TypeError(
        f"validation_step returned {found}: return {{'logits': logits, 'y': y}}, with more entries if you "
        "like, or pass extractor=, a function of (outputs, batch) that returns (logits, y)"
    )


def _is_followed(trainer: Any) -> bool:
    return trainer.state.fn == "fit" and not trainer.sanity_checking
