"""skorch, trained for real: the callback in nets of all kinds, stopped, resumed, cloned and saved."""

import pickle

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNet, NeuralNetBinaryClassifier, NeuralNetClassifier
from skorch.callbacks import Callback, Checkpoint, EarlyStopping, PrintLog
from skorch.dataset import Dataset
from skorch.helper import predefined_split
from torch import nn

import refinecal as rc
from refinecal.integrations.skorch import RefinementStopping, calibrator_of, predict_proba


def data(k=2):
    """Return noisy data that a net over-fits within a few epochs."""
    X, y = make_classification(
        300, 8, n_informative=4, n_classes=k, flip_y=0.2, class_sep=0.7, random_state=k
    )
    X = X.astype(np.float32)
    return X[:150], y[:150], X[150:], y[150:]


class Layers(nn.Sequential):
    def __init__(self, k=2, end=None, dropout=0.0):
        layers = [nn.Linear(8, 32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, k)]
        super().__init__(*layers, *([] if end is None else [end]))


KINDS = {
    "cross entropy": (NeuralNetClassifier, 4, {"criterion": nn.CrossEntropyLoss}),
    "two columns": (NeuralNetClassifier, 2, {"criterion": nn.CrossEntropyLoss}),
    "probabilities": (NeuralNetClassifier, 3, {"module__end": nn.Softmax(1)}),
    "log-probabilities": (NeuralNet, 3, {"criterion": nn.NLLLoss, "module__end": nn.LogSoftmax(1)}),
    "log-odds": (NeuralNetBinaryClassifier, 1, {}),
    "one probability": (
        NeuralNetBinaryClassifier,
        1,
        {"criterion": nn.BCELoss, "module__end": nn.Sigmoid()},
    ),
}


def prepared(kind="cross entropy", callbacks=(), **params):
    """Return a net of that kind with its data; calling this again gives the same initial weights."""
    cls, k, own = KINDS[kind]
    X, y, X_val, y_val = data(max(k, 2))
    if k == 1:
        y, y_val = y.astype(np.float32), y_val.astype(np.float32)
    torch.manual_seed(0)
    settings = {
        "module__k": k,
        "optimizer": torch.optim.Adam,
        "lr": 0.02,
        "batch_size": 32,
        "max_epochs": 15,
        "verbose": 0,
        "train_split": predefined_split(Dataset(X_val, y_val)),
    }
    net = cls(Layers, callbacks=list(callbacks), **settings | own | params)
    return net, X, y, X_val, y_val


class Recorder(Callback):
    """Keep what the module says of some rows after each epoch."""

    def __init__(self, X):
        self.X = X

    def initialize(self):
        self.stages_ = []
        return self

    def on_epoch_end(self, net, **kwargs):
        net.module_.eval()
        with torch.no_grad():
            self.stages_.append(net.module_(torch.as_tensor(self.X)).double().numpy())


def refinement(y, scores, kind):
    """Return the refinement error found by a general-purpose minimiser."""
    if kind == "one probability":
        scores = np.log(scores) - np.log1p(-scores)
    z = np.log(scores) if kind == "probabilities" else scores
    if z.shape[1] == 1:
        z = np.hstack([np.zeros_like(z), z])

    def risk(log_beta):
        return -log_softmax(np.exp(log_beta) * z, axis=1)[np.arange(len(y)), y.astype(int)].mean()

    return minimize_scalar(risk, bounds=(-9, 5), method="bounded", options={"xatol": 1e-10}).fun


def outputs(net, X):
    return net.forward(X).numpy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sweep(4)
def test_best_epoch_is_found_and_restored(kind):
    stopping = RefinementStopping()
    net, X, y, X_val, y_val = prepared(kind)
    recorder = Recorder(X_val)
    net.set_params(callbacks=[stopping, recorder])
    net.fit(X, y)

    expected = [refinement(y_val, scores, kind) for scores in recorder.stages_]
    assert np.allclose(net.history[:, "valid_refinement_loss"], expected, atol=1e-5)
    best = int(np.argmin(expected)) + 1
    assert 1 < best < 15  # else the test shows nothing
    assert stopping.best_epoch_ == stopping.monitor_.best_step == best
    assert [row["epoch"] for row in net.history if row["valid_refinement_loss_best"]][-1] == best

    replay, *_ = prepared(kind, max_epochs=best)
    replay.fit(X, y)
    assert np.array_equal(outputs(net, X_val), outputs(replay, X_val))


def test_replay_with_shuffling_and_dropout():
    noisy = {"module__dropout": 0.3, "iterator_train__shuffle": True}
    stopping = RefinementStopping(patience=4)
    net, X, y, X_val, _ = prepared(callbacks=[stopping], **noisy)
    net.fit(X, y)
    replay, *_ = prepared(max_epochs=stopping.best_epoch_, **noisy)
    replay.fit(X, y)
    assert np.array_equal(outputs(net, X_val), outputs(replay, X_val))


def test_calibrator_belongs_to_the_best_epoch():
    stopping = RefinementStopping()
    net, X, y, X_val, y_val = prepared(callbacks=[stopping])
    net.fit(X, y)
    own = rc.TemperatureScaling().fit_logits(outputs(net, X_val), y_val)
    assert np.isclose(stopping.calibrator_.beta_, own.beta_)
    assert np.allclose(predict_proba(net, X), own.predict_proba_logits(outputs(net, X)))
    assert calibrator_of(net).to_dict() == stopping.calibrator_.to_dict()


@pytest.mark.parametrize("kind", ["probabilities", "one probability"])
def test_calibrated_probabilities_from_probabilities(kind):
    stopping = RefinementStopping()
    net, X, y, *_ = prepared(kind, callbacks=[stopping])
    net.fit(X, y)
    expected = stopping.calibrator_.predict_proba(outputs(net, X))
    assert np.array_equal(predict_proba(net, X), expected)


def test_patience():
    stopping = RefinementStopping(patience=3)
    net, X, y, *_ = prepared(callbacks=[stopping], max_epochs=50)
    net.fit(X, y)
    values = net.history[:, "valid_refinement_loss"]
    assert len(values) == stopping.best_epoch_ + 3 < 50
    assert values[stopping.best_epoch_ - 1] == min(values)

    net.partial_fit(X, y)  # who asks for more gets the whole patience again
    assert len(net.history) >= len(values) + 3


def test_min_delta_shortens_and_last_weights_stay_if_asked():
    net, X, y, X_val, _ = prepared()
    net.set_params(callbacks=[RefinementStopping(patience=2, min_delta=0.5, load_best=False)])
    net.fit(X, y)
    assert len(net.history) == 3  # no epoch gains 0.5
    replay, *_ = prepared(max_epochs=3)
    replay.fit(X, y)
    assert np.array_equal(outputs(net, X_val), outputs(replay, X_val))


def test_callback_object_used_twice():
    stopping = RefinementStopping(patience=3)
    other, X3, y3, *_ = prepared("probabilities", callbacks=[stopping])
    other.fit(X3, y3)
    net, X, y, *_ = prepared(callbacks=[stopping])
    first = net.fit(X, y).history[:, "valid_refinement_loss"]
    net, X, y, *_ = prepared(callbacks=[stopping])
    assert net.fit(X, y).history[:, "valid_refinement_loss"] == first
    assert [record["step"] for record in stopping.monitor_.history] == net.history[:, "epoch"]


@pytest.mark.parametrize("load_best", [False, True])
@pytest.mark.parametrize("way", ["partial_fit", "pickle", "files"])
@pytest.mark.sweep(5)
def test_resumed_training_equals_one_go(way, load_best, tmp_path):
    whole = RefinementStopping(load_best=load_best, also=["accuracy"])
    expected, X, y, X_val, _ = prepared(callbacks=[whole], max_epochs=10)
    expected.fit(X, y)

    def half():
        callback = RefinementStopping(load_best=load_best, also=["accuracy"])
        return prepared(callbacks=[callback], max_epochs=2)[0]

    net = half().fit(X, y)
    assert net.callbacks[0].best_epoch_ == 2  # so load_best leaves the weights alone
    if way == "pickle":
        net = pickle.loads(pickle.dumps(net))
    elif way == "files":
        files = {f"f_{part}": tmp_path / part for part in ("params", "optimizer", "history")}
        net.save_params(**files)
        net = half().initialize()
        net.load_params(**files)
    net.set_params(max_epochs=8)
    net.partial_fit(X, y)

    resumed = net.callbacks[0]
    assert resumed.monitor_.state_dict() == whole.monitor_.state_dict()
    assert np.array_equal(outputs(net, X_val), outputs(expected, X_val))


def test_resumed_from_weights_that_are_not_the_best(tmp_path):
    files = {f"f_{part}": tmp_path / part for part in ("params", "optimizer", "history")}
    net, X, y, *_ = prepared(callbacks=[RefinementStopping(load_best=False)], max_epochs=15)
    net.fit(X, y).save_params(**files)
    best = net.callbacks[0].best_epoch_
    net, *_ = prepared(callbacks=[RefinementStopping()], max_epochs=1)
    net.initialize()
    net.load_params(**files)
    with pytest.warns(
        RuntimeWarning, match=rf"epoch {best} is the best, but its weights were missing"
    ):
        net.partial_fit(X, y)
    assert len(net.history) == 16


def test_interrupted_within_an_epoch():
    class Interrupt(Callback):
        def on_batch_begin(self, net, training=None, **kwargs):
            if training is False and len(net.history) == 3:
                raise KeyboardInterrupt

    stopping = RefinementStopping()
    net, X, y, X_val, _ = prepared(callbacks=[stopping, Interrupt()])
    net.fit(X, y)
    assert stopping.best_epoch_ == 2
    replay, *_ = prepared(max_epochs=2)
    replay.fit(X, y)
    assert np.array_equal(outputs(net, X_val), outputs(replay, X_val))
    assert calibrator_of(net).to_dict() == stopping.calibrator_.to_dict()


def test_all_modules_are_restored():
    class Pair(NeuralNetClassifier):
        def initialize_module(self):
            super().initialize_module()
            self.shift_ = nn.Linear(4, 4)
            return self

        def infer(self, x, **params):
            return self.shift_(self.module_(x))

    def pair(epochs, callbacks=()):
        net, X, y, X_val, _ = prepared()
        settings = net.get_params(deep=False) | {"callbacks": list(callbacks), "max_epochs": epochs}
        torch.manual_seed(0)
        return Pair(**settings).fit(X, y), X_val

    stopping = RefinementStopping()
    net, X_val = pair(30, [stopping])
    assert stopping.best_epoch_ < 30
    replay, _ = pair(stopping.best_epoch_)
    assert np.array_equal(outputs(net, X_val), outputs(replay, X_val))


def test_first_of_several_outputs_counts():
    class Several(Layers):
        def forward(self, X):
            return super().forward(X), X

    class Net(NeuralNetClassifier):
        def get_loss(self, y_pred, y_true, *args, **kwargs):
            return super().get_loss(y_pred[0], y_true, *args, **kwargs)

    stopping = RefinementStopping()
    net, X, y, X_val, _ = prepared(max_epochs=2)
    several = Net(**net.get_params(deep=False) | {"module": Several, "callbacks": [stopping]})
    several.fit(X, y)
    assert predict_proba(several, X_val).shape == (150, 4)


def test_history_feeds_the_callbacks_of_skorch(tmp_path):
    lines = []
    checkpoint = Checkpoint(monitor="valid_refinement_loss_best", dirname=str(tmp_path))
    log = PrintLog(sink=lines.append)
    stopping = RefinementStopping(also=["accuracy"])
    net, X, y, X_val, _ = prepared(callbacks=[stopping, checkpoint, log])
    net.fit(X, y)
    for name in ("refinement_loss", "calibration_loss", "log_loss", "beta", "accuracy"):
        assert f"valid_{name}" in lines[0]
        assert len(net.history[:, f"valid_{name}"]) == 15
    assert "refinecal" not in lines[0]
    assert np.allclose(net.history[:, "valid_log_loss"], net.history[:, "valid_loss"], rtol=1e-5)

    fresh, *_ = prepared()
    fresh.initialize()
    fresh.load_params(checkpoint=checkpoint)
    assert np.array_equal(outputs(fresh, X_val), outputs(net, X_val))
    assert calibrator_of(fresh).to_dict() == stopping.calibrator_.to_dict()
    assert np.array_equal(predict_proba(fresh, X), predict_proba(net, X))


def test_clone_and_grid_search():
    net, X, y, *_ = prepared(callbacks=[RefinementStopping(patience=2, calibrator="isotonic")])
    copied = clone(net).callbacks[0]
    assert copied is not net.callbacks[0]
    assert copied.get_params() == {
        "patience": 2,
        "load_best": True,
        "outputs": "auto",
        "calibrator": "isotonic",
    }
    net, X, y, *_ = prepared("two columns", callbacks=[RefinementStopping(patience=2)])
    net.initialize()  # only then does skorch know the names of callbacks
    grid = {"callbacks__RefinementStopping__patience": [1, 2]}
    search = GridSearchCV(net, grid, cv=2, scoring="neg_log_loss", error_score="raise").fit(X, y)
    assert calibrator_of(search.best_estimator_).beta_ > 0


def test_diverged_training_stops_and_restores():
    class Spoil(Callback):
        def on_epoch_begin(self, net, **kwargs):
            if len(net.history) == 3:
                nn.init.constant_(net.module_[0].weight, np.nan)

    stopping = RefinementStopping()
    net, X, y, *_ = prepared(callbacks=[stopping, Spoil()])
    net.set_params(callbacks__valid_acc=None)
    with pytest.warns(RuntimeWarning, match="the predictions of step 3 are not finite"):
        net.fit(X, y)
    assert len(net.history) == 3
    assert np.isfinite(predict_proba(net, X)).all()


def test_foreign_calibrator_stays_out_of_the_history(tmp_path):
    stopping = RefinementStopping(calibrator=LogisticRegression())
    net, X, y, *_ = prepared(callbacks=[stopping], max_epochs=2)
    net.fit(X, y).save_params(f_history=tmp_path / "history.json")
    assert isinstance(stopping.calibrator_, LogisticRegression)
    with pytest.raises(ValueError, match="the history of net holds no calibrator"):
        calibrator_of(net)


def test_wrong_use():
    net, X, y, *_ = prepared(callbacks=[RefinementStopping()], train_split=None)
    with pytest.raises(ValueError, match=r"train_split=None, so there is no validation data"):
        net.fit(X, y)
    with pytest.raises(ValueError, match="the history of net holds no calibrator: train it with"):
        calibrator_of(prepared()[0].initialize())
    with pytest.raises(TypeError, match="'pacience'. Did you mean 'patience'"):
        RefinementStopping(pacience=3)
    with pytest.raises(TypeError, match="restore_best is called load_best here"):
        RefinementStopping(restore_best=False)
    with pytest.raises(ValueError, match=r"outputs is 'scores'.*logits"):
        prepared(callbacks=[RefinementStopping(outputs="scores")])[0].initialize()

    early = EarlyStopping(monitor="valid_refinement_loss")
    net, *_ = prepared(callbacks=[early, RefinementStopping()])
    with pytest.raises(
        ValueError, match=r"callback 'EarlyStopping' follows .* put it after RefinementStopping"
    ):
        net.fit(X, y)
    net, *_ = prepared(callbacks=[RefinementStopping()], criterion=nn.MultiMarginLoss)
    with pytest.raises(
        ValueError, match=r"MultiMarginLoss does not tell .* pass .*outputs='logits'"
    ):
        net.fit(X, y)
    net, *_ = prepared(callbacks=[RefinementStopping(outputs="probs")])
    with pytest.raises(
        ValueError, match=r"were taken for probs, but .*not a prob.*outputs=.*'probs' now"
    ):
        net.fit(X, y)


def test_outputs_can_be_told():
    told = RefinementStopping(outputs="logits")
    net, X, y, *_ = prepared(callbacks=[told], criterion=nn.MultiMarginLoss, max_epochs=3)
    net.fit(X, y)
    assert told.monitor_.last_step == 3


def test_probabilities_where_logits_are_expected():
    callbacks = [RefinementStopping()]
    net, X, y, *_ = prepared(callbacks=callbacks, module__end=nn.Softmax(1), max_epochs=1)
    with pytest.raises(ValueError, match="logits look like probabilities"):
        net.fit(X, y)
