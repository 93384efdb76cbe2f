"""The Gaussian model: its closed forms against samples of itself, and its matrices against each other."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, log_expit, logit
from scipy.stats import multivariate_normal, norm, ortho_group

import refinecal as rc
from refinecal.theory.gaussian import optimal_rescaling
from refinecal.theory.model import GaussianModel
from refinecal.theory.spectrum import BetaSpectrum, PointSpectrum

PREVALENCE = st.floats(0.05, 0.95)
SEEDS = st.integers(0, 2**32 - 1)


def drawn(seed, p=4, dense=True, prevalence=0.3):
    """Return a model with everything in it, and weights."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(p, p + 2)) / np.sqrt(p)
    sigma = root @ root.T if dense else rng.uniform(0.2, 2, p)
    mu, centre = rng.normal(size=(2, p)) / 2
    return GaussianModel(mu, sigma, prevalence=prevalence, centre=centre), rng.normal(size=p)


# ---- truth -----------------------------------------------------------------------------------------------


@given(SEEDS, PREVALENCE, st.booleans())
def test_log_odds_are_bayes_rule(seed, prevalence, dense):
    model, _ = drawn(seed, dense=dense, prevalence=prevalence)
    X, _ = model.sample(20, seed)
    sigma = model.sigma if dense else np.diag(model.sigma)
    up = multivariate_normal.logpdf(X, model.centre + model.mu, sigma)
    down = multivariate_normal.logpdf(X, model.centre - model.mu, sigma)
    np.testing.assert_allclose(model.log_odds(X), up - down + logit(prevalence), atol=1e-7)


@given(SEEDS, PREVALENCE, st.booleans())
def test_the_truth_is_calibrated_and_unbeatable(seed, prevalence, dense):
    model, w = drawn(seed, dense=dense, prevalence=prevalence)
    best = model.decompose(model.weights, model.intercept)
    assert best.calibration == pytest.approx(0, abs=1e-20)
    assert best.error_rate == pytest.approx(model.bayes_error, rel=1e-9)
    assert best.expertise == pytest.approx(best.confidence, rel=1e-9)
    other = model.decompose(w, 0.3)
    assert other.refinement >= best.refinement * (1 - 1e-12)
    assert other.error_rate >= best.error_rate * (1 - 1e-12)


def test_bayes_error_by_hand():
    model = GaussianModel([3.0, 4.0], [1.0, 1.0])  # 5 standard deviations from the middle
    assert model.bayes_error == pytest.approx(norm.cdf(-5), rel=1e-13)
    np.testing.assert_array_equal(model.weights, [6, 8])
    nothing = GaussianModel([0.0], [1.0], prevalence=0.2)
    assert nothing.bayes_error == pytest.approx(0.2)
    assert nothing.decompose([0.0], nothing.intercept).calibration == 0


@given(SEEDS)
def test_rotating_the_features_changes_nothing(seed):
    model, w = drawn(seed, dense=False)
    turn = ortho_group.rvs(4, random_state=seed)
    turned = GaussianModel(
        turn @ model.mu,
        turn @ np.diag(model.sigma) @ turn.T,
        prevalence=model.prevalence,
        centre=turn @ model.centre,
    )
    one, other = model.decompose(w, 0.2), turned.decompose(turn @ w, 0.2)
    for term in ("expertise", "confidence", "shift", "calibration", "refinement", "error_rate"):
        assert getattr(other, term) == pytest.approx(getattr(one, term), rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(turned.weights, turn @ model.weights, rtol=1e-9, atol=1e-9)
    assert turned.intercept == pytest.approx(model.intercept, rel=1e-9, abs=1e-9)
    assert turned.bayes_error == pytest.approx(model.bayes_error, rel=1e-9)


@given(SEEDS, st.booleans())
def test_expertise_and_confidence_are_those_of_the_paper(seed, dense):
    model, w = drawn(seed, dense=dense)
    sigma = model.sigma if dense else np.diag(model.sigma)
    length = np.sqrt(w @ sigma @ w)
    assert model.confidence(w) == pytest.approx(length, rel=1e-12)
    assert model.expertise(w) == pytest.approx(w @ sigma @ model.weights / length, rel=1e-9)


@given(st.floats(-250, 250))
def test_expertise_does_not_depend_on_the_length_of_weights(power):
    model, w = drawn(3)
    scaled = w * 10.0**power
    assert model.expertise(scaled) == pytest.approx(model.expertise(w), rel=1e-12)
    assert model.confidence(scaled) == pytest.approx(model.confidence(w) * 10.0**power, rel=1e-12)


def test_several_models_at_once():
    model, w = drawn(0)
    rows = np.stack([w, model.weights, 0 * w])
    intercepts = np.array([0.1, model.intercept, 0.5])
    found = model.decompose(rows, intercepts, "brier")
    assert found.risk.shape == (3,)
    for k in range(3):
        alone = model.decompose(rows[k], intercepts[k], "brier")
        assert found.risk[k] == pytest.approx(alone.risk, rel=1e-12)
    assert found.expertise[2] == found.confidence[2] == 0
    expected = 2 * (0.3 * expit(-0.5) ** 2 + 0.7 * expit(0.5) ** 2)  # always says sigma(0.5)
    assert found.risk[2] == pytest.approx(expected, rel=1e-12)
    assert np.ndim(model.decompose(w).risk) == 0


# ---- samples ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dense", [True, False])
def test_samples_have_the_moments_of_the_model(dense):
    model, _ = drawn(1, dense=dense)
    n = 200_000
    X, y = model.sample(n, seed=1)
    assert X.shape == (n, 4)
    assert set(np.unique(y)) == {0, 1}
    assert abs(y.mean() - 0.3) < 5 * np.sqrt(0.21 / n)
    sigma = model.sigma if dense else np.diag(model.sigma)
    for label, mean in ((1, model.centre + model.mu), (0, model.centre - model.mu)):
        rows = X[y == label]
        widths = np.sqrt(np.diag(sigma))
        assert np.all(np.abs(rows.mean(axis=0) - mean) < 5 * widths / np.sqrt(len(rows)))
        error = np.abs(np.cov(rows.T) - sigma) / np.outer(widths, widths)
        assert np.all(error < 5 * np.sqrt(2 / len(rows)))


@pytest.mark.parametrize("loss", ["log", "brier"])
@pytest.mark.parametrize("factor", [0.4, 1.0, 3.0])
def test_decompose_of_a_large_sample_finds_the_closed_form(loss, factor):
    """Centred and balanced: temperature scaling is all it takes (proposition 6.2)."""
    rng = np.random.default_rng(5)
    model = GaussianModel(rng.normal(size=6) / 3, rng.uniform(0.5, 1.5, 6))
    w = factor * (model.weights + rng.normal(size=6) / 3)
    X, y = model.sample(300_000, seed=6)
    score = X @ w
    found, exact = rc.decompose(y, logits=score, loss=loss), model.decompose(w, loss=loss)
    scale = exact.expertise / exact.confidence

    def losses(scores):
        signed = np.where(y, scores, -scores)
        return -log_expit(signed) if loss == "log" else 2 * expit(-signed) ** 2

    error = 4 / np.sqrt(len(y))  # four standard errors, and the gain of fitting one number
    assert abs(found.risk - exact.risk) < error * losses(score).std()
    assert abs(found.refinement - exact.refinement) < error * losses(scale * score).std() + 1e-5
    gap = (losses(score) - losses(scale * score)).std()
    assert abs(found.calibration - exact.calibration) < error * gap + 3e-5
    wrong = np.mean((score > 0) != y)
    assert abs(wrong - exact.error_rate) < 4 * np.sqrt(exact.error_rate / len(y))


def test_scale_and_intercept_calibrate_imbalanced_data():
    """The remark after proposition 6.2, on a sample."""
    model, w = drawn(2)
    X, y = model.sample(300_000, seed=7)
    exact = model.decompose(w, 0.4)
    score = X @ w + 0.4
    scale, intercept = optimal_rescaling(
        exact.expertise, exact.confidence, prevalence=model.prevalence, shift=exact.shift
    )
    for scores, expected in (
        (score, exact.risk),
        (scale * score + intercept, exact.refinement),
    ):
        losses = -log_expit(np.where(y, scores, -scores))
        assert abs(losses.mean() - expected) < 4 * losses.std() / np.sqrt(len(y))
    wrong = np.mean((score > 0) != y)
    assert abs(wrong - exact.error_rate) < 4 * np.sqrt(exact.error_rate / len(y))


@pytest.mark.parametrize(("n", "prevalence", "ones"), [(10, 0.5, 5), (1000, 0.1, 100), (7, 0.5, 4)])
def test_balanced_samples_have_exact_counts(n, prevalence, ones):
    _, y = GaussianModel([1.0], [1.0], prevalence=prevalence).sample(n, seed=0, balanced=True)
    assert y.sum() == ones
    assert np.any(np.diff(y) < 0)  # shuffled
    assert np.any(np.diff(y) > 0)


def test_the_same_seed_draws_the_same_rows():
    model, _ = drawn(0)
    one, two, other = model.sample(5, 1), model.sample(5, 1), model.sample(5, 2)
    np.testing.assert_array_equal(one[0], two[0])
    assert np.any(one[0] != other[0])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).sample(5, 1)[0], one[0])


# ---- spectra ---------------------------------------------------------------------------------------------


@given(st.floats(1e-6, 0.49), SEEDS)
def test_from_spectrum_has_exactly_the_bayes_error(bayes_error, seed):
    model = GaussianModel.from_spectrum(BetaSpectrum(5, 1), 30, bayes_error=bayes_error, seed=seed)
    assert model.n_features == 30
    assert model.bayes_error == pytest.approx(bayes_error, rel=1e-11)


def test_from_spectrum_in_the_limit_of_many_features():
    """Not exact: the error tends to the spectrum's, with fluctuations of order 1 / sqrt(p)."""
    spectrum, p = BetaSpectrum(2, 2, shift=0.1), 20_000
    model = GaussianModel.from_spectrum(spectrum, p, bayes_error=0.1, seed=1, exact=False)
    sizes = (norm.ppf(0.1) ** 2, (model.mu**2 / model.sigma).sum())
    assert sizes[0] != sizes[1]
    assert sizes[1] == pytest.approx(sizes[0], rel=5 * 2 / np.sqrt(p))
    assert np.linalg.norm(model.mu) == pytest.approx(spectrum.signal_for(0.1), rel=5 / np.sqrt(p))
    assert model.sigma.mean() == pytest.approx(0.1 + 0.5, abs=5 * np.sqrt(0.05 / p))


def test_from_spectrum_with_a_norm():
    exact = GaussianModel.from_spectrum(PointSpectrum([1, 4]), 50, signal=1.5, seed=0)
    assert np.linalg.norm(exact.mu) == pytest.approx(1.5, rel=1e-13)
    free = GaussianModel.from_spectrum(PointSpectrum([1, 4]), 50, signal=1.5, seed=0, exact=False)
    ratio = np.linalg.norm(free.mu) / 1.5
    assert ratio == pytest.approx(1, abs=5 / np.sqrt(2 * 50))
    np.testing.assert_allclose(free.mu, ratio * exact.mu)


def test_from_spectrum_follows_the_spread_of_the_signal():
    spectrum = PointSpectrum([1, 4]).with_signal([0.2, 0.8])
    model = GaussianModel.from_spectrum(spectrum, 40_000, signal=1.0, seed=0)
    share = (model.mu[model.sigma == 4] ** 2).sum()
    assert share == pytest.approx(0.8, abs=0.01)


# ---- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (([1.0, np.nan], [1, 1]), {}, r"mu\[1\] is nan"),
        (([[1.0]], [1]), {}, r"mu has shape \(1, 1\)"),
        (([], []), {}, r"mu has shape \(0,\)"),
        (([1.0, 2.0], [1, 1, 1]), {}, r"sigma has shape \(3,\), but mu has 2"),
        (([1.0, 2.0], [1, 0]), {}, "variance of feature 1 in sigma is 0"),
        (([1.0, 2.0], [1, -2]), {}, "variance of feature 1 in sigma is -2"),
        (([1.0, 2.0], [[1, np.inf], [0, 1]]), {}, r"sigma\[0, 1\] is inf"),
        (([1.0, 2.0], [[1, 0.5], [0.2, 1]]), {}, r"not symmetric: sigma\[0, 1\] is 0.5"),
        (
            ([1.0, 2.0], [[1, 2], [2, 1]]),
            {},
            "not positive definite: its smallest eigenvalue is -1",
        ),
        (([1.0, 2.0], [[1, 1], [1, 1]]), {}, "not positive definite.*repeat others"),
        (([1.0], [1.0]), {"prevalence": 0.0}, "prevalence is 0"),
        (([1.0], [1.0]), {"prevalence": np.nan}, "prevalence is nan"),
        (([1.0], [1.0]), {"centre": [1.0, 2.0]}, "centre has 2 entries, but mu has 1"),
    ],
)
def test_bad_models_are_refused(arguments, options, words):
    with pytest.raises(ValueError, match=words):
        GaussianModel(*arguments, **options)


def test_features_of_very_different_scales_are_welcome():
    scales = np.array([1e-8, 1.0, 1e8])
    correlations = np.array([[1, 0.5, 0.2], [0.5, 1, 0.1], [0.2, 0.1, 1]])
    mu = np.array([0.5, 0.2, -0.3])
    plain = GaussianModel(mu, correlations)
    scaled = GaussianModel(mu * scales, correlations * np.outer(scales, scales))
    assert scaled.bayes_error == pytest.approx(plain.bayes_error, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({}, TypeError, "found neither"),
        ({"bayes_error": 0.1, "signal": 1.0}, TypeError, "found both"),
        ({"bayes_error": 10}, ValueError, "bayes_error is 10.*percent"),
        ({"bayes_error": 0.5}, ValueError, "bayes_error is 0.5"),
        ({"signal": -1.0}, ValueError, "signal is -1"),
        ({"signal": np.nan}, ValueError, "signal is nan"),
        ({"signal": 1.0, "n_features": 0}, ValueError, "n_features is 0"),
        ({"signal": 1.0, "n_features": 2.5}, ValueError, "n_features is 2.5"),
    ],
)
def test_bad_draws_are_refused(options, kind, words):
    options = {"n_features": 5, **options}
    with pytest.raises(kind, match=words):
        GaussianModel.from_spectrum(PointSpectrum([1.0]), **options)


def test_bad_calls_are_refused():
    model = GaussianModel([1.0, 2.0], [1.0, 1.0])
    with pytest.raises(ValueError, match=r"w has shape \(3,\): it must be \(2,\) or \(m, 2\)"):
        model.decompose([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"w\[0\] is nan"):
        model.expertise([np.nan, 1.0])
    with pytest.raises(ValueError, match="n is 0"):
        model.sample(0)
    with pytest.raises(ValueError, match=r"X has shape \(4, 3\)"):
        model.log_odds(np.ones((4, 3)))
    assert "2 features" in repr(model)


def test_sample_is_the_model_in_one_call():
    sigma = [[1.0, 0.5], [0.5, 2.0]]
    X, y = rc.theory.sample(30, [1.0, 0.0], sigma, prevalence=0.2, centre=[3.0, 0.0], seed=5)
    model = GaussianModel([1.0, 0.0], sigma, prevalence=0.2, centre=[3.0, 0.0])
    again, labels = model.sample(30, 5)
    np.testing.assert_array_equal(X, again)
    np.testing.assert_array_equal(y, labels)
