"""Several models as one: their mean, and how sharp it should be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, log_softmax, softmax

import refinecal as rc
from refinecal._ensemble import (
    MOST,
    Disagreement,
    Ensemble,
    HeldOut,
    all_classes,
    mean_of,
    sharpened,
)

VARIANCES = st.floats(1e-6, 1e3)


def models(rng, n=40_000, m=5, own=0.7, shared=0.3):
    """Return labels and the log-odds of models that see the truth through noise, part of it in common."""
    truth = rng.normal(0, 1.5, n)
    y = rng.random(n) < expit(truth)
    noise = rng.normal(0, shared, n) + rng.normal(0, own, (m, n))
    return y.astype(int), truth + noise


# ---- how sharp ---------------------------------------------------------------------------------------------


@given(VARIANCES, VARIANCES, st.integers(1, 100))
def test_the_mean_of_more_models_is_sharper_up_to_a_limit(common, own, m):
    found = Disagreement(common, own)
    beta = found.sharpening(m)
    assert 1 <= beta <= found.sharpening(m + 1) <= MOST
    assert beta <= 1 + own / common + 1e-9
    if beta < MOST:  # what a calibrated model shrinks by, over what the mean has to be shrunk by
        shrunk, shrunk_mean = common / (common + own), common / (common + own / m)
        assert beta == pytest.approx(shrunk_mean / shrunk)


def test_models_that_agree_need_no_sharpening():
    probs = softmax(np.random.default_rng(0).normal(size=(50, 3)), axis=1)
    assert Disagreement.of([probs] * 4).sharpening(4) == pytest.approx(1)
    flat = np.full((50, 3), 1 / 3)
    assert Disagreement.of([flat, flat]).sharpening(2) == 1  # neither common nor own


@pytest.mark.parametrize("own", [0.3, 0.7, 1.2])
@pytest.mark.parametrize("m", [2, 5, 10])
def test_sharpening_is_what_labels_would_ask_for(own, m):
    """Without a label, about the inverse temperature that labels of many new rows call best."""
    rng = np.random.default_rng(0)
    y, odds = models(rng, m=m, own=own)
    beta = rc.decompose(y, logits=odds[0]).beta  # of a single model
    probs = [np.stack([expit(-beta * each), expit(beta * each)], axis=1) for each in odds]
    mean = np.mean(probs, axis=0)
    asked = rc.decompose(y, mean).beta
    found = Disagreement.of(probs).sharpening(m)
    assert abs(found - asked) < 0.25 * (asked - 1)
    better = rc.metrics.log_loss(y, sharpened(mean, found))
    assert better < rc.metrics.log_loss(y, mean)


def test_disagreement_does_not_depend_on_how_many_models_show_it():
    rng = np.random.default_rng(1)
    _, odds = models(rng, m=20)
    probs = [np.stack([expit(-each), expit(each)], axis=1) for each in odds]
    two, all_ = Disagreement.of(probs[:2]), Disagreement.of(probs)
    assert two.own == pytest.approx(all_.own, rel=0.2)  # the shares of classes are less sure
    assert two.sharpening(20) == pytest.approx(all_.sharpening(20), rel=0.05)


def test_a_weight_is_a_repetition():
    rng = np.random.default_rng(2)
    probs = softmax(rng.normal(size=(2, 30, 4)), axis=2)
    weights = rng.integers(0, 4, 30)
    repeated = Disagreement.of(np.repeat(probs, weights, axis=1))
    weighted = Disagreement.of(probs, weights.astype(float))
    assert weighted.own == pytest.approx(repeated.own)
    assert weighted.common == pytest.approx(repeated.common)


def test_probabilities_of_zero_do_not_break_it():
    probs = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    beta = Disagreement.of([probs, probs[::-1]]).sharpening(2)
    assert 1 <= beta <= MOST


# ---- the mean ----------------------------------------------------------------------------------------------


def test_a_model_has_no_say_of_classes_that_it_does_not_know():
    probs = [np.array([[0.2, 0.3, 0.5]]), np.array([[0.6, 0.4, 0.0]])]
    found = mean_of(probs, [np.arange(3), np.array([0, 1])])
    expected = np.array([[0.4, 0.35, 0.5]]) / 1.25
    assert found == pytest.approx(expected)
    assert mean_of(probs, [np.arange(3)] * 2) == pytest.approx(np.array([[0.4, 0.35, 0.25]]))


@given(st.integers(1, 5), st.integers(2, 6), st.floats(0.5, 2), st.integers(0, 2**32 - 1))
def test_sharpened_probabilities_sum_to_one_in_the_same_order(n, k, beta, seed):
    probs = softmax(3 * np.random.default_rng(seed).normal(size=(n, k)), axis=1)
    found = sharpened(probs, beta)
    assert found.sum(axis=1) == pytest.approx(1)
    assert np.array_equal(np.argsort(found, axis=1), np.argsort(probs, axis=1))
    assert found == pytest.approx(softmax(beta * np.log(probs), axis=1))


def test_impossible_stays_impossible():
    assert sharpened(np.array([[0.0, 0.25, 0.75]]), 2.0) == pytest.approx(np.array([[0, 0.1, 0.9]]))


def test_logits_of_all_classes():
    odds = np.array([0.3, -2.0])
    expected = log_softmax(np.stack([0 * odds, odds], axis=1), axis=1)
    assert all_classes(odds, np.array([0, 1]), 2) == pytest.approx(expected)
    wide = all_classes(odds, np.array([0, 2]), 3)
    assert wide[:, [0, 2]] == pytest.approx(expected)
    assert (wide[:, 1] < -20).all()


# ---- models together ---------------------------------------------------------------------------------------


def parts_of(odds, y, n_models, size=5):
    """Return what each model says of its fold, and the labels there."""
    n, found = len(y), []
    for number in range(n_models):
        order = np.random.default_rng(number // size).permutation(n)
        places = np.sort(order[number % size :: size])
        logits = all_classes(odds[number][places], np.array([0, 1]), 2)
        found.append(HeldOut(logits, y[places], None, places))
    return found


@pytest.mark.parametrize("m", [7, 10])
def test_rows_held_out_twice_show_how_far_models_disagree(m):
    """As new rows do, which all models have something to say of."""
    y, odds = models(np.random.default_rng(3), n=20_000, m=m)
    known, classes = [np.array([0, 1])] * m, np.array([0, 1])
    twice = Ensemble.fit(parts_of(odds, y, m), known, "temperature", classes, 5)
    new = [all_classes(each, np.array([0, 1]), 2) for each in odds]
    shown = Ensemble.fit(parts_of(odds, y, m), known, "temperature", classes, 5, new)
    assert twice.calibrator.beta_ == shown.calibrator.beta_
    assert twice.beta == pytest.approx(shown.beta, rel=0.04)
    assert twice.calibrator.n_samples_ == len(y)  # each row once
    probs = twice.predict_proba(new)
    assert rc.decompose(y, probs).beta == pytest.approx(1, abs=0.05)


def test_weights_count_rows_held_out_twice():
    """Rows of weight 0 are not looked at."""
    y, odds = models(np.random.default_rng(5), n=2000, m=7)
    known, classes = [np.array([0, 1])] * 7, np.array([0, 1])
    weights = np.tile([1.0, 0.0], 1000)
    wild = odds * np.where(weights > 0, 1, np.random.default_rng(6).normal(0, 9, odds.shape))

    def fitted(odds, kept):
        parts = [
            HeldOut(p.logits[kept[p.places]], p.y[kept[p.places]], w, p.places[kept[p.places]])
            for p in parts_of(odds, y, 7)
            for w in [weights[p.places][kept[p.places]]]
        ]
        return Ensemble.fit(parts, known, "temperature", classes, 5)

    all_rows, counted = fitted(wild, weights >= 0), fitted(odds, weights > 0)
    assert all_rows.beta == pytest.approx(counted.beta)
    assert all_rows.calibrator.beta_ == pytest.approx(counted.calibrator.beta_)


def test_one_round_takes_what_is_typical():
    y, odds = models(np.random.default_rng(4), n=1000)
    known = [np.array([0, 1])] * 5
    found = Ensemble.fit(parts_of(odds, y, 5), known, "temperature", np.array([0, 1]))
    assert 1.05 < found.beta < 1.09
