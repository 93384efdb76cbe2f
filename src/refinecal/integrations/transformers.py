"""Stop the Hugging Face Trainer where refinement is best; store the calibrator in the model's config."""

from __future__ import annotations  # so that help() shows types by name

import json
import os
from copy import deepcopy
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from refinecal._core.arrays import to_numpy
from refinecal._core.checks import check_keywords
from refinecal._core.errors import needs_extra
from refinecal._core.files import atomic_write
from refinecal.calibrators.base import Calibrator
from refinecal.integrations._adapter import Stopping, from_stored, to_stored
from refinecal.stopping import MonitorOptions, RefinementMonitor

with needs_extra("transformers", "transformers", "safetensors", "torch"):
    from safetensors import safe_open
    from transformers.modeling_utils import PreTrainedModel
    from transformers.trainer_callback import TrainerCallback, TrainerControl, TrainerState
    from transformers.trainer_utils import EvalPrediction, IntervalStrategy, SaveStrategy
    from transformers.training_args import TrainingArguments

__all__ = ["RefinementStopping", "calibrator_of"]

ATTRIBUTE = "refinecal"  # of the model's config, and of the Trainer's state
FILE = "calibrator.json"
PADDING = -100  # the label of ignored tokens


class RefinementStopping(Stopping, TrainerCallback):
    """Stop training when refinement no longer improves; keep the calibrator of the best evaluation.

    The Trainer needs it twice, as ``compute_metrics`` and as a callback::

        stopping = RefinementStopping(patience=3)
        args = TrainingArguments(
            ..., eval_strategy="epoch", save_strategy="epoch",
            load_best_model_at_end=True, metric_for_best_model="refinement_loss",
        )
        trainer = Trainer(..., compute_metrics=stopping.compute_metrics, callbacks=[stopping])

    The Trainer logs ``eval_refinement_loss``, ``eval_calibration_loss``, ``eval_log_loss`` and ``eval_beta``
    and loads the best checkpoint at the end. The calibrator is stored in the model's config, which
    ``save_pretrained`` writes, and as ``calibrator.json`` in the best checkpoint and in ``output_dir``;
    :func:`calibrator_of` loads it. ``resume_from_checkpoint`` restores the state of the monitor.

    Parameters
    ----------
    patience : int, optional
        Stop after this many evaluations in a row without improvement; by default train to the end.
    **options
        Keywords of :class:`refinecal.RefinementMonitor`, such as ``metric`` or ``calibrator``.

    Attributes
    ----------
    monitor : RefinementMonitor
        With the ``history`` of all evaluations; a step is the Trainer's ``global_step``.

    Notes
    -----
    With several evaluation sets, ``metric_for_best_model="eval_<name>_refinement_loss"`` names the one to
    follow. Without the callback, ``compute_metrics`` alone gives the Trainer the same values.

    Examples
    --------
    >>> from transformers import EvalPrediction
    >>> logits, labels = [[2.0, 0.0]] * 5, [0, 0, 0, 1, -100]  # -100 is padding
    >>> stopping = RefinementStopping(also="accuracy")
    >>> metrics = stopping.compute_metrics(EvalPrediction(logits, labels))
    >>> round(metrics["beta"], 6), metrics["accuracy"]  # log(3) / 2
    (0.549306, 0.75)
    """

    @check_keywords(MonitorOptions)
    def __init__(self, *, patience: int | None = None, **options: Unpack[MonitorOptions]) -> None:
        self.monitor = RefinementMonitor(patience=patience, **options)
        for name in ("calibrator", "final"):
            given = options.get(name)
            if not isinstance(given, str | Calibrator | None):
                raise TypeError(
                    f"{name} is {given!r}: only calibrators of refinecal.calibrators can be stored in "
                    "checkpoints. Fit a custom one after training."
                )
        self._batches: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._tried: RefinementMonitor | None = None
        self._state: TrainerState | None = None  # of the current run

    # ---- what the Trainer calls --------------------------------------------------------------------------

    def compute_metrics(
        self, prediction: EvalPrediction, compute_result: bool = True
    ) -> dict[str, float]:
        """Return the values of one evaluation, for ``Trainer(compute_metrics=...)``.

        These are ``refinement_loss``, ``calibration_loss``, ``log_loss``, ``beta`` and further metrics. Add
        your own with ``{**stopping.compute_metrics(prediction), "f1": ...}``.

        Parameters
        ----------
        prediction : EvalPrediction
            Logits, classes last, possibly followed by other outputs; and labels, where -100 is padding.
        compute_result : bool, default True
            Whether this is the last batch (``batch_eval_metrics=True``).
        """
        self._batches.append(_rows(prediction))
        if not compute_result:
            return {}
        logits, labels = map(np.concatenate, zip(*self._batches, strict=True))
        self._batches = []
        # Only on_evaluate knows which evaluation set this was, so a copy of the monitor is updated.
        self._tried = deepcopy(self.monitor)
        step = None if self._state is None else self._state.global_step
        if step == self._tried.last_step:  # evaluated again
            step = None
        self._tried.update(labels, logits=logits, step=step)
        return self._tried.logs()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start over, or resume from the state in the checkpoint."""
        self._check(args)
        self.monitor.reset()
        self._batches, self._tried, self._state = [], None, state
        _store(kwargs.get("model"), None)  # it may come from an earlier run
        kept: Any = state.stateful_callbacks  # a dict, which is saved in each checkpoint
        if ATTRIBUTE in kept:
            self.monitor.load_state_dict(kept[ATTRIBUTE])

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep the values if this is the set to follow, and stop training if it is time."""
        tried, self._tried = self._tried, None
        if self._state is None:
            return  # not training
        if tried is None:
            raise ValueError(
                "RefinementStopping has seen no predictions: pass compute_metrics=stopping.compute_metrics "
                "to the Trainer, labels in eval_dataset, and keep prediction_loss_only=False"
            )
        decisive = f"eval_{str(args.metric_for_best_model).removeprefix('eval_')}"
        # The Trainer cannot return to step 0 (eval_on_start), and counts each step once.
        if decisive not in kwargs["metrics"] or state.global_step in (0, self.monitor.last_step):
            return
        kept: Any = state.stateful_callbacks
        kept[ATTRIBUTE] = tried.state_dict()
        self.monitor.load_state_dict(kept[ATTRIBUTE])
        is_best = self.best_global_step == state.global_step
        _store(kwargs.get("model"), self.calibrator if is_best else None)
        if self.monitor.should_stop:
            control.should_training_stop = True

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write the calibrator into the best checkpoint."""
        folder = state.best_model_checkpoint
        if folder is not None and self.best_global_step == state.global_step:
            self._write(state, folder)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Store the calibrator in the best model, which the Trainer has loaded."""
        self._state = None
        if self.calibrator is not None:
            _load_renamed(kwargs.get("model"), state.best_model_checkpoint)
            _store(kwargs.get("model"), self.calibrator)
            self._write(state, args.output_dir)

    def _write(self, state: TrainerState, folder: str | None) -> None:
        if state.is_world_process_zero and folder is not None:
            with atomic_write(Path(folder) / FILE) as part:
                part.write_text(json.dumps(self.calibrator.to_dict()), encoding="utf-8")

    def _check(self, args: TrainingArguments) -> None:
        """Raise for arguments with which the Trainer would not return to the best evaluation."""
        key = self.monitor.key
        if args.eval_strategy == IntervalStrategy.NO:
            raise ValueError(
                "eval_strategy is 'no': set it to 'epoch' or 'steps' to stop on refinement"
            )
        if not args.load_best_model_at_end:
            raise ValueError(
                "load_best_model_at_end is False, but the calibrator fits the best model, not the last: set "
                "it to True"
            )
        metric = str(args.metric_for_best_model)
        if metric != key and not metric.endswith(f"_{key}"):
            raise ValueError(
                f"metric_for_best_model is {metric!r}, but RefinementStopping stops on {key!r}: set it to "
                f"{key!r}, or to 'eval_<name>_{key}' with several evaluation sets"
            )
        if args.greater_is_better != self.monitor.metric.greater_is_better:
            raise ValueError(
                f"greater_is_better is {args.greater_is_better}, which is wrong for {key!r}: omit it"
            )
        if args.save_strategy == SaveStrategy.STEPS and args.save_steps != args.eval_steps:
            raise ValueError(
                f"save_steps is {args.save_steps}, but eval_steps is {args.eval_steps}, so the best "
                "evaluation may have no checkpoint: make them equal, or use save_strategy='best'"
            )

    @property
    def best_global_step(self) -> int | None:
        """The ``global_step`` of the best evaluation; ``None`` before the first."""
        return self.monitor.best_step


def calibrator_of(model: Any) -> Calibrator:
    """Return the calibrator that :class:`RefinementStopping` stored, which takes logits.

    Parameters
    ----------
    model : PreTrainedModel or path
        The model after training or ``from_pretrained``, or the folder of a saved model or checkpoint.
    """
    if isinstance(model, str | os.PathLike):
        folder, where = Path(model), str(model)
        stored = _read_json(folder / FILE) or _read_json(folder / "config.json").get(ATTRIBUTE)
    else:
        where = f"the {type(model).__name__}"
        stored = getattr(getattr(model, "config", None), ATTRIBUTE, None)
    return from_stored(
        stored,
        f"{where} holds no calibrator: train with RefinementStopping, and pass the model after training or "
        "its best checkpoint",
    )


def _read_json(path: Path) -> dict[str, Any]:
    """Return the content of a file; an empty dict if it does not exist."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _store(model: Any, calibrator: Calibrator | None) -> None:
    config = getattr(model, "config", None)
    if config is not None:
        setattr(config, ATTRIBUTE, to_stored(calibrator))


def _load_renamed(model: Any, folder: str | None) -> None:
    """Load a checkpoint whose weights are named differently, such as ViT's.

    ``save_pretrained`` renames them and ``from_pretrained`` renames them back, but the Trainer skips them
    when it loads the best model (transformers issue 43701).
    """
    if folder is None or not isinstance(model, PreTrainedModel):
        return
    names = set(_read_json(Path(folder) / "model.safetensors.index.json").get("weight_map", ()))
    weights = Path(folder) / "model.safetensors"
    if not names and weights.exists():
        with safe_open(weights, framework="numpy") as file:
            names = set(file.keys())
    if not names <= set(model.state_dict()):
        model.load_state_dict(type(model).from_pretrained(folder).state_dict())


def _rows(prediction: EvalPrediction) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return logits ``(n, k)`` and labels of all rows except padding."""
    logits, labels = prediction.predictions, prediction.label_ids
    if isinstance(logits, tuple):  # further outputs, such as hidden states, come after the logits
        logits = logits[0]
    if isinstance(labels, tuple):
        raise ValueError(
            f"prediction holds {len(labels)} kinds of labels, but refinement needs one: name it in "
            "TrainingArguments(label_names=[...])"
        )
    logits, labels = to_numpy(logits, "logits"), to_numpy(labels, "labels")
    if labels.shape == logits.shape:  # one-hot or soft labels
        return logits, labels
    if labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"logits has shape {logits.shape} and labels {labels.shape}: logits must have the axes of "
            "labels, then the classes. Reorder them in preprocess_logits_for_metrics."
        )
    kept = labels.reshape(-1) != PADDING
    return logits.reshape(-1, logits.shape[-1])[kept], labels.reshape(-1)[kept]
