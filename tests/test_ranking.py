"""Areas under ROC curves: pairs counted one by one, and what must not change them."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import logsumexp, softmax
from sklearn.metrics import roc_auc_score
from strategies import drawn, predictions

from refinecal._core.sample import Sample, readonly
from refinecal.metrics.tally import areas_of, compute_areas, mean_area

SEEDS = st.integers(0, 10_000)


def of_probs(labels, probs, weights=None):
    rest = np.sort(probs, axis=1)[:, :-1].sum(axis=1)
    columns = np.ascontiguousarray(probs.T)
    sample = Sample(labels, columns.T, weights)
    return compute_areas(readonly(columns), readonly(rest), 0.0, sample)


def of_logits(labels, logits, weights=None, soft=None):
    return areas_of(Sample(labels, np.ascontiguousarray(logits), weights, soft))


def odds_of(logits):
    """Return log-odds in extended precision."""
    exact = logits.astype(np.longdouble)
    with np.errstate(invalid="ignore"):
        rest = [logsumexp(np.delete(exact, j, axis=1), axis=1) for j in range(exact.shape[1])]
    return (exact - np.stack(rest, axis=1)).astype(np.float64)


def pairs_in_order(scores, own, others, width=0.0):
    """Return the share of pairs in the right order, one by one; those within the width are one half."""
    with np.errstate(invalid="ignore"):
        gaps = scores[:, None] - scores[None, :]
    gaps[np.isnan(gaps)] = 0  # both infinite
    wins = np.where(np.abs(gaps) <= width, 0.5, gaps > 0)
    pairs = own.sum() * others.sum()
    return float(own @ wins @ others / pairs) if pairs > 0 else math.nan


def areas_by_pairs(labels, scores, weights=None, soft=None, width=0.0):
    k = scores.shape[1]
    shares = np.eye(k)[labels] if soft is None else soft
    weights = np.ones(len(labels)) if weights is None else weights
    masses = [(weights * shares[:, j], weights * (1 - shares[:, j])) for j in range(k)]
    return np.array([pairs_in_order(scores[:, j], *masses[j], width) for j in range(k)])


def close(found, expected, tolerance=1e-12):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


# ---- pairs counted one by one ----------------------------------------------------------------------------


@given(predictions(max_rows=30), st.booleans(), SEEDS)
def test_areas_of_count_pairs(sample, use_weights, seed):
    labels, logits = sample  # small whole numbers: rounding alone separates many log-odds
    weights = np.random.default_rng(seed).integers(0, 3, len(labels)) + 0.0 if use_weights else None
    expected = areas_by_pairs(labels, odds_of(logits), weights, width=1e-9)
    for dtype in (np.float32, np.float64):
        close(of_logits(labels, logits.astype(dtype), weights), expected)


@given(SEEDS, st.sampled_from([2, 3, 6]), st.booleans())
def test_areas_of_soft_labels_count_pairs(seed, k, use_weights):
    rng = np.random.default_rng(seed)
    soft = np.where(rng.random((40, 1)) < 0.5, np.eye(k)[rng.integers(k, size=40)], 1 / k)
    logits, weights = rng.integers(-2, 3, (40, k)) + 0.0, rng.random(40) if use_weights else None
    expected = areas_by_pairs(soft.argmax(axis=1), odds_of(logits), weights, soft, width=1e-9)
    close(of_logits(soft.argmax(axis=1), logits, weights, soft), expected)


@given(SEEDS, st.sampled_from([2, 3, 6]), st.sampled_from([1, 2, 9]), st.booleans())
def test_areas_of_probabilities_count_pairs(seed, k, digits, use_weights):
    labels, logits = drawn(60, k, seed)
    probs = np.floor(softmax(logits, axis=1) * 10**digits) / 2**40  # equal ones are exactly equal
    weights = readonly(np.random.default_rng(seed).random(60)) if use_weights else None
    close(of_probs(labels, probs, weights), areas_by_pairs(labels, probs, weights))


@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_without_ties_all_is_as_in_scikit_learn(k, dtype):
    labels, logits = drawn(3000, k, seed=k)
    logits = logits.astype(dtype)
    odds, weights = odds_of(logits), np.random.default_rng(0).random(3000)
    for given_weights in (None, weights):
        expected = [
            roc_auc_score(labels == j, odds[:, j], sample_weight=given_weights) for j in range(k)
        ]
        close(
            of_logits(labels, logits, given_weights),
            expected,
            1e-6 if dtype == np.float32 else 1e-12,
        )


# ---- ties by rounding ------------------------------------------------------------------------------------


def area_by_runs(scores, rounding, own):
    """Return the area with ties by rounding as they are defined: runs of all rows in order, none left out."""
    order = np.argsort(scores)
    scores, rounding, own = scores[order], rounding[order], own[order]
    breaks = np.diff(scores) > np.minimum(rounding[1:], rounding[:-1])
    ranks = np.arange(len(scores), dtype=float)
    for run in np.split(np.arange(len(scores)), np.flatnonzero(breaks) + 1):
        if scores[run[-1]] - scores[run[0]] <= rounding[run].min():
            ranks[run] = run[0]
    return roc_auc_score(own, ranks)


def are_far(odds):
    """Tell which rows to keep so that no two scores are equal up to the last bits."""
    keep = np.ones(len(odds), bool)
    for column in odds.T:
        order = np.argsort(column)
        keep[order[1:][np.diff(column[order]) < 1e-12]] = False
    return keep


@given(SEEDS, st.sampled_from([2, 3, 5]), st.sampled_from([1e-3, 0.1, 3.0]), st.booleans())
def test_ties_by_rounding_are_runs_of_neighbors(seed, k, spread, heavy):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(1200) % k
    logits = spread * (np.eye(k)[labels] + rng.normal(size=(1200, k)))
    logits += (
        50 * rng.standard_cauchy((1200, 1)) if heavy else 50.0
    )  # rounding as different as rows
    logits = logits.astype(np.float32)
    far = are_far(odds_of(logits))
    labels, logits = labels[far], logits[far]
    rounding = 1e-6 * np.abs(logits).max(axis=1).astype(np.float64)
    rounding = rounding if k == 2 else np.maximum(rounding, 1e-13)
    odds, found = odds_of(logits), of_logits(labels, logits)
    areas = [area_by_runs(odds[:, j], rounding, labels == j) for j in range(k)]
    close(found, [areas[1]] * 2 if k == 2 else areas)


@given(SEEDS)
def test_rows_of_equal_log_odds_tie_however_they_are_shifted(seed):
    rng = np.random.default_rng(seed)
    labels, rows = rng.integers(3, size=300), rng.normal(size=(7, 3))
    logits = rows[rng.integers(7, size=300)]
    shifted = logits + rng.normal(size=(300, 1))
    close(of_logits(labels, shifted), areas_by_pairs(labels, odds_of(logits), width=1e-9))


# ---- what must not change areas --------------------------------------------------------------------------


@given(SEEDS, st.sampled_from([2, 3, 6]), st.sampled_from([np.float32, np.float64]))
def test_the_order_of_rows_does_not_matter(seed, k, dtype):
    rng = np.random.default_rng(seed)
    labels, logits = drawn(500, k, seed)
    logits = np.round(logits, rng.integers(0, 5)).astype(dtype) * dtype(rng.choice([1e-3, 1, 30]))
    order = rng.permutation(500)
    np.testing.assert_array_equal(
        of_logits(labels[order], logits[order]), of_logits(labels, logits)
    )
    probs = softmax(logits.astype(np.float64), axis=1)
    np.testing.assert_array_equal(of_probs(labels[order], probs[order]), of_probs(labels, probs))


@given(SEEDS, st.sampled_from([3, 6]))
def test_the_order_of_classes_does_not_matter(seed, k):
    labels, logits = drawn(300, k, seed)
    order = np.random.default_rng(seed).permutation(k)
    close(of_logits(np.argsort(order)[labels], logits[:, order]), of_logits(labels, logits)[order])


@given(SEEDS, st.sampled_from([np.arctan, np.cbrt, np.sinh, lambda z: 1e-9 * z, lambda z: 1e9 * z]))
def test_monotone_maps_change_nothing(seed, function):
    rng = np.random.default_rng(seed)
    labels, odds = rng.integers(2, size=200), rng.integers(-40, 40, 200) / 4
    logits, mapped = (
        np.stack([0 * odds, odds], axis=1),
        np.stack([0 * odds, function(odds)], axis=1),
    )
    np.testing.assert_array_equal(of_logits(labels, mapped), of_logits(labels, logits))


@given(predictions(max_rows=25), SEEDS)
def test_weights_are_repetitions(sample, seed):
    labels, logits = sample
    times = np.random.default_rng(seed).integers(0, 4, len(labels))
    assume(times.any())
    rows = np.repeat(np.arange(len(labels)), times)
    close(of_logits(labels, logits, times + 0.0), of_logits(labels[rows], logits[rows]))
    probs = softmax(logits, axis=1)
    weighted = of_probs(labels, probs, readonly(times + 0.0))
    close(weighted, of_probs(labels[rows], probs[rows]))


@given(predictions(max_classes=2, max_rows=40))
def test_of_two_classes_either_may_be_the_first(sample):
    labels, logits = sample
    close(of_logits(1 - labels, np.ascontiguousarray(logits[:, ::-1])), of_logits(labels, logits))
    close(of_logits(1 - labels, logits), 1 - of_logits(labels, logits))


@given(SEEDS, st.sampled_from([2, 3, 10]), st.sampled_from([0.1, 1.0, 8.0]))
def test_logits_and_their_probabilities_have_the_same_areas(seed, k, confidence):
    labels, logits = drawn(400, k, seed, confidence=confidence)
    close(of_logits(labels, logits), of_probs(labels, softmax(logits, axis=1)))


@given(SEEDS, st.sampled_from([2, 4]))
def test_hard_labels_are_soft_labels_of_one_class(seed, k):
    labels, logits = drawn(300, k, seed)
    close(of_logits(labels, logits, soft=np.eye(k)[labels]), of_logits(labels, logits))


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_nothing(threads):
    labels, logits = drawn(2**18 + 5, 9)
    areas = areas_of(Sample(labels, logits), threads)
    np.testing.assert_array_equal(areas, areas_of(Sample(labels, logits)))


def test_arrays_may_be_read_only():
    labels, logits = drawn(50, 3)
    expected = of_logits(labels, logits, np.ones(50))
    found = of_logits(readonly(labels), readonly(logits), readonly(np.ones(50)))
    np.testing.assert_array_equal(found, expected)


# ---- extremes --------------------------------------------------------------------------------------------


@given(SEEDS, st.sampled_from([3, 5]), st.sampled_from([np.float32, np.float64]))
def test_impossible_classes_are_below_all_others(seed, k, dtype):
    rng = np.random.default_rng(seed)
    labels, logits = rng.integers(k, size=60), rng.integers(-2, 3, (60, k)).astype(dtype)
    logits[rng.random((60, k)) < 0.4] = -np.inf
    logits[np.arange(60), rng.integers(k, size=60)] = 0  # something is possible
    close(of_logits(labels, logits), areas_by_pairs(labels, odds_of(logits), width=1e-9))


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1.0, 1e9, 1e300])
def test_two_classes_are_told_apart_at_every_scale_at_once(scale):
    odds = scale * np.array([-1.0, -1e-8, 0.0, 1e-8, 1.0])
    logits = np.stack([np.zeros(5), odds], axis=1)
    assert of_logits(np.array([0, 1, 0, 1, 1]), logits)[1] == 5 / 6


@pytest.mark.parametrize("gap", [1.0, 30.0, 300.0, 600.0, 1e4, 1e8])
def test_the_surest_predictions_are_told_apart(gap):
    logits = np.array([[0, -gap, -2 * gap], [0, -1.1 * gap, -2 * gap], [0, -1.2 * gap, -2 * gap]])
    labels = np.array([1, 0, 2])
    assert of_logits(labels, logits)[0] == 0.5  # above one row, below the other
    assert of_logits(np.array([1, 2, 0]), logits)[0] == 1.0


@pytest.mark.parametrize("k", [2, 3, 200])
@pytest.mark.parametrize("value", [0.0, -800.0, 1e30])
def test_equal_rows_tie(k, value):
    labels = np.arange(400) % k
    areas = of_logits(labels, np.full((400, k), value))
    np.testing.assert_array_equal(areas, np.full(k, 0.5))


def test_classes_without_pairs_have_no_area():
    labels, logits = np.array([0, 2, 0, 2]), drawn(4, 4)[1]
    assert np.isnan(of_logits(labels, logits)).tolist() == [False, True, False, True]
    assert np.isnan(of_logits(np.zeros(4, int), logits)).all()
    assert np.isnan(of_logits(labels, logits, np.array([1.0, 0, 1, 0]))).all()
    assert math.isnan(mean_area(of_logits(np.ones(4, int), logits[:, :2].copy())))


def test_the_mean_leaves_out_classes_without_an_area():
    assert mean_area(np.array([0.5, math.nan, 1.0])) == 0.75
    assert mean_area(np.array([0.25, 0.75])) == 0.75  # of two, the second
    assert math.isnan(mean_area(np.full(3, math.nan)))
