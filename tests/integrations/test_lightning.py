"""Trains real Lightning modules; the best step is checked against a search by SciPy."""

import json
import pickle
import runpy
import sys

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, EMAWeightAveraging, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import SingleDeviceStrategy
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.datasets import make_classification
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from refinecal.integrations import lightning as adapter
from refinecal.integrations.lightning import RefinementStopping, calibrator_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # Lightning 2.6 on torch 2.13
]

N = 60  # rows to train on: so few that the network soon over-fits


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Let threads not wait for each other: the networks are tiny."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def loaders(k=2, weights=False, shuffle=True):
    X, y = make_classification(
        261, 8, n_informative=4, n_classes=k, flip_y=0.2, class_sep=0.7, random_state=k
    )
    X, y = torch.tensor(X, dtype=torch.float32), torch.tensor(y)
    extra = [torch.arange(261 - N) % 3] if weights else []
    train = DataLoader(TensorDataset(X[:N], y[:N]), batch_size=20, shuffle=shuffle)
    return train, DataLoader(TensorDataset(X[N:], y[N:], *extra), batch_size=64)


class Net(pl.LightningModule):
    """A small network, which remembers the logits of every validation after the sanity check."""

    def __init__(self, columns=2, dropout=0.1):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, 16),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(16, columns),
        )
        self.staged, self.batches = [], []

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, batch_idx):
        logits = self(batch[0])
        if logits.shape[1] == 1:
            return nn.functional.binary_cross_entropy_with_logits(logits[:, 0], batch[1].float())
        return nn.functional.cross_entropy(logits, batch[1])

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        logits = self(batch[0])
        if dataloader_idx == 0:
            self.batches.append(logits.float().cpu().numpy())
        return self.outputs(logits, batch)

    def outputs(self, logits, batch):
        return {"logits": logits, "y": batch[1]}

    test_step = validation_step

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            self.staged.append(np.concatenate(self.batches))
        self.batches = []

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


def trainer_of(callbacks, epochs, trainer=pl.Trainer, **options):
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "log_every_n_steps": 1,
    }
    return trainer(
        accelerator="cpu", callbacks=callbacks, max_epochs=epochs, **{**quiet, **options}
    )


def train(callbacks=(), epochs=20, k=2, net=None, data=None, ckpt_path=None, **options):
    """Train from a fixed seed; return the module, with its staged logits, and the trainer."""
    torch.manual_seed(0)
    net = Net(k) if net is None else net()
    trainer = trainer_of(list(callbacks), epochs, **options)
    trainer.fit(net, *(data or loaders(k)), ckpt_path=ckpt_path)
    return net, trainer


def predict(net, x=None):
    net.eval()
    with torch.no_grad():
        return net(loaders()[1].dataset.tensors[0] if x is None else x).numpy()


def refinement(labels, logits, weights=None):
    """Return the log loss after the best temperature, found by a search that shares no code with ours."""
    z = np.asarray(logits, dtype=np.float64)
    z = np.stack([np.zeros(len(z)), z.reshape(-1)], axis=1) if z[0].size == 1 else z
    rows = np.arange(len(z)), np.asarray(labels, dtype=int)

    def loss(log_beta):
        return -np.average(log_softmax(np.exp(log_beta) * z, axis=1)[rows], weights=weights)

    return minimize_scalar(loss, bounds=(-10, 10), method="bounded", options={"xatol": 1e-9}).fun


def values_of(net, k=2, weights=None):
    labels = loaders(k)[1].dataset.tensors[1]
    return [refinement(labels, logits, weights) for logits in net.staged]


def history_of(stopping):
    return [record["refinement"] for record in stopping.monitor.history]


# ---- the best step ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "columns"), [(2, 1), (2, 2), (3, 3)])
def test_the_best_weights_are_found_and_restored(k, columns):
    stopping = RefinementStopping()
    net, trainer = train([stopping], 20, k, lambda: Net(columns))
    values = values_of(net, k)
    np.testing.assert_allclose(history_of(stopping), values, rtol=1e-6)  # no sanity check in it
    assert stopping.best_epoch == np.argmin(values) < 19
    assert stopping.best_step == 3 * (stopping.best_epoch + 1)
    x = loaders(k)[1].dataset.tensors[0]
    replay, _ = train([], stopping.best_epoch + 1, k, lambda: Net(columns))
    assert np.array_equal(predict(net, x), predict(replay, x))
    assert trainer.current_epoch == 20
    assert stopping.calibrator.predict_proba_logits(predict(net, x)).shape == (201, k)


def test_the_last_weights_stay_if_that_is_wanted():
    stopping = RefinementStopping(restore_best=False)
    net, _ = train([stopping], 10)
    replay, _ = train([], 10)
    assert stopping.best_epoch < 9
    assert np.array_equal(predict(net), predict(replay))
    assert stopping.state_dict()["best_state"] is None


def test_it_stops_when_patience_runs_out():
    stopping = RefinementStopping(patience=4)
    net, trainer = train([stopping], 60)
    values = values_of(net)
    assert len(values) == np.argmin(values) + 1 + 4 == trainer.current_epoch < 60


def test_min_epochs_are_respected():
    stopping = RefinementStopping(patience=1)
    net, _ = train([stopping], 60, min_epochs=9)
    assert len(net.staged) >= 9 > stopping.best_epoch + 2


def test_an_extractor_and_weights():
    stopping = RefinementStopping(extractor=lambda outputs, batch: (outputs["scores"], *batch[1:]))

    class Other(Net):
        def outputs(self, logits, batch):
            return {"scores": logits}

    net, _ = train([stopping], 5, net=Other, data=loaders(weights=True))
    weights = loaders(weights=True)[1].dataset.tensors[2]
    np.testing.assert_allclose(history_of(stopping), values_of(net, 2, weights), rtol=1e-6)


@pytest.mark.parametrize(
    "outputs",
    [
        lambda self, logits, batch: (logits, batch[1]),
        lambda self, logits, batch: {"loss": 0, "logits": logits, "labels": batch[1]},
        lambda self, logits, batch: {"logits": logits, "target": batch[1].float()[:, None]},
    ],
)
def test_what_validation_step_may_return(outputs):
    stopping = RefinementStopping()
    net, _ = train([stopping], 2, net=type("Other", (Net,), {"outputs": outputs}))
    np.testing.assert_allclose(history_of(stopping), values_of(net), rtol=1e-6)


def test_low_precision():
    stopping = RefinementStopping()
    net, _ = train([stopping], 3, precision="bf16-mixed")
    np.testing.assert_allclose(history_of(stopping), values_of(net), rtol=1e-6)


def test_several_validations_per_epoch():
    stopping = RefinementStopping()
    net, _ = train([stopping], 8, val_check_interval=1)
    values = values_of(net)
    assert [record["step"] for record in stopping.monitor.history] == list(range(1, 25))
    assert stopping.best_step == 1 + np.argmin(values)
    assert stopping.best_epoch == np.argmin(values) // 3


def test_validations_between_which_no_step_is_made():
    stopping = RefinementStopping()
    net, _ = train([stopping], 2, val_check_interval=1, accumulate_grad_batches=3)
    assert len(stopping.monitor.history) == len(net.staged) == 6


def test_several_loaders():
    train_loader, val = loaders()
    half = DataLoader(TensorDataset(*(part[:90] for part in val.dataset.tensors)), batch_size=64)
    stopping = RefinementStopping(dataloader_idx=1)
    net, trainer = train([stopping], 20, data=(train_loader, [val, half]))
    values = [refinement(half.dataset.tensors[1], z[:90]) for z in net.staged]
    np.testing.assert_allclose(history_of(stopping), values, rtol=1e-6)
    assert stopping.best_epoch == np.argmin(values)
    others = [record["refinement"] for record in stopping.monitors[0].history]
    np.testing.assert_allclose(others, values_of(net), rtol=1e-6)
    metrics = trainer.callback_metrics
    assert float(metrics["val_refinement_loss"]) == pytest.approx(values[-1], rel=1e-6)
    other = metrics["val_refinement_loss/dataloader_idx_0"]
    assert float(other) == pytest.approx(others[-1], rel=1e-6)


def test_loaders_that_are_passed_over():
    train_loader, val = loaders()
    other = DataLoader(TensorDataset(torch.zeros(5, 8), torch.zeros(5)))
    stopping = RefinementStopping(
        extractor=lambda outputs, batch: (
            None if batch[1].is_floating_point() else (*outputs.values(),)
        )
    )
    train([stopping], 2, data=(train_loader, {"val": val, "other": other}))
    assert list(stopping.monitors) == [0]


def every_epoch(folder):
    return ModelCheckpoint(dirpath=folder, save_top_k=-1, filename="{epoch}")


# ---- again and again -------------------------------------------------------------------------------------


def test_an_object_used_twice_starts_afresh():
    stopping = RefinementStopping(patience=3)
    first, _ = train([stopping], 60)
    history = list(stopping.monitor.history)
    second, _ = train([stopping], 60)
    assert stopping.monitor.history == history
    assert np.array_equal(predict(first), predict(second))


def test_a_trainer_that_goes_on_keeps_the_history():
    stopping = RefinementStopping(restore_best=False)
    net, trainer = train([stopping], 3)
    trainer.fit_loop.max_epochs = 5
    trainer.fit(net, *loaders())
    assert [record["step"] for record in stopping.monitor.history] == [3, 6, 9, 12, 15]


def test_another_module_in_the_same_trainer_starts_afresh():
    stopping = RefinementStopping()
    _, trainer = train([stopping], 3)
    trainer.fit_loop.max_epochs = 6
    other = Net()
    trainer.fit(other, *loaders())
    assert [record["step"] for record in stopping.monitor.history] == [12, 15, 18]
    best = int(np.argmin(values_of(other)))
    assert stopping.best_epoch == 3 + best
    assert np.allclose(predict(other), other.staged[best], atol=1e-6)


def test_a_fit_without_validation_leaves_the_weights_alone():
    stopping = RefinementStopping()
    net, trainer = train([stopping], 3)
    other = Net()
    before = predict(other)
    trainer.fit(other, *loaders())  # all epochs are done
    assert np.array_equal(predict(other), before)
    assert stopping.calibrator is None
    trainer.fit_loop.max_epochs = 4
    trainer.fit(net, *loaders())
    net.load_state_dict(other.state_dict())
    trainer.fit(net, *loaders())
    assert np.array_equal(predict(net), before)


def test_a_callback_can_be_pickled_after_training():
    stopping = RefinementStopping()
    net, _ = train([stopping], 2)
    copy = pickle.loads(pickle.dumps(stopping))
    assert copy.monitor.history == stopping.monitor.history
    logits = predict(net)
    assert np.array_equal(
        copy.calibrator.predict_proba_logits(logits),
        stopping.calibrator.predict_proba_logits(logits),
    )


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_resuming_equals_one_go(tmp_path):
    options = {  # nothing random: the order of batches and the dropout are not in a checkpoint
        "net": lambda: Net(dropout=0.0),
        "data": loaders(shuffle=False),
        "enable_checkpointing": True,
    }
    whole = RefinementStopping(patience=5)
    expected, _ = train([whole, every_epoch(tmp_path)], 60, **options)
    path = tmp_path / f"epoch={whole.best_epoch + 2}.ckpt"  # the best weights are behind it
    torch.load(path, weights_only=True)
    rest = RefinementStopping(patience=5)
    net, _ = train([rest, every_epoch(tmp_path)], 60, ckpt_path=path, **options)
    assert len(net.staged) == 3
    assert rest.monitor.history == whole.monitor.history
    assert rest.best_epoch == whole.best_epoch
    assert np.array_equal(predict(net), predict(expected))


def test_later_validation_and_testing_change_nothing(tmp_path):
    stopping, save = RefinementStopping(), every_epoch(tmp_path)
    net, trainer = train([stopping, save], 4, enable_checkpointing=True)
    before = stopping.state_dict()
    _, val = loaders()
    trainer.validate(net, val, verbose=False)
    trainer.test(net, val, ckpt_path=tmp_path / "epoch=0.ckpt", verbose=False)
    after = stopping.state_dict()
    assert before["monitors"] == after["monitors"]
    assert len(after["monitors"][0]["history"]) == 4


# ---- logs and checkpoints --------------------------------------------------------------------------------


def test_the_log_serves_loggers_and_other_callbacks(tmp_path):
    stopping = RefinementStopping()
    save = ModelCheckpoint(
        dirpath=tmp_path / "saved", monitor="val_refinement_loss", filename="best"
    )
    early = EarlyStopping("val_refinement_loss", patience=4)
    net, trainer = train(
        [save, every_epoch(tmp_path / "each"), early, stopping],
        60,
        logger=CSVLogger(tmp_path / "logs"),
        enable_checkpointing=True,
    )
    values = values_of(net)
    assert len(values) == np.argmin(values) + 1 + 4
    saved = tmp_path / "saved"
    best = torch.load(saved / "best.ckpt", weights_only=True)
    for name, value in best["state_dict"].items():
        assert torch.equal(net.state_dict()[name], value)
    assert calibrator_of(saved / "best.ckpt").to_dict() == stopping.calibrator.to_dict()
    with pytest.raises(ValueError, match="holds no calibrator: its weights are not those of the"):
        calibrator_of(tmp_path / f"each/epoch={len(values) - 1}.ckpt")
    trainer.save_checkpoint(saved / "after.ckpt")
    assert calibrator_of(saved / "after.ckpt").to_dict() == stopping.calibrator.to_dict()
    logged = np.genfromtxt(
        tmp_path / "logs/lightning_logs/version_0/metrics.csv", delimiter=",", names=True
    )
    np.testing.assert_allclose(logged["val_refinement_loss"], values, rtol=1e-6)
    total = logged["val_refinement_loss"] + logged["val_calibration_loss"]
    np.testing.assert_allclose(total, logged["val_log_loss"], rtol=1e-6)
    assert np.all(logged["val_beta"] > 0)


def test_averaged_weights_are_those_that_are_kept():
    stopping, average = RefinementStopping(), EMAWeightAveraging(decay=0.5)
    net, _ = train([stopping, average], 10)
    # Batches of another size are summed in another order: equal but for the last bits.
    gaps = [np.abs(predict(net) - staged).max() for staged in net.staged]
    assert gaps[stopping.best_epoch] < 1e-6
    assert min(gap for epoch, gap in enumerate(gaps) if epoch != stopping.best_epoch) > 1e-3
    with pytest.raises(ValueError, match="EMAWeightAveraging comes before .* put it after"):
        train([EMAWeightAveraging(), RefinementStopping()], 1)


# ---- several processes -----------------------------------------------------------------------------------


class Report(pl.Callback):
    """Writes what each process has found."""

    def __init__(self, folder):
        self.folder = folder

    def on_fit_end(self, trainer, pl_module):
        stopping = trainer.callbacks[0]
        found = {"history": stopping.monitor.history, "n": stopping.calibrator.n_samples_}
        (self.folder / f"{trainer.global_rank}.json").write_text(json.dumps(found))


@pytest.mark.slow
def test_two_processes_see_all_rows_once(tmp_path):
    _, val = loaders()
    net, trainer = train(
        [RefinementStopping(), Report(tmp_path), every_epoch(tmp_path)],
        4,
        strategy="ddp_spawn",
        devices=2,
        enable_checkpointing=True,
    )
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["n"] == 201  # of 202 that are dealt
    x, y = val.dataset.tensors
    values = []
    for epoch in range(4):  # what each epoch's weights predict, all in one process
        path = tmp_path / f"epoch={epoch}.ckpt"
        net.load_state_dict(torch.load(path, weights_only=True)["state_dict"])
        values.append(refinement(y, predict(net, x)))
    found = [record["refinement"] for record in first["history"]]
    np.testing.assert_allclose(found, values, rtol=1e-6)
    best = tmp_path / f"epoch={np.argmin(values)}.ckpt"
    assert calibrator_of(best).beta_ == first["history"][np.argmin(values)]["beta"]
    last = float(trainer.callback_metrics["val_refinement_loss"])
    assert last == pytest.approx(values[-1], rel=1e-6)


# ---- wrong use -------------------------------------------------------------------------------------------


def test_divergence_stops_and_restores():
    class Diverging(Net):
        def on_train_epoch_start(self):
            if self.current_epoch == 2:
                self.layers[4].weight.data.fill_(torch.nan)

    stopping = RefinementStopping()
    with pytest.warns(RuntimeWarning, match="training has diverged"):
        net, trainer = train([stopping], 60, net=Diverging)
    assert trainer.current_epoch == 3
    assert np.isfinite(predict(net)).all()


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
def test_nothing_to_follow():
    train_loader, _ = loaders()
    with pytest.raises(ValueError, match="nothing to follow: pass val_dataloaders to fit"):
        train([RefinementStopping()], 1, data=(train_loader,))
    with pytest.raises(ValueError, match="leave limit_val_batches above 0"):
        train([RefinementStopping()], 1, limit_val_batches=0)
    with pytest.raises(ValueError, match="dataloader_idx is 1, but there are 1 validation loaders"):
        train([RefinementStopping(dataloader_idx=1)], 1)
    with pytest.raises(ValueError, match="loader 0 gave no rows to follow: extractor must return"):
        train([RefinementStopping(extractor=lambda outputs, batch: None)], 1)


def test_weights_that_are_spread_over_processes():
    class Sharded(SingleDeviceStrategy):
        restore_checkpoint_after_setup = True  # as for FSDP and DeepSpeed, which need a GPU

    with pytest.raises(ValueError, match="Sharded spreads the weights .* pass restore_best=False"):
        train([RefinementStopping()], 1, strategy=Sharded("cpu"))
    stopping = RefinementStopping(restore_best=False)
    train([stopping], 1, strategy=Sharded("cpu"))
    assert stopping.best_epoch == 0


@pytest.mark.parametrize(
    ("returned", "found"),
    [(None, "NoneType"), (torch.tensor(0.5), "Tensor"), ({"loss": 0.5}, "a dict of 'loss'")],
)
def test_a_validation_step_that_returns_something_else(returned, found):
    other = type("Other", (Net,), {"outputs": lambda self, logits, batch: returned})
    with pytest.raises(TypeError, match=f"validation_step returned {found}: return"):
        train([RefinementStopping()], 1, net=other)


class Sigmoid(Net):
    def outputs(self, logits, batch):
        return {"logits": logits.sigmoid(), "y": batch[1]}


def test_a_sigmoid_in_place_of_log_odds_is_noticed():
    with pytest.warns(RuntimeWarning, match="look like probabilities of one class"):
        train([RefinementStopping()], 1, net=lambda: Sigmoid(1))


def test_wrong_options_and_labels():
    with pytest.raises(ValueError, match="metric is 'loss'"):
        RefinementStopping(metric="loss")
    three = type("Other", (Net,), {"outputs": lambda self, logits, batch: (logits, batch[1] + 1)})
    with pytest.raises(ValueError, match=r"If your labels start at 1, pass y_val - 1"):
        train([RefinementStopping()], 1, net=three)


def test_pytorch_lightning_under_its_old_name(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "lightning", None)  # as if only the old package were there
        stopping = runpy.run_path(adapter.__file__)["RefinementStopping"](patience=2)
        import pytorch_lightning as old
    assert isinstance(stopping, old.Callback)
    assert not isinstance(stopping, pl.Callback)

    class OldNet(old.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 2)

        def training_step(self, batch, batch_idx):
            return nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

        def validation_step(self, batch, batch_idx):
            return self.layer(batch[0]), batch[1]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    for callback in (stopping, RefinementStopping(patience=2)):  # either serves
        trainer = trainer_of([callback], 9, old.Trainer)
        trainer.fit(OldNet(), *loaders())
        assert trainer.current_epoch == 3
        assert callback.best_epoch == 0
