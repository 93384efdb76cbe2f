"""One training run of the paper's protocol on images: every epoch, and after each of them every metric."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from refinecal.calibrators.temperature import TemperatureScaling
from refinecal.experiments.plan import ImageKey
from refinecal.experiments.units import VisionUnit
from refinecal.experiments.vision import hardware
from refinecal.experiments.vision.images import validation_split
from refinecal.experiments.vision.learner import Checkpoint, CheckpointFile, Learner
from refinecal.experiments.vision.networks import flops, n_parameters
from refinecal.experiments.vision.recipe import Recipe
from refinecal.metrics import Metric, accuracy, auroc, brier_score, ece, log_loss, smooth_ece
from refinecal.stopping import RefinementMonitor

if TYPE_CHECKING:
    import torch

    from refinecal.experiments.vision.images import ImageSet


SCORES: dict[str, Callable[..., float]] = {
    "log_loss": log_loss,
    "brier": brier_score,
    "accuracy": accuracy,
    "auroc": auroc,
    "ece": ece,  # 15 bins of equal width, of the likeliest class
    "smooth_ece": smooth_ece,
}
TERMS = ("calibration", "refinement", "beta")
RECORDED = (*SCORES, *TERMS)
STOPPING = ("refinement", *SCORES)  # each has its own best epoch
# Of probabilities, AUROC takes a fifth of the time that it takes of logits, which it need not round.
FOLLOWED = tuple(
    Metric(auroc, name, greater_is_better=True) if name == "auroc" else name for name in SCORES
)

Logits = NDArray[np.float32]
Labels = NDArray[np.int64]


def new_monitor(patience: int | None = None) -> RefinementMonitor:
    """Return a monitor of the validation images: refinement decides, the other metrics are recorded.

    >>> [metric.name for metric in new_monitor().metrics]
    ['refinement', 'log_loss', 'brier', 'accuracy', 'auroc', 'ece', 'smooth_ece']
    """
    return RefinementMonitor(also=FOLLOWED, patience=patience)


class EpochMetrics:
    """The value of every metric at every epoch, the best epoch by each, and the logits of those.

    Temperature scaling is fitted to the validation images, with its Laplace smoothing, and applied to both
    parts. Calibration, refinement and beta of a part are those of its own images.

    The metrics of ``monitor``, which follows the validation images, choose the epochs.
    """

    def __init__(self, y_val: Labels, y_test: Labels, monitor: RefinementMonitor) -> None:
        self._labels = {"val": y_val, "test": y_test}
        self._values: list[dict[str, float]] = []
        self.monitor = _check_monitor(monitor)
        self._on_test = new_monitor()
        self.val_logits: dict[int, Logits] = {}  # of the epochs that are the best by some metric
        self.test_logits: dict[int, Logits] = {}
        self.stopped = ""  # why training must end

    def update(self, epoch: int, train_loss: float, val: Logits, test: Logits) -> None:
        """Record the logits after an epoch."""
        values = {"train.log_loss": train_loss}
        self._values.append(values)
        if not (np.isfinite(val).all() and np.isfinite(test).all()):
            self.stopped = f"the predictions after epoch {epoch} are not finite"
            return
        scaling = TemperatureScaling().fit_logits(val, self._labels["val"])
        for part, logits, monitor in (("val", val, self.monitor), ("test", test, self._on_test)):
            labels = self._labels[part]
            monitor.update(labels, logits=logits, step=epoch)
            record = monitor.history[-1]
            values |= {f"{part}.{name}": record[name] for name in record if name in RECORDED}
            probs = scaling.predict_proba_logits(logits.astype(np.float64))
            values |= {
                f"{part}.{name}_ts": float(score(labels, probs)) for name, score in SCORES.items()
            }
        self._keep(epoch, val, test)
        if self.monitor.should_stop:
            self.stopped = f"no better for {self.monitor.patience} epochs"

    @property
    def diverged(self) -> bool:
        """Whether the last epoch ended with NaN or infinity, not by patience."""
        return bool(self.stopped) and "val.log_loss" not in self.last

    def record_divergence(self, epoch: int, train_loss: float) -> None:
        """Record that training has diverged: there is nothing to measure."""
        self._values.append({"train.log_loss": train_loss})
        self.stopped = f"the training loss of epoch {epoch} is {train_loss}"

    def _keep(self, epoch: int, val: Logits, test: Logits) -> None:
        """Keep the logits of epochs that are the best by some metric so far, and no others."""
        wanted = set(self.best.values())
        for kept, logits in ((self.val_logits, val), (self.test_logits, test)):
            kept[epoch] = logits
            for old in kept.keys() - wanted:
                del kept[old]

    # ---- what comes out ----------------------------------------------------------------------------------

    @property
    def best(self) -> dict[str, int]:
        """For each metric the best epoch so far."""
        return {name: best.step for name, best in self.monitor.bests.items()}

    @property
    def history(self) -> dict[str, NDArray[np.float64]]:
        """For each name, such as ``val.log_loss_ts``, its value at every epoch."""
        names = dict.fromkeys(name for values in self._values for name in values)
        return {
            name: np.array([values.get(name, np.nan) for values in self._values], np.float64)
            for name in names
        }

    @property
    def last(self) -> dict[str, float]:
        """The values of the last epoch; empty before the first."""
        return dict(self._values[-1]) if self._values else {}

    # ---- resuming ----------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return all but the logits, as plain numbers, strings and lists."""
        return {
            "values": self._values,
            "monitor": self.monitor.state_dict(),
            "on_test": self._on_test.state_dict(),
            "stopped": self.stopped,
        }

    def load(
        self, state: Mapping[str, Any], val: dict[int, Logits], test: dict[int, Logits]
    ) -> None:
        """Restore what :meth:`state` returned, and the logits of that moment."""
        self._values = [dict(values) for values in state["values"]]
        self.monitor.load_state_dict(state["monitor"])
        self._on_test.load_state_dict(state["on_test"])
        self.stopped = state["stopped"]
        self.val_logits, self.test_logits = val, test


@cache
def warm_up() -> None:
    """Load the compiled loops, which takes half a second, before anything is timed."""
    labels = np.arange(60) % 3
    logits = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    metrics = EpochMetrics(labels, labels, new_monitor())
    for epoch in (1, 2):
        metrics.update(epoch, 0.0, logits + np.eye(3, dtype=np.float32)[labels], logits)


def _check_monitor(monitor: RefinementMonitor) -> RefinementMonitor:
    names = [metric.name for metric in monitor.metrics]
    missing = [name for name in STOPPING if name not in names]
    if missing:
        raise ValueError(
            f"monitor does not follow {', '.join(missing)}: make it with also={STOPPING[1:]!r}, and what "
            "else it should follow"
        )
    if monitor.history:
        raise ValueError(
            f"monitor has seen {len(monitor.history)} steps already: pass a new one, or call reset()"
        )
    return monitor


LIMIT = 1  # next to the seed: what the random numbers are for
Progress = Callable[[int, int], None]
Rows = NDArray[np.int64]


def train(
    recipe: Recipe,
    images: ImageSet,
    seed: int = 0,
    *,
    device: str | torch.device | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 1,
    monitor: RefinementMonitor | None = None,
    progress: Progress | None = None,
) -> VisionUnit:
    """Train one network on images; return every metric at every epoch, and the best epoch by each.

    After each epoch, counted from 1, the network predicts the validation and test images. Metrics are
    computed on the predictions as they are, and after temperature scaling fitted to the validation images.
    All epochs are trained, unless the loss becomes NaN or infinite: then ``stopped`` says so, and the best
    epochs before that stay.

    The same recipe, images and seed give the same result on the same device with the same number of threads,
    no matter how often the training run was killed and resumed.

    Parameters
    ----------
    recipe : Recipe
        How to train.
    images : ImageSet
        Training and test images.
    seed : int, default 0
        Of the split into training and validation images, the first weights, the order of the images,
        augmentation and dropout.
    device : str, optional
        Such as ``"cpu"`` or ``"cuda:1"``; by default a GPU if there is one. Processes that ``accelerate
        launch`` started share each batch, and the images to predict; all return the same.
    checkpoint : path, optional
        A folder for this training run alone, which all its processes can read. If it holds the state of this
        run, training resumes from there.
    every : int, default 1
        Number of epochs between checkpoints.
    monitor : RefinementMonitor, optional
        Follows the validation images; if it has a patience, that ends training early. It must follow
        :data:`STOPPING`.
    progress : callable, optional
        Called after each epoch with its number, and with how many there are.

    Examples
    --------
    >>> from refinecal.experiments.vision.images import ImageSet
    >>> x = np.random.default_rng(0).integers(0, 256, (60, 3, 16, 16), np.uint8)
    >>> y = np.arange(60) % 2
    >>> images = ImageSet("cifar10", x[:40], y[:40], x[40:], y[40:], ("cat", "dog"))
    >>> found = train(Recipe("cifar10", "small", epochs=2), images, device="cpu")
    >>> found.epochs, found.n_train, found.n_val
    (2, 36, 4)

    References
    ----------
    Section 5 and appendix E of the paper.
    """
    if recipe.dataset != images.name:
        raise ValueError(
            f"recipe.dataset is {recipe.dataset!r}, but images are {images.name!r}: read those of the recipe"
        )
    devices = hardware.new_devices(device)
    recipe = replace(recipe, precision=hardware.choose_precision(recipe.precision, devices.device))
    with hardware.isolate_torch(devices.device):
        hardware.forget_peak(devices.device)
        warm_up()
        monitor = new_monitor() if monitor is None else monitor
        training = _Training(recipe, images, seed, devices, monitor)
        return training.run(checkpoint, every, progress)


def split(labels: Rows, recipe: Recipe, seed: int) -> tuple[Rows, Rows]:
    """Return which of the training images to learn from, and which are for validation."""
    rows = np.arange(len(labels))
    if recipe.limit_train is not None and recipe.limit_train < len(rows):
        random = np.random.default_rng([seed, LIMIT])
        rows = np.sort(random.permutation(rows)[: recipe.limit_train])
    train_rows, val_rows = validation_split(labels[rows], recipe.validation, seed)
    return rows[train_rows], rows[val_rows]


class _Training:
    """All that changes from epoch to epoch."""

    def __init__(
        self,
        recipe: Recipe,
        images: ImageSet,
        seed: int,
        devices: hardware.Devices,
        monitor: RefinementMonitor,
    ) -> None:
        self.recipe, self.images, self.seed, self.devices = recipe, images, seed, devices
        self.train_rows, self.val_rows = split(images.train_y, recipe, seed)
        n_classes = images.n_classes
        self.learner = Learner(
            recipe, images.train_x, images.train_y, self.train_rows, n_classes, seed, devices
        )
        self.test_x = self.learner.to_device(images.test_x)
        self.metrics = EpochMetrics(images.train_y[self.val_rows], images.test_y, monitor)
        self.seconds = dict.fromkeys(("training", "evaluating", "metrics"), 0.0)
        self.memory = 0  # the peak of processes before this one
        self.epoch = 0  # how many are done

    @property
    def at_end(self) -> bool:
        return self.epoch >= self.recipe.epochs

    @property
    def ended(self) -> bool:
        return self.at_end or bool(self.metrics.stopped)

    def run(
        self, folder: str | os.PathLike[str] | None, every: int, progress: Progress | None
    ) -> VisionUnit:
        """Train to the end; from the checkpoint, if there is one."""
        file = None if folder is None else CheckpointFile(folder)
        if file is not None:
            self._resume(file)
        while not self.ended:
            self._train_epoch(self.epoch + 1)
            if file is not None and (self.ended or self.epoch % every == 0):
                self._save(file)
            if progress is not None and self.devices.rank == 0:
                progress(self.epoch, self.recipe.epochs)
        return self._outcome()

    def _train_epoch(self, epoch: int) -> None:
        with self._clock("training"):
            loss = self.learner.learn(epoch)
        if math.isfinite(loss):
            with self._clock("evaluating"):
                val = self.learner.logits(self.learner.x, self.val_rows)
                test = self.learner.logits(self.test_x)
            with self._clock("metrics"):
                self.metrics.update(epoch, loss, val, test)
        else:
            self.metrics.record_divergence(epoch, loss)
        self.epoch = epoch

    @contextmanager
    def _clock(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - began

    # ---- resuming ----------------------------------------------------------------------------------------

    def _resume(self, file: CheckpointFile) -> None:
        if self.devices.rank == 0:
            file.prepare()
        self.devices.wait()
        state = file.load(self._task)
        if state is None:
            return
        self.epoch, self.seconds, self.memory = state.epoch, state.seconds, state.peak_memory
        self.learner.load(state.net, state.momentum)
        self.metrics.load(state.metrics, state.val, state.test)

    def _save(self, file: CheckpointFile) -> None:
        if self.devices.rank == 0:
            net, momentum = self.learner.state()
            metrics, memory = self.metrics, self._memory()
            about = (self.epoch, self._task, metrics.state(), self.seconds, memory)
            file.save(Checkpoint(*about, net, momentum, metrics.val_logits, metrics.test_logits))
        self.devices.wait()

    @cached_property
    def _task(self) -> dict[str, Any]:
        """Return what must be the same for a training run to resume with the same result."""
        return self.recipe.to_dict() | {
            "seed": self.seed,
            "images": self.images.digest(),
            "device": self.devices.device.type,
            "processes": self.devices.size,
        }

    # ---- the end -----------------------------------------------------------------------------------------

    def _memory(self) -> int:
        return max(self.memory, hardware.peak_memory(self.devices.device))

    def _outcome(self) -> VisionUnit:
        images, metrics = self.images, self.metrics
        return VisionUnit(
            key=ImageKey(self.recipe.dataset, self.recipe.model, self.seed),
            recipe=self.recipe.to_dict(),
            n_train=len(self.train_rows),
            n_val=len(self.val_rows),
            n_test=len(images.test_y),
            y_val=images.train_y[self.val_rows],
            y_test=images.test_y,
            history=metrics.history,
            best=metrics.best,
            val_logits=metrics.val_logits,
            test_logits=metrics.test_logits,
            seconds=dict(self.seconds),
            peak_memory=self._memory(),
            parameters=n_parameters(self.learner.net),
            flops=flops(self.learner.net, images.shape),
            stopped=metrics.stopped if metrics.diverged or not self.at_end else "",
        )
