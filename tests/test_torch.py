"""Device tensors take the torch path. On a machine without one, CPU tensors are sent along it."""

import numpy as np
import pytest
import torch

import refinecal as rc
from refinecal._core import arrays, checks, sample
from refinecal._core.devices import check_device_sample
from refinecal._core.sample import Sample, on_cpu
from refinecal.temperature.torch import TorchReader


@pytest.fixture
def as_device(monkeypatch):
    """Treat every tensor as if it lived on another device."""
    for module in (checks, sample):
        monkeypatch.setattr(module, "is_on_device", arrays.is_torch)


def drawn(n=3000, k=5, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    truth = 2 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(truth.softmax(1), 1, generator=generator)[:, 0]
    return labels, (2 * truth).to(dtype)


@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 1e-6), (torch.float64, 1e-9)])
def test_the_same_temperature(as_device, dtype, rel):
    labels, logits = drawn(dtype=dtype)
    ours = rc.fit_temperature(labels, logits)
    theirs = rc.fit_temperature(labels.numpy(), logits.numpy())
    assert ours.beta == pytest.approx(theirs.beta, rel=rel)
    assert ours.loss == pytest.approx(theirs.loss, rel=rel)
    assert ours.converged
    assert ours.n_reads < 5


@pytest.mark.parametrize("options", [{}, {"loss": "brier"}, {"cv": 3}, {"cv": "loo"}])
def test_the_same_decomposition(as_device, options):
    labels, logits = drawn(dtype=torch.float64)
    ours = rc.decompose(labels, logits=logits, **options).to_dict()
    theirs = rc.decompose(labels.numpy(), logits=logits.numpy(), **options).to_dict()
    assert ours.pop("loss") == theirs.pop("loss")
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_probabilities_weights_and_soft_labels(as_device):
    labels, logits = drawn(n=200, dtype=torch.float64)
    probs, weights = logits.softmax(1), torch.rand(200, dtype=torch.float64)
    soft = (0.9 * torch.nn.functional.one_hot(labels, 5) + 0.02).double()
    ours = rc.decompose(soft, probs, sample_weight=weights).to_dict()
    theirs = rc.decompose(soft.numpy(), probs.numpy(), sample_weight=weights.numpy()).to_dict()
    assert ours.pop("loss") == theirs.pop("loss")
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_edges(as_device):
    impossible = torch.tensor([[0.0, -torch.inf, 1.0], [2.0, 0.0, -torch.inf], [0.0, 1.0, 0.0]])
    ours = rc.fit_temperature([2, 0, 0], impossible)
    assert ours.beta == pytest.approx(
        rc.fit_temperature([2, 0, 0], impossible.numpy()).beta, rel=1e-6
    )
    chance = torch.tensor([[3.0, 0.0], [3.0, 0.0]])
    assert rc.fit_temperature([0, 1], chance).beta == 0
    half = torch.tensor([2.0, -1.0, 0.5]).bfloat16()
    assert rc.fit_temperature([1, 1, 0], half).converged
    with pytest.raises(ValueError, match=r"logits\[1, 0\] is NaN"):
        rc.fit_temperature([0, 1], torch.tensor([[0.0, 1.0], [torch.nan, 0.0]]))
    with pytest.raises(ValueError, match=r"probs\[0\] sums to 1.2"):
        rc.decompose([0], torch.tensor([[0.6, 0.6]]))
    with pytest.raises(ValueError, match=r"labels\[1\] is 2, but logits has 2 columns"):
        rc.fit_temperature([0, 2], torch.zeros(2, 2))


def test_many_chunks_add_up(monkeypatch):
    labels, logits = drawn(n=500, dtype=torch.float64)
    whole = TorchReader(Sample(labels, logits)).at(0.7)
    monkeypatch.setattr("refinecal.temperature.torch.CHUNK", 64)
    np.testing.assert_allclose(TorchReader(Sample(labels, logits)).at(0.7), whole, rtol=1e-12)


def test_checked_samples_move_to_the_cpu_unchanged(as_device):
    labels, logits = drawn(n=4)
    checked = check_device_sample(labels, logits, "logits", None, None, "y_true")
    assert isinstance(checked, Sample)
    np.testing.assert_array_equal(on_cpu(checked).logits, logits.numpy())


def test_gradients_are_left_alone():
    labels, logits = drawn(n=50)
    logits.requires_grad_()
    rc.decompose(labels, logits=logits)
    assert logits.grad is None
    assert logits.requires_grad


def test_rows_of_weight_zero_are_gone(as_device):
    labels, logits = drawn(n=4096, dtype=torch.float64)
    weights = np.tile([0.0, 1.0], 2048)  # every row of a subsample may have weight 0
    ours = rc.fit_temperature(labels, logits, weights)
    theirs = rc.fit_temperature(labels[1::2].numpy(), logits[1::2].numpy())
    assert ours.beta == pytest.approx(theirs.beta, rel=1e-9)
    impossible = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [-torch.inf, 0.0]])
    ours = rc.fit_temperature([0, 1, 1, 0], impossible, [1, 1, 1, 0])
    theirs = rc.fit_temperature([0, 1, 1], impossible[:3].numpy())
    assert ours.beta == pytest.approx(theirs.beta, rel=1e-6)


def test_other_tensors_are_checked_too(as_device):
    ours = rc.fit_temperature([0, 1, 1], torch.tensor([[2, 0], [0, 1], [1, 0]]))
    assert ours.beta == pytest.approx(rc.fit_temperature([0, 1, 1], [[2, 0], [0, 1], [1, 0]]).beta)
    with pytest.raises(TypeError, match="must hold real numbers"):
        rc.fit_temperature([0, 1], torch.ones(2, 2, dtype=torch.complex64))
    with pytest.raises(TypeError, match="sparse tensor"):
        rc.fit_temperature([0, 1], torch.ones(2, 2).to_sparse())
