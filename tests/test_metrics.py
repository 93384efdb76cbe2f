"""Stopping metrics against scikit-learn and by their properties, and the table of them."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, softmax
from sklearn import metrics as sk
from strategies import drawn, predictions

import refinecal as rc
from refinecal.metrics import BUILT_IN, Metric, get_metric, get_metrics

FUNCTIONS = ("log_loss", "brier_score", "accuracy", "auroc")
examples = settings(deadline=None, max_examples=40)
every_function = pytest.mark.parametrize("name", [*FUNCTIONS, "ece"])


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


@examples
@given(weighted())
def test_log_loss_is_scikit_learns(sample):
    labels, logits, weights = sample
    k, probs = logits.shape[1], softmax(logits, axis=1)
    expected = sk.log_loss(labels, probs, labels=range(k), sample_weight=weights)
    found = call("log_loss", labels, logits=logits, sample_weight=weights)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-14)


@examples
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


@examples
@given(weighted())
def test_accuracy_is_scikit_learns_and_of_ties_the_first_counts(sample):
    labels, logits, weights = sample
    expected = sk.accuracy_score(labels, logits.argmax(axis=1), sample_weight=weights)
    found = call("accuracy", labels, logits=logits, sample_weight=weights)
    assert found == pytest.approx(expected, rel=1e-12)


@examples
@given(weighted(max_classes=2))
def test_auroc_of_two_classes_is_scikit_learns(sample):
    labels, logits, weights = sample
    assume(len(set(labels[weights > 0])) == 2)
    scores = logits[:, 1] - logits[:, 0]  # small whole numbers: many ties
    expected = sk.roc_auc_score(labels, scores, sample_weight=weights)
    found = call("auroc", labels, logits=logits, sample_weight=weights)
    assert found == pytest.approx(expected, abs=1e-12)


@examples
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


# ---- properties ------------------------------------------------------------------------------------------


@every_function
@examples
@given(weighted())
def test_a_weight_says_how_often_a_row_counts(name, sample):
    labels, logits, weights = sample
    found = call(name, labels, logits=logits, sample_weight=weights)
    repeated = call(name, np.repeat(labels, weights), logits=np.repeat(logits, weights, axis=0))
    assert found == pytest.approx(repeated, rel=1e-12, abs=1e-14, nan_ok=True)


@every_function
@examples
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
@examples
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


# ---- areas of many rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 7])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("digits", [None, 3, 1])  # few digits: many ties
@pytest.mark.parametrize(
    "sharpness", [0.1, 3.0, 30.0, 300.0]
)  # the last: most are 0 or 1 to the last bit
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


# ---- the calibration error -------------------------------------------------------------------------------


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


@examples
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=40))
def test_equal_scores_are_never_in_two_quantile_bins(rows):
    """With more bins than scores, each score is its own bin, or shares it with whole others."""
    votes, labels = np.array(rows).T
    probs = votes / 4
    found = call("ece", labels, probs, strategy="quantile", n_bins=1000)
    assert found == pytest.approx(by_hand(probs, labels, np.ones(len(votes)), votes), abs=1e-12)


@examples
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
            r"strategy is 'quantiles': it must be one of 'uniform', or 'quantile'",
        ),
        ({"kind": "toplabel"}, r"kind is 'toplabel': it must be one of .*'top-label'"),
        ({"kind": "binary"}, r"kind is 'binary', but there are 3 classes"),
    ],
)
def test_ece_refuses_what_it_does_not_know(options, message):
    with pytest.raises(ValueError, match=message):
        call("ece", [0, 1, 2], np.eye(3), **options)


# ---- the table of stopping metrics -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "key"),
    [("accuracy", "accuracy"), ("auroc", "auroc"), ("log_loss", "log_loss")]
    + [(name, f"{name}_loss") for name in ("risk", "brier", "error_rate", "brier_refinement")],
)
def test_keys_end_in_loss_exactly_if_smaller_is_better(metric, key):
    assert get_metric(metric).key == key


@pytest.mark.parametrize("greater", [False, True])
def test_better_is_strict_and_knows_nan(greater):
    metric = Metric(max, "m", greater_is_better=greater)
    good, bad = (2.0, 1.0) if greater else (1.0, 2.0)
    worst = -math.inf if greater else math.inf
    assert metric.better(good, bad)
    assert not metric.better(bad, good)
    assert not metric.better(good, good)
    assert not metric.better(good, bad, by=1.0)
    assert metric.better(good, bad, by=0.5)
    assert metric.better(bad, math.nan)
    assert not metric.better(math.nan, bad)
    assert not metric.better(math.nan, math.nan)
    assert metric.better(bad, worst)
    assert not metric.better(worst, worst)


def test_the_functions_of_this_module_are_known_with_their_direction():
    names = {function: get_metric(getattr(rc.metrics, function)).name for function in FUNCTIONS}
    assert names == {
        "log_loss": "log_loss",
        "brier_score": "brier",
        "accuracy": "accuracy",
        "auroc": "auroc",
    }
    assert get_metric(rc.metrics.accuracy).greater_is_better


def test_a_function_is_a_loss_by_its_own_name():
    metric = get_metric(sk.hinge_loss)
    assert (metric.name, metric.greater_is_better) == ("hinge_loss", False)


def test_a_metric_is_followed_once():
    assert [metric.name for metric in get_metrics(["auroc", "brier", "auroc"])] == [
        "auroc",
        "brier",
    ]


def test_the_table_can_be_pickled():
    for name in BUILT_IN:
        assert pickle.loads(pickle.dumps(get_metric(name))) == get_metric(name)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("refinment", ValueError, r"metric is 'refinment': .*Did you mean 'refinement'\?"),
        (3, TypeError, r"metric is 3: pass a name such as 'refinement', a function"),
        (Metric, TypeError, r"or refinecal\.metrics\.Metric\(function, name"),
        (lambda y, p: 0.0, ValueError, r"lambda, which has no name .*Metric\(function, name="),
        (sk.f1_score, ValueError, r"say whether greater is better, as in .*Metric\(f1_score, 'f1_"),
    ],
)
def test_wrong_metrics_are_refused(given, error, message):
    with pytest.raises(error, match=message):
        rc.RefinementMonitor(given)
    with pytest.raises(error, match=message):
        rc.RefinementMonitor(also=[given])


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("roc_auc", "auroc"),
        ("auc", "auroc"),
        ("acc", "accuracy"),
        ("loss", "log_loss"),
        ("logloss", "log_loss"),
        ("neg_log_loss", "log_loss"),
    ],
)
def test_names_of_other_packages_are_translated(given, ours):
    with pytest.raises(ValueError, match=f"Did you mean '{ours}'"):
        rc.RefinementMonitor(given)


def test_two_metrics_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two metrics are called 'log_loss': name one of them"):
        rc.RefinementMonitor(sk.log_loss, also=["log_loss"])


@pytest.mark.parametrize("name", ["step", "risk", "calibration", "refinement", "beta"])
def test_a_metric_cannot_take_the_place_of_a_term(name):
    with pytest.raises(ValueError, match=f"a metric is called '{name}', as is something else"):
        rc.RefinementMonitor(Metric(sk.log_loss, name))


@pytest.mark.parametrize("result", [None, "low", [1.0, 2.0]])
def test_a_metric_must_return_one_number(result):
    monitor = rc.RefinementMonitor(Metric(lambda y, probs: result, "odd"))
    with pytest.raises(TypeError, match="metric 'odd' returned .*: it must return one number"):
        monitor.update([0, 1], [0.2, 0.7])
    assert monitor.history == []
