"""Trains real networks in plain loops; the best epoch is checked against a search by SciPy."""

import io

import numpy as np
import pytest
import torch
import torch.distributed as dist
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.datasets import make_classification
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import refinecal as rc
from refinecal.integrations.torch import RefinementStopping

N = 60  # rows to train on: so few that the network soon over-fits


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Let threads not wait for each other: the networks are tiny."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tensors(k=2):
    X, y = make_classification(
        260, 8, n_informative=4, n_classes=k, flip_y=0.2, class_sep=0.7, random_state=k
    )
    return torch.tensor(X, dtype=torch.float32), torch.tensor(y)


def network(columns):
    """With buffers that must be restored, and random numbers that validation must not use up."""
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, columns)
    )


class Training:
    """A hand-written loop, which remembers the validation logits of every epoch."""

    def __init__(self, k=2, columns=None, weight=None):
        torch.manual_seed(0)
        self.X, self.y = tensors(k)
        self.model = network(columns or k)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.05)
        parts = [self.X[N:], self.y[N:]] + ([] if weight is None else [weight])
        own = torch.Generator()  # a loader draws a random number, whoever reads it
        self.val_loader = DataLoader(TensorDataset(*parts), batch_size=64, generator=own)
        self.staged = []

    def train_epoch(self):
        self.model.train()
        for rows in torch.randperm(N).split(20):
            logits = self.model(self.X[rows])
            if logits.shape[1] == 1:
                logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(logits, self.y[rows]).backward()
            self.optimizer.step()

    def predict(self):
        self.model.eval()
        with torch.no_grad():
            return self.model(self.X[N:]).numpy()

    def run(self, epochs, stopping=None):
        for _ in range(epochs):
            self.train_epoch()
            self.staged.append(self.predict())
            if stopping is not None:
                stopping.evaluate(self.model, self.val_loader)
                if stopping.step(self.model):
                    break
        return self


def refinement(labels, logits, weights=None):
    """Return the log loss after the best temperature, found by a search that shares no code with ours."""
    z = np.asarray(logits, dtype=np.float64)
    z = np.stack([np.zeros(len(z)), z.reshape(-1)], axis=1) if z[0].size == 1 else z
    rows = np.arange(len(z)), np.asarray(labels, dtype=int)

    def loss(log_beta):
        return -np.average(log_softmax(np.exp(log_beta) * z, axis=1)[rows], weights=weights)

    return minimize_scalar(loss, bounds=(-10, 10), method="bounded", options={"xatol": 1e-9}).fun


def values_of(training, weights=None):
    return [refinement(training.y[N:], logits, weights) for logits in training.staged]


# ---- the best epoch --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "columns"), [(2, 1), (2, 2), (3, 3)])
def test_the_best_epoch_is_found_and_restored(k, columns):
    stopping = RefinementStopping()
    training = Training(k, columns).run(40, stopping)
    values = values_of(training)
    assert stopping.best_epoch == np.argmin(values) < 39
    found = [record["refinement"] for record in stopping.monitor.history]
    np.testing.assert_allclose(found, values, rtol=1e-6)
    stopping.restore(training.model)
    replay = Training(k, columns).run(stopping.best_epoch + 1)
    assert np.array_equal(training.predict(), replay.predict())
    for name, value in replay.model.state_dict().items():  # the counters of BatchNorm too
        assert torch.equal(training.model.state_dict()[name], value)


def test_it_stops_when_patience_runs_out():
    stopping = RefinementStopping(patience=4)
    training = Training().run(60, stopping)
    values = values_of(training)
    best = int(np.argmin(values))
    assert len(values) == best + 1 + 4 < 60
    assert stopping.best_epoch == best


def test_weights_count_rows():
    weight = torch.arange(200) % 3
    stopping = RefinementStopping()
    training = Training(weight=weight).run(8, stopping)
    found = [record["refinement"] for record in stopping.monitor.history]
    np.testing.assert_allclose(found, values_of(training, weight), rtol=1e-6)


def test_other_metrics_and_their_direction():
    stopping = RefinementStopping(patience=5, metric="accuracy", also=["log_loss"])
    training = Training().run(60, stopping)
    accuracies = [np.mean(z.argmax(axis=1) == training.y[N:].numpy()) for z in training.staged]
    assert stopping.best_epoch == np.argmax(accuracies) == len(accuracies) - 6
    assert stopping.monitor.logs("val_").keys() >= {"val_accuracy", "val_log_loss"}


def test_a_reset_object_starts_afresh():
    stopping = RefinementStopping(patience=3)
    first = Training().run(60, stopping)
    history = list(stopping.monitor.history)
    stopping.reset()
    assert stopping.best_state is None
    second = Training().run(60, stopping)
    assert len(first.staged) == len(second.staged)
    assert stopping.monitor.history == history


def test_resuming_equals_one_go():
    stopping = RefinementStopping(patience=5)
    whole = Training().run(60, stopping)
    training = Training().run(4, half := RefinementStopping(patience=5))
    file = io.BytesIO()
    torch.save({"stopping": half.state_dict(), "calibrator": half.calibrator.to_dict()}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    rest = RefinementStopping(patience=5)
    rest.load_state_dict(loaded["stopping"])
    assert rc.calibrators.from_dict(loaded["calibrator"]).beta_ == rest.calibrator.beta_
    training.run(60, rest)
    assert rest.monitor.history == stopping.monitor.history
    for object_, one in ((stopping, whole), (rest, training)):
        object_.restore(one.model)
    assert np.array_equal(whole.predict(), training.predict())


def test_accelerate_stores_it_with_the_rest(tmp_path):
    from accelerate import Accelerator  # here, so that spawned processes need not

    accelerator = Accelerator(cpu=True)
    stopping = RefinementStopping()
    Training().run(3, stopping)
    accelerator.register_for_checkpointing(stopping)
    accelerator.save_state(tmp_path)
    history, best = list(stopping.monitor.history), stopping.best_state
    stopping.reset()
    accelerator.load_state(tmp_path)
    assert stopping.monitor.history == history
    assert all(torch.equal(best[name], value) for name, value in stopping.best_state.items())


# ---- batches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_logits_of_any_precision(dtype):
    logits, y = torch.randn(50, 3, generator=torch.manual_seed(0)).to(dtype), torch.arange(50) % 3
    stopping = RefinementStopping()
    for rows in torch.arange(50).split(16):
        stopping.update(logits[rows], y[rows])
    stopping.step(nn.Identity())
    expected = rc.decompose(y.numpy(), logits=logits.double().numpy())
    assert stopping.monitor.history[0]["refinement"] == pytest.approx(expected.refinement, 1e-6)


def test_binary_logits_of_any_shape():
    logits, y = torch.randn(30, generator=torch.manual_seed(0)), torch.arange(30) % 2
    stopping = RefinementStopping()
    for shaped in (logits, logits[:, None], torch.stack([torch.zeros(30), logits], dim=1)):
        stopping.update(shaped, y.float()[:, None])  # labels as binary cross-entropy wants them
        stopping.step(nn.Identity())
    for row in range(30):
        stopping.update(logits[row : row + 1].squeeze(), y[row])  # a batch of one, squeezed
    stopping.step(nn.Identity())
    found = [record["refinement"] for record in stopping.monitor.history]
    np.testing.assert_allclose(found, refinement(y, logits), rtol=1e-6)


def test_batches_are_copies():
    logits, y = torch.tensor([[2.0, 0.0], [0.0, 1.0]], requires_grad=True), torch.tensor([0, 1])
    stopping = RefinementStopping()
    stopping.update(logits, y)
    with torch.no_grad():
        logits.fill_(torch.nan)
    stopping.step(nn.Identity())
    assert stopping.monitor.history[0]["risk"] < 1


def test_evaluation_leaves_the_model_as_it_was():
    model = network(2).train()
    model[1].eval()  # a frozen layer
    model[4].weight.requires_grad_(False)
    X, y = tensors()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    RefinementStopping().evaluate(model, DataLoader(TensorDataset(X, y), batch_size=50))
    assert [module.training for module in model.modules()] == [True, True, False, True, True, True]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="y has 1 rows"):
        RefinementStopping().evaluate(model, [(X[:2], y[:1])])
    assert model.training


def test_an_interrupted_evaluation_leaves_no_rows():
    X, y = tensors()
    stopping = RefinementStopping()
    with pytest.raises(TypeError, match="loader yields a dict"):
        stopping.evaluate(nn.Linear(8, 2), [(X, y), {"x": X, "y": y}])
    stopping.evaluate(nn.Linear(8, 2), [(X[:9], y[:9])])
    stopping.step(nn.Identity())
    assert stopping.calibrator.n_samples_ == 9


# ---- several processes -----------------------------------------------------------------------------------


def gather_two(rank, file, logits, y, weight, results):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    sampler = DistributedSampler(y, num_replicas=2, rank=rank, shuffle=True, seed=3)
    rows = torch.tensor(list(sampler))
    stopping = RefinementStopping()
    for part in rows.split(4):
        stopping.update(logits[part], y[part], weight[part])
    stopping.gather(rows=len(y))
    stopping.step(nn.Identity())
    if rank == 0:  # and nobody else, as when a set is smaller than the number of processes
        stopping.update(logits, y)
    stopping.gather()
    stopping.step(nn.Identity())
    torch.save((stopping.monitor.history, stopping.calibrator.n_samples_), f"{results}/{rank}")
    dist.destroy_process_group()


@pytest.mark.slow
def test_processes_that_gather_decide_alike(tmp_path):
    generator = torch.manual_seed(0)
    logits = torch.randn(25, 3, generator=generator, dtype=torch.float64)
    y = torch.arange(25) % 3  # 26 rows are dealt
    weight = torch.rand(25, generator=generator)
    torch.multiprocessing.spawn(
        gather_two, (tmp_path / "file", logits, y, weight, tmp_path), nprocs=2
    )
    (first, n), (second, _) = (torch.load(tmp_path / str(r), weights_only=True) for r in (0, 1))
    assert first == second
    expected = [rc.decompose(y, logits=logits, sample_weight=w).refinement for w in (weight, None)]
    assert [record["refinement"] for record in first] == pytest.approx(expected, rel=1e-12)
    assert n == pytest.approx(weight.double().sum().item())  # no row counts twice


# ---- wrong use -------------------------------------------------------------------------------------------


def test_divergence_stops_and_the_best_weights_are_still_there():
    stopping, model = RefinementStopping(), nn.Linear(1, 2)
    stopping.update(model(torch.ones(4, 1)), torch.tensor([0, 1, 1, 1]))
    assert not stopping.step(model)
    weight = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.fill_(torch.nan)
    stopping.update(model(torch.ones(4, 1)), torch.tensor([0, 1, 1, 1]))
    with pytest.warns(RuntimeWarning, match="training has diverged"):
        assert stopping.step(model)
    stopping.restore(model)
    assert torch.equal(model.weight, weight)


def test_probabilities_in_place_of_logits_are_noticed():
    stopping = RefinementStopping()
    stopping.update(torch.randn(20, 3).softmax(dim=1), torch.arange(20) % 3)
    with pytest.raises(ValueError, match="logits look like probabilities"):
        stopping.step(nn.Identity())


@pytest.mark.parametrize("columns", [(), (1,)])
def test_a_sigmoid_in_place_of_log_odds_is_noticed(columns):
    stopping, odds, y = RefinementStopping(), torch.linspace(-3, 3, 30), torch.arange(30) % 2
    for batch in range(0, 30, 10):  # too few rows each, but not together
        rows = slice(batch, batch + 10)
        stopping.update(odds[rows].sigmoid().reshape(10, *columns), y[rows])
    with pytest.warns(RuntimeWarning, match=r"probabilities of one class.* or torch.logit of them"):
        stopping.step(nn.Identity())
    for logits in (odds, 1e-3 * odds.sigmoid(), odds.sigmoid()[:19], odds.sigmoid().logit()):
        stopping.update(logits.reshape(-1, *columns), y[: len(logits)])
        stopping.step(nn.Identity())


@pytest.mark.parametrize(
    ("y", "logits"),
    [
        (torch.arange(6) % 3, torch.randn(6, 3)),
        (torch.arange(6) % 2, torch.rand(6)),  # which might be soft labels
        ((torch.arange(6) % 2).float(), torch.linspace(-2.5, 3, 6)),
        ((torch.arange(6) % 2).float()[:, None], torch.linspace(-2.5, 3, 6)[:, None]),
    ],
)
def test_labels_before_logits_are_noticed(y, logits):
    with pytest.raises(
        ValueError, match=r"logits holds only whole numbers, but y does not: pass update\(logits, y"
    ):
        RefinementStopping().update(y, logits)
    RefinementStopping().update(logits, y)


def test_whole_logits_and_soft_labels_are_in_order():
    stopping = RefinementStopping()
    stopping.update(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[0.7, 0.3], [0.2, 0.8]]))
    assert not stopping.step(nn.Identity())


def test_the_repr_is_that_of_the_monitor():
    stopping = RefinementStopping()
    assert repr(stopping) == "RefinementStopping(metric='refinement'): no step yet"
    stopping.update(torch.randn(9, 3), torch.arange(9) % 3)
    stopping.step(nn.Identity())
    first, *lines = repr(stopping).splitlines()
    assert first == "RefinementStopping, steps 0 to 0"
    assert lines == repr(stopping.monitor).splitlines()[1:]


def test_wrong_use_says_what_to_do():
    stopping, model = RefinementStopping(), nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match=r"no validation rows .* call update\(logits, y\)"):
        stopping.step(model)
    with pytest.raises(RuntimeError, match=r"no best weights yet: call step\(model\)"):
        stopping.restore(model)
    with pytest.raises(RuntimeError, match="omit gather for a single process"):
        stopping.gather()
    with pytest.raises(ValueError, match="y has 3 rows, but logits has 2"):
        stopping.update(torch.zeros(2, 2), torch.zeros(3))
    stopping.update(torch.zeros(2, 2), torch.zeros(2))
    with pytest.raises(ValueError, match=r"logits has shape \(2,\), but \(2, 2\) in the first"):
        stopping.update(torch.zeros(2), torch.zeros(2))
    with pytest.raises(ValueError, match="only some batches have sample_weight"):
        stopping.update(torch.zeros(2, 2), torch.zeros(2), torch.ones(2))
    stopping.update(torch.zeros(2, 2), torch.tensor([1, 2]))
    with pytest.raises(ValueError, match=r"y_val\[3\] is 2, but logits has 2 columns"):
        stopping.step(model)
    with pytest.raises(ValueError, match="metric is 'refinment'.*Did you mean 'refinement'"):
        RefinementStopping(metric="refinment")
    with pytest.raises(TypeError, match="rounds is called patience here: pass patience=5"):
        RefinementStopping(rounds=5)
    with pytest.raises(TypeError, match="loader yields a list of 4"):
        stopping.evaluate(model, [[1, 2, 3, 4]])


def test_a_model_without_parameters():
    stopping = RefinementStopping()
    stopping.evaluate(nn.Identity(), [(torch.randn(9, 3), torch.arange(9) % 3)])
    stopping.step(nn.Identity())
    assert stopping.best_state == {}
