"""The Gaussian closed forms against integrals of other codes, at ordinary and extreme arguments."""

import tracemalloc
from functools import cache
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit, log_expit, logit
from scipy.stats import norm
from strategies import examples

import refinecal.theory.gaussian as gaussian
from refinecal.losses import BrierLoss, LogLoss, MatrixLoss, SphericalLoss, get_loss
from refinecal.theory.gaussian import gaussian_decomposition, optimal_rescaling, risk_slopes

LOSSES = ("log", "brier", "spherical")
BY_LOSS = pytest.mark.parametrize("loss", LOSSES)
EXPERTISE = st.floats(-8, 8)
CONFIDENCE = st.floats(-3, 3).map(lambda power: 10**power)
PREVALENCE = st.floats(0.01, 0.99)
SHIFT = st.floats(-5, 5).map(lambda shift: round(shift, 9))  # QUADPACK stumbles over 1e-307


class MyLog(LogLoss):
    """The same by another type: taken for a user's loss."""

    name = "my-log"


class MyBrier(BrierLoss):
    name = "my-brier"


class MySpherical(SphericalLoss):
    name = "my-spherical"


USERS = {"log": MyLog(), "brier": MyBrier(), "spherical": MySpherical()}


class Lopsided(MatrixLoss):
    """A proper loss that is not the same for both classes.

    In Schervish's form, l(p, 0) is the integral of c w(c) below p and l(p, 1) that of (1 - c) w(c) above,
    with the weight w(c) = c^2 (1 - c) of thresholds c.
    """

    name = "lopsided"

    def matrix(self, log_probs):
        p = np.exp(log_probs[..., 1])
        zero = p**4 / 4 - p**5 / 5  # integral of c^3 (1 - c)
        one = 1 / 30 - (p**3 / 3 - p**4 / 2 + p**5 / 5)  # integral of c^2 (1 - c)^2
        return np.stack([zero, np.maximum(one, 0)], axis=-1)


# ---- oracles ----------------------------------------------------------------------------------------------


def exact_loss(name, t):
    """Return the loss of label 1 for log-odds t, to the precision of mpmath."""
    if name == "log":
        return mp.log1p(mp.exp(-t)) if t > 0 else mp.log1p(mp.exp(t)) - t
    if name == "brier":
        return 2 / (1 + mp.exp(t)) ** 2
    return 1 - 1 / mp.sqrt(1 + mp.exp(-2 * t))


def exact_terms(name, a, s, prior=0.5, shift=0.0, digits=40):
    """Return calibration and refinement with 40 digits, by panels that double away from where they bend."""
    with mp.workdps(digits):
        a, s, prior, shift = map(mp.mpf, (a, s, prior, shift))
        prior_odds = mp.log(prior / (1 - prior))
        high = abs(a) / 2 + 11
        edges = {-high, high, *(mp.mpf(x) for x in range(-int(high), int(high) + 1, 2))}
        for slope, offset in ((s, shift), (a, prior_odds)):
            root = max(min(-offset / slope, high), -high)
            steps = [mp.mpf(3) ** j / slope for j in range(13)]
            edges |= {root, *(root + step for step in steps), *(root - step for step in steps)}
        edges = sorted(edge for edge in edges if -high <= edge <= high)

        def both(u):
            p, q = a * u + prior_odds, s * u + shift
            up, down = 1 / (1 + mp.exp(-p)), 1 / (1 + mp.exp(p))
            mass = prior * mp.npdf(u - a / 2) + (1 - prior) * mp.npdf(u + a / 2)
            entropy = up * exact_loss(name, p) + down * exact_loss(name, -p)
            expected = up * exact_loss(name, q) + down * exact_loss(name, -q)
            return mp.matrix([mass * (expected - entropy), mass * entropy])

        return [float(each) for each in _panels(both, edges)]


def _panels(function, edges):
    x, weights = _legendre(16 * mp.mp.dps // 40, mp.mp.dps)
    total = mp.matrix([0, 0])
    for low, up in pairwise(edges):
        half = (up - low) / 2
        for node, weight in zip(x, weights, strict=True):
            total += half * weight * function(low + half * (1 + node))
    return total


@cache
def _legendre(order, digits):
    """Return Gauss and Legendre's rule, by Newton's method."""
    nodes, weights = [], []
    with mp.workdps(digits):
        for start in np.polynomial.legendre.leggauss(order)[0]:
            node = mp.findroot(lambda t: mp.legendre(order, t), start)
            slope = order * mp.legendre(order - 1, node) / (1 - node**2)
            nodes.append(node)
            weights.append(2 / ((1 - node**2) * slope**2))
    return nodes, weights


def loss_of(name, t):
    """Return the loss of label 1 for log-odds t, in double precision."""
    if name == "log":
        return -log_expit(t)
    if name == "brier":
        return 2 * expit(-t) ** 2
    return 1 - np.sqrt(expit(2 * t))


def integral(function, a, *kinks):
    """Integrate over the line, with breakpoints where the integrand may bend."""
    high = abs(a) / 2 + 10
    points = {-high, high, -a / 2, a / 2}
    for root, steep in kinks:
        points |= {root + sign * 4.0**j / steep for sign in (-1, 1) for j in range(8)} | {root}
    points = sorted(point for point in points if -high <= point <= high)
    return sum(quad(function, *pair, epsabs=1e-14, epsrel=1e-12)[0] for pair in pairwise(points))


# ---- values -----------------------------------------------------------------------------------------------

EXTREMES = [
    (1e-6, 1e-8),
    (1e-6, 1e4),
    (1.0, 1e4),
    (1.0, 1.00001),
    (2.5, 0.1),
    (14.0, 1e-8),
    (3.0, 3.000000003),
    (14.0, 14.00014),
    (14.0, 3.0),
    (14.0, 1e4),
    (-3.0, 2.0),
]


@BY_LOSS
@pytest.mark.parametrize(("a", "s"), EXTREMES)
@pytest.mark.sweep(2)
def test_terms_have_ten_digits_even_where_tiny(loss, a, s):
    found = gaussian_decomposition(a, s, loss)
    calibration, refinement = exact_terms(loss, a, s)
    assert found.calibration == pytest.approx(calibration, rel=1e-10, abs=0)
    assert found.refinement == pytest.approx(refinement, rel=1e-10, abs=0)
    assert found.risk == pytest.approx(calibration + refinement, rel=1e-10, abs=0)


IMBALANCED = [
    ("log", 1.0, 1e4, 0.1, 50.0),  # bends in two places, one of them a step
    ("log", 2.0, 1.0, 0.3, 1e-6),
    ("spherical", 14.0, 14.0, 0.01, -2.0),
    ("brier", 3.0, 3.00001, 0.9, 2.1972),  # almost calibrated
    ("log", 5.0, 1e3, 1e-6, -5.0),
    ("brier", 0.47, 31.0, 0.9999976, 201.0),  # wrong only where hardly a row lies
    ("log", 3.0, 1e4, 0.2, 1e4),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [*((name, *pair) for name in LOSSES for pair in EXTREMES), *IMBALANCED]
)
def test_the_oracle_agrees_with_one_of_twice_the_digits_and_nodes(case):
    np.testing.assert_allclose(exact_terms(*case), exact_terms(*case, digits=80), rtol=1e-13)


@pytest.mark.parametrize(("loss", "a", "s", "prior", "shift"), IMBALANCED)
def test_terms_of_imbalanced_data_have_ten_digits(loss, a, s, prior, shift):
    found = gaussian_decomposition(a, s, loss, prevalence=prior, shift=shift)
    calibration, refinement = exact_terms(loss, a, s, prior, shift)
    assert found.calibration == pytest.approx(calibration, rel=1e-10, abs=0)
    assert found.refinement == pytest.approx(refinement, rel=1e-10, abs=0)


@BY_LOSS
@pytest.mark.parametrize("centred", [True, False])
def test_twice_the_nodes_change_nothing(loss, centred, monkeypatch):
    rng = np.random.default_rng(0)
    a = 10 ** rng.uniform(-6, np.log10(14), 2000) * rng.choice([1, 1, 1, -1], 2000)
    s = 10 ** rng.uniform(-8, 4, 2000)
    near = np.abs(a * (1 + rng.choice([-1, 1], 2000) * 10 ** rng.uniform(-5, 1, 2000)))
    s = np.where(rng.random(2000) < 0.3, near, s)
    other = {
        "prevalence": expit(4 * rng.normal(size=2000)),
        "shift": rng.normal(size=2000) * 10 ** rng.uniform(-4, 3, 2000),
    }
    options = {} if centred else other
    found = gaussian_decomposition(a, s, loss, **options)
    nodes = gaussian._legendre
    monkeypatch.setattr(gaussian, "_legendre", lambda order: nodes(2 * order + 7))
    monkeypatch.setattr(gaussian, "TAIL", 16.0)
    finer = gaussian_decomposition(a, s, loss, **options)
    np.testing.assert_allclose(found.calibration, finer.calibration, rtol=1e-11)
    np.testing.assert_allclose(found.refinement, finer.refinement, rtol=1e-11)


@BY_LOSS
@examples(25)
@given(a=EXPERTISE, s=CONFIDENCE, prior=PREVALENCE, shift=SHIFT)
def test_risk_is_the_expected_loss_of_the_score(loss, a, s, prior, shift):
    """No posterior here: the loss of each label, over the normal law of its scores."""

    def expected(u):
        score = s * u + shift
        up = prior * norm.pdf(u - a / 2) * loss_of(loss, score)
        return up + (1 - prior) * norm.pdf(u + a / 2) * loss_of(loss, -score)

    found = gaussian_decomposition(a, s, loss, prevalence=prior, shift=shift)
    direct = integral(expected, a, (-shift / s, max(s, 1)))
    assert found.risk == pytest.approx(direct, rel=1e-9)
    assert found.risk == found.calibration + found.refinement


@given(a=EXPERTISE, s=CONFIDENCE, prior=PREVALENCE, shift=SHIFT)
def test_error_rate_is_how_often_the_sign_is_wrong(a, s, prior, shift):
    above = norm.sf(0, loc=s * a / 2 + shift, scale=s), norm.sf(0, loc=-s * a / 2 + shift, scale=s)
    expected = prior * (1 - above[0]) + (1 - prior) * above[1]
    found = gaussian_decomposition(a, s, prevalence=prior, shift=shift)
    assert found.error_rate == pytest.approx(expected, abs=1e-14)
    assert gaussian_decomposition(a, s).error_rate == pytest.approx(norm.cdf(-a / 2), rel=1e-12)


# ---- what the paper says of them --------------------------------------------------------------------------


@BY_LOSS
@given(a=st.floats(-14, 14), s=CONFIDENCE, prior=PREVALENCE, shift=SHIFT)
def test_terms_have_their_signs_and_bounds(loss, a, s, prior, shift):
    found = gaussian_decomposition(a, s, loss, prevalence=prior, shift=shift)
    prior_entropy = get_loss(loss).entropy(np.array([1 - prior, prior]))
    assert found.calibration >= 0
    assert 0 < found.refinement <= prior_entropy * (1 + 1e-12)


@BY_LOSS
@given(a=st.floats(1e-6, 14), prior=PREVALENCE)
def test_calibrated_if_confidence_equals_expertise(loss, a, prior):
    assert gaussian_decomposition(a, a, loss).calibration == 0
    found = gaussian_decomposition(a, a, loss, prevalence=prior, shift=logit(prior))
    assert found.calibration == pytest.approx(0, abs=1e-30)


@BY_LOSS
@given(a=st.floats(0.01, 10), change=st.floats(1e-5, 3), prior=PREVALENCE)
def test_not_calibrated_otherwise(loss, a, change, prior):
    assert gaussian_decomposition(a, a * (1 + change), loss).calibration > 0
    assert gaussian_decomposition(a, a / (1 + change), loss).calibration > 0
    shifted = gaussian_decomposition(
        a, a, loss, prevalence=prior, shift=logit(prior) + change * np.array([-1, 1])
    )
    assert np.all(shifted.calibration > 0)


@BY_LOSS
@given(a=EXPERTISE, scales=st.lists(CONFIDENCE, min_size=2, max_size=5), prior=PREVALENCE)
def test_refinement_does_not_depend_on_confidence(loss, a, scales, prior):
    found = gaussian_decomposition(a, scales, loss, prevalence=prior).refinement
    np.testing.assert_allclose(found, found[0], rtol=1e-11)


@BY_LOSS
@given(prior=PREVALENCE)
def test_refinement_falls_with_expertise(loss, prior):
    refinement = gaussian_decomposition(
        np.linspace(0, 14, 50), 1.0, loss, prevalence=prior
    ).refinement
    assert np.all(np.diff(refinement) < 0)


@BY_LOSS
@given(a=EXPERTISE, s=CONFIDENCE, prior=PREVALENCE, shift=SHIFT)
def test_exchanging_the_classes_changes_nothing(loss, a, s, prior, shift):
    one = gaussian_decomposition(a, s, loss, prevalence=prior, shift=shift)
    other = gaussian_decomposition(a, s, loss, prevalence=1 - prior, shift=-shift)
    for term in ("calibration", "refinement", "error_rate"):
        assert getattr(one, term) == pytest.approx(getattr(other, term), rel=1e-10, abs=1e-25)


@BY_LOSS
@given(a=EXPERTISE, s=CONFIDENCE, prior=PREVALENCE, shift=SHIFT)
def test_optimal_rescaling_leaves_no_calibration_error(loss, a, s, prior, shift):
    scale, intercept = optimal_rescaling(a, s, prevalence=prior, shift=shift)
    flip = -1 if scale < 0 else 1  # a negative scale turns the direction round
    after = gaussian_decomposition(
        flip * a, abs(scale) * s, loss, prevalence=prior, shift=scale * shift + intercept
    )
    before = gaussian_decomposition(a, s, loss, prevalence=prior, shift=shift)
    assert after.calibration == pytest.approx(0, abs=1e-20)
    assert after.refinement == pytest.approx(before.refinement, rel=1e-11)


@BY_LOSS
def test_no_other_scale_is_better(loss):
    """Refinement is the least risk over all rescalings (corollary of proposition 6.2)."""
    scale, _ = optimal_rescaling(2.0, 5.0)
    risks = gaussian_decomposition(2.0, 5.0 * scale * np.geomspace(0.1, 10, 201), loss).risk
    assert risks.argmin() == 100


def test_rescaling_a_constant_score_predicts_the_prior():
    scale, intercept = optimal_rescaling(1.0, 0.0, prevalence=0.2, shift=7.0)
    assert scale == 0
    assert intercept == pytest.approx(logit(0.2))


# ---- losses of users --------------------------------------------------------------------------------------


@BY_LOSS
@given(a=EXPERTISE, s=st.floats(0, 1e4), prior=PREVALENCE, shift=SHIFT)
def test_a_user_loss_is_integrated_as_a_built_in_one(loss, a, s, prior, shift):
    options = {"prevalence": prior, "shift": shift}
    ours = gaussian_decomposition(a, s, loss, **options)
    users = gaussian_decomposition(a, s, USERS[loss], **options)
    assert users.loss == f"my-{loss}"
    assert users.risk == pytest.approx(ours.risk, rel=1e-12)
    assert users.refinement == pytest.approx(ours.refinement, rel=1e-12, abs=1e-15)
    assert users.calibration == pytest.approx(ours.calibration, rel=1e-12, abs=1e-15)


@given(a=EXPERTISE, s=CONFIDENCE)
@examples(25)
def test_both_sides_of_a_lopsided_loss_count(a, s):
    def expected(u):
        logs = np.array([log_expit(-s * u), log_expit(s * u)])
        zero, one = Lopsided().matrix(logs)
        return (norm.pdf(u - a / 2) * one + norm.pdf(u + a / 2) * zero) / 2

    found = gaussian_decomposition(a, s, Lopsided())
    assert found.risk == pytest.approx(integral(expected, a, (0, max(s, 1))), rel=1e-9)


# ---- slopes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [*LOSSES, Lopsided()], ids=[*LOSSES, "lopsided"])
@given(a=st.floats(0, 10), s=st.floats(0.05, 100))
def test_slopes_are_those_of_the_risk(loss, a, s):
    """Against differences of sixth order of the risk itself."""

    def risk(inner, width):
        return gaussian_decomposition(inner / width, width, loss).risk

    inner, h = a * s, 2e-3 * s
    steps = h * np.array([-3, -2, -1, 1, 2, 3])
    rule = np.array([-1, 9, -45, 45, -9, 1]) / (60 * h)
    by_inner, by_norm = risk_slopes(a, s, loss)
    size = risk(inner, s)
    assert by_inner == pytest.approx(rule @ risk(inner + steps, s), rel=1e-7, abs=1e-9 * size / s)
    assert by_norm == pytest.approx(rule @ risk(inner, s + steps), rel=1e-7, abs=1e-9 * size / s)


@pytest.mark.parametrize(
    ("a", "s"), [(1e-6, 1e-8), (1e-6, 1e4), (14, 1e-3), (14, 14), (14, 1e4), (-2, 5)]
)
@BY_LOSS
@pytest.mark.sweep(5)
def test_slopes_have_nine_digits_at_extremes(loss, a, s):
    """Against E L' / 2 and E z L' with 40 digits."""
    with mp.workdps(40):
        a, s = mp.mpf(a), mp.mpf(s)
        high = int(abs(a) / 2) + 12
        steps = [mp.mpf(3) ** j / max(s, 1) for j in range(13)]
        edges = {*range(-high, high + 1, 2), high, *steps, *(-step for step in steps), 0}
        edges = sorted(mp.mpf(edge) for edge in edges if -high <= edge <= high)

        def both(u):
            slope = mp.diff(lambda t: exact_loss(loss, t), s * u, h=mp.mpf(10) ** -10)
            mass = mp.npdf(u - a / 2)
            return mp.matrix([mass * slope / 2, mass * slope * (u - a / 2)])

        expected = [float(each) for each in _panels(both, edges)]
    found = risk_slopes(float(a), float(s), loss)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(risk_slopes(float(a), float(s), USERS[loss]), expected, rtol=1e-8)


@BY_LOSS
@given(a=st.floats(0.1, 10))
def test_the_slope_of_refinement_follows_from_the_risks(loss, a):
    """d refinement / d a = a * (slope in the inner product at s = a)."""
    h = 1e-3
    steps = h * np.array([-2, -1, 1, 2])
    refinement = gaussian_decomposition(a + steps, 1.0, loss).refinement
    expected = np.array([1, -8, 8, -1]) @ refinement / (12 * h)
    assert a * risk_slopes(a, a, loss)[0] == pytest.approx(expected, rel=1e-6)


# ---- shapes, limits and bad input -------------------------------------------------------------------------


def test_arguments_broadcast():
    found = gaussian_decomposition(np.ones((3, 1)), [0.5, 1.0], shift=np.zeros((4, 1, 1)))
    assert found.risk.shape == found.error_rate.shape == found.expertise.shape == (4, 3, 2)
    np.testing.assert_array_equal(found.calibration[..., 1], 0)
    scalar = gaussian_decomposition(1, 0.5)
    assert scalar.calibration == pytest.approx(found.calibration[0, 0, 0], rel=1e-14)
    assert all(np.ndim(each) == 0 for each in (scalar.risk, *risk_slopes(1, 1)))
    assert gaussian_decomposition([], 1.0).risk.shape == (0,)
    assert risk_slopes(np.empty((0, 3)), 1.0)[0].shape == (0, 3)


def test_points_do_not_depend_on_their_neighbours():
    rng = np.random.default_rng(1)
    a, s = rng.uniform(-3, 12, 500), 10 ** rng.uniform(-3, 4, 500)
    together = gaussian_decomposition(a, s).calibration
    alone = [gaussian_decomposition(*pair).calibration for pair in zip(a, s, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_the_result_is_not_a_view_of_the_arguments():
    a = np.array([1.0, 2.0])
    found = gaussian_decomposition(a, 1.0)
    a[:] = 5
    np.testing.assert_array_equal(found.expertise, [1, 2])


def test_limits():
    nothing = gaussian_decomposition(0.0, 0.0)
    assert nothing.calibration == 0
    assert nothing.risk == pytest.approx(np.log(2), rel=1e-14)
    assert nothing.error_rate == 0.5
    prior = gaussian_decomposition(0.0, 0.0, "brier", prevalence=0.2, shift=1.0)
    assert prior.refinement == pytest.approx(2 * 0.2 * 0.8, rel=1e-13)
    assert prior.calibration == pytest.approx(2 * (expit(1.0) - 0.2) ** 2, rel=1e-13)
    assert prior.error_rate == pytest.approx(0.8)  # always says 1
    certain = gaussian_decomposition(1000.0, 0.0)  # never says so
    assert certain.risk == pytest.approx(np.log(2), rel=1e-12)
    reckless = gaussian_decomposition(2.0, 1e300)  # the risk is s E max(-u, 0), u ~ N(1, 1)
    tail = norm.pdf(1) - norm.cdf(-1)
    assert reckless.risk == pytest.approx(1e300 * tail, rel=1e-9)
    worst = gaussian_decomposition(-14.0, 1e4)  # always wrong: the risk is s |a| / 2
    assert worst.risk == pytest.approx(7e4, rel=1e-9)


def test_many_points_take_little_memory():
    a = np.linspace(0, 14, 20_000)
    tracemalloc.start()
    gaussian_decomposition(a, 100.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2e7


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((np.nan, 1.0), {}, "expertise is nan"),
        (([0, 2000.0], 1.0), {}, r"expertise\[1\] is 2000"),
        ((1.0, -1.0), {}, "confidence is -1.*negative expertise"),
        ((1.0, [[np.inf]]), {}, r"confidence\[0, 0\] is inf"),
        ((1.0, 1.0), {"prevalence": 1.0}, "prevalence is 1"),
        ((1.0, 1.0), {"shift": np.inf}, "shift is inf"),
        (([1.0, 2.0], [1.0, 2.0, 3.0]), {}, r"broadcast.*expertise \(2,\), confidence \(3,\)"),
        ((1.0, 1.0, "log_loss"), {}, "Did you mean 'log'"),
    ],
)
def test_bad_values_are_named(arguments, options, words):
    with pytest.raises(ValueError, match=words):
        gaussian_decomposition(*arguments, **options)


def test_bad_types_are_named():
    with pytest.raises(TypeError, match="expertise"):
        gaussian_decomposition("1", 1.0)
    with pytest.raises(TypeError, match="lacks"):
        risk_slopes(1.0, 1.0, object())
