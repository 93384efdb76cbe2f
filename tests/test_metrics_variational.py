"""Lp calibration errors: the inequality itself, simulations of known error, and their properties."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.special import expit, softmax
from sklearn.model_selection import GroupKFold
from strategies import drawn

import refinecal as rc
from refinecal.metrics._variational import lower_bound

lp = rc.metrics.lp_calibration_error
orders = pytest.mark.parametrize("p", [1, 1.5, 2, 3, math.inf])


def norm_of(v, p, power):
    size = np.linalg.norm(v, ord=p)
    return size**p if power else size


def over_confident(n, seed, factor=2.5, spread=2.0):
    """Labels drawn from expit(z), predictions expit(factor * z), and the true errors c."""
    rng = np.random.default_rng(seed)
    z = spread * rng.standard_normal(n)
    truth, probs = expit(z), expit(factor * z)
    return (rng.random(n) < truth).astype(int), probs, truth - probs


# ---- the inequality --------------------------------------------------------------------------------------


@st.composite
def rows(draw):
    """A prediction, the true probabilities and a guess of them."""
    k = draw(st.integers(2, 4))
    weights = st.lists(st.integers(0, 5), min_size=k, max_size=k).filter(any)
    return [np.array(draw(weights), float) for _ in range(3)]


@orders
@given(rows())
def test_in_expectation_no_guess_exceeds_the_error_and_the_truth_meets_it(p, sample):
    probs, truth, guess = (row / row.sum() for row in sample)
    for power in (True, False):
        if power and math.isinf(p):
            continue
        gaps = np.eye(len(probs)) - probs  # of each label

        def expected(h, gaps=gaps, power=power):
            return truth @ lower_bound(np.tile(h, (len(gaps), 1)), gaps, p, power)

        error = norm_of(truth - probs, p, power)
        assert expected(guess - probs) <= error + 1e-12
        assert expected(truth - probs) == pytest.approx(error, abs=1e-12)


@orders
def test_slopes_are_those_of_the_norm(p):
    rng = np.random.default_rng(0)
    for power in (True, False):
        if power and math.isinf(p):
            continue
        h, d = rng.standard_normal((2, 4))
        slope = approx_fprime(h, lambda v, power=power: norm_of(v, p, power), 1e-7)
        found = lower_bound(h[None], (h + d)[None], p, power)[0]
        assert found == pytest.approx(norm_of(h, p, power) + slope @ d, abs=1e-5)


def test_ties_of_the_largest_share_its_slope():
    found = lower_bound(np.array([[0.2, -0.2, 0.1]]), np.array([[1.0, 2.0, 5.0]]), math.inf, False)
    assert found[0] == pytest.approx((1 - 2) / 2)


# ---- simulations of known error --------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 3])
def test_close_to_the_truth_and_not_above_it(p):
    estimates, truths = [], []
    for seed in range(10):
        labels, probs, errors = over_confident(4000, seed)
        estimates.append(lp(labels, probs, p=p, form="power"))
        truths.append(np.mean(np.abs(errors) ** p))
    noise = np.std(np.subtract(estimates, truths)) / math.sqrt(10)
    assert np.mean(estimates) < np.mean(truths) + 4 * noise
    assert np.mean(estimates) ** (1 / p) > 0.92 * np.mean(truths) ** (1 / p)


def test_several_classes_with_the_right_family():
    labels, logits = drawn(20_000, 3, spread=1.5, confidence=2)
    errors = softmax(logits / 2, axis=1) - softmax(logits, axis=1)
    for p in (1, 2, math.inf):
        truth = np.linalg.norm(errors, ord=p, axis=1).mean()
        found = lp(labels, logits=logits, p=p, form="norm", calibrator="temperature")
        assert found == pytest.approx(truth, rel=0.05)


def test_calibrated_predictions_have_none_where_bins_find_some():
    estimates, binned = [], []
    for seed in range(15):
        labels, probs, _ = over_confident(600, seed, factor=1)
        estimates.append(lp(labels, probs))
        binned.append(rc.metrics.ece(labels, probs))
    noise = np.std(estimates) / math.sqrt(15)
    assert abs(np.mean(estimates)) < 4 * noise < 0.03
    assert np.mean(binned) > 0.03


def test_the_same_rows_find_too_much():
    labels, probs, _ = over_confident(300, 0, factor=1)
    assert lp(labels, probs, cv=None) > max(lp(labels, probs), 0.01)


# ---- other routes to the same number ---------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("cv", [None, 3])
def test_the_squared_error_is_the_brier_score_that_calibration_takes_away(k, cv):
    labels, logits = drawn(200, k, confidence=3)
    calibrator = rc.TemperatureScaling(laplace=False)
    parts = rc.decompose(labels, logits=logits, loss="brier", calibrator=calibrator, cv=cv)
    found = lp(labels, logits=logits, p=2, form="power", kind="all", calibrator=calibrator, cv=cv)
    assert found == pytest.approx(parts.calibration, abs=1e-12)


def test_two_classes_err_by_the_same():
    labels, probs, _ = over_confident(300, 1)
    one = lp(labels, probs, p=2, form="power")
    found = lp(labels, probs, p=2, form="power", kind="all")
    assert found == pytest.approx(2 * one)
    assert lp(labels, probs, kind="class-wise", calibrator="temperature") == pytest.approx(
        lp(labels, probs, calibrator="temperature")
    )


def test_forms():
    labels, probs, _ = over_confident(3000, 2)
    power = lp(labels, probs, p=3, form="power")
    assert lp(labels, probs, p=3) == pytest.approx(power ** (1 / 3))
    assert lp(labels, probs, p=3, form="norm") == lp(labels, probs)  # of one number, |c|
    assert {lp(labels, probs, form=form) for form in ("root", "power", "norm")} == {
        lp(labels, probs)
    }


def test_a_negative_power_has_root_zero():
    labels, probs, _ = over_confident(60, 2, factor=1)
    assert lp(labels, probs, p=2, form="power") < 0
    assert lp(labels, probs, p=2) == 0


def test_top_label_is_the_two_class_error_of_the_likeliest_class():
    labels, logits = drawn(300, 4, confidence=2)
    probs = softmax(logits, axis=1)
    hits = (labels == probs.argmax(axis=1)).astype(int)
    expected = lp(hits, probs.max(axis=1), p=2)
    assert lp(labels, probs, p=2, kind="top-label") == pytest.approx(expected, rel=1e-9)
    each = [lp((labels == j).astype(int), probs[:, j]) for j in range(4)]
    assert lp(labels, probs, kind="class-wise") == pytest.approx(np.mean(each), rel=1e-6)


# ---- properties and degenerate input ---------------------------------------------------------------------


def test_neither_order_nor_shifts_matter():
    labels, logits = drawn(150, 3, confidence=2)
    expected = lp(labels, logits=logits, p=2)
    order = np.random.default_rng(0).permutation(150)
    assert lp(labels[order], logits=logits[order], p=2) == pytest.approx(expected, rel=1e-6)
    assert lp(labels, logits=logits + 3.5, p=2) == pytest.approx(expected, rel=1e-6)
    assert lp(2 - labels, logits=logits[:, ::-1], p=2) == pytest.approx(expected, rel=1e-6)


def test_rows_of_weight_zero_and_equal_weights():
    labels, probs, _ = over_confident(120, 3)
    assert lp(
        labels, probs, sample_weight=np.full(120, 2.0), calibrator="temperature"
    ) == pytest.approx(lp(labels, probs, calibrator="temperature"), rel=1e-2)
    weights = np.r_[np.ones(60), np.zeros(60)]
    train, test = np.arange(60), np.arange(60)
    pairs = [(train, np.arange(120))]
    found = lp(labels, probs, sample_weight=weights, cv=pairs)
    assert found == pytest.approx(lp(labels[:60], probs[:60], cv=[(train, test)]))


def test_soft_labels_that_are_met_leave_nothing():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), 60)
    assert lp(probs, probs, p=1) == pytest.approx(0, abs=1e-12)
    assert abs(lp(probs, probs, kind="top-label")) < 1e-12


def test_one_class_only_and_constant_scores():
    assert lp([0] * 20, [0.4] * 20) == pytest.approx(0.4)
    assert lp([1] * 20, [[0.2, 0.5, 0.3]] * 20, calibrator="temperature") == pytest.approx(1.0)
    # Sure of the likeliest class, which is right: 0.5 more there, 0.2 and 0.3 less.


def test_impossible_classes_and_sure_predictions():
    logits = np.tile([[0.0, -np.inf, 1.0], [3.0, 0.0, -np.inf], [0.0, 1.0, 0.0]], (5, 1))
    for kind in ("all", "top-label", "class-wise"):
        assert math.isfinite(lp([0, 1, 2] * 5, logits=logits, kind=kind))
    assert lp([0, 1] * 6, [0.0, 1.0] * 6) == pytest.approx(0, abs=1e-12)


def test_groups_stay_together_and_users_bring_calibrators():
    labels, probs, _ = over_confident(90, 4)
    groups = np.arange(90) // 9
    assert math.isfinite(lp(labels, probs, cv=GroupKFold(3), groups=groups))
    own = rc.make_calibrator("isotonic")
    assert lp(labels, probs, calibrator=own) == lp(labels, probs, calibrator="isotonic")
    assert not hasattr(own, "classes_")  # a copy was fitted


def test_any_array():
    labels, logits = drawn(60, 3)
    probs = softmax(logits, axis=1)
    locked = np.asfortranarray(probs)
    locked.flags.writeable = False
    assert lp(labels, locked) == lp(labels, probs)
    assert lp(labels, probs.astype(np.float32)) == pytest.approx(lp(labels, probs), abs=1e-3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"p": 0.5}, "at least 1"),
        ({"p": math.nan}, "at least 1"),
        ({"p": True}, "at least 1"),
        ({"p": math.inf}, "form='norm'"),
        ({"form": "sum"}, "form is"),
        ({"kind": "every"}, "kind is"),
        ({"cv": "loo"}, "number of folds"),
        ({"cv": 30}, "2..20"),
        ({"calibrator": "none"}, "calibrator is"),
    ],
)
def test_what_is_wrong_is_said(options, words):
    with pytest.raises(ValueError, match=words):
        lp([0, 1] * 10, [0.3, 0.6] * 10, **options)


def test_binary_needs_two_classes():
    with pytest.raises(ValueError, match="3 classes"):
        lp([0, 1, 2] * 5, np.full((15, 3), 1 / 3), kind="binary")
