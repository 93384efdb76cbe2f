"""Affine, quadratic and beta calibration, against independent solvers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from sklearn.linear_model import LogisticRegression

import refinecal as rc
from refinecal._core.sample import Sample
from refinecal.calibrators import _newton
from refinecal.calibrators._newton import Advice, Solution, fit_logistic, minimize_newton
from refinecal.calibrators.binning import merge_ties


def scores(n=400, seed=0, slope=0.6, shift=0.4):
    rng = np.random.default_rng(seed)
    odds = rng.normal(size=n) * 3
    return (rng.random(n) < expit(slope * odds + shift)).astype(int), odds


def mean_loss(log_odds, shares, weights=None):
    losses = -shares * log_expit(log_odds) - (1 - shares) * log_expit(-log_odds)
    return np.average(losses, weights=weights)


def loss_of(calibrator, odds, shares, weights=None):
    probs = calibrator.predict_proba_logits(odds)
    return np.average(
        -shares * np.log(probs[:, 1]) - (1 - shares) * np.log(probs[:, 0]), weights=weights
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ridge", [0.0, 7.0])
@pytest.mark.parametrize(("name", "degree"), [("affine", 1), ("quadratic", 2)])
def test_powers_reach_the_optimum_of_another_solver(name, degree, ridge, weighted):
    labels, odds = scores()
    weights = np.random.default_rng(1).random(len(odds)) * 2 if weighted else np.ones(len(odds))
    identity = np.eye(degree + 1)[1]

    def objective(theta):
        penalty = ridge / weights.sum() * ((theta - identity) ** 2).sum()
        return mean_loss(np.polyval(theta[::-1], odds), labels, weights) + penalty

    best = minimize(objective, identity, method="BFGS", options={"gtol": 1e-7})
    made = rc.make_calibrator(name, ridge=ridge, laplace=False)
    fitted = made.fit_logits(odds, labels, sample_weight=weights)
    found = np.array([fitted.intercept_, fitted.slope_, getattr(fitted, "curve_", 0.0)])
    assert objective(found[: degree + 1]) <= best.fun + 1e-12
    np.testing.assert_allclose(found[: degree + 1], best.x, atol=1e-4)
    penalty = ridge / weights.sum() * ((found[: degree + 1] - identity) ** 2).sum()
    np.testing.assert_allclose(
        loss_of(fitted, odds, labels, weights) + penalty, objective(found[: degree + 1]), rtol=1e-12
    )


def test_affine_is_logistic_regression():
    labels, odds = scores()
    fitted = rc.make_calibrator("affine").fit_logits(odds, labels)
    other = LogisticRegression(C=np.inf, tol=1e-10).fit(odds[:, None], labels)
    np.testing.assert_allclose(fitted.slope_, other.coef_[0, 0], rtol=1e-4)
    np.testing.assert_allclose(fitted.intercept_, other.intercept_[0], rtol=1e-4)


def beta_features(odds, parameters):
    """The log-odds of beta calibration are ``features @ (a, b, c)``, of which some are tied or absent."""
    middle = 0.0 if parameters.endswith("m") else np.log(2)
    a, b = log_expit(odds) + middle, -log_expit(-odds) - middle
    slopes = [a, b] if "b" in parameters else [a + b]
    return np.stack(slopes + [np.ones_like(odds)] * parameters.endswith("m"), axis=1)


@pytest.mark.parametrize("slope", [0.6, -0.6, "bent", "backwards bent"])
@pytest.mark.parametrize("parameters", ["abm", "ab", "am", "a"])
def test_beta_reaches_the_constrained_optimum(parameters, slope):
    rng = np.random.default_rng(3)
    odds = rng.normal(size=500) * 2
    if slope == "bent":  # the best a would be negative
        truth = 1 + 1.5 * np.maximum(odds, 0) + 0.7 * np.minimum(odds, 0) * -1
    elif slope == "backwards bent":
        truth = 0.7 * np.minimum(odds, 0) - 0.9 * np.maximum(odds, 0)
    else:
        truth = slope * odds + 0.3
    labels = (rng.random(500) < expit(truth)).astype(int)
    features = beta_features(odds, parameters)
    n = features.shape[1]
    bounds = [(0, None)] * (n - parameters.endswith("m")) + [(None, None)] * parameters.endswith(
        "m"
    )
    best = minimize(
        lambda theta: mean_loss(features @ theta, labels),
        np.full(n, 0.5),
        jac=lambda theta: features.T @ (expit(features @ theta) - labels) / len(labels),
        method="L-BFGS-B",
        bounds=bounds,
        options={"ftol": 1e-15, "gtol": 1e-10},
    )
    fitted = rc.make_calibrator("beta", parameters=parameters, laplace=False)
    fitted.fit_logits(odds, labels)
    assert fitted.shape_a_ >= 0
    assert fitted.shape_b_ >= 0
    assert abs(loss_of(fitted, odds, labels) - best.fun) < 1e-9
    assert fitted.n_parameters == len(parameters)
    grid = fitted.predict_proba_logits(np.linspace(-9, 9, 50))[:, 1]
    assert (np.diff(grid) >= -1e-15).all()


def test_beta_is_logistic_regression_on_both_logarithms():
    labels, odds = scores()
    probs = expit(odds)
    fitted = rc.make_calibrator("beta").fit(probs, labels)
    features = np.stack([np.log(probs), -np.log(1 - probs)], axis=1)
    other = LogisticRegression(C=np.inf, tol=1e-10).fit(features, labels)
    expected = [*other.coef_[0], other.intercept_[0]]
    found = [fitted.shape_a_, fitted.shape_b_, fitted.intercept_]
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_beta_with_one_letter_is_temperature_scaling():
    labels, odds = scores(shift=0.0)
    fitted = rc.make_calibrator("beta", parameters="a").fit_logits(odds, labels)
    beta = rc.fit_temperature(labels, odds).beta
    np.testing.assert_allclose([fitted.shape_a_, fitted.shape_b_], beta, rtol=1e-7)
    assert fitted.intercept_ == 0


@pytest.mark.parametrize("name", ["affine", "quadratic", "beta"])
def test_three_classes_are_refused_with_a_cure(name):
    with pytest.raises(ValueError, match=f"2 classes, found 3: use .*'{name}-ovr'"):
        rc.make_calibrator(name).fit_logits(np.eye(3), [0, 1, 2])


def test_bad_parameters_are_refused():
    labels, odds = scores(20)
    with pytest.raises(ValueError, match="ridge is -1"):
        rc.make_calibrator("affine", ridge=-1).fit_logits(odds, labels)
    with pytest.raises(ValueError, match="ridge is 'much'"):
        rc.make_calibrator("quadratic", ridge="much").fit_logits(odds, labels)
    with pytest.raises(ValueError, match="parameters"):
        rc.make_calibrator("beta", parameters="abc").fit_logits(odds, labels)


def test_a_zero_that_was_wrong_means_half_the_smallest_probability_seen():
    probs = np.array([0.0, 0.0, 0.1, 0.2, 0.7, 1.0])
    wrong = rc.make_calibrator("affine").fit(probs, [1, 0, 0, 0, 1, 1])
    right = rc.make_calibrator("affine").fit(probs, [0, 0, 0, 1, 0, 1])
    assert wrong.limit_ == pytest.approx(np.log(0.9 / 0.1) + np.log(2))
    assert right.limit_ == pytest.approx(-np.log(np.finfo(float).eps))


# ---- the solver ------------------------------------------------------------------------------------------


def fit(features, shares, **options):
    """Fit columns of features to hard or soft labels."""
    soft = np.stack([1 - shares, shares], axis=1)
    sample = Sample(soft.argmax(axis=1), np.zeros_like(soft), soft=soft)
    return fit_logistic(sample, list(features.T), Advice("a test", "try again"), **options)


def test_logistic_takes_offset_penalty_and_centre():
    rng = np.random.default_rng(5)
    features, offset, shares = rng.normal(size=(200, 3)), rng.normal(size=200), rng.random(200)
    ridge, centre = rng.random(3), rng.normal(size=3)

    def objective(theta):
        return mean_loss(features @ theta + offset, shares) + 0.5 * ridge @ (theta - centre) ** 2

    best = minimize(objective, np.zeros(3), method="BFGS", options={"gtol": 1e-8})
    found = fit(features, shares, ridge=ridge, center=centre, offset=offset)
    np.testing.assert_allclose(found, best.x, atol=1e-6)


def test_logistic_with_columns_of_any_size():
    labels, odds = scores()
    features = np.stack([np.ones_like(odds), odds], axis=1)
    plain = fit(features, labels)
    sized = fit(features * [1e-100, 1e100], labels)
    np.testing.assert_allclose(sized, plain * [1e100, 1e-100], rtol=1e-9)


def test_logistic_with_the_same_column_twice_shares_the_coefficient():
    labels, odds = scores()
    once = fit(odds[:, None], labels)
    twice = fit(np.stack([odds, odds], axis=1), labels)
    np.testing.assert_allclose(twice, [once[0] / 2] * 2, rtol=1e-5)


TWO_CLASSES = ["affine", "quadratic", "beta", "spline", "isotonic", "centred-isotonic"]
TWO_CLASSES += ["venn-abers", "cross-venn-abers", "uniform-mass", "uniform-width"]
TWO_CLASSES += ["scaling-binning"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", TWO_CLASSES)
def test_rounding_makes_no_new_scores(name, seed):
    rng = np.random.default_rng(seed)
    odds = rng.integers(-4, 5, size=300).astype(float)
    labels = (rng.random(300) < expit(0.5 * odds - 0.3 * np.sin(2 * odds))).astype(int)
    logits = np.stack([np.zeros(300), odds], axis=1)
    shifted = logits + 10 * rng.normal(size=(300, 1))  # differences are no longer whole numbers
    assert len(np.unique(shifted[:, 1] - shifted[:, 0])) > 9
    plain = rc.make_calibrator(name).fit_logits(logits, labels)
    moved = rc.make_calibrator(name).fit_logits(shifted, labels)
    np.testing.assert_allclose(
        moved.predict_proba_logits(shifted), plain.predict_proba_logits(logits), atol=1e-9
    )


@given(st.lists(st.integers(-30, 30), min_size=1, max_size=40), st.floats(1e-3, 1e3))
def test_scores_that_rounding_tells_apart_are_merged(steps, size):
    """Against the rule itself, applied to one score after the other."""
    scores = size * (np.array(steps) // 6) * (1 + 3e-14 * (np.array(steps) % 6))
    unit, lowest = min(1.0, np.abs(scores).max()), np.nan
    found = merge_ties(scores)
    for i in np.argsort(scores):
        if not scores[i] <= lowest + 1e-13 * max(unit, abs(lowest)):
            lowest = scores[i]
        assert found[i] == lowest


@pytest.mark.parametrize("name", ["affine", "quadratic", "beta", "vector", "matrix", "dirichlet"])
def test_a_fit_that_does_not_converge_says_whose_and_what_to_do(name, monkeypatch):
    monkeypatch.setattr(_newton, "minimize_newton", lambda _, x0: Solution(x0, 1.0, 1.0, 3, False))
    made = rc.make_calibrator(name)
    with pytest.warns(RuntimeWarning, match=rf"(?i)the fit of {name} \w+ stopped") as caught:
        made.fit_logits([0.0, 1.0, 2.0], [0, 1, 0])
    cure = str(caught[0].message).split(": ")[1]
    named = {"structured-vector"} | set(made.get_params()) - {"laplace"}
    assert any(word in cure for word in named)


def test_newton_warns_when_it_does_not_converge():
    def steep(x):  # value and gradient do not belong together: no step can succeed
        return float(np.sum(x)), -np.ones(1), np.eye(1)

    found = minimize_newton(steep, np.zeros(1))
    assert not found.converged
    with pytest.warns(
        RuntimeWarning, match="the fit of a test .* could still fall by .*: try again"
    ):
        found.accept(Advice("a test", "try again"))
