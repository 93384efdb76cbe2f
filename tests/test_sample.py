"""The one container: predictions in both forms, each computed once; and the odd inputs that reach it."""

import warnings
from contextlib import suppress

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

import refinecal as rc
from refinecal._core import arrays
from refinecal._core.checks import check_sample
from refinecal._core.sample import Sample
from refinecal.evaluation import compare_models, evaluate, row_losses


def drawn(n=40, k=3, seed=0):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, k))
    return (logits + rng.gumbel(size=(n, k))).argmax(axis=1), logits


# ---- two forms -------------------------------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(2, 140), st.integers(0, 10**6))
def test_probabilities_and_logits_are_of_each_other(n, k, seed):
    labels, logits = drawn(n, k, seed)
    sample = Sample(labels, logits)
    np.testing.assert_allclose(sample.probs, scipy.special.softmax(logits, axis=1), rtol=1e-13)
    back = Sample(labels, given=sample.probs)
    np.testing.assert_allclose(back.logits, scipy.special.log_softmax(logits, axis=1), atol=1e-12)
    np.testing.assert_allclose(back.row_sums, 1, rtol=1e-14)
    top, right = back.likeliest
    np.testing.assert_array_equal(top, np.minimum(sample.probs.max(axis=1), 1))
    np.testing.assert_array_equal(right, sample.probs.argmax(axis=1) == labels)


def test_each_form_is_computed_once_and_anew_for_other_rows():
    labels, logits = drawn()
    sample = check_sample(labels, scipy.special.softmax(logits, axis=1))
    assert sample.logits is sample.logits
    assert sample.probs is sample.probs is sample.given
    rows = np.array([5, 3, 3])
    part = sample.take(rows)
    np.testing.assert_array_equal(part.probs, sample.probs[rows])
    np.testing.assert_array_equal(part.logits, sample.logits[rows])
    np.testing.assert_array_equal(part.likeliest[1], sample.likeliest[1][rows])
    changed = sample.replace(logits=logits[::-1].copy())
    assert changed.given is None
    np.testing.assert_allclose(changed.probs, sample.probs[::-1], rtol=1e-13)


def test_soft_labels_are_weighted_rows():
    labels, logits = drawn(20)
    soft = 0.8 * np.eye(3)[labels] + 0.2 / 3
    weights = np.arange(20) / 10
    sample = check_sample(soft, logits=logits, sample_weight=weights)
    spread = sample.expand_soft_labels()
    assert spread.n == 60
    assert spread.total == pytest.approx(weights.sum())
    at_label = scipy.special.log_softmax(logits, axis=1)
    expected = -np.average((soft * at_label).sum(axis=1), weights=weights)
    assert rc.metrics.log_loss(spread) == pytest.approx(expected, rel=1e-13)
    assert rc.metrics.log_loss(sample) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    "name", ["log_loss", "brier_score", "ece", "accuracy", "auroc", "smooth_ece"]
)
def test_a_checked_sample_takes_the_place_of_labels_and_predictions(name):
    labels, logits = drawn(200)
    metric, probs = getattr(rc.metrics, name), scipy.special.softmax(logits, axis=1)
    assert metric(check_sample(labels, probs)) == metric(labels, probs)
    assert metric(check_sample(labels, logits=logits)) == metric(labels, logits=logits)


# ---- odd inputs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["accuracy", "error_rate", "ece", "mce", "log_loss", "brier_score"]
)
def test_a_probability_just_above_one_is_one(name):
    above, exact = ([p, 0.2, 0.7, 0.4] for p in (1.0000001, 1.0))
    metric = getattr(rc.metrics, name)
    for labels in ([1, 0, 1, 1], [0, 0, 1, 1]):
        expected = metric(labels, np.array(exact, np.float32))
        assert metric(labels, np.array(above, np.float32)) == pytest.approx(expected, abs=1e-6)
    monitor = rc.RefinementMonitor(also=["accuracy", "ece"])
    monitor.update([1, 0, 1, 1], np.array(above, np.float32))
    assert monitor.history[-1]["accuracy"] == 0.75


def test_rows_at_the_edge_of_the_tolerance_are_taken_or_refused_as_a_whole():
    rng = np.random.default_rng(0)
    for _ in range(200):
        row = rng.dirichlet(np.ones(9)) * (1.001 + rng.integers(-2, 3) * 2e-16)
        with suppress(ValueError):
            assert rc.metrics.accuracy([0], row[None]) in (0, 1)


@pytest.mark.parametrize("gap", [600.0, 720.0, 744.0, 2000.0])
@pytest.mark.parametrize("calibrator", ["temperature", "vector"])
def test_losses_of_logits_are_exact_however_large(gap, calibrator):
    labels, logits = drawn(8)
    logits[0, labels[0]] -= gap
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = evaluate(labels, logits=logits, calibrator=calibrator)
        parts = rc.decompose(labels, logits=logits, calibrator=calibrator)
    expected = row_losses(labels, logits=logits)
    assert found.log.risk == pytest.approx(parts.risk, rel=1e-13)
    assert found.log.risk == pytest.approx(expected.mean(), rel=1e-13)
    own = found.per_class[labels[0]]
    assert own.log_loss == pytest.approx(expected[labels == labels[0]].mean(), rel=1e-13)


def test_models_are_ranked_by_losses_that_are_finite():
    labels, logits = drawn(8)
    worse, better = logits.copy(), logits.copy()
    worse[0, labels[0]] -= 744
    better[0, labels[0]] -= 720
    found = compare_models(labels, {"worse": worse, "better": better}, logits=True)
    assert found.ranking == ("better", "worse")


def test_threads_are_those_asked_for_whatever_reads(monkeypatch):
    labels, logits = drawn(64)
    probs = scipy.special.softmax(logits, axis=1)

    def refuse(*args):
        raise AssertionError("one thread was asked for")

    monkeypatch.setattr(arrays, "THREAD_ELEMENTS", 0)
    monkeypatch.setattr(arrays, "ThreadPoolExecutor", refuse)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for given_as in ({"probs": probs}, {"logits": logits}):
        evaluate(labels, **given_as, n_threads=1)
        rc.decompose(labels, **given_as, loss="brier", n_threads=1)
        row_losses(labels, **given_as, n_threads=1)
        monitor = rc.RefinementMonitor(also=["brier", "accuracy", "ece"], n_threads=1)
        monitor.update(labels, **given_as)
    compare_models(labels, {"a": probs, "b": probs[::-1]}, n_threads=1)


def test_a_users_metric_sees_rows_that_sum_to_one():
    labels, logits = drawn()
    probs = scipy.special.softmax(logits, axis=1) * 1.0009
    seen = []

    def spy(y, probs):
        seen.append(probs.sum(axis=1))
        return 0.0

    rc.RefinementMonitor(rc.metrics.Metric(spy, "spy")).update(labels, probs)
    np.testing.assert_allclose(seen[0], 1, rtol=1e-14)


def test_a_subclass_keeps_what_it_was_made_with():
    class Floored(rc.TemperatureScaling):
        def __init__(self, laplace=True, floor=0.1):
            super().__init__(laplace)
            self.floor = floor

    labels, logits = drawn()
    monitor = rc.RefinementMonitor(calibrator=Floored(floor=0.2))
    monitor.update(labels, logits=logits)
    assert monitor.calibrator.floor == 0.2


def test_light_weights_are_not_warned_of_at_every_step():
    labels, logits = drawn()
    monitor = rc.RefinementMonitor(also=["spiegelhalter", "debiased_ece"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monitor.update(labels, logits=logits, sample_weight=np.full(40, 1 / 40))


def test_labels_too_large_for_int64_are_shown_as_they_are():
    _, logits = drawn(2)
    with pytest.raises(ValueError, match=r"y_true\[0\] is 18446744073709551615, but logits has 3"):
        rc.decompose(np.array([2**64 - 1, 0], np.uint64), logits=logits)


def test_byte_order_may_change_between_steps():
    labels, logits = drawn()
    monitor = rc.RefinementMonitor()
    monitor.update(labels, logits=logits)
    monitor.update(labels, logits=logits.astype(">f8"))
    first, second = monitor.history
    assert first["refinement"] == pytest.approx(second["refinement"], rel=1e-12)


def test_an_infinite_loss_is_warned_of_for_any_loss_and_before_a_calibrator_fails():
    class Other(rc.losses.LogLoss):
        name = "other"

    class Fails:
        def fit(self, probs, y):
            raise RuntimeError("no")

        def predict_proba(self, probs):
            return probs

    labels, probs = [0, 1, 1], [[0.0, 1.0], [0.5, 0.5], [0.2, 0.8]]
    with pytest.warns(RuntimeWarning, match="the log loss is infinite"):
        rc.decompose(labels, probs, loss=Other(), calibrator="vector")
    with (
        pytest.warns(RuntimeWarning, match="the log loss is infinite"),
        pytest.raises(RuntimeError),
    ):
        evaluate(labels, probs, calibrator=Fails())


def test_huge_log_odds_are_ranked():
    odds = [[0, 1e307], [0, 2e307], [0, -1e307], [0, 5e306]]
    assert rc.metrics.auroc([0, 1, 0, 1], logits=odds) == 0.75
