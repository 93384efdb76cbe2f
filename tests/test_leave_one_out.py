"""Leave-one-out from one read, against fitting again without each row in turn."""

import numpy as np
import pytest
from hypothesis import assume, given
from scipy.optimize import brentq
from scipy.special import log_softmax, logsumexp, softmax
from strategies import MAX_BETA, drawn, predictions

import refinecal as rc


def best_beta(rows, logits, weights):
    """Return the root of the slope of the weighted log loss; ``rows`` are label distributions."""
    at_label = (rows * logits).sum(axis=1)

    def slope(beta):
        return weights @ ((softmax(beta * logits, axis=1) * logits).sum(axis=1) - at_label)

    if slope(0.0) >= 0:
        return 0.0
    low = high = 1.0
    while slope(low) >= 0:
        low, high = low / 4, low
    while slope(high) <= 0:  # 0 where it underflows: the set is separable
        low, high = high, high * 4
        if high > MAX_BETA:
            return MAX_BETA
    return brentq(slope, low, high, xtol=1e-300, rtol=1e-12)


def losses(rows, logits, beta, loss):
    if loss == "log":
        return logsumexp(beta * logits, axis=1) - beta * (rows * logits).sum(axis=1)
    probs = softmax(beta * logits, axis=1)
    return (
        (probs**2).sum(axis=1) - 2 * (rows * probs).sum(axis=1) + 1
    )  # Brier, expected over the label


def brute_force(labels, logits, weights=None, loss="log"):
    """Return the mean loss in sample, and with each row judged by the beta of all but one copy of it."""
    n, k = logits.shape
    rows = np.eye(k)[labels] if labels.ndim == 1 else labels
    weights = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    inside = losses(rows, logits, best_beta(rows, logits, weights), loss)
    outside = np.empty(n)
    for i in range(n):
        others = weights - np.minimum(weights, 1) * (np.arange(n) == i)
        beta = best_beta(rows, logits, others)
        outside[i] = losses(rows[[i]], logits[[i]], beta, loss)[0]
    return np.average(inside, weights=weights), np.average(outside, weights=weights)


def error_of_correction(labels, logits, weights=None, loss="log"):
    """Return the relative error of (leave-one-out minus in-sample)."""
    inside, outside = brute_force(labels, logits, weights, loss)
    found = rc.decompose(labels, logits=logits, loss=loss, sample_weight=weights, cv="loo")
    return (found.refinement - inside) / (outside - inside) - 1


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["log", "brier"])
@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("confidence", [0.3, 1.0, 4.0])
def test_within_five_percent_of_the_true_correction(loss, k, confidence):
    for seed in range(3):
        labels, logits = drawn(200, k, seed=seed, confidence=confidence)
        assert abs(error_of_correction(labels, logits, loss=loss)) < 0.05


@pytest.mark.parametrize("loss", ["log", "brier"])
@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.sweep(5)
def test_accurate_models(loss, k):
    """About 97 % right: few rows decide."""
    for seed in range(3):
        labels, logits = drawn(200, k, seed=seed, spread=12.0, confidence=2.0)
        assert abs(error_of_correction(labels, logits, loss=loss)) < 0.05


@pytest.mark.parametrize("loss", ["log", "brier"])
def test_heavy_tails(loss):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        logits = rng.standard_cauchy((200, 3))
        labels = (logits + rng.gumbel(size=(200, 3))).argmax(axis=1)
        assert abs(error_of_correction(labels, logits, loss=loss)) < 0.05


@pytest.mark.parametrize("loss", ["log", "brier"])
def test_predictions_that_know_little(loss):
    """Labels at random: beta is small or 0, and dropping a row may lift it from there."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        logits, labels = 2 * rng.standard_normal((200, 3)), rng.integers(0, 3, 200)
        inside, outside = brute_force(labels, logits, loss=loss)
        found = rc.refinement_error(labels, logits=logits, loss=loss, cv="loo")
        assert found - inside == pytest.approx(outside - inside, rel=0.05, abs=1e-12)


@pytest.mark.parametrize("loss", ["log", "brier"])
def test_soft_labels(loss):
    labels, logits = drawn(200, 3, seed=0, confidence=2.0)
    soft = 0.7 * np.eye(3)[labels] + 0.3 * np.random.default_rng(0).dirichlet(np.ones(3), size=200)
    assert abs(error_of_correction(soft, logits, loss=loss)) < 0.05


@pytest.mark.parametrize("loss", ["log", "brier"])
@pytest.mark.parametrize("k", [2, 5])
def test_a_weight_means_repetition(loss, k):
    """One copy of a row is left out, the others stay: as if the rows were written out."""
    labels, logits = drawn(120, k, seed=1, confidence=2.0)
    counts = np.random.default_rng(0).integers(0, 4, 120)
    weighted = rc.refinement_error(labels, logits=logits, loss=loss, cv="loo", sample_weight=counts)
    repeated = rc.refinement_error(
        np.repeat(labels, counts), logits=np.repeat(logits, counts, axis=0), loss=loss, cv="loo"
    )
    assert weighted == pytest.approx(repeated, rel=1e-9)
    assert abs(error_of_correction(labels, logits, counts, loss)) < 0.05


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6])
@pytest.mark.parametrize("loss", ["log", "brier"])
def test_scale_shifts_and_order_do_not_matter(scale, loss):
    labels, logits = drawn(100, 3, seed=2)
    options = {"loss": loss, "cv": "loo"}
    plain = rc.refinement_error(labels, logits=logits, **options)
    assert rc.refinement_error(labels, logits=logits * scale, **options) == pytest.approx(
        plain, rel=1e-9
    )
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(100), rng.permutation(3)
    moved = (logits + rng.integers(-9, 9, (100, 1)))[rows][:, columns]
    relabelled = np.argsort(columns)[labels[rows]]
    assert rc.refinement_error(relabelled, logits=moved, **options) == pytest.approx(
        plain, rel=1e-9
    )


@pytest.mark.parametrize("loss", ["log", "brier"])
def test_float32_is_as_good(loss):
    labels, logits = drawn(500, 10, seed=0, confidence=3.0)
    double = rc.refinement_error(labels, logits=logits, loss=loss, cv="loo")
    single = rc.refinement_error(labels, logits=logits.astype(np.float32), loss=loss, cv="loo")
    assert single == pytest.approx(double, rel=2e-6)


def test_the_correction_shrinks_like_one_over_n():
    """A temperature that fits costs about one parameter's worth: 1 / n nats for well specified rows.

    In sample the loss is 1 / (2n) too low, out of sample 1 / (2n) too high.
    """
    corrections = []
    for seed in range(10):
        labels, logits = drawn(2000, 3, seed=seed)
        inside = rc.refinement_error(labels, logits=logits)
        corrections.append(rc.refinement_error(labels, logits=logits, cv="loo") - inside)
    assert np.mean(corrections) == pytest.approx(1 / 2000, rel=0.1)


def test_other_terms_stay():
    labels, logits = drawn(200, 3, seed=0, confidence=3.0)
    plain, left_out = (
        rc.decompose(labels, logits=logits),
        rc.decompose(labels, logits=logits, cv="loo"),
    )
    own = log_softmax(logits, axis=1)[np.arange(200), labels]
    assert left_out.risk == plain.risk == pytest.approx(-own.mean(), rel=1e-12)
    assert (left_out.uncertainty, left_out.beta) == (plain.uncertainty, plain.beta)
    assert left_out.refinement > plain.refinement


@pytest.mark.filterwarnings("ignore:without row")
@given(predictions(max_rows=10))
def test_any_small_set_has_a_finite_number(sample):
    """Separable sets, ties, chance: whatever is left when a row is dropped."""
    labels, logits = sample
    assume(len(labels) > 1)
    found = rc.decompose(labels, logits=logits, cv="loo")
    assert np.isfinite(found.refinement)
    assert found.refinement >= rc.refinement_error(labels, logits=logits) - 1e-9


def test_one_row_is_too_few():
    with pytest.raises(ValueError, match="at least two rows"):
        rc.decompose([0], logits=[[1.0, 0.0]], cv="loo")
    with pytest.raises(ValueError, match="at least two rows"):
        rc.decompose([0, 1], logits=[[1.0, 0.0], [0.0, 1.0]], cv="loo", sample_weight=[1, 0])
    found = rc.decompose([0], logits=[[1.0, 0.0]], cv="loo", sample_weight=[2])
    assert np.isfinite(found.refinement)


def test_never_wrong_stays_never_wrong():
    _, logits = drawn(20, 3, seed=0)
    found = rc.decompose(logits.argmax(axis=1), logits=logits, cv="loo")
    assert found.refinement == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("loss", ["log", "brier"])
@pytest.mark.parametrize("k", [2, 3])
def test_thirty_rows(loss, k):
    for seed in range(8):
        labels, logits = drawn(30, k, seed=seed, confidence=2.0)
        assert abs(error_of_correction(labels, logits, loss=loss)) < 0.1


@pytest.mark.filterwarnings("ignore:without row")
@pytest.mark.parametrize("loss", ["log", "brier"])
@pytest.mark.parametrize(("n", "spread"), [(30, 8.0), (60, 12.0)])
def test_few_rows_of_which_one_decides(n, spread, loss):
    """Without its only wrong row a set may be separable: its own loss is then of another order."""
    for seed in range(8):
        labels, logits = drawn(n, 3, seed=seed, spread=spread, confidence=2.0)
        if np.any(labels != logits.argmax(axis=1)):
            assert abs(error_of_correction(labels, logits, loss=loss)) < 0.05


def test_a_row_that_decides_beta_is_warned_of():
    """Without its only wrong row the set is separable, and that row costs beta's upper bound."""
    labels, logits = np.array([0] * 19 + [1]), np.tile([[1.0, 0.0]], (20, 1))
    with pytest.warns(RuntimeWarning, match="without row 19 no prediction is wrong.*such as cv=5"):
        rc.decompose(labels, logits=logits, cv="loo")
