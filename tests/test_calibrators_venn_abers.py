"""Venn-Abers prediction against the definition: two isotonic fits for each new row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

import refinecal as rc
from refinecal._core.checks import check_sample
from refinecal.calibrators import CrossVennAbers, VennAbers
from refinecal.resampling import folds

NEW = np.array([-np.inf, -2.0, -1.5, -1.2, -0.5, 0.0, 0.1, 1.0, 1.5, 2.0, np.inf])
KINDS = pytest.mark.parametrize("kind", [VennAbers, CrossVennAbers])


light = pytest.mark.filterwarnings("ignore:sample_weight sums to")  # which is warned of


@st.composite
def weighted(draw, max_rows=10):
    n = draw(st.integers(1, max_rows))
    odds = draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n))
    labels = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    sizes = st.sampled_from([0.0, 0.25, 1.0, 1.0, 3.0, 1e-3, 40.0])
    weights = draw(st.lists(sizes, min_size=n, max_size=n))
    weights[0] = weights[0] or 1.0
    return np.array(odds) / 2, np.array(labels), np.array(weights)


def by_definition(odds, labels, weights, new):
    """Add the new row with label 0, then with label 1, and fit again (Vovk, Petej, Fedorova, sec. 2)."""
    ranks = np.unique(np.r_[odds, new], return_inverse=True)[1].astype(float)  # infinities too
    odds, new = ranks[: len(odds)], ranks[len(odds) :]
    found = np.empty((len(new), 2))
    for i, x in enumerate(new):
        for label in 0, 1:
            regression = IsotonicRegression().fit(
                np.r_[odds, x], np.r_[labels, label], np.r_[weights, 1.0]
            )
            found[i, label] = regression.predict([x])[0]
    return found


@light
@given(weighted())
def test_it_is_two_isotonic_fits_per_row(sample):
    odds, labels, weights = sample
    fitted = VennAbers().fit_logits(odds, labels, weights)
    found = fitted.predict_interval_logits(NEW)
    expected = by_definition(odds, labels, weights, NEW)
    np.testing.assert_allclose(found, expected, atol=1e-11)
    p0, p1 = expected.T
    np.testing.assert_allclose(
        fitted.predict_proba_logits(NEW)[:, 1], p1 / (1 - p0 + p1), atol=1e-11
    )


@light
@given(weighted(), st.booleans())
def test_the_probability_lies_within_the_interval(sample, cross):
    odds, labels, weights = sample
    fitted = (CrossVennAbers(n_folds=3) if cross else VennAbers()).fit_logits(odds, labels, weights)
    p0, p1 = fitted.predict_interval_logits(NEW).T
    p = fitted.predict_proba_logits(NEW)[:, 1]
    assert np.all((p0 >= 0) & (p0 <= p1) & (p1 <= 1) & (p > 0) & (p < 1))
    assert np.all((p0 <= p + 1e-12) & (p <= p1 + 1e-12))
    assert np.all(np.diff([p0, p1, p], axis=1) >= -1e-12)


def test_many_rows():
    rng = np.random.default_rng(0)
    odds = np.round(rng.normal(size=300) * 2, 1)  # some ties
    labels, weights = rng.random(300) < expit(odds), rng.exponential(size=300)
    new = np.r_[rng.choice(odds, 20), rng.normal(size=20) * 3]
    for w in np.ones(300), weights:
        found = VennAbers().fit_logits(odds, labels, w).predict_interval_logits(new)
        np.testing.assert_allclose(found, by_definition(odds, labels, w, new), atol=1e-11)


@light
@given(weighted(), st.data())
def test_weights_repeat_rows_and_order_does_not_matter(sample, data):
    odds, labels, _ = sample
    counts = data.draw(st.lists(st.integers(0, 3), min_size=len(odds), max_size=len(odds)))
    counts[0] += 1
    rows = np.repeat(np.arange(len(odds)), counts)[::-1]
    ours = VennAbers().fit_logits(odds, labels, counts)
    theirs = VennAbers().fit_logits(odds[rows], labels[rows])
    np.testing.assert_array_equal(
        ours.predict_interval_logits(NEW), theirs.predict_interval_logits(NEW)
    )


def test_soft_labels_are_shares_of_rows():
    rng = np.random.default_rng(1)
    odds, share = rng.integers(-3, 4, size=30) / 2, rng.random(30)
    ours = VennAbers().fit_logits(odds, np.stack([1 - share, share], axis=1))
    theirs = VennAbers().fit_logits(
        np.r_[odds, odds], np.repeat([0, 1], 30), np.r_[1 - share, share]
    )
    np.testing.assert_allclose(
        ours.predict_interval_logits(NEW), theirs.predict_interval_logits(NEW), atol=1e-12
    )


def test_by_hand():
    one = VennAbers().fit([0.5], [1], classes=[0, 1])
    # below: a 0 alone, then two ones; at the row and above: 1 of 2, then 2 of 2
    expected = [[0, 1], [0.5, 1], [0.5, 1]]
    np.testing.assert_allclose(one.predict_interval([0.1, 0.5, 0.9]), expected)
    np.testing.assert_allclose(one.predict_proba([0.5])[:, 1], 1 / 1.5)


def test_a_shift_of_each_row_keeps_ties():
    rng = np.random.default_rng(2)
    odds, labels = rng.integers(-5, 6, size=200) / 7, rng.integers(2, size=200)
    logits = np.stack([np.zeros(200), odds], axis=1)
    plain, shifted = logits, logits + 10 * rng.normal(size=(200, 1))
    ours, theirs = (VennAbers().fit_logits(z, labels) for z in (plain, shifted))
    for new in plain, shifted:
        np.testing.assert_allclose(
            ours.predict_interval_logits(new), theirs.predict_interval_logits(plain), atol=1e-12
        )


@KINDS
def test_heavy_and_light_weights(kind):
    rng = np.random.default_rng(3)
    odds, labels = rng.normal(size=50), rng.integers(2, size=50)
    share = rc.make_calibrator("isotonic", laplace=False).fit_logits(odds, labels)
    for weight in 1e18, 1e200, 1e300:  # the new row weighs nothing beside them
        heavy = kind().fit_logits(odds, labels, np.full(50, weight))
        interval = heavy.predict_interval_logits(odds)
        assert np.isfinite(heavy.predict_proba_logits(odds)).all()
        if kind is VennAbers:
            expected = share.predict_proba_logits(odds)[:, 1]
            np.testing.assert_allclose(interval, np.stack([expected, expected], axis=1), atol=1e-9)
    with pytest.warns(RuntimeWarning, match="sample_weight sums to"):
        light = kind().fit_logits(odds, labels, rng.choice([1e-30, 1e-200, 1e-3], size=50))
    assert np.isfinite(light.predict_proba_logits(odds)).all()
    mixed = kind().fit_logits(odds, labels, rng.choice([1e-30, 1e12, 1.0], size=50))
    assert np.all(np.diff(mixed.predict_interval_logits(np.sort(odds)), axis=0) >= 0)


@KINDS
def test_degenerate_sets(kind):
    for probs, labels in ([0.3] * 6, [0, 1] * 3), ([0.0, 1.0], [1, 0]), ([0.4], [1]):
        fitted = kind().fit(probs, labels, classes=[0, 1])
        copy = kind.from_json(fitted.to_json())
        found = fitted.predict_proba([0.0, 0.3, 1.0])
        assert np.isfinite(np.log(found)).all()
        np.testing.assert_array_equal(copy.predict_proba([0.0, 0.3, 1.0]), found)
        interval = fitted.predict_interval(np.array([0.3], dtype=np.float32))
        assert interval.shape == (1, 2)
    with pytest.raises(ValueError, match="not fitted yet"):
        kind().predict_interval([0.5])
    with pytest.raises(ValueError, match="for 2 classes, found 3: .*venn-abers-ovr"):
        kind().fit(np.full((4, 3), 1 / 3), [0, 1, 2, 0])


def test_only_the_steps_are_kept():
    rng = np.random.default_rng(4)
    odds = rng.normal(size=5000) * 3
    fitted = VennAbers().fit_logits(odds, rng.random(5000) < expit(odds / 2))
    assert len(fitted.lower_log_odds_) + len(fitted.upper_log_odds_) < 1000
    assert fitted.n_parameters == len(fitted.lower_shares_) + len(fitted.upper_shares_)
    assert np.all(np.diff(fitted.lower_shares_) > 0)
    assert np.all(np.diff(fitted.upper_shares_) > 0)


# ---- cross ----------------------------------------------------------------------------------------------


def test_cross_merges_the_parts_by_geometric_means():
    rng = np.random.default_rng(5)
    odds, labels = rng.normal(size=60) * 2, rng.integers(2, size=60)
    fitted = CrossVennAbers(n_folds=4).fit_logits(odds, labels)
    parts = [rows for _, rows in folds(check_sample(labels, logits=odds), 4, None)]
    assert sorted(np.concatenate(parts)) == list(range(60))
    intervals = [by_definition(odds[r], labels[r], np.ones(len(r)), NEW) for r in parts]
    p0, p1 = np.moveaxis(np.array(intervals), 2, 0)
    ones, zeros = (np.prod(p, axis=0) ** 0.25 for p in (p1, 1 - p0))
    expected = ones / (ones + zeros)
    np.testing.assert_allclose(fitted.predict_proba_logits(NEW)[:, 1], expected, rtol=1e-9)
    assert fitted.n_parameters == sum(part.n_parameters for part in fitted.calibrators_)


def test_cross_draws_parts_by_seed_whatever_the_order_of_rows():
    rng = np.random.default_rng(6)
    odds, labels = rng.normal(size=80), rng.integers(2, size=80)
    rows = rng.permutation(80)

    def predicted(rows, seed):
        fitted = CrossVennAbers(random_state=seed).fit_logits(odds[rows], labels[rows])
        return fitted.predict_proba_logits(NEW)

    first = predicted(np.arange(80), 0)
    np.testing.assert_allclose(predicted(rows, 0), first, rtol=1e-12)
    assert np.abs(predicted(rows, 1) - first).max() > 1e-3


def test_cross_with_fewer_rows_than_parts():
    fitted = CrossVennAbers(n_folds=5).fit([0.2, 0.8, 0.5], [0, 1, 1])
    assert len(fitted.calibrators_) == 3
    weights = [1, 0, 0]
    assert len(CrossVennAbers().fit([0.2, 0.8, 0.5], [0, 1, 1], weights).calibrators_) == 1


@pytest.mark.parametrize("params", [{"n_folds": 1}, {"n_folds": 2.5}, {"random_state": -1}])
def test_wrong_parameters_are_named(params):
    (name,) = params
    with pytest.raises(ValueError, match=f"{name} is .*: it must be a whole number of at least"):
        CrossVennAbers(**params).fit([0.2, 0.8], [0, 1])
