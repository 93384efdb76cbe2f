"""Losses against their definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from scipy.stats import entropy
from sklearn.metrics import brier_score_loss, log_loss

import refinecal as rc
from refinecal.losses import LOSSES, MatrixLoss, ProperLoss, get_loss

LOGITS = arrays(np.float64, (5, 4), elements=st.floats(-8, 8))
BY_NAME = pytest.mark.parametrize("name", sorted(LOSSES))


@given(LOGITS)
def test_log_loss_is_scikit_learns(logits):
    labels = np.arange(5) % 4
    ours = get_loss("log").per_sample(labels, log_softmax(logits, axis=1)).mean()
    assert ours == pytest.approx(log_loss(labels, softmax(logits, axis=1), labels=range(4)))


@given(LOGITS)
def test_brier_sums_over_all_classes(logits):
    labels = np.arange(5) % 4
    ours = get_loss("brier").per_sample(labels, log_softmax(logits, axis=1)).mean()
    theirs = brier_score_loss(labels, softmax(logits, axis=1), labels=range(4), scale_by_half=False)
    assert ours == pytest.approx(theirs)


def test_brier_of_two_classes_is_twice_the_one_column_formula():
    probs = np.array([0.2, 0.7])
    ours = get_loss("brier").per_sample(np.array([1, 1]), np.log(np.stack([1 - probs, probs], 1)))
    assert ours == pytest.approx(2 * (1 - probs) ** 2)


def test_spherical_is_one_minus_the_cosine():
    probs = np.array([[0.6, 0.3, 0.1]])
    expected = 1 - 0.3 / np.sqrt(0.36 + 0.09 + 0.01)
    assert get_loss("spherical").per_sample(np.array([1]), np.log(probs)) == pytest.approx(expected)


@BY_NAME
@given(p=LOGITS, q=LOGITS)
def test_entropy_and_divergence_make_up_the_expected_loss(name, p, q):
    """E_{y ~ q} l(p, y) = e(q) + d(p, q), with d >= 0: the loss is proper."""
    loss, p, q = LOSSES[name], softmax(p, axis=1), softmax(q, axis=1)
    expected = loss.per_sample(q, np.log(p))
    divergence = loss.divergence(p, q)
    np.testing.assert_allclose(loss.entropy(q) + divergence, expected, atol=1e-12)
    assert np.all(divergence >= -1e-12)
    np.testing.assert_allclose(loss.divergence(q, q), 0, atol=1e-12)


def test_entropies_by_name():
    probs = np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])
    np.testing.assert_allclose(get_loss("log").entropy(probs), entropy(probs, axis=1))
    np.testing.assert_allclose(get_loss("brier").entropy(probs), 1 - (probs**2).sum(axis=1))
    np.testing.assert_allclose(
        get_loss("spherical").entropy(probs), 1 - np.linalg.norm(probs, axis=1), atol=1e-15
    )


def test_divergences_by_name():
    p, q = np.array([0.2, 0.8]), np.array([0.5, 0.5])
    assert get_loss("log").divergence(p, q) == pytest.approx(entropy(q, p))
    assert get_loss("brier").divergence(p, q) == pytest.approx(((p - q) ** 2).sum())


@BY_NAME
def test_the_best_constant_prediction_is_the_class_frequency(name):
    """min_c mean l(c, y), by a general optimiser, equals the entropy of the frequencies."""
    labels, loss = np.array([0, 0, 0, 1, 2, 2]), LOSSES[name]

    def risk(logits):
        return loss.per_sample(labels, np.tile(log_softmax(logits), (6, 1))).mean()

    found = minimize(risk, np.zeros(3), tol=1e-12).fun
    assert loss.entropy(np.array([3, 1, 2]) / 6) == pytest.approx(found, abs=1e-8)


def test_log_loss_stays_exact_where_probabilities_round_to_one():
    logits = np.array([[0.0, -800.0]])
    d = rc.decompose([1, 0, 0], logits=np.repeat(logits, 3, axis=0))
    assert d.risk == pytest.approx(800 / 3)


def test_certain_predictions_cost_nothing_when_right():
    for name in sorted(LOSSES):
        assert rc.decompose([0, 1], [0.0, 1.0], loss=name).risk == pytest.approx(0, abs=1e-15)


class Squared(MatrixLoss):
    name = "squared"

    def matrix(self, log_probs):
        probs = np.exp(log_probs)
        return (probs**2).sum(axis=-1, keepdims=True) - 2 * probs + 1


class ByHand:
    """The protocol without the base class."""

    name = "by-hand"

    def per_sample(self, labels, log_probs):
        return -log_probs[np.arange(len(labels)), labels]

    def entropy(self, probs):
        return entropy(probs, axis=-1)

    def divergence(self, probs, target):
        return entropy(target, probs, axis=-1)


@pytest.mark.parametrize(("mine", "name"), [(Squared(), "brier"), (ByHand(), "log")])
def test_a_loss_of_ones_own(mine, name):
    rng = np.random.default_rng(0)
    labels, logits = rng.integers(3, size=50), rng.normal(size=(50, 3))
    assert isinstance(mine, ProperLoss)
    ours, theirs = (rc.decompose(labels, logits=logits, loss=loss) for loss in (mine, name))
    assert ours.loss == mine.name
    for term in ("risk", "calibration", "refinement", "sharpness", "uncertainty"):
        assert getattr(ours, term) == pytest.approx(getattr(theirs, term), abs=1e-9)


def test_an_incomplete_loss_is_refused_by_name():
    with pytest.raises(TypeError, match="lacks name, per_sample, entropy, divergence"):
        get_loss(object())
    with pytest.raises(TypeError, match="pass an instance"):
        get_loss(Squared)
    with pytest.raises(ValueError, match="Did you mean 'brier'"):
        get_loss("brier_score")


@pytest.mark.parametrize("given", ["log_loss", "logloss", "cross_entropy"])
def test_other_names_of_the_log_loss_are_translated(given):
    with pytest.raises(ValueError, match="Did you mean 'log'"):
        get_loss(given)
