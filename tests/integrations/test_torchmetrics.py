"""The metric against a search by SciPy, alone, in collections, in Lightning and on two processes."""

import math
import pickle

import numpy as np
import pytest
import torch
import torch.distributed as dist
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from torch import nn
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.wrappers import MetricTracker

import refinecal as rc
from refinecal.integrations.torchmetrics import RefinementLoss


def sample(n=101, k=3, seed=0):
    """Logits that are twice as sure as they should be."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(n, k, generator=generator, dtype=torch.float64)
    y = torch.multinomial(truth.softmax(dim=1), 1, generator=generator)[:, 0]
    return 2 * truth, y


def filled(metric, *parts, batch=16):
    for rows in torch.arange(len(parts[0])).split(batch):
        metric.update(*(part[rows] for part in parts))
    return metric


def best_temperature(labels, logits, weights=None):
    """Return the smallest log loss over beta, and that beta, by a search that shares no code with ours."""
    z = np.asarray(logits, dtype=np.float64)
    z = np.stack([np.zeros(len(z)), z.reshape(-1)], axis=1) if z[0].size == 1 else z
    rows = np.arange(len(z)), np.asarray(labels, dtype=int)

    def loss(log_beta):
        return -np.average(log_softmax(np.exp(log_beta) * z, axis=1)[rows], weights=weights)

    found = minimize_scalar(loss, bounds=(-10, 10), method="bounded", options={"xatol": 1e-9})
    return found.fun, np.exp(found.x)


# ---- the value -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3])
def test_every_term(k):
    logits, y = sample(k=k)
    expected, beta = best_temperature(y, logits)
    risk = nn.functional.cross_entropy(logits, y).item()
    values = {"refinement": expected, "calibration": risk - expected, "risk": risk, "beta": beta}
    for term, value in values.items():
        metric = filled(RefinementLoss(term).set_dtype(torch.float64), logits, y)
        assert metric.compute().item() == pytest.approx(value, rel=1e-7)
    together = filled(RefinementLoss("all"), logits, y).compute()
    assert list(together) == ["refinement_loss", "calibration_loss", "log_loss", "beta"]
    assert [value.item() for value in together.values()] == pytest.approx(
        list(values.values()), rel=1e-5
    )


def test_binary_shapes_and_labels():
    logits, y = sample(k=2)
    odds = logits[:, 1] - logits[:, 0]
    expected, _ = best_temperature(y, odds)
    for preds, target in ((odds, y), (odds[:, None], y.float()[:, None]), (logits, y.bool())):
        assert filled(RefinementLoss(), preds, target).compute().item() == pytest.approx(expected)


def test_weights_and_rows_that_do_not_count():
    logits, y = sample()
    weight = torch.arange(101) % 3
    expected, _ = best_temperature(y, logits, weight)
    assert filled(RefinementLoss(), logits, y, weight).compute().item() == pytest.approx(expected)
    padded = RefinementLoss()
    padded.update(logits, y)
    padded.update(logits[:5], y[:5], weight=torch.zeros(5))
    assert padded.compute().item() == pytest.approx(best_temperature(y, logits)[0])


def test_probabilities_if_announced():
    logits, y = sample()
    metric = filled(RefinementLoss(logits=False), logits.softmax(dim=1), y)
    assert metric.compute().item() == pytest.approx(best_temperature(y, logits)[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    logits, y = sample()
    metric = filled(RefinementLoss(), logits.to(dtype), y)
    expected, _ = best_temperature(y, logits.to(dtype).double())
    assert metric.compute().item() == pytest.approx(expected, rel=1e-6)


def test_options_of_the_decomposition():
    logits, y = sample(k=2)
    options = {"loss": "brier", "calibrator": "isotonic", "cv": 3, "classes": [5, 7]}
    metric = filled(RefinementLoss("all", **options), logits, 5 + 2 * y)
    expected = rc.decompose(5 + 2 * y, logits=logits, **options)
    found = metric.compute()
    assert found["brier_loss"].item() == pytest.approx(expected.risk)
    assert found["refinement_loss"].item() == pytest.approx(expected.refinement)
    assert math.isnan(found["beta"])


def test_an_iterator_of_folds_serves_every_epoch():
    logits, y = sample()
    rows = np.arange(len(y))
    metric = RefinementLoss(cv=iter([(rows[::2], rows[1::2]), (rows[1::2], rows[::2])]))
    first = filled(metric, logits, y).compute()
    metric.reset()
    assert filled(metric, logits, y).compute() == first


def test_the_decomposition_and_the_calibrator_are_there():
    logits, y = sample()
    metric = RefinementLoss()
    assert metric.decomposition is None
    assert metric.calibrator is None
    filled(metric, logits, y).compute()
    found = metric.decomposition.to_dict()
    alone = metric(logits[:8], y[:8])  # which also gives the value of the batch
    assert alone.item() == pytest.approx(best_temperature(y[:8], logits[:8])[0])
    assert metric.decomposition.to_dict() == found
    metric.reset()  # as Lightning does after each epoch
    assert metric.calibrator.beta_ == found["beta"]
    filled(metric, 2 * logits, y).compute()
    assert metric.calibrator.beta_ == pytest.approx(found["beta"] / 2)


# ---- what torchmetrics asks of a metric ------------------------------------------------------------------


def test_batches_by_call_or_by_update():
    logits, y = sample()
    called = RefinementLoss()
    for rows in torch.arange(101).split(16):
        called(logits[rows], y[rows])
    assert called.compute() == filled(RefinementLoss(), logits, y).compute()


def test_copies_files_and_reset():
    logits, y = sample()
    half = filled(RefinementLoss(), logits[:50], y[:50])
    half.persistent(True)
    loaded = RefinementLoss()
    loaded.persistent(True)
    loaded.load_state_dict(half.state_dict())
    used = filled(RefinementLoss(), 3 * logits, 2 - y)
    used.reset()
    used.update(logits[:50], y[:50])
    expected = filled(RefinementLoss(), logits, y).compute()
    for metric in (half.clone(), pickle.loads(pickle.dumps(half)), loaded, used, half):
        assert filled(metric, logits[50:], y[50:]).compute() == expected


def test_in_a_collection():
    logits, y = sample()
    collection = MetricCollection(
        {
            "refinement_loss": RefinementLoss(),
            "log_loss": RefinementLoss("risk"),
            "accuracy": MulticlassAccuracy(3, average="micro"),
        },
        prefix="val_",
    )
    found = filled(collection, logits, y).compute()
    assert len(collection.compute_groups) == 2  # the logits are kept once
    assert found["val_refinement_loss"].item() == pytest.approx(best_temperature(y, logits)[0])
    assert found["val_log_loss"].item() == pytest.approx(
        nn.functional.cross_entropy(logits, y).item()
    )
    assert found["val_accuracy"].item() == pytest.approx((logits.argmax(dim=1) == y).float().mean())
    assert isinstance(collection["refinement_loss"], Metric)
    assert not RefinementLoss.higher_is_better


def test_in_a_tracker():
    logits, y = sample()
    tracker = MetricTracker(RefinementLoss(), maximize=None)  # it knows that smaller is better
    for noise in (2.0, 0.0, 1.0):
        tracker.increment()
        tracker.update(logits + noise * sample(seed=1)[0], y)
    best, step = tracker.best_metric(return_step=True)
    assert step == 1
    assert best == pytest.approx(best_temperature(y, logits)[0])


@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # Lightning 2.6 on torch 2.13
def test_in_lightning():
    import lightning.pytorch as pl  # here, so that spawned processes need not

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3, bias=False)
            self.metric = RefinementLoss()

        def training_step(self, batch, batch_idx):
            return nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

        def validation_step(self, batch, batch_idx):
            self.metric.update(self.layer(batch[0]), batch[1])
            self.log("val_refinement_loss", self.metric)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    x, y = sample()
    data = torch.utils.data.TensorDataset(x.float(), y)
    net = Net()
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = torch.utils.data.DataLoader(data, batch_size=30)
    trainer.fit(net, loader, loader)
    expected, beta = best_temperature(y, net.layer(x.float()).detach())
    logged = trainer.callback_metrics["val_refinement_loss"].item()
    assert logged == pytest.approx(
        expected, rel=1e-6
    )  # neither the sanity check nor the first epoch
    assert net.metric.calibrator.beta_ == pytest.approx(beta, rel=1e-4)


# ---- several processes -----------------------------------------------------------------------------------


def compute_on(rank, file, results):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    logits, y = sample()
    found = []
    for dtype in (torch.float64, torch.bfloat16):
        own = slice(0, 70) if rank == 0 else slice(70, None)  # 70 rows and 31
        metric = RefinementLoss("all").set_dtype(torch.float64)
        filled(metric, logits[own].to(dtype), y[own], (1 + y[own]).double())
        found.append(metric.compute())
    torch.save(found, f"{results}/{rank}")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    torch.multiprocessing.spawn(compute_on, (tmp_path / "file", tmp_path), nprocs=2)
    first, second = (torch.load(tmp_path / str(rank), weights_only=True) for rank in (0, 1))
    assert first == second
    logits, y = sample()
    for dtype, values in zip((torch.float64, torch.bfloat16), first, strict=True):
        alone = RefinementLoss("all").set_dtype(torch.float64)
        expected = filled(alone, logits.to(dtype), y, (1 + y).double()).compute()
        for name, value in values.items():
            assert value.item() == pytest.approx(expected[name].item(), rel=1e-12)


# ---- wrong use -------------------------------------------------------------------------------------------


def test_predictions_that_are_not_finite():
    logits, y = sample()
    logits[7, 1] = torch.nan
    for metric in (RefinementLoss(), RefinementLoss("all")):
        filled(metric, logits, y)
        with pytest.warns(RuntimeWarning, match="predictions are not finite"):
            found = metric.compute()
        values = found.values() if isinstance(found, dict) else [found]
        assert all(math.isnan(value) for value in values)
        assert metric.calibrator is None


def test_probabilities_and_logits_mixed_up():
    logits, y = sample()
    metric = filled(RefinementLoss(), logits.softmax(dim=1), y)
    with pytest.warns(RuntimeWarning, match="logits look like probabilities"):
        metric.compute()
    metric = filled(RefinementLoss(logits=False), logits, y)
    with pytest.raises(ValueError, match="is not a probability.* make it with logits=True"):
        metric.compute()


def test_wrong_use_says_what_to_do():
    logits, y = sample()
    with pytest.raises(ValueError, match="term is 'refine': .*Did you mean 'refinement'"):
        RefinementLoss("refine")
    with pytest.raises(ValueError, match="loss is 'logg'"):
        RefinementLoss(loss="logg")
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `patience`"):
        RefinementLoss(patience=3)
    with pytest.raises(ValueError, match="target has 3 rows, but preds has 101"):
        RefinementLoss().update(logits, y[:3])
    with pytest.raises(ValueError, match=r"target\[\d+\] is 3, .* If your labels start at 1"):
        filled(RefinementLoss(), logits, y + 1).compute()
