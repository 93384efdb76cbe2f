"""Losses, accuracy and ranking against scikit-learn; what all metrics have in common."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import logsumexp, softmax
from sklearn import metrics as sk
from strategies import drawn, predictions

import refinecal as rc
from refinecal.metrics.events import read

FUNCTIONS = ("log_loss", "brier_score", "spherical_loss", "accuracy", "error_rate", "auroc")
ERRORS = ("ece", "mce", "overconfidence", "underconfidence")
every_function = pytest.mark.parametrize("name", [*FUNCTIONS, *ERRORS])


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


# ---- against scikit-learn --------------------------------------------------------------------------------


@given(weighted())
def test_log_loss_is_scikit_learns(sample):
    labels, logits, weights = sample
    k, probs = logits.shape[1], softmax(logits, axis=1)
    expected = sk.log_loss(labels, probs, labels=range(k), sample_weight=weights)
    found = call("log_loss", labels, logits=logits, sample_weight=weights)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-14)


@given(weighted())
def test_brier_score_is_the_squared_distance_to_the_label(sample):
    labels, logits, weights = sample
    k, probs = logits.shape[1], softmax(logits, axis=1)
    distances = ((probs - np.eye(k)[labels]) ** 2).sum(axis=1)
    found = call("brier_score", labels, probs, sample_weight=weights)
    assert found == pytest.approx(np.average(distances, weights=weights), rel=1e-12, abs=1e-14)


def test_brier_score_of_two_classes_is_twice_scikit_learns():
    labels, logits = drawn(200, 2)
    probs = softmax(logits, axis=1)[:, 1]
    expected = 2 * sk.brier_score_loss(labels, probs)
    assert call("brier_score", labels, probs) == pytest.approx(expected, rel=1e-12)


@given(weighted())
def test_accuracy_is_scikit_learns_and_of_ties_the_first_counts(sample):
    labels, logits, weights = sample
    expected = sk.accuracy_score(labels, logits.argmax(axis=1), sample_weight=weights)
    found = call("accuracy", labels, logits=logits, sample_weight=weights)
    assert found == pytest.approx(expected, rel=1e-12)


@given(weighted(max_classes=2))
def test_auroc_of_two_classes_is_scikit_learns(sample):
    labels, logits, weights = sample
    assume(len(set(labels[weights > 0])) == 2)
    scores = logits[:, 1] - logits[:, 0]  # small whole numbers: many ties
    expected = sk.roc_auc_score(labels, scores, sample_weight=weights)
    found = call("auroc", labels, logits=logits, sample_weight=weights)
    assert found == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 1000), st.booleans())
def test_auroc_of_several_classes_is_scikit_learns_one_against_the_rest(seed, use_weights):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(60) % 3
    probs = rng.multinomial(16, [0.2, 0.3, 0.5], 60) / 16  # votes, as of a random forest: many ties
    weights = rng.random(60) if use_weights else None
    expected = sk.roc_auc_score(
        labels, probs, multi_class="ovr", average="macro", sample_weight=weights
    )
    found = call("auroc", labels, probs, sample_weight=weights)
    assert found == pytest.approx(expected, abs=1e-12)


@given(weighted())
def test_spherical_loss_is_one_minus_the_cosine_to_the_label(sample):
    labels, logits, weights = sample
    probs = softmax(logits, axis=1)
    cosines = probs[np.arange(len(labels)), labels] / np.linalg.norm(probs, axis=1)
    expected = np.average(1 - cosines, weights=weights)
    for given_as in ({"probs": probs}, {"logits": logits}):
        found = call("spherical_loss", labels, **given_as, sample_weight=weights)
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-14)
    parts = rc.decompose(labels, probs, loss="spherical", sample_weight=weights)
    assert parts.risk == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(weighted())
def test_the_error_rate_is_what_accuracy_leaves(sample):
    labels, logits, weights = sample
    wrong = sk.zero_one_loss(labels, logits.argmax(axis=1), sample_weight=weights)
    found = call("error_rate", labels, logits=logits, sample_weight=weights)
    assert found == pytest.approx(wrong, abs=1e-12)


@pytest.mark.parametrize("use_weights", [False, True])
@pytest.mark.parametrize("kind", ["probs", "logits"])
def test_averages_of_areas_are_scikit_learns(use_weights, kind):
    labels, logits = drawn(300, 4)
    labels[:200] %= 3  # so that classes have different shares
    probs = softmax(logits, axis=1)
    weights = np.random.default_rng(0).random(300) if use_weights else None
    given_as = {kind: probs if kind == "probs" else logits, "sample_weight": weights}
    for average in ("macro", "weighted", None):
        expected = sk.roc_auc_score(
            labels, probs, multi_class="ovr", average=average, sample_weight=weights
        )
        found = call("auroc", labels, **given_as, average=average)
        assert found == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ValueError, match=r"average is 'micro': it must be one of 'macro', 'weigh"):
        call("auroc", labels, **given_as, average="micro")


def test_the_average_by_shares_leaves_out_classes_without_an_area():
    labels, logits = np.array([0, 1, 0, 1, 1]), drawn(5, 3)[1]
    probs = softmax(logits, axis=1)
    areas = [sk.roc_auc_score(labels == j, probs[:, j]) for j in (0, 1)]
    expected = (2 * areas[0] + 3 * areas[1]) / 5
    assert call("auroc", labels, probs, average="weighted") == pytest.approx(expected)
    assert math.isnan(call("auroc", [1, 1], probs[:2], average="weighted"))
    assert np.isnan(call("auroc", labels, probs, average=None)).tolist() == [False, False, True]


# ---- properties ------------------------------------------------------------------------------------------


@every_function
@given(weighted())
def test_a_weight_says_how_often_a_row_counts(name, sample):
    labels, logits, weights = sample
    found = call(name, labels, logits=logits, sample_weight=weights)
    repeated = call(name, np.repeat(labels, weights), logits=np.repeat(logits, weights, axis=0))
    assert found == pytest.approx(repeated, rel=1e-12, abs=1e-14, nan_ok=True)


@every_function
@given(predictions(), st.integers(0, 1000))
def test_a_soft_label_is_a_row_of_each_label(name, sample, seed):
    _, logits = sample
    n, k = logits.shape
    soft = np.random.default_rng(seed).dirichlet(np.ones(k), n)
    each_label = {"y_true": np.tile(np.arange(k), n), "logits": np.repeat(logits, k, axis=0)}
    found = call(name, soft, logits=logits)
    expected = call(name, **each_label, sample_weight=soft.ravel())
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-14)


@every_function
@given(predictions(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(name, sample, random):
    labels, logits = sample
    order = random.sample(range(len(labels)), len(labels))
    found = call(name, labels[order], logits=logits[order])
    expected = call(name, labels, logits=logits)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-14, nan_ok=True)


@every_function
@pytest.mark.parametrize("k", [2, 3])
def test_any_kind_of_array_and_label(name, k):
    labels, logits = drawn(50, k)
    probs = softmax(logits, axis=1)
    names = np.array(["no", "yes", "maybe"])[:k]
    expected = call(name, labels, probs)
    inputs = [
        call(name, labels, logits=logits),
        call(name, labels.tolist(), probs.tolist()),
        call(name, torch.tensor(labels), torch.tensor(probs)),
        call(name, names[labels], pd.DataFrame(probs[:, ::-1], columns=names[::-1])),
        call(name, names[labels], probs, classes=names),
        call(name, np.eye(k)[labels], probs),
    ]
    assert inputs == pytest.approx([expected] * len(inputs), rel=1e-12)
    assert call(name, labels, probs.astype(np.float32)) == pytest.approx(expected, rel=1e-5)


@every_function
def test_one_column_stands_for_two(name):
    labels, logits = drawn(50, 2)
    odds = logits[:, 1] - logits[:, 0]
    assert call(name, labels, logits=odds) == pytest.approx(
        call(name, labels, softmax(logits, axis=1)), rel=1e-12
    )


def test_auroc_leaves_out_a_class_without_rows():
    labels, logits = np.array([0, 1, 0, 1]), drawn(4, 3)[1]
    probs = softmax(logits, axis=1)
    areas = [sk.roc_auc_score(labels == j, probs[:, j]) for j in (0, 1)]
    assert call("auroc", labels, probs) == pytest.approx(np.mean(areas))


def test_auroc_of_one_class_is_nan():
    assert math.isnan(call("auroc", [1, 1], [0.2, 0.7]))
    assert math.isnan(call("auroc", [0, 1], [0.2, 0.7], sample_weight=[1, 0]))


@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1.0, 100.0, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_auroc_tells_predictions_apart_at_every_scale(scale, dtype):
    labels, odds = np.array([0, 1, 0, 1]), np.array([-2.0, -1.0, 1.0, 2.0])
    assert call("auroc", labels, logits=(scale * odds).astype(dtype)) == 0.75


@pytest.mark.parametrize("scale", 10.0 ** np.arange(-6, 4))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.sweep(3)
def test_auroc_of_dense_scores_is_scikit_learns(scale, dtype, k):
    rng = np.random.default_rng(0)
    labels = rng.integers(k, size=20_000)
    logits = (scale * (np.eye(k)[labels] + rng.normal(size=(20_000, k)))).astype(dtype)
    exact = logits.astype(np.float64)
    areas = []
    for j in range(k):
        odds = exact[:, j] - logsumexp(np.delete(exact, j, axis=1), axis=1)
        areas.append(sk.roc_auc_score(labels == j, odds))
    assert call("auroc", labels, logits=logits) == pytest.approx(np.mean(areas), abs=1e-6)


def test_auroc_of_one_column_of_a_million_scores_is_scikit_learns():
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=1_000_000)
    odds = (10 + 0.5 * labels + rng.random(1_000_000)).astype(np.float32)
    assert call("auroc", labels, logits=odds) == pytest.approx(sk.roc_auc_score(labels, odds))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_auroc_of_rounded_votes_knows_ties(dtype):
    rng = np.random.default_rng(0)
    votes = rng.multinomial(100, [0.2, 0.3, 0.5], 3000)
    labels = rng.integers(3, size=3000)
    areas = [sk.roc_auc_score(labels == j, votes[:, j]) for j in range(3)]
    assert call("auroc", labels, (votes / 100).astype(dtype)) == pytest.approx(np.mean(areas))
    logits = np.log(np.maximum(votes, 1e-30)).astype(dtype)  # as if it were a network
    assert call("auroc", labels, logits=logits) == pytest.approx(np.mean(areas))


def test_auroc_tells_the_surest_predictions_apart():
    labels = [0, 1, 0, 1]
    assert call("auroc", labels, [0.0, 1e-300, 1 - 1e-16, 1.0]) == 0.75
    assert call("auroc", labels, logits=[-np.inf, -800.0, 800.0, np.inf]) == 0.75
    sure = [[-600.0, 0, -700], [-500.0, 0, -700], [0, -500.0, -700], [0, -600.0, -700]]
    assert call("auroc", labels, logits=sure) == 0.25  # of 4 pairs, for each of two classes


def test_a_label_of_probability_0_has_infinite_log_loss():
    assert call("log_loss", [0, 1], [0.5, 0.0]) == np.inf
    assert call("brier_score", [0, 1], [0.0, 0.0]) == 1.0  # (0 + 2) / 2


@every_function
def test_wrong_arguments_are_refused_as_by_decompose(name):
    with pytest.raises(TypeError, match="pass either probs or logits=, found neither"):
        call(name, [0, 1])
    with pytest.raises(ValueError, match=r"y_true\[1\] is 3, but probs has 2 columns"):
        call(name, [0, 3], [0.2, 0.7])


@every_function
@pytest.mark.parametrize(
    ("probs", "message"),
    [
        ([[0.5, np.nan], [0.5, 0.5]], r"probs\[0, 1\] is NaN"),
        ([[0.5, 0.5], [-0.5, 1.5]], r"probs\[1, 0\] is -0\.5, which is not a probability"),
        ([[0.5, 0.5], [0.5, 0.6]], r"probs\[1\] sums to 1\.1: each row must sum to 1"),
        ([0.5, 1.5], r"probs\[1\] is 1\.5, which is not a probability"),
        (np.empty((0, 2)), r"probs is empty"),
        (np.full((2, 1, 2), 0.5), r"probs has shape \(2, 1, 2\)"),
    ],
)
def test_what_is_no_probability_is_named(name, probs, message):
    with pytest.raises(ValueError, match=message):
        call(name, [0, 1][: len(probs)], np.array(probs))


@every_function
def test_labels_and_predictions_swapped_are_noticed(name):
    with pytest.raises(ValueError, match="are the two swapped"):
        call(name, [[0.3, 0.7], [0.6, 0.4]], [1.0, 0.0])


@every_function
@pytest.mark.parametrize("k", [2, 5])
def test_the_memory_layout_does_not_matter(name, k):
    labels, logits = drawn(301, k)
    probs = softmax(logits, axis=1)
    expected = call(name, labels, probs)
    frozen = probs.copy()
    frozen.flags.writeable = False
    wide = np.zeros((301, 2 * k))
    wide[:, ::2] = probs
    for given_as in (frozen, np.asfortranarray(probs), wide[:, ::2], np.repeat(probs, 2, 0)[::2]):
        assert call(name, labels, given_as) == expected


@every_function
def test_rows_may_be_off_by_the_rounding_of_float16(name):
    labels, logits = drawn(200, 7)
    probs = softmax(logits, axis=1)
    rounded = probs.astype(np.float16)
    near = rounded.astype(np.float64) / rounded.astype(np.float64).sum(axis=1, keepdims=True)
    assert call(name, labels, rounded) == pytest.approx(call(name, labels, near), abs=2e-3)


@every_function
def test_one_row_is_enough(name):
    found = call(name, [2], [[0.25, 0.25, 0.5]])
    of_one = {"log_loss": math.log(2), "brier_score": 2 / 16 + 1 / 4, "accuracy": 1.0}
    of_one |= {"error_rate": 0.0, "spherical_loss": 1 - 0.5 / math.sqrt(0.375), "auroc": math.nan}
    of_one |= {"ece": 0.5, "mce": 0.5, "overconfidence": 0.0, "underconfidence": 0.5}
    assert found == pytest.approx(of_one[name], nan_ok=True)


@every_function
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e3, 1e30])
def test_logits_of_any_size(name, scale):
    labels, logits = drawn(50, 3)
    logits = scale * (np.round(3 * logits) + np.arange(3) / 8)  # no ties
    found = call(name, labels, logits=logits)
    if scale == 1:
        exact = softmax(logits.astype(np.longdouble), axis=1).astype(np.float64)
        assert found == pytest.approx(call(name, labels, exact), abs=1e-13)
    elif name == "log_loss" and scale > 1:  # the gap to the likeliest class
        gaps = logits.max(axis=1) - logits[np.arange(50), labels]
        assert found == pytest.approx(gaps.mean())
    elif name in ("accuracy", "error_rate"):
        right = np.mean(logits.argmax(axis=1) == labels)
        assert found == pytest.approx(right if name == "accuracy" else 1 - right)
    elif name != "auroc":  # all alike, or all sure
        probs = np.full((50, 3), 1 / 3) if scale < 1 else np.eye(3)[logits.argmax(axis=1)]
        assert found == pytest.approx(call(name, labels, probs), abs=1e-12)


@every_function
def test_an_impossible_class_is_a_probability_of_0(name):
    labels, logits = [0, 1, 2, 0], np.log([[2, 1, 1], [1, 6, 1], [3, 1, 4], [4, 3, 1]])
    logits[[0, 3], 2] = -np.inf
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert probs[0, 2] == 0
    expected = call(name, labels, probs)
    assert call(name, labels, logits=logits) == pytest.approx(expected, abs=1e-14)


def test_the_smallest_probabilities_multiply_without_underflow():
    probs = np.full(5000, 1e-29)  # whose logarithms are taken of products
    assert call("log_loss", np.ones(5000, int), probs) == pytest.approx(29 * math.log(10))
    probs[::2] = 1e-300  # and these one by one
    assert call("log_loss", np.ones(5000, int), probs) == pytest.approx(164.5 * math.log(10))


@pytest.mark.parametrize("threads", ["1", "3"])
@every_function
def test_many_rows_are_read_in_parts(name, threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    labels, logits = drawn(2**16 + 7, 8)
    probs = softmax(logits, axis=1)
    halves = [slice(0, 40_000), slice(40_000, None)]
    if name in FUNCTIONS[:5]:  # means over rows
        parts = [call(name, labels[half], probs[half]) for half in halves]
        sizes = [40_000, len(labels) - 40_000]
        assert call(name, labels, probs) == pytest.approx(np.average(parts, weights=sizes))
    assert call(name, labels, logits=logits) == pytest.approx(call(name, labels, probs), abs=1e-12)


@pytest.mark.parametrize("k", [2, 3, 8, 128, 129, 300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_of_logits_are_scipys(k, dtype):
    logits = drawn(300, k, confidence=20.0)[1].astype(dtype)
    logits[::7, 1] = -np.inf
    logits[5] = 1e30
    found = read([0] * 300, logits=logits).probs
    expected = softmax(logits.astype(np.longdouble), axis=1).astype(np.float64)
    assert (found[::7, 1] == 0).all()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)


# ---- areas of many rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 7])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("digits", [None, 3, 1])  # few digits: many ties
@pytest.mark.parametrize(
    "sharpness", [0.1, 3.0, 30.0, 300.0]
)  # the last: most are 0 or 1 to the last bit
@pytest.mark.sweep(5)
def test_auroc_of_probabilities_is_scikit_learns(k, weighted, digits, sharpness):
    labels, logits = drawn(5000, k, seed=k, confidence=sharpness)
    probs = softmax(logits, axis=1)
    if digits is not None:
        probs = np.round(probs, digits)
        probs[:, 0] = 1 - probs[:, 1:].sum(axis=1)
        keep = (probs >= 0).all(axis=1)
        labels, probs = labels[keep], probs[keep]
    weights = np.random.default_rng(0).integers(0, 4, len(labels)) if weighted else None
    areas = [
        sk.roc_auc_score(labels == j, ranks_of(probs, j), sample_weight=weights) for j in range(k)
    ]
    expected = areas[1] if k == 2 else np.mean(areas)
    assert call("auroc", labels, probs, sample_weight=weights) == pytest.approx(expected, abs=1e-12)


def ranks_of(probs, j):
    """Return the order of one class's probabilities; near 1, that of what the others leave."""
    rest = np.delete(probs, j, axis=1).sum(axis=1)
    sure = 1 - probs[:, j] < 2.0**-20
    pairs = np.stack([sure, np.where(sure, -rest, probs[:, j])], axis=1)
    return np.unique(pairs, axis=0, return_inverse=True)[1].ravel()


@pytest.mark.parametrize("value", [0.0, 1e-300, 1e-12, 0.5, 1.0])
def test_auroc_of_a_constant_score_is_one_half(value):
    labels = np.arange(300) % 3 == 0
    assert call("auroc", labels, np.full(300, value)) == 0.5


def test_auroc_of_scores_crowded_together_is_scikit_learns():
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=20_000)
    for centre, width in ((0.1, 1e-9), (1e-40, 1e-41), (0.5, 1e-12), (1 - 1e-7, 1e-8)):
        probs = centre + width * (rng.random(20_000) + 0.3 * labels)
        assert call("auroc", labels, probs) == pytest.approx(sk.roc_auc_score(labels, probs))


def test_minus_zero_is_zero():
    assert call("auroc", [0, 1, 1, 0], [0.0, -0.0, 0.5, -0.0]) == 0.75  # (1/2 + 1/2 + 1 + 1) / 4


@pytest.mark.parametrize("threads", ["1", "3"])
def test_auroc_does_not_depend_on_threads(threads, monkeypatch):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(8), 2**18 + 5)  # enough numbers to be shared out
    labels = rng.integers(8, size=len(probs))
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    areas = [sk.roc_auc_score(labels == j, probs[:, j]) for j in range(8)]
    assert call("auroc", labels, probs) == pytest.approx(np.mean(areas), abs=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "log_loss",
            "brier_score",
            "spherical_loss",
            "accuracy",
            "error_rate",
            "auroc",
            "ece",
            "mce",
        ),
        *(
            "smooth_ece",
            "overconfidence",
            "ks_statistic",
            "kuiper_test",
            "spiegelhalter",
            "per_class",
        ),
    ],
)
def test_misspelt_keywords_are_not_ignored(name):
    function = getattr(rc.metrics, name)
    with pytest.raises(TypeError, match="unexpected keyword argument 'sample_weights'"):
        function([0, 1, 1], [0.2, 0.6, 0.7], sample_weights=[1, 2, 3])
    with pytest.raises(TypeError, match="sample_weights"):
        function([0, 1, 1], logits=[-0.2, 0.6, 0.7], sample_weights=[1, 2, 3])
