"""Reliability diagrams: the numbers against scikit-learn and brute force, the drawing against the numbers."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from pictures import blank, words
from scipy.special import expit, softmax
from scipy.stats import binom
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from strategies import drawn, predictions

import refinecal as rc
from refinecal.plots import ReliabilityDisplay, draw_classes, reliability_curve

ARRAYS = ("mean_score", "share", "weight", "low", "high", "histogram")
STRATEGIES = ["quantile", "uniform"]


def assert_same(one, other):
    for name in ARRAYS:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-12)
    assert math.isclose(one.ece, other.ece, abs_tol=1e-12)


# ---- the numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("n_bins", [1, 2, 10, 15])
def test_two_classes_are_as_in_scikit_learn(strategy, n_bins):
    y, logits = drawn(3000, 2, confidence=2)
    probs = expit(logits[:, 1] - logits[:, 0])
    shares, scores = calibration_curve(y, probs, n_bins=n_bins, strategy=strategy)
    found = reliability_curve(y, probs, n_bins=n_bins, strategy=strategy)
    np.testing.assert_allclose(found.mean_score, scores, rtol=1e-12)
    np.testing.assert_allclose(found.share, shares, rtol=1e-12)
    assert (found.kind, found.label) == ("binary", 1)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", ["top-label", 0, 3])
def test_several_classes_are_as_in_scikit_learn_row_by_row(kind, strategy):
    y, logits = drawn(1500, 4)
    probs = softmax(logits, axis=1)
    top = kind == "top-label"
    score = probs.max(axis=1) if top else probs[:, kind]
    event = (probs.argmax(axis=1) == y) if top else (y == kind)
    shares, scores = calibration_curve(event, score, n_bins=10, strategy=strategy)
    found = reliability_curve(y, logits=logits, kind=kind, n_bins=10, strategy=strategy)
    np.testing.assert_allclose(found.mean_score, scores, rtol=1e-12)
    np.testing.assert_allclose(found.share, shares, rtol=1e-12)
    expected = np.average(np.abs(shares - scores), weights=found.weight)
    assert math.isclose(found.ece, expected, rel_tol=1e-12)
    assert found.weight.sum() == found.histogram.sum() == len(y)


def test_the_band_holds_the_binomial_quantiles():
    y, logits = drawn(2000, 2)
    found = reliability_curve(y, logits=logits)
    for n, p, low, high in zip(found.weight, found.mean_score, found.low, found.high, strict=True):
        assert (low, high) == (binom.ppf(0.05, n, p) / n, binom.ppf(0.95, n, p) / n)


@given(st.integers(1, 10**6), st.floats(0, 1))
def test_the_band_is_that_of_scipy_for_any_bin(n, p):
    found = reliability_curve([1], [p], sample_weight=[n])
    p = found.mean_score[0]
    assert found.low[0] == binom.ppf(0.05, n, p) / n
    assert found.high[0] == binom.ppf(0.95, n, p) / n


def test_right_scores_stay_in_the_band_nine_times_out_of_ten():
    inside = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        probs = rng.random(3000)
        found = reliability_curve(rng.random(3000) < probs, probs)
        inside.append((found.low <= found.share) & (found.share <= found.high))
    assert 0.89 < np.mean(inside) < 0.96  # counts are whole numbers, so a little more than 90 %


def test_without_ties_bins_hold_equally_many_rows():
    rng = np.random.default_rng(0)
    assert (
        reliability_curve(rng.random(100) < 0.5, rng.random(100), n_bins=10).weight.tolist()
        == [10] * 10
    )
    found = reliability_curve(rng.random(107) < 0.5, rng.random(107), n_bins=10)
    assert set(found.weight) == {10, 11}


@given(predictions(), st.sampled_from(STRATEGIES), st.integers(1, 20))
def test_a_weight_of_two_is_a_row_twice_and_order_does_not_matter(sample, strategy, n_bins):
    y, logits = sample
    options = {"strategy": strategy, "n_bins": n_bins, "kind": "top-label"}
    weights = 1.0 + np.arange(len(y)) % 3
    weighted = reliability_curve(y, logits=logits, sample_weight=weights, **options)
    rows = np.repeat(np.arange(len(y)), weights.astype(int))[::-1]
    assert_same(weighted, reliability_curve(y[rows], logits=logits[rows], **options))


@given(predictions(), st.sampled_from(STRATEGIES))
def test_rows_of_weight_zero_are_gone(sample, strategy):
    y, logits = sample
    weights = np.arange(len(y)) % 2 + (len(y) == 1)
    kept = weights > 0
    found = reliability_curve(y, logits=logits, sample_weight=weights, strategy=strategy)
    assert_same(found, reliability_curve(y[kept], logits=logits[kept], strategy=strategy))


@given(predictions(), st.sampled_from(STRATEGIES))
def test_numbers_keep_their_meaning(sample, strategy):
    y, logits = sample
    found = reliability_curve(y, logits=logits, strategy=strategy)
    probs = softmax(logits, axis=1)
    binary = logits.shape[1] == 2
    score = probs[:, 1] if binary else probs.max(axis=1)
    hit = y == (1 if binary else probs.argmax(axis=1))
    assert math.isclose(
        np.average(found.mean_score, weights=found.weight), score.mean(), rel_tol=1e-9
    )
    assert math.isclose(np.average(found.share, weights=found.weight), hit.mean(), abs_tol=1e-12)
    assert (np.diff(found.mean_score) > 0).all()
    assert (found.low <= found.high).all()


def test_probabilities_and_their_logits_have_the_same_curve():
    y, logits = drawn(500, 3)
    assert_same(reliability_curve(y, softmax(logits, axis=1)), reliability_curve(y, logits=logits))


def test_soft_labels_count_in_part():
    soft = [[0.7, 0.3], [0.2, 0.8], [0.4, 0.6]]
    found = reliability_curve(soft, [0.5] * 3)
    assert math.isclose(found.share[0], (0.3 + 0.8 + 0.6) / 3)


def test_classes_go_by_their_names():
    y, logits = drawn(300, 3)
    names = np.array(["cat", "dog", "eel"])
    by_name = reliability_curve(names[y], logits=logits, kind="eel")
    assert_same(by_name, reliability_curve(y, logits=logits, kind=2))
    assert (by_name.kind, by_name.label) == ("class", "eel")
    frame = pd.DataFrame(softmax(logits, axis=1), columns=names)
    assert_same(reliability_curve(names[y], frame, kind="eel"), by_name)
    assert (
        reliability_curve(y < 1, softmax(logits[:, :2], axis=1), classes=[True, False]).label
        is False
    )


def test_scores_on_the_border_of_two_cells_belong_to_the_lower():
    found = reliability_curve([0] * 10, np.arange(1, 11) / 10, n_bins=10, strategy="uniform")
    assert found.weight.tolist() == [1] * 10
    found = reliability_curve([0, 1], [0.0, 1.0], n_bins=10, strategy="uniform")
    assert found.mean_score.tolist() == [0, 1]
    assert (found.low.tolist(), found.high.tolist()) == ([0, 1], [0, 1])
    assert found.ece == 0


def test_a_million_rows_have_equal_bins():
    rng = np.random.default_rng(0)
    probs = rng.random(1_000_000)
    y = (rng.random(1_000_000) < probs).astype(int)
    curve = reliability_curve(y, probs)
    np.testing.assert_allclose(curve.weight, 1_000_000 / 15, atol=1)
    np.testing.assert_allclose(curve.share, curve.mean_score, atol=0.01)


BAD = [
    (([], []), {}, ValueError, "probs is empty"),
    (([0, 1], [0.2, np.nan]), {}, ValueError, r"probs\[1\] is NaN"),
    (([0, 1, 1], [0.2, 0.3]), {}, ValueError, "y_true has 3 rows, but probs has 2"),
    (([0, 1], [[0.2, 0.3], [0.5, 0.5]]), {}, ValueError, r"probs\[0\] sums to 0.5"),
    (([0, 1], [0.2, 0.3]), {"n_bins": 0}, ValueError, "n_bins is 0"),
    (([0, 1], [0.2, 0.3]), {"n_bins": 2.5}, ValueError, "n_bins is 2.5"),
    (([0, 1], [0.2, 0.3]), {"strategy": "quantiles"}, ValueError, "Did you mean 'quantile'"),
    (([0, 1], [0.2, 0.3]), {"kind": 2}, ValueError, "kind is 2: it must be .* classes 0, 1"),
    (([0, 1], np.eye(3)[:2]), {"kind": "binary"}, ValueError, "but there are 3 classes"),
    (([0, 1],), {}, TypeError, "pass either probs or logits="),
]


@pytest.mark.parametrize(("args", "options", "error", "match"), BAD)
def test_bad_input_is_refused_with_the_reason(args, options, error, match):
    with pytest.raises(error, match=match):
        reliability_curve(*args, **options)
    with pytest.raises(error, match=match):
        ReliabilityDisplay.from_predictions(*args, **options, ax=blank())


# ---- the drawing -----------------------------------------------------------------------------------------


def test_what_is_drawn_is_the_curve():
    y, logits = drawn(1000, 2, confidence=2)
    curve = reliability_curve(y, logits=logits, strategy="uniform")
    display = ReliabilityDisplay.from_predictions(y, logits=logits, strategy="uniform", ax=blank())
    assert display.lines_["before"].get_xdata().tolist() == curve.mean_score.tolist()
    assert display.lines_["before"].get_ydata().tolist() == curve.share.tolist()
    points = display.points_["before"]
    assert (
        points.get_offsets().tolist() == np.stack([curve.mean_score, curve.share], axis=1).tolist()
    )
    heaviest = curve.weight.argmax()
    assert points.get_sizes().argmax() == heaviest
    (outline,) = display.bands_["before"].get_paths()
    corners = {tuple(corner) for corner in outline.vertices.tolist()}
    assert set(zip(curve.mean_score, curve.low, strict=True)) <= corners
    assert set(zip(curve.mean_score, curve.high, strict=True)) <= corners
    assert [text.get_text() for text in display.legend_.get_texts()] == [
        f"predictions: ECE {curve.ece:.4f}",
        "90% range if calibrated",
    ]


def test_the_strip_shows_how_many_scores_lie_where():
    y, logits = drawn(1000, 2)
    probs = expit(logits[:, 1] - logits[:, 0])
    display = ReliabilityDisplay.from_predictions(y, probs, ax=blank())
    tops, edges, floor = display.strips_["before"].get_data()
    expected, cells = np.histogram(probs, 20, (0, 1))
    np.testing.assert_allclose(edges, cells)
    np.testing.assert_allclose((tops - floor) / (tops - floor).max(), expected / expected.max())
    assert tops.max() < 0  # below the diagram
    assert floor > display.ax_.get_ylim()[0]


@pytest.mark.parametrize("k", [2, 3])
def test_a_calibrator_and_its_probabilities_draw_the_same(k):
    y, logits = drawn(1000, k, confidence=3)
    calibrator = rc.TemperatureScaling().fit_logits(logits, y)
    probs = calibrator.predict_proba_logits(logits)
    by_map = ReliabilityDisplay.from_predictions(
        y, logits=logits, calibrated=calibrator, ax=blank()
    )
    by_values = ReliabilityDisplay.from_predictions(y, logits=logits, calibrated=probs, ax=blank())
    assert_same(by_map.curves["after"], by_values.curves["after"])
    assert_same(by_map.curves["after"], reliability_curve(y, probs))
    assert by_map.curves["after"].ece < by_map.curves["before"].ece
    said = [text.get_text() for text in by_map.legend_.get_texts()]
    assert [text.split(":")[0] for text in said[:2]] == ["before calibration", "after calibration"]


def test_any_object_with_predict_proba_calibrates():
    y, logits = drawn(400, 3)
    probs = softmax(logits, axis=1)
    model = LogisticRegression().fit(probs, y)
    display = ReliabilityDisplay.from_predictions(y, probs, calibrated=model, ax=blank())
    assert_same(display.curves["after"], reliability_curve(y, model.predict_proba(probs)))


def test_columns_of_calibrated_probabilities_go_by_their_names():
    y, logits = drawn(300, 3)
    names = np.array(["cat", "dog", "eel"])
    probs = softmax(logits, axis=1)
    swapped = pd.DataFrame(probs, columns=names)[["eel", "cat", "dog"]]
    display = ReliabilityDisplay.from_predictions(
        names[y], probs, calibrated=swapped, classes=names, ax=blank()
    )
    assert_same(display.curves["before"], display.curves["after"])


@pytest.mark.parametrize(
    ("calibrated", "match"),
    [
        ([0.5], r"calibrated has shape \(1, 2\), but the predictions have \(2, 2\)"),
        ([0.5, np.nan], r"calibrated: probs\[1\] is NaN"),
        ([0.5, 2.0], "calibrated: .* not a probability"),
    ],
)
def test_bad_calibrated_probabilities_are_refused(calibrated, match):
    with pytest.raises(ValueError, match=match):
        ReliabilityDisplay.from_predictions([0, 1], [0.2, 0.3], calibrated=calibrated, ax=blank())


@pytest.mark.parametrize(
    ("options", "across", "up"),
    [
        ({}, "confidence", "accuracy"),
        ({"kind": "dog"}, "probability of class 'dog'", "share of class 'dog'"),
    ],
)
def test_axes_say_what_they_show(options, across, up):
    y, logits = drawn(50, 3)
    names = np.array(["cat", "dog", "eel"])
    display = ReliabilityDisplay.from_predictions(names[y], logits=logits, **options, ax=blank())
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == (across, up)


def test_one_class_only_in_the_labels_is_drawn():
    display = ReliabilityDisplay.from_predictions([1, 1, 1], [0.2, 0.4, 0.9], ax=blank())
    assert display.curves["before"].share.tolist() == [1, 1, 1]
    display.figure_.draw_without_rendering()


def test_without_axes_it_makes_a_figure():
    import matplotlib.pyplot as plt

    display = ReliabilityDisplay.from_predictions([0, 1], [0.2, 0.9], name="mine")
    assert plt.get_fignums() == [display.figure_.number]
    assert display.legend_.get_texts()[0].get_text() == "mine: ECE 0.1500"
    plt.close(display.figure_)


# ---- one diagram for each class --------------------------------------------------------------------------


def test_every_class_has_its_diagram_in_the_order_of_classes():
    y, logits = drawn(900, 4)
    y[:300] = 2
    figure = Figure(figsize=(7, 4))
    displays = draw_classes(figure, y, logits=logits)
    labels = [display.curves["before"].label for display in displays]
    assert labels == [0, 1, 2, 3]
    assert [display.ax_ for display in displays] == figure.axes
    for display, label in zip(displays, labels, strict=True):
        expected = reliability_curve(y, logits=logits, kind=label, n_bins=10, strategy="uniform")
        assert_same(display.curves["before"], expected)
        assert display.ax_.get_title() == f"{label}\n{expected.ece:.3f}"


def test_of_many_classes_twelve_are_drawn_and_it_says_so():
    y, logits = drawn(600, 26)
    figure = Figure(figsize=(7, 4))
    displays = draw_classes(figure, y, logits=logits, calibrated=softmax(logits, axis=1))
    frequent = np.argsort(-np.bincount(y, minlength=26), kind="stable")[:12]
    assert [display.curves["before"].label for display in displays] == sorted(frequent)
    assert any("12 most frequent of 26 classes" in text.get_text() for text in words(figure))


def test_classes_fit_into_a_part_of_a_figure():
    y, logits = drawn(100, 3)
    figure = Figure(figsize=(8, 4))
    left, right = figure.subfigures(1, 2)
    displays = draw_classes(left, y, logits=logits)
    assert [display.figure_ for display in displays] == [figure] * 3
    assert not right.axes
