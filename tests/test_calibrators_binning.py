"""Histogram binning and scaling-binning: by hand, and against the definitions, one row at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from sklearn.base import clone

import refinecal as rc
from refinecal._core.checks import check_sample
from refinecal.calibrators.binning import _bins, _split_halves, quantile_edges


def scores(n=200, seed=0):
    rng = np.random.default_rng(seed)
    odds = rng.normal(size=n) * 3
    return (rng.random(n) < expit(odds / 2)).astype(int), odds


def test_uniform_mass_by_hand():
    binning = rc.make_calibrator("uniform-mass", n_bins=3, laplace=False)
    binning.fit([0.1, 0.2, 0.4, 0.5, 0.7, 0.9], [0, 1, 0, 0, 1, 1])
    np.testing.assert_allclose(
        binning.predict_proba([0, 0.15, 0.2, 0.45, 0.95, 1])[:, 1], [0.5, 0.5, 0.5, 0, 1, 1]
    )
    assert binning.n_parameters == 3
    assert repr(binning).endswith("laplace=False) with 3 bins")
    np.testing.assert_allclose(binning.edges_[0], (logit(0.2) + logit(0.4)) / 2)


def test_uniform_width_by_hand():
    binning = rc.make_calibrator("uniform-width", n_bins=5, laplace=False)
    binning.fit([0.1, 0.2, 0.3, 0.9, 1.0], [0, 1, 0, 0, 1])
    expected = [0.5, 0.5, 0, 0.5, 0.7, 0.5]  # the third and fourth bin saw nothing: their centres
    np.testing.assert_allclose(
        binning.predict_proba([0, 0.2, 0.4, 0.6, 0.65, 1])[:, 1], expected, atol=1e-15
    )
    assert rc.make_calibrator("uniform-width").fit([0.5], [1]).n_parameters == 15


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_score_on_an_edge_belongs_to_the_bin_below_whatever_its_precision(dtype):
    probs = (np.arange(1, 10) / 10).astype(dtype)
    binning = rc.make_calibrator("uniform-width", n_bins=10, laplace=False)
    binning.fit(np.r_[probs, 1].astype(dtype), [0, 1] * 5)
    np.testing.assert_array_equal(binning.shares_, [0, 1] * 5)


def by_definition(odds, weights, m):
    """Return the bin of each row: that of the middle of the mass of all rows of its score."""
    total = sum(weights)
    below = [sum(w for o, w in zip(odds, weights, strict=True) if o < own) for own in odds]
    level = [sum(w for o, w in zip(odds, weights, strict=True) if o == own) for own in odds]
    return [int((b + w / 2) * m / total) for b, w in zip(below, level, strict=True)]


@given(
    st.lists(st.tuples(st.integers(-4, 4), st.integers(1, 3)), min_size=1, max_size=30),
    st.integers(1, 9),
)
def test_bins_of_equal_mass_follow_their_definition(rows, m):
    odds, weights = np.array(rows, dtype=float).T
    bins = np.searchsorted(quantile_edges(odds, weights, m), odds)
    expected = np.unique(by_definition(odds, weights, m), return_inverse=True)[1]
    np.testing.assert_array_equal(bins, expected)
    again = np.repeat(odds, weights.astype(int))
    np.testing.assert_array_equal(quantile_edges(again, None, m), quantile_edges(odds, weights, m))


def test_bins_of_equal_mass_are_equal_where_scores_differ():
    _, odds = scores(1000)
    counts = np.bincount(np.searchsorted(quantile_edges(odds, None, 10), odds))
    np.testing.assert_array_equal(counts, 100)


def test_neighbouring_floats_are_told_apart_and_infinity_is_a_score():
    one = np.nextafter(1.0, 2)
    assert np.searchsorted(quantile_edges(np.array([1.0, one]), None, 2), [1.0, one]).tolist() == [
        0,
        1,
    ]
    binning = rc.make_calibrator("uniform-mass", laplace=False)
    binning.fit([0.0, 0.2, 0.8, 1.0], [0, 1, 0, 1])
    found = binning.predict_proba([0, 1e-12, 0.1, 0.9, 1 - 1e-12, 1])[:, 1]
    np.testing.assert_array_equal(found, [0, 0, 1, 0, 1, 1])


@pytest.mark.parametrize("name", ["uniform-mass", "uniform-width"])
def test_a_bin_gives_the_weighted_mean_of_soft_labels(name):
    rng = np.random.default_rng(0)
    q, w, odds = rng.random(50), rng.random(50), rng.normal(size=50)
    binning = rc.make_calibrator(name, n_bins=4, laplace=False)
    binning.fit_logits(odds, np.stack([1 - q, q], axis=1), sample_weight=w)
    bins = np.searchsorted(binning.edges_, odds)
    for b, share in enumerate(binning.shares_):
        np.testing.assert_allclose(share, np.average(q[bins == b], weights=w[bins == b]))


def test_automatic_number_of_bins_is_the_cube_root():
    labels, odds = scores(1000)
    assert (
        rc.make_calibrator("uniform-mass", n_bins="auto").fit_logits(odds, labels).n_parameters
        == 10
    )
    weights = np.full(1000, 27.0)
    auto = rc.make_calibrator("uniform-width", n_bins="auto").fit_logits(odds, labels, weights)
    assert auto.n_parameters == 30


@pytest.mark.parametrize("n_bins", [0, 2.5, True, "many"])
@pytest.mark.parametrize("name", ["uniform-mass", "scaling-binning"])
def test_wrong_numbers_of_bins_are_refused(name, n_bins):
    with pytest.raises(ValueError, match="n_bins is .* whole number of at least 1, or 'auto'"):
        rc.make_calibrator(name, n_bins=n_bins).fit([0.2, 0.7], [0, 1])


def test_wrong_strategy_is_refused():
    with pytest.raises(ValueError, match="strategy is 'mass': it must be 'quantile'"):
        rc.make_calibrator("uniform-mass", strategy="mass").fit([0.2, 0.7], [0, 1])


@pytest.mark.parametrize("name", ["uniform-mass", "uniform-width", "scaling-binning"])
def test_more_classes_need_one_against_the_rest(name):
    with pytest.raises(ValueError, match=f"is for 2 classes, found 3: use calibrator='{name}-ovr'"):
        rc.make_calibrator(name).fit(np.full((4, 3), 1 / 3), [0, 1, 2, 0])


@pytest.mark.parametrize("n_bins", [5, 40])
def test_few_and_many_edges_are_found_alike(n_bins):
    labels, odds = scores(400)
    binning = rc.make_calibrator("uniform-mass", n_bins=n_bins).fit_logits(odds, labels)
    asked = np.r_[odds, binning.edges_, -np.inf, np.inf]
    expected = [sum(edge < x for edge in binning.edges_) for x in asked]
    np.testing.assert_array_equal(_bins(asked, binning.edges_), expected)


def test_a_state_whose_arrays_do_not_belong_together_is_refused():
    state = rc.make_calibrator("uniform-mass").fit([0.2, 0.5, 0.7], [0, 1, 1]).to_dict()
    state["learned"]["shares_"]["values"].append(0.5)
    with pytest.raises(ValueError, match="shares_ must have one entry more than edges_"):
        rc.calibrators.from_dict(state)


# ---- scaling-binning ---------------------------------------------------------------------------------------


def test_scaling_binning_on_all_rows_averages_the_scaling():
    labels, odds = scores(300)
    found = rc.make_calibrator("scaling-binning", n_bins=5, split=False, laplace=False)
    found.fit_logits(odds, labels)
    affine = rc.make_calibrator("affine", laplace=False).fit_logits(odds, labels)
    scaled = np.sort(affine.predict_proba_logits(odds)[:, 1])  # 300 rows: five bins of 60
    means = scaled.reshape(5, 60).mean(axis=1)
    np.testing.assert_allclose(found.shares_, means, rtol=1e-10)
    np.testing.assert_allclose(
        np.sort(found.predict_proba_logits(odds)[:, 1]), np.repeat(means, 60), rtol=1e-10
    )
    assert found.n_parameters == 5 + 2
    mean = found.predict_proba_logits(odds)[:, 1].mean()
    np.testing.assert_allclose(mean, labels.mean(), rtol=1e-9)  # binning keeps the mean


def test_scaling_binning_takes_each_end_from_its_own_half():
    labels, odds = np.array([0, 1, 0, 1, 1, 0, 1, 1]), np.arange(8.0)  # halves 0347 and 1256
    found = rc.make_calibrator("scaling-binning", n_bins=2, laplace=False).fit_logits(odds, labels)
    first = [0, 3, 4, 7]
    affine = rc.make_calibrator("affine", laplace=False).fit_logits(odds[first], labels[first])
    scaled = affine.predict_proba_logits(odds)[:, 1]
    np.testing.assert_allclose(
        found.shares_, [scaled[[1, 2]].mean(), scaled[[5, 6]].mean()], rtol=1e-10
    )


@given(
    st.lists(
        st.tuples(st.integers(-3, 3), st.integers(0, 1), st.integers(1, 6)), min_size=1, max_size=20
    )
)
def test_halves_share_the_copies_of_rows(rows):
    odds, labels, weights = np.array(rows).T
    logits = np.stack([np.zeros(len(odds)), odds], axis=1)
    first, second = _split_halves(check_sample(labels, None, logits, weights))
    if weights.sum() == 1:
        assert first is second
        return
    assert first.total + second.total == weights.sum()
    assert abs(first.total - second.total) <= 2
    repeat = [np.repeat(part, weights, axis=0) for part in (labels, logits)]
    again, _ = _split_halves(check_sample(repeat[0], None, repeat[1]))
    mass = np.zeros((2, 7, 2))
    for half, part in zip(mass, (first, again), strict=True):
        places = (part.logits[:, 1].astype(int) + 3, part.labels)
        np.add.at(half, places, 1.0 if part.weights is None else part.weights)
    np.testing.assert_array_equal(*mass)


def test_parameters_of_the_scaling_are_those_of_scikit_learn():
    binning = rc.make_calibrator("scaling-binning", scaling=rc.make_calibrator("affine"))
    assert binning.get_params()["scaling__ridge"] == 0
    assert binning.set_params(n_bins=3, scaling__ridge=2.0).scaling.ridge == 2
    assert clone(binning).get_params(deep=False)["scaling"].ridge == 2


def test_scaling_binning_takes_any_calibrator_as_scaling():
    labels, odds = scores(100)
    by_name = rc.make_calibrator("scaling-binning", scaling="temperature")
    by_object = rc.make_calibrator("scaling-binning", scaling=rc.TemperatureScaling(laplace=False))
    one, other = (
        c.fit_logits(odds, labels).predict_proba_logits(odds) for c in (by_name, by_object)
    )
    np.testing.assert_array_equal(one, other)
    assert not hasattr(by_object.scaling, "beta_")  # the caller's object is left alone
    copy = rc.calibrators.from_json(by_object.to_json())
    np.testing.assert_array_equal(copy.predict_proba_logits(odds), other)


def test_a_scaling_that_is_sure_does_no_harm():
    found = rc.make_calibrator("scaling-binning", scaling="isotonic", split=False)
    found.fit_logits([-2.0, -1.0, 1.0, 2.0], [0, 0, 1, 1])
    np.testing.assert_allclose(found.predict_proba_logits([-3.0, 3.0])[:, 1], [0.5 / 5, 4.5 / 5])
