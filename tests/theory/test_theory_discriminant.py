"""Discriminant analysis and ridge against simulation, other derivations and their limits."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import root

from refinecal.theory.asymptotics import logistic
from refinecal.theory.discriminant import lda, ridge
from refinecal.theory.spectrum import BetaSpectrum, PointSpectrum, QuadratureSpectrum

BOTH = pytest.mark.parametrize("method", [lda, ridge])
SPECTRA = [BetaSpectrum(1, 5), BetaSpectrum(2, 2), BetaSpectrum(5, 1), PointSpectrum([1e-3, 1, 50])]

lams = st.floats(-8, 4).map(lambda power: 10.0**power)
ratios = st.floats(-1.3, 1.3).map(lambda power: 10.0**power)
bayes_errors = st.floats(0.001, 0.45)


# ---- two other routes to the same numbers -----------------------------------------------------------------


def trained(method, lam, sigma, mu, n, rng):
    """Return <w, w*> and |w| of a classifier that was trained on n rows."""
    y = rng.choice([-1.0, 1.0], n)
    x = y[:, None] * mu + rng.standard_normal((n, len(mu))) * np.sqrt(sigma)
    centre = y @ x / n
    if method is ridge:
        w = np.linalg.solve(x.T @ x / n + lam * np.eye(len(mu)), centre)
    else:
        rest = x - y[:, None] * centre
        w = 2 * np.linalg.solve(rest.T @ rest / n + lam * np.eye(len(mu)), centre)
    return 2 * w @ mu, sqrt(w**2 @ sigma)


@BOTH
@pytest.mark.parametrize("lam", [0.003, 0.3])
@pytest.mark.parametrize("p", [100, 600])
def test_training_on_a_sample_gives_these_weights(method, lam, p):
    """The limit for this very covariance and mean, so that only the training rows are random."""
    rng, n = np.random.default_rng(p), 400
    sigma = rng.uniform(0.05, 2, p)
    mu = rng.standard_normal(p) * np.sqrt(sigma)  # more signal where eigenvalues are large
    mu *= 1.5 / np.linalg.norm(mu)
    spectrum = QuadratureSpectrum(sigma, np.ones(p), mu**2)
    limit = method(lam, ratio=p / n, signal=1.5, spectrum=spectrum)
    found = np.array([trained(method, lam, sigma, mu, n, rng) for _ in range(25)])
    error = found.std(axis=0, ddof=1) / sqrt(25)
    gap = found.mean(axis=0) - [limit.inner, limit.norm]
    assert np.all(np.abs(gap) < 4 * error + 0.01 * np.abs([limit.inner, limit.norm]))  # 1/n bias
    assert np.all(error < 0.02 * found.mean(axis=0))


@given(lams, ratios, bayes_errors, st.sampled_from(SPECTRA))
def test_ridge_solves_the_system_of_the_squared_loss(lam, ratio, bayes_error, spectrum):
    """Logistic regression's system holds for any loss; for (1 - x)^2 / 2 it has s(x) = 1 - x and q = 1."""
    found = ridge(lam, ratio=ratio, bayes_error=bayes_error, spectrum=spectrum)
    m, v, c2 = found.inner / 2, found.norm**2, found.signal**2
    kappa, tau = found.constants["kappa"], found.constants["tau"]
    eta = (1 - m) / (1 + kappa)  # E[s(x)], x = (t + kappa) / (1 + kappa), t ~ N(m, v)
    gamma = ((1 - m) ** 2 + v) / (1 + kappa) ** 2
    sigma = spectrum.nodes
    once = 1 / (lam + tau * sigma)
    f, g = spectrum.weights, spectrum.signal_weights
    assert tau == pytest.approx(1 / (1 + kappa), rel=1e-12)
    assert kappa == pytest.approx(ratio * f @ (sigma * once), rel=1e-12)
    near_one = 1e-10 / abs(1 - m)  # what 1 - m leaves of the digits of m
    assert m == pytest.approx(eta * c2 * g @ once, rel=1e-10 + near_one)
    noise = ratio * (f @ (sigma * once) ** 2)
    expected = eta**2 * c2 * (g @ (sigma * once**2)) + gamma * noise
    own = 1 - noise * tau**2  # the equation's slope in v, which gamma holds too
    assert v == pytest.approx(expected, rel=(1e-9 + near_one) * own)


def test_a_root_finder_finds_the_same_solution_of_the_squared_loss():
    lam, ratio, c, spectrum = 0.02, 0.8, 1.2, BetaSpectrum(2, 2).with_signal(lambda s: s**2)
    sigma, f, g = spectrum.nodes, spectrum.weights, spectrum.signal_weights

    def residual(u):
        kappa, m, v = u
        tau, eta = 1 / (1 + kappa), (1 - m) / (1 + kappa)
        gamma, once = ((1 - m) ** 2 + v) / (1 + kappa) ** 2, 1 / (lam + sigma / (1 + kappa))
        assert tau > 0
        return (
            kappa - ratio * f @ (sigma * once),
            m - eta * c**2 * g @ once,
            v - eta**2 * c**2 * g @ (sigma * once**2) - gamma * ratio * f @ (sigma * once) ** 2,
        )

    kappa, m, v = root(residual, [1.0, 0.5, 0.5], tol=1e-12).x
    found = ridge(lam, ratio=ratio, signal=c, spectrum=spectrum)
    assert found.constants["kappa"] == pytest.approx(kappa, rel=1e-9)
    assert found.inner == pytest.approx(2 * m, rel=1e-9)
    assert found.norm == pytest.approx(sqrt(v), rel=1e-9)


def marchenko_pastur(function, ratio):
    """Return the mean over the eigenvalues of a sample covariance whose true covariance is I."""
    low, high = (1 - sqrt(ratio)) ** 2, (1 + sqrt(ratio)) ** 2

    def integrand(angle):  # x = middle + half cos(angle): no root at the ends is left
        x = (low + high) / 2 - (high - low) / 2 * np.cos(angle)
        root_part = (high - low) / 2 * np.sin(angle)
        return function(x) * root_part**2 / (2 * np.pi * ratio * x)

    atom = max(0.0, 1 - 1 / ratio)  # directions without any data
    return quad(integrand, 0, np.pi, epsabs=0, epsrel=1e-12)[0] + atom * function(0.0)


@pytest.mark.parametrize("lam", [0.01, 0.2, 3.0])
@pytest.mark.parametrize("ratio", [0.1, 0.7, 1.0, 4.0])
def test_for_the_identity_the_law_of_marchenko_and_pastur_gives_all(lam, ratio):
    """There w = 2 (S + lam)^-1 (mu + noise), and S has no preferred direction."""
    c = 1.3
    once = marchenko_pastur(lambda x: 1 / (x + lam), ratio)
    twice = marchenko_pastur(lambda x: 1 / (x + lam) ** 2, ratio)
    found = lda(lam, ratio=ratio, signal=c, spectrum=PointSpectrum([1.0]))
    assert found.inner == pytest.approx(4 * c**2 * once, rel=1e-9)
    assert found.norm**2 == pytest.approx(4 * (c**2 + ratio) * twice, rel=1e-9)
    # Dobriban and Wager's margin, with Stieltjes' transform of that law in closed form
    gap = 1 - ratio + lam
    m = (sqrt(gap**2 + 4 * ratio * lam) - gap) / (2 * ratio * lam)
    margin = c**2 / sqrt(c**2 + ratio) * sqrt(1 - ratio * m**2 / (1 + ratio * m) ** 2)
    assert found.expertise / 2 == pytest.approx(margin, rel=1e-10)


# ---- limits and relations ---------------------------------------------------------------------------------


@given(ratios, bayes_errors, st.sampled_from(SPECTRA))
def test_with_a_large_penalty_all_three_point_the_same_way(ratio, bayes_error, spectrum):
    """There the weights are the estimated mean, shrunk: by 2 / lam, 1 / lam and 1 / (2 lam)."""
    problem = {"ratio": ratio, "bayes_error": bayes_error, "spectrum": spectrum}
    lam = 1e9 * (1 + ratio)
    first, second, third = (method(lam, **problem) for method in (lda, ridge, logistic))
    assert first.expertise == pytest.approx(third.expertise, rel=1e-5)
    assert first.inner == pytest.approx(4 * third.inner, rel=1e-5)
    assert second.inner == pytest.approx(2 * third.inner, rel=1e-5)
    assert first.inner_slope == pytest.approx(-1, abs=1e-5)


@given(lams, ratios, bayes_errors, st.sampled_from(SPECTRA))
def test_both_have_the_same_refinement(lam, ratio, bayes_error, spectrum):
    problem = {"ratio": ratio, "bayes_error": bayes_error, "spectrum": spectrum}
    first, second = lda(lam, **problem), ridge(lam, **problem)
    assert first.refinement == pytest.approx(second.refinement, rel=1e-10)
    assert first.error_rate == pytest.approx(second.error_rate, rel=1e-10)
    assert first.error_rate >= bayes_error * (1 - 1e-10)
    assert second.confidence <= first.confidence / 2


@given(bayes_errors, st.sampled_from(SPECTRA))
def test_with_endless_data_discriminant_analysis_is_the_best_classifier(bayes_error, spectrum):
    found = lda(1e-12, ratio=1e-12, bayes_error=bayes_error, spectrum=spectrum)
    assert found.error_rate == pytest.approx(bayes_error, rel=1e-6)
    assert found.scale == pytest.approx(1, rel=1e-6)
    assert found.calibration == pytest.approx(0, abs=1e-10)


@BOTH
@given(lams, ratios, bayes_errors, st.floats(-3, 3).map(lambda power: 10.0**power))
def test_other_units_of_the_features_change_nothing(method, lam, ratio, bayes_error, unit):
    """Multiply features by a: eigenvalues and lam grow by a^2, and the logits are the same."""
    settings = {"ratio": ratio, "bayes_error": bayes_error}
    one = method(lam, spectrum=PointSpectrum([0.2, 1.0, 3.0]), **settings)
    scaled = PointSpectrum(np.array([0.2, 1.0, 3.0]) * unit)
    other = method(lam * unit, spectrum=scaled, **settings)
    np.testing.assert_allclose(other.inner, one.inner, rtol=1e-10)
    np.testing.assert_allclose(other.norm, one.norm, rtol=1e-10)


@BOTH
@given(lams, ratios, bayes_errors, st.sampled_from(SPECTRA))
def test_slopes_are_derivatives(method, lam, ratio, bayes_error, spectrum):
    problem, step = {"ratio": ratio, "bayes_error": bayes_error, "spectrum": spectrum}, 1e-4
    low, high = method(lam * np.exp([-step, step]), **problem).inner
    found = method(lam, **problem)
    assert found.inner_slope == pytest.approx(np.log(high / low) / (2 * step), abs=1e-7)
    low, high = found.at(lam * np.exp(-step)).norm, found.at(lam * np.exp(step)).norm
    assert found.norm_slope == pytest.approx(np.log(high / low) / (2 * step), abs=1e-7)


# ---- the interface ----------------------------------------------------------------------------------------


@BOTH
def test_arguments_broadcast(method):
    lam, ratio, errors = np.array([0.01, 1.0])[:, None, None], [[0.1], [1.0], [3.0]], [0.1, 0.2]
    grid = method(lam, ratio=ratio, bayes_error=errors, spectrum=SPECTRA[0], loss="brier")
    assert grid.risk.shape == grid.inner_slope.shape == grid.constants["tau"].shape == (2, 3, 2)
    one = method(1.0, ratio=3.0, bayes_error=0.2, spectrum=SPECTRA[0], loss="brier")
    assert one.risk.shape == one.inner.shape == ()
    for name in ("inner", "norm", "inner_slope", "norm_slope", "risk", "refinement"):
        assert getattr(grid, name)[1, 2, 1] == pytest.approx(getattr(one, name), rel=1e-13)
    assert method([], ratio=1.0, signal=1.0, spectrum=SPECTRA[0]).risk.shape == (0,)


@BOTH
def test_many_points_are_the_same_as_few(method):
    lam = np.logspace(-3, 3, 3000)  # more than one block
    many = method(lam, ratio=0.5, signal=1.0, spectrum=SPECTRA[1])
    few = method(lam[::500], ratio=0.5, signal=1.0, spectrum=SPECTRA[1])
    np.testing.assert_allclose(many.norm[::500], few.norm, rtol=1e-13)
    assert many.method == method.__name__


@BOTH
def test_other_strengths_and_signals(method):
    found = method(0.1, ratio=0.5, bayes_error=0.1, spectrum=SPECTRA[1])
    again = method(0.1, ratio=0.5, signal=found.signal, spectrum=SPECTRA[1])
    assert again.inner == pytest.approx(found.inner, rel=1e-13)
    assert again.bayes_error == pytest.approx(0.1, rel=1e-13)
    moved = found.at([1.0, 2.0])
    assert moved.method == method.__name__
    np.testing.assert_array_equal(
        moved.norm, method([1.0, 2.0], ratio=0.5, bayes_error=0.1, spectrum=SPECTRA[1]).norm
    )


@BOTH
@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("lam", [1e-290, 1e-100, 1e100, 1e290])
def test_extreme_strengths(method, lam, ratio):
    """Beyond all use, but nothing overflows: the slopes are those of the limits."""
    found = method(lam, ratio=ratio, signal=1.0, spectrum=SPECTRA[0])
    assert np.isfinite([found.inner, found.norm]).all()
    assert found.norm > 0
    if lam > 1:
        expected = (-1, -1)
    elif ratio == 1:  # theta falls like the root of lam, and 1 - r E[rho^2] with it
        expected = (-0.5, -0.75) if method is lda else (0, -0.25)
    else:  # without a penalty there is a solution, of length 1 / lam for S that has no inverse
        expected = (-1, -1) if method is lda and ratio > 1 else (0, 0)
    assert (found.inner_slope, found.norm_slope) == pytest.approx(expected, abs=1e-12)


@BOTH
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"lam": 0.0}, ValueError, "lam is 0"),
        ({"lam": [1.0, -1.0]}, ValueError, r"lam\[1\] is -1"),
        ({"lam": np.nan}, ValueError, "lam is nan"),
        ({"lam": "much"}, TypeError, "lam is 'much'"),
        ({"ratio": np.inf}, ValueError, "ratio is inf"),
        ({"bayes_error": 0.6}, ValueError, "bayes_error is 0.6"),
        ({"signal": 1.0}, TypeError, "one of bayes_error"),
        ({"bayes_error": None}, TypeError, "one of bayes_error"),
        ({"spectrum": [1.0]}, TypeError, "spectrum is a list"),
        ({"lam": [1.0, 2.0], "ratio": [1.0, 2.0, 3.0]}, ValueError, "do not broadcast"),
        ({"loss": "hinge"}, ValueError, "hinge"),
    ],
)
def test_bad_arguments(method, change, error, message):
    good = {"lam": 0.1, "ratio": 0.5, "bayes_error": 0.1, "spectrum": SPECTRA[0]}
    with pytest.raises(error, match=message):
        method(**(good | change))
