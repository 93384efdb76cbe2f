import json
import math
import os
import subprocess
import sys

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.datasets import load_breast_cancer, load_digits

from refinecal import TemperatureScaling
from refinecal.integrations.keras import RefinementStopping, calibrated

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"  # Keras with NumPy 2
)


def digits():
    """Pictures of digits, a fifth of the training labels wrong, so that training soon over-fits."""
    x, y = load_digits(return_X_y=True)
    x, y = (x / 16).astype("float32"), y.astype("int64")
    rng = np.random.default_rng(0)
    noisy = np.where(rng.random(600) < 0.2, rng.integers(0, 10, 600), y[:600])
    return x[:600], noisy, x[600:1000], y[600:1000]


def tumours():
    x, y = load_breast_cancer(return_X_y=True)
    x = ((x - x.mean(axis=0)) / x.std(axis=0)).astype("float32")
    return x[:300], y[:300], x[300:], y[300:]


def make_model(*head, inputs=64, loss="sparse_categorical_crossentropy", rate=0.01, dropout=0.2):
    """Return a small network; ``head`` holds the last layers as (class, arguments) pairs."""
    keras.utils.set_random_seed(0)
    hidden = keras.layers.Dense(48, activation="relu")
    head = head or [(keras.layers.Dense, (10, "softmax"))]
    last = [layer(*arguments) for layer, arguments in head]
    model = keras.Sequential([keras.Input((inputs,)), hidden, keras.layers.Dropout(dropout), *last])
    model.compile(keras.optimizers.Adam(rate), loss)
    return model


def from_logits():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return make_model((keras.layers.Dense, (10,)), loss=loss)


def sigmoid():
    head = (keras.layers.Dense, (1, "sigmoid"))
    return make_model(head, inputs=30, loss="binary_crossentropy")


def separate_softmax():
    return make_model((keras.layers.Dense, (10,)), (keras.layers.Softmax, ()))


def fit(model, data, *callbacks, epochs=6, **options):
    return model.fit(
        *data[:2], batch_size=64, epochs=epochs, verbose=0, callbacks=list(callbacks), **options
    )


def refinement(y, logits, weight=None):
    """Return the smallest log loss over all temperatures, by a search that knows nothing of ours."""
    rows = np.arange(len(y))

    def loss(log_beta):
        return -np.average(log_softmax(np.exp(log_beta) * logits, axis=1)[rows, y], weights=weight)

    return minimize_scalar(loss, bounds=(-8, 8), method="bounded", options={"xatol": 1e-9}).fun


class Recorder(keras.callbacks.Callback):
    """Keeps the predictions of every epoch."""

    def __init__(self, x):
        super().__init__()
        self.x, self.staged = x, []

    def on_epoch_end(self, epoch, logs=None):
        self.staged.append(self.model.predict_on_batch(self.x).astype("float64"))


def logs_of(probs):
    return np.log(np.hstack([1 - probs, probs]) if probs.shape[1] == 1 else probs)


def same_history(a, b, rtol=1e-9):
    assert [record.keys() for record in a] == [record.keys() for record in b]
    for one, other in zip(a, b, strict=True):
        np.testing.assert_allclose(list(one.values()), list(other.values()), rtol=rtol, atol=1e-12)


# ---- which epoch -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [make_model, from_logits, separate_softmax])
@pytest.mark.sweep(3)
def test_replay_without_the_callback_gives_the_same_model(make):
    data = digits()
    model = make()
    stopping = RefinementStopping(data[2:], patience=2)
    history = fit(model, data, stopping, epochs=30)
    assert len(history.epoch) == stopping.best_epoch + 3
    replay = make()
    fit(replay, data, epochs=stopping.best_epoch + 1)
    x_val = data[2]
    assert np.array_equal(model.predict(x_val, verbose=0), replay.predict(x_val, verbose=0))


@pytest.mark.parametrize(
    ("make", "load", "to_logits"),
    [
        (make_model, digits, logs_of),
        (separate_softmax, digits, logs_of),
        (from_logits, digits, np.asarray),
        (sigmoid, tumours, logs_of),
    ],
)
@pytest.mark.sweep(3)
def test_best_epoch_is_where_refinement_is_smallest(make, load, to_logits):
    data = load()
    stopping, recorder = RefinementStopping(data[2:]), Recorder(data[2])
    fit(make(), data, recorder, stopping, epochs=8)
    expected = [refinement(data[3], to_logits(staged)) for staged in recorder.staged]
    found = [record["refinement"] for record in stopping.monitor.history]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert stopping.best_epoch == np.argmin(expected)


def test_stops_when_patience_has_run_out():
    data = digits()
    stopping = RefinementStopping(data[2:], patience=3)
    history = fit(make_model(rate=0.03), data, stopping, epochs=40)
    values = history.history["val_refinement_loss"]
    assert len(values) < 40
    assert len(values) == int(np.argmin(values)) + 1 + 3


def test_without_restoring_the_last_weights_stay():
    data = digits()
    model = make_model()
    stopping = RefinementStopping(data[2:], patience=1, restore_best_weights=False)
    fit(model, data, stopping, epochs=30)
    other = make_model()
    fit(other, data, epochs=stopping.best_epoch + 2)
    assert np.array_equal(model.predict(data[2], verbose=0), other.predict(data[2], verbose=0))


def test_weights_count_like_repeated_rows():
    x, y, x_val, y_val = digits()
    weight = np.random.default_rng(1).integers(0, 3, len(y_val))
    weighted = RefinementStopping((x_val, y_val, weight))
    repeated = RefinementStopping((np.repeat(x_val, weight, axis=0), np.repeat(y_val, weight)))
    fit(make_model(), (x, y), weighted, repeated, epochs=3)
    same_history(weighted.monitor.history, repeated.monitor.history, rtol=1e-5)


def test_logits_are_not_lost_in_float32_probabilities():
    data = digits()
    model = make_model(rate=0.0)
    kernel, bias = model.layers[-1].get_weights()
    model.layers[-1].set_weights([kernel * 300, bias])
    stopping = RefinementStopping(data[2:])
    fit(model, data, stopping, epochs=1)
    with np.errstate(divide="ignore"):
        assert np.isinf(logs_of(model.predict(data[2], verbose=0))).any()
    assert np.isfinite(stopping.monitor.history[0]["risk"])


def test_diverged_training_stops_and_goes_back():
    data = digits()

    class Break(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 2:
                broken = [np.full_like(weight, np.nan) for weight in self.model.get_weights()]
                self.model.set_weights(broken)

    model = make_model()
    stopping = RefinementStopping(data[2:])
    with pytest.warns(RuntimeWarning, match="step 2 are not finite"):
        history = fit(model, data, Break(), stopping, epochs=9)
    assert len(history.epoch) == 3
    assert np.isfinite(model.predict(data[2], verbose=0)).all()


# ---- validation data -------------------------------------------------------------------------------------


class Batches(keras.utils.PyDataset):
    def __init__(self, *arrays):
        super().__init__()
        self.arrays = arrays

    def __len__(self):
        return math.ceil(len(self.arrays[0]) / 150)

    def __getitem__(self, i):
        return tuple(array[150 * i : 150 * (i + 1)] for array in self.arrays)


def loader(*arrays):
    tensors = torch.utils.data.TensorDataset(*map(torch.as_tensor, arrays))
    return torch.utils.data.DataLoader(tensors, batch_size=150, shuffle=True)


def test_all_forms_of_validation_data_say_the_same():
    x, y, x_val, y_val = digits()
    weight = np.random.default_rng(1).random(len(y_val))
    forms = [
        (x_val, y_val, weight),
        [x_val, y_val[:, None], weight[:, None]],
        (x_val, np.eye(10)[y_val], weight),
        Batches(x_val, y_val, weight),
        loader(x_val, y_val, weight),
    ]
    stoppings = [RefinementStopping(form) for form in forms]
    fit(make_model(), (x, y), *stoppings, epochs=3)
    first, *others = stoppings
    for other in others:
        same_history(first.monitor.history, other.monitor.history, rtol=1e-5)


def test_names_of_classes():
    x, y, x_val, y_val = digits()
    names = np.array(list("abcdefghij"))
    stopping = RefinementStopping((x_val, names[y_val]), classes=names)
    fit(make_model(), (x, y), stopping, epochs=1)
    assert stopping.calibrator.classes_.tolist() == list("abcdefghij")


def test_several_inputs():
    x, y, x_val, y_val = digits()
    left, right = keras.Input((32,), name="left"), keras.Input((32,), name="right")
    output = keras.layers.Dense(10, activation="softmax")(keras.layers.Concatenate()([left, right]))
    model = keras.Model({"left": left, "right": right}, output)
    model.compile("adam", "sparse_categorical_crossentropy")

    def halves(x):
        return {"left": x[:, :32], "right": x[:, 32:]}

    stopping = RefinementStopping((halves(x_val), y_val))
    fit(model, (halves(x), y), stopping, epochs=2)
    expected = refinement(y_val, logs_of(model.predict(halves(x_val), verbose=0)))
    assert stopping.monitor.best_value == pytest.approx(expected, rel=1e-5)
    assert calibrated(model, stopping.calibrator).predict(halves(x_val), verbose=0).shape == (
        400,
        10,
    )


# ---- twice, and resumed ----------------------------------------------------------------------------------


def test_a_second_training_starts_afresh():
    data = digits()
    used, new = RefinementStopping(data[2:]), RefinementStopping(data[2:])
    fit(make_model(rate=0.03), data, used, epochs=4)
    fit(make_model(), data, used, epochs=3)
    fit(make_model(), data, new, epochs=3)
    assert used.monitor.history == new.monitor.history


def test_resuming_in_another_process_equals_training_in_one_go(tmp_path):
    data = digits()
    whole = RefinementStopping(data[2:])
    expected = make_model(dropout=0)
    fit(expected, data, whole, epochs=7, shuffle=False)

    first = RefinementStopping(data[2:])
    saving = keras.callbacks.ModelCheckpoint(tmp_path / "last.keras")
    fit(make_model(dropout=0), data, first, saving, epochs=4, shuffle=False)
    state = first.state_dict()
    state["monitor"] = json.loads(json.dumps(state["monitor"]))

    second = RefinementStopping(data[2:])
    second.load_state_dict(state)
    model = keras.saving.load_model(tmp_path / "last.keras")
    fit(model, data, second, epochs=7, initial_epoch=4, shuffle=False)
    assert second.monitor.history == whole.monitor.history
    assert second.best_epoch == whole.best_epoch
    assert second.calibrator.to_dict() == whole.calibrator.to_dict()
    assert np.array_equal(model.predict(data[2], verbose=0), expected.predict(data[2], verbose=0))


def test_initial_epoch_goes_on_with_the_same_object():
    data = digits()
    model = make_model(dropout=0)
    stopping = RefinementStopping(data[2:], restore_best_weights=False)
    fit(model, data, stopping, epochs=3)
    fit(model, data, stopping, epochs=5, initial_epoch=3)
    assert [record["step"] for record in stopping.monitor.history] == [0, 1, 2, 3, 4]


# ---- logs ------------------------------------------------------------------------------------------------


def test_values_are_logged_by_keras(tmp_path):
    data = digits()
    csv, best = tmp_path / "log.csv", tmp_path / "best.keras"
    stopping = RefinementStopping(data[2:], also="accuracy")
    key = "val_refinement_loss"
    others = [
        keras.callbacks.CSVLogger(csv),
        keras.callbacks.ModelCheckpoint(best, monitor=key, mode="min", save_best_only=True),
        keras.callbacks.EarlyStopping(key, mode="min", patience=2),
    ]
    model = make_model(rate=0.03)
    history = fit(model, data, stopping, *others, epochs=40).history
    records = stopping.monitor.history
    assert history[key] == [record["refinement"] for record in records]
    assert history["val_log_loss"] == [record["risk"] for record in records]
    assert {"val_calibration_loss", "val_beta", "val_accuracy"} <= set(history)
    assert key in csv.read_text().splitlines()[0].split(",")
    assert len(records) == stopping.best_epoch + 1 + 2
    saved = keras.saving.load_model(best)
    assert np.array_equal(saved.predict(data[2], verbose=0), model.predict(data[2], verbose=0))


# ---- calibrated models -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "load"), [(make_model, digits), (from_logits, digits), (sigmoid, tumours)]
)
@pytest.mark.parametrize("laplace", [True, False])
@pytest.mark.sweep(4)
def test_calibrated_model_is_saved_and_loaded(make, load, laplace, tmp_path):
    data = load()
    model = make()
    stopping = RefinementStopping(data[2:], calibrator=TemperatureScaling(laplace=laplace))
    fit(model, data, stopping, epochs=3)
    predictions = model.predict(data[2], verbose=0)
    calibrator = stopping.calibrator
    map_ = calibrator.predict_proba_logits if make is from_logits else calibrator.predict_proba
    expected = map_(predictions)[:, -predictions.shape[1] :]

    better = calibrated(model, calibrator)
    better.save(tmp_path / "better.keras")
    loaded = keras.saving.load_model(tmp_path / "better.keras")
    found = loaded.predict(data[2], verbose=0)
    assert np.array_equal(found, better.predict(data[2], verbose=0))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert np.array_equal(model.predict(data[2], verbose=0), predictions)


def test_calibrated_model_does_not_follow_further_training():
    data = digits()
    model = make_model()
    stopping = RefinementStopping(data[2:])
    fit(model, data, stopping, epochs=2)
    better = calibrated(model, stopping.calibrator)
    before = better.predict(data[2], verbose=0)
    fit(model, data, epochs=1)
    assert np.array_equal(better.predict(data[2], verbose=0), before)


def test_calibrated_takes_a_loss_that_cannot_be_saved():
    data = digits()
    model = make_model()
    model.compile("adam", lambda y, p: keras.ops.mean((keras.ops.one_hot(y, 10) - p) ** 2))
    stopping = RefinementStopping(data[2:])
    fit(model, data, stopping, epochs=1)
    assert calibrated(model, stopping.calibrator).predict(data[2], verbose=0).shape == (400, 10)


# ---- wrong use -------------------------------------------------------------------------------------------


class Subclassed(keras.Model):
    def __init__(self, activation):
        super().__init__()
        self.head = keras.layers.Dense(10, activation=activation)

    def call(self, x):
        return self.head(x)


def subclassed(activation):
    model = Subclassed(activation)
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def two_heads():
    x = keras.Input((64,))
    heads = [keras.layers.Dense(10, activation="softmax", name=name)(x) for name in "ab"]
    model = keras.Model(x, heads)
    model.compile("adam", ["sparse_categorical_crossentropy"] * 2)
    return model


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (None, TypeError, r"validation_data is a NoneType: pass \(x_val, y_val\)"),
        (iter([]), TypeError, "validation_data is a list_iterator.*read every epoch"),
        ((1,), ValueError, r"validation_data is a tuple of 1: it must be \(x, y\)"),
        ((np.zeros((3, 1)), np.zeros(2)), ValueError, "arrays of 2 and 3 rows"),
        (keras.utils.PyDataset, TypeError, "validation_data is a type"),
    ],
)
def test_validation_data_of_the_wrong_form(given, error, text):
    with pytest.raises(error, match=text):
        RefinementStopping(given)


def test_endless_dataset():
    class Endless(Batches):
        num_batches = None

    with pytest.raises(ValueError, match="an infinite PyDataset: give it __len__"):
        RefinementStopping(Endless())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "validation_data is a list of 0"),
        (np.zeros((4, 64)), "a batch of validation_data is a ndarray: it must be"),
        (torch.utils.data.DataLoader([]), "validation_data gave no batch"),
    ],
)
def test_validation_data_without_batches_of_pairs(given, text):
    with pytest.raises(ValueError, match=text):
        fit(make_model(), digits(), RefinementStopping(given), epochs=1)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: subclassed("softmax"), "from_logits is None, but the last layer is not known"),
        (
            lambda: make_model((keras.layers.Dense, (10, "relu"))),
            "a Dense, which.*pass from_logits",
        ),
        (
            lambda: make_model((keras.layers.Dense, (10, "sigmoid"))),
            "10 sigmoid outputs.*Use softmax",
        ),
        (two_heads, "the model has 2 outputs"),
    ],
)
def test_models_that_do_not_tell(make, text):
    x, y, x_val, y_val = digits()
    model = make()
    y = [y, y] if make is two_heads else y
    with pytest.raises(ValueError, match=text):
        fit(model, (x, y), RefinementStopping((x_val, y_val)), epochs=1)


@pytest.mark.parametrize(("activation", "told"), [("softmax", False), ("linear", True)])
def test_a_subclassed_model_is_told_about(activation, told):
    x, y, x_val, y_val = digits()
    model = subclassed(activation)
    stopping = RefinementStopping((x_val, y_val), from_logits=told)
    fit(model, (x, y), stopping, epochs=1)
    predictions = model.predict(x_val, verbose=0)
    expected = refinement(y_val, predictions if told else logs_of(predictions))
    assert stopping.monitor.best_value == pytest.approx(expected, rel=1e-5)
    with pytest.raises(TypeError, match="model is a Subclassed: only Sequential and functional"):
        calibrated(model, stopping.calibrator)


def test_logits_where_probabilities_were_announced():
    data = digits()
    with pytest.raises(ValueError, match="probs.* is not a probability") as caught:
        fit(from_logits(), data, RefinementStopping(data[2:], from_logits=False), epochs=1)
    assert "taken for probs: pass from_logits=" in caught.value.__notes__[0]


def test_probabilities_where_logits_were_announced():
    data = digits()
    with pytest.raises(ValueError, match="logits look like probabilities"):
        fit(make_model(), data, RefinementStopping(data[2:], from_logits=True), epochs=1)


def test_labels_and_metrics_that_are_not_there():
    x, y, x_val, y_val = digits()
    with pytest.raises(ValueError, match=r"y_val\[\d+\] is 10, but logits has 10 columns"):
        fit(make_model(), (x, y), RefinementStopping((x_val, y_val + 1)), epochs=1)
    with pytest.raises(ValueError, match="metric is 'refinment'.*Did you mean 'refinement'"):
        RefinementStopping((x_val, y_val), metric="refinment")


def test_calibrators_that_do_not_fold_into_a_model():
    model = make_model()
    with pytest.raises(
        TypeError, match="only a fitted TemperatureScaling can become part of a model"
    ):
        calibrated(model, TemperatureScaling())
    two = TemperatureScaling().fit([0.2, 0.9, 0.6], [0, 1, 0])
    with pytest.raises(ValueError, match="10 outputs, but the calibrator was fitted with 2"):
        calibrated(model, two)
    nested = keras.Sequential([keras.Input((64,)), model])
    with pytest.raises(ValueError, match="not a Dense, Activation or Softmax"):
        calibrated(nested, two, from_logits=False)


# ---- another backend -------------------------------------------------------------------------------------

JAX = """
import keras, numpy as np
from refinecal.integrations.keras import RefinementStopping, calibrated
assert keras.backend.backend() == "jax"
rng = np.random.default_rng(0)
x, y = rng.normal(size=(200, 5)), rng.integers(0, 3, 200)

def train(epochs, *callbacks):
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(32, "relu"), keras.layers.Dropout(0.1), keras.layers.Dense(3, "softmax")]
    model = keras.Sequential([keras.Input((5,)), *layers])
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    model.fit(x[:100], y[:100], epochs=epochs, verbose=0, callbacks=callbacks)
    return model

stopping = RefinementStopping((x[100:], y[100:]), also="log_loss", patience=3)
model = train(20, stopping)
replay = train(stopping.best_epoch + 1)
probs = model.predict(x[100:], verbose=0)
assert np.array_equal(probs, replay.predict(x[100:], verbose=0))
risk = -np.log(probs[np.arange(100), y[100:]]).mean()
assert np.isclose(risk, stopping.monitor.best.record["risk"], rtol=1e-5)
better = calibrated(model, stopping.calibrator).predict(x[100:], verbose=0)
assert np.allclose(better, stopping.calibrator.predict_proba(probs), atol=1e-5)
"""


@pytest.mark.slow
def test_the_same_code_runs_on_jax():
    env = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run([sys.executable, "-c", JAX], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
