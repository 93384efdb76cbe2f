"""Smooth ECE against its definition, summed directly with all reflections, and by its properties."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtr, softmax
from strategies import drawn

import refinecal as rc
from refinecal.metrics.smoothing import (
    CELLS,
    FINEST,
    Masses,
    Smoothed,
    fixed_point,
)

smooth_ece = rc.metrics.smooth_ece


class Direct:
    """Masses smoothed by the definition: Gaussians around all mirror images, no cosine in sight."""

    def __init__(self, places, masses):
        self.places, self.masses = np.asarray(places, float), np.asarray(masses, float)

    def _images(self, width):
        turns = np.arange(-2 - math.ceil(5 * width), 3 + math.ceil(5 * width))
        images = [sign * self.places + 2 * turn for turn in turns for sign in (1, -1)]
        return np.concatenate(images), np.tile(self.masses, 2 * len(turns))

    def density(self, t, width):
        images, masses = self._images(width)
        scaled = (np.asarray(t)[:, None] - images) / width
        return np.exp(-(scaled**2) / 2) @ masses / (width * math.sqrt(2 * math.pi))

    def integral(self, t, width):
        images, masses = self._images(width)
        below = ndtr((np.asarray(t)[:, None] - images) / width) - ndtr(-images / width)
        return below @ masses

    def size(self, width):
        """Integrate the absolute density exactly between its zeros, which bisection finds."""
        nodes = np.linspace(0, 1, math.ceil(16 / width) + 1)
        values = self.density(nodes, width)
        turns = np.flatnonzero(values[:-1] * values[1:] < 0)
        low, high = nodes[turns], nodes[turns + 1]
        for _ in range(30 if turns.size else 0):
            middle = (low + high) / 2
            same = self.density(middle, width) * values[turns] > 0
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        places = np.sort(np.r_[nodes, low])
        return np.abs(np.diff(self.integral(places, width))).sum()

    def fixed_point(self):
        least, most = 0.01 + 0.9 * abs(self.masses.sum()), np.abs(self.masses).sum()
        return brentq(lambda w: self.size(w) - w, least, most * 1.01, xtol=1e-13)


def drawn_scores(n, seed, ends=False):
    rng = np.random.default_rng(seed)
    scores = rng.random(n)
    if ends:
        scores[::3], scores[1::3] = 0, 1
    return scores, (rng.random(n) < 0.5).astype(float)


# ---- against the definition ------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [0.0021, 0.01, 0.07, 0.4, 1.0])
@pytest.mark.parametrize(("n", "ends"), [(1, False), (6, True), (40, False)])
def test_the_smoothed_size_is_that_of_the_definition(width, n, ends):
    scores, hits = drawn_scores(n, n, ends)
    masses = (hits - scores) / n
    expected = Direct(scores, masses).size(width)
    assert Smoothed(Masses(scores, masses), 2048).size(width) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_the_value_is_the_fixed_point_of_the_definition(seed):
    scores, hits = drawn_scores(5 + 6 * seed, seed, ends=seed % 2 == 0)
    expected = Direct(scores, (hits - scores) / len(hits)).fixed_point()
    assert smooth_ece(hits.astype(int), scores) == pytest.approx(expected, rel=1e-6)


def test_cosines_of_many_rows_are_the_plain_sums():
    rng = np.random.default_rng(0)
    scores, masses = rng.random(3000), rng.standard_normal(3000) / 3000
    found = Smoothed(Masses(scores, masses), 2048).cosines
    for m in (0, 1, 2, 30, 300):
        exact = np.cos(np.pi * m * scores) @ masses
        assert found[m] == pytest.approx(exact, abs=1e-9)


def test_a_small_value_is_found_on_the_finer_cells():
    middle = 0.5 + np.array([-1, 1]) * 2e-6  # opposite residuals, so close that they nearly cancel
    masses = np.array([-0.25, 0.25])
    # Smoothed with s, they leave two bumps of sizes 0.25 * 4e-6 / s * phi(0) each; the fixed point is:
    expected = math.sqrt(2 * 0.25 * 4e-6 / math.sqrt(2 * math.pi))
    assert expected < FINEST / CELLS[0]
    assert fixed_point(Masses(middle, masses)) == pytest.approx(expected, rel=1e-5)


def test_below_the_resolution_the_value_is_no_larger_than_the_truth():
    middle = 0.5 + np.array([-1, 1]) * 2e-10
    expected = math.sqrt(2 * 0.25 * 4e-10 / math.sqrt(2 * math.pi))
    assert expected < FINEST / CELLS[1]
    assert 0 <= fixed_point(Masses(middle, np.array([-0.25, 0.25]))) < expected


# ---- known values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("label", "p"), [(0, 0.3), (1, 0.3), (1, 0.0), (0, 1.0), (1, 1 - 1e-12)])
def test_one_row(label, p):
    assert smooth_ece([label], [p]) == pytest.approx(abs(label - p), rel=1e-9, abs=1e-16)


def test_one_sided_errors_do_not_depend_on_the_bandwidth():
    scores = np.random.default_rng(0).random(50)
    assert smooth_ece(np.zeros(50, int), scores) == pytest.approx(scores.mean(), rel=1e-12)


@pytest.mark.parametrize("labels", [[0, 1], [0, 0], [1, 0], [1, 1]])
def test_sure_predictions(labels):
    wrong = np.array(labels) - np.array([0, 1])
    found = smooth_ece(labels, [0.0, 1.0])
    if wrong.any():
        assert found == pytest.approx(Direct([0.0, 1.0], wrong / 2).fixed_point(), rel=1e-6)
    else:
        assert found == 0


def test_frequencies_that_are_met_exactly_cost_nothing():
    labels, scores = [0, 0, 0, 1, 0, 1, 1, 1], [0.25] * 4 + [0.75] * 4
    assert smooth_ece(labels, scores) < 1e-15


def test_calibrated_predictions_have_less_the_more_rows_there_are():
    rng = np.random.default_rng(0)
    values = []
    for n in (1000, 100_000):
        scores = rng.random(n)
        values.append(smooth_ece((rng.random(n) < scores).astype(int), scores))
    # The noise of a smoothed residual is of order (n * s)^(-1/2), so the fixed point falls as n^(-1/3).
    assert 2 < values[0] / values[1] < 10
    assert values[1] < 0.02


# ---- properties ------------------------------------------------------------------------------------------


@st.composite
def scored(draw):
    n = draw(st.integers(1, 12))
    scores = draw(st.lists(st.integers(0, 16), min_size=n, max_size=n))
    labels = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    return np.array(labels), np.array(scores) / 16


@given(scored())
def test_between_the_mean_and_the_mean_absolute_residual(sample):
    labels, scores = sample
    gaps = labels - scores
    found = smooth_ece(labels, scores)
    assert abs(gaps.mean()) - 1e-12 <= found <= np.abs(gaps).mean() * (1 + 1e-9) + 1e-12


@given(scored(), st.data())
def test_weights_are_repetitions_and_order_does_not_matter(sample, data):
    labels, scores = sample
    n = len(labels)
    weights = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    assume(weights.any())
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(n), weights))
    found = smooth_ece(labels, scores, sample_weight=weights)
    assert found == pytest.approx(smooth_ece(labels[rows], scores[rows]), rel=1e-9, abs=1e-14)
    half = smooth_ece(labels, scores, sample_weight=0.5 * weights)
    assert half == pytest.approx(found, rel=1e-9, abs=1e-14)


@given(scored())
def test_naming_the_classes_the_other_way_changes_nothing(sample):
    labels, scores = sample
    found = smooth_ece(1 - labels, 1 - scores)
    assert found == pytest.approx(smooth_ece(labels, scores), rel=1e-9, abs=1e-14)


@given(scored())
def test_a_small_move_changes_little(sample):
    labels, scores = sample
    moved = np.clip(scores + 1e-7 * np.resize([1, -1], len(scores)), 0, 1)
    # The residual mass that moves by d changes the size by about d / s, and the value by less than its root.
    assert abs(smooth_ece(labels, moved) - smooth_ece(labels, scores)) < 1e-3


def test_the_size_never_grows_with_the_bandwidth():
    scores, hits = drawn_scores(200, 1)
    smoothed = Smoothed(Masses(scores, hits, shift=1.0, total=200.0), 2048)
    sizes = [smoothed.size(width) for width in np.geomspace(0.002, 1, 30)]
    assert np.all(np.diff(sizes) <= 1e-9)


# ---- several classes, and any kind of input --------------------------------------------------------------


def test_kinds_are_binary_errors_of_each_problem():
    labels, logits = drawn(300, 4, confidence=2)
    probs = softmax(logits, axis=1)
    top = probs.argmax(axis=1)
    expected = smooth_ece((labels == top).astype(int), probs.max(axis=1))
    assert smooth_ece(labels, probs) == pytest.approx(expected, rel=1e-9)
    assert smooth_ece(labels, logits=logits) == pytest.approx(expected, rel=1e-9)
    each = [smooth_ece((labels == j).astype(int), probs[:, j]) for j in range(4)]
    assert smooth_ece(labels, probs, kind="class-wise") == pytest.approx(np.mean(each), rel=1e-9)


def test_soft_labels_are_weighted_labels():
    scores = np.array([0.2, 0.5, 0.9])
    shares = np.array([0.5, 0.25, 1.0])
    soft = np.stack([1 - shares, shares], axis=1)
    rows = np.repeat(np.arange(3), 2)
    expected = smooth_ece([0, 1] * 3, scores[rows], sample_weight=soft.ravel())
    probs = np.stack([1 - scores, scores], axis=1)
    assert smooth_ece(soft, probs) == pytest.approx(expected, rel=1e-9)


def test_any_array():
    labels, logits = drawn(80, 3)
    probs = softmax(logits, axis=1)
    expected = smooth_ece(labels, probs)
    locked = probs.copy()
    locked.flags.writeable = False
    wide = np.zeros((80, 6))
    wide[:, ::2] = probs
    for given_ in (
        locked,
        np.asfortranarray(probs),
        wide[:, ::2],
        pd.DataFrame(probs),
        probs.tolist(),
    ):
        assert smooth_ece(labels, given_) == expected
    assert smooth_ece(labels, probs.astype(np.float32)) == pytest.approx(expected, rel=1e-4)


def test_impossible_classes():
    logits = np.array([[0.0, -np.inf, 1.0], [3.0, 0.0, -np.inf], [0.0, 0.0, 0.0]])
    probs = softmax(logits, axis=1)
    found = smooth_ece([0, 1, 2], logits=logits)
    assert found == pytest.approx(smooth_ece([0, 1, 2], probs), rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0, 1], [0.2, math.nan]), "NaN"),
        (([0, 1], [0.2, 1.2]), "not a probability"),
        (([0, 1, 1], [0.2, 0.7]), "rows"),
        (([0, 1], [[0.2, 0.2], [0.5, 0.5]]), "sums to"),
    ],
)
def test_what_is_wrong_is_said(arguments, words):
    with pytest.raises(ValueError, match=words):
        smooth_ece(*arguments)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="top-label"):
        smooth_ece([0, 1], [0.2, 0.7], kind="top")
    with pytest.raises(ValueError, match="3 classes"):
        smooth_ece([0, 1], np.full((2, 3), 1 / 3), kind="binary")
