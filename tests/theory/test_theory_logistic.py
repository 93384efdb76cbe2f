"""Logistic regression in the limit: against adaptive quadrature, against training, and its symmetries."""

from math import sqrt

import numpy as np
import pytest
import theory_oracle as oracle
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from strategies import examples

from refinecal.theory.asymptotics import logistic
from refinecal.theory.spectrum import BetaSpectrum, PointSpectrum, QuadratureSpectrum

SHAPES = [(1, 5), (2, 2), (5, 1)]  # the heat maps of the paper
FIELDS = ("inner", "norm", "inner_slope", "norm_slope", "risk", "calibration", "refinement")

lams = st.floats(-8, 4).map(lambda power: 10.0**power)
ratios = st.floats(-1.3, 1.3).map(lambda power: 10.0**power)
bayes_errors = st.floats(0.001, 0.45)
spectra = st.sampled_from([BetaSpectrum(*shapes) for shapes in SHAPES])


# ---- adaptive quadrature ----------------------------------------------------------------------------------


def points():
    """Return corners of the range that is promised, places near separability, and a random sample."""
    rng = np.random.default_rng(6)
    corners = [(r, e, lam) for r in (0.05, 20) for e in (0.001, 0.45) for lam in (1e-8, 1e4)]
    near_separable = [(0.3, 0.2, 1e-8), (0.45, 0.4, 1e-6), (0.5, 0.45, 1e-8), (0.1, 0.05, 1e-5)]
    lows, highs = np.log([0.05, 0.001, 1e-8]), np.log([20, 0.45, 1e4])
    drawn = np.exp(rng.uniform(lows, highs, (20, 3))).tolist()
    return [*corners, *near_separable, *map(tuple, drawn)]


@pytest.mark.parametrize(("number", "point"), list(enumerate(points())))
@pytest.mark.sweep(6)
def test_an_independent_solution_agrees(number, point):
    ratio, bayes_error, lam = point
    shapes = SHAPES[number // 3 % 3]
    spectrum, law = BetaSpectrum(*shapes, shift=oracle.SHIFT), oracle.BetaLaw(*shapes)
    found = logistic(lam, ratio=ratio, bayes_error=bayes_error, spectrum=spectrum)
    guess = np.log([found.constants["kappa"], found.inner / 2, found.norm**2])
    off = guess + 0.01 * np.array([1, -1, 1])  # so that it has to find its own way
    inner, norm = oracle.logistic(off, lam, ratio, law.signal(bayes_error), law)
    assert found.inner == pytest.approx(inner, rel=1e-8)
    assert found.norm == pytest.approx(norm, rel=1e-8)
    assert found.refinement == pytest.approx(oracle.refinement(inner / norm), rel=1e-8)
    assert found.calibration == pytest.approx(oracle.calibration(inner / norm, norm), rel=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(("ratio", "bayes_error", "lam"), [(0.5, 0.1, 0.05), (5.0, 0.3, 1.0)])
def test_the_published_iteration_from_nothing_leads_there(ratio, bayes_error, lam):
    spectrum, law = BetaSpectrum(2, 2, shift=oracle.SHIFT), oracle.BetaLaw(2, 2)
    found = logistic(lam, ratio=ratio, bayes_error=bayes_error, spectrum=spectrum)
    inner, norm = oracle.logistic_from_nothing(lam, ratio, law.signal(bayes_error), law)
    assert found.inner == pytest.approx(inner, rel=1e-7)
    assert found.norm == pytest.approx(norm, rel=1e-7)


@pytest.mark.parametrize(
    ("values", "weights", "signal"),
    [([1.0], [1.0], [1.0]), ([0.1, 1.0, 8.0], [0.2, 0.5, 0.3], [0.6, 0.4, 0.0])],
)
@pytest.mark.parametrize("lam", [1e-5, 0.3])
def test_a_few_eigenvalues_and_a_signal_with_a_direction(values, weights, signal, lam):
    spectrum = PointSpectrum(values, weights).with_signal(signal)
    found = logistic(lam, ratio=0.7, signal=1.4, spectrum=spectrum)
    guess = np.log([found.constants["kappa"], found.inner / 2, found.norm**2]) + 0.01
    inner, norm = oracle.logistic(guess, lam, 0.7, 1.4, oracle.PointLaw(values, weights, signal))
    assert found.inner == pytest.approx(inner, rel=1e-8)
    assert found.norm == pytest.approx(norm, rel=1e-8)


@given(lams, ratios, bayes_errors, spectra)
@examples(5)
def test_both_forms_of_tau_are_the_same(lam, ratio, bayes_error, spectrum):
    """Stein's lemma: the published E[s(x) (m - t)] / v is E[q / (1 + kappa q)]."""
    found = logistic(lam, ratio=ratio, bayes_error=bayes_error, spectrum=spectrum)
    kappa, m, v = found.constants["kappa"], found.inner / 2, found.norm**2
    eta, gamma, tau = oracle.gaussian_means(float(kappa), float(m), float(v))
    assert found.constants["eta"] == pytest.approx(eta, rel=1e-8)
    assert found.constants["gamma"] == pytest.approx(gamma, rel=1e-8)
    assert found.constants["tau"] == pytest.approx(tau, rel=1e-8)


# ---- training ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.01, 0.1])
def test_training_on_a_sample_gives_these_weights(lam):
    """The limit for this very covariance and mean, more signal where eigenvalues are large."""
    n, p, seeds = 1500, 750, 4
    rng = np.random.default_rng(3)
    sigma = BetaSpectrum(2, 2).draw(p, rng)
    mu = rng.standard_normal(p) * sigma**2
    mu *= 0.8 / np.linalg.norm(mu)
    spectrum = QuadratureSpectrum(sigma, np.ones(p), mu**2)
    limit = logistic(lam, ratio=p / n, signal=0.8, spectrum=spectrum)
    found = []
    for _ in range(seeds):
        y = rng.choice([-1.0, 1.0], n)
        x = y[:, None] * mu + rng.standard_normal((n, p)) * np.sqrt(sigma)
        model = LogisticRegression(C=1 / (lam * n), fit_intercept=False, tol=1e-6).fit(x, y)
        w = model.coef_[0]
        found.append([2 * w @ mu, sqrt(w**2 @ sigma)])
    error = np.std(found, axis=0, ddof=1) / sqrt(seeds)
    gap = np.mean(found, axis=0) - [limit.inner, limit.norm]
    spread = np.maximum(
        error, 0.01 * np.mean(found, axis=0)
    )  # of four seeds, known to a factor of 2
    assert np.all(np.abs(gap) < 4 * spread)
    other = logistic(lam, ratio=p / n, signal=0.8, spectrum=PointSpectrum(sigma))
    assert abs(other.inner - limit.inner) > 8 * spread[0]  # without directions it would be another


# ---- symmetries and slopes --------------------------------------------------------------------------------


@given(lams, ratios, bayes_errors, st.floats(-2, 2).map(lambda power: 10.0**power))
def test_other_units_of_the_features_change_nothing(lam, ratio, bayes_error, unit):
    """Multiply features by a: eigenvalues and lam grow by a^2, and the logits are the same."""
    values, rest = np.array([0.2, 1.0, 3.0]), {"ratio": ratio, "bayes_error": bayes_error}
    one = logistic(lam, spectrum=PointSpectrum(values), **rest)
    other = logistic(lam * unit, spectrum=PointSpectrum(values * unit), **rest)
    assert other.inner == pytest.approx(one.inner, rel=1e-8)
    assert other.norm == pytest.approx(one.norm, rel=1e-8)
    assert other.signal == pytest.approx(one.signal * np.sqrt(unit))


@given(lams, lams, ratios, bayes_errors, spectra)
def test_where_the_search_starts_does_not_matter(lam, far, ratio, bayes_error, spectrum):
    fresh = logistic(lam, ratio=ratio, bayes_error=bayes_error, spectrum=spectrum)
    start = logistic(far, ratio=ratio, bayes_error=bayes_error, spectrum=spectrum)
    for moved in (start.at(lam), fresh.at(lam * 1.01).at(lam), fresh.at(lam)):
        for name in ("inner", "norm", "inner_slope", "norm_slope"):
            assert getattr(moved, name) == pytest.approx(getattr(fresh, name), rel=1e-8, abs=1e-12)


@given(lams, ratios, bayes_errors, spectra)
def test_slopes_are_derivatives(lam, ratio, bayes_error, spectrum):
    step = 1e-3
    found = logistic(lam, ratio=ratio, bayes_error=bayes_error, spectrum=spectrum)
    around = found.at(lam * np.exp(step * np.array([-2, -1, 1, 2])))
    for name in ("inner", "norm"):
        far_low, low, high, far_high = np.log(getattr(around, name))
        difference = (8 * (high - low) - (far_high - far_low)) / (12 * step)
        assert getattr(found, f"{name}_slope") == pytest.approx(difference, abs=1e-6)


@given(lams, ratios, bayes_errors, spectra)
def test_nothing_beats_the_best_classifier(lam, ratio, bayes_error, spectrum):
    found = logistic(lam, ratio=ratio, bayes_error=bayes_error, spectrum=spectrum)
    assert found.error_rate >= bayes_error * (1 - 1e-9)
    assert found.calibration >= 0
    assert found.risk == found.calibration + found.refinement
    assert found.scale == pytest.approx(found.expertise / found.confidence, rel=1e-12)


def test_with_endless_data_and_no_penalty_it_is_the_best_classifier():
    found = logistic(1e-10, ratio=1e-9, bayes_error=0.1, spectrum=PointSpectrum([0.5, 2.0]))
    assert found.error_rate == pytest.approx(0.1, rel=1e-6)
    assert found.scale == pytest.approx(1, rel=1e-6)


def test_without_penalty_it_tells_which_data_can_be_separated():
    """Pure noise cannot be separated below a ratio of 1/2 (Cover): weights stay finite. Above they grow."""
    lam = np.array([1e-6, 1e-7])
    problem = {"bayes_error": 0.4999, "spectrum": PointSpectrum([1.0])}
    below, above = logistic(lam, ratio=0.45, **problem), logistic(lam, ratio=0.55, **problem)
    assert below.norm[1] / below.norm[0] == pytest.approx(1, abs=1e-2)
    assert above.norm[1] / above.norm[0] > 1.1


# ---- the interface ----------------------------------------------------------------------------------------


def test_arguments_broadcast():
    lam, ratio, errors = np.array([0.01, 1.0])[:, None, None], [[0.1], [1.0], [3.0]], [0.1, 0.2]
    spectrum = BetaSpectrum(1, 1)
    grid = logistic(lam, ratio=ratio, bayes_error=errors, spectrum=spectrum, loss="brier")
    one = logistic(1.0, ratio=3.0, bayes_error=0.2, spectrum=spectrum, loss="brier")
    for name in (*FIELDS, "error_rate", "lam", "ratio", "bayes_error", "signal", "scale"):
        assert getattr(grid, name).shape == (2, 3, 2)
        assert getattr(one, name).shape == ()
        assert getattr(grid, name)[1, 2, 1] == pytest.approx(getattr(one, name), rel=1e-9)
    assert {each.shape for each in grid.constants.values()} == {(2, 3, 2)}
    assert all(len(column) == 12 for column in grid.to_dict().values())


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_no_points(shape):
    found = logistic(np.ones(shape), ratio=1.0, bayes_error=0.1, spectrum=BetaSpectrum(1, 1))
    assert all(getattr(found, name).shape == shape for name in FIELDS)
    assert found.at(2.0).inner.shape == shape


def test_more_points_than_are_solved_together():
    lam = np.logspace(-6, 3, 600)
    many = logistic(lam, ratio=0.5, bayes_error=0.1, spectrum=BetaSpectrum(1, 1))
    few = logistic(lam[::150], ratio=0.5, bayes_error=0.1, spectrum=BetaSpectrum(1, 1))
    np.testing.assert_allclose(many.norm[::150], few.norm, rtol=1e-9)
    np.testing.assert_allclose(many.at(lam * 2).norm[::150], few.at(lam[::150] * 2).norm, rtol=1e-9)


def test_signal_or_bayes_error():
    problem = {"ratio": 0.5, "spectrum": BetaSpectrum(1, 5).with_signal(lambda sigma: sigma)}
    one = logistic(0.1, bayes_error=0.1, **problem)
    other = logistic(0.1, signal=one.signal, **problem)
    assert other.bayes_error == pytest.approx(0.1, rel=1e-12)
    assert other.inner == pytest.approx(one.inner, rel=1e-12)


def test_moving_to_more_strengths_than_before():
    one = logistic(0.1, ratio=0.5, bayes_error=0.1, spectrum=BetaSpectrum(1, 1))
    moved = one.at([0.1, 1.0])
    assert moved.inner.shape == (2,)
    assert moved.inner[0] == pytest.approx(one.inner, rel=1e-9)
    with pytest.raises(ValueError, match="lam is -1"):
        one.at(-1.0)


@pytest.mark.parametrize("lam", [1e-200, 1e200])
def test_where_it_does_not_converge_it_says_so(lam):
    with pytest.raises(RuntimeError, match=r"did not converge to 1e-10 at 1 .* lam = 1e[-+]200"):
        logistic([0.1, lam], ratio=0.5, bayes_error=0.1, spectrum=BetaSpectrum(1, 1))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"lam": 0.0}, ValueError, "lam is 0: lam must be positive and finite"),
        ({"lam": [[1.0, -1.0]]}, ValueError, r"lam\[0, 1\] is -1"),
        ({"lam": np.nan}, ValueError, "lam is nan"),
        ({"lam": np.inf}, ValueError, "lam is inf"),
        ({"lam": "much"}, TypeError, "lam is 'much', but must be a number"),
        ({"ratio": 0}, ValueError, "ratio is 0"),
        ({"ratio": [0.1, np.nan]}, ValueError, r"ratio\[1\] is nan"),
        ({"bayes_error": 0.5}, ValueError, "bayes_error is 0.5"),
        ({"bayes_error": 0.0}, ValueError, "bayes_error is 0"),
        ({"bayes_error": np.nan}, ValueError, "bayes_error is nan"),
        ({"bayes_error": "small"}, TypeError, "bayes_error is 'small'"),
        ({"bayes_error": None, "signal": -1.0}, ValueError, "signal is -1"),
        ({"bayes_error": None, "signal": np.inf}, ValueError, "signal is inf"),
        ({"signal": 1.0}, TypeError, "one of bayes_error"),
        ({"bayes_error": None}, TypeError, "one of bayes_error"),
        ({"spectrum": [1.0]}, TypeError, "spectrum is a list"),
        ({"lam": [1.0, 2.0], "ratio": [1.0, 2.0, 3.0]}, ValueError, "do not broadcast"),
        ({"loss": "hinge"}, ValueError, "hinge"),
    ],
)
def test_bad_arguments(change, error, message):
    good = {"lam": 0.1, "ratio": 0.5, "bayes_error": 0.1, "spectrum": BetaSpectrum(1, 1)}
    with pytest.raises(error, match=message):
        logistic(**(good | change))
