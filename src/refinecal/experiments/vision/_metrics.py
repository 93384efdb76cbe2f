"""What is measured after every epoch, on validation and test images, before and after temperature scaling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal.calibrators.temperature import TemperatureScaling
from refinecal.metrics import Metric, accuracy, auroc, brier_score, ece, log_loss, smooth_ece
from refinecal.stopping import RefinementMonitor

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
