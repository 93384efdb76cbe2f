"""Isotonic and centred isotonic calibration against scikit-learn and the definitions."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

import refinecal as rc
from refinecal._kernels.pav import pool
from refinecal.calibrators import CentredIsotonicCalibration, IsotonicCalibration

NAMES = pytest.mark.parametrize("name", ["isotonic", "centred-isotonic"])


@st.composite
def binary(draw, max_rows=14):
    """Log-odds with many ties, labels, and weights: none, whole or fractional, some of them 0."""
    n = draw(st.integers(1, max_rows))
    odds = draw(st.lists(st.integers(-4, 4), min_size=n, max_size=n))
    labels = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    weights = draw(
        st.one_of(
            st.none(),
            st.lists(st.sampled_from([0, 1, 2, 3]), min_size=n, max_size=n),
            st.lists(st.sampled_from([0.0, 0.3, 1e-3, 2.5]), min_size=n, max_size=n),
        )
    )
    if weights is not None and not any(weights):
        weights = None
    return np.array(odds) / 2, np.array(labels), None if weights is None else np.array(weights)


def made(name, **params):
    return rc.make_calibrator(name, laplace=False, **params)


def shares(fitted, odds):
    return fitted.predict_proba_logits(np.asarray(odds, dtype=float))[:, 1]


GRID = np.linspace(-3, 3, 61)


@given(binary())
def test_it_is_scikit_learns_regression(sample):
    odds, labels, weights = sample
    ours = made("isotonic").fit_logits(odds, labels, weights)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(odds, labels, weights)
    np.testing.assert_allclose(shares(ours, GRID), theirs.predict(GRID), atol=1e-12)
    assert np.all(np.diff(ours.log_odds_) > 0)
    assert np.all(np.diff(ours.shares_) >= 0)
    assert len(ours.log_odds_) <= 2 * ours.n_parameters  # nothing but corners


def test_it_is_scikit_learns_regression_on_many_rows():
    rng = np.random.default_rng(0)
    odds = rng.normal(size=20_000) * 3
    labels = rng.random(20_000) < expit(odds / 2)
    weights = rng.exponential(size=20_000)
    share = rng.random(20_000) * expit(odds)
    soft = np.stack([1 - share, share], axis=1)
    new = rng.normal(size=5000) * 4
    for y, target in (labels, labels), (soft, soft[:, 1]):
        ours = made("isotonic").fit_logits(odds, y, weights)
        theirs = IsotonicRegression(out_of_bounds="clip").fit(odds, target, weights)
        np.testing.assert_allclose(shares(ours, new), theirs.predict(new), atol=1e-12)


@given(binary())
def test_pooled_levels_increase_and_keep_the_mass(sample):
    odds, labels, weights = sample
    mass = np.ones(len(odds)) if weights is None else weights[weights > 0]
    hits = mass * (labels if weights is None else labels[weights > 0])
    first, levels = pool(mass, hits)
    assert first[0] == 0
    assert np.all(np.diff(levels) > 0)
    np.testing.assert_allclose(levels @ np.add.reduceat(mass, first), hits.sum(), atol=1e-12)


@given(binary())
def test_the_mean_is_that_of_the_labels(sample):
    odds, labels, weights = sample
    found = shares(made("isotonic").fit_logits(odds, labels, weights), odds)
    assert math.isclose(
        np.average(found, weights=weights), np.average(labels, weights=weights), abs_tol=1e-12
    )


@given(binary(), st.sampled_from(["isotonic", "centred-isotonic"]), st.data())
def test_weights_repeat_rows_and_order_does_not_matter(sample, name, data):
    odds, labels, _ = sample
    counts = data.draw(st.lists(st.integers(0, 3), min_size=len(odds), max_size=len(odds)))
    counts[0] += 1
    rows = np.repeat(np.arange(len(odds)), counts)
    rows = rows[np.random.default_rng(len(rows)).permutation(len(rows))]
    weighted = rc.make_calibrator(name).fit_logits(odds, labels, counts)
    repeated = rc.make_calibrator(name).fit_logits(odds[rows], labels[rows])
    np.testing.assert_allclose(shares(weighted, GRID), shares(repeated, GRID), atol=1e-12)


@NAMES
def test_soft_labels_are_shares_of_rows(name):
    rng = np.random.default_rng(1)
    odds, soft = rng.integers(-3, 4, size=40) / 2, rng.random(40)
    ours = made(name).fit_logits(odds, np.stack([1 - soft, soft], axis=1))
    rows = np.r_[np.arange(40), np.arange(40)]
    hard = made(name).fit_logits(odds[rows], np.repeat([0, 1], 40), np.r_[1 - soft, soft])
    np.testing.assert_allclose(shares(ours, GRID), shares(hard, GRID), atol=1e-12)


@NAMES
def test_a_shift_of_each_row_leaves_ties_together(name):
    rng = np.random.default_rng(2)
    odds, labels = rng.integers(-5, 6, size=300) / 7, rng.integers(2, size=300)
    logits = np.stack([np.zeros(300), odds], axis=1)
    shifted = logits + 10 * rng.normal(size=(300, 1))
    assert len(np.unique(shifted[:, 1] - shifted[:, 0])) > 11  # rounding has broken the ties
    ours, theirs = (made(name).fit_logits(z, labels) for z in (logits, shifted))
    np.testing.assert_allclose(shares(ours, GRID), shares(theirs, GRID), atol=1e-9)


@NAMES
def test_degenerate_sets(name):
    constant = made(name).fit([0.3] * 4, [1, 0, 0, 0])
    np.testing.assert_allclose(constant.predict_proba([0.01, 0.3, 0.9])[:, 1], 0.25)
    assert constant.n_parameters == 1
    for label in 0, 1:
        one = made(name).fit([0.2, 0.5, 0.9], [label] * 3, classes=[0, 1])
        np.testing.assert_array_equal(one.predict_proba([0.1, 0.6])[:, 1], label)
        single = made(name).fit([0.2], [label], classes=[0, 1])
        np.testing.assert_array_equal(single.predict_proba([0.0, 1.0])[:, 1], label)


@NAMES
def test_certain_predictions(name):
    fitted = rc.make_calibrator(name).fit([0, 0, 0.4, 0.6, 1, 1], [0, 1, 0, 1, 1, 0])
    found = fitted.predict_proba([0.0, 1e-300, 0.5, 1 - 1e-16, 1.0])[:, 1]
    assert np.all((found > 0) & (found < 1) & (np.diff(found, prepend=0) >= 0))
    copy = type(fitted).from_json(fitted.to_json())  # whose numbers are all finite
    np.testing.assert_array_equal(copy.predict_proba([0.0, 1.0])[:, 1], found[[0, -1]])
    alone = made(name).fit([0.0, 1.0], [0, 1])
    np.testing.assert_allclose(alone.predict_proba([0.0, 0.5, 1.0])[:, 1], [0, 0.5, 1])


@NAMES
def test_arrays_of_any_kind(name):
    rng = np.random.default_rng(3)
    logits = rng.integers(-8, 8, size=(60, 4)).astype(np.float32) / 2
    labels = rng.integers(2, size=60)
    plain = np.ascontiguousarray(logits[:, ::2], dtype=np.float64)
    frozen = plain.copy()
    frozen.flags.writeable = False
    fits = [made(name).fit_logits(z, labels) for z in (plain, logits[:, ::2], frozen)]
    found = [
        fit.predict_proba_logits(z) for fit, z in zip(fits, (plain, plain, frozen), strict=True)
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(fits[0].predict_proba_logits(logits[:, ::2]), found[0])


@NAMES
def test_many_classes_are_refused_with_a_cure(name):
    with pytest.raises(ValueError, match=f"for 2 classes, found 3: .*'{name}-ovr'"):
        made(name).fit(np.full((4, 3), 1 / 3), [0, 1, 2, 0])


@given(binary(), st.sampled_from([IsotonicCalibration, CentredIsotonicCalibration]))
def test_json_gives_an_equal_map(sample, kind):
    fitted = kind(laplace=False).fit_logits(*sample)
    copy = kind.from_json(fitted.to_json())
    np.testing.assert_array_equal(
        copy.predict_proba_logits(GRID), fitted.predict_proba_logits(GRID)
    )
    assert copy.n_parameters == fitted.n_parameters


@NAMES
def test_a_state_that_does_not_fit_together_is_refused(name):
    state = rc.make_calibrator(name).fit([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1]).to_dict()
    for values in [], [0.5]:
        state["learned"]["shares_"]["values"] = values
        with pytest.raises(ValueError, match="of a calibrator, or it is damaged .*equally long"):
            rc.calibrators.from_dict(state)


def test_repr_says_how_many():
    iso = rc.make_calibrator("isotonic").fit([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1])
    assert repr(iso) == "IsotonicCalibration(laplace=True) with 3 steps"


# ---- centred ---------------------------------------------------------------------------------------------


def centred(odds, labels, weights, new):
    """Pool violators one pair at a time, points at their mean; then interpolate (Oron & Flournoy)."""
    weights = np.ones(len(odds)) if weights is None else np.asarray(weights, dtype=float)
    points = []
    for x in np.unique(odds[weights > 0]):
        w = weights[odds == x]
        points.append([x, np.average(labels[odds == x], weights=w), w.sum()])
    while True:
        for a, b in pairwise(points):
            if a[1] > b[1] or (a[1] == b[1] and 0 < a[1] < 1):
                total = a[2] + b[2]
                a[:] = [(a[i] * a[2] + b[i] * b[2]) / total for i in (0, 1)] + [total]
                points.remove(b)
                break
        else:
            x, y, _ = np.array(points).T
            return np.interp(new, x, y)  # constant beyond the first and the last


@given(binary())
def test_centred_is_the_naive_algorithm(sample):
    odds, labels, weights = sample
    ours = made("centred-isotonic").fit_logits(odds, labels, weights)
    found = centred(odds, labels, weights, GRID)
    np.testing.assert_allclose(shares(ours, GRID), found, atol=1e-9)


def test_centred_increases_between_its_points():
    rng = np.random.default_rng(4)
    odds, labels = rng.normal(size=500) * 3, rng.integers(2, size=500)
    labels[odds < -4], labels[odds > 4] = 0, 1
    fitted = made("centred-isotonic").fit_logits(odds, labels)
    edges = fitted.log_odds_[fitted.shares_ == 0].max(), fitted.log_odds_[fitted.shares_ == 1].min()
    assert np.all(np.diff(shares(fitted, np.linspace(*edges, 1000))) > 0)
    assert set(shares(fitted, [-4.5, 4.5])) == {0, 1}  # steps that stay whole
    steps = made("isotonic").fit_logits(odds, labels)
    assert fitted.n_parameters == steps.n_parameters < len(steps.shares_)


def test_centred_does_not_care_how_sure_the_classifier_is():
    rng = np.random.default_rng(5)
    odds, labels = rng.normal(size=100), rng.integers(2, size=100)
    ours, theirs = (made("centred-isotonic").fit_logits(b * odds, labels) for b in (1, 300))
    np.testing.assert_allclose(shares(ours, GRID), shares(theirs, 300 * GRID), atol=1e-12)


def test_a_wrong_certainty_within_a_step_is_half_the_smallest_odds():
    odds = np.array([-np.inf, -3.0, 1.0])
    fitted = made("centred-isotonic").fit_logits(odds, [1, 0, 0], [2, 1, 1])
    assert math.isclose(fitted.log_odds_[0], (2 * (-3 - math.log(2)) - 3 + 1) / 4)
