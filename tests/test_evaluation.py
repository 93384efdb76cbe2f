"""Evaluations against scikit-learn, SciPy and the definitions; comparisons of several models."""

import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import log_softmax, softmax
from sklearn import metrics as sk
from sklearn.linear_model import LogisticRegression
from strategies import drawn, predictions

import refinecal as rc
from refinecal.evaluation import (
    ClassSummary,
    Comparison,
    Difference,
    Evaluation,
    compare_models,
    evaluate,
    paired_difference,
    row_losses,
)

pytestmark = pytest.mark.filterwarnings("ignore:the search for the temperature:RuntimeWarning")
TERMS = ("risk", "calibration", "refinement", "sharpness", "uncertainty")
ERRORS = ("ece", "overconfidence", "underconfidence", "smooth_ece")  # functions of these names


@st.composite
def weighted(draw, **limits):
    """Predictions with whole-number weights, some of them 0."""
    labels, logits = draw(predictions(**limits))
    n = len(labels)
    weights = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    assume(weights.any())
    return labels, logits, weights


def numbers(found):
    """Return every number of an evaluation, in order."""
    values = [found.accuracy, found.auroc, *(getattr(found, name) for name in ERRORS)]
    values += [getattr(parts, term) for parts in (found.log, found.brier) for term in TERMS]
    for one in found.per_class:
        values += [one.share, one.mean_probability, one.recall, one.auroc, one.ece, one.log_loss]
    return np.array(values)


def same(found, expected, **tolerance):
    tolerance = tolerance or {"rel": 1e-9, "abs": 1e-9}
    return numbers(found) == pytest.approx(numbers(expected), nan_ok=True, **tolerance)


# ---- against others ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 10, 150])
@pytest.mark.parametrize("use_weights", [False, True])
@pytest.mark.parametrize("kind", ["probs", "logits"])
@pytest.mark.sweep(3)
def test_every_number_is_what_others_find(k, use_weights, kind):
    labels, logits = drawn(3000, k, confidence=2.0)
    probs = softmax(logits, axis=1)
    weights = np.random.default_rng(0).random(3000) if use_weights else None
    given_as = {kind: probs if kind == "probs" else logits, "sample_weight": weights}
    found = evaluate(labels, **given_as)
    seen = np.unique(labels)
    onehot = np.eye(k)[labels]
    areas = {
        j: sk.roc_auc_score(labels == j, probs[:, j], sample_weight=weights) for j in seen.tolist()
    }
    squares = ((probs - onehot) ** 2).sum(axis=1)
    expected = {
        "log": sk.log_loss(labels, probs, labels=range(k), sample_weight=weights),
        "brier": np.average(squares, weights=weights),
        "accuracy": sk.accuracy_score(labels, probs.argmax(axis=1), sample_weight=weights),
        "auroc": areas[1] if k == 2 else np.mean(list(areas.values())),
        **{
            name: getattr(rc.metrics, name)(labels, probs, sample_weight=weights) for name in ERRORS
        },
    }
    assert {
        "log": found.log.risk,
        "brier": found.brier.risk,
        "accuracy": found.accuracy,
        "auroc": found.auroc,
        **{name: getattr(found, name) for name in ERRORS},
    } == pytest.approx(expected, rel=1e-9)
    for loss in ("log", "brier"):
        parts = rc.decompose(labels, **given_as, loss=loss)
        terms = {term: getattr(parts, term) for term in TERMS}
        ours = getattr(found, loss)
        assert {term: getattr(ours, term) for term in TERMS} == pytest.approx(
            terms, rel=1e-9, abs=1e-12
        )
        assert ours.beta == found.beta == pytest.approx(parts.beta, rel=1e-8)
    recalls = sk.recall_score(
        labels,
        probs.argmax(axis=1),
        labels=range(k),
        average=None,
        zero_division=np.nan,
        sample_weight=weights,
    )
    losses = -np.log(probs[np.arange(3000), labels])
    mass = np.ones(3000) if weights is None else weights
    for j, one in enumerate(found.per_class):
        here = labels == j
        assert (one.label, one.n) == (j, here.sum())
        assert one.share == pytest.approx(mass[here].sum() / mass.sum())
        assert one.mean_probability == pytest.approx(np.average(probs[:, j], weights=weights))
        if here.any():
            assert one.recall == pytest.approx(recalls[j])
            assert one.auroc == pytest.approx(areas[j], abs=1e-12)
            assert one.log_loss == pytest.approx(np.average(losses[here], weights=mass[here]))
            after = -log_softmax(found.beta * np.log(probs), axis=1)[np.arange(3000), labels]
            assert one.refinement == pytest.approx(np.average(after[here], weights=mass[here]))
            assert one.calibration == pytest.approx(one.log_loss - one.refinement)
            assert one.uncertainty == pytest.approx(-np.log(one.share))
        own = np.stack([1 - probs[:, j], probs[:, j]], axis=1)
        binary = rc.metrics.ece(here.astype(int), own, kind="binary", sample_weight=weights)
        assert one.ece == pytest.approx(binary, rel=1e-9)
    seen = [one for one in found.per_class if one.n]
    assert sum(one.part for one in seen) == pytest.approx(found.log.risk)
    for term in ("refinement", "calibration", "uncertainty"):  # those of all classes
        parts = sum(one.share * getattr(one, term) for one in seen)
        assert parts == pytest.approx(getattr(found.log, term), abs=1e-12), term


def test_the_calibrator_is_fitted_once_and_serves_new_predictions():
    labels, logits = drawn(2000, 4, confidence=3.0)
    probs = softmax(logits, axis=1)
    found = evaluate(labels, probs)
    assert found.log.calibrator is found.brier.calibrator
    after = found.log.calibrator.predict_proba(probs)
    smoothing = 1 / 2001  # of a flat prediction is mixed in
    assert evaluate(labels, after).log.risk == pytest.approx(found.log.refinement, abs=smoothing)


@pytest.mark.parametrize("calibrator", ["isotonic", LogisticRegression(), rc.TemperatureScaling()])
def test_any_calibrator_defines_the_terms(calibrator):
    labels, logits = drawn(400, 2, confidence=3.0)
    probs = softmax(logits, axis=1)
    found = evaluate(labels, probs, calibrator=calibrator)
    for loss in ("log", "brier"):
        parts = rc.decompose(labels, probs, loss=loss, calibrator=calibrator)
        ours = getattr(found, loss)
        assert (ours.risk, ours.refinement) == pytest.approx(
            (parts.risk, parts.refinement), rel=1e-9
        )
    if calibrator == "isotonic":
        assert found.beta is None


# ---- properties --------------------------------------------------------------------------------------------


@given(predictions(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(sample, random):
    labels, logits = sample
    order = random.sample(range(len(labels)), len(labels))
    probs = softmax(logits, axis=1)
    assert same(evaluate(labels[order], probs[order]), evaluate(labels, probs))


@given(predictions(), st.randoms(use_true_random=False))
def test_the_order_of_classes_does_not_matter(sample, random):
    labels, logits = sample
    n, k = logits.shape
    # Whole numbers and parts of an irrational one: no ties for the first place.
    logits = logits + np.sqrt(2) * np.linspace(0.1, 0.5, n)[:, None] * np.arange(k)
    order = np.array(random.sample(range(k), k))
    probs = softmax(logits, axis=1)
    assume(k > 2 or order[0] == 0)  # of two classes, the calibration error is that of the second
    found = evaluate(np.argsort(order)[labels], probs[:, order])
    expected = evaluate(labels, probs)
    assert numbers(found)[:13] == pytest.approx(
        numbers(expected)[:13], rel=1e-8, abs=1e-8, nan_ok=True
    )
    for j, one in enumerate(found.per_class):
        other = expected.per_class[order[j]]
        assert (one.n, one.share) == (other.n, pytest.approx(other.share))
        assert one.auroc == pytest.approx(other.auroc, abs=1e-12, nan_ok=True)


@given(weighted())
def test_a_weight_says_how_often_a_row_counts(sample):
    labels, logits, weights = sample
    probs = softmax(logits, axis=1)
    found = evaluate(labels, probs, sample_weight=weights)
    repeated = evaluate(np.repeat(labels, weights), np.repeat(probs, weights, axis=0))
    assert same(found, repeated)


@pytest.mark.slow
@given(predictions(), st.integers(0, 1000))
def test_a_soft_label_is_a_row_of_each_label(sample, seed):
    _, logits = sample
    n, k = logits.shape
    soft = np.random.default_rng(seed).dirichlet(np.ones(k), n)
    probs = softmax(logits, axis=1)
    found = evaluate(soft, probs)
    expected = evaluate(
        np.tile(np.arange(k), n), np.repeat(probs, k, axis=0), sample_weight=soft.ravel()
    )
    assert same(found, expected, rel=1e-8, abs=1e-8)
    assert found.n == n
    assert [one.n for one in found.per_class] == np.bincount(
        soft.argmax(axis=1), minlength=k
    ).tolist()


@given(predictions())
def test_probabilities_are_the_same_as_their_logits(sample):
    labels, logits = sample
    logits = logits + np.random.default_rng(0).random(logits.shape) / 16  # off the edges of bins
    found = evaluate(labels, softmax(logits, axis=1))
    assert same(found, evaluate(labels, logits=logits), rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("k", [2, 3])
def test_any_kind_of_array_and_label(k):
    labels, logits = drawn(60, k)
    probs = softmax(logits, axis=1)
    names = np.array(["no", "yes", "maybe"])[:k]
    expected = evaluate(labels, probs)
    alike = [
        evaluate(labels.tolist(), probs.tolist()),
        evaluate(labels, np.asfortranarray(probs)),
        evaluate(torch.tensor(labels), torch.tensor(probs)),
        evaluate(names[labels], probs, classes=names),
        evaluate(names[labels], pd.DataFrame(probs, columns=names)),
        evaluate(np.eye(k)[labels], probs),
    ]
    assert all(same(found, expected) for found in alike)
    assert same(evaluate(labels, probs.astype(np.float32)), expected, rel=1e-5, abs=1e-5)
    if k == 2:
        assert same(evaluate(labels, probs[:, 1]), expected)
        assert same(evaluate(labels, probs[:, 1:]), expected)
        assert same(evaluate(labels, logits=logits[:, 1] - logits[:, 0]), expected)
    assert [one.label for one in evaluate(names[labels], probs, classes=names).per_class] == list(
        names
    )
    assert evaluate(labels, probs, names=list("abc")[:k]).classes == tuple("abc")[:k]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_nothing(threads):
    labels, logits = drawn(300_000, 8)  # enough numbers to be shared out
    found = evaluate(labels, softmax(logits, axis=1), n_threads=threads)
    assert same(found, evaluate(labels, logits=logits, n_threads=1))


# ---- edge cases --------------------------------------------------------------------------------------------


def test_a_label_of_probability_0_is_infinite_and_said_once():
    labels, probs = [0, 1, 1, 0], [[1.0, 0.0], [1.0, 0.0], [0.3, 0.7], [0.6, 0.4]]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = evaluate(labels, probs, by=["a", "a", "b", "b"])
    assert [str(one.message)[:24] for one in seen] == ["the log loss is infinite"]
    assert found.log.risk == math.inf
    assert found.per_class[1].log_loss == math.inf
    assert found.per_class[0].log_loss == pytest.approx(-math.log(0.6) / 2)
    assert found.brier.risk == pytest.approx((0 + 2 + 2 * 0.3**2 + 2 * 0.4**2) / 4)
    assert found.groups["a"].log.risk == math.inf
    assert math.isfinite(found.groups["b"].log.risk)
    assert found.to_dict()["log"]["risk"] is None
    json.dumps(found.to_dict(), allow_nan=False)
    assert "inf" in repr(found)


def test_an_infinite_loss_of_weight_0_is_gone():
    labels, probs = [0, 1, 1, 0], [0.1, 0.0, 0.7, 0.4]
    found = evaluate(labels, probs, sample_weight=[1, 0, 1, 1])
    assert same(found, evaluate(np.delete(labels, 1), np.delete(probs, 1)))


def test_a_class_without_rows_has_no_recall():
    found = evaluate([0, 1, 0], softmax(drawn(3, 3)[1], axis=1))
    last = found.per_class[2]
    assert (last.n, last.share, last.part) == (0, 0.0, 0.0)
    assert math.isnan(last.recall)
    assert math.isnan(last.auroc)
    assert last.to_dict()["recall"] is None


@pytest.mark.parametrize("labels", [[1], [1, 1, 1]])
def test_one_class_or_one_row_is_no_trouble(labels):
    found = evaluate(labels, [0.7] * len(labels))
    assert math.isnan(found.auroc)
    assert found.log.risk == pytest.approx(-math.log(0.7))
    assert found.log.uncertainty == 0
    json.dumps(found.to_dict(), allow_nan=False)


def test_tiny_and_sure_probabilities_keep_their_digits():
    probs = np.array([[1 - 1e-12, 1e-12], [1e-12, 1 - 1e-12], [0.5, 0.5]])
    found = evaluate([1, 1, 0], probs)
    expected = -np.log([1e-12, 1 - 1e-12, 0.5])
    assert found.per_class[1].log_loss == pytest.approx(expected[:2].mean(), rel=1e-12)


def test_many_small_probabilities_do_not_underflow():
    p = np.full(5000, 1e-25)
    found = evaluate(np.ones(5000, dtype=int), p)
    assert found.log.risk == pytest.approx(25 * math.log(10), rel=1e-12)


# ---- groups ------------------------------------------------------------------------------------------------


def test_a_group_is_evaluated_as_if_it_were_alone():
    labels, logits = drawn(500, 3)
    probs = softmax(logits, axis=1)
    group = np.random.default_rng(0).choice(["a", "b", "c"], 500)
    weights = np.random.default_rng(1).random(500)
    found = evaluate(labels, probs, sample_weight=weights, by=group)
    assert list(found.groups) == ["a", "b", "c"]
    for name, one in found.groups.items():
        here = group == name
        alone = evaluate(labels[here], probs[here], sample_weight=weights[here])
        assert same(one, alone)
        assert one.n == here.sum()
        assert one.groups == {}
    assert same(
        evaluate(labels, logits=logits, by=group).groups["b"],
        evaluate(labels[group == "b"], logits=logits[group == "b"]),
    )


def test_soft_labels_have_groups_too():
    _, logits = drawn(20, 3)
    soft = np.random.default_rng(0).dirichlet(np.ones(3), 20)
    probs = softmax(logits, axis=1)
    found = evaluate(soft, probs, by=np.arange(20) % 2)
    assert same(found.groups["1"], evaluate(soft[1::2], probs[1::2]), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ([10, 9, 10, 2], ["2", "9", "10"]),
        ([1.0, 0.5, 1.0, np.nan], ["0.5", "1", "(missing)"]),
        (["b", "a", None, "b"], ["a", "b", "(missing)"]),
        (pd.Series(["b", "a", "10", "b"], dtype="category"), ["10", "a", "b"]),
        (pd.Series(["10", "9", pd.NA, "9"]), ["9", "10", "(missing)"]),
        ([True, False, True, True], ["False", "True"]),
    ],
)
def test_groups_are_sorted_and_what_is_missing_comes_last(by, names):
    found = evaluate([0, 1, 1, 0], [0.2, 0.8, 0.6, 0.3], by=by)
    assert list(found.groups) == names
    assert sum(one.n for one in found.groups.values()) == 4


def test_a_group_of_weight_0_is_left_out():
    found = evaluate([0, 1, 1], [0.2, 0.7, 0.6], sample_weight=[1, 1, 0], by=["a", "a", "b"])
    assert list(found.groups) == ["a"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": ["a"]}, r"by has shape \(1,\), but there are 2 rows"),
        ({"names": ["a"]}, "names has 1 names, but there are 2 classes"),
        ({"n_threads": 0}, "n_threads is 0"),
        ({"calibrator": "isotonc"}, "Did you mean 'isotonic'"),
        ({"sample_weight": [1, -1]}, r"sample_weight\[1\] is -1"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        evaluate([0, 1], [0.2, 0.7], **options)


def test_too_many_groups_are_refused():
    labels, logits = drawn(3000, 2)
    with pytest.raises(ValueError, match="by has 3000 different values.*bin the values first"):
        evaluate(labels, logits=logits, by=np.linspace(0, 1, 3000))


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        ([[0.2, 0.8], [np.nan, 0.5]], r"probs\[1, 0\] is NaN"),
        ([[0.2, 0.8], [-0.5, 1.5]], r"probs\[1, 0\] is -0.5, which is not a probability"),
        ([[0.2, 0.8], [0.5, 0.6]], r"probs\[1\] sums to 1.1"),
        ([[0.2, 0.8], [0.0, 0.0]], r"probs\[1\] sums to 0"),
        ([[0.2, 0.8], [1.0005, 0.0]], r"probs\[1, 0\] is 1.0005"),
        ([[0.2, 0.8], [np.inf, 0.0]], r"probs\[1, 0\] is inf"),
        ([0.2, 1.8], r"probs\[1\] is 1.8"),
    ],
)
def test_what_is_no_probability_is_found_and_named(probs, message):
    with pytest.raises(ValueError, match=message):
        evaluate([0, 1], probs)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0, 1],), TypeError, "pass either probs or logits=, found neither"),
        (([0, 3], [[0.5, 0.5]] * 2), ValueError, r"y_true\[1\] is 3, but probs has 2 columns"),
        (([0, 1, 1], [[0.5, 0.5]] * 2), ValueError, "y_true has 3 rows, but probs has 2"),
        (([0, -1], [[0.5, 0.5]] * 2), ValueError, r"y_true\[1\] is -1, but probs has 2 columns"),
        (([0, 1], [["a", "b"]] * 2), TypeError, "probs must hold real numbers"),
    ],
)
def test_wrong_arguments_are_refused_as_by_decompose(arguments, error, message):
    with pytest.raises(error, match=message):
        evaluate(*arguments)


def test_numbered_classes_may_be_named_as_such():
    labels, logits = drawn(50, 3)
    assert same(evaluate(labels, logits=logits, classes=range(3)), evaluate(labels, logits=logits))
    with pytest.raises(
        ValueError, match=r"y_true\[1\] is 3, which is not among classes \[0, 1, 2\]"
    ):
        evaluate([0, 3], np.full((2, 3), 1 / 3), classes=range(3))


# ---- for people and programs -------------------------------------------------------------------------------


def test_the_table_fits_a_terminal_and_the_dictionary_is_json():
    labels, logits = drawn(2000, 40)
    names = [f"a class with a long name {j}" for j in range(40)]
    found = evaluate(labels, logits=logits, names=names, by=np.arange(2000) % 30)
    text = repr(found)
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("Evaluation of 2000 rows, 40 classes")
    assert "... and 20 more" in text
    assert "... and 10 more" in text
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["log"]["risk"] == found.log.risk
    assert plain["beta"] == found.beta
    for name in ("ece", "overconfidence", "underconfidence", "smooth_ece"):
        assert plain[name] == getattr(found, name)
    assert len(plain["per_class"]) == 40
    assert plain["per_class"][3]["label"] == names[3]
    assert plain["groups"]["29"]["n"] == found.groups["29"].n
    assert isinstance(found, Evaluation)
    assert isinstance(found.per_class[0], ClassSummary)


def test_labels_of_numpy_become_plain():
    labels, logits = drawn(50, 2)
    classes = np.array([-1, 1])
    found = evaluate(classes[labels], logits=logits, classes=classes)
    assert json.dumps(found.to_dict()["classes"]) == "[-1, 1]"


# ---- losses of rows, and their difference ------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["log", "brier", "spherical"])
@pytest.mark.parametrize("k", [2, 3, 9])
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0, 1000.0])
def test_row_losses_are_those_of_the_definition(loss, k, beta):
    labels, logits = drawn(300, k)
    logs = log_softmax(beta * logits, axis=1)
    probs, onehot = np.exp(logs), np.eye(k)[labels]
    expected = {
        "log": -logs[np.arange(300), labels],
        "brier": ((probs - onehot) ** 2).sum(axis=1),
        "spherical": 1 - (probs * onehot).sum(axis=1) / np.sqrt((probs**2).sum(axis=1)),
    }[loss]
    found = row_losses(labels, logits=logits, loss=loss, beta=beta)
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-12)
    if beta == 1:
        assert row_losses(labels, softmax(logits, axis=1), loss=loss) == pytest.approx(expected)


def test_row_losses_of_impossible_labels_and_of_float32():
    found = row_losses([0, 1, 1], [[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]])
    assert found.tolist() == [0.0, math.inf, pytest.approx(math.log(2))]
    labels, logits = drawn(100, 3)
    single = row_losses(labels, logits=logits.astype(np.float32))
    assert single == pytest.approx(row_losses(labels, logits=logits), rel=1e-5, abs=1e-6)
    soft = np.array([[0.5, 0.5]])
    assert row_losses(soft, [[0.2, 0.8]]) == pytest.approx(-np.log([0.2 * 0.8]) / 2)


@pytest.mark.parametrize("beta", [-1.0, math.inf, math.nan, "2"])
def test_row_losses_refuse_a_wrong_beta(beta):
    with pytest.raises(ValueError, match="beta is .*: it must be a finite number of at least 0"):
        row_losses([0, 1], [0.5, 0.5], beta=beta)


def test_the_difference_is_that_of_a_paired_t_test():
    a, b = np.random.default_rng(0).exponential(size=(2, 50))
    found = paired_difference(a, b)
    test = stats.ttest_rel(a, b)
    assert found.mean == pytest.approx((a - b).mean())
    assert found.mean / found.standard_error == pytest.approx(test.statistic)
    low, high = stats.norm.interval(0.95, (a - b).mean(), stats.sem(a - b))
    assert (found.low, found.high, found.n) == (pytest.approx(low), pytest.approx(high), 50)


def test_the_interval_covers_the_true_mean():
    rng = np.random.default_rng(0)
    covered = [
        found.low <= 0.5 <= found.high
        for found in (
            paired_difference(rng.exponential(0.5, 200), np.zeros(200)) for _ in range(2000)
        )
    ]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)


def test_the_weighted_error_is_that_of_repeated_experiments():
    rng = np.random.default_rng(0)
    weights = rng.exponential(size=400)
    found = [paired_difference(rng.normal(size=400), np.zeros(400), weights) for _ in range(2000)]
    spread = np.std([one.mean for one in found])
    assert np.mean([one.standard_error for one in found]) == pytest.approx(spread, rel=0.05)


@given(weighted(), st.sampled_from([1e-300, 1e-3, 7.0, 1e300]))
def test_weights_have_no_scale_and_those_of_0_no_row(sample, scale):
    labels, logits, weights = sample
    losses = row_losses(labels, logits=logits)
    found = paired_difference(losses, losses[::-1], weights * scale)
    used = weights > 0
    again = paired_difference(losses[used], losses[::-1][used], weights[used])
    assert found.mean == pytest.approx(again.mean, abs=1e-12)
    assert found.standard_error == pytest.approx(again.standard_error, abs=1e-12, nan_ok=True)
    assert found.n == used.sum()


@pytest.mark.parametrize(
    ("a", "b", "mean"),
    [
        ([math.inf, 1.0], [1.0, 1.0], math.inf),
        ([1.0, 1.0], [1.0, math.inf], -math.inf),
        ([math.inf, 1.0], [1.0, math.inf], math.nan),
        ([math.inf, math.inf], [1.0, 1.0], math.inf),
        ([math.inf, 3.0], [math.inf, 1.0], 1.0),  # the first row: no difference
    ],
)
def test_infinite_losses(a, b, mean):
    found = paired_difference(a, b)
    assert found.mean == pytest.approx(mean, nan_ok=True)
    if not math.isfinite(mean):
        assert math.isnan(found.standard_error)
        assert not found.is_sure
        assert found.to_dict()["mean"] is None


def test_one_row_has_no_error():
    found = paired_difference([2.0], [1.0])
    assert (found.mean, found.n) == (1.0, 1)
    assert math.isnan(found.standard_error)
    assert json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1.0, 2.0], [1.0], "losses_a has 2 rows, but losses_b has 1"),
        ([1.0, math.nan], [1.0, 1.0], r"losses_a\[1\] is NaN"),
        ([], [], r"losses_a has shape \(0,\)"),
        ([[1.0]], [[1.0]], r"losses_a has shape \(1, 1\)"),
    ],
)
def test_wrong_losses_are_refused(a, b, message):
    with pytest.raises(ValueError, match=message):
        paired_difference(a, b)


# ---- several models ----------------------------------------------------------------------------------------


def three_models(n=1000, k=3):
    labels, logits = drawn(n, k)
    noise = np.random.default_rng(1).normal(size=logits.shape)
    return labels, {
        "noisy": softmax(logits + noise, axis=1),
        "sure": softmax(4 * logits, axis=1),
        "right": softmax(logits, axis=1),
    }


@pytest.mark.parametrize("use_weights", [False, True])
def test_models_are_ranked_and_compared_row_by_row(use_weights):
    labels, models = three_models()
    weights = np.random.default_rng(0).random(len(labels)) if use_weights else None
    found = compare_models(labels, models, sample_weight=weights)
    assert isinstance(found, Comparison)
    assert list(found.evaluations) == list(models)
    risks = {
        name: rc.decompose(labels, probs, sample_weight=weights).risk
        for name, probs in models.items()
    }
    assert found.ranking == tuple(sorted(models, key=risks.get))
    assert found.best == "right"
    for name, probs in models.items():
        alone = evaluate(labels, probs, sample_weight=weights)
        assert same(found.evaluations[name], alone)
        for kind, loss in (("log", "log"), ("brier", "brier")):
            pair = [row_losses(labels, p, loss=loss) for p in (probs, models["right"])]
            expected = paired_difference(*pair, weights)
            ours = getattr(found, kind)[name]
            assert isinstance(ours, Difference)
            assert (ours.mean, ours.standard_error) == pytest.approx(
                (expected.mean, expected.standard_error), abs=1e-12
            )


def test_differences_after_calibration_are_those_of_the_refinement():
    labels, models = three_models()
    found = compare_models(labels, models)
    for name in models:
        parts, best = found.evaluations[name], found.evaluations[found.best]
        gap = parts.log.refinement - best.log.refinement
        assert found.refinement[name].mean == pytest.approx(gap, abs=1e-10)
        gap = parts.brier.refinement - best.brier.refinement
        assert found.brier_refinement[name].mean == pytest.approx(gap, abs=1e-10)
    assert found.log["sure"].is_sure
    assert abs(found.refinement["sure"].mean) < 1e-6  # the same logits, four times as large


def test_other_calibrators_compare_too():
    labels, logits = drawn(500, 2)
    models = {"a": softmax(logits, axis=1), "b": softmax(3 * logits, axis=1)}
    found = compare_models(labels, models, calibrator="isotonic")
    gap = found.evaluations["b"].log.refinement - found.evaluations["a"].log.refinement
    assert found.refinement["b"].mean == pytest.approx(gap, abs=1e-9)


def test_models_are_compared_within_groups():
    labels, models = three_models()
    group = np.arange(len(labels)) % 2
    found = compare_models(labels, models, by=group)
    assert list(found.groups) == ["0", "1"]
    alone = compare_models(labels[::2], {name: probs[::2] for name, probs in models.items()})
    assert found.groups["0"].ranking == alone.ranking
    assert found.groups["0"].log["sure"].mean == pytest.approx(alone.log["sure"].mean)


def test_logits_and_columns_by_class():
    labels, logits = drawn(300, 3)
    names = np.array(["x", "y", "z"])
    frame = pd.DataFrame(softmax(logits, axis=1), columns=names)
    found = compare_models(
        labels, {"a": logits, "b": 2 * logits}, logits=True, names=["x", "y", "z"]
    )
    assert found.evaluations["a"].classes == ("x", "y", "z")
    assert same(
        found.evaluations["a"],
        compare_models(names[labels], {"a": frame, "b": frame}).evaluations["a"],
    )
    with pytest.raises(
        ValueError, match=r"predictions\['b'\] has its classes in a different order"
    ):
        compare_models(names[labels], {"a": frame, "b": frame[["z", "y", "x"]]})


def test_an_impossible_label_ranks_last_and_is_said():
    labels, models = three_models(50)
    models["never"] = np.tile([1.0, 0.0, 0.0], (50, 1))
    with pytest.warns(RuntimeWarning, match="the log loss is infinite"):
        found = compare_models(labels, models)
    assert found.ranking[-1] == "never"
    assert found.log["never"].mean == math.inf
    json.dumps(found.to_dict(), allow_nan=False)
    with pytest.warns(RuntimeWarning, match="the log loss is infinite"):
        two = compare_models(labels, {name: models[name] for name in ("right", "never")})
    assert two.verdict.startswith("'right' is best; the others assign probability 0")
    with pytest.warns(RuntimeWarning, match="the log loss is infinite"):
        none = compare_models(labels, dict.fromkeys("ab", models["never"]))
    assert none.verdict.startswith("Every model assigns probability 0")


def test_the_verdict_says_what_is_sure():
    labels, models = three_models()
    found = compare_models(labels, {name: models[name] for name in ("sure", "right")})
    gap = found.log["sure"]
    assert found.verdict.startswith("'right' is best: its log loss is ")
    assert f"± {gap.standard_error:.3f} (s.e.) lower than that of 'sure'." in found.verdict
    twice = compare_models(labels, dict.fromkeys("ab", models["right"]))
    assert twice.verdict.startswith("'a' and 'b' are tied: their log losses differ by ")
    thrice = compare_models(labels, dict.fromkeys("abc", models["right"]))
    assert thrice.verdict.startswith("'a', 'b' and 'c' are tied: ")
    mixed = compare_models(
        labels, {"noisy": models["noisy"], "sure": softmax(8 * np.log(models["right"]), axis=1)}
    )
    assert "After calibration, 'sure' would be best: its log loss would be " in mixed.verdict


def test_the_comparison_fits_a_terminal_and_is_json():
    labels, models = three_models()
    models = {f"a model with a long name called {name}": probs for name, probs in models.items()}
    found = compare_models(labels, models)
    assert max(map(len, repr(found).splitlines())) <= 80
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["ranking"] == list(found.ranking)
    assert set(plain["differences"]) == set(found.ranking[1:])
    second = found.ranking[1]
    assert plain["differences"][second]["log"]["mean"] == found.log[second].mean


@pytest.mark.parametrize(
    ("models", "error", "message"),
    [
        ([[0.5, 0.5]], TypeError, "predictions is list: pass a mapping"),
        ({"a": [0.5, 0.5]}, ValueError, "predictions has 1 models: pass at least two"),
        ({"a": [0.5, 0.5], "": [0.5, 0.5]}, ValueError, "a model called ''"),
        ({"a": [0.5, 0.5], 3: [0.5, 0.5]}, ValueError, "a model called 3"),
        (
            {"a": [0.5, 0.5], "b": [0.5]},
            ValueError,
            r"predictions\['b'\]: y_true has 2 rows, but probs",
        ),
        ({"a": [0.5, 0.5], "b": [0.5, 7]}, ValueError, r"predictions\['b'\]: probs\[1\] is 7"),
        (
            {"a": [0.5, 0.5], "b": np.full((2, 4), 0.25)},
            ValueError,
            r"predictions\['b'\] has 4 classes, but 'a' has 2",
        ),
    ],
)
def test_wrong_models_are_refused(models, error, message):
    with pytest.raises(error, match=message):
        compare_models([0, 1], models)


@pytest.mark.parametrize("groups", [[1], np.arange(4), ["a", 1, "b", "a"]])
def test_groups_of_another_length_are_refused(groups):
    with pytest.raises(ValueError, match=f"groups has {len(groups)} entries, but there are 3 rows"):
        paired_difference([1.0, 2.0, 3.0], [0.0, 0.0, 1.0], groups=groups)
    n = len(groups)
    assert paired_difference(np.arange(n), np.zeros(n), groups=groups).n == n


def test_rows_of_a_group_count_once_in_the_error():
    """Each row written five times, in a group of its own: as sure as without the copies."""
    rng = np.random.default_rng(0)
    a, b = rng.exponential(size=(2, 40))
    plain = paired_difference(a, b)
    copies = paired_difference(np.repeat(a, 5), np.repeat(b, 5), groups=np.repeat(np.arange(40), 5))
    assert copies.mean == pytest.approx(plain.mean)
    assert copies.standard_error == pytest.approx(plain.standard_error)


def test_effective_rows():
    evaluate = rc.evaluation.evaluate
    y, p = np.arange(400) % 2, np.linspace(0.1, 0.9, 400)
    assert evaluate(y, p).n_effective == 400
    assert evaluate(y, p, sample_weight=np.full(400, 100.0)).n_effective == pytest.approx(400)
    few = np.where(np.arange(400) < 20, 1.0, 0.0)
    assert evaluate(y, p, sample_weight=few).n_effective == pytest.approx(20)
