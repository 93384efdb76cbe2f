"""One rule for the bins of probabilities: errors, evaluations and diagrams agree, also at the borders."""

from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from strategies import examples

import refinecal as rc
from refinecal.calibrators.binning import HistogramBinning, _bins, quantile_edges
from refinecal.evaluation import evaluate
from refinecal.metrics.bins import bin_numbers
from refinecal.plots import ReliabilityDisplay, draw_classes, reliability_curve

pytestmark = pytest.mark.filterwarnings(
    "ignore:the log loss is infinite"
)  # labels of probability 0
DTYPES = [np.float32, np.float64]
SINGLE = float(np.finfo(np.float32).eps)
AGREE = 1e-15


@st.composite
def forecasts(draw):
    """Labels and weights, and the numerators of probabilities that are multiples of 1/m."""
    n, k, m = draw(st.integers(1, 30)), draw(st.integers(2, 5)), draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    cuts = np.sort(rng.integers(0, m + 1, (n, k - 1)), axis=1)
    numerators = np.diff(cuts, axis=1, prepend=0, append=m)
    weights = draw(st.sampled_from([None, np.arange(n) % 4 + 1, 0.1 + rng.random(n)]))
    return rng.integers(0, k, n), numerators, m, weights


def exact_bins(numerators, m, n_bins):
    """Return ceil(j * n_bins / m) - 1, and 0 for j = 0."""
    return [max(ceil(Fraction(int(j) * n_bins, m)) - 1, 0) for j in numerators]


def exact_middles(numerators, weights, n_bins):
    """Return the bin of equal mass of each row: that of the middle of the mass of all its equals."""
    weights = [Fraction(float(w)) for w in weights]
    pairs = list(zip(numerators.tolist(), weights, strict=True))
    below = [sum((w for i, w in pairs if i < j), Fraction(0)) for j, _ in pairs]
    own = [sum(w for i, w in pairs if i == j) for j, _ in pairs]
    total = sum(weights)
    return [int((b + o / 2) * n_bins / total) for b, o in zip(below, own, strict=True)]


def exact_error(scores, hits, weights, bins):
    """Return the mean distance of scores and hits over bins, in fractions."""
    gaps = {}
    for score, hit, weight, b in zip(scores, hits, weights, bins, strict=True):
        gaps[b] = gaps.get(b, 0) + Fraction(float(weight)) * (score - int(hit))
    return float(sum(map(abs, gaps.values())) / sum(Fraction(float(w)) for w in weights))


def events(labels, numerators):
    """Return the numerators and hits of every event that diagrams show, by their kind."""
    rows, top = np.arange(len(labels)), numerators.argmax(axis=1)
    found = {j: (column, labels == j) for j, column in enumerate(numerators.T)}
    return found | {"top-label": (numerators[rows, top], labels == top)}


# ---- everything agrees -----------------------------------------------------------------------------------


@given(
    forecasts(),
    st.integers(1, 40),
    st.sampled_from(DTYPES),
    st.sampled_from(["uniform", "quantile"]),
)
def test_errors_and_diagrams_are_those_of_exact_fractions(sample, n_bins, dtype, strategy):
    labels, numerators, m, weights = sample
    probs = (numerators / m).astype(dtype)
    options = {"n_bins": n_bins, "strategy": strategy, "sample_weight": weights}
    each = np.ones(len(labels)) if weights is None else weights
    errors = {}
    for kind, (own, hits) in events(labels, numerators).items():
        uniform = strategy == "uniform"
        bins = exact_bins(own, m, n_bins) if uniform else exact_middles(own, each, n_bins)
        curve = reliability_curve(labels, probs, kind=kind, **options)
        mass = np.bincount(bins, each, n_bins)
        np.testing.assert_allclose(curve.weight, mass[mass > 0], rtol=1e-12)
        expected = exact_error([Fraction(int(j), m) for j in own], hits, each, bins)
        assert curve.ece == pytest.approx(expected, abs=SINGLE if dtype == np.float32 else AGREE)
        errors[kind] = curve.ece
    assert rc.metrics.ece(labels, probs, kind="top-label", **options) == errors.pop("top-label")
    by_class = rc.metrics.ece(labels, probs, kind="class-wise", **options)
    assert by_class == pytest.approx(np.mean(list(errors.values())), abs=AGREE)


@examples(25)
@given(forecasts(), st.sampled_from(DTYPES), st.booleans())
def test_evaluation_metric_and_diagram_say_the_same(sample, dtype, one_column):
    labels, numerators, m, weights = sample
    probs = (numerators / m).astype(dtype)
    if one_column:
        labels, probs = np.minimum(labels, 1), probs[:, 1]
    about = {"sample_weight": weights}
    found = evaluate(labels, probs, **about)
    figure = Figure()
    display = ReliabilityDisplay.from_predictions(
        labels, probs, **about, calibrated=probs, strategy="uniform", ax=figure.add_subplot()
    )
    shown = [curve.ece for curve in display.curves.values()]
    parts = [
        getattr(rc.metrics, f"{p}confidence")(labels, probs, **about) for p in ("over", "under")
    ]
    assert [rc.metrics.ece(labels, probs, **about)] * 2 == shown
    assert [found.ece, sum(parts)] == pytest.approx(shown, abs=AGREE)
    assert [found.overconfidence, found.underconfidence] == pytest.approx(parts, abs=AGREE)
    assert f"ECE {shown[0]:.4f}" in display.legend_.get_texts()[0].get_text()
    for one in found.per_class:
        own = reliability_curve(labels, probs, **about, kind=one.label, strategy="uniform").ece
        assert one.ece == pytest.approx(own, abs=AGREE)


@given(forecasts(), st.integers(1, 40), st.sampled_from(["uniform", "quantile"]))
def test_both_precisions_and_any_order_of_rows_have_the_same_bins(sample, n_bins, strategy):
    _, numerators, m, weights = sample
    weights = np.empty(0) if weights is None else weights.astype(float)
    for scores in (numerators[:, 0] / m, np.random.default_rng(m).random(len(numerators))):
        found = bin_numbers(scores, n_bins, strategy, weights)
        single = scores.astype(np.float32).astype(float)
        np.testing.assert_array_equal(bin_numbers(single, n_bins, strategy, weights), found)
        turned = bin_numbers(scores[::-1].copy(), n_bins, strategy, weights[::-1].copy())
        np.testing.assert_array_equal(turned[::-1], found)


def test_the_grid_of_classes_shows_the_errors_of_the_evaluation():
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.integers(0, 31, (500, 3)), axis=1)
    probs = (np.diff(cuts, axis=1, prepend=0, append=30) / 30).astype(np.float32)
    labels = rng.integers(0, 4, 500)
    displays = draw_classes(Figure(figsize=(7, 4)), labels, probs, n_bins=15)
    shown = [display.curves["before"].ece for display in displays]
    assert shown == pytest.approx([one.ece for one in evaluate(labels, probs).per_class], abs=AGREE)
    assert np.mean(shown) == pytest.approx(
        rc.metrics.ece(labels, probs, kind="class-wise"), abs=AGREE
    )


# ---- at the borders --------------------------------------------------------------------------------------


def test_a_sum_that_is_a_border_belongs_to_the_bin_below():
    labels, probs = [1, 1, 0, 0], [0.25, 0.25, 0.1 + 0.2, 0.1 + 0.2]
    expected = (2 - 1.1) / 4  # one bin; with 0.1 + 0.2 above 0.3 it would be 0.525
    curve = reliability_curve(labels, probs, n_bins=10, strategy="uniform")
    assert rc.metrics.ece(labels, probs, n_bins=10) == curve.ece == pytest.approx(expected)
    assert rc.metrics.mce(labels, probs, n_bins=10) == pytest.approx(expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_thirtieths_are_in_the_bins_of_exact_arithmetic(dtype):
    rng = np.random.default_rng(0)
    thirtieths = rng.integers(0, 31, 3000)
    labels = (rng.random(3000) < thirtieths / 30).astype(int)
    probs = (thirtieths / 30).astype(dtype)
    scores, bins = [Fraction(int(j), 30) for j in thirtieths], exact_bins(thirtieths, 30, 15)
    expected = exact_error(scores, labels, np.ones(3000), bins)
    found = rc.metrics.ece(labels, probs)
    assert found == pytest.approx(expected, abs=SINGLE)
    assert found == reliability_curve(labels, probs, strategy="uniform").ece
    assert found == pytest.approx(evaluate(labels, probs).ece, abs=AGREE)


@given(st.integers(1, 60), st.integers(1, 40), st.sampled_from(DTYPES))
@example(42, 6, np.float32)
def test_multiples_that_were_added_up_or_subtracted_from_one_are_on_borders(m, n_bins, dtype):
    parts = np.full(m, 1 / m, dtype)
    added = np.cumsum(parts, dtype=dtype).astype(float)
    steps = np.arange(1, m + 1)
    rest = (1 - (steps / m).astype(dtype)).astype(float)
    np.testing.assert_array_equal(bin_numbers(added, n_bins), exact_bins(steps, m, n_bins))
    np.testing.assert_array_equal(bin_numbers(rest, n_bins), exact_bins(m - steps, m, n_bins))


@given(st.integers(1, 60), st.integers(1, 40), st.sampled_from(DTYPES))
def test_histogram_binning_of_equal_width_has_the_same_bins(m, n_bins, dtype):
    probs = (np.arange(m + 1) / m).astype(dtype)
    with np.errstate(divide="ignore"):
        odds = (np.log(probs) - np.log1p(-probs)).astype(float)
    found = bin_numbers(probs.astype(float), n_bins)
    binning = HistogramBinning(n_bins, "uniform").fit([0.2, 0.8], [0, 1])
    np.testing.assert_array_equal(_bins(odds, binning.edges_), found)


@given(st.floats(0, 1), st.integers(1, 1000))
def test_away_from_borders_bins_are_those_of_the_definition(p, n_bins):
    place = Fraction(p) * n_bins
    above = (place - (ceil(place) - 1)) / n_bins  # the border below
    if above > 2**-19 or place <= 1:
        assert bin_numbers(np.array([p]), n_bins).tolist() == [max(ceil(place) - 1, 0)]


def test_probabilities_that_rounding_lifted_past_one_count_as_one():
    probs = np.array([[1 + 2 * SINGLE, 0], [0.25, 0.75]], np.float32)
    found = evaluate([0, 1], probs)
    assert found.ece == rc.metrics.ece([0, 1], probs) == 0.125
    assert [one.ece for one in found.per_class] == [0.125, 0.125]
    assert reliability_curve([0, 1], probs, kind=0, strategy="uniform").ece == 0.125


def test_more_bins_than_single_precision_tells_apart_are_filled_in_order():
    found = bin_numbers(np.array([0, 1e-9, 0.5, 1]), 10**7)
    assert (np.diff(found) >= 0).all()
    assert (found[0], found[-1]) == (0, pytest.approx(10**7, rel=2e-6))


# ---- of equal mass ---------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 3)), min_size=1, max_size=40),
    st.integers(1, 12),
    st.sampled_from([1.0, 0.1]),
)
def test_bins_of_equal_mass_follow_their_definition_as_those_of_histogram_binning(
    rows, n_bins, unit
):
    votes, weights = np.array(rows).T
    found = bin_numbers(votes / 8, n_bins, "quantile", weights * unit)
    np.testing.assert_array_equal(found, exact_middles(votes, weights, n_bins))
    fitted = np.searchsorted(
        quantile_edges(votes.astype(float), weights.astype(float), n_bins), votes
    )
    np.testing.assert_array_equal(np.unique(found, return_inverse=True)[1], fitted)


def test_scores_that_are_equal_in_single_precision_share_a_bin_of_equal_mass():
    scores = np.array([0.3, 0.1 + 0.2, 0.1, 1.1 - 1])
    assert bin_numbers(scores, 4, "quantile").tolist() == [3, 3, 1, 1]
