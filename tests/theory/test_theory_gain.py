"""What choosing by refinement saves, predicted from rows, against theory and against fits."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from strategies import examples

from refinecal._core.files import plain
from refinecal.theory._strengths import choose, losses
from refinecal.theory.assumptions import check_assumptions
from refinecal.theory.curves import minimise, path
from refinecal.theory.gain import describe_gain, predict_gain
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
@examples(10)
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
    assert f"{100 * found.gain:.1f}%" in repr(found)
    assert "trust: good" in repr(found)
    stored = json.loads(json.dumps(plain(found.to_dict()), allow_nan=False))
    assert stored["gain"] == pytest.approx(found.gain)
    assert stored["C_risk"] == pytest.approx(1 / (found.lam_risk * 300))
    assert len(stored["assumptions"]) == len(found.assumptions)
    assert [each["doubt"] for each in stored["assumptions"] if each["doubt"]] == list(found.doubts)


def doubts_of(X, y, **options):
    return " ".join(predict_gain(X, y, n_draws=0, **options).doubts)


def test_doubts_are_raised_where_they_are_due():
    _, X, y = made(600, 40)
    assert doubts_of(X, y) == ""
    assert "far from Gaussian" in doubts_of((X > 0).astype(float), y)
    assert "far from Gaussian" in doubts_of(np.sinh(4 * X), y)
    assert "vary more in one class" in doubts_of(np.where(y[:, None], 3 * X, X), y)
    assert "5 features" in doubts_of(X[:, :5], y)
    assert "hardly overlap" in doubts_of(X + 2 * y[:, None], y)
    few = np.r_[np.arange(20), np.arange(300, 600)]
    assert "one class" in doubts_of(X[few], y[few])
    assert "no difference" in doubts_of(X, np.random.default_rng(1).permutation(y))


def test_doubts_are_about_the_rows_that_will_be_trained_on():
    _, X, y = made(600, 40)
    assert "50 training rows" in doubts_of(X, y, n_train=50)
    assert "training rows" not in doubts_of(X[:100], y[:100] * 0 + np.arange(100) % 2, n_train=200)
    assert doubts_of(X, y, n_train=1200) == ""
    assert "extrapolated" in doubts_of(X, y, n_train=1201)
    assert predict_gain(X, y, n_draws=0, n_train=10**6).trust == "fair"


@pytest.mark.parametrize("n_train", [50, 10**5])
def test_another_number_of_rows_is_not_trusted_as_well(n_train):
    _, X, y = made(600, 40)
    assert predict_gain(X, y, n_draws=0).trust == "good"
    assert predict_gain(X, y, n_draws=0, n_train=n_train).trust == "fair"


@pytest.mark.parametrize(("n", "p"), [(60, 500), (300, 40)])
def test_of_noise_nothing_is_claimed(n, p):
    """In all sets but those in which noise looks like more, which are few: 2 of 6 at most."""
    taken_for_signal = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        found = predict_gain(rng.normal(size=(n, p)), rng.permutation(np.arange(n) % 2), n_draws=3)
        if found.spectrum.seen:
            taken_for_signal += 1
            continue
        assert found.trust == "poor"
        assert np.isnan(found.bayes_error)
        low, high = found.intervals["bayes_error"]
        assert low < high == 0.5
        assert found.sentence.startswith("The prediction is not reliable")
        assert "no difference between the classes is detected" in found.sentence
        assert "not determined" in repr(found)
        assert "nan" not in repr(found)
        assert plain(found.to_dict())["bayes_error"] is None
    assert taken_for_signal <= 2


@pytest.mark.slow
def test_what_goes_unseen_is_within_the_intervals():
    """A signal of about one standard error: in most sets its error rate lies between the ends."""
    n, p, held = 200, 50, []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        y = np.arange(n) % 2
        mu = np.full(p, 0.3 / np.sqrt(p))
        X = rng.normal(size=(n, p)) + np.where(y, 1, -1)[:, None] * mu
        low, high = predict_gain(X, y, standardize=False, n_draws=8).intervals["bayes_error"]
        held.append(low <= norm.cdf(-0.3) <= high)
    assert np.mean(held) >= 0.75


def test_trust_is_poor_only_where_predictions_were_seen_to_fail():
    _, X, y = made(600, 40)
    assert predict_gain(X, y, n_draws=0).trust == "good"
    assert predict_gain((X > 0).astype(float), y, n_draws=0).trust == "fair"
    found = predict_gain(X[:, :5], y, n_draws=3)
    assert found.trust == "poor"
    assert found.sentence.startswith("The prediction is not reliable for these data: there are 5")
    assert "Theory predicts " in found.sentence
    assert "orthwhile" not in repr(found)


EQUAL = (0.66671, 0.66674)


@pytest.mark.parametrize(
    ("gain", "ends", "losses", "start", "inside"),
    [
        (
            0.05,
            (0.02, 0.1),
            (0.57, 0.6),
            "Worthwhile: theory predicts about 5.0%",
            "90% interval: 2.0 to 10.0%",
        ),
        (
            0.05,
            (0.0, 0.1),
            (0.57, 0.6),
            "Possibly worthwhile: theory predicts about 5.0%",
            "interval: 0 to 10.0%",
        ),
        (
            0.005,
            (0.001, 0.008),
            (0.597, 0.6),
            "Hardly worthwhile: theory predicts about 0.5%",
            "0.5970 instead of",
        ),
        (
            4.5e-5,
            (0.0, 1e-5),
            EQUAL,
            "Not worthwhile: theory predicts no difference",
            "below 0.01% less",
        ),
        (
            4.5e-5,
            (0.0, 0.02),
            EQUAL,
            "Possibly worthwhile: theory predicts no difference",
            "0 to 2.0% less",
        ),
        (
            2e-5,
            (np.nan, np.nan),
            (0.66674, 0.66676),
            "Hardly worthwhile: theory predicts less than 0.01%",
            "0.6668",
        ),
        (
            0.05,
            (np.nan, np.nan),
            (0.57, 0.6),
            "Worthwhile: theory predicts about 5.0% less log loss from",
            "by loss",
        ),
    ],
)
def test_the_answer_in_words(gain, ends, losses, start, inside):
    said = describe_gain(gain, ends, 0.9, losses, ())
    assert said.startswith(start)
    assert inside in said
    assert "nan" not in said
    assert "0.00%" not in said


@given(st.floats(0.05, 3), st.floats(0.02, 0.5), st.floats(0.02, 3), st.integers(30, 2000))
@examples(20)
def test_no_saving_goes_up(signal, prevalence, ratio, n):
    found = choose(BetaSpectrum(2, 2), signal, n, max(int(ratio * n), 1), prevalence)
    assert found.refinement_affine <= found.refinement <= found.risk_calibrated <= found.risk


@pytest.mark.slow
@pytest.mark.parametrize("standardize", [True, False])
def test_intervals_of_strengths_hold_those_of_other_rows(standardize):
    """Rows left out move C, even where nothing depends on it, as with equal eigenvalues (standardised)."""
    _, X, y = made(400, 60, (1, 5), 0.15, seed=2)
    found = predict_gain(X, y, standardize=standardize, n_draws=10)
    rng = np.random.default_rng(0)
    held = []
    for _ in range(8):
        some = rng.permutation(400)[:376]
        other = predict_gain(X[some], y[some], standardize=standardize, n_draws=0, n_train=400)
        for name in ("C_risk", "C_refinement"):
            low, high = found.intervals[name]
            held.append(low <= getattr(other, name) <= high)
    assert np.mean(held) >= 0.8
    assert f"{found.C_refinement:.3g}" in repr(found)
    assert "90% interval" in repr(found)


def test_labels_may_be_texts_or_truth_values():
    _, X, y = made(200, 25)
    one = predict_gain(X, y, n_draws=0)
    frame = pd.DataFrame(X).add_prefix("x").convert_dtypes()
    for labels, classes in (
        (np.where(y, "yes", "no"), ("no", "yes")),
        (y == 1, (False, True)),
        (pd.Series(y == 1, dtype="boolean"), None),
        (pd.Categorical(np.where(y, "b", "a")), ("a", "b")),
    ):
        found = predict_gain(frame, labels, n_draws=0)
        assert found.gain == pytest.approx(one.gain, abs=1e-9)
        assert classes is None or found.classes == classes


@pytest.mark.parametrize("prevalence", [0.5, 0.2])
def test_strengths_that_are_as_good_are(prevalence):
    """Within the range the loss is at most 0.1 % above the least; a step outside it is more."""
    spectrum, signal = BetaSpectrum(1, 5), 0.4
    found = choose(spectrum, signal, 300, 150, prevalence)
    share = 4 * prevalence * (1 - prevalence)
    low, high = np.log10(found.as_good_for_risk)
    lams = 10 ** np.array([low - 0.1, low + 0.1, high - 0.1, high + 0.1]) / share
    solved = path(lams, ratio=150 / (share * 300), spectrum=spectrum, signal=signal)
    above = losses(solved.expertise, solved.confidence, prevalence)[0] / found.risk - 1
    assert ((above < 1.001e-3) == [False, True, True, False]).all()
    assert low < np.log10(found.lam_risk) < high


def test_only_with_a_scale_do_units_not_matter():
    _, X, y = made(200, 25)
    other = X * np.geomspace(0.1, 10, 25)
    for scaled in (True, False):
        a, b = (predict_gain(each, y, standardize=scaled, n_draws=0).gain for each in (X, other))
        assert (abs(a - b) < 1e-6) == scaled


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"level": 1.0}, "level is 1.0"),
        ({"level": float("nan")}, "level is nan.*such as 0.9"),
        ({"level": "a"}, "level is 'a': it must be a number between 0 and 1"),
        ({"n_draws": -1}, "n_draws is -1"),
        ({"n_draws": 2.5}, "n_draws is 2.5: it must be a whole number of at least 0"),
        ({"n_train": 0}, "n_train is 0"),
        ({"n_train": "a"}, "n_train is 'a': it must be a whole number of at least 1"),
        ({"n_train": 2.5}, "n_train is 2.5: it must be a whole number"),
        ({"seed": -1}, "seed is -1: it must be a whole number of at least 0"),
        ({"seed": None}, "seed is None: it must be a whole number"),
    ],
)
def test_options_are_checked(options, match):
    _, X, y = made(100, 10)
    with pytest.raises((TypeError, ValueError), match=match):
        predict_gain(X, y, **options)


@pytest.mark.parametrize("factor", [1e160, 1e-160])
def test_units_beyond_all_measure(factor):
    """Standardised, they do not matter; else they are refused, with the cure."""
    _, X, y = made(100, 25)
    one, other = (predict_gain(each, y, n_draws=0) for each in (X, factor * X))
    assert other.gain == pytest.approx(one.gain, abs=1e-6)
    with pytest.raises(ValueError, match="standard deviation .*standardize=True"):
        predict_gain(factor * X, y, standardize=False)


# ---- columns of different units --------------------------------------------------------------------------


def other_units(sd, mu, n=600):
    """Return rows whose columns have these standard deviations, and the gain that is true of them."""
    y = np.arange(n) % 2
    X = np.random.default_rng(0).normal(size=(n, len(sd))) * sd
    truth = minimise(
        ratio=len(sd) / n,
        spectrum=QuadratureSpectrum(sd**2, np.ones(len(sd)), mu**2),
        signal=float(np.linalg.norm(mu)),
    )
    return X + np.where(y, 1, -1)[:, None] * mu, y, truth


@pytest.mark.slow
@pytest.mark.parametrize("large", [10.0, 100.0, 1e4])
@pytest.mark.parametrize("p", [120, 500])
def test_one_large_column_does_not_hide_the_others(large, p):
    """Against the exact minimisers: the range of strengths follows the eigenvalues, not their mean."""
    sd = np.r_[large, np.ones(p - 1)]
    X, y, truth = other_units(sd, np.where(sd == 1, 0.1, 0.0))
    found = predict_gain(X, y, standardize=False, n_draws=0)
    assert found.gain == pytest.approx(truth.gain, rel=0.12)
    assert np.log10(found.lam_risk) == pytest.approx(np.log10(truth.lam_risk), abs=0.3)
    assert found.trust == "good"
    assert not found.at_bound_risk


@pytest.mark.parametrize("large", [1e-3, 1e2, 1e4])
def test_half_of_the_columns_in_another_unit(large):
    sd = np.repeat([1.0, large], 60)
    X, y, truth = other_units(sd, np.where(sd == sd.min(), 0.1 * sd.min(), 0.0))
    found = predict_gain(X, y, standardize=False, n_draws=0)
    assert found.gain == pytest.approx(truth.gain, abs=0.01)
    assert np.log10(found.lam_risk) == pytest.approx(np.log10(truth.lam_risk), abs=0.2)


@pytest.mark.parametrize("wide", [1, 40])
def test_columns_too_small_to_be_seen_are_a_serious_doubt(wide):
    sd = np.r_[np.full(wide, 1e6), np.ones(80)]
    X, y, _ = other_units(sd, np.where(sd == 1, 0.1, 0.0))
    found = predict_gain(X, y, standardize=False, n_draws=0)
    assert found.trust == "poor"
    assert "80 of" in found.sentence
    assert "standardize=True" in found.sentence
    assert predict_gain(X, y, n_draws=0).trust == "good"


def test_an_end_of_the_range_is_a_serious_doubt_only_if_the_loss_falls_there():
    """Many rows of equal eigenvalues: refinement is flat, its best strength is an end, and that is normal."""
    flat = choose(QuadratureSpectrum([1.0], [1.0]), 1.0, 2000, 40)
    assert flat.at_bound_refinement
    assert not flat.at_bound_risk
    assert flat.cut_off == ()
    alike = np.random.default_rng(0).normal(size=(600, 40))
    found = predict_gain(
        alike + 0.15 * (np.arange(600) % 2)[:, None], np.arange(600) % 2, n_draws=0
    )
    assert found.trust == "good"
    steep = replace(found.choices, at_bound_risk=True, cut_off=("risk",))
    doubtful = check_assumptions(alike, np.arange(600) % 2, found.spectrum, steep, 600)
    assert [each.serious for each in doubtful if each.doubt] == [True]


@pytest.mark.parametrize("separable", [True, False])
def test_what_is_cut_off_is_said(separable):
    """Far more features than rows and classes far apart: the loss falls as long as strengths do."""
    found = choose(QuadratureSpectrum([1.0], [1.0]), 6.0 if separable else 0.5, 600, 900)
    assert (found.cut_off != ()) == separable
    assert found.at_bound_risk == separable


# ---- order of rows ---------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.sampled_from([(120, 25), (60, 90)]), st.booleans())
@examples(8)
@example(470, (120, 25), False)
def test_the_order_of_rows_does_not_matter(seed, size, skewed):
    rng = np.random.default_rng(seed)
    _, X, y = made(*size, seed=seed)
    X[:, : size[1] // 2] = X[:, : size[1] // 2] > 0  # some columns of two values
    X = np.sinh(3 * X) if skewed else X
    order = rng.permutation(len(y))
    one, other = (predict_gain(X[rows], y[rows], n_draws=5) for rows in (np.arange(len(y)), order))
    assert other.trust == one.trust
    assert other.doubts == one.doubts
    assert other.gain == one.gain
    assert other.C_risk == one.C_risk
    assert other.intervals == one.intervals


@given(st.integers(0, 1000), st.sampled_from([(120, 25), (60, 90), (240, 30)]))
@examples(8)
@example(9, (120, 25))
def test_rounding_hardly_moves_the_intervals(seed, size):
    rng = np.random.default_rng(seed)
    _, X, y = made(*size, seed=seed)
    X[:, : size[1] // 2] = X[:, : size[1] // 2] > 0
    other = X * (1 + 1e-15 * rng.normal(size=X.shape))
    one, other = (predict_gain(each, y, n_draws=5).intervals for each in (X, other))
    for name, ends in one.items():
        assert other[name] == pytest.approx(ends, rel=0.01, abs=1e-5), name


def test_sorted_rows_are_doubted_as_shuffled_ones():
    """More rows than fit one look: the last have other values than the first."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30_000, 20)), np.arange(30_000) % 2
    X[20_000:] = np.round(X[20_000:] * 3) ** 5
    X[:20_000] = X[:20_000] > 0
    order = rng.permutation(len(y))
    sorted_, shuffled = (doubts_of(X[rows], y[rows]) for rows in (np.arange(len(y)), order))
    assert sorted_ == shuffled
    assert "far from Gaussian" in sorted_


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
