"""What choosing by refinement saves, predicted from rows, against theory and against fits."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression

from refinecal._json import plain
from refinecal.theory._choices import choose, losses
from refinecal.theory.curves import minimise
from refinecal.theory.gain import predict_gain
from refinecal.theory.gaussian import gaussian_decomposition
from refinecal.theory.model import GaussianModel
from refinecal.theory.spectrum import BetaSpectrum, QuadratureSpectrum


def made(n=400, p=100, shapes=(2, 2), error=0.1, seed=0, prevalence=0.5):
    """Return a model of the paper and rows of it."""
    model = GaussianModel.from_spectrum(BetaSpectrum(*shapes), p, bayes_error=error, seed=seed)
    y = (np.arange(n) < prevalence * n).astype(int)
    noise = np.random.default_rng(seed).normal(size=(n, p))
    X = noise * np.sqrt(model.sigma) + np.where(y, 1, -1)[:, None] * model.mu
    return model, X, y


def known(model, n, prevalence=0.5):
    """Return the theory's choices if eigenvalues and means are known."""
    sigma, mu = np.asarray(model.sigma), np.asarray(model.mu)
    spectrum = QuadratureSpectrum(sigma, np.ones(len(sigma)), mu**2)
    return choose(spectrum, float(np.linalg.norm(mu)), n, len(sigma), prevalence)


# ---- choices ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", [(1, 5), (2, 2), (5, 1)])
@pytest.mark.parametrize("ratio", [0.2, 2.0])
def test_choices_are_the_minimisers_if_classes_are_equal(shapes, ratio):
    """Two routes: roots of exact slopes, and the lowest points of a curve."""
    spectrum = BetaSpectrum(*shapes)
    exact = minimise(ratio=ratio, spectrum=spectrum, bayes_error=0.1)
    found = choose(spectrum, float(spectrum.signal_for(0.1)), 1000, int(1000 * ratio))
    for name in ("lam_risk", "lam_refinement", "lam_calibration"):
        assert np.log10(getattr(found, name)) == pytest.approx(
            np.log10(getattr(exact, name)), abs=0.02
        )
    assert found.gain == pytest.approx(exact.gain, abs=2e-5)
    assert found.gain_affine == found.gain
    assert found.gain_calibrated == pytest.approx(exact.gain_calibrated, abs=2e-4)


@given(st.floats(0.05, 4), st.floats(0.02, 6), st.floats(0.02, 0.98))
@settings(max_examples=10, deadline=None)
def test_losses_of_unequal_classes(expertise, confidence, prevalence):
    """Against the closed forms of section 6, minimised over intercept and temperature one after the other."""

    def risk(shift, beta=1.0):
        parts = gaussian_decomposition(
            expertise, beta * confidence, prevalence=prevalence, shift=beta * shift
        )
        return float(parts.risk)

    own = minimize_scalar(risk, bracket=(-1, 1))
    scaled = minimize_scalar(
        lambda log: risk(own.x, np.exp(log)), bounds=(-20, 6), method="bounded"
    )
    affine = gaussian_decomposition(expertise, expertise, prevalence=prevalence).refinement
    found = losses(np.array([expertise]), np.array([confidence]), prevalence)
    assert found[0][0] == pytest.approx(own.fun, abs=3e-5)
    assert found[1][0] == pytest.approx(scaled.fun, abs=3e-5)
    assert found[2][0] == pytest.approx(float(affine), abs=3e-5)
    assert found[0][0] + 1e-9 >= found[1][0] >= found[2][0] - 1e-9


@pytest.mark.parametrize("prevalence", [0.2, 0.1])
def test_unequal_classes_are_worth_fewer_rows(prevalence):
    """Fits with an intercept: the theory of m = 4 pi (1 - pi) n balanced rows is near, that of n is not."""
    n = 1500
    model, X, y = made(n, 150, (1, 1), 0.2, prevalence=prevalence)
    sigma, mu = np.asarray(model.sigma), np.asarray(model.mu)
    found = known(model, n, prevalence)
    fit = LogisticRegression(C=1 / (found.lam_risk * n), tol=1e-8, max_iter=1000).fit(X, y)
    w = fit.coef_[0]
    confidence = np.sqrt(w @ (sigma * w))
    measured = gaussian_decomposition(
        2 * w @ mu / confidence, confidence, prevalence=prevalence, shift=fit.intercept_[0]
    )
    assert found.risk == pytest.approx(measured.risk, rel=0.04)
    naive = known(model, n)
    worth = 4 * prevalence * (1 - prevalence) * n
    assert known(model, worth).risk > naive.risk


# ---- predictions -----------------------------------------------------------------------------------------


def test_prediction_follows_the_theory_that_knows_everything():
    """12 data sets of quite different gains: the mean error is below 1.5 points, the order is right."""
    predicted, exact = [], []
    for shapes in ((1, 5), (2, 2), (5, 1)):
        for error in (0.05, 0.2):
            for p in (100, 500):
                model, X, y = made(500, p, shapes, error, seed=p)
                found = predict_gain(X, y, standardize=False, n_draws=0)
                predicted.append(found.gain)
                exact.append(known(model, 500).gain)
    assert np.abs(np.subtract(predicted, exact)).mean() < 0.015
    assert np.corrcoef(predicted, exact)[0, 1] > 0.95


def test_prediction_comes_true():
    """Fits on the same rows, whose loss is known exactly: predicted within 10 %, the gain within 2 times."""
    model, X, y = made(500, 250, (5, 1), 0.1, seed=3)
    found = predict_gain(X, y, standardize=False, n_draws=0)
    parts = []
    for C in (found.C_risk, found.C_refinement):
        fit = LogisticRegression(C=C, tol=1e-8, max_iter=2000).fit(X, y)
        parts.append(model.decompose(fit.coef_[0], float(fit.intercept_[0])))
    assert found.loss_by_risk == pytest.approx(float(parts[0].risk), rel=0.1)
    assert found.loss_by_refinement == pytest.approx(float(parts[1].refinement), rel=0.1)
    assert 0.5 < found.gain / (1 - parts[1].refinement / parts[0].risk) < 2


def test_standardised_columns_are_those_of_the_scaler():
    _, X, y = made()
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    one = predict_gain(X * np.geomspace(1e-3, 1e3, X.shape[1]), y, n_draws=0)
    other = predict_gain(scaled, y, standardize=False, n_draws=0)
    assert one.gain == pytest.approx(other.gain, abs=1e-6)
    assert one.C_risk == pytest.approx(other.C_risk, rel=1e-3)


def test_more_rows_lose_less():
    _, X, y = made()
    losing = [predict_gain(X, y, n_train=n, n_draws=0).loss_by_risk for n in (100, 400, 4000)]
    assert losing[0] > losing[1] > losing[2]


def test_intervals_hold_the_prediction_and_repeat():
    _, X, y = made(200, 40)
    one, again, other = (predict_gain(X, y, n_draws=10, seed=seed) for seed in (0, 0, 1))
    assert one.intervals == again.intervals != other.intervals
    for name, (low, high) in one.intervals.items():
        assert low <= getattr(one, name) <= high
        assert low < high
    wide = predict_gain(X, y, n_draws=10, level=0.99).intervals["gain"]
    assert wide[0] <= one.intervals["gain"][0] <= one.intervals["gain"][1] <= wide[1]
    none = predict_gain(X, y, n_draws=0)
    assert np.isnan(none.intervals["gain"]).all()
    assert "nan" not in repr(none)


def test_one_class_against_the_rest():
    _, X, y = made(300, 20)
    three = np.where(y == 1, "c", np.where(np.arange(300) % 3 == 0, "a", "b"))
    found = predict_gain(X, three, positive="c", n_draws=0)
    assert found.classes == ("the rest", "c")
    assert found.gain == pytest.approx(predict_gain(X, y, n_draws=0).gain, abs=1e-9)
    with pytest.raises(ValueError, match="positive is 'd'.*'a', 'b', 'c'"):
        predict_gain(X, three, positive="d")


# ---- words -----------------------------------------------------------------------------------------------


def test_it_can_be_read_by_people_and_programs():
    _, X, y = made(300, 40)
    found = predict_gain(X, y, n_draws=10)
    assert f"{100 * found.gain:.1f} %" in repr(found)
    assert "trust: good" in repr(found)
    stored = json.loads(json.dumps(plain(found.to_dict()), allow_nan=False))
    assert stored["gain"] == pytest.approx(found.gain)
    assert stored["C_risk"] == pytest.approx(1 / (found.lam_risk * 300))
    assert len(stored["assumptions"]) == len(found.assumptions) == 7


def doubts_of(X, y):
    return " ".join(predict_gain(X, y, n_draws=0).doubts)


def test_doubts_are_raised_where_they_are_due():
    _, X, y = made(600, 40)
    assert doubts_of(X, y) == ""
    assert "Gaussian" in doubts_of((X > 0).astype(float), y)
    assert "Gaussian" in doubts_of(np.sinh(4 * X), y)
    assert "different variances" in doubts_of(np.where(y[:, None], 3 * X, X), y)
    assert "5 features" in doubts_of(X[:, :5], y)
    assert "tails" in doubts_of(X + 2 * y[:, None], y)
    few = np.r_[np.arange(20), np.arange(300, 600)]
    assert "one class" in doubts_of(X[few], y[few])
    assert "no difference" in doubts_of(X, np.random.default_rng(1).permutation(y))


def test_trust_is_poor_only_where_predictions_were_seen_to_fail():
    _, X, y = made(600, 40)
    assert predict_gain(X, y, n_draws=0).trust == "good"
    assert predict_gain((X > 0).astype(float), y, n_draws=0).trust == "fair"
    assert predict_gain(X[:, :5], y, n_draws=0).trust == "poor"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"level": 1.0}, "level is 1.0"),
        ({"n_draws": -1}, "n_draws is -1"),
        ({"n_train": 0}, "n_train is 0"),
    ],
)
def test_options_are_checked(options, match):
    _, X, y = made(100, 10)
    with pytest.raises(ValueError, match=match):
        predict_gain(X, y, **options)


def test_a_frame_with_texts_says_to_encode():
    with pytest.raises(TypeError, match="'colour'.*get_dummies"):
        predict_gain(pd.DataFrame({"colour": ["red"] * 30, "size": range(30)}), np.arange(30) % 2)


def test_edges_give_an_answer():
    """Few rows, many features, hardly any difference or a huge one."""
    rng = np.random.default_rng(0)
    y = np.arange(30) % 2
    for each in (
        rng.normal(size=(30, 1)),
        rng.normal(size=(30, 500)),
        rng.normal(size=(30, 5)) + 20 * y[:, None],
        rng.normal(size=(30, 28)),
        rng.normal(size=(30, 30)),
        rng.normal(size=(30, 31)),
        np.hstack([X := rng.normal(size=(30, 9)), X + 1e-7 * rng.normal(size=X.shape)]),
        rng.standard_cauchy(size=(30, 9)),
        1e150 * rng.normal(size=(30, 9)),
        1e-150 * rng.normal(size=(30, 9)),
    ):
        found = predict_gain(each, y, n_draws=3)
        assert 0 <= found.gain <= 1
        assert np.isfinite(found.loss_by_risk)
