"""Calibration errors in bins, against their definitions row by row."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import softmax
from strategies import drawn, predictions

import refinecal as rc

NORMS = ("l1", "l2", "max")
PARTS = ("overconfidence", "underconfidence")


def call(name, *args, **options):
    return getattr(rc.metrics, name)(*args, **options)


@st.composite
def weighted(draw, **limits):
    """Predictions with whole-number weights, some of them 0."""
    labels, logits = draw(predictions(**limits))
    n = len(labels)
    weights = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    assume(weights.any())
    return labels, logits, weights


# ---- the mean distance -----------------------------------------------------------------------------------


def by_hand(scores, hits, weights, bins):
    """Return the mass of each bin times the distance of its means, added up."""
    error = 0.0
    for one in np.unique(bins):
        here = bins == one
        mass = weights[here].sum()
        if mass > 0:
            mean, share = (np.average(v[here], weights=weights[here]) for v in (scores, hits))
            error += mass * abs(mean - share)
    return error / weights.sum()


def uniform(scores, n_bins):
    """Return bins of equal width by their edges, each closed above."""
    edges = np.arange(1, n_bins) / n_bins
    return np.searchsorted(edges, scores, side="left")


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("n_bins", [1, 7, 15, 100])
@pytest.mark.parametrize("use_weights", [False, True])
def test_ece_is_that_of_its_definition(k, n_bins, use_weights):
    labels, logits = drawn(3000, k, confidence=2.0)
    probs = softmax(logits, axis=1)
    weights = np.random.default_rng(0).random(3000) if use_weights else np.ones(3000)
    options = {"n_bins": n_bins, "sample_weight": weights if use_weights else None}
    each = [by_hand(p, labels == j, weights, uniform(p, n_bins)) for j, p in enumerate(probs.T)]
    top = probs.max(axis=1)
    top_label = by_hand(top, probs.argmax(axis=1) == labels, weights, uniform(top, n_bins))
    found = {
        kind: call("ece", labels, probs, kind=kind, **options)
        for kind in ("class-wise", "top-label")
    }
    assert found == pytest.approx({"class-wise": np.mean(each), "top-label": top_label}, rel=1e-10)
    assert call("ece", labels, probs, **options) == pytest.approx(each[1] if k == 2 else top_label)


def test_a_bin_is_closed_above():
    labels, probs = [0, 1, 0, 1, 1], [0.2, 0.2, 0.4, 0.0, 1.0]
    bins = np.array([0, 0, 1, 0, 4])  # 0.2 and 0.4 are upper ends
    expected = by_hand(np.array(probs), np.array(labels), np.ones(5), bins)
    assert call("ece", labels, probs, n_bins=5) == pytest.approx(expected)


@pytest.mark.parametrize("n_bins", [1, 4, 10])
def test_quantile_bins_hold_equally_many_rows(n_bins):
    labels, logits = drawn(200, 2, confidence=3.0)
    probs = softmax(logits, axis=1)[:, 1]
    bins = np.empty(200, dtype=int)
    bins[np.argsort(probs)] = np.repeat(np.arange(n_bins), 200 // n_bins)
    expected = by_hand(probs, labels, np.ones(200), bins)
    assert call("ece", labels, probs, strategy="quantile", n_bins=n_bins) == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=40))
def test_equal_scores_are_never_in_two_quantile_bins(rows):
    """With more bins than scores, each score is its own bin, or shares it with whole others."""
    votes, labels = np.array(rows).T
    probs = votes / 4
    found = call("ece", labels, probs, strategy="quantile", n_bins=1000)
    assert found == pytest.approx(by_hand(probs, labels, np.ones(len(votes)), votes), abs=1e-12)


@given(
    weighted(),
    st.sampled_from(["uniform", "quantile"]),
    st.sampled_from(["top-label", "class-wise"]),
)
def test_ece_weighs_rows_whatever_the_bins(sample, strategy, kind):
    labels, logits, weights = sample
    options = {"strategy": strategy, "kind": kind, "n_bins": 4}
    found = call("ece", labels, logits=logits, sample_weight=weights, **options)
    repeated = call(
        "ece", np.repeat(labels, weights), logits=np.repeat(logits, weights, axis=0), **options
    )
    assert found == pytest.approx(repeated, abs=1e-12)
    assert 0 <= found <= 1


def test_ece_of_right_probabilities_is_small_and_of_wrong_ones_is_not():
    labels, logits = drawn(100_000, 3)
    assert call("ece", labels, logits=logits) < 0.01 < call("ece", labels, logits=3 * logits)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_bins": 0}, r"n_bins is 0: it must be a whole number of at least 1"),
        ({"n_bins": 2.5}, r"n_bins is 2\.5"),
        (
            {"strategy": "quantiles"},
            r"strategy is 'quantiles': it must be one of 'uniform', 'quantile'",
        ),
        ({"kind": "toplabel"}, r"kind is 'toplabel': it must be one of .*'top-label'"),
        ({"kind": "binary"}, r"kind is 'binary', but there are 3 classes"),
    ],
)
def test_ece_refuses_what_it_does_not_know(options, message):
    with pytest.raises(ValueError, match=message):
        call("ece", [0, 1, 2], np.eye(3), **options)


# ---- other norms -----------------------------------------------------------------------------------------


def bins_by_hand(scores, hits, weights, bins):
    """Return the mass, mean score and share of hits of each bin that holds anything."""
    rows = []
    for one in np.unique(bins[weights > 0]):
        here = bins == one
        means = (np.average(values[here], weights=weights[here]) for values in (scores, hits))
        rows.append((weights[here].sum(), *means))
    return np.array(rows).T


def squared(mass, mean, share, debiased):
    """Return the mean squared distance; of bins of fewer than 2 rows nothing can be said without bias."""
    found = 0.0
    for m, p, y in zip(mass, mean, share, strict=True):
        if not debiased:
            found += m * (p - y) ** 2
        elif m >= 2:
            found += m * ((p - y) ** 2 - y * (1 - y) / (m - 1))
    return found / mass.sum()


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("use_weights", [False, True])
@pytest.mark.parametrize("n_bins", [1, 15, 60])
def test_norms_are_those_of_their_definitions(k, use_weights, n_bins):
    labels, logits = drawn(400, k, confidence=2.0)
    probs = softmax(logits, axis=1)
    weights = np.random.default_rng(0).integers(0, 3, 400) if use_weights else np.ones(400)
    about = {"n_bins": n_bins, "sample_weight": weights if use_weights else None}
    top = probs.max(axis=1)
    events = {
        "top-label": [(top, probs.argmax(axis=1) == labels)],
        "class-wise": [(probs[:, j], labels == j) for j in range(k)],
    }
    for kind, pairs in events.items():
        parts = [bins_by_hand(p, hit, weights, uniform(p, n_bins)) for p, hit in pairs]
        means = [(mass @ np.abs(mean - share)) / mass.sum() for mass, mean, share in parts]
        squares = [squared(*part, debiased=False) for part in parts]
        largest = max(np.abs(mean - share).max() for _, mean, share in parts)
        found = {norm: call("ece", labels, probs, kind=kind, norm=norm, **about) for norm in NORMS}
        expected = {"l1": np.mean(means), "l2": math.sqrt(np.mean(squares)), "max": largest}
        assert found == pytest.approx(expected, rel=1e-10)
        assert call("mce", labels, probs, kind=kind, **about) == found["max"]
        unbiased = np.mean([squared(*part, debiased=True) for part in parts])
        root = call("ece", labels, probs, kind=kind, norm="l2", debiased=True, **about)
        assert root * abs(root) == pytest.approx(unbiased, rel=1e-9, abs=1e-15)


@given(
    weighted(),
    st.sampled_from(["uniform", "quantile"]),
    st.sampled_from(["top-label", "class-wise"]),
)
def test_norms_grow_with_their_order_and_weights_are_counts(sample, strategy, kind):
    labels, logits, weights = sample
    about = {"strategy": strategy, "kind": kind, "n_bins": 4}
    repeated = np.repeat(labels, weights), {"logits": np.repeat(logits, weights, axis=0)}
    found = []
    for options in (*({"norm": norm} for norm in NORMS), {"norm": "l2", "debiased": True}):
        one = call("ece", labels, logits=logits, sample_weight=weights, **about, **options)
        again = call("ece", repeated[0], **repeated[1], **about, **options)
        assert one * abs(one) == pytest.approx(again * abs(again), abs=1e-12)
        found.append(one)
    mean, root, largest, debiased = found
    assert mean <= root + 1e-12 <= largest + 2e-12
    assert debiased <= root + 1e-12


def test_the_debiased_square_has_no_bias():
    """Of 4 bins with 6 rows each, frequencies 0.1 above the probabilities: the mean square is 0.01."""
    rng = np.random.default_rng(0)
    probs = np.repeat([0.125, 0.375, 0.625, 0.875 - 0.01], 6)
    found = {True: [], False: []}
    for _ in range(2000):
        labels = (rng.random(24) < probs + 0.1).astype(int)
        for debiased, values in found.items():
            root = call("ece", labels, probs, n_bins=4, norm="l2", debiased=debiased)
            values.append(root * abs(root))
    error = np.std(found[True]) / math.sqrt(2000)
    assert abs(np.mean(found[True]) - 0.01) < 4 * error < 0.005
    assert np.mean(found[False]) > 0.01 + 20 * error  # what chance adds


def test_right_probabilities_have_debiased_errors_of_both_signs():
    signs = set()
    for seed in range(20):
        labels, logits = drawn(300, 2, seed)
        root = call("ece", labels, logits=logits, norm="l2", debiased=True)
        assert abs(root) < 0.1
        signs.add(math.copysign(1, root))
    assert signs == {1.0, -1.0}


def test_the_largest_error_may_leave_out_small_bins():
    labels, probs = [0, 1, 1, 1, 0, 1], [0.5, 0.5, 0.5, 0.5, 0.9, 0.3]
    found = [call("mce", labels, probs, min_count=count) for count in (0, 1, 2, 4, 5)]
    assert found[:4] == pytest.approx([0.9, 0.9, 0.25, 0.25])
    assert math.isnan(found[4])
    weights = [1, 1, 1, 1, 0.5, 2]
    assert call("mce", labels, probs, sample_weight=weights, min_count=1) == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ece", {"norm": "L2"}, r"norm is 'L2': it must be one of 'l1', 'l2', or 'max'"),
        ("ece", {"debiased": True}, r"debiased is True, but norm is 'l1': .*pass norm='l2'"),
        ("mce", {"min_count": -1}, r"min_count is -1: it must be a number of rows"),
        ("mce", {"min_count": math.nan}, r"min_count is nan"),
        ("mce", {"n_bins": 0}, r"n_bins is 0"),
        ("overconfidence", {"kind": "class-wise"}, r"kind is 'class-wise': .*'top-label'"),
        ("underconfidence", {"kind": "binary"}, r"kind is 'binary', but there are 3 classes"),
        ("overconfidence", {"strategy": "width"}, r"strategy is 'width'"),
    ],
)
def test_what_is_not_known_is_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        call(name, [0, 1, 2], np.eye(3), **options)


# ---- too sure, or not sure enough ------------------------------------------------------------------------


def sides(scores, hits, weights, bins, binary):
    """Return over- and underconfidence bin by bin: the accuracy of the side that the bin speaks for."""
    over = under = 0.0
    for mass, mean, share in bins_by_hand(scores, hits, weights, bins).T:
        flipped = binary and mean < 0.5
        gap = (1 - mean) - (1 - share) if flipped else mean - share
        if binary and mean == 0.5:
            gap = -abs(gap)
        over, under = over + mass * max(gap, 0), under + mass * max(-gap, 0)
    return over / weights.sum(), under / weights.sum()


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("confidence", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("n_bins", [1, 10, 15])
@pytest.mark.parametrize("use_weights", [False, True])
def test_both_parts_are_those_of_the_definition(k, confidence, n_bins, use_weights):
    labels, logits = drawn(600, k, confidence=confidence)
    probs = softmax(logits, axis=1)
    weights = np.random.default_rng(0).random(600) if use_weights else np.ones(600)
    about = {"n_bins": n_bins, "sample_weight": weights if use_weights else None}
    top = probs.max(axis=1)
    right = probs.argmax(axis=1) == labels
    expected = {"top-label": sides(top, right, weights, uniform(top, n_bins), False)}
    if k == 2:
        p = probs[:, 1]
        expected["binary"] = sides(p, labels, weights, uniform(p, n_bins), True)
    expected["auto"] = expected["binary" if k == 2 else "top-label"]
    for kind, pair in expected.items():
        options = {**about, "kind": kind}
        found = [call(name, labels, probs, **options) for name in PARTS]
        assert found == pytest.approx(list(pair), abs=1e-12)
        assert sum(found) == pytest.approx(call("ece", labels, probs, **options), abs=1e-12)


@pytest.mark.parametrize("k", [2, 3])
def test_sharpening_makes_overconfident(k):
    labels, logits = drawn(20_000, k)
    over, under = ([call(name, labels, logits=s * logits) for s in (0.4, 2.5)] for name in PARTS)
    assert over[0] < 0.01 < 0.05 < over[1]
    assert under[1] < 0.01 < 0.05 < under[0]


@given(weighted(max_classes=2))
def test_naming_the_classes_the_other_way_round_changes_nothing(sample):
    """But for probabilities on the edge of a bin, which is closed on one side: 11 bins have none."""
    labels, logits, weights = sample
    for name in PARTS:
        about = {"n_bins": 11, "sample_weight": weights}
        found = call(name, labels, logits=logits, **about)
        other = call(name, 1 - labels, logits=logits[:, ::-1], **about)
        assert other == pytest.approx(found, abs=1e-12)


def test_a_bin_at_one_half_cannot_be_too_sure():
    assert [call(name, [1, 1, 1, 0], [0.5] * 4) for name in PARTS] == [0.0, 0.25]
    assert [call(name, [0, 0, 0, 1], [0.49, 0.51] * 2) for name in PARTS] == pytest.approx(
        [0.0, 0.25]
    )
