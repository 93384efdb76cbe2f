"""Spectrum and signal estimated from rows, against what they were drawn from."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from strategies import examples

from refinecal.theory._sample_covariance import Fluctuation, Summary, transform
from refinecal.theory.estimate import EmpiricalSpectrum, SignalFitter
from refinecal.theory.spectrum import BetaSpectrum, PointSpectrum


def rows(n, sigma, mu=0.0, seed=0):
    """Return rows of two equal classes with diagonal covariance."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    noise = rng.normal(size=(n, len(sigma))) * np.sqrt(sigma)
    return noise + np.where(y == 1, 1, -1)[:, None] * mu, y


def summary(n, sigma, mu=0.0, seed=0):
    return Summary.of(*rows(n, sigma, mu, seed))


# ---- what is measured ------------------------------------------------------------------------------------


@given(st.integers(20, 40), st.integers(1, 60), st.integers(0, 99))
def test_transforms_are_those_of_the_matrices(n, p, seed):
    """By the inverse of S + z itself, whichever of rows and features are more."""
    X, y = rows(n, np.linspace(0.5, 2, p), 0.3, seed)
    found = Summary.of(X, y)
    at = found.points()
    centred = X - np.stack([X[y == 0].mean(axis=0), X[y == 1].mean(axis=0)])[y]
    half = (X[y == 1].mean(axis=0) - X[y == 0].mean(axis=0)) / 2
    theta = (1 / (y == 0).sum() + 1 / (y == 1).sum()) / 4
    S = centred.T @ centred / (n - 2)
    for z, v, value in zip(at.z, at.v, found.signal_values(at), strict=True):
        inverse = np.linalg.inv(S + z * np.eye(p))
        r = p / (n - 2)
        assert v == pytest.approx((1 - r) / z + np.trace(inverse) / (n - 2), rel=1e-6)
        bias = theta * (n - 2) * (1 / (z * v) - 1)
        raw = half @ inverse @ half
        assert value == pytest.approx(raw - bias, rel=1e-6, abs=1e-9 * raw)


@pytest.mark.parametrize("p", [30, 90])
def test_values_have_the_mean_and_covariance_that_are_claimed(p):
    """Monte Carlo: 600 data sets, so a variance is known to 6 % (one standard error)."""
    sigma, n = np.linspace(0.2, 2, p), 60
    mu = 0.25 * np.sqrt(sigma)
    at = summary(n, sigma, mu).points()
    drawn = [_raw(summary(n, sigma, mu, seed), at) for seed in range(600)]
    fitter = SignalFitter(summary(n, sigma, mu), at, sigma, np.full(p, 1 / p))
    claimed = fitter.covariance(mu**2)
    theta = 1 / n
    mean = fitter.predict(mu**2) + theta * (n - 2) * (1 / (at.z * at.v) - 1)
    middle = slice(6, None)  # z that is not far below the smallest eigenvalue
    spread = np.cov(np.array(drawn).T)
    error = np.sqrt(np.diag(spread) / 600)
    limit = 0.05 * mean + 4 * error  # the claim is about the limit of many
    assert (np.abs(np.mean(drawn, axis=0) - mean) < limit)[middle].all()
    assert (np.abs(np.diag(spread) / np.diag(claimed) - 1) < 0.35)[middle].all()
    correlation = spread[8, 16] / np.sqrt(spread[8, 8] * spread[16, 16])
    expected = claimed[8, 16] / np.sqrt(claimed[8, 8] * claimed[16, 16])
    assert correlation == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(("n", "p"), [(200, 60), (100, 200)])
def test_spectra_differ_from_set_to_set_as_is_claimed(n, p):
    """Monte Carlo: 400 data sets, so a variance is known to 7 % (one standard error)."""
    sigma = np.linspace(0.2, 2, p)
    sets = [summary(n, sigma, seed=seed) for seed in range(400)]
    z = sets[0].points().z
    v = [
        1 / z - (e / (e + z[:, None])).sum(axis=1) / ((n - 2) * z)
        for e in (s.eigenvalues for s in sets)
    ]
    noise = Fluctuation.of(z, sigma, np.full(p, 1 / p), sets[0])
    claimed, spread = noise.root @ noise.root.T, np.cov(np.array(v).T)
    assert np.mean(v, axis=0) == pytest.approx(noise.v, rel=0.02)
    assert np.diag(spread) == pytest.approx(np.diag(claimed), rel=0.25)
    correlation = spread[5, 15] / np.sqrt(spread[5, 5] * spread[15, 15])
    assert correlation == pytest.approx(
        claimed[5, 15] / np.sqrt(claimed[5, 5] * claimed[15, 15]), abs=0.1
    )


def test_the_transform_solves_its_equation():
    nodes, weights, z = (
        np.array([0.1, 1, 1e4]),
        np.array([0.3, 0.6, 0.1]),
        np.geomspace(1e-6, 1e6, 30),
    )
    for ratio in (0.1, 1.0, 10.0):
        v = transform(z, nodes, weights, ratio)
        right = z + ratio * (nodes / (1 + nodes * v[:, None])) @ weights
        assert 1 / v == pytest.approx(right, rel=1e-10)


def _raw(each, at):
    return (each.along / (each.eigenvalues + at.z[:, None])).sum(axis=1) + each.beyond / at.z


# ---- the spectrum ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [60, 300, 900])
def test_one_eigenvalue_stays_one(p):
    """The sample's second moment is 1 + p/n, that of the estimate 1 within 3 %."""
    found = EmpiricalSpectrum.from_data(np.random.default_rng(1).normal(size=(600, p)))
    assert found.mean(lambda sigma: sigma) == pytest.approx(1, rel=0.02)
    assert found.mean(lambda sigma: sigma**2) == pytest.approx(1, rel=0.03)


@pytest.mark.parametrize("p", [100, 400])
def test_two_eigenvalues_are_told_apart(p):
    sigma = np.repeat([1.0, 10.0], p // 2)
    X, y = rows(800, sigma)
    found = EmpiricalSpectrum.from_data(X, y)
    below = found.weights[found.nodes < 3].sum()
    assert below == pytest.approx(0.5, abs=0.03)
    assert found.mean(lambda s: np.where(s < 3, s, 0)) / below == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("shapes", [(1, 5), (2, 2), (5, 1)])
@pytest.mark.parametrize("ratio", [0.2, 1.0, 3.0])
def test_means_that_the_theory_asks_for(shapes, ratio):
    """E[sigma^2 / (1 + sigma v)^2], the slope of what was fitted, at every v that was measured."""
    n = 500
    sigma = BetaSpectrum(*shapes).draw(int(ratio * n), 3)
    each = summary(n, sigma, seed=4)
    at, found = each.points(), EmpiricalSpectrum.of(each)
    for v in at.v[::4]:
        true = np.mean((sigma / (1 + sigma * v)) ** 2)
        assert found.mean(lambda s, v=v: (s / (1 + s * v)) ** 2) == pytest.approx(true, rel=0.05)


@given(st.floats(1e-3, 1e3), st.integers(0, 20))
@examples(10)
def test_units_do_not_matter(factor, seed):
    X, y = rows(60, np.linspace(0.5, 2, 30), 0.3, seed)
    one, other = (EmpiricalSpectrum.from_data(each, y) for each in (X, factor * X))
    assert other.nodes == pytest.approx(factor**2 * one.nodes, rel=1e-8)
    assert other.signal == pytest.approx(factor * one.signal, rel=1e-4)


def test_rotation_order_origin_and_names_do_not_matter():
    X, y = rows(100, np.linspace(0.5, 2, 30), 0.3)
    rng = np.random.default_rng(5)
    turn, _ = np.linalg.qr(rng.normal(size=(30, 30)))
    order = rng.permutation(100)
    one = EmpiricalSpectrum.from_data(X, y)
    others = [(X @ turn, y), (X[order], y[order]), (X + 3, 1 - y), (X, np.where(y, "yes", "no"))]
    for other in others:
        found = EmpiricalSpectrum.from_data(*other)
        assert found.nodes == pytest.approx(one.nodes, rel=1e-6)
        assert found.mean(np.log) == pytest.approx(one.mean(np.log), abs=1e-4)
        assert found.signal == pytest.approx(one.signal, rel=1e-4)


# ---- the signal ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [40, 200])
@pytest.mark.parametrize("power", [-1, 0, 1])
def test_known_signal_is_found(p, power):
    """Over 12 data sets of 400 rows: strength and best error rate, and where the signal lies."""
    rng = np.random.default_rng(p)
    sigma = rng.uniform(0.2, 2, p)
    mu = rng.choice([-1, 1], p) * sigma ** (power / 2)
    mu *= 1.3 / np.sqrt(np.sum(mu**2 / sigma))
    found = [EmpiricalSpectrum.of(summary(400, sigma, mu, seed)) for seed in range(12)]
    error = np.mean([float(each.bayes_error_of(each.signal)) for each in found])
    assert error == pytest.approx(float(PointSpectrum([1]).bayes_error_of(1.3)), abs=0.02)
    middle = np.mean([each.signal_mean(lambda sigma: sigma) for each in found])
    assert middle == pytest.approx(np.sum(mu**2 * sigma) / np.sum(mu**2), rel=0.15)


def test_noise_is_not_taken_for_signal():
    """Without any, the raw squared distance is p/n = 0.5; what is found is a small part of it."""
    found = [EmpiricalSpectrum.of(summary(200, np.ones(100), 0, seed)) for seed in range(10)]
    assert np.mean([each.signal**2 for each in found]) < 0.1
    assert np.mean([each.seen for each in found]) <= 0.2


def test_an_unusual_spread_is_followed():
    """All signal in the middle: no power of the eigenvalue does that, and there is much of it."""
    sigma = np.repeat([0.1, 1.0, 10.0], 60)
    mu = np.where(sigma == 1, 0.3, 0.0)
    found = EmpiricalSpectrum.of(summary(4000, sigma, mu))
    assert found.found.kind == "free"
    near = (found.nodes > 0.4) & (found.nodes < 3)
    assert found.signal_weights[near].sum() > 0.9
    assert found.signal == pytest.approx(np.linalg.norm(mu), rel=0.1)


def test_draws_spread_as_data_sets_do():
    """The spread of redrawn strengths of the signal against that over real data sets."""
    sigma, mu = np.linspace(0.3, 2, 100), 0.15
    sets = [EmpiricalSpectrum.of(summary(300, sigma, mu, seed)) for seed in range(40)]
    rng = np.random.default_rng(0)
    drawn = [sets[0].redrawn(rng).signal for _ in range(40)]
    ratio = np.std(drawn) / np.std([each.signal for each in sets])
    assert 0.5 < ratio < 2


# ---- edges -----------------------------------------------------------------------------------------------


def test_columns_that_follow_from_others_add_no_features():
    X, y = rows(200, np.linspace(0.5, 2, 20), 0.2)
    more = np.column_stack([X, X[:, :3] @ np.ones(3), X[:, 0], np.full(200, 7.0)])
    found = EmpiricalSpectrum.from_data(more, y)
    assert found.n_features == 20
    assert (found.nodes > 0).all()


def test_more_features_than_rows():
    X, y = rows(40, np.ones(2000), 0.05)
    found = EmpiricalSpectrum.from_data(X, y)
    assert found.n_features == 2000
    assert found.mean(lambda sigma: sigma) == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("p", [290, 298, 300, 310])
def test_as_many_features_as_rows(p):
    """Where small eigenvalues of the sample come near 0, those of the estimate do not."""
    errors = []
    for seed in range(4):
        found = EmpiricalSpectrum.of(summary(300, np.ones(p), 1.3 / np.sqrt(p), seed))
        errors.append(float(found.bayes_error_of(found.signal)))
    assert np.mean(errors) == pytest.approx(float(PointSpectrum([1]).bayes_error_of(1.3)), abs=0.04)


def test_a_single_feature():
    X, y = rows(200, np.array([2.0]), 1.0)
    found = EmpiricalSpectrum.from_data(X, y)
    assert found.mean(lambda sigma: sigma) == pytest.approx(2, rel=0.3)  # s.e. 10 %
    assert found.signal == pytest.approx(1, rel=0.3)


def test_without_labels_there_is_no_signal():
    found = EmpiricalSpectrum.from_data(np.random.default_rng(0).normal(size=(100, 20)))
    assert found.signal is None
    assert found.isotropic


def test_without_labels_there_is_nothing_to_draw_again():
    found = EmpiricalSpectrum.from_data(np.random.default_rng(0).normal(size=(100, 20)))
    with pytest.raises(ValueError, match="without labels.*pass y to EmpiricalSpectrum.from_data"):
        found.redrawn(np.random.default_rng(0))


def test_a_column_that_gives_the_label_away_is_named_as_such():
    X, y = rows(100, np.ones(5))
    with pytest.raises(ValueError, match="gives the label away"):
        EmpiricalSpectrum.from_data(np.column_stack([X, y]), y)


@pytest.mark.parametrize("values", [(0.0, 1.0), (0.1, 0.3)])
def test_columns_that_are_the_label_alone(values):
    y = np.arange(60) % 2
    with pytest.raises(ValueError, match="gives the label away"):
        EmpiricalSpectrum.from_data(np.array(values)[y][:, None], y)


def test_rows_that_are_repeated_are_named_as_such():
    X, y = rows(40, np.ones(50))
    with pytest.raises(ValueError, match="only 40 different rows, but 50 features"):
        EmpiricalSpectrum.from_data(np.repeat(X, 5, axis=0), np.repeat(y, 5))


def test_it_survives_pickling():
    X, y = rows(100, np.linspace(1, 2, 20), 0.3)
    found = EmpiricalSpectrum.from_data(X, y)
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert again.signal == found.signal


GOOD = np.random.default_rng(0).normal(size=(40, 4))
LABELS = np.arange(40) % 2
HOLED = np.where(np.eye(40, 4) == 1, np.nan, GOOD)


@pytest.mark.parametrize(
    ("X", "y", "error", "match"),
    [
        (HOLED, LABELS, ValueError, r"X\[0, 0\] is nan.*Fill missing"),
        (np.where(GOOD > 1, np.inf, GOOD), LABELS, ValueError, "finite"),
        (GOOD[:10], LABELS[:10], ValueError, "at least 20 rows"),
        (GOOD[0], LABELS, ValueError, "must be \\(rows, features\\)"),
        (GOOD[:, :0], LABELS, ValueError, "one column"),
        (np.ones((40, 3)), LABELS, ValueError, "the same in every row"),
        (GOOD, LABELS[:30], ValueError, "one label for each row"),
        (GOOD, np.zeros(40), ValueError, "two classes are needed"),
        (GOOD, np.arange(40) % 3, ValueError, "3 different labels.*positive=1"),
        (GOOD, np.where(np.arange(40) < 2, 1, 0), ValueError, "at least 5 of each class"),
        (GOOD, [None, *LABELS[1:]], ValueError, r"y\[0\] is missing"),
        (csr_matrix(GOOD), LABELS, TypeError, "sparse.*toarray"),
        (pd.DataFrame({"a": GOOD[:, 0], "b": ["x"] * 40}), LABELS, TypeError, "'b'.*get_dummies"),
        (GOOD.astype(str), LABELS, TypeError, "X"),
    ],
)
def test_bad_input_is_named_with_its_cure(X, y, error, match):
    with pytest.raises(error, match=match):
        EmpiricalSpectrum.from_data(X, y)


def test_tables_are_taken():
    frame = pd.DataFrame(GOOD, columns=list("abcd")).assign(e=LABELS[::-1] > 0, f=1)
    frame["e"] = np.random.default_rng(1).random(40) > 0.5
    found = EmpiricalSpectrum.from_data(frame, pd.Series(np.where(LABELS, "yes", "no")))
    assert found.n_features == 5
