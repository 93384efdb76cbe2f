"""Tests of calibration: their statistics by brute force, their p-values by other series and by simulation."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import softmax
from scipy.stats import kstest, norm
from strategies import drawn, predictions

import refinecal as rc
from refinecal.metrics import ks_statistic, ks_test, kuiper_statistic, kuiper_test, spiegelhalter
from refinecal.metrics._statistics import largest_tail, range_tail

every_test = pytest.mark.parametrize("test", [ks_test, kuiper_test, spiegelhalter])
every_function = pytest.mark.parametrize(
    "function", [ks_statistic, kuiper_statistic, ks_test, kuiper_test, spiegelhalter]
)


def differences(labels, scores, weights):
    """Return the cumulative differences at each threshold, each summed from the start."""
    gaps = weights * (labels - scores)
    return np.array([0.0] + [gaps[scores <= t].sum() for t in np.unique(scores)])


@st.composite
def weighted(draw):
    n = draw(st.integers(1, 12))
    numbers = st.lists(st.integers(0, 8), min_size=n, max_size=n)
    scores = np.array(draw(numbers)) / 8
    labels = np.array(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    weights = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    assume(weights.any())
    return labels, scores, weights


# ---- statistics by brute force ---------------------------------------------------------------------------


@given(weighted())
def test_distances_are_those_of_the_definition(sample):
    labels, scores, weights = sample
    walk = differences(*sample) / weights.sum()
    found = ks_statistic(labels, scores, sample_weight=weights)
    assert found == pytest.approx(np.abs(walk).max(), abs=1e-14)
    found = kuiper_statistic(labels, scores, sample_weight=weights)
    assert found == pytest.approx(walk.max() - walk.min(), abs=1e-14)


@given(weighted())
def test_statistics_are_distances_in_standard_deviations(sample):
    labels, scores, weights = sample
    variance = weights @ (scores * (1 - scores))
    assume(variance > 0)
    walk = differences(*sample) / math.sqrt(variance)
    found = ks_test(labels, scores, sample_weight=weights).statistic
    assert found == pytest.approx(np.abs(walk).max(), abs=1e-13)
    found = kuiper_test(labels, scores, sample_weight=weights).statistic
    assert found == pytest.approx(walk.max() - walk.min(), abs=1e-13)


@given(weighted())
def test_spiegelhalters_formula_for_two_classes(sample):
    labels, scores, weights = sample
    slopes = 1 - 2 * scores
    variance = weights @ (slopes**2 * scores * (1 - scores))
    assume(variance > 0)
    expected = weights @ ((labels - scores) * slopes) / math.sqrt(variance)
    z, p_value = spiegelhalter(labels, scores, sample_weight=weights)
    assert z == pytest.approx(expected, abs=1e-12)
    assert p_value == pytest.approx(2 * norm.sf(abs(expected)), rel=1e-9)
    confidence = np.maximum(scores, 1 - scores)  # the same: the score is even around 1/2
    hits = np.where(scores > 0.5, labels, 1 - labels)
    top = spiegelhalter(hits, confidence, sample_weight=weights)
    assert top.statistic == pytest.approx(expected, abs=1e-12)


@given(predictions())
def test_spiegelhalter_compares_the_brier_score_with_its_mean_and_variance(sample):
    labels, logits = sample
    k, probs = logits.shape[1], softmax(logits, axis=1)
    scores = ((probs[:, None, :] - np.eye(k)) ** 2).sum(axis=2)  # of each row, for each label
    means = (probs * scores).sum(axis=1)
    variance = (probs * (scores - means[:, None]) ** 2).sum()
    assume(variance > 1e-9)
    excess = (scores[np.arange(len(labels)), labels] - means).sum()
    found = spiegelhalter(labels, logits=logits).statistic
    assert found == pytest.approx(excess / math.sqrt(variance), rel=1e-7, abs=1e-9)


def test_spiegelhalter_of_the_likeliest_class_is_that_of_two_classes():
    labels, logits = drawn(300, 4, confidence=2)
    probs = softmax(logits, axis=1)
    hits = (labels == probs.argmax(axis=1)).astype(int)
    found = spiegelhalter(labels, probs, kind="top-label")
    assert found == pytest.approx(spiegelhalter(hits, probs.max(axis=1)), rel=1e-9)


@given(predictions())
def test_kuiper_lies_between_one_and_two_times_ks(sample):
    labels, logits = sample
    ks, kuiper = (f(labels, logits=logits) for f in (ks_statistic, kuiper_statistic))
    assert ks <= kuiper + 1e-15 <= 2 * ks + 1e-14


# ---- p-values --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [0.05, 0.2, 0.5, 1, 1.49, 1.51, 2.49, 2.51, 4, 8, 30])
def test_tails_have_full_precision_on_both_sides(x):
    with mpmath.workdps(60):
        x = mpmath.mpf(x)
        odd = [2 * k + 1 for k in range(600)]
        rates = [mpmath.exp(-((mpmath.pi * m / x) ** 2) / 8) for m in odd]
        signs = [(-1) ** k for k in range(600)]
        inside = sum(s * r / m for s, r, m in zip(signs, rates, odd, strict=True)) * 4 / mpmath.pi
        if x < 20:  # the series needs more digits beyond
            assert largest_tail(float(x)) == pytest.approx(float(1 - inside), rel=1e-13)
        terms = [
            (-1) ** k * (k + 1) * mpmath.erfc((k + 1) * x / mpmath.sqrt(2)) for k in range(900)
        ]
        assert range_tail(float(x)) == pytest.approx(float(4 * sum(terms)), rel=1e-12)


def test_tails_have_the_known_moments():
    """E max|B| = sqrt(pi/2), E max|B|^2 = 2 Catalan; E range = sqrt(8/pi), E range^2 = 4 log 2 (Feller)."""
    for tail, mean, square in (
        (largest_tail, math.sqrt(math.pi / 2), 2 * float(mpmath.catalan)),
        (range_tail, math.sqrt(8 / math.pi), 4 * math.log(2)),
    ):
        assert quad(tail, 0, 12, limit=200)[0] == pytest.approx(mean, rel=1e-7)
        found = quad(lambda x, tail=tail: 2 * x * tail(x), 0, 12, limit=200)[0]
        assert found == pytest.approx(square, rel=1e-7)


def test_tails_at_the_ends():
    for tail in (largest_tail, range_tail):
        assert tail(0) == 1
        assert tail(math.inf) == 0
        assert 0 < tail(35) < 1e-250


@every_test
def test_p_values_of_calibrated_predictions_are_uniform(test):
    rng = np.random.default_rng(0)
    values = np.empty(600)
    for i in range(600):
        scores = rng.random(1500)
        values[i] = test((rng.random(1500) < scores).astype(int), scores).p_value
    # The walk has 1500 steps, so that it misses a little of the largest distance: p-values err upwards.
    assert kstest(values, "uniform", alternative="greater").pvalue > 0.01  # not too many small ones
    assert np.abs(np.sort(values) - (np.arange(600) + 0.5) / 600).max() < 0.1


def test_p_values_of_several_calibrated_classes():
    values = []
    for seed in range(300):
        labels, logits = drawn(400, 4, seed=seed)
        values.append([test(labels, logits=logits).p_value for test in (ks_test, spiegelhalter)])
    assert kstest(np.array(values)[:, 1], "uniform").pvalue > 0.001
    assert 0.01 < np.mean(np.array(values)[:, 0] < 0.05) < 0.09


@every_test
def test_miscalibration_shows(test):
    labels, logits = drawn(3000, 3, confidence=2)
    assert test(labels, logits=logits).p_value < 1e-6
    assert test(labels, logits=logits / 2).p_value > 1e-3


def test_the_sign_of_z_tells_too_sure_from_not_sure_enough():
    labels, logits = drawn(1000, 3)
    assert spiegelhalter(labels, logits=3 * logits).statistic > 3
    assert spiegelhalter(labels, logits=logits / 3).statistic < -3


# ---- properties ------------------------------------------------------------------------------------------


@every_function
@given(predictions())
def test_neither_order_nor_shifts_matter(function, sample):
    labels, logits = sample
    order = np.random.default_rng(0).permutation(len(labels))
    shifted = logits + np.random.default_rng(1).integers(-5, 5, (len(labels), 1)) / 3
    found = np.atleast_1d(function(labels, logits=logits))
    assert np.atleast_1d(function(labels[order], logits=logits[order])) == pytest.approx(
        found, rel=1e-7, abs=1e-12, nan_ok=True
    )
    assert np.atleast_1d(function(labels, logits=shifted)) == pytest.approx(
        found, rel=1e-7, abs=1e-12, nan_ok=True
    )


@every_function
@given(predictions(), st.data())
def test_weights_are_repetitions(function, sample, data):
    labels, logits = sample
    n = len(labels)
    weights = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    assume(weights.any())
    repeated = np.repeat(labels, weights), np.repeat(logits, weights, axis=0)
    found = function(labels, logits=logits, sample_weight=weights)
    expected = function(repeated[0], logits=repeated[1])
    assert np.atleast_1d(found) == pytest.approx(
        np.atleast_1d(expected), rel=1e-7, abs=1e-12, nan_ok=True
    )


@pytest.mark.parametrize("function", [ks_statistic, kuiper_statistic])
def test_class_wise_is_the_mean_over_one_against_the_rest(function):
    labels, logits = drawn(200, 3, confidence=2)
    probs = softmax(logits, axis=1)
    each = [function((labels == j).astype(int), probs[:, j]) for j in range(3)]
    assert function(labels, probs, kind="class-wise") == pytest.approx(np.mean(each), rel=1e-9)


def test_soft_labels_move_the_sums_by_their_share():
    probs = np.array([[0.5, 0.5], [0.2, 0.8]])
    soft = np.array([[0.25, 0.75], [0.5, 0.5]])
    assert ks_statistic(soft, probs) == pytest.approx(max(0.25, abs(0.25 - 0.3)) / 2)
    excess = (0.75 - 0.5) * 0 + (0.5 - 0.8) * (1 - 1.6)
    deviation = math.sqrt(0.36 * 0.16)
    assert spiegelhalter(soft, probs).statistic == pytest.approx(excess / deviation)


# ---- degenerate input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", [ks_test, kuiper_test])
def test_sure_predictions(test):
    assert test([0, 1], [0.0, 1.0]) == (0, 1)
    assert test([0, 0], [0.0, 1.0]) == (math.inf, 0)


@pytest.mark.parametrize("probs", [np.full((5, 3), 1 / 3), np.full((5, 7), 1 / 7), [0.5] * 5])
def test_spiegelhalter_says_nothing_of_equally_likely_classes(probs):
    z, p_value = spiegelhalter([0, 1, 0, 1, 1], probs)
    assert math.isnan(z)
    assert math.isnan(p_value)


def test_spiegelhalter_of_sure_predictions():
    assert all(math.isnan(value) for value in spiegelhalter([0, 1], [0.0, 1.0]))
    assert spiegelhalter([0, 0], [0.0, 1.0]) == (math.inf, 0)


def test_rounding_does_not_untie():
    labels = np.arange(100) % 2
    scores = 0.5 + 1e-16 * np.arange(100) * (1 - 2 * labels)  # the last bit, against the labels
    assert ks_statistic(labels, scores) < 1e-13


@every_function
def test_one_row_and_one_class(function):
    assert np.all(np.isfinite(function([1], [0.3])))
    assert np.all(np.isfinite(function([0, 0, 0], [0.2, 0.4, 0.9])))


@every_function
def test_any_array(function):
    labels, logits = drawn(50, 3)
    probs = softmax(logits, axis=1)
    locked = np.asfortranarray(probs)
    locked.flags.writeable = False
    assert function(labels, locked) == function(labels, probs)
    single = function(labels, probs.astype(np.float32))
    assert np.atleast_1d(single) == pytest.approx(np.atleast_1d(function(labels, probs)), rel=1e-3)


@every_function
def test_impossible_classes(function):
    logits = np.array([[0.0, -np.inf, 1.0], [3.0, 0.0, -np.inf], [0.0, 1.0, 0.0]])
    assert np.all(np.isfinite(function([0, 1, 2], logits=logits)))


@every_test
def test_weights_that_sum_to_one_are_warned_of(test):
    with pytest.warns(RuntimeWarning, match="number of rows"):
        test([0, 1] * 20, [0.3, 0.8] * 20, sample_weight=np.full(40, 1 / 40))


@every_function
def test_what_is_wrong_is_said(function):
    with pytest.raises(ValueError, match="NaN"):
        function([0, 1], [0.2, math.nan])
    with pytest.raises(ValueError, match="kind is"):
        function([0, 1], [0.2, 0.7], kind="topp")


def test_tests_are_of_one_event():
    for test in (ks_test, kuiper_test):
        with pytest.raises(ValueError, match="top-label"):
            test([0, 1], [0.2, 0.7], kind="class-wise")
    with pytest.raises(ValueError, match="3 classes"):
        ks_test([0, 1], np.full((2, 3), 1 / 3), kind="binary")


def test_the_result_unpacks():
    found = rc.metrics.ks_test([0, 1], [0.2, 0.7])
    statistic, p_value = found
    assert (statistic, p_value) == (found.statistic, found.p_value)
