"""Several models as one: their mean, and how sharp it should be."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, log_softmax, softmax
from scipy.stats import gmean

import refinecal as rc
from refinecal.training.crossfit import (
    MOST,
    PRIOR_ROWS,
    Disagreement,
    Ensemble,
    HeldOut,
    all_classes,
    average,
)

VARIANCES = st.floats(1e-6, 1e3)
EVEN = np.array([0.5, 0.5])
BOTH = np.array([0, 1])


def models(rng, n=40_000, m=5, own=0.7, shared=0.3):
    """Return labels and the log-odds of models that see the truth through noise, part of it in common."""
    truth = rng.normal(0, 1.5, n)
    y = rng.random(n) < expit(truth)
    noise = rng.normal(0, shared, n) + rng.normal(0, own, (m, n))
    return y.astype(int), truth + noise


def two_columns(odds):
    """Return the probabilities of two classes."""
    return np.stack([expit(-odds), expit(odds)], axis=1)


# ---- how sharp ---------------------------------------------------------------------------------------------


@given(VARIANCES, VARIANCES, st.integers(1, 100), st.floats(1, 1e6))
def test_the_mean_of_more_models_is_sharper_up_to_a_limit(shared, own, m, n):
    found = Disagreement(shared, own)
    beta = found.sharpening(m)
    assert 1 <= beta <= found.sharpening(m + 1) <= MOST
    if beta < MOST:  # what a calibrated model shrinks by, over what the mean has to be shrunk by
        one, mean = shared / (shared + own), shared / (shared + own / m)
        assert beta == pytest.approx(mean / one)
    assert found.sharpening(m, n) - 1 == pytest.approx((beta - 1) * n / (n + PRIOR_ROWS))


def test_models_that_agree_need_no_sharpening():
    probs = softmax(np.random.default_rng(0).normal(size=(50, 3)), axis=1)
    assert Disagreement.measure([probs] * 4, np.ones(3) / 3).sharpening(4) == pytest.approx(1)
    shares = np.array([0.2, 0.3, 0.5])
    same = np.tile(shares, (50, 1))
    assert Disagreement.measure([same, same], shares).sharpening(2) == 1  # neither shared nor own


@pytest.mark.parametrize("own", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("m", [2, 5, 10])
def test_sharpening_is_what_labels_would_ask_for(own, m):
    """Without a label, about the inverse temperature that labels of many new rows call best."""
    y, odds = models(np.random.default_rng(0), m=m, own=own)
    beta = rc.decompose(y, logits=odds[0]).beta  # of a single model
    probs = [two_columns(beta * each) for each in odds]
    asked = rc.decompose(y, np.mean(probs, axis=0)).beta
    found = Disagreement.measure(probs, EVEN).sharpening(m)
    assert abs(found - asked) < 0.25 * (asked - 1)


def test_disagreement_does_not_depend_on_how_many_models_show_it():
    _, odds = models(np.random.default_rng(1), m=20)
    probs = [two_columns(each) for each in odds]
    two, all_ = Disagreement.measure(probs[:2], EVEN), Disagreement.measure(probs, EVEN)
    assert two.own == pytest.approx(all_.own, rel=0.2)  # the shares of classes are less sure
    assert two.sharpening(20) == pytest.approx(all_.sharpening(20), rel=0.05)


def test_a_weight_is_a_repetition():
    rng = np.random.default_rng(2)
    probs, shares = softmax(rng.normal(size=(2, 30, 4)), axis=2), np.ones(4) / 4
    weights = rng.integers(0, 4, 30)
    repeated = Disagreement.measure(np.repeat(probs, weights, axis=1), shares)
    weighted = Disagreement.measure(probs, shares, weights.astype(float))
    assert weighted.own == pytest.approx(repeated.own)
    assert weighted.shared == pytest.approx(repeated.shared)


def test_probabilities_of_zero_do_not_break_it():
    probs = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    assert 1 <= Disagreement.measure([probs, probs[::-1]], EVEN).sharpening(2) <= MOST


# ---- the mean ----------------------------------------------------------------------------------------------


def test_a_model_does_not_count_for_classes_that_it_does_not_know():
    probs = [np.array([[0.2, 0.3, 0.5]]), np.array([[0.6, 0.4, 0.0]])]
    some = [np.arange(3), BOTH]
    assert average(probs, some) == pytest.approx(np.array([[0.4, 0.35, 0.5]]) / 1.25)
    assert average(probs, [np.arange(3)] * 2) == pytest.approx(np.array([[0.4, 0.35, 0.25]]))
    geometric = np.array([[np.sqrt(0.12), np.sqrt(0.12), 0.5]])
    assert average(probs, some, None) == pytest.approx(geometric / geometric.sum())


def ensemble(m, frequencies, beta):
    """Return an ensemble of models that are calibrated: rows of each class as often as is said."""
    k = len(frequencies)
    as_they_are = rc.TemperatureScaling(laplace=False).fit(np.eye(k) * 0.5 + 0.5 / k, np.arange(k))
    as_they_are.beta_ = 1.0
    return Ensemble(as_they_are, (np.arange(k),) * m, frequencies, beta)


@given(st.floats(1, MOST), st.integers(0, 2**32 - 1))
def test_the_mean_is_sharpened_relative_to_the_class_frequencies(beta, seed):
    rng = np.random.default_rng(seed)
    shares = np.array([0.1, 0.3, 0.6])
    logs = np.log(softmax(rng.normal(size=(4, 6, 3)), axis=2))
    found = ensemble(4, shares, beta).predict_proba(logs)
    mean = np.exp(logs).mean(axis=0)
    expected = shares * (mean / shares) ** beta
    assert found == pytest.approx(expected / expected.sum(axis=1, keepdims=True))
    flat = np.log(np.tile(shares, (4, 2, 1)))  # a model that knows nothing stays so
    assert ensemble(4, shares, beta).predict_proba(flat) == pytest.approx(np.exp(flat[0]))


def test_models_are_taken_one_by_one():
    logs = np.log(softmax(np.random.default_rng(0).normal(size=(3, 5, 2)), axis=2))
    found = ensemble(3, EVEN, 1.2)
    assert np.array_equal(found.predict_proba(iter(logs)), found.predict_proba(list(logs)))


def test_logits_of_all_classes():
    odds = np.array([0.3, -2.0])
    expected = log_softmax(np.stack([0 * odds, odds], axis=1), axis=1)
    assert all_classes(odds, np.array([0, 1]), 2) == pytest.approx(expected)
    wide = all_classes(odds, np.array([0, 2]), 3)
    assert wide[:, [0, 2]] == pytest.approx(expected)
    assert (wide[:, 1] < -20).all()
    swapped = all_classes(odds, np.array([1, 0]), 2)  # as some libraries have them
    assert np.array_equal(swapped, all_classes(odds, BOTH, 2)[:, ::-1])


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
    found = Ensemble.fit(parts_of(odds, y, m), [BOTH] * m, "temperature", BOTH, 5)
    held_out = np.concatenate([part.y for part in parts_of(odds, y, m)])
    assert found.calibrator.n_samples_ == len(held_out)  # each row once for each model
    assert found.frequencies == pytest.approx(np.bincount(held_out) / len(held_out))
    new = [all_classes(each, BOTH, 2) for each in odds]
    shown = found.sharpen(found.disagreement(new), len(y))
    assert found.beta == pytest.approx(shown.beta, rel=0.04)
    probs = found.predict_proba(new)
    assert rc.decompose(y, probs).beta == pytest.approx(1, abs=0.05)


def test_a_class_that_was_never_held_out_stays_rare():
    """Its frequency is not 0, relative to which a mean would be sharpened without end."""
    y, odds = models(np.random.default_rng(4), n=2000, m=7)
    three = [
        replace(p, logits=np.column_stack([p.logits, np.full(len(p.y), np.log(1e-3))]))
        for p in parts_of(odds, y, 7)
    ]
    found = Ensemble.fit(three, [np.arange(3)] * 7, "temperature", np.arange(3), 5)
    n = sum(len(part.y) for part in three)
    assert found.frequencies[2] == pytest.approx(1 / (n + 1))
    new = [all_classes(np.column_stack([0 * z, z, 0 * z - 7]), np.arange(3), 3) for z in odds]
    probs = replace(found, beta=MOST).predict_proba(new)
    mean = replace(found, beta=1.0).predict_proba(new)
    assert (probs[:, 2] < 3 * mean[:, 2]).all()


def test_infinite_log_odds_are_sure():
    found = all_classes(np.array([np.inf, -np.inf, 0.0]), BOTH, 2)
    assert np.exp(found) == pytest.approx(np.array([[0, 1], [1, 0], [0.5, 0.5]]))


def test_many_rows_are_looked_at_in_part():
    odds = models(np.random.default_rng(7), n=90_000, m=2)[1]
    probs = np.stack([two_columns(each) for each in odds])
    shown = Disagreement.measure(probs, EVEN)
    assert shown.own == pytest.approx(Disagreement.measure(probs[:, ::5], EVEN).own)


def test_later_models_are_calibrated_too():
    """The calibrator is that of all models: later ones may be as confident as no earlier one."""
    y, odds = models(np.random.default_rng(8), n=20_000, m=10)
    odds[5:] *= 3
    parts = parts_of(odds, y, 10)
    found = Ensemble.fit(parts, [BOTH] * 10, "temperature", BOTH, 5)
    z = np.concatenate([part.logits for part in parts])
    expected = rc.TemperatureScaling().fit_logits(z, np.concatenate([part.y for part in parts]))
    assert found.calibrator.beta_ == pytest.approx(expected.beta_)
    assert (
        found.calibrator.beta_
        < Ensemble.fit(parts[:5], [BOTH] * 5, "temperature", BOTH).calibrator.beta_ / 1.5
    )


def test_weights_count_rows_held_out_twice():
    """Rows of weight 0 are not looked at."""
    y, odds = models(np.random.default_rng(5), n=2000, m=7)
    weights = np.tile([1.0, 0.0], 1000)
    wild = odds * np.where(weights > 0, 1, np.random.default_rng(6).normal(0, 9, odds.shape))

    def fitted(odds, kept):
        parts = [
            HeldOut(p.logits[kept[p.places]], p.y[kept[p.places]], w, p.places[kept[p.places]])
            for p in parts_of(odds, y, 7)
            for w in [weights[p.places][kept[p.places]]]
        ]
        return Ensemble.fit(parts, [BOTH] * 7, "temperature", BOTH, 5)

    all_rows, counted = fitted(wild, weights >= 0), fitted(odds, weights > 0)
    assert all_rows.beta == pytest.approx(counted.beta)
    assert all_rows.calibrator.beta_ == pytest.approx(counted.calibrator.beta_)
    assert all_rows.frequencies == pytest.approx(counted.frequencies)


def test_what_no_row_shows_is_left_to_the_geometric_mean():
    y, odds = models(np.random.default_rng(4), n=1000)
    found = Ensemble.fit(parts_of(odds, y, 5), [BOTH] * 5, "temperature", BOTH)
    assert found.beta is None
    logits = [all_classes(each, BOTH, 2) for each in odds]
    by_hand = gmean([found.calibrator.predict_proba_logits(each) for each in logits], axis=0)
    by_hand /= by_hand.sum(axis=1, keepdims=True)
    assert found.predict_proba(logits) == pytest.approx(by_hand)
    same = Ensemble.fit(parts_of(odds[[0] * 5], y, 5), [BOTH] * 5, "temperature", BOTH)
    one = same.calibrator.predict_proba_logits(logits[0])
    assert same.predict_proba([logits[0]] * 5) == pytest.approx(one)  # models that agree


@pytest.mark.parametrize("n", [80, 300, 1500])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_labels_that_are_noise_make_nothing_sure(n):
    """Models of noise disagree in all they say: sharpened, it must not cost much."""
    from xgboost import XGBClassifier

    worse = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(n, 5)), rng.integers(0, 2, n)
        fitted = rc.RefineThenCalibrateClassifier(
            XGBClassifier(n_jobs=1), calibrator="temperature", max_steps=40, random_state=0
        ).fit(X, y)
        new = rng.normal(size=(2000, 5))
        probs = fitted.predict_proba(new)
        fitted._ensemble = replace(fitted._ensemble, beta=1.0)
        plain = fitted.predict_proba(new)
        losses = [-np.log(each).mean() for each in (probs, plain)]  # of labels that are even
        worse.append(losses[0] - losses[1])
    assert np.mean(worse) < 0.01
