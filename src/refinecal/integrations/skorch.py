"""Stop skorch where refinement is best; restore the best weights and keep their calibrator."""

from __future__ import annotations  # so that help() shows types by name

from typing import Any, Literal, Self, Unpack

from numpy.typing import NDArray

from refinecal._core.checks import check_keywords
from refinecal._core.errors import fail_choice, needs_extra, warn
from refinecal.calibrators import Calibrator, from_dict
from refinecal.stopping import MonitorOptions, RefinementMonitor

with needs_extra("skorch", "skorch", "torch"):
    from skorch import NeuralNetClassifier
    from skorch.callbacks import Callback
    from skorch.dataset import unpack_data
    from torch import nn

    from refinecal.integrations.torch import Batches, copy_state

__all__ = ["RefinementStopping", "calibrator_of", "predict_proba"]

PREFIX = "valid_"
STATE_KEY = "refinecal_best"  # in the history; skorch's loggers skip keys that end in _best


class RefinementStopping(Callback):  # type: ignore[misc]  # skorch has no types
    """Stop training when refinement no longer improves; restore the best epoch and keep its calibrator.

    Collects the module's outputs on the validation split, without another pass. Records
    ``valid_refinement_loss`` and the other terms in ``net.history``, which skorch's callbacks print and log;
    put a ``Checkpoint`` that monitors ``valid_refinement_loss_best`` after this callback.

    ``fit`` starts over. ``partial_fit`` continues: with the same net, a pickled one, or one that has loaded
    an ``f_history``; after ``load_best``, from the best weights.

    Parameters
    ----------
    patience : int, optional
        Stop after this many epochs in a row without improvement; by default train all epochs.
    load_best : bool, default True
        Whether to restore the weights of the best epoch at the end of training.
    outputs : {"auto", "logits", "probs"}, default "auto"
        What the module returns. By default the criterion decides: logits for ``CrossEntropyLoss`` and
        ``BCEWithLogitsLoss``, probabilities for ``BCELoss`` and, in ``NeuralNetClassifier``, ``NLLLoss``.
    **options
        Keywords of :class:`refinecal.RefinementMonitor`, such as ``metric`` or ``calibrator``.

    Attributes
    ----------
    monitor_ : RefinementMonitor
        Its steps are epochs, counted from 1 as in the history.
    best_epoch_ : int
        The best epoch.
    calibrator_ : Calibrator
        Fitted at the best epoch.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skorch import NeuralNetClassifier
    >>> from torch import nn
    >>> X, y = load_iris(return_X_y=True)
    >>> stopping = RefinementStopping(patience=3)
    >>> net = NeuralNetClassifier(
    ...     nn.Linear, module__in_features=4, module__out_features=3, criterion=nn.CrossEntropyLoss,
    ...     max_epochs=5, callbacks=[stopping], verbose=0,
    ... )
    >>> net = net.fit(X.astype("float32"), y)
    >>> predict_proba(net, X.astype("float32")).shape
    (150, 3)
    """

    @check_keywords(MonitorOptions)
    def __init__(
        self,
        patience: int | None = None,
        load_best: bool = True,
        outputs: Literal["auto", "logits", "probs"] = "auto",
        **options: Unpack[MonitorOptions],
    ) -> None:
        self.patience = patience
        self.load_best = load_best
        self.outputs = outputs
        for name, value in options.items():  # skorch looks for one attribute per parameter
            setattr(self, name, value)

    # ---- what skorch calls -------------------------------------------------------------------------------

    def initialize(self) -> Self:
        """Forget everything; skorch calls this when it initializes a net."""
        if self.outputs not in ("auto", "logits", "probs"):
            fail_choice("outputs", self.outputs, ["auto", "logits", "probs"], "omitted")
        params = self.get_params(deep=False)
        options = {name: params[name] for name in params if name not in ("load_best", "outputs")}
        self.monitor_ = RefinementMonitor(**options)
        self.epoch_: int | None = None  # the epoch whose weights the net has now
        self.best_weights_: dict[str, Any] | None = None
        return self

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Resume where an earlier run ended."""
        self._check_order(net)
        self.kind_ = _kind_of(net) if self.outputs == "auto" else self.outputs
        stored = _state_of(net)
        if self.monitor_.last_step is None and stored is not None:
            self.monitor_.load_state_dict(stored["monitor"])
            self.epoch_ = self.monitor_.last_step
        if self.monitor_.should_stop:
            # A net that has stopped starts with full patience when asked for more epochs.
            state = self.monitor_.state_dict()
            renewed = {"waited": dict.fromkeys(state["waited"], 0), "diverged": False}
            self.monitor_.load_state_dict(state | renewed)
        if self.load_best and self.epoch_ is not None and self.epoch_ == self.best_epoch_:
            self.best_weights_ = _weights_of(net)

    def on_epoch_begin(
        self, net: Any, dataset_train: Any = None, dataset_valid: Any = None, **kwargs: Any
    ) -> None:
        """Prepare to collect outputs."""
        if dataset_valid is None:
            raise ValueError(
                f"the net has train_split={net.train_split}, so there is no validation data to measure "
                "refinement on: pass train_split=ValidSplit(5, stratified=True), or "
                "predefined_split(dataset) of skorch.helper"
            )
        self.epoch_ = None
        self.batches_ = Batches()

    def on_batch_end(
        self, net: Any, batch: Any = None, training: bool | None = None, **kwargs: Any
    ) -> None:
        """Collect outputs on the validation split."""
        if not training:
            self.batches_.add(_first(kwargs["y_pred"]), unpack_data(batch)[1])

    def on_epoch_end(
        self, net: Any, dataset_train: Any = None, dataset_valid: Any = None, **kwargs: Any
    ) -> None:
        """Record the terms of this epoch; stop if patience has run out."""
        self.epoch_ = net.history[-1, "epoch"]
        outputs, labels, _ = self.batches_.join()
        self.batches_ = Batches()
        predictions: Any = {self.kind_: outputs}
        try:
            best = self.monitor_.update(labels, **predictions, step=self.epoch_)
        except ValueError as error:
            raise ValueError(
                f"the module's outputs were taken for {self.kind_}, but {error} If they are something else, "
                f"pass RefinementStopping(outputs=...), which is {self.outputs!r} now."
            ) from error
        for name, value in self.monitor_.logs(PREFIX).items():
            net.history.record(name, value)
        net.history.record(f"{PREFIX}{self.monitor_.key}_best", best)
        self._record_state(net)
        if best and self.load_best:
            self.best_weights_ = _weights_of(net)
        if self.monitor_.should_stop:
            raise KeyboardInterrupt  # how skorch's callbacks end training

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Restore the best epoch."""
        if self.load_best and self.best_epoch_ not in (None, self.epoch_):
            if self.best_weights_ is None:
                warn(
                    f"epoch {self.best_epoch_} is the best, but its weights were missing when training was "
                    "resumed: the net keeps its last weights. Load the checkpoint of that epoch, which "
                    f"Checkpoint(monitor='{PREFIX}{self.monitor_.key}_best') saves."
                )
            else:
                for name, weights in self.best_weights_.items():
                    getattr(net, name).load_state_dict(weights)
                self.epoch_ = self.best_epoch_
        self.best_weights_ = None  # the net has them

    @property
    def best_epoch_(self) -> int | None:
        """The best epoch, counted from 1; ``None`` before the first."""
        return self.monitor_.best_step

    @property
    def calibrator_(self) -> Any:
        """The calibrator fitted at the best epoch; ``None`` before the first."""
        return self.monitor_.calibrator

    def _record_state(self, net: Any) -> None:
        """Store the monitor's state in the last row of the history, unless a calibrator is a custom one."""
        for row in net.history:
            row.pop(STATE_KEY, None)
        bests = self.monitor_.bests.values()
        if all(isinstance(best.calibrator, Calibrator) for best in bests):
            state = {"monitor": self.monitor_.state_dict(), "outputs": self.kind_}
            net.history.record(STATE_KEY, state)

    def _check_order(self, net: Any) -> None:
        for name, callback in net.callbacks_:
            if callback is self:
                return
            followed = getattr(callback, "monitor", None)
            if isinstance(followed, str) and followed.startswith(f"{PREFIX}{self.monitor_.key}"):
                raise ValueError(
                    f"callback {name!r} follows {followed!r}, which is recorded later: put it after "
                    "RefinementStopping in callbacks="
                )


def calibrator_of(net: Any) -> Calibrator:
    """Return the calibrator of a net's best epoch, which its history (``f_history``) holds."""
    return _best_of(net)[0]


def predict_proba(net: Any, X: Any) -> NDArray[Any]:
    """Return calibrated probabilities ``(n, k)``; ``X`` is what ``net.predict_proba`` takes."""
    calibrator, kind = _best_of(net)
    outputs = _first(net.forward(X))
    predict = calibrator.predict_proba_logits if kind == "logits" else calibrator.predict_proba
    return predict(outputs)


def _state_of(net: Any) -> dict[str, Any] | None:
    """Return the state in the history, that of the last complete epoch."""
    return next((row[STATE_KEY] for row in net.history if STATE_KEY in row), None)


def _best_of(net: Any) -> tuple[Calibrator, str]:
    """Return the calibrator, and whether it takes logits or probs."""
    stored = _state_of(net)
    if stored is None or not stored["monitor"]["bests"]:
        raise ValueError(
            "the history of net holds no calibrator: train it with callbacks=[RefinementStopping(...)], or "
            "load its f_history too. Custom calibrators are not stored: use RefinementStopping.calibrator_."
        )
    best = stored["monitor"]["bests"][stored["monitor"]["metrics"][0]]
    return from_dict(best["calibrator"]), stored["outputs"]


def _kind_of(net: Any) -> str:
    """Return "logits" or "probs", whichever the criterion expects of a module."""
    criterion = getattr(net, "criterion_", None)
    criterion = getattr(criterion, "_orig_mod", criterion)  # torch.compile wraps it
    if isinstance(criterion, nn.CrossEntropyLoss | nn.BCEWithLogitsLoss):
        return "logits"
    if isinstance(criterion, nn.BCELoss):
        return "probs"
    if isinstance(criterion, nn.NLLLoss):  # NeuralNetClassifier takes the logarithm itself
        return "probs" if isinstance(net, NeuralNetClassifier) else "logits"
    raise ValueError(
        f"the criterion {type(criterion).__name__} does not tell whether the module returns logits or "
        "probabilities: pass RefinementStopping(outputs='logits') or outputs='probs'"
    )


def _weights_of(net: Any) -> dict[str, Any]:
    """Return copies of the states of a net's modules."""
    return {f"{name}_": copy_state(getattr(net, f"{name}_")) for name in net._modules}


def _first(output: Any) -> Any:
    """Return a module's first output, which skorch predicts from."""
    return output[0] if isinstance(output, tuple) else output
