"""Stop Keras where refinement is best, on any backend; build the temperature into the model."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from refinecal._core.arrays import to_numpy
from refinecal._core.checks import check_keywords
from refinecal._core.errors import needs_extra
from refinecal.calibrators.temperature import TemperatureScaling
from refinecal.integrations._adapter import Stopping
from refinecal.stopping import MonitorOptions, RefinementMonitor

with needs_extra("keras", package="keras"):
    import keras

__all__ = ["RefinementStopping", "calibrated"]


class RefinementStopping(Stopping, keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Stop training when refinement no longer improves; restore the best epoch and keep its calibrator.

    Predicts the validation data after every epoch and writes ``val_refinement_loss``,
    ``val_calibration_loss``, ``val_log_loss`` and ``val_beta`` into the logs. Put it first in ``callbacks``,
    so that others see the values, such as ``ModelCheckpoint(monitor="val_refinement_loss", mode="min")``. If
    the last layer is a softmax or sigmoid, the logits before it are used: float32 probabilities are rounded.

    Parameters
    ----------
    validation_data : tuple or iterable
        ``(x_val, y_val)`` or ``(x_val, y_val, sample_weight)``, or batches of these: a ``PyDataset``, a
        ``tf.data.Dataset`` or a torch ``DataLoader``. Labels are class numbers or one-hot rows.
    patience : int, optional
        Stop after this many epochs in a row without improvement; by default train all epochs.
    restore_best_weights : bool, default True
        Whether to restore the weights of the best epoch at the end.
    from_logits : bool, optional
        Whether the model returns logits; by default its last layer decides.
    batch_size : int, default 32
        As for ``model.predict``.
    **options
        Keywords of :class:`refinecal.RefinementMonitor`, such as ``metric`` or ``calibrator``.

    Attributes
    ----------
    monitor : RefinementMonitor
        With the ``history`` of all epochs.
    best_weights : list of ndarray
        The weights of the best epoch, if they are restored.

    Notes
    -----
    ``fit(initial_epoch=...)`` with an epoch after the last one continues; any other epoch starts over. To
    resume in another process, save :meth:`state_dict` with the model.

    Examples
    --------
    >>> import keras
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    >>> model.compile("adam", "sparse_categorical_crossentropy")
    >>> stopping = RefinementStopping((x[1::2], y[1::2]), patience=5)
    >>> history = model.fit(x[::2], y[::2], epochs=3, callbacks=[stopping], verbose=0)
    >>> len(history.history["val_refinement_loss"])
    3
    >>> calibrated(model, stopping.calibrator).predict(x, verbose=0).shape
    (150, 3)
    """

    @check_keywords(MonitorOptions)
    def __init__(
        self,
        validation_data: Any,
        *,
        patience: int | None = None,
        restore_best_weights: bool = True,
        from_logits: bool | None = None,
        batch_size: int = 32,
        **options: Unpack[MonitorOptions],
    ) -> None:
        super().__init__()
        self.monitor = RefinementMonitor(patience=patience, **options)
        self._data = _check_data(validation_data, batch_size)
        self.restore_best_weights = restore_best_weights
        self.from_logits = from_logits
        self.best_weights: list[NDArray[Any]] | None = None
        self._scorer: _Scorer | None = None

    # ---- what Keras calls --------------------------------------------------------------------------------

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Find the model's logits."""
        self._scorer = _Scorer(self.model, self.from_logits)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Start over if this epoch was seen before."""
        if self.monitor.last_step is not None and epoch <= self.monitor.last_step:
            self.monitor.reset()
            self.best_weights = None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Evaluate the validation data, log the values, and stop training if it is time."""
        kind, scores, y, weight = self._predict()
        chosen: Any = {kind: scores}
        try:
            better = self.monitor.update(y, **chosen, step=epoch, sample_weight=weight)
        except ValueError as error:
            error.add_note(
                f"The model's output was taken for {kind}: pass from_logits= if it is not."
            )
            raise
        if better and self.restore_best_weights:
            self.best_weights = self.model.get_weights()
        if logs is not None:
            logs.update(self.monitor.logs("val_"))
        if self.monitor.should_stop:
            self.model.stop_training = True

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Restore the best epoch."""
        self._scorer = None
        if self.best_weights is not None:
            self.model.set_weights(self.best_weights)

    def _predict(self) -> tuple[str, NDArray[Any], NDArray[Any], NDArray[Any] | None]:
        """Return "logits" or "probs", the predictions, labels, and weights if any."""
        assert self._scorer is not None
        self._scorer.refresh()
        # Not model.predict, which would draw from torch's random numbers, as shuffling does.
        predict = self._scorer.model.predict_on_batch
        rows = [(_one(predict(x)), y, weight) for x, y, weight in _batches(self._data)]
        if not rows:
            raise ValueError(
                "validation_data gave no batch: pass arrays, or batches that can be read every epoch"
            )
        scores, labels, weights = zip(*rows, strict=True)
        weight = None if weights[0] is None else np.concatenate(weights)
        kind = "logits" if self._scorer.from_logits else "probs"
        return kind, np.concatenate(scores), np.concatenate(labels), weight

    # ---- what users ask ----------------------------------------------------------------------------------

    @property
    def best_epoch(self) -> int | None:
        """The best epoch, counted from 0; ``None`` before the first."""
        return self.monitor.best_step

    def state_dict(self) -> dict[str, Any]:
        """Return the state for resuming: ``monitor`` (JSON) and ``best_weights``."""
        return {"monitor": self.monitor.state_dict(), "best_weights": self.best_weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore :meth:`state_dict`; then call ``fit`` with the next ``initial_epoch``."""
        self.monitor.load_state_dict(state["monitor"])
        self.best_weights = state["best_weights"]


def calibrated(model: Any, calibrator: Any, from_logits: bool | None = None) -> Any:
    """Return a copy of a model that returns calibrated probabilities.

    The copy multiplies the logits by beta, then applies softmax or sigmoid and the smoothing of
    :class:`refinecal.TemperatureScaling`. Its output has the same shape. It has only standard layers, so it
    saves and loads without this package.

    Parameters
    ----------
    model : Sequential or functional model
        With one output: ``(n, k)``, or ``(n, 1)`` for two classes. It is not changed.
    calibrator : TemperatureScaling
        Such as ``RefinementStopping.calibrator``.
    from_logits : bool, optional
        As for :class:`RefinementStopping`.
    """
    if not isinstance(calibrator, TemperatureScaling) or not hasattr(calibrator, "beta_"):
        raise TypeError(
            f"calibrator is {calibrator!r}: only a fitted TemperatureScaling can become part of a model. Use "
            "calibrator.predict_proba(probs) on its predictions."
        )
    if not getattr(model, "outputs", None):
        raise TypeError(
            f"model is a {type(model).__name__}: only Sequential and functional models can be extended. Use "
            "calibrator.predict_proba_logits(logits) on its predictions."
        )
    bare = keras.Model(_input_of(model), _one(model.outputs))  # no loss, which may not be cloned
    copy = keras.models.clone_model(bare)
    copy.set_weights(bare.get_weights())
    scorer = _Scorer(copy, from_logits)
    if not scorer.from_logits:
        raise ValueError(
            "the model returns probabilities, and its last layer is not a Dense, Activation or Softmax that "
            "can be removed to get logits: use calibrator.predict_proba(probs) on its predictions"
        )
    scorer.refresh()
    logits = scorer.model.outputs[0]
    width, k = logits.shape[-1], len(calibrator.classes_)
    if max(width, 2) != k:
        raise ValueError(
            f"the model has {width} outputs, but the calibrator was fitted with {k} classes: pass the model "
            "it was fitted for"
        )
    n = calibrator.n_samples_
    keep, add = (n / (n + 1), 1 / (n + 1) / k) if calibrator.laplace else (1.0, 0.0)
    activation = "sigmoid" if width == 1 else "softmax"
    layers = keras.layers  # in float32, even if the model uses less
    scaled = layers.Rescaling(calibrator.beta_, name="beta", dtype="float32")(logits)
    probs = layers.Activation(activation, name="probs", dtype="float32")(scaled)
    smooth = layers.Rescaling(keep, add, name="smoothing", dtype="float32")(probs)
    return keras.Model(copy.input, smooth, name=f"calibrated_{model.name}")


# ---- how to get logits -----------------------------------------------------------------------------------


class _Scorer:
    """A model without its last softmax or sigmoid, or unchanged if that cannot be removed."""

    def __init__(self, model: Any, from_logits: bool | None) -> None:
        last = _last_layer(model)
        activation = _activation_of(last)
        if from_logits is None:
            if activation is None:
                name = "not known" if last is None else f"{last.name!r}, a {type(last).__name__}"
                raise ValueError(
                    f"from_logits is None, but the last layer is {name}, which may return either: pass "
                    "from_logits=True if the model returns logits, False if probabilities"
                )
            from_logits = activation == "linear"
        self.from_logits = from_logits
        self.model = model
        self._last = last
        self._copy: Any = None
        if from_logits or activation in (None, "linear"):
            return
        if activation == "sigmoid" and last.output.shape[-1] != 1:
            raise ValueError(
                f"the last layer has {last.output.shape[-1]} sigmoid outputs, so a row can have several "
                "labels: refinement needs one label per row. Use softmax, or one model per label."
            )
        if type(last) is keras.layers.Dense:
            config = {**last.get_config(), "activation": "linear", "name": f"{last.name}_logits"}
            config |= {"kernel_initializer": "zeros", "bias_initializer": "zeros"}  # nothing random
            self._copy = keras.layers.Dense.from_config(config)
            self.model = keras.Model(_input_of(model), self._copy(last.input))
            self.from_logits = True
        elif type(last) in (keras.layers.Activation, keras.layers.Softmax):
            self.model = keras.Model(_input_of(model), last.input)
            self.from_logits = True

    def refresh(self) -> None:
        """Copy the current weights of the last layer; all others are shared."""
        if self._copy is not None:
            self._copy.set_weights(self._last.get_weights())


def _input_of(model: Any) -> Any:
    """Return the symbolic input: a tensor, or a dict or list of tensors."""
    return model.inputs[0] if isinstance(model, keras.Sequential) else model.input


def _last_layer(model: Any) -> Any:
    """Return the layer that returns the output of a Sequential or functional model; else ``None``."""
    outputs = getattr(model, "outputs", None)
    if not outputs:
        return None
    output = _one(outputs)
    found = (layer for layer in model.layers if getattr(layer, "output", None) is output)
    return next(found, None)


def _activation_of(layer: Any) -> str | None:
    if isinstance(layer, keras.layers.Softmax):
        return "softmax"
    known = ("linear", "softmax", "sigmoid")
    found = getattr(layer, "activation", None)
    return next((name for name in known if found is getattr(keras.activations, name)), None)


def _one(output: Any) -> Any:
    found = keras.tree.flatten(output)
    if len(found) != 1:
        raise ValueError(
            f"the model has {len(found)} outputs, but refinement is measured on one: train one model per "
            "output, or follow one of them in a custom callback with RefinementMonitor"
        )
    return found[0]


# ---- how to read validation data -------------------------------------------------------------------------


def _check_data(given: Any, size: int) -> Any:
    """Return batches that can be read every epoch."""
    if isinstance(given, keras.utils.PyDataset):
        if given.num_batches is None:
            raise ValueError("validation_data is an infinite PyDataset: give it __len__")
        return given
    if isinstance(given, Iterator) or not isinstance(given, Iterable):
        raise TypeError(
            f"validation_data is a {type(given).__name__}: pass (x_val, y_val), (x_val, y_val, "
            "sample_weight), or batches that can be read every epoch: a PyDataset, Dataset or DataLoader"
        )
    if not isinstance(given, list | tuple):
        return given
    data = _unpack(given, "")
    rows = {len(array) for array in keras.tree.flatten(data) if array is not None}
    if len(rows) > 1:
        raise ValueError(
            f"validation_data holds arrays of {' and '.join(map(str, sorted(rows)))} rows: x, y and "
            "sample_weight must have one row per sample"
        )

    def take(start: int) -> Any:
        return keras.tree.map_structure(
            lambda array: None if array is None else array[start : start + size], data
        )

    return [take(start) for start in range(0, rows.pop(), size)]


def _batches(data: Any) -> Iterator[tuple[Any, Any, Any]]:
    indexed = isinstance(data, keras.utils.PyDataset)  # old ones cannot be iterated
    for batch in (data[i] for i in range(data.num_batches)) if indexed else data:
        yield _unpack(batch, "a batch of ")


def _unpack(given: Any, where: str) -> tuple[Any, Any, Any]:
    """Return x, y and the weights, if there are any, as NumPy arrays."""
    if not isinstance(given, list | tuple) or len(given) not in (2, 3):
        length = f" of {len(given)}" if isinstance(given, list | tuple) else ""
        raise ValueError(
            f"{where}validation_data is a {type(given).__name__}{length}: it must be (x, y) or "
            "(x, y, sample_weight)"
        )

    def plain(array: Any) -> Any:
        return None if array is None else to_numpy(array, "validation_data")

    x, y, weight = keras.tree.map_structure(plain, (*given, None)[:3])
    return x, y, weight
