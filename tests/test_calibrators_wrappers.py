"""Calibrators made of others: one class against the rest, against each other, and smoothing."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax
from sklearn.base import clone
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from strategies import drawn, predictions

import refinecal as rc
from refinecal import TemperatureScaling
from refinecal.calibrators import (
    IsotonicCalibration,
    LaplaceSmoothing,
    OneVsOne,
    OneVsRest,
    from_json,
)
from refinecal.calibrators._pairs import couple, evaluate

BOTH = pytest.mark.parametrize("kind", [OneVsRest, OneVsOne])


def against_rest(logits):
    """Return the log-odds of each class against the rest."""
    rest = [logsumexp(np.delete(logits, j, axis=1), axis=1) for j in range(logits.shape[1])]
    return logits - np.stack(rest, axis=1)


def iso(odds, hits, new):
    return IsotonicRegression(out_of_bounds="clip").fit(odds, hits).predict(new)


def test_one_vs_rest_is_scikit_learns_isotonic_of_each_class():
    labels, logits = drawn(400, 4, confidence=2.0)
    _, new = drawn(100, 4, seed=1)
    old, odds = against_rest(logits), against_rest(new)
    raw = np.stack([iso(old[:, j], labels == j, odds[:, j]) for j in range(4)], axis=1)
    fitted = OneVsRest(IsotonicCalibration(laplace=False)).fit_logits(logits, labels)
    found = fitted.predict_proba_logits(new)
    np.testing.assert_allclose(found, raw / raw.sum(axis=1, keepdims=True), atol=1e-9)
    assert fitted.n_parameters == sum(part.n_parameters for part in fitted.calibrators_)


class Never:
    """A user's calibrator that never expects class 1."""

    def fit(self, probs, y):
        return self

    def predict_proba(self, probs):
        return np.tile([1.0, 0.0], (len(probs), 1))


def test_one_vs_rest_is_uniform_where_every_class_has_probability_0():
    probs = [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    found = OneVsRest(Never()).fit(probs, [0, 1, 2]).predict_proba(probs)
    np.testing.assert_allclose(found, 1 / 3)


# ---- coupling --------------------------------------------------------------------------------------------


def ratios_of(odds):
    """Return the pairwise probabilities of antisymmetric log-odds, with a diagonal of 0."""
    ratios = expit(odds)
    ratios[..., np.arange(odds.shape[-1]), np.arange(odds.shape[-1])] = 0
    return ratios


def coupled(ratios):
    """Couple matrices of pairwise probabilities."""
    j, i = np.tril_indices(ratios.shape[-1], -1)
    return couple(ratios[:, j, i], ratios[:, i, j])


@given(st.integers(3, 6), st.integers(0, 10**6))
def test_coupling_solves_the_problem_of_wu_lin_and_weng(k, seed):
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(k, k)) * rng.choice([0.1, 1, 3])
    r = ratios_of(noise - noise.T)

    def loss(p):
        return np.sum((r.T * p[:, None] - r * p[None, :]) ** 2) / 2

    found = coupled(r[None])[0]
    best = minimize(
        loss,
        np.full(k, 1 / k),
        method="SLSQP",
        bounds=[(0, 1)] * k,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 300},
    )
    assert np.all(found >= 0)
    assert np.isclose(found.sum(), 1)
    assert loss(found) <= best.fun + 1e-12
    np.testing.assert_allclose(found, best.x, atol=1e-4)


def test_coupling_returns_probabilities_that_all_pairs_agree_on():
    logits = np.random.default_rng(0).normal(size=(50, 5)) * 4
    odds = logits[:, :, None] - logits[:, None, :]
    np.testing.assert_allclose(coupled(ratios_of(odds)), softmax(logits, axis=1), rtol=1e-12)


def solved(odds):
    """Return the solution of the linear system of Wu, Lin and Weng for one row, to 60 digits."""
    k = len(odds)
    with mpmath.workdps(60):
        r = mpmath.matrix([[1 / (1 + mpmath.exp(-mpmath.mpf(o))) for o in row] for row in odds])
        q = mpmath.matrix(k + 1)
        for i in range(k):
            for j in range(k):
                q[i, j] = -r[i, j] * r[j, i]
            q[i, i] = sum(r[s, i] ** 2 for s in range(k) if s != i)
            q[i, k] = q[k, i] = 1
        found = mpmath.lu_solve(q, mpmath.matrix([0] * k + [1]))
        return [float(found[i]) for i in range(k)]


@pytest.mark.parametrize(("k", "scale"), [(3, 15), (5, 1), (6, 8), (9, 3), (12, 1)])
def test_coupling_is_exact_for_small_probabilities_too(k, scale):
    rng = np.random.default_rng(k)
    logits, noise = scale * rng.normal(size=(8, k, 1)), rng.normal(size=(8, k, k))
    odds = logits - logits.transpose(0, 2, 1) + noise - noise.transpose(0, 2, 1)
    expected = np.array([solved(row) for row in odds])
    np.testing.assert_allclose(coupled(ratios_of(odds)), expected, rtol=1e-11)


def test_coupling_of_certain_pairs():
    order = np.triu(np.ones((4, 4)), 1)  # each beats those after it
    np.testing.assert_allclose(coupled(order[None]), [[1, 0, 0, 0]])
    cycle = np.array([[[0.0, 1, 0], [0, 0, 1], [1, 0, 0]]])  # each beats one, and is beaten by one
    np.testing.assert_allclose(coupled(cycle), [[1 / 3, 1 / 3, 1 / 3]])


def test_one_vs_one_fits_each_pair_on_its_own_rows():
    labels, logits = drawn(300, 3, confidence=2.0)
    _, new = drawn(50, 3, seed=1)
    r = np.zeros((50, 3, 3))
    for i in range(3):
        for j in range(i):
            own = (labels == i) | (labels == j)
            old, odds = logits[own, i] - logits[own, j], new[:, i] - new[:, j]
            r[:, i, j] = iso(old, labels[own] == i, odds)
            r[:, j, i] = 1 - r[:, i, j]
    fitted = OneVsOne(IsotonicCalibration(laplace=False)).fit_logits(logits, labels)
    np.testing.assert_allclose(fitted.predict_proba_logits(new), coupled(r), atol=1e-9)
    assert len(fitted.calibrators_) == 3


CURVES = (
    *("affine", "quadratic", "beta", "isotonic", "centred-isotonic", "venn-abers", "spline"),
    *("cross-venn-abers", "uniform-mass", "uniform-width", "scaling-binning", "temperature"),
)


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("laplace", [False, True])
def test_the_curves_of_all_pairs_are_what_their_calibrators_say(name, laplace):
    labels, logits = drawn(300, 5, confidence=2.0)
    logits[:9, 2] = -np.inf
    labels[(labels == 3) | (logits[np.arange(300), labels] == -np.inf)] = 0  # class 3 has no rows
    fitted = OneVsOne(rc.make_calibrator(name, laplace=laplace)).fit_logits(logits, labels)
    new = np.concatenate([logits, 1e3 * logits, np.eye(5), np.zeros((1, 5))])
    new[-5:, 3:] = -np.inf
    odds = new[:, 1] - new[:, 0]
    assert np.ptp(odds[np.isfinite(odds)]) > 1e3
    found, expected = evaluate(fitted._curves(), new), fitted._ratios(new)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-300)


def test_calibrators_that_are_no_curves_are_asked_pair_by_pair(monkeypatch):
    labels, logits = drawn(90, 4)
    curves = OneVsOne("temperature").fit_logits(logits, labels)
    whole = curves.predict_proba_logits(logits)
    monkeypatch.setattr(TemperatureScaling, "_curve", lambda self: None)
    np.testing.assert_allclose(curves.predict_proba_logits(logits), whole, rtol=1e-12)


# ---- both ------------------------------------------------------------------------------------------------


@BOTH
@given(sample=predictions(max_rows=15), weigh=st.booleans())
def test_any_set_gives_probabilities(kind, sample, weigh):
    labels, logits = sample
    weights = np.arange(len(labels)) % 3 + (len(labels) == 1) if weigh else None
    weights = None if weigh and not np.any(weights) else weights
    fitted = kind("isotonic").fit_logits(logits, labels, weights)
    impossible = logits.copy()
    impossible[:, -1] = -np.inf
    for new in logits, impossible, 500 * logits:
        found = fitted.predict_proba_logits(new)
        assert np.all(found >= 0)
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-9)
    copy = from_json(fitted.to_json())
    np.testing.assert_array_equal(
        copy.predict_proba_logits(logits), fitted.predict_proba_logits(logits)
    )


@BOTH
@given(sample=predictions(max_rows=15), seed=st.integers(0, 1000))
def test_order_of_rows_and_classes_and_shifts_do_not_matter(kind, sample, seed):
    labels, logits = sample
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(len(labels)), rng.permutation(logits.shape[1])
    fitted = kind("isotonic").fit_logits(logits, labels)
    moved = logits[rows][:, columns] + rng.integers(-3, 4, size=(len(rows), 1))
    other = kind("isotonic").fit_logits(moved, np.argsort(columns)[labels[rows]])
    np.testing.assert_allclose(
        other.predict_proba_logits(logits[:, columns]),
        fitted.predict_proba_logits(logits)[:, columns],
        atol=1e-8,
    )


@BOTH
def test_weights_repeat_rows(kind):
    labels, logits = drawn(80, 4)
    counts = np.random.default_rng(1).integers(0, 4, size=80)
    rows = np.repeat(np.arange(80), counts)
    weighted = kind("isotonic").fit_logits(logits, labels, counts)
    repeated = kind("isotonic").fit_logits(logits[rows], labels[rows])
    np.testing.assert_allclose(
        weighted.predict_proba_logits(logits), repeated.predict_proba_logits(logits), atol=1e-9
    )


@BOTH
def test_soft_labels_are_shares_of_rows(kind):
    _, logits = drawn(40, 3)
    soft = softmax(np.random.default_rng(2).normal(size=(40, 3)), axis=1)
    soft[:5] = [0, 0.5, 0.5]
    member = IsotonicCalibration(laplace=False)
    ours = kind(member).fit_logits(logits, soft)
    rows, labels = np.nonzero(soft)
    theirs = kind(member).fit_logits(logits[rows], labels, soft[rows, labels])
    np.testing.assert_allclose(
        ours.predict_proba_logits(logits), theirs.predict_proba_logits(logits), atol=1e-9
    )


@BOTH
def test_a_class_without_rows_keeps_a_share_of_its_probability(kind):
    labels, logits = drawn(200, 3)
    labels %= 2
    probs = softmax(logits, axis=1)
    member = IsotonicCalibration(laplace=False)
    fitted = kind(member).fit_logits(logits, labels)
    found = fitted.predict_proba_logits(logits)
    assert np.all((found[:, 2] > 0) & (found[:, 2] <= probs[:, 2]))
    assert np.all(fitted.members_ >= -1)
    if kind is OneVsRest:
        kept = probs[:, 2] / (1 + probs[:, 2].sum())
        odds = against_rest(logits)
        raw = [iso(odds[:, j], labels == j, odds[:, j]) for j in range(2)]
        np.testing.assert_allclose(found[:, 2], kept / (kept + sum(raw)), rtol=1e-9)


@BOTH
@pytest.mark.parametrize("name", ["isotonic", "venn-abers", "temperature", "centred-isotonic"])
def test_fewer_rows_than_classes_and_a_single_class(kind, name):
    rng = np.random.default_rng(3)
    for labels in [4], [1, 1, 1], [0, 3]:
        logits = rng.normal(size=(len(labels), 6))
        found = kind(name).fit_logits(logits, labels).predict_proba_logits(logits)
        assert np.isfinite(np.log(found)).all()
        np.testing.assert_allclose(found.sum(axis=1), 1)
        assert np.all(found[np.arange(len(labels)), labels] > softmax(logits, axis=1).min(axis=1))
    two = kind(name).fit_logits(rng.normal(size=(3, 6)), [2, 2, 2]).predict_proba(np.eye(6))
    assert np.all(two[:, 2] > 0)


@BOTH
def test_two_classes_are_left_to_the_calibrator(kind):
    labels, logits = drawn(100, 2)
    alone = IsotonicCalibration().fit_logits(logits, labels)
    wrapped = kind(IsotonicCalibration()).fit_logits(logits, labels)
    np.testing.assert_array_equal(
        wrapped.predict_proba_logits(logits), alone.predict_proba_logits(logits)
    )
    assert wrapped.n_parameters == alone.n_parameters
    ones = kind("isotonic").fit([0.3, 0.4], [1, 1], classes=[0, 1])
    np.testing.assert_allclose(ones.predict_proba([0.3]), [[0.5 / 3, 2.5 / 3]])


@BOTH
def test_arrays_of_any_kind_and_many_rows(kind, monkeypatch):
    from refinecal.calibrators import wrappers

    labels, logits = drawn(200, 5)
    single = np.asfortranarray(logits.astype(np.float32))
    single.flags.writeable = False
    fitted = kind("isotonic").fit_logits(single, labels)
    whole = fitted.predict_proba_logits(single)
    np.testing.assert_array_equal(whole, fitted.predict_proba_logits(single.astype(np.float64)))
    for name in "NUMBERS", "NEAR":
        monkeypatch.setattr(wrappers, name, 70)  # a few rows at a time
    np.testing.assert_array_equal(fitted.predict_proba_logits(single), whole)


@BOTH
def test_far_logits_lose_nothing(kind):
    rng = np.random.default_rng(4)
    logits = rng.normal(size=(60, 3)) * 300  # probabilities of exactly 1, if they were computed
    labels = np.where(rng.random(60) < 0.8, logits.argmax(axis=1), rng.integers(3, size=60))
    near, far = (kind("isotonic").fit_logits(scale * logits, labels) for scale in (1, 2))
    assert max(len(part.log_odds_) for part in far.calibrators_) > 4
    np.testing.assert_allclose(
        near.predict_proba_logits(logits), far.predict_proba_logits(2 * logits), atol=1e-9
    )


def test_a_decomposition_takes_them_by_name():
    labels, logits = drawn(300, 4, confidence=3.0)
    for name in "isotonic-ovr", "isotonic-ovo", "venn-abers-ovr":
        d = rc.decompose(labels, logits=logits, calibrator=name, cv=3)
        assert 0 < d.refinement < d.risk
        assert d.calibrator.classes_.tolist() == [0, 1, 2, 3]


def test_twenty_six_classes():
    labels, logits = drawn(500, 26, confidence=2.0)
    fitted = OneVsOne("venn-abers").fit_logits(logits, labels)
    assert len(fitted.calibrators_) == 325
    found = fitted.predict_proba_logits(logits)
    assert (
        -np.log(found[np.arange(500), labels]).mean()
        < -np.log(softmax(logits, axis=1)[np.arange(500), labels]).mean()
    )


# ---- smoothing -------------------------------------------------------------------------------------------


def test_smoothing_is_that_of_the_calibrators_themselves():
    labels, logits = drawn(60, 2)
    own = IsotonicCalibration().fit_logits(logits, labels).predict_proba_logits(logits)
    for laplace in False, True:  # never twice
        wrapped = LaplaceSmoothing(IsotonicCalibration(laplace=laplace)).fit_logits(logits, labels)
        np.testing.assert_allclose(wrapped.predict_proba_logits(logits), own, rtol=1e-12)
    assert wrapped.n_parameters == wrapped.calibrator_.n_parameters
    assert "steps" in repr(wrapped)


@pytest.mark.parametrize("name", ["isotonic", "beta", "spline"])
def test_smoothing_says_which_calibrator_cannot_have_three_classes(name):
    _, logits = drawn(20, 3)
    wrapped = rc.make_calibrator("laplace", calibrator=name)
    message = (
        rf"^LaplaceSmoothing of {name}: {name} calibration is for 2 classes, found 3: "
        f"use calibrator='{name}-ovr' "
    )
    with pytest.raises(ValueError, match=message):
        wrapped.fit_logits(logits, np.arange(20) % 3)
    wrapped.set_params(calibrator=f"{name}-ovr").fit_logits(logits, np.arange(20) % 3)
    assert rc.make_calibrator("laplace").calibrator == "isotonic"


def test_smoothing_of_a_users_object_with_weights():
    labels, logits = drawn(50, 3)
    probs, weights = softmax(logits, axis=1), np.arange(50) / 10
    user = LogisticRegression()
    fitted = LaplaceSmoothing(user).fit(probs, labels, weights)
    assert not hasattr(user, "coef_")  # a copy was fitted
    plain = LogisticRegression().fit(probs, labels, weights).predict_proba(probs)
    n = weights.sum()
    expected = n / (n + 1) * plain + 1 / (n + 1) / 3
    np.testing.assert_allclose(fitted.predict_proba(probs), expected, rtol=1e-6)
    with pytest.raises(TypeError, match="not of this package: only refinecal's calibrators"):
        fitted.to_json()


def test_smoothing_of_a_wrapped_calibrator():
    labels, logits = drawn(60, 3)
    inner = OneVsRest(IsotonicCalibration(laplace=False))
    plain = clone(inner).fit_logits(logits, labels).predict_proba_logits(logits)
    fitted = LaplaceSmoothing(inner).fit_logits(logits, labels)
    expected = 60 / 61 * plain + 1 / 61 / 3
    np.testing.assert_allclose(fitted.predict_proba_logits(logits), expected, rtol=1e-9)
    copy = from_json(fitted.to_json())
    np.testing.assert_array_equal(
        copy.predict_proba_logits(logits), fitted.predict_proba_logits(logits)
    )
    assert repr(copy) == repr(fitted)


# ---- parameters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OneVsRest, OneVsOne, LaplaceSmoothing])
def test_parameters_within(kind):
    outer = kind(LaplaceSmoothing(IsotonicCalibration()))
    assert outer.get_params()["calibrator__calibrator__laplace"] is True
    assert list(outer.get_params(deep=False)) == ["calibrator"]
    outer.set_params(calibrator__calibrator__laplace=False)
    copy = clone(outer)
    assert copy.calibrator.calibrator.laplace is False
    assert copy.calibrator is not outer.calibrator
    assert (
        repr(copy) == f"{kind.__name__}(calibrator=LaplaceSmoothing(calibrator="
        "IsotonicCalibration(laplace=False)))"
    )
    assert kind("isotonic").set_params(calibrator="venn-abers").calibrator == "venn-abers"
    with pytest.raises(ValueError, match="has no parameter 'laplace'"):
        outer.set_params(laplace=True)
    with pytest.raises(ValueError, match="calibrator is 'isotonic', which has no parameters"):
        kind("isotonic").set_params(calibrator__laplace=True)
    with pytest.raises(TypeError, match="pass a name such as 'temperature', or an object"):
        kind(7).fit([0.2, 0.8], [0, 1])


def test_by_name():
    made = rc.make_calibrator("isotonic-ovo", laplace=False)
    assert repr(made) == "OneVsOne(calibrator=IsotonicCalibration(laplace=False))"
    assert rc.make_calibrator("one-vs-rest").calibrator == "isotonic"
