"""Spline calibration: the basis against SciPy's splines, the fit and leave-one-out against brute force."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline, PPoly
from scipy.optimize import check_grad, minimize
from scipy.special import expit

import refinecal as rc
from refinecal._kernels.splines import read_splines
from refinecal.calibrators._newton import minimize_newton
from refinecal.calibrators.binning import merge_ties
from refinecal.calibrators.spline import (
    PENALTIES,
    Rows,
    SplineCalibration,
    _choose_knots,
    _deal_folds,
    spline_maps,
)


def wavy(n=400, seed=0):
    rng = np.random.default_rng(seed)
    odds = rng.normal(size=n) * 3
    return (rng.random(n) < expit(odds / 2 + np.sin(odds))).astype(int), odds


def natural(knots, values):
    """Return SciPy's natural spline, straight beyond its ends."""
    if len(knots) == 2:
        slope = np.diff(values)[0] / np.diff(knots)[0]
        return lambda x: values[0] + slope * (np.asarray(x) - knots[0])
    inner = CubicSpline(knots, values, bc_type="natural")

    def spline(x):
        x = np.asarray(x)
        near = np.clip(x, knots[0], knots[-1])
        return inner(near) + inner(near, 1) * (x - near)

    return spline


def penalty_of(knots, values):
    """Return the integral of the squared second derivative, knots from 0 to 1, by SciPy."""
    unit = (knots - knots[0]) / (knots[-1] - knots[0])
    second = CubicSpline(unit, values, bc_type="natural").derivative(2)
    at, steps = second(unit), np.diff(unit)
    return (steps * (at[:-1] ** 2 + at[:-1] * at[1:] + at[1:] ** 2) / 3).sum()


@given(st.lists(st.integers(-20, 20), min_size=2, max_size=9, unique=True), st.integers(0, 99))
def test_pieces_are_the_natural_spline_and_squares_sum_to_its_roughness(places, seed):
    knots = np.sort(np.array(places)) / 3.0
    theta = np.random.default_rng(seed).normal(size=len(knots))
    spline = SplineCalibration(laplace=False)
    spline.knots_, spline.pieces_, spline.limit_ = knots, spline_maps(knots) @ theta, 100.0
    x = np.linspace(knots[0] - 5, knots[-1] + 5, 101)
    logs = spline._map(np.stack([np.zeros(101), x], axis=1))
    values = PPoly(
        spline.pieces_[1:-1].T[::-1] / np.diff(knots) ** np.arange(3, -1, -1)[:, None], knots
    )
    expected = natural(knots, values(knots))
    np.testing.assert_allclose(logs[:, 1] - logs[:, 0], expected(x), rtol=1e-8, atol=1e-8)
    rise = theta[1]
    np.testing.assert_allclose(
        values(knots[[0, -1]]), theta[0] + rise * np.array([-0.5, 0.5]), atol=1e-9
    )
    if len(knots) > 2:
        np.testing.assert_allclose(
            (theta[2:] ** 2).sum(), penalty_of(knots, values(knots)), rtol=1e-7
        )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("penalty", [1e-1, 1e-5])
def test_the_fit_is_the_minimum_that_scipy_finds(penalty, weighted):
    labels, odds = wavy(150)
    w = np.random.default_rng(1).random(150) * 2 if weighted else np.ones(150)
    fitted = SplineCalibration(n_knots=6, penalty=penalty, laplace=False)
    fitted.fit_logits(odds, labels, sample_weight=w if weighted else None)
    knots = fitted.knots_

    def loss(values):  # in the heights at the knots, which no line of the package uses
        f = natural(knots, values)(odds)
        mean = np.average(np.logaddexp(0, f) - labels * f, weights=w)
        return mean + penalty / 2 * penalty_of(knots, values)

    best = minimize(loss, np.zeros(6), method="BFGS", options={"gtol": 1e-9})
    found = fitted.predict_proba_logits(knots)
    ours = loss(np.log(found[:, 1]) - np.log(found[:, 0]))
    assert ours <= best.fun + 1e-10
    np.testing.assert_allclose(ours, best.fun, rtol=1e-8)


@pytest.mark.parametrize("soft", [False, True])
def test_a_large_penalty_leaves_affine_scaling(soft):
    labels, odds = wavy()
    target = labels
    if soft:
        q = expit(np.random.default_rng(2).normal(size=len(odds)) + odds / 2)
        target = np.stack([1 - q, q], axis=1)
    spline = rc.make_calibrator("spline", penalty=1e9).fit_logits(odds, target)
    affine = rc.make_calibrator("affine").fit_logits(odds, target)
    new = np.linspace(-20, 20, 41)
    np.testing.assert_allclose(
        spline.predict_proba_logits(new), affine.predict_proba_logits(new), rtol=1e-6
    )


def rows_of(odds, shares, knots, weights=None):
    """Return the rows as the kernels read them, by the definition of the pieces."""
    order = np.argsort(odds, kind="stable")
    odds = odds[order]
    span = knots[-1] - knots[0]
    starts = np.r_[knots[0], knots]
    widths = np.r_[span, np.diff(knots), span]
    piece = np.array([sum(t <= x for t in knots) for x in odds])
    first = np.array([np.sum(piece < j) for j in range(len(knots) + 2)])
    heavy = np.empty(0) if weights is None else weights[order]
    total = len(odds) if weights is None else weights.sum()
    u = (odds - starts[piece]) / widths[piece]
    return Rows(first, u, shares[order].astype(float), heavy, float(total))


def mean_loss(rows, maps, ridge, theta):
    return read_splines(*rows, maps, ridge, theta)


@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_and_hessian_are_derivatives_of_the_loss(weighted):
    labels, odds = wavy(700)  # blocks of 256 rows, full and not
    weights = np.random.default_rng(1).random(700) if weighted else None
    knots = np.array([-2.0, 0.0, 3.0])
    args = rows_of(odds, labels, knots, weights), spline_maps(knots), np.array([0, 0, 0.1])
    theta = np.array([0.3, 1.0, 0.5])
    assert (
        check_grad(lambda x: mean_loss(*args, x)[0], lambda x: mean_loss(*args, x)[1], theta) < 1e-6
    )
    for j in range(3):
        step = 1e-6 * np.eye(3)[j]
        slope = (mean_loss(*args, theta + step)[1] - mean_loss(*args, theta - step)[1]) / 2e-6
        np.testing.assert_allclose(mean_loss(*args, theta)[2][j], slope, atol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_penalty_is_that_of_real_cross_validation(weighted):
    """Folds and losses once more, one copy of a row at a time."""
    labels, odds = wavy(120, seed=3)
    weights = np.random.default_rng(0).integers(1, 4, size=120) if weighted else np.ones(120, int)
    fitted = rc.make_calibrator("spline").fit_logits(odds, labels, sample_weight=weights)
    order = np.argsort(odds)
    odds, labels, weights = odds[order], labels[order], weights[order]
    parts = list(_deal_folds(weights.astype(float), rows_of(odds, labels, fitted.knots_, weights)))
    if not weighted:
        np.testing.assert_array_equal(parts, np.arange(120) % 5 == np.arange(5)[:, None])
    found = []
    maps = spline_maps(fitted.knots_)
    for out in parts:
        x, y = (np.repeat(part, (weights - out).astype(int)) for part in (odds, labels))
        new, hits = (np.repeat(part, out.astype(int)) for part in (odds, labels))
        rows = rows_of(x, y, fitted.knots_)
        spline = SplineCalibration(laplace=False)
        losses = []
        for penalty in PENALTIES:
            ridge = np.where(np.arange(maps.shape[2]) < 2, 0, penalty)
            theta = minimize_newton(
                partial(mean_loss, rows, maps, ridge), np.zeros(maps.shape[2])
            ).x
            spline.knots_, spline.limit_, spline.pieces_ = fitted.knots_, 100.0, maps @ theta
            logs = spline._map(np.stack([np.zeros(len(new)), new], axis=1))
            losses.append(-logs[np.arange(len(new)), hits])
        found.append(np.array(losses))
    losses = np.concatenate(found, axis=1)
    assert losses.shape[1] == weights.sum()
    means = losses.mean(axis=1)
    gaps = losses - losses[means.argmin()]
    errors = np.sqrt((gaps**2).mean(axis=1) / losses.shape[1])
    allowed = PENALTIES[gaps.mean(axis=1) <= 0.5 * errors]
    assert fitted.penalty_ == allowed.max()


@given(st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0, 7.0]), min_size=1, max_size=12))
def test_folds_deal_out_all_copies(copies):
    copies = np.array(copies)
    odds, labels = np.linspace(-3, 3, len(copies)), np.arange(len(copies)) % 2
    rows = rows_of(odds, labels, np.array([-1.0, 1.0]), copies)
    parts = np.array(list(_deal_folds(copies, rows)))
    np.testing.assert_allclose(parts.sum(axis=0), copies)
    assert (parts >= 0).all()
    whole = int(copies[0]) if copies[0] >= 2 else 1
    assert (parts[:, 0] >= 1).sum() <= whole
    if (copies <= 1).all():
        assert np.ptp(parts.sum(axis=1)) <= 1


def test_a_line_stays_one_where_scores_are_tied():
    rng = np.random.default_rng(7)
    probs = np.clip(rng.integers(21, size=5000) / 20, 0.025, 0.975)
    truth = 1 / (1 + np.sqrt((1 - probs) / probs))  # half the log-odds
    labels = (rng.random(5000) < truth).astype(int)
    spline = rc.make_calibrator("spline").fit(probs, labels)
    affine = rc.make_calibrator("affine").fit(probs, labels)
    np.testing.assert_allclose(spline.predict_proba(probs), affine.predict_proba(probs), atol=0.02)


def test_curves_bend_only_where_the_data_do():
    rng = np.random.default_rng(0)
    labels, odds = wavy(3000)
    bent = rc.make_calibrator("spline").fit_logits(odds, labels)
    straight = (rng.random(3000) < expit(odds / 2 - 1)).astype(int)
    line = rc.make_calibrator("spline").fit_logits(odds, straight)
    assert bent.penalty_ < 1e-4 < 1e-2 < line.penalty_
    new = np.linspace(-4, 4, 81)
    found = bent.predict_proba_logits(new)[:, 1]
    assert np.abs(found - expit(new / 2 + np.sin(new))).max() < 0.06
    assert "penalty_=" in repr(bent)
    assert bent.n_parameters == 20


def test_tails_are_straight_in_log_odds():
    labels, odds = wavy()
    fitted = rc.make_calibrator("spline", laplace=False).fit_logits(odds, labels)
    for side in (-1, 1):
        outer = abs(fitted.knots_[0 if side < 0 else -1])
        x = side * np.array([outer, outer + 5, outer + 10])
        found = fitted._map(np.stack([np.zeros(3), x], axis=1))
        np.testing.assert_allclose(np.diff(found[:, 1] - found[:, 0], n=2), 0, atol=1e-9)


@pytest.mark.parametrize("factor", [1e-6, 7.0])
def test_the_scale_of_the_log_odds_does_not_matter(factor):
    labels, odds = wavy()
    one = rc.make_calibrator("spline").fit_logits(odds, labels)
    other = rc.make_calibrator("spline").fit_logits(factor * odds, labels)
    assert one.penalty_ == other.penalty_
    np.testing.assert_allclose(
        one.predict_proba_logits(odds), other.predict_proba_logits(factor * odds), rtol=1e-6
    )


def test_few_scores_and_few_samples_make_few_knots():
    labels, odds = wavy(60)
    assert rc.make_calibrator("spline").fit_logits(odds, labels).n_parameters == 2 + 6
    assert (
        rc.make_calibrator("spline").fit_logits(odds, labels, np.full(60, 4.0)).n_parameters == 20
    )
    odds = np.repeat([-1.0, 0.0, 2.0], 4)
    np.testing.assert_array_equal(_choose_knots(odds, 20), [-1, 0, 2])
    np.testing.assert_array_equal(_choose_knots(np.arange(10.0), 5), [1, 3, 5, 7, 9])
    rounded = merge_ties(1 + 1e-15 * np.arange(10.0))
    np.testing.assert_array_equal(_choose_knots(rounded, 5), [1])
    labels = [0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 0, 0]
    free = rc.make_calibrator("spline", penalty=0, laplace=False).fit_logits(odds, labels)
    np.testing.assert_allclose(
        free.predict_proba_logits([-1.0, 0.0, 2.0])[:, 1], [1 / 4, 3 / 4, 1 / 4], rtol=1e-6
    )


def test_scores_far_out_do_not_overflow():
    labels, odds = wavy(60)
    odds[:3] = 1e300, -1e300, -np.inf
    fitted = rc.make_calibrator("spline").fit_logits(odds, labels)
    assert np.isfinite(
        np.log(fitted.predict_proba_logits([-np.inf, -1e200, 0, 1e300, np.inf]))
    ).all()
    assert np.isfinite(fitted.pieces_).all()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_knots": 1}, "n_knots is 1: it must be a whole number of at least 2"),
        ({"n_knots": 2.5}, "n_knots is 2.5"),
        ({"penalty": -1}, "penalty is -1: it must be a finite number of at least 0, or None"),
        ({"penalty": np.inf}, "penalty is inf"),
    ],
)
def test_wrong_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        rc.make_calibrator("spline", **params).fit([0.2, 0.7], [0, 1])


def test_more_classes_need_one_against_the_rest():
    with pytest.raises(ValueError, match="is for 2 classes, found 3: use calibrator='spline-ovr'"):
        rc.make_calibrator("spline").fit(np.full((4, 3), 1 / 3), [0, 1, 2, 0])


def test_a_state_whose_arrays_do_not_belong_together_is_refused():
    labels, odds = wavy(50)
    state = rc.make_calibrator("spline").fit_logits(odds, labels).to_dict()
    state["learned"]["knots_"]["values"].pop()
    with pytest.raises(ValueError, match="pieces_ must have one row more than knots_"):
        rc.calibrators.from_dict(state)


@pytest.mark.parametrize("name", ["spline", "affine", "quadratic", "beta", "uniform-mass"])
def test_new_predictions_need_no_compiled_code(name):
    """A curve read from a file predicts without the import of the kernels."""
    import subprocess
    import sys

    labels, odds = wavy(50)
    text = rc.make_calibrator(name).fit_logits(odds, labels).to_json()
    code = (
        "import sys, refinecal as rc\n"
        "rc.calibrators.from_json(sys.stdin.read()).predict_proba([0.2])\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], input=text, text=True, check=True)
